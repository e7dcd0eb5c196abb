"""References for kernels: one that the body proves, and one that the name suggests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.init.elementwise import Elementwise
from harness.init.guessed_suite import ArrayGuess, Number, Reference

UNIT = {"float16": "2.0**-11", "bfloat16": "2.0**-8", "float64": "2.0**-53", "float32": "2.0**-24"}
"""Unit roundoff of a dtype."""


def reference_of(
    name: str, arrays: Sequence[ArrayGuess], numbers: Sequence[Number], body: Elementwise | None
) -> Reference | None:
    """Return a reference that the kernel's body proves; None without a proof."""
    outputs = [array for array in arrays if array.role != "Input"]
    if body is None or len(outputs) != 1:
        return None
    out, unit = outputs[0], UNIT.get(outputs[0].dtype)
    if body.output != out.name or any(array.shape != out.shape for array in arrays):
        return None
    if body.bound not in ((), out.shape) or (unit is None and not _is_whole(body, out)):
        return None
    scalars = {number.name for number in numbers}
    expression, magnitude = (_of_case(text, scalars) for text in (body.expression, body.magnitude))
    tolerance = ""
    if unit is not None and body.roundings:
        factor = f"{body.roundings} * " if body.roundings > 1 else ""
        tolerance = f"{factor}{unit} * ({magnitude})"
    if unit is not None and body.calls:
        tolerance = f"{body.roundings + 4 * body.calls} * {unit} * (1 + abs({expression}))"
    if out.role == "Output" and len(arrays) == 1 and out.shape:  # the same number in every element
        sizes = ", ".join(f"case.{axis}" for axis in out.shape)
        expression = f"np.full(({sizes},), {expression})"
    return Reference(expression, tolerance, f"read from the body of {name}")


def _is_whole(body: Elementwise, out: ArrayGuess) -> bool:
    """Return whether integers of the output's type avoid division and overflow on small values."""
    copied = not body.roundings and not body.calls
    return copied or (out.dtype in {"int32", "int64"} and not body.divides)


def proposal_of(
    name: str,
    arrays: Sequence[ArrayGuess],
    numbers: Sequence[Number],
    axes: Sequence[str],
    matrices: Sequence[str] | None = None,
) -> Reference | None:
    """Return a reference that the kernel's name suggests, for its author to check; None for most names.

    `matrices` are A, B and C of a product. Names are suite.py's.
    """
    outputs = [array for array in arrays if array.role != "Input"]
    if matrices:
        return _product(matrices, outputs[0], numbers, axes)
    inputs = [array for array in arrays if array.role == "Input"]
    return _by_name(name.lower(), outputs[0], inputs) if len(outputs) == 1 else None


def _by_name(name: str, out: ArrayGuess, inputs: Sequence[ArrayGuess]) -> Reference | None:
    unit = UNIT.get(out.dtype)
    if len(inputs) != 1 or out.role != "Output":
        return None
    x = inputs[0]
    if "transpose" in name and len(x.shape) == 2 and sorted(out.shape) == sorted(x.shape):
        return Reference(f"{x.name}.T", "", "by its name: a transposition")
    if "softmax" in name and len(x.shape) == 2 and out.shape == x.shape and unit and "log" not in name:
        powers = f"powers = np.exp({x.name} - {x.name}.max(axis=1, keepdims=True))\n"
        quotient = "powers / powers.sum(axis=1, keepdims=True)"
        return Reference(powers + quotient, f"64 * {unit}", "by its name: a softmax of each row")
    if re.search(r"sum|reduc", name) and not out.shape and out.init:
        bound = f"64 * {unit} * abs({x.name}).sum()" if unit else ""
        return Reference(f"{x.name}.sum()", bound, "by its name, and because it adds to one element: a sum")
    return None


def _of_case(text: str, scalars: set[str]) -> str:
    return re.sub(
        r"\b[A-Za-z_]\w*\b", lambda word: f"case.{word[0]}" if word[0] in scalars else word[0], text
    )


def _product(
    matrices: Sequence[str], out: ArrayGuess, numbers: Sequence[Number], axes: Sequence[str]
) -> Reference:
    a, b, c = matrices
    product, size = f"{a} @ {b}", "products"
    by_case = {number.name.lower(): number.name for number in numbers}
    if "alpha" in by_case:
        product, size = f"case.{by_case['alpha']} * ({product})", f"abs(case.{by_case['alpha']}) * {size}"
    if out.role == "InOut":
        beta = f"case.{by_case['beta']} * {c}" if "beta" in by_case else c
        product, size = f"{product} + {beta}", f"({size} + abs({beta}))"
    letter = {axis.lower(): axis for axis in axes}
    m, n, k = (letter.get(each, axes[0]) for each in "mnk")
    unit = UNIT.get(out.dtype)
    bound = f"8 * {unit} * {size}" if unit else ""
    if out.dtype in ("float16", "bfloat16"):  # summed in float32, then rounded
        bound = f"{unit} * abs(self.reference(case, {{arrays}})) + 8 * 2.0**-22 * {size}"
    products = f"products = np.outer(np.linalg.norm({a}, axis=1), np.linalg.norm({b}, axis=0))\n"
    why = "by the names of its parameters: a matrix product"
    return Reference(product, products + bound if bound else "", why, f"2 * case.{m} * case.{n} * case.{k}")
