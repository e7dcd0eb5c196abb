"""asv find, without wrong commits: commits that do not run, and commits that change no code."""

from __future__ import annotations

import functools
import itertools
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from asv.commands import find
from asv.console import log
from asv.util import UserError

from harness.history.changes import same_build
from harness.history.figures import Direction
from harness.integrations.asv.directions import ASV, direction_in_asv
from harness.integrations.asv.probes import (
    COMMITS,
    FALL,
    RATE,
    RISE,
    direction_of,
    made_up_project,
    made_up_search,
    passes,
)
from harness.integrations.asv.same_build import Builds
from harness.integrations.asv.tracks import requesting
from harness.records.types import Row

_FOUND = re.compile(r"Greatest (?P<what>regression|improvement) found: (?P<commit>[0-9a-f]{8})")
"""asv's last line."""


class _Turned(float):
    """A value whose difference from another has the sign of a lower-is-better value."""

    __slots__ = ()

    def __sub__(self, other: float) -> float:
        return float(other) - float(self)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Measurements of one commit. The keys of both mappings are positions of the parameters, in
    asv's order.
    """

    figures: Mapping[int, float]
    """Values that the search compares."""
    rows: Mapping[int, Row]
    """Rows of the records, which identify the build."""


class _Search:
    """The state of one search.

    asv skips a commit without a value. This search also skips a commit at which a kernel fails that ran
    elsewhere, because that commit's other values say nothing about this kernel.

    Commits with the same binary share the value of the first one measured: their difference is noise.
    """

    def __init__(
        self,
        records: Path,
        *,
        inverted: bool,
        direction_of: Callable[[Mapping[str, Any]], Direction] = direction_in_asv,
    ) -> None:
        self.line: list[str] = []
        """The searched commits, oldest first."""
        self.found = ""
        """The commit that asv is about to name, by eight digits."""
        self.passed_over: list[str] = []
        self._records, self._inverted, self._direction_of = records, inverted, direction_of
        self._seen: set[int] = set()
        self._measured: dict[str, _Measured] = {}

    def figures(
        self, benchmarks: Any, results: Any, read: Callable[..., Any], name: str, params: Any
    ) -> list[float | None]:
        """Return the values of a commit that `read` returns, as adjusted for the search."""
        commit = results.commit_hash
        asked = benchmarks.benchmark_selection.get(name)
        values = {
            place: value for place, value in enumerate(read(name, params)) if asked is None or place in asked
        }
        figures = {
            place: value
            for place, value in values.items()
            if isinstance(value, int | float) and not math.isnan(value)
        }
        failed = {place for place, value in values.items() if value is None}
        if failed & self._seen or not figures:
            self.passed_over.append(commit[:8])
            log.warning(f"{commit[:8]} is passed over: {name} {'failed' if failed else 'is n/a'}")
            return [None] * (max(values) + 1)
        self._seen |= figures.keys()
        higher = self._direction_of(benchmarks[name]) == "higher"
        builds = Builds(self._records / results.params["machine"], benchmarks)
        names = [f"{name}({', '.join(each)})" for each in itertools.product(*params)]
        rows = {place: row for place in figures if (row := builds.row(names[place], commit))}
        turned = {
            place: self._figure(place, rows.get(place), _Turned(value) if higher else value)
            for place, value in figures.items()
        }
        self._measured[commit] = _Measured(turned, rows)
        return [turned.get(place) for place in range(max(values) + 1)]

    def _figure(self, place: int, row: Row | None, own: float) -> float:
        """Return the value of the first commit that ran the same binary, or the commit's own."""
        known = (
            each.figures[place]
            for each in self._measured.values()
            if place in each.figures and same_build(each.rows.get(place), row)
        )
        return next(known, own)

    def check(self, what: str, found: str) -> None:
        """Raise UserError if the commit that asv is about to name, by eight digits, is not to blame."""
        self.found = found
        at = next(place for place, commit in enumerate(self.line) if commit.startswith(found))
        pair = self.line[max(at - 1, 0)], self.line[at]
        if {each[:8] for each in pair} & {*self.passed_over}:  # asv treats a time-out there as a value
            return
        if at == 0 or not self._measured.keys() >= {*pair}:
            raise UserError(
                f"No {what} was looked for: asv would name {found} and has not measured it, as "
                f"{len(self.line)} commits are too few to search. Compare it: asv continuous {found}^ {found}"
            )
        before, after = (self._measured[each] for each in pair)
        places = before.figures.keys() & after.figures.keys()
        if all(same_build(before.rows.get(place), after.rows.get(place)) for place in places):
            raise UserError(
                f"No {what} was found: asv would name {found}, whose binary is that of the commit before, "
                f"{pair[0][:8]}. What differs is noise."
            )
        sign = -1 if self._inverted else 1
        if not any(sign * (after.figures[place] - before.figures[place]) > 0 for place in places):
            better = "better" if self._inverted else "worse"
            raise UserError(
                f"No {what} was found: asv would name {found}, whose figure is no {better} than that of the "
                f"commit before, {pair[0][:8]}."
            )


class _Checked:
    """asv's log. It checks asv's result before anybody reads it."""

    def __init__(self, search: _Search) -> None:
        self._search = search

    def __getattr__(self, name: str) -> Any:
        return getattr(log, name)

    def info(self, message: str, *more: Any, **options: Any) -> None:
        if found := _FOUND.match(message):
            self._search.check(found["what"], found["commit"])
        log.info(message, *more, **options)


def searching(run: Callable[..., Any], conf: Any, *args: Any, **options: Any) -> Any:
    """Run asv's search with adjusted values."""
    if not passes(functools.partial(_finds_the_fall_of_a_rate, run)):
        raise UserError(
            f"asv find could name the wrong commit: {ASV} takes every rise for worse, and the harness cannot "
            "teach its search which way is better. Search with: harness bisect CASE GOOD BAD"
        )
    with ExitStack() as opened:
        records = Path(conf.results_dir)
        if options.get("skip_save"):
            records = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="harness-find-")))
            opened.enter_context(requesting(scratch=str(records)))
        search = _Search(records, inverted=bool(options.get("invert")))
        opened.enter_context(_searched(search))
        try:
            return run(conf, *args, **options)
        except UserError as error:
            if not search.passed_over or str(error) != "Too many commits failed":
                raise
            raise UserError(
                f"No commit could be found: {', '.join(search.passed_over)} have no figure, and the "
                "change is at one of them or next to it. Search between two commits that have one."
            ) from None


@contextmanager
def _searched(search: _Search) -> Iterator[None]:
    """Let asv's search use the values of `search`, and check its result, in this block."""
    with patch.multiple(
        find,
        get_repo=_listening(find.get_repo, search),
        run_benchmarks=_reading(find.run_benchmarks, search),
        log=_Checked(search),
    ):
        yield


def _finds_the_fall_of_a_rate(run: Callable[..., Any]) -> bool:
    """Probe asv's search with a rate that rises a little and falls a lot.

    It must find the fall, and with `invert` the rise.
    """
    return all(
        _found(run, invert=invert) == COMMITS[place][:8] for invert, place in ((False, FALL), (True, RISE))
    )


def _found(run: Callable[..., Any], *, invert: bool) -> str:
    """Return the commit that a search of the made-up rate finds, by eight digits. Nothing is measured."""
    with made_up_project() as conf, patch.multiple(find, **made_up_search()):
        search = _Search(Path(conf.results_dir), inverted=invert, direction_of=direction_of)
        with _searched(search):
            run(conf, "", RATE, invert=invert)
    return search.found


def _listening(get_repo: Callable[..., Any], search: _Search) -> Callable[..., Any]:
    """Return asv's repository, extended to tell the search its commits."""

    def opened(conf: Any) -> Any:
        repository = get_repo(conf)
        list_commits = repository.get_hashes_from_range

        def listed(span: str) -> list[str]:
            hashes: list[str] = list_commits(span)
            search.line = hashes[::-1]
            return hashes

        repository.get_hashes_from_range = listed
        return repository

    return opened


def _reading(run_benchmarks: Callable[..., Any], search: _Search) -> Callable[..., Any]:
    """Return asv's measuring function, changed to return adjusted values."""

    def measured(benchmarks: Any, *args: Any, **options: Any) -> Any:
        results = run_benchmarks(benchmarks, *args, **options)
        read = results.get_result_value
        results.get_result_value = functools.partial(search.figures, benchmarks, results, read)
        return results

    return measured
