"""The figures of one card before they are series: of each suite, and of each benchmark of other projects, a
table with a row a commit and a column a case. Records and asv's results both come to this.
"""

from __future__ import annotations

__all__ = ["Case", "Figures", "Floats", "Group", "Key", "laid_over", "united"]

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.history.direction import Direction
from harness.spec.case_id import short_id

Floats: TypeAlias = npt.NDArray[np.float64]
Key: TypeAlias = tuple[str, ...]
"""A case within its group: kernel and size of a suite, parameters of another benchmark."""

HOW = ("method", "l2")
"""How something was measured. Figures of one commit that differ in it are never mixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a series measures; the same on every card."""

    name: str
    """matmul.naive@1024; of a benchmark that is not of a suite, what asv calls it."""
    suite: str
    kernel: str
    size: str
    metric: str
    unit: str
    direction: Direction
    order: int
    """Its place among all cases, in the suites' order of kernels and sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is measured together, on any card: a suite, or one benchmark of another project."""

    name: str
    is_suite: bool
    metrics: Mapping[str, tuple[str, Direction]]
    """Unit, and which way is better."""
    headlines: tuple[str, ...]
    """The metrics that are shown where none is asked for."""
    kernels: tuple[str, ...] = ()
    """Of a suite: those that it has now, in its order."""
    keys: tuple[Key, ...]

    def cases(self, metric: str, first: int) -> tuple[Case, ...]:
        """Every case, numbered from `first`."""
        return tuple(self._case(key, metric, first + place) for place, key in enumerate(self.keys))

    def _case(self, key: Key, metric: str, order: int) -> Case:
        if self.is_suite:
            suite, (kernel, size) = self.name, key
            name = short_id(suite, kernel, size)
        else:
            (suite, _, kernel), size = self.name.rpartition("."), ", ".join(key)
            name = self.name + (f"({size})" if key else "")
        unit, direction = self.metrics[metric]
        return Case(
            name=name,
            suite=suite,
            kernel=kernel,
            size=size,
            metric=metric,
            unit=unit,
            direction=direction,
            order=order,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one group on one card."""

    group: str
    commits: tuple[str, ...]
    """Of each row, its full hash; in no order."""
    keys: tuple[Key, ...]
    """Of each column."""
    values: Mapping[str, npt.NDArray[np.float32]]
    """By metric: NaN where nothing was measured, infinite where the kernel failed."""
    contexts: tuple[Mapping[str, str], ...]
    """Of each row, what is known of how it was measured, by key of `facts.CONTEXT`."""


def united(groups: Iterable[Group]) -> tuple[Group, ...]:
    """One group a name: of several the first says what it is, and the others add cases of its kernels."""
    found: dict[str, Group] = {}
    for group in groups:
        known = found.get(group.name)
        if known is None:
            found[group.name] = group
        elif known.is_suite and group.is_suite:
            more = [key for key in group.keys if key not in known.keys and key[0] in known.kernels]
            metrics = {**group.metrics, **known.metrics}
            found[group.name] = replace(known, keys=_ordered([*known.keys, *more], known), metrics=metrics)
    return tuple(found.values())


def _ordered(keys: Sequence[Key], group: Group) -> tuple[Key, ...]:
    kernels = {kernel: place for place, kernel in enumerate(group.kernels)}
    return tuple(sorted(keys, key=lambda key: kernels[key[0]]))


def laid_over(below: Figures, above: Figures, there: npt.NDArray[np.bool_]) -> Figures:
    """Both in one table. Where `there` says that `above` has a row of a case, that is what counts."""
    rows, columns = _places(below.commits, above.commits), _places(below.keys, above.keys)
    at_rows = np.array([rows[commit] for commit in above.commits], np.intp)
    at_columns = np.array([columns[key] for key in above.keys], np.intp)
    contexts = [dict(context) for context in below.contexts] + [
        {} for _ in range(len(rows) - len(below.commits))
    ]
    other = np.zeros(len(rows), np.bool_)
    for row, context in zip(at_rows.tolist(), above.contexts, strict=True):
        known = contexts[row]
        other[row] = any(known.get(key, context[key]) != context[key] for key in HOW if key in context)
        known.update(context)
    values = {}
    for metric in {**below.values, **above.values}:
        merged = np.full((len(rows), len(columns)), np.nan, np.float32)
        if metric in below.values:
            merged[: len(below.commits), : len(below.keys)] = below.values[metric]
        merged[other] = np.nan
        block = np.ix_(at_rows, at_columns)
        figures = above.values.get(metric, np.float32(np.nan))
        merged[block] = np.where(there, figures, merged[block])
        values[metric] = merged
    return Figures(
        group=below.group, commits=tuple(rows), keys=tuple(columns), values=values, contexts=tuple(contexts)
    )


def _places(first: Sequence[Any], second: Sequence[Any]) -> dict[Any, int]:
    return {each: place for place, each in enumerate(dict.fromkeys((*first, *second)))}
