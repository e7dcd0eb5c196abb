"""Checks that a problem's tolerance does not accept wrong answers.

The check needs only the reference and the tolerance, and runs before any kernel. So right and wrong kernels
of a problem get the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.errors import SuiteError
from harness.measure.verify import Arrays
from harness.suite.layout import exact_limits, integer_limits
from harness.suite.problem import Case, Problem

_ROUNDINGS, _MOST_SHARE = 16, 1 / 8
"""Differences that count as equal: this many roundings of the largest answer, and at most this share of it.

Half precision need not distinguish such answers.
"""
_FLOAT64_UNIT = 2.0**-50
"""Relative error of a float64 sum per term, a few times the unit roundoff."""
_FEWEST = 8
"""Fewest elements of an output for which more than zero is tried. With fewer, a wrong answer may pass by
chance."""
_GLANCE = 2**16
"""Number of elements that are compared first. With a sound tolerance the rest need not be compared."""


class LooseBoundError(SuiteError):
    """A tolerance that accepts a wrong answer, or no answer at all."""

    reason = "loose-bound"


def check_numbers(problem: Problem, case: Case, reference: Arrays, tolerance: ArrayLike) -> None:
    """Raise LooseBoundError for a bound that is infinite, NaN or negative.

    NaN or infinity in the reference is left to the comparison, which reports it.
    """
    bound = np.asarray(tolerance, np.float64)
    if (bound >= 0).all() and (bound < np.inf).all():
        return
    if not all(np.isfinite(reference[name]).all() for name in problem.outputs):
        return
    name, output = next(iter(problem.outputs.items()))
    each = np.broadcast_to(bound, output.shape_at(case))
    where = np.unravel_index(int(np.argmin((each >= 0) & (each < np.inf))), each.shape)
    value = float(each[where])
    passes = "every number passes" if value > 0 else "no answer passes, not even the right one"
    raise LooseBoundError(
        f"tolerance() of {case.suite} gives {value:g} for {name}{list(map(int, where)) or ''} at "
        f"{case.size_label}, within which {passes}. Return a finite bound of 0 or more for every element; "
        "docs/suites.md explains how to choose it."
    )


def too_wide(problem: Problem, case: Case, inputs: Arrays, reference: Arrays, tolerance: ArrayLike) -> str:
    """Return a sentence that names the output and the wrong answer that its tolerance accepts; else "".

    It tries zero, a constant, the unchanged inputs, and the right answers at wrong places. A wrong answer
    counts if rounding cannot explain its distance from the right one, and the reference has no NaN or
    infinity.
    """
    bound = np.asarray(tolerance, np.float64)
    if not bound.any():  # only the right answer passes
        return ""
    for name in problem.outputs:
        answer = reference[name]
        least, most = float(answer.min()), float(answer.max())
        apart = _share_of_roundings(problem, case, name) * max(-least, most)
        if bound.max() <= apart:  # as for results that must be exact
            continue
        if said := _passing(_wrong_answers(problem, name, inputs, answer, bound), apart, inputs):
            return (
                f"tolerance() of {case.suite} allows errors of up to {bound.max():.4g} in {name!r} at "
                f"{case.size_label}, where right answers lie between {least:.4g} and {most:.4g}: {said} "
                "would pass. Derive the tolerance from the kernel's roundings, as docs/suites.md explains; "
                "or let data() give inputs whose answers differ more."
            )
    return ""


def _passing(wrong_answers: Iterable[_WrongAnswer], apart: float, inputs: Arrays) -> str:
    """Return a sentence on a wrong answer that passes and differs by more than `apart` from the right one."""
    suspects = [wrong for wrong in wrong_answers if wrong.passes(apart)]
    if suspects:
        apart = max(apart, _rounding_of_reference(inputs, suspects[0].answer.size))
    return next((wrong.said for wrong in suspects if wrong.passes(apart)), "")


def _share_of_roundings(problem: Problem, case: Case, name: str) -> float:
    """Return the share of the largest answer that the types of output and kernel cannot resolve."""
    own = problem.outputs[name].dtype_at(case)
    if integer_limits(own):
        return 0.0
    units = [1 / exact_limits(dtype)[1] for dtype in (own, case.dtype) if not integer_limits(dtype)]
    return min(_ROUNDINGS * max(units), _MOST_SHARE)


def _rounding_of_reference(inputs: Arrays, elements: int) -> float:
    """Return the largest float64 result of a sum whose terms cancel to zero."""
    found = 0.0
    for values in inputs.values():
        if values.dtype.kind not in "iub":
            largest = max(float(values.max()), -float(values.min()))
            found = max(found, largest * max(1.0, values.size / elements))
    return _FLOAT64_UNIT * found


@dataclass(frozen=True, slots=True)
class _WrongAnswer:
    """A wrong answer, its description, and the right answer with its bound."""

    said: str
    values: NDArray[Any]
    answer: NDArray[np.float64]
    bound: NDArray[np.float64]

    def passes(self, apart: float) -> bool:
        """Tell whether the bound accepts the answer although an element is off by more than `apart`."""
        if not (self._errors(_GLANCE) <= self.bound.flat[:_GLANCE]).all():
            return False
        errors = self._errors()
        return bool((errors <= self.bound.flat[:]).all() and (errors > apart).any())

    def _errors(self, most: int | None = None) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.values.flat[:most].astype(np.float64)
        return np.abs(values - self.answer.flat[:most])


def _wrong_answers(
    problem: Problem, name: str, inputs: Arrays, answer: NDArray[np.float64], bound: NDArray[np.float64]
) -> Iterator[_WrongAnswer]:
    bounds = np.broadcast_to(bound, answer.shape)
    whole = partial(_WrongAnswer, answer=answer, bound=bounds)
    yield whole("zero everywhere", np.broadcast_to(0.0, answer.shape))
    if answer.size < _FEWEST:
        return
    if (constant := _constant_within(answer, bounds)) is not None:
        yield whole(f"{constant:.4g} everywhere", np.broadcast_to(constant, answer.shape))
    for given, values in inputs.items():
        if values.size == answer.size:
            yield whole(f"the input {given!r} as it is", values.reshape(answer.shape))
    for axis, label in enumerate(problem.outputs[name].shape):
        yield whole(f"the answers in reverse order along {label}", np.flip(answer, axis))
        here, there = ((slice(None),) * axis + (part,) for part in (slice(None, -1), slice(1, None)))
        yield _WrongAnswer(
            f"each answer in its neighbour's place along {label}", answer[there], answer[here], bounds[here]
        )
    if answer.ndim > 1 and answer.shape[-1] == answer.shape[-2]:
        yield whole("the transposed answers", np.swapaxes(answer, -1, -2))


def _constant_within(answer: NDArray[np.float64], bounds: NDArray[np.float64]) -> float | None:
    """Return a number within the bound of every answer, or None."""
    low = high = 0.0
    for most in (_GLANCE, None):
        answers, around = answer.flat[:most], bounds.flat[:most]
        with np.errstate(over="ignore"):
            low, high = float((answers - around).max()), float((answers + around).min())
        if low > high:
            return None
    return (low + high) / 2
