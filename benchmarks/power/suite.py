"""A card at its power limit: tensor cores kept busy from registers, with operands that toggle.

Not part of the ladder. Comparisons are tried on it, since at the power limit time hides what cycles show. Try
it with ``HARNESS_SUITES=benchmarks/power harness calibrate``.
"""

from __future__ import annotations

from typing import Any

from harness import Axis, Case, Input, Kernel, Output, Problem, Suite


class RepeatedProduct(Problem):
    """c[w] = rounds * a[w] @ b[w] for tiles of 64 x 16 and 16 x 64, a warp each."""

    warps = Axis(default=(2112,), quick=(64,))
    rounds = Axis(default=(2000,), quick=(10,))
    tile = Axis(default=(64,))
    depth = Axis(default=(16,))
    a = Input("warps", "tile", "depth")
    b = Input("warps", "depth", "tile")
    c = Output("warps", "tile", "tile", dtype="float32")

    def reference(self, case: Case, a: Any, b: Any) -> Any:
        return case.rounds * (a @ b)

    def tolerance(self, case: Case, a: Any, b: Any) -> Any:
        # The same product is added again and again, and tensor cores cut each sum off: an ulp a time, or two.
        return abs(a @ b) * case.rounds**2 * 2.0**-22 + 1e-2

    def flop(self, case: Case) -> int:
        return 2 * case.warps * case.tile**2 * case.depth * case.rounds


suite = Suite(
    "power",
    RepeatedProduct(),
    headline="GFLOP/s",
    kernels=[
        Kernel(
            "tensor",
            "tensor.cu",
            args=("a", "b", "c", "warps", "rounds"),
            dtype="float16",
            requires="sm_80",
            block=128,
            grid=lambda c: c.warps // 4,
            about="Tensor cores alone: every operand stays in registers.",
        )
    ],
)
