"""A series is a case on a card over the commits: values, the card's readings, and epochs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from harness.history.figures import HEADLINES_OF_BUILT, Figures, Floats, Group, Key, SeriesCase
from harness.history.sources.our_records import CONTEXT, Commits

COMPANIONS = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "power_w",
    "registers",
    "local_bytes",
    "time_ms",
    "error_ratio",
    "verified",
)
"""Tracks that accompany a headline value instead of having their own case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A span with one driver, one compiler, one card and one method of measuring."""

    start: int
    context: Mapping[str, str]
    changed: tuple[str, ...] = ()
    """Differences from the previous epoch, such as "driver 570.1 → 580.2"; empty for the first."""

    @property
    def label(self) -> str:
        return ", ".join(self.changed) or ", ".join(
            f"{CONTEXT[key]} {self.context[key]}" for key in ("driver", "compiler") if key in self.context
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A difference in how a case was measured from one point to the next, which starts no epoch.

    A step at that point may have another cause than the code.
    """

    at: int
    """First point that was measured in the new way."""
    key: str
    """asv's key, such as number, python, os; or a requirement, such as numpy."""
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.key} {self.before} → {self.after}"

    @property
    def kind(self) -> Literal["measurement", "dependency", "machine"]:
        if self.key == "number":
            return "measurement"
        return "machine" if self.key in _OF_MACHINE else "dependency"


_OF_MACHINE = frozenset(
    {
        "arch",
        "cpu",
        "gpu",
        "kernel",
        "node",
        "num_cpu",
        "num_cpus",
        "os",
        "processor",
        "ram",
        "runner",
        "system",
    }
)
_RESTLESS = 0.1
"""Share of commits at which a fact changes, from which it is ignored: it is a reading or a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A point per measured commit, in the order of commits. Arrays have n entries, NaN for no value."""

    card: str
    case: SeriesCase
    positions: npt.NDArray[np.int64]
    values: Floats
    failed: npt.NDArray[np.bool_]
    epoch: npt.NDArray[np.int64]
    """Index into `epochs` for each point."""
    epochs: tuple[Epoch, ...]
    beside: Mapping[str, Floats] = field(default_factory=dict)
    """Values of the companion tracks, by name."""
    shifts: tuple[Shift, ...] = ()


def series_of(
    card: str,
    figures: Iterable[Figures],
    groups: Iterable[Group],
    commits: Commits,
    metric: str | None = None,
    *,
    built: bool = False,
) -> Iterator[Series]:
    """Yield every series of a card that has a value or a failure.

    A suite has a series of its headline value, of `metric`, or of metrics that are `built` and not run.
    """
    known = {each.group: each for each in figures}
    for group, shown, cases in _numbered_built([*groups]) if built else _numbered(groups, metric):
        if (found := known.get(group.name)) and shown in found.values:
            cases_by_key = dict(zip(group.keys, cases, strict=True))
            yield from _of_group(card, found, shown, cases_by_key, commits)


def cases_of(
    groups: Sequence[Group], metric: str | None = None, *, built: bool = False
) -> tuple[SeriesCase, ...]:
    """Return every case that a card may have a series of, with `built` ones last.

    A case's `order` is its position among them.
    """
    every = [*_numbered(groups, metric), *(_numbered_built(groups) if built else ())]
    return tuple(case for _, _, cases in every for case in cases)


def _numbered(
    groups: Iterable[Group], metric: str | None
) -> Iterator[tuple[Group, str, tuple[SeriesCase, ...]]]:
    """Yield each displayed metric with its group and its cases."""
    order = 0
    for group in groups:
        if metric is None:
            chosen = group.headlines
        else:
            chosen = (metric,) if group.is_suite and metric in group.metrics else ()
        for shown in chosen:
            cases = tuple(group.cases(shown, order))
            yield group, shown, cases
            order += len(cases)


def _numbered_built(groups: Sequence[Group]) -> Iterator[tuple[Group, str, tuple[SeriesCase, ...]]]:
    """Yield the same for kernels that were compiled and not run. A case has several series, named
    by metric.
    """
    order = sum(len(cases) for _, _, cases in _numbered(groups, None))
    for group in groups:
        for metric, direction in HEADLINES_OF_BUILT.items() if group.is_suite else ():
            if metric in group.metrics:
                cases = tuple(
                    dataclasses.replace(
                        case, name=f"{case.name} {metric}", direction=direction or case.direction
                    )
                    for case in group.cases(metric, order)
                )
                yield group, metric, cases
                order += len(cases)


def _of_group(
    card: str, figures: Figures, metric: str, cases: Mapping[Key, SeriesCase], commits: Commits
) -> Iterator[Series]:
    places = commits.positions
    by_position = {places[name]: row for row, name in enumerate(figures.commits) if name in places}
    positions = np.array(sorted(by_position), np.int64)
    rows = np.array([by_position[at] for at in positions.tolist()], np.intp)
    epochs, epoch = _epochs([figures.contexts[row] for row in rows.tolist()])
    columns = {key: column for column, key in enumerate(figures.keys)}
    conditions = _steady([figures.conditions[row] for row in rows.tolist()] if figures.conditions else [])
    known: dict[tuple[tuple[str, str], ...], int] = {}
    kinds = np.array(
        [known.setdefault(tuple(sorted(each.items())), at) for at, each in enumerate(conditions)]
    )
    shown = {name: figures.values[name][rows] for name in (metric, *COMPANIONS) if name in figures.values}
    shared: dict[bytes, _OfPoints] = {}
    for key, case in cases.items():
        if (column := columns.get(key)) is None:
            continue
        there = np.flatnonzero(~np.isnan(shown[metric][:, column]))
        if there.size == 0:
            continue
        if (of_points := shared.get(there.tobytes())) is None:
            of_epochs, of_epoch = _those_of(epochs, epoch[there])
            of_points = _OfPoints(
                positions=positions[there],
                epochs=of_epochs,
                epoch=of_epoch,
                shifts=tuple(_shifts(conditions, kinds[there])) if conditions else (),
            )
            shared[there.tobytes()] = of_points
        own = {name: values[there, column].astype(np.float64) for name, values in shown.items()}
        failed = np.isinf(own[metric])
        for values in own.values():
            values[np.isinf(values)] = np.nan
        yield Series(
            card=card,
            case=case,
            values=own[metric],
            failed=failed,
            beside={name: own[name] for name in COMPANIONS if name in own and np.isfinite(own[name]).any()},
            **of_points,
        )


class _OfPoints(TypedDict):
    """The properties shared by all series of a group with values at the same commits."""

    positions: npt.NDArray[np.int64]
    epochs: tuple[Epoch, ...]
    epoch: npt.NDArray[np.int64]
    shifts: tuple[Shift, ...]


def _steady(conditions: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Return conditions without the facts that change very often."""
    changes = Counter(
        key
        for before, after in pairwise(conditions)
        if before is not after
        for key, value in after.items()
        if before.get(key, value) != value
    )
    restless = {key for key, count in changes.items() if count > max(2, _RESTLESS * len(conditions))}
    if not restless:
        return conditions
    return [{key: value for key, value in each.items() if key not in restless} for each in conditions]


def _shifts(conditions: Sequence[Mapping[str, str]], kinds: npt.NDArray[np.int64]) -> Iterator[Shift]:
    """Yield the changes of conditions between points; `kinds` holds each point's index into `conditions`."""
    for at in (np.flatnonzero(np.diff(kinds)) + 1).tolist():
        before, after = conditions[kinds[at - 1]], conditions[kinds[at]]
        for key in sorted(after):
            if before.get(key, after[key]) != after[key]:
                yield Shift(at=at, key=key, before=before[key], after=after[key])


def _those_of(
    epochs: Sequence[Epoch], epoch: npt.NDArray[np.int64]
) -> tuple[tuple[Epoch, ...], npt.NDArray[np.int64]]:
    """Return the epochs in which a series has points, from its first point in each, and each
    point's index.
    """
    if len(epochs) == 1:
        return tuple(epochs), np.zeros(len(epoch), np.int64)
    _, starts, own = np.unique(epoch, return_index=True, return_inverse=True)
    found: list[Epoch] = []
    for start in np.sort(starts).tolist():
        known = epochs[epoch[start]]
        changed = _differences(found[-1].context, known.context) if found else ()
        found.append(dataclasses.replace(known, start=start, changed=changed))
    return tuple(found), np.argsort(np.argsort(starts))[own].astype(np.int64)


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{CONTEXT[key]} {before[key]} → {value}"
        for key, value in after.items()
        if before.get(key, value) != value
    )


def _epochs(contexts: Sequence[Mapping[str, str]]) -> tuple[tuple[Epoch, ...], npt.NDArray[np.int64]]:
    """Return epochs in order of their begin, and the epoch of each row.

    An unknown fact counts as unchanged: only a known difference begins an epoch. If an earlier context
    returns, for example because commits are measured again, its epoch continues.
    """
    known: dict[str, str] = {}
    found: list[Epoch] = []
    epoch = np.zeros(len(contexts), np.int64)
    current = 0
    for at, context in enumerate(contexts):
        if at and (
            context is contexts[at - 1] or all(known.get(key) == value for key, value in context.items())
        ):
            epoch[at] = current
            continue
        before, known = known, {**known, **context}
        # The last epoch that no known fact contradicts; else a new one.
        like = (n for n, each in enumerate(found) if not _differences(each.context, known))
        current = max(like, default=len(found))
        if current == len(found):
            found.append(Epoch(start=at, context=known, changed=_differences(before, known)))
        elif len(known) > len(found[current].context):
            found[current] = dataclasses.replace(found[current], context=known)
        epoch[at] = current
    return tuple(found), epoch
