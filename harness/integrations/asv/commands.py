"""asv's commands made to heed which way is better.

publish (regressions.json and the Atom feed; the pages are `harness.integrations.asv.pages`), compare,
continuous and find. What judges figures, finds regressions and searches commits stays asv's: its functions
are given figures turned round, and what they answer is turned back. Benchmarks of which less is better never
take that way. A command is changed when it is called, and refused where what it needs of asv is another.
"""

from __future__ import annotations

__all__ = ["setup"]

import functools
import math
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from asv import feed
from asv.benchmarks import Benchmarks
from asv.commands import compare, find
from asv.commands.continuous import Continuous
from asv.commands.publish import Publish
from asv.console import log
from asv.plugins import regressions
from asv.util import UserError

from harness.integrations.asv.direction import (
    Direction,
    check_asv,
    direction_of,
    directions_of,
    warn_of_unknown_directions,
)
from harness.integrations.asv.runs import replaced, when_called
from harness.integrations.asv.tracks import TRACKS

_NEGATIVE_BEFORE_WORSE = re.compile(r"\(-(?=\S+(?: units|) worse\b)")


def setup() -> None:
    """Change what asv's commands do; to be called once."""
    when_called((Publish,), _heed_in_publish)
    when_called((compare.Compare,), lambda: _heed_in_compare("commands/compare.py"))
    # It measures, which takes hours, and then prints the table of the other.
    when_called((Continuous,), lambda: _heed_in_compare("commands/compare.py", "commands/continuous.py"))
    when_called((find.Find,), _heed_in_find)


# publish: regressions and their feed


class _Mirrored(float):
    """The negative of a figure of which more is better, so that its fall is a rise.

    A relative threshold is one of its size: asv multiplies the two, and a negative threshold is none.
    """

    __slots__ = ()

    def __rmul__(self, factor: float) -> float:
        return factor * abs(float(self))


class _MirroredSteps(list[Any]):
    pass


def _mirrored(steps: list[Any]) -> _MirroredSteps:
    # The least value of a step, the fourth item, is not read by asv's detection.
    return _MirroredSteps(
        (left, right, _Mirrored(-value), math.nan, error) for left, right, value, _, error in steps
    )


def _threshold_of_rate(threshold: float) -> float:
    """The fall of a rate that is a rise by `threshold` of its time: both relative to the figure before.

    Thus a kernel's rate and its time are reported together, and a threshold of 1 or more still has a meaning.
    """
    threshold = max(threshold, 0.0)
    return threshold / (1 + threshold)


def _directed_filter() -> type:
    class DirectedFilter(regressions._GraphDataFilter):  # type: ignore[misc]  # noqa: SLF001
        """asv's series to look for regressions in, without those of which no way is better."""

        def get_graph_data(self, graph: Any, benchmark: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
            direction = direction_of(benchmark)
            if direction == "none":
                return
            for index, name, steps, threshold in super().get_graph_data(graph, benchmark):
                if direction == "lower":
                    yield index, name, steps, threshold
                else:
                    yield index, name, _mirrored(steps), _threshold_of_rate(threshold)

    return DirectedFilter


def _heed_in_publish() -> None:
    check_asv("plugins/regressions.py", "step_detect.py")
    publisher = regressions.Regressions
    publish, find_jumps = publisher.publish.__func__, publisher._process_regression.__func__  # noqa: SLF001
    detect = regressions.detect_regressions

    def directed_detect(steps: list[Any], threshold: float = 0, min_size: int = 2) -> tuple[Any, Any, Any]:
        last, best, jumps = detect(steps, threshold, min_size)
        if last is None or not isinstance(steps, _MirroredSteps):
            return last, best, jumps
        turned_back = [(start, end, -before, -after) for start, end, before, after in jumps]
        return -last, -best, turned_back

    def directed_publish(cls: Any, conf: Any, repo: Any, benchmarks: Any, *rest: Any) -> None:
        from harness.integrations.asv.explained import Explained

        warn_of_unknown_directions(benchmarks)
        explained = Explained(conf, benchmarks)

        def unexplained(
            cls: Any,
            found: list[Any],
            hashes: Mapping[int, str],
            repo: Any,
            every: Any,
            data: Any,
            graph: Any,
        ) -> None:
            own: list[Any] = []
            find_jumps(cls, own, hashes, repo, every, data, graph)
            for name, *place, jumps in own:
                if left := explained.without(graph.params.get("machine", ""), name, jumps, hashes):
                    found.append([name, *place, left])

        with (
            replaced(publisher, _process_regression=classmethod(unexplained)),
            replaced(
                regressions,
                _GraphDataFilter=_directed_filter(),
                detect_regressions=directed_detect,
                feed=SimpleNamespace(FeedEntry=feed.FeedEntry, write_atom=_feed_writer(benchmarks)),
            ),
        ):
            publish(cls, conf, repo, benchmarks, *rest)
        explained.tell()

    publisher.publish = classmethod(directed_publish)


def _feed_writer(benchmarks: Mapping[str, Mapping[str, Any]]) -> Any:
    def write_atom(filename: str, entries: list[Any], **about: Any) -> None:
        for entry in entries:
            benchmark = benchmarks[entry.id_context[0].partition("(")[0]]
            if direction_of(benchmark) == "higher":
                # "-10.00% worse" would be better.
                entry.content = _NEGATIVE_BEFORE_WORSE.sub("(", entry.content)
        feed.write_atom(filename, entries, **about)

    return write_atom


# compare and continuous


@functools.cache
def _number_with(direction: Direction, kind: type) -> Any:
    """Numbers that carry their benchmark's direction to where asv compares two."""
    return type("DirectedNumber", (kind,), {"direction": direction})


def _directed(value: Any, direction: Direction) -> Any:
    if direction == "lower" or not isinstance(value, int | float):
        return value
    # A whole number stays one in asv's table.
    return _number_with(direction, int if isinstance(value, int) else float)(value)


class _Table:
    """One table of `asv compare`: what asv reads its figures with, and what it prints its rows with."""

    def __init__(self, benchmarks: Mapping[str, Mapping[str, Any]], sort: str) -> None:
        self.turned = False
        """Whether a change was shown of which more is better."""
        self._directions = directions_of(benchmarks)
        self._sort = sort
        self._unroll, self._asvs_tabulate = compare.unroll_result, compare.tabulate.tabulate
        self._direction_of_row: dict[str, Direction] = {}

    def unroll_result(self, name: str, params: Any, *columns: Any) -> Iterator[tuple[Any, ...]]:
        direction = self._directions.get(name) or _direction_once(name)
        for row_name, value, *rest in self._unroll(name, params, *columns):
            self._direction_of_row[row_name] = direction
            yield (row_name, _directed(value, direction), *rest)

    def tabulate(self, rows: list[list[str]], **how: Any) -> Any:
        """In place of the module of that name: rows of mark, before, after, ratio and name."""
        if self._sort == "ratio":
            rows = sorted(rows, key=self._badness, reverse=True)
        self.turned |= any(row[0] in {"+", "-"} and self._direction(row) == "higher" for row in rows)
        return self._asvs_tabulate(rows, **how)

    def _direction(self, row: list[str]) -> Direction:
        name = row[4]
        # With several machines or environments asv appends theirs in brackets.
        known = self._direction_of_row
        return known.get(name) or known.get(name.rpartition(" [")[0]) or "lower"

    def _badness(self, row: list[str]) -> tuple[int, float]:
        """New failures first, then by how much worse; last what is neither worse nor better."""
        direction = self._direction(row)
        try:
            ratio = float(row[3].lstrip("~"))
        except ValueError:
            ratio = math.nan
        if row[0] == "!":
            return 3, 0.0
        if math.isnan(ratio) or row[0] == "x":
            return 1, 0.0
        if direction == "none":
            return 0, 0.0
        if direction == "higher":
            ratio = 1 / ratio if ratio else math.inf
        return 2, ratio


def _direction_once(name: str) -> Direction:
    """Of a benchmark that is in the results and no longer in the suite: what the harness's tracks say."""
    track = TRACKS.get(name.rpartition(".")[2])
    return track.direction if track else "lower"


def _heed_in_compare(*sources: str) -> None:
    check_asv(*sources)
    print_table, is_better = compare.Compare.print_table.__func__, compare._is_result_better  # noqa: SLF001

    def directed_is_better(
        a: Any, b: Any, a_stats: Any, b_stats: Any, factor: float, use_stats: bool = True
    ) -> bool:
        """What asv judges itself, with the sides exchanged where higher is better.

        So a rate is worse by a factor of 1.1 once it is below 1/1.1 of what it was.
        """
        directions = {getattr(value, "direction", "lower") for value in (a, b)}
        if "none" in directions:
            return False
        if "higher" in directions:
            if not a > b:  # which asv's factor does not see to where figures are negative
                return False
            a, b, a_stats, b_stats = b, a, b_stats, a_stats
        return bool(is_better(a, b, a_stats, b_stats, factor, use_stats=use_stats))

    def directed_print_table(cls: Any, conf: Any, *args: Any, **kwargs: Any) -> Any:
        benchmarks = Benchmarks.load(conf)
        warn_of_unknown_directions(benchmarks)
        table = _Table(benchmarks, kwargs.get("sort", "default"))
        with replaced(
            compare, unroll_result=table.unroll_result, _is_result_better=directed_is_better, tabulate=table
        ):
            outcome = print_table(cls, conf, *args, **kwargs)
        if table.turned:
            print(  # noqa: T201
                "\n+ is worse and - is better. Where higher is better, worse is a ratio below 1."
            )
        return outcome

    compare.Compare.print_table = classmethod(directed_print_table)


# find


class _Turned(float):
    """A figure whose difference from another is what a lower-is-better figure's would be."""

    __slots__ = ()

    def __sub__(self, other: float) -> float:
        return float(other) - float(self)


class _Search:
    """What one search has seen. asv passes over a commit of which no figure is known; here what counts for
    known is what the search asks for, and a commit at which a kernel fails that ran elsewhere is passed over
    too: the rest of its figures say nothing of that kernel.
    """

    def __init__(self, benchmarks: Any) -> None:
        self._benchmarks = benchmarks
        self._seen: set[int] = set()
        self.passed_over: list[str] = []

    def figures(self, results: Any, name: str, params: Any) -> list[float | None]:
        asked = self._benchmarks.benchmark_selection.get(name)
        values = {
            place: value
            for place, value in enumerate(results.get_result_value(name, params))
            if asked is None or place in asked
        }
        figures = {place: value for place, value in values.items() if _is_figure(value)}
        failed = {place for place, value in values.items() if value is None}
        if failed & self._seen or not figures:
            self.passed_over.append(results.commit_hash[:8])
            log.warning(
                f"{results.commit_hash[:8]} is passed over: {name} {'failed' if failed else 'is n/a'}"
            )
            return [None] * (max(values) + 1)
        self._seen |= figures.keys()
        higher = direction_of(self._benchmarks[name]) == "higher"
        turned = {place: _Turned(value) if higher else value for place, value in figures.items()}
        return [turned.get(place) for place in range(max(values) + 1)]


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)


def _heed_in_find() -> None:
    check_asv("commands/find.py")
    run = find.Find.run.__func__
    run_benchmarks = find.run_benchmarks

    def directed_run(cls: Any, *args: Any, **kwargs: Any) -> Any:
        searches: list[_Search] = []

        def directed_run_benchmarks(benchmarks: Any, *args: Any, **kwargs: Any) -> Any:
            results = run_benchmarks(benchmarks, *args, **kwargs)
            search = searches[0] if searches else _Search(benchmarks)
            searches[:] = [search]
            return _Searched(results, search)

        try:
            with replaced(find, run_benchmarks=directed_run_benchmarks):
                return run(cls, *args, **kwargs)
        except UserError as error:
            if not searches or str(error) != "Too many commits failed":
                raise
            raise UserError(
                f"No commit could be found: {', '.join(searches[0].passed_over)} have no figure, and the "
                "change is at one of them or next to it. Search between two commits that have one."
            ) from None

    find.Find.run = classmethod(directed_run)


class _Searched:
    """asv's results of one commit, of which a search sees what it asked for."""

    def __init__(self, results: Any, search: _Search) -> None:
        self._results, self._search = results, search

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def get_result_value(self, name: str, params: Any) -> list[float | None]:
        return self._search.figures(self._results, name, params)
