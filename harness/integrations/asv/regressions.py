"""asv's Regressions page and its feed, from the conclusion of the history.

asv's own publisher treats every rise as worse, and knows neither clocks nor epochs. This module replaces its
list by the open regressions of the history, so asv's page, our pages and the terminal agree. A benchmark
without a known better direction keeps asv's rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from asv.console import log
from asv.plugins import regressions
from asv.plugins.regressions import Regressions

from harness.config import load_config
from harness.errors import HarnessError
from harness.history.changes import Change
from harness.history.figures import direction_of
from harness.history.reading import History, read_history
from harness.history.sources.asv_results import asv_names, read_benchmarks
from harness.history.sources.cards import machine_of
from harness.integrations.asv import probes
from harness.integrations.asv.conf import running_conf
from harness.integrations.asv.directions import ASV, misread
from harness.integrations.asv.write_results import loaded
from harness.numbers import counted

Benchmarks = Mapping[str, Mapping[str, Any]]
"""Fields of each benchmark in asv's list, by name."""
Jump = tuple["int | None", int, float, float]
"""asv's revisions before and after with the values there; no revision before if it is a single commit."""

LIST, FEED = "regressions.json", "regressions.xml"
_NEGATIVE_BEFORE_WORSE = re.compile(r"\(-(?=\S+(?: units|) worse\b)")


class Regression(NamedTuple):
    """A row of asv's list."""

    name: str
    """Name of the benchmark, with its parameters in brackets."""
    graph: str
    """Path of the graph's file, below the published folder."""
    params: Mapping[str, Any]
    """Parameters that distinguish the graph from other graphs of the benchmark."""
    place: int | None
    """Index of the parameters among all combinations; None without parameters."""
    last: float
    best: float
    jumps: Sequence[Jump]

    @property
    def benchmark(self) -> str:
        return self.name.partition("(")[0]


def write_regressions(
    conf: Any, repo: Any, benchmarks: Benchmarks, graphs: Any, revisions: Mapping[str, int]
) -> None:
    """Replace the list and the feed that asv has just published. The arguments are a publisher's.

    If that is impossible, asv's own stay, and a warning says why and how to read them.
    """
    if not probes.passes(_writes_as_asv_does):
        return _leave(f"{ASV} lists regressions in a form that the harness does not know.", benchmarks)
    try:
        found = list(_concluded(conf, repo, benchmarks, graphs, revisions))
    except HarnessError as error:
        return _leave(f"The history cannot be read: {error.message}", benchmarks)
    said = load_config().directions
    undirected = {name for name, each in benchmarks.items() if direction_of(each, said) == "unknown"}
    rows = [each for each in read_list(Path(conf.html_dir)) if each.benchmark in undirected]
    _write(conf, benchmarks, rows + [row for _, row in found if row], revisions)
    if unplaced := [name for name, row in found if row is None]:
        log.warning(
            f"asv's Regressions page lacks {counted(len(unplaced), 'open regression')}, as asv has no "
            f"results there: {', '.join(unplaced[:5])}{' ...' if len(unplaced) > 5 else ''}. "
            "'harness history' lists them."
        )
    return None


def _leave(why: str, benchmarks: Benchmarks) -> None:
    told = misread(benchmarks, "its Regressions page and its feed")
    where = "The GPU history has the regressions: harness publish, harness history"
    log.warning(" ".join(filter(None, (why, told, where))))


def read_list(html_dir: Path) -> list[Regression]:
    """Return the rows that asv has published."""
    listed = json.loads((html_dir / LIST).read_text(encoding="utf-8"))["regressions"]
    return [Regression(*row) for row in listed]


def _write(
    conf: Any, benchmarks: Benchmarks, rows: Sequence[Regression], revisions: Mapping[str, int]
) -> None:
    """Let asv write its list and its feed from these rows."""
    commits = {revision: commit for commit, revision in revisions.items()}
    named = {commits[each][:8] for row in rows for jump in row.jumps for each in jump[:2] if each is not None}

    def results_of_these(folder: str) -> Iterator[Any]:
        paths = (path for path in Path(folder).glob("*/*-*.json") if path.name[:8] in named)
        return filter(None, map(loaded, paths))

    Regressions._save(conf, {"regressions": rows})  # noqa: SLF001
    with patch.multiple(regressions, iter_results=results_of_these):  # asv would load all of them
        Regressions._save_feed(conf, benchmarks, rows, revisions, commits)  # noqa: SLF001
    path = Path(conf.html_dir, FEED)
    text = path.read_text(encoding="utf-8")
    path.write_text(_NEGATIVE_BEFORE_WORSE.sub("(", text), encoding="utf-8")  # -10 % worse would be better


def _concluded(
    conf: Any, repo: Any, benchmarks: Benchmarks, graphs: Any, revisions: Mapping[str, int]
) -> Iterator[tuple[str, Regression | None]]:
    """Yield the name and the row of each series with open regressions.

    The row is None if asv's pages have no place for it. Raises HarnessError if the history cannot be read.
    """
    site, config = running_conf(conf), load_config()
    names = asv_names(read_benchmarks(site.results))
    for branch in conf.branches:
        name = repo.get_branch_name(branch)
        if any(graph.params.get("branch") == name for _, graph in graphs):
            history = read_history(
                site.results,
                config.root,
                repository=site.repository,
                revision=branch or "HEAD",
                directions=config.directions,
                limits=replace(site.limits, branch=name),
            )
            places = _Places(benchmarks, graphs, revisions, name, history.commits.positions)
            yield from _open(history, names, places)


def _open(
    history: History, names: Mapping[tuple[str, str], str], places: _Places
) -> Iterator[tuple[str, Regression | None]]:
    """Yield the open regressions in one branch's history. `names` are asv's, by case and metric."""
    still_open = {each.change.id for each in history.conclusion.open}
    for card in history.cards:
        for one in card.analysed:
            changes = [each for each in one.changes if each.id in still_open]
            if not changes:
                continue
            case = one.series.case
            # For kernels that were compiled and not run, a case's name includes its metric.
            name = names.get((case.name.removesuffix(f" {case.metric}"), case.metric), "")
            last = one.levels[-1].level if one.levels else changes[-1].after
            best = (max if case.direction == "higher" else min)(each.before for each in changes)
            machine = {**card.machine, "machine": machine_of(card.name)}
            yield f"{case.name} on {card.name}", places.row(name, machine, changes, last, best)


class _Places:
    """Positions of series and commits on asv's pages, for one branch."""

    def __init__(
        self,
        benchmarks: Benchmarks,
        graphs: Any,
        revisions: Mapping[str, int],
        branch: str,
        positions: Mapping[str, int],
    ) -> None:
        self._benchmarks, self._graphs, self._branch = benchmarks, graphs, branch
        told = ((positions[commit], each) for commit, each in revisions.items() if commit in positions)
        self._line = sorted(told)
        """Sorted positions of the commits that asv knows, with asv's revisions."""
        self._telling = {name for name, values in graphs.get_params().items() if len(values) > 1}
        """Names of parameters that distinguish graphs."""

    def row(
        self, name: str, machine: Mapping[str, str], changes: Sequence[Change], last: float, best: float
    ) -> Regression | None:
        """Return the row of a series by asv's name; None if no graph of asv has all its changes."""
        benchmark = self._benchmarks.get(name.partition("(")[0], {})
        axes = benchmark.get("params")
        names = [f"{benchmark['name']}({', '.join(each)})" for each in product(*axes)] if axes else []
        graph = self._graph(machine, name.partition("(")[0], changes[-1].bad)
        jumps = [self._jump(graph, each) for each in changes] if graph else [None]
        placed = [each for each in jumps if each]
        if len(placed) < len(jumps) or (axes and name not in names):
            return None
        params = {key: value for key, value in graph.params.items() if key in self._telling}
        place = names.index(name) if axes else None
        return Regression(name, f"{graph.path}.json", params, place, _figure(last), _figure(best), placed)

    def _graph(self, machine: Mapping[str, str], benchmark: str, position: int) -> Any:
        """Return the graph of a machine's values.

        If several environments have one, it is the graph measured at a position, and of these the most
        similar to the machine in the card's history.
        """
        own = {"machine": machine["machine"], "branch": self._branch}
        graphs = self._graphs.get_graph_group(benchmark)
        revision = dict(self._line).get(position)

        def fits(graph: Any) -> tuple[bool, int]:
            alike = sum(machine.get(key) == str(value) for key, value in graph.params.items())
            return revision in graph.data_points, alike

        return max((each for each in graphs if own.items() <= each.params.items()), key=fits, default=None)

    def _jump(self, graph: Any, change: Change) -> Jump | None:
        known = [each for each in self._line if each[1] in graph.data_points]
        before = [each for each in known if each[0] <= change.good]
        after = [each for each in known if each[0] >= change.bad]
        if not before or not after:
            return None
        (good, first), (bad, second) = before[-1], after[0]
        return None if bad - good == 1 else first, second, _figure(change.before), _figure(change.after)


def _figure(value: float) -> float:
    """Return six digits, the precision of a history's values."""
    return float(f"{value:.6g}")


def _writes_as_asv_does() -> bool:
    """Probe asv's list and feed: for a made-up rise, both must equal asv's own, byte for byte."""
    benchmarks = {probes.COST: probes.described(probes.COST)}
    good, bad = probes.RISE - 1, probes.RISE
    revisions = {probes.BEFORE: good, probes.AFTER: bad}
    graphs = probes.made_up_graphs()
    places = _Places(benchmarks, graphs, revisions, "", revisions)
    before, after = probes.FIGURES[good], probes.FIGURES[bad]
    change: Any = SimpleNamespace(good=good, bad=bad, before=before, after=after)
    row = places.row(probes.MADE_UP[probes.COST].row, {"machine": probes.MACHINE}, [change], after, before)
    with probes.made_up_project() as conf:
        files = Path(conf.html_dir, LIST), Path(conf.html_dir, FEED)
        Regressions.publish(conf, probes.made_up_repository(), benchmarks, graphs, revisions)
        asvs = [path.read_bytes() for path in files]
        _write(conf, benchmarks, [row] if row else [], revisions)
        return read_list(Path(conf.html_dir)) != [] and [path.read_bytes() for path in files] == asvs
