"""asv's Regressions page and its feed, from the conclusion of the history.

asv's own publisher takes every rise for worse and knows neither clocks nor epochs. What it has written is
replaced by the regressions that the history has open, so that asv's page, ours and the terminal name the same
ones. A benchmark of which nobody knows which way is better keeps asv's rows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from asv import feed, util
from asv.console import log
from asv.plugins.regressions import Regressions
from asv.results import iter_results_for_machine_and_hash

from harness.config import load_config
from harness.errors import HarnessError
from harness.history.figures import direction_of
from harness.history.reading import History, read_history
from harness.history.sources.asv_results import asv_names, read_benchmarks
from harness.history.sources.cards import machine_of
from harness.integrations.asv import probes
from harness.integrations.asv.conf import running_conf
from harness.integrations.asv.directions import ASV, misread
from harness.numbers import counted

Benchmarks = Mapping[str, Mapping[str, Any]]
"""What asv's list tells of each benchmark, by name."""
Jump = tuple["int | None", int, float, float]
"""asv's revisions before and after, and the figures there; no revision before where one commit did it."""

LIST, FEED = "regressions.json", "regressions.xml"


class OpenStep(NamedTuple):
    """An open change: the positions of the commits on its sides, and the figures there."""

    good: int
    bad: int
    before: float
    after: float


class Regression(NamedTuple):
    """A row of asv's list."""

    name: str
    """The benchmark's, with its parameters in brackets."""
    graph: str
    """Path of the graph's file, below the published folder."""
    params: Mapping[str, Any]
    """What tells the graph from others of the benchmark."""
    place: int | None
    """Index of the parameters among all combinations; None for a benchmark without any."""
    last: float
    best: float
    jumps: Sequence[Jump]

    @property
    def benchmark(self) -> str:
        return self.name.partition("(")[0]


def write_regressions(
    conf: Any, repo: Any, benchmarks: Benchmarks, graphs: Any, revisions: Mapping[str, int]
) -> None:
    """Replace the list and the feed that asv has just published; the arguments are those of a publisher's.

    Where that is not possible asv's own stay, and a warning says why and how to read them.
    """
    if not probes.passes(_lists_as_asv_does):
        return _leave(f"{ASV} lists regressions in a form that the harness does not know.", benchmarks)
    try:
        found = list(_concluded(conf, repo, benchmarks, graphs, revisions))
    except HarnessError as error:
        return _leave(f"The history cannot be read: {error.message}", benchmarks)
    said = load_config().directions
    undirected = {name for name, each in benchmarks.items() if direction_of(each, said) == "unknown"}
    rows = [each for each in read_list(Path(conf.html_dir)) if each.benchmark in undirected]
    rows += [each for each in found if isinstance(each, Regression)]
    util.write_json(str(Path(conf.html_dir, LIST)), {"regressions": rows}, compact=True)
    _write_feed(conf, benchmarks, rows, graphs, revisions)
    if unplaced := [each for each in found if isinstance(each, str)]:
        log.warning(
            f"{counted(len(unplaced), 'open regression')} missing on asv's Regressions page, as asv has no "
            f"results there: {', '.join(unplaced[:5])}{' ...' if len(unplaced) > 5 else ''}. "
            "'harness history' lists them."
        )
    return None


def _leave(why: str, benchmarks: Benchmarks) -> None:
    told = misread(benchmarks, "its Regressions page and its feed")
    log.warning(f"{why} {told} The GPU history has the regressions: harness publish, harness history")


def read_list(html_dir: Path) -> list[Regression]:
    """Read the rows that asv has published."""
    listed = json.loads((html_dir / LIST).read_text(encoding="utf-8"))["regressions"]
    return [Regression(*row) for row in listed]


def _concluded(
    conf: Any, repo: Any, benchmarks: Benchmarks, graphs: Any, revisions: Mapping[str, int]
) -> Iterator[Regression | str]:
    """Yield a row for each case with open regressions, and for one that has no place the names of it and its
    card. Raises HarnessError where the history cannot be read.
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
) -> Iterator[Regression | str]:
    """Yield what is open in a history, a row a series; `names` are asv's, by case and metric."""
    still_open = {each.change.id for each in history.conclusion.open}
    for card in history.cards:
        for one in card.analysed:
            changes = [each for each in one.changes if each.id in still_open]
            if not changes:
                continue
            case = one.series.case
            # Of kernels that were compiled and not run a case is called by its metric too.
            name = names.get((case.name.removesuffix(f" {case.metric}"), case.metric), "")
            steps = [OpenStep(each.good, each.bad, each.before, each.after) for each in changes]
            last = one.levels[-1].level if one.levels else steps[-1].after
            best = (max if case.direction == "higher" else min)(each.before for each in steps)
            row = places.row(name, card.name, card.machine, steps, last, best)
            yield row or f"{case.name} on {card.name}"


class _Places:
    """Places of series and commits on asv's pages, for one branch."""

    def __init__(
        self,
        benchmarks: Benchmarks,
        graphs: Any,
        revisions: Mapping[str, int],
        branch: str,
        positions: Mapping[str, int],
    ) -> None:
        self._graphs, self._branch = graphs, branch
        told = ((positions[commit], each) for commit, each in revisions.items() if commit in positions)
        self._line = sorted(told)
        """Positions of the commits that asv knows, with asv's revisions."""
        self._combinations = dict(_combinations(benchmarks))
        self._told = {name: len(values) for name, values in graphs.get_params().items()}

    def row(
        self,
        name: str,
        card: str,
        machine: Mapping[str, str],
        steps: Sequence[OpenStep],
        last: float,
        best: float,
    ) -> Regression | None:
        """Return the row of a series by asv's name; None where asv has no graph with both sides of a step."""
        benchmark, place = self._combinations.get(name, ("", None))
        graph = self._graph(card, machine, benchmark, steps[-1].bad)
        jumps = [self._jump(graph, each) for each in steps] if graph else [None]
        placed = [each for each in jumps if each]
        if len(placed) < len(jumps):
            return None
        params = {key: value for key, value in graph.params.items() if self._told[key] > 1}
        return Regression(name, f"{graph.path}.json", params, place, _figure(last), _figure(best), placed)

    def _graph(self, card: str, machine: Mapping[str, str], benchmark: str, position: int) -> Any:
        """Return the graph of a card's figures. Of several environments that is the one measured at a
        position, and of these the one that is most like the card.
        """
        own = {"machine": machine_of(card), "branch": self._branch}
        graphs = self._graphs.get_graph_group(benchmark)
        revision = dict(self._line).get(position)

        def fits(graph: Any) -> tuple[bool, int]:
            alike = sum(machine.get(key) == str(value) for key, value in graph.params.items())
            return revision in graph.data_points, alike

        return max((each for each in graphs if own.items() <= each.params.items()), key=fits, default=None)

    def _jump(self, graph: Any, step: OpenStep) -> Jump | None:
        known = [each for each in self._line if each[1] in graph.data_points]
        before = [each for each in known if each[0] <= step.good]
        after = [each for each in known if each[0] >= step.bad]
        if not before or not after:
            return None
        (good, first), (bad, second) = before[-1], after[0]
        return None if bad - good == 1 else first, second, _figure(step.before), _figure(step.after)


def _combinations(benchmarks: Benchmarks) -> Iterator[tuple[str, tuple[str, int | None]]]:
    """Yield each name that asv's list may have, with the benchmark and the index of the parameters."""
    for name, benchmark in benchmarks.items():
        if not benchmark.get("params"):
            yield name, (name, None)
            continue
        for place, values in enumerate(product(*benchmark["params"])):
            yield f"{name}({', '.join(values)})", (name, place)


def _figure(value: float) -> float:
    """Return six digits, as there is no more in a history's figures."""
    return float(f"{value:.6g}")


# The feed


def _write_feed(
    conf: Any,
    benchmarks: Benchmarks,
    rows: Sequence[Regression],
    graphs: Any,
    revisions: Mapping[str, int],
) -> None:
    """Write an entry for each jump, the newest first, with asv's ids: a feed reader knows them again."""
    commits = {revision: commit for commit, revision in revisions.items()}
    machines = {f"{graph.path}.json": graph.params.get("machine", "") for _, graph in graphs}
    entries = [
        _entry(conf, benchmarks[row.benchmark], row, machines[row.graph], jump, commits)
        for row in rows
        for jump in row.jumps
    ]
    entries.sort(key=lambda each: each.updated, reverse=True)
    feed.write_atom(
        str(Path(conf.html_dir, FEED)),
        entries,
        title=f"{conf.project} performance regressions",
        author="Airspeed Velocity",
        address=f"{conf.project}.asv",
    )


def _entry(
    conf: Any,
    benchmark: Mapping[str, Any],
    row: Regression,
    machine: str,
    jump: Jump,
    commits: Mapping[int, str],
) -> Any:
    revision, bad, before, after = jump
    first, second = "" if revision is None else commits[revision], commits[bad]
    measured_at, date = _dates(conf, machine, second, row.benchmark)
    link = _link(benchmark, row, f"{first}-{second}" if first else second)
    unit = benchmark.get("unit", "")
    shown = {
        "new": util.human_value(after, unit),
        "old": util.human_value(before, unit),
        "last": util.human_value(row.last, unit),
        "best": util.human_value(row.best, unit),
    }
    moved = _moved(before, after)
    content = (
        f'<a href="{escape(link)}">{moved} regression</a> on {date:%Y-%m-%d %H:%M:%S} '
        f"{_commits(conf, first, second)}.<br>\n"
        f"New value: {escape(shown['new'])}, old value: {escape(shown['old'])}.<br>\n"
        f"Latest value: {escape(shown['last'])} ({_moved(row.best, row.last).lstrip('-')} worse than best "
        f"value {escape(shown['best'])})."
    )
    ids = [row.name, first, second]
    return feed.FeedEntry(f"{moved} {row.name}", measured_at, link, content, ids, date)


def _dates(conf: Any, machine: str, commit: str, benchmark: str) -> tuple[dt.datetime, dt.datetime]:
    """Return when a benchmark was measured at a commit, and the date of the commit."""
    found = list(iter_results_for_machine_and_hash(conf.results_dir, machine, commit))
    measured_at = max(each.started_at.get(benchmark) or each.date for each in found)
    return _time(measured_at), _time(found[0].date)


def _time(milliseconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.timezone.utc)


def _link(benchmark: Mapping[str, Any], row: Regression, commits: str) -> str:
    params = dict(row.params)
    if row.place is not None:
        values = list(product(*benchmark["params"]))[row.place]
        params |= {f"p-{name}": value for name, value in zip(benchmark["param_names"], values, strict=True)}
    return f"index.html#{row.benchmark}?{urlencode({**params, 'commits': commits})}"


def _commits(conf: Any, first: str, second: str) -> str:
    """Return the commits of a jump as a link, which compares them where asv's configuration names GitHub."""
    url = escape(conf.show_commit_url)
    if not first:
        return f'in commit <a href="{url}{second}">{second[:8]}</a>'
    place = f"../compare/{first}...{second}" if "github.com" in url else first
    return f'in commits <a href="{url}{place}">{first[:8]}...{second[:8]}</a>'


def _moved(before: float, after: float) -> str:
    return f"{100 * (after - before) / before:.2f}%" if before else f"{after - before:.2g} units"


# The probe


def _lists_as_asv_does() -> bool:
    """Probe asv's list and feed: of a made-up rise they have the very row that this module makes of it."""
    benchmarks = {probes.COST: probes.described(probes.COST)}
    good, bad = probes.RISE - 1, probes.RISE
    revisions = {probes.BEFORE: good, probes.AFTER: bad}
    graphs = probes.made_up_graphs()
    with probes.made_up_project() as conf:
        html_dir = Path(conf.html_dir)
        Regressions.publish(conf, probes.made_up_repository(), benchmarks, graphs, revisions)
        listed, fed = read_list(html_dir), (html_dir / FEED).read_text(encoding="utf-8")
    name, step = (
        probes.MADE_UP[probes.COST].row,
        OpenStep(good, bad, probes.FIGURES[good], probes.FIGURES[bad]),
    )
    places = _Places(benchmarks, graphs, revisions, "", revisions)
    made = places.row(name, probes.MACHINE, {}, [step], step.after, step.before)
    return json.dumps([made]) == json.dumps(listed) and name in fed
