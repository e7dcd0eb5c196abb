"""Tells whether a kernel's output is right. Pure functions over host arrays.

An output is compared with a float64 reference, element by element, within the problem's own bound. NaN and
infinity always fail. An output is filled with NaN before the kernel runs, so an element that was never
written fails too.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.errors import SuiteError
from harness.records.types import Check, Outputs, Verification
from harness.suite.layout import exact_limits, integer_limits, numpy_dtype
from harness.suite.problem import Case, Problem, rounded
from harness.system.threads import room_of_thread, side_by_side

BAND_ELEMENTS = 2**25
"""Larger outputs are compared slice by slice, if the problem allows it, to limit host memory."""

PART_ELEMENTS = 2**16
"""Elements that a thread compares at a time."""

SAMPLE_ELEMENTS = 2**18
"""Elements of the largest output in a sample."""

_MOST_APART = 2**53
"""Largest integer up to which float64 holds all integers."""

_UNWRITTEN = (
    "NaN: never written, or computed from outside the inputs; an array that kernels add to is an InOut, or "
    "an Output with init=0"
)

_NO_REFERENCE = (
    "the reference has NaN there: write a data() of values that it can take, none below 0 for a square root"
)

Arrays = Mapping[str, NDArray[Any]]
Reading = Callable[[str, tuple[slice, ...]], NDArray[Any]]
"""Copies an output, or the part given by a slice of each axis, to the host."""
Tolerance = Any
"""A number or array for all outputs, as returned by tolerance(), or a mapping with a number for
each output."""
SHARES: Mapping[str, float] = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Default tolerance of an output by its type, as a share of its largest magnitude."""
COARSE_SHARE = 0.13
"""The same for types of eight bits and fewer."""
SELF_DIFFERENCES = 4.0
"""Base may differ between runs, for example by atomics. This multiple of the difference is tolerated."""
_NEAR_SHARE = 0.01
"""Largest share by which a kernel that only rounds is off, even in types of 16 bits."""
_RANDOM_SHARE = 0.05
"""Share of their largest magnitude by which outputs of two runs must differ to count as random."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """An output, or one band of it, compared with its reference."""

    elements: int
    wrong: int
    largest_error: float | None
    largest_ratio: float | None
    first_wrong: tuple[int, ...] | None = None
    found: float = 0.0
    expected: float = 0.0


def integer_data(
    problem: Problem, case: Case, bound: int, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Return integer inputs in [-bound, bound] that their types hold exactly, so that the answer is exact."""
    data = {}
    for name, array in problem.inputs.items():
        shape, dtype = array.shape_at(case), array.dtype_at(case)
        least, most = exact_limits(dtype)
        integers = rng.integers(max(-bound, least), min(bound, most), shape, endpoint=True)
        data[name] = integers.astype(numpy_dtype(dtype))
    return data


def host_bytes(problem: Problem, case: Case) -> int:
    """Estimate the host memory for verification: data, float64 copies, and four arrays of a band's size."""
    sizes = {name: math.prod(array.shape_at(case)) for name, array in problem.arrays.items()}
    data = sum(
        sizes[name] * (numpy_dtype(array.dtype_at(case)).itemsize + (8 if name in problem.inputs else 0))
        for name, array in problem.arrays.items()
    )
    largest = largest_output(problem, case)
    return data + 4 * 8 * (min(largest, BAND_ELEMENTS) if problem.independent else largest)


def largest_output(problem: Problem, case: Case) -> int:
    """Return the number of elements of the largest output."""
    return max(math.prod(output.shape_at(case)) for output in problem.outputs.values())


def bands(problem: Problem, case: Case) -> Iterator[tuple[Case, slice]]:
    """Cut the case along the problem's independent axis into parts that fit into memory as float64."""
    axis = problem.independent
    largest = largest_output(problem, case)
    if axis is None or largest <= BAND_ELEMENTS:
        yield case, slice(None)
        return
    extent = case.sizes[axis]
    step = max(1, extent * BAND_ELEMENTS // largest)
    for start in range(0, extent, step):
        yield _band(case, axis, start, min(start + step, extent))


def sample(problem: Problem, case: Case, rng: np.random.Generator) -> tuple[Case, slice] | None:
    """Return a random band that is computed quickly; None if the problem cannot be cut."""
    axis = problem.independent
    if axis is None:
        return None
    extent = case.sizes[axis]
    largest = largest_output(problem, case)
    rows = min(extent, max(1, extent * SAMPLE_ELEMENTS // largest))
    start = int(rng.integers(0, extent - rows, endpoint=True))
    return _band(case, axis, start, start + rows)


def _band(case: Case, axis: str, start: int, stop: int) -> tuple[Case, slice]:
    return replace(case, sizes={**case.sizes, axis: stop - start}), slice(start, stop)


def origin(problem: Problem, name: str, band: slice) -> tuple[int, ...]:
    """Return the start of an array's band in the whole array."""
    start = band.start or 0
    return tuple(start if axis == problem.independent else 0 for axis in problem.arrays[name].shape)


def cut(problem: Problem, arrays: Arrays, band: slice) -> dict[str, NDArray[Any]]:
    """Return the part of each array that belongs to a band of the independent axis."""
    return {name: array[place(problem, name, band)] for name, array in arrays.items()}


def place(problem: Problem, name: str, band: slice) -> tuple[slice, ...]:
    """Return the slices of an array that belong to a band of the independent axis."""
    return tuple(band if axis == problem.independent else slice(None) for axis in problem.arrays[name].shape)


def reference_of(problem: Problem, case: Case, inputs: Arrays) -> tuple[dict[str, NDArray[Any]], Any]:
    """Return the float64 reference by output, and the tolerance. Raises SuiteError for wrong shapes.

    Without a tolerance() the results must be exact: the reference, rounded to the type of the output. Then it
    may be an array of that type, which takes less memory.
    """
    result, tolerance = problem.judged(case, inputs, reference=True)
    by_type = problem.held_to == "function" and not problem.has_tolerance
    for name, output in problem.outputs.items():
        if name not in result or np.shape(result[name]) != output.shape_at(case):
            got = np.shape(result[name]) if name in result else "nothing"
            raise SuiteError(
                f"reference() of {case.suite} gave {got} for output {name!r}; "
                f"expected shape {output.shape_at(case)}."
            )
    found = {
        name: _wide(result[name], output.dtype_at(case), exact=not (problem.has_tolerance or by_type))
        for name, output in problem.outputs.items()
    }
    for name, values in (*inputs.items(), *found.items()):
        _check_apart(case, name, problem.arrays[name].dtype_at(case), values)
    if by_type:
        return found, tolerances_by_type(problem, case, found)
    _check_bound(problem, case, tolerance)
    if not problem.has_tolerance:
        found = {name: rounded(values, problem.arrays[name].dtype_at(case)) for name, values in found.items()}
    return found, tolerance


def _wide(values: Any, dtype: str, *, exact: bool) -> NDArray[Any]:
    """Return values in float64, or unchanged if they have the type to which an exact result is rounded."""
    own = numpy_dtype(dtype)
    is_rounded = exact and own.isbuiltin == 1 and getattr(values, "dtype", None) == own and own.kind == "f"
    return np.asarray(values) if is_rounded else np.asarray(values, np.float64)


def tolerances_by_type(problem: Problem, case: Case, expected: Arrays) -> dict[str, float]:
    """Return the tolerance of each output: 0 for integers, for others a share of the largest magnitude."""
    return {
        name: _share(problem, case, name) * _largest_magnitude(expected[name]) for name in problem.outputs
    }


def _share(problem: Problem, case: Case, name: str) -> float:
    dtype = problem.arrays[name].dtype_at(case)
    return 0.0 if integer_limits(dtype) or dtype == "bool" else SHARES.get(dtype, COARSE_SHARE)


def _largest_magnitude(values: NDArray[Any]) -> float:
    wide = np.abs(values.astype(np.float64))
    return float(np.max(wide, initial=0.0, where=np.isfinite(wide)))


def tolerances_of_two_runs(problem: Problem, case: Case, one: Arrays, other: Arrays) -> dict[str, float]:
    """Return the tolerance of each output from two runs of a kernel; infinity for random outputs.

    It is the default of the output's type, or four times the difference of the two runs if that is more.
    """
    found = tolerances_by_type(problem, case, one)
    for name in problem.outputs:
        largest, differs = _largest_magnitude(one[name]), _difference(one[name], other[name])
        is_random = differs > _RANDOM_SHARE * largest
        found[name] = math.inf if is_random else max(found[name], SELF_DIFFERENCES * differs)
    return found


def _difference(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the largest difference of two arrays; infinity if only one of them has NaN."""
    parts = compare_in_parts(one, other.astype(np.float64), math.inf, alike=True)
    largest = _largest([part.largest_error for part in parts])
    return math.inf if largest is None else largest


def allowed(tolerance: Tolerance, name: str) -> Any:
    """Return the tolerance of one output."""
    return tolerance[name] if isinstance(tolerance, Mapping) else tolerance


def _check_apart(case: Case, name: str, dtype: str, values: NDArray[Any]) -> None:
    """Raise SuiteError for integers that float64 cannot distinguish: a wrong one would look right."""
    limits = integer_limits(dtype)
    if limits and limits[1] >= _MOST_APART and (np.abs(values.astype(np.float64)) >= _MOST_APART).any():
        raise SuiteError(
            f"{name!r} of {case.suite} has integers of 2**53 or more, which float64, the type of "
            "reference(), cannot distinguish: let data() make smaller ones."
        )


def _check_bound(problem: Problem, case: Case, tolerance: Any) -> None:
    """Raise SuiteError for a tolerance whose shape does not match the outputs."""
    bound = np.asarray(tolerance)
    for name, output in problem.outputs.items():
        expected = output.shape_at(case)
        with contextlib.suppress(ValueError):
            np.broadcast_to(bound, expected)
            if bound.dtype.kind in "biuf":
                continue
        got = f"of shape {bound.shape}" if bound.shape else repr(tolerance)
        raise SuiteError(
            f"tolerance() of {case.suite} gave {got}; expected a number, or an array that is broadcast to "
            f"output {name!r} of shape {expected}."
        )


def compare(
    output: NDArray[Any],
    reference: NDArray[np.float64],
    tolerance: NDArray[np.float64] | float,
    origin: Sequence[int] = (),
    *,
    alike: bool = False,
) -> OutputComparison:
    """Compare every element with the reference, within a tolerance (broadcast). NaN is wrong.

    `origin` is where a band begins in the whole output. With `alike`, NaN is right if the reference has NaN,
    and an infinity if the reference has the same.
    """
    if _is_exact(output, reference, tolerance):
        return OutputComparison(elements=output.size, wrong=0, largest_error=0.0, largest_ratio=0.0)
    # Use "not within" instead of "beyond": every comparison with NaN is false, and false must mean wrong.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error, ratio = (row.reshape(output.shape) for row in room_of_thread(2, output.size, np.float64))
        np.copyto(error, output, casting="unsafe")
        values = error.copy() if alike else error
        np.abs(np.subtract(error, reference, out=error), out=error)
        if alike:
            error[(values == reference) | (np.isnan(values) & np.isnan(reference))] = 0.0
        # A bound computed from an infinite reference is infinite too. No distance within it is right.
        wrong = ~((error <= tolerance) & (error < np.inf))
        ratio[...] = 0.0
        largest_ratio = float(np.divide(error, tolerance, out=ratio, where=error != 0).max())
    count = int(np.count_nonzero(wrong))
    finite = bool(np.isfinite(error).all())
    where = None
    if count:
        where = tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return OutputComparison(
        elements=output.size,
        wrong=count,
        largest_error=float(error.max()) if finite else None,
        largest_ratio=largest_ratio if finite and np.isfinite(largest_ratio) else None,
        first_wrong=where and tuple(map(sum, zip_longest(where, origin, fillvalue=0))),
        found=float(output[where]) if where is not None else 0.0,
        expected=float(reference[where]) if where is not None else 0.0,
    )


def _is_exact(output: NDArray[Any], reference: NDArray[Any], tolerance: NDArray[np.float64] | float) -> bool:
    """Tell whether an output has its reference's type and its values, which are finite."""
    return (
        output.dtype == reference.dtype
        and bool((output == reference).all())
        and bool(np.isfinite(reference).all())
        and bool((np.asarray(tolerance) >= 0).all())
    )


def compare_in_parts(
    output: NDArray[Any],
    reference: NDArray[np.float64],
    tolerance: NDArray[np.float64] | float,
    origin: Sequence[int] = (),
    *,
    alike: bool = False,
) -> list[OutputComparison]:
    """Compare as `compare` does, in parallel parts whose arrays fit into a cache."""
    axis = next((number for number, extent in enumerate(output.shape) if extent > 1), None)
    if axis is None or output.size <= PART_ELEMENTS:
        return [compare(output, reference, tolerance, origin, alike=alike)]
    extent, bounds = output.shape[axis], np.broadcast_to(tolerance, output.shape)
    step = max(1, extent * PART_ELEMENTS // output.size)

    def compared(start: int) -> OutputComparison:
        part = (*(slice(None),) * axis, slice(start, start + step))
        within = (*(0,) * axis, start)
        begin = tuple(map(sum, zip_longest(within, origin, fillvalue=0)))
        return compare(output[part], reference[part], bounds[part], begin, alike=alike)

    return side_by_side(compared, range(0, extent, step))


def combine(
    comparisons: Mapping[str, list[OutputComparison]],
    data: Literal["integers", "random"],
    seed: int,
    damage: str = "",
    *,
    beside_base: bool = False,
) -> Check:
    """Combine every band of every output into a check. `damage` describes writes to guard zones.

    With `beside_base`, the outputs were compared with base's.
    """
    everything = [comparison for parts in comparisons.values() for comparison in parts]
    errors = [comparison.largest_error for comparison in everything]
    ratios = [comparison.largest_ratio for comparison in everything]
    describe = _describe_beside_base if beside_base else partial(_describe, data=data)
    messages = [describe(name, parts) for name, parts in reversed(list(comparisons.items()))]
    message = " ".join(filter(None, (*messages, damage)))
    return Check(
        data=data,
        seed=seed,
        passed=not message,
        largest_error=_largest(errors),
        largest_ratio=_largest(ratios),
        wrong=sum(comparison.wrong for comparison in everything),
        elements=sum(comparison.elements for comparison in everything),
        message=message,
    )


def _largest(values: Sequence[float | None]) -> float | None:
    """Return the largest value; None if any is unknown."""
    found = [value for value in values if value is not None]
    return max(found) if len(found) == len(values) else None


def first_wrong(verification: Verification) -> str:
    """Return the message of the first failed check; empty if all passed."""
    return next((check.message for check in verification.checks if not check.passed), "")


def outputs_of(verification: Verification, problem: Problem) -> Outputs:
    """Return the reference of a passed kernel's outputs, and how closely they agreed."""
    function = problem.reference_function.name if problem.reference_function else ""
    error = _largest([each.largest_ratio for each in verification.checks])
    return Outputs(held_to=problem.held_to, error=error, function=function)


def _describe_beside_base(name: str, parts: Sequence[OutputComparison]) -> str:
    """Return ``3 of 64 elements of y differ from base's; the first, y[7], is 0.5 where base has 0.25.``"""
    first = next((part for part in parts if part.wrong), None)
    if first is None:
        return ""
    wrong, elements = sum(part.wrong for part in parts), sum(part.elements for part in parts)
    ratio = _largest([part.largest_ratio for part in parts])
    size = f" The largest difference is {ratio:.3g} times the tolerance." if ratio else ""
    place = f"{name}{list(first.first_wrong or ())}"
    return (
        f"{wrong} of {elements} elements of {name} differ from base's on the same inputs; the first, "
        f"{place}, is {first.found:.9g} where base has {first.expected:.9g}.{size}"
    )


def _describe(name: str, parts: Sequence[OutputComparison], data: str) -> str:
    first = next((part for part in parts if part.wrong), None)
    if first is None:
        return ""
    wrong, elements = sum(part.wrong for part in parts), sum(part.elements for part in parts)
    why = _NO_REFERENCE if np.isnan(first.expected) else _UNWRITTEN if np.isnan(first.found) else ""
    why = why and f" ({why})"
    # Only a tolerance of 0 gives a finite error an infinite ratio.
    is_exact = data == "random" and first.largest_error is not None and first.largest_ratio is None
    is_near = abs(first.found - first.expected) <= _NEAR_SHARE * abs(first.expected)
    advice = " The tolerance is 0: if the kernel rounds, write a tolerance()." if is_exact and is_near else ""
    return (
        f"{wrong} of {elements} elements of {name} are wrong on {data}; the first, "
        f"{name}{list(first.first_wrong or ())}, "
        f"is {first.found:.9g}{why} where {first.expected:.9g} was expected.{advice}"
    )
