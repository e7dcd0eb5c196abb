"""Probes pass a made-up history through asv's modified functions before they are used.

asv's functions have no stability promise. A probe passes if the made-up falling rate is reported as worse. If
a probe fails, asv's own command stays unchanged, and a sentence says how to read its output.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.console import log
from asv.graph import GraphSet
from asv.machine import Machine
from asv.results import Results
from asv.util import write_json

from harness.history.figures import Direction
from harness.integrations.asv.directions import ASV


class Track(NamedTuple):
    """A made-up benchmark: its values at two commits, and the marks of the change and of its reversal."""

    row: str
    """Its name in asv's tables, including parameters."""
    params: list[list[str]]
    kind: str
    direction: Direction
    before: float
    after: float
    mark: str
    mark_of_return: str


MACHINE, RATE, COST = "probe", "probe.track_rate", "probe.time_kernel"
BEFORE, AFTER = "a" * 40, "b" * 40
MADE_UP: Mapping[str, Track] = {
    RATE: Track(f"{RATE}(64)", [["64"]], "track", "higher", 100.0, 50.0, "+", "-"),
    "probe.track_clock": Track("probe.track_clock", [], "track", "none", 100.0, 50.0, "", ""),
    COST: Track(f"{COST}(64)", [["64"]], "time", "lower", 1.0, 2.0, "+", "-"),
}
FIGURES = (100.0, 100.0, 100.0, 130.0, 130.0, 130.0, 80.0, 80.0)
"""Values over the commits of a search: they rise once, and later fall by more."""
RISE, FALL = 3, 6
COMMITS = tuple(f"{place}" * 40 for place in range(len(FIGURES)))


def passes(probe: Callable[[], bool]) -> bool:
    """Return True if a probe completes with the expected result. asv's output is hidden."""
    log.flush()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            passed = probe()
            log.flush()  # or the user would see the line that asv ends before its next one
    except Exception as error:  # noqa: BLE001  # a function that another asv changed may fail in any way
        log.debug(f"A probe of {ASV} failed: {type(error).__name__}: {error}")
        return False
    return passed


def direction_of(benchmark: Mapping[str, Any]) -> Direction:
    """Return the direction of a made-up benchmark, ignoring the project's settings for names."""
    direction: Direction = benchmark["direction"]
    return direction


@contextmanager
def made_up_project() -> Iterator[Any]:
    """Yield the configuration of a project with made-up results, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="harness-probe-") as folder:
        conf = Config()
        conf.results_dir, conf.html_dir = str(Path(folder, "results")), folder
        params = {"machine": MACHINE}
        machine = Path(conf.results_dir, MACHINE)
        machine.mkdir(parents=True)
        listed = {name: described(name) for name in MADE_UP}
        write_json(str(machine.parent / "benchmarks.json"), listed, Benchmarks.api_version)
        write_json(str(machine / "machine.json"), params, Machine.api_version)
        for commit, figures in (
            (BEFORE, {name: track.before for name, track in MADE_UP.items()}),
            (AFTER, {name: track.after for name, track in MADE_UP.items()}),
        ):
            path = machine / f"{commit[:8]}-probe.json"
            write_json(str(path), _results(commit, figures, params), Results.api_version)
        yield conf


def described(name: str) -> dict[str, Any]:
    """Return a made-up benchmark in the form of asv's list."""
    track = MADE_UP[name]
    about = {"name": name, "type": track.kind, "unit": "points", "direction": track.direction}
    return {
        **about,
        "code": "",
        "timeout": 60.0,
        "version": "1",
        "param_names": ["n"][: len(track.params)],
        "params": track.params,
    }


def _results(commit: str, figures: Mapping[str, float], params: Mapping[str, str]) -> dict[str, Any]:
    return {
        "commit_hash": commit,
        "date": 0,
        "env_name": "probe",
        "env_vars": {},
        "params": params,
        "python": "any",
        "requirements": {},
        "result_columns": ["result", "params", "version"],
        "results": {name: [[figure], MADE_UP[name].params, "1"] for name, figure in figures.items()},
        "durations": {},
    }


def made_up_graphs() -> Any:
    """Return asv's graphs of the made-up cost, which rises once."""
    graphs = GraphSet()
    graph = graphs.get_graph(COST, {"machine": MACHINE, "branch": ""})
    for revision, figure in enumerate(FIGURES[:FALL]):
        graph.add_data_point(revision, [figure], [None])
    return graphs


def made_up_repository() -> Any:
    """Return a replacement for asv's repository, in which the second commit is the first one's child."""
    repository = MagicMock()
    repository.get_hashes_from_range.return_value = [AFTER]
    return repository


def made_up_search() -> dict[str, Any]:
    """Return replacements for the names that asv's module `find` measures with: a rate over eight commits."""
    repository, environment = MagicMock(), MagicMock()
    repository.get_hashes_from_range.return_value = [*reversed(COMMITS)]
    repository.get_decorated_hash.side_effect = lambda commit, *_: commit[:8]
    benchmarks = _Selected({RATE: described(RATE)})
    return {
        "get_repo": lambda *_, **__: repository,
        "Machine": MagicMock(),
        "Setup": MagicMock(run=lambda *_, **__: [environment]),
        "Benchmarks": MagicMock(discover=lambda *_, **__: benchmarks),
        "Results": _made_up_results,
        "run_benchmarks": lambda *_, results, **__: results,
    }


class _Selected(dict[str, Any]):
    """The benchmarks that asv passes to its measurement, all of them."""

    benchmark_selection: Mapping[str, Any] = {}


def _made_up_results(*args: Any, **options: Any) -> Any:
    """Return the results of the commit in the arguments, at whichever position another asv has it."""
    commit = next(each for each in (*args, *options.values()) if each in COMMITS)
    figure = FIGURES[COMMITS.index(commit)]
    return MagicMock(
        commit_hash=commit, params={"machine": MACHINE}, get_result_value=lambda *_, **__: [figure]
    )
