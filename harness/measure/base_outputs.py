"""Uses base's outputs as the reference: records them when base is verified, and reads them for head.

They are stored in the scratch folder of the comparison, because each side may have its own process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.device.backends.base import Device
from harness.errors import MeasureError
from harness.measure import verify
from harness.measure.buffers import Buffers
from harness.measure.earlier_arrays import EarlierArrays
from harness.measure.timing import Subject
from harness.measure.verifier import RUNS_PER_CHECK, UNSEEN, Checker, check_host_memory, keep
from harness.records.types import Check, Outputs, Verification
from harness.suite.problem import Array, Case
from harness.suite.suite import Suite
from harness.suite.suite_data import TOLERANCE, of_type
from harness.system.array_files import read_arrays


def checker_of(
    device: Device,
    suite: Suite,
    scratch: Path,
    report: Callable[[str], Any],
    earlier: EarlierArrays | None = None,
) -> Checker:
    """Return the checker for a suite's kernels: by the suite's reference, or by base's outputs."""
    kind = BaseChecker if suite.problem.held_to == "base" else Checker
    return kind(device, suite, scratch, report, earlier)


class BaseChecker(Checker):
    """Compares kernels with base's outputs. Until `against` names a base, nothing is compared."""

    beside_base: ClassVar[bool] = True
    tolerance_sets: ClassVar[int] = 2
    """Number of data sets with base's outputs: the sets that kernels are timed on."""
    against = ""
    """The pair, and the commit of its base; empty without a base."""

    def record(self, case: Case, buffers: Buffers, subject: Subject, seed: int) -> str:
        """Store base's outputs on each set of data, with tolerances; return what is wrong with base.

        Afterwards the buffers hold the first set and its outputs.
        """
        problem = self.suite.problem
        check_host_memory(problem, case)
        for each in reversed(range(seed, seed + self.tolerance_sets)):
            runs, wrong = self._runs(case, buffers, subject, each)
            if wrong:
                return wrong
            tolerances = verify.tolerances_of_two_runs(problem, case, *runs)
            bounds = {f"{TOLERANCE}{name}": np.asarray(bound) for name, bound in tolerances.items()}
            keep(self._place(case, each), {**runs[0], **bounds})
        return ""

    def check(self, case: Case, buffers: Buffers, subject: Subject, seed: int) -> Verification:
        """Compare outputs on random data, which stay in the buffers. Raises LooseBoundError.

        Without a base, the kernel only has to write its outputs, and no other memory.
        """
        if self.against:
            self.check_tolerance(case, seed)
            check = self._check(case, buffers, subject, "random", seed, 0)
            return Verification(passed=check.passed, checks=(check,))
        _, wrong = self._runs(case, buffers, subject, seed)
        return Verification(passed=not wrong, checks=(_failed(wrong, seed),) if wrong else ())

    def held(self, verification: Verification, case: Case, seed: int) -> Outputs:
        """Return the reference that a passed kernel was compared with: base's outputs, unless these are
        random.
        """
        if not self.against:
            return Outputs(held_to="nothing", reason="not-compared")
        if any(map(math.isinf, self._recorded(case, seed)[1].values())):
            return Outputs(held_to="nothing", reason="random")
        return super().held(verification, case, seed)

    def expected(
        self, case: Case, part: Case, inputs: verify.Arrays, key: tuple[str, int], band: slice
    ) -> tuple[verify.Arrays, verify.Tolerance]:
        """Return base's outputs in a band of a case, and the problem's tolerance or the default
        of the type.
        """
        problem = self.suite.problem
        outputs, tolerance = self._recorded(case, key[1])
        wide = {name: each.astype(np.float64) for name, each in verify.cut(problem, outputs, band).items()}
        if problem.has_tolerance and not any(map(math.isinf, tolerance.values())):
            return wide, problem.judged(part, verify.cut(problem, inputs, band), reference=False)[1]
        return wide, tolerance

    def check_tolerance(self, case: Case, seed: int) -> None:
        """Raise LooseBoundError as for a reference, if base's outputs are known."""
        if self.against:
            super().check_tolerance(case, seed)

    def demands(
        self,
        case: Case,
        seed: int,
        inputs: verify.Arrays | None = None,
        *,
        reference: bool = True,  # noqa: ARG002
    ) -> dict[str, str]:
        """Return the problem's requirements for a kernel: a tolerance, if the problem defines one."""
        return super().demands(case, seed, inputs, reference=False)

    def wrong(
        self,
        case: Case,
        key: tuple[str, int],
        inputs: Callable[[], verify.Arrays],
        read: verify.Reading,
        *,
        in_full: bool,
    ) -> str:
        """Return what is wrong with outputs; empty if base has not run on these inputs."""
        if not self.against or key[0] == UNSEEN:
            return ""
        return super().wrong(case, key, inputs, read, in_full=in_full)

    def _runs(
        self, case: Case, buffers: Buffers, subject: Subject, seed: int
    ) -> tuple[list[dict[str, NDArray[Any]]], str]:
        """Return the outputs of each launch, and any defect that shows without a reference."""
        inputs = self.inputs(case, seed)
        buffers.write(inputs)
        self.report("verify")
        runs = []
        for _ in range(RUNS_PER_CHECK):
            buffers.poison()
            self.device.launch(subject.built, subject.launch, subject.arguments)
            self.device.synchronize()
            runs.append({name: buffers.read(name) for name in self.suite.problem.outputs})
        return runs, buffers.damage(inputs, self.digests) or self._unwritten(inputs, runs[0])

    def _unwritten(self, inputs: verify.Arrays, outputs: verify.Arrays) -> str:
        """Return a sentence if the kernel left an output unwritten; else "".

        A kernel may leave an array that it reads and writes unchanged, but not all of its arrays.
        """
        begun = {name: _begun(array, inputs.get(name)) for name, array in self.suite.problem.outputs.items()}
        same = [name for name, values in outputs.items() if _is_as_before(values, begun[name])]
        if nan := next((name for name in same if begun[name] is None), ""):
            return (
                f"Every element of {nan} is NaN after a launch: the kernel never wrote it, or computed NaN."
            )
        if len(same) == len(outputs):
            return "A launch changes no array: with these sizes and scalars the kernel has nothing to do."
        return ""

    def _recorded(self, case: Case, seed: int) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Return base's outputs for a set of data, and the tolerance of each output."""
        arrays, found = self.suite.problem.outputs, read_arrays(self._place(case, seed))
        if not found:
            raise MeasureError("Base's outputs are gone from the scratch folder: is its disk full?")
        outputs = {name: of_type(found[name], array.dtype_at(case)) for name, array in arrays.items()}
        return outputs, {name: found[f"{TOLERANCE}{name}"].item() for name in outputs}

    def _place(self, case: Case, seed: int) -> Path:
        return self.folder(case, self.against, case.kernel, seed)


def _failed(wrong: str, seed: int) -> Check:
    """Return the check of a kernel whose outputs were not compared."""
    return Check(
        data="random",
        seed=seed,
        passed=False,
        largest_error=None,
        largest_ratio=None,
        wrong=0,
        elements=0,
        message=wrong,
    )


def _begun(array: Array, given: NDArray[Any] | None) -> NDArray[Any] | float | None:
    """Return the content of an output before a launch: inputs, a number, or None for NaN."""
    return array.init if given is None else given


def _is_as_before(values: NDArray[Any], before: NDArray[Any] | float | None) -> bool:
    if before is None:
        return values.dtype.kind not in "iub" and bool(np.isnan(values.astype(np.float32)).all())
    return bool((values == before).all())
