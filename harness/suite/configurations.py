"""The sizes and configurations of a sweep, by a kernel's tuning."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from harness.errors import SuiteError
from harness.records.sweep_types import Configuration
from harness.suite.case_id import Size
from harness.suite.kernel import Kernel
from harness.suite.problem import point_of
from harness.suite.suite import Suite
from harness.suite.tuning import Tuning


def points(
    suite: Suite, tuning: Tuning, sizes: Sequence[str] = (), *, quick: bool = False
) -> tuple[dict[str, int], ...]:
    """Return the sizes to sweep: the requested ones, else the tuning's, else the problem's.

    Raises UsageError for an invalid requested size, SuiteError for an invalid size of the tuning.
    """
    if sizes:
        found = [Size.parse(size).at(suite.problem.axes) for size in sizes]
    else:
        found = [_point(suite, size) for size in tuning.sizes] or list(suite.problem.points(quick=quick))
    return tuple(point for place, point in enumerate(found) if point not in found[:place])


def _point(suite: Suite, size: int | Mapping[str, int]) -> dict[str, int]:
    point = point_of(suite.problem, size)
    if point is None:
        raise SuiteError(
            f"Suite {suite.name!r} has a tuning with the size {size!r}; "
            f"expected a number, or one above 0 for each of {', '.join(suite.problem.axes)}."
        )
    return point


def configurations(
    suite: Suite, kernel: Kernel, tuning: Tuning, sizes: Sequence[Mapping[str, int]]
) -> tuple[Configuration, ...]:
    """Return every configuration at every size, numbered from 1, size by size.

    Raises SuiteError if there is none, or a value is neither an integer nor a word.
    """
    values = itertools.product(*tuning.parameters.values())
    chosen = tuning.configurations or [dict(zip(tuning.names, each, strict=True)) for each in values]
    if not chosen:
        raise SuiteError(
            f"Kernel {kernel.name!r} has a tuning without a configuration: a parameter without a value?"
        )
    numbers = itertools.count(1)
    return tuple(
        Configuration(
            number=next(numbers),
            case=suite.case(kernel, point, each).id,
            sizes=dict(point),
            parameters=dict(each),
        )
        for point in sizes
        for each in chosen
    )
