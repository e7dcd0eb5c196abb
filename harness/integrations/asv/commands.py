"""Changes to asv's commands, each active only while the command runs.

`--dry-run` and `--skip-save` write nothing. A subset of the cases is measured alone. If asv is told to end,
it cleans up as after Ctrl-C. Records and pages are removed and published with asv's results and pages.
compare, continuous and find respect the better direction.

asv measures through `run_benchmarks`, which alone knows the requested parameters. An AsvRequest passes them
to setup_cache, which measures.
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from asv import util
from asv.benchmarks import Benchmarks
from asv.commands import compare, find, rm, run
from asv.commands.continuous import Continuous
from asv.commands.publish import Publish
from asv.console import log
from asv.plugins import github
from asv.results import Results
from asv.util import UserError

from harness.config import load_config
from harness.errors import HarnessError
from harness.history.changes import same_build
from harness.history.figures import Direction
from harness.history.sources.asv_results import read_benchmarks
from harness.history.sources.our_records import card_records
from harness.integrations.asv import probes
from harness.integrations.asv.conf import running_conf
from harness.integrations.asv.directions import direction_in_asv, misread, warn_of_unknown_directions
from harness.integrations.asv.probes import AFTER, BEFORE, MACHINE, MADE_UP, made_up_project, passes
from harness.integrations.asv.same_build import Builds
from harness.integrations.asv.searching import searching
from harness.integrations.asv.site_pages import write_pages
from harness.integrations.asv.tracks import TRACKS, AsvRequest, requesting

Run = Callable[..., Any]
"""The `run` of an asv command."""
DirectionOf = Callable[[Mapping[str, Any]], Direction]
"""Returns the better direction of a benchmark in asv's list."""


def setup() -> None:
    """Change asv's commands. Call it once.

    A change that depends on asv's internals is tested by a probe when its command is called, so the others
    work with another asv.
    """
    for module in (run, find):
        if hasattr(module, "run_benchmarks"):  # otherwise classes are measured whole, and find's probe fails
            module.run_benchmarks = _selecting(module.run_benchmarks)
    _surround(run.Run, functools.partial(_measuring, "dry_run"))
    _surround(find.Find, functools.partial(_measuring, "skip_save"))
    _surround(find.Find, searching)
    _surround(rm.Rm, _removing_records)
    _surround(github.GithubPages, _publishing_our_pages)
    _surround(compare.Compare, functools.partial(_comparing, False))
    _surround(Continuous, functools.partial(_comparing, True))


def _surround(command: Any, change: Callable[..., Any]) -> None:
    """Run an asv command through `change`, which gets its `run` and arguments."""
    own = command.run

    @functools.wraps(own)
    def surrounded(*args: Any, **options: Any) -> Any:
        return change(own, *args, **options)

    command.run = staticmethod(surrounded)


# run and find: measuring


def _measuring(dry: str, run: Run, *args: Any, **options: Any) -> Any:
    """Run without writing if the option `dry` is set: asv would write the machine and benchmarks."""
    with _cleaned_up():
        if not options.get(dry):
            return run(*args, **options)
        with requesting(dry_run=True), patch.multiple(Benchmarks, save=lambda _: None):
            return run(*args, **options)


def _selecting(run_benchmarks: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_benchmarks)
    def selecting(benchmarks: Any, env: Any, *args: Any, **options: Any) -> Any:
        if env.tool_name == "checkout":
            _warn_of_no_suite(tuple(name for name, each in benchmarks.items() if "suite" not in each))
        with requesting(selected=_selected(benchmarks), environment=env.name):
            return run_benchmarks(benchmarks, env, *args, **options)

    return selecting


@functools.cache  # reported once, and not for every commit
def _warn_of_no_suite(names: tuple[str, ...]) -> None:
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        log.warning(
            f"{names[0]}{more}: of no suite. 'checkout' builds nothing: what these import is what is "
            "installed here, the same at every commit. An asv.conf.json of their own can build the project."
        )


def _selected(benchmarks: Any) -> dict[str, list[int]]:
    """Return the positions of the requested parameters by class, without classes that are requested whole."""
    asked: dict[str, set[int]] = defaultdict(set)
    combinations: dict[str, int] = {}
    for name, benchmark in benchmarks.items():
        group = name.rpartition(".")[0]
        combinations[group] = prod(map(len, benchmark["params"]))
        asked[group].update(benchmarks.benchmark_selection.get(name) or ())
    return {group: sorted(places) for group, places in asked.items() if len(places) < combinations[group]}


@contextmanager
def _cleaned_up() -> Iterator[None]:
    """Let TERM and HUP end asv with its own cleanup in this block, instead of leaving temporary folders.

    An ignored signal, such as HUP under nohup, stays ignored.
    """
    both = (signal.SIGTERM, signal.SIGHUP) if util.is_main_thread() else ()
    numbers = [number for number in both if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# rm


class _Removable:
    """A result file of asv that also removes records when asv removes the file or an entry."""

    def __init__(self, results: Any, touched: dict[str, set[str]]) -> None:
        self._results, self._touched = results, touched
        # asv looks for the pattern python=... here, where its own results have none.
        self.env = SimpleNamespace(python=results.params.get("python", ""))

    def __getattr__(self, name: str) -> Any:
        if name in ("rm", "save"):
            self._touched[self._results.params["machine"]].add(self._results.commit_hash)
        return getattr(self._results, name)


def _removing_records(run: Run, conf: Any, *args: Any, **options: Any) -> Any:
    touched: dict[str, set[str]] = defaultdict(set)
    iter_results = rm.iter_results

    def removable(folder: str) -> Iterator[_Removable]:
        return (_Removable(results, touched) for results in iter_results(folder))

    with patch.multiple(rm, iter_results=removable):
        outcome = run(conf, *args, **options)
    try:
        removed = sum(_remove_records(Path(conf.results_dir), *each) for each in touched.items())
    except (HarnessError, OSError) as error:
        raise UserError(f"asv's results are removed, but not all records of them: {error}") from error
    if removed:
        log.info(f"Removing {removed} records")
    return outcome


def _remove_records(results: Path, machine: str, commits: Collection[str]) -> int:
    """Remove records of commits for whose suite asv has no result left. Return their number."""
    suites: dict[str, str] = {}
    with contextlib.suppress(HarnessError):  # then only commits without any result are known to have none
        suites = {name: benchmark.suite or "" for name, benchmark in read_benchmarks(results).items()}
    left = {commit: _suites_left(results / machine, commit, suites) for commit in commits}
    suite_names = {*suites.values()}
    gone = [
        facts.file
        for facts in card_records(results / machine).facts
        if facts.of_asv
        and (kept := left.get(facts.commit)) is not None
        # A suite with another name at that commit may be one of the remaining suites.
        and (not kept or (facts.suite in suite_names and facts.suite not in kept))
    ]
    for name in gone:
        (results / machine / name).unlink(missing_ok=True)
    return len(gone)


def _suites_left(folder: Path, commit: str, suites: Mapping[str, str]) -> set[str] | None:
    """Return the suites for which asv still has results of a commit; None if unknown."""
    try:
        left = [Results.load(str(path)) for path in folder.glob(f"{commit[:8]}-*.json")]
        same = [each for each in left if each.commit_hash == commit]
        return {suites[name] for each in same for name in each.get_all_result_keys()}
    except (OSError, UserError, LookupError, TypeError, ValueError):
        return None


# gh-pages


def _publishing_our_pages(run: Run, *args: Any, **options: Any) -> Any:
    """Publish our pages before asv's command commits its published folder."""

    def publish(conf: Any) -> None:
        Publish.run(conf)
        try:
            written = write_pages(running_conf(conf), load_config().root)
        except HarnessError as error:
            raise UserError(error.message) from error
        for problem in written.problems:
            log.warning(problem)

    with patch.multiple(github, Publish=SimpleNamespace(run=publish)):
        return run(*args, **options)


# compare and continuous


@functools.cache
def _number_with(direction: Direction, kind: type) -> Any:
    """Return a number type that carries its benchmark's direction to asv's comparison."""
    return type("DirectedNumber", (kind,), {"direction": direction})


class _ComparisonTable:
    """A table of `asv compare`: replacements for the functions that read its values and print its rows."""

    def __init__(
        self,
        benchmarks: Mapping[str, Mapping[str, Any]],
        sort: str,
        same_build: Callable[[str], bool],
        direction_of: DirectionOf = direction_in_asv,
    ) -> None:
        self.marks: dict[str, str] = {}
        """asv's mark of each row."""
        self.turned = False
        """True if the table shows a changed value that is better high."""
        self.noisy: dict[str, None] = {}
        """Rows that asv would have marked although both commits run the same binary."""
        self._benchmarks, self._sort, self._same_build = benchmarks, sort, same_build
        self._told_direction = direction_of
        self._unroll, self._asvs_tabulate = compare.unroll_result, compare.tabulate.tabulate
        self._asvs_is_better = compare._is_result_better  # noqa: SLF001
        self._direction_of_row: dict[str, Direction] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let asv read its values, judge and print its rows with this table in this block."""
        with patch.multiple(
            compare, unroll_result=self.unroll_result, _is_result_better=self.is_better, tabulate=self
        ):
            yield

    def unroll_result(self, name: str, params: Any, *columns: Any) -> Iterator[tuple[Any, ...]]:
        direction = self._direction_of(name)
        for row_name, value, *rest in self._unroll(name, params, *columns):
            self._direction_of_row[row_name] = direction
            same = row_name if self._same_build(row_name) else ""
            directed = value
            if (same or direction != "lower") and isinstance(value, int | float):
                # A whole number stays whole in asv's table.
                directed = _number_with(direction, int if isinstance(value, int) else float)(value)
                directed.same_build = same
            yield (row_name, directed, *rest)

    def is_better(
        self, a: Any, b: Any, a_stats: Any, b_stats: Any, factor: float, use_stats: bool = True
    ) -> bool:
        """Return asv's judgement, with exchanged sides if higher is better. Equal binaries are
        never better.
        """
        better = self._is_better_in_its_direction(a, b, a_stats, b_stats, factor, use_stats=use_stats)
        row = getattr(a, "same_build", "")
        if better and row:
            self.noisy[row] = None
        return better and not row

    def _is_better_in_its_direction(
        self, a: Any, b: Any, a_stats: Any, b_stats: Any, factor: float, *, use_stats: bool
    ) -> bool:
        directions = {getattr(value, "direction", "lower") for value in (a, b)}
        if "none" in directions:
            return False
        if "higher" in directions:
            if not a > b:  # asv's factor does not work for negative values
                return False
            a, b, a_stats, b_stats = b, a, b_stats, a_stats
        return bool(self._asvs_is_better(a, b, a_stats, b_stats, factor, use_stats=use_stats))

    def _direction_of(self, name: str) -> Direction:
        if name in self._benchmarks:
            return self._told_direction(self._benchmarks[name])
        # It has results but is no longer in the suite: use the direction of the harness's tracks.
        track = TRACKS.get(name.rpartition(".")[2])
        return track.direction if track else "lower"

    def tabulate(self, rows: list[list[str]], **how: Any) -> Any:
        """Print rows of mark, before, after, ratio and name, instead of the module `tabulate`."""
        if self._sort == "ratio":
            rows = sorted(rows, key=self._badness, reverse=True)
        self.marks |= {row[4]: row[0].strip() for row in rows}
        self.turned |= any(row[0] in {"+", "-"} and self._direction(row) == "higher" for row in rows)
        return self._asvs_tabulate(rows, **how)

    def _direction(self, row: list[str]) -> Direction:
        # With several machines or environments asv appends theirs in brackets.
        directions, name = self._direction_of_row, row[4]
        return directions.get(name) or directions.get(name.rpartition(" [")[0]) or "lower"

    def _badness(self, row: list[str]) -> tuple[int, float]:
        """Return the sort key: new failures first, then by how much worse, then unchanged rows."""
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


def _comparing(gate: bool, run: Run, conf: Any, *args: Any, **options: Any) -> Any:
    """Run a command that prints the table of compare.

    `gate` is continuous, which measures first. If the table's directions cannot be set, it never ends with
    status 0.
    """
    if passes(_marks_what_got_worse):
        return _directed(run, conf, *args, **options)
    outcome = run(conf, *args, **options)
    told = misread(Benchmarks.load(conf), "this table and its sentence" if gate else "this table")
    if not told:
        return outcome
    if not gate:
        print(f"\n{told} Or compare two commits with: harness compare")  # noqa: T201
        return outcome
    status = int(outcome or 1)
    green = f"So the exit status is {status} in any case. A gate that can be trusted: harness compare"
    print(f"\n{told} {green}")  # noqa: T201
    return status


def _directed(run: Run, *args: Any, **options: Any) -> Any:
    """Run an asv command that prints its table of two commits, with directions and builds applied."""
    print_table = compare.Compare.print_table

    def directed_print_table(conf: Any, base: str, head: str, *args: Any, **options: Any) -> Any:
        benchmarks = Benchmarks.load(conf)
        warn_of_unknown_directions(benchmarks)
        machine = options.get("machine") or AsvRequest.given().machine or ""
        builds = Builds(Path(conf.results_dir) / machine, benchmarks)
        table = _ComparisonTable(
            benchmarks,
            options.get("sort", "default"),
            lambda name: same_build(builds.row(name, base), builds.row(name, head)),
        )
        with table.in_place():
            outcome = print_table(conf, base, head, *args, **options)
        for name in table.noisy:
            print(  # noqa: T201
                f"\n{name} is not marked: {base[:8]} and {head[:8]} run the same binary. The difference is "
                "noise."
            )
        if table.turned:
            print(  # noqa: T201
                "\n+ is worse and - is better. Where higher is better, worse is a ratio below 1."
            )
        return outcome

    with patch.multiple(compare.Compare, print_table=staticmethod(directed_print_table)):
        return run(*args, **options)


def _marks_what_got_worse() -> bool:
    """Probe asv's table: each mark is right in both directions, and so is the result that continuous uses."""
    with made_up_project() as conf:
        for pair, expected, outcome in (
            ((BEFORE, AFTER), {track.row: track.mark for track in MADE_UP.values()}, (True, False)),
            ((AFTER, BEFORE), {track.row: track.mark_of_return for track in MADE_UP.values()}, (False, True)),
        ):
            table = _ComparisonTable(
                Benchmarks.load(conf), "default", lambda _: False, direction_of=probes.direction_of
            )
            with table.in_place():
                found = compare.Compare.print_table(conf, *pair, factor=1.1, split=False, machine=MACHINE)
            if (table.marks, found) != (expected, outcome):
                return False
    return True
