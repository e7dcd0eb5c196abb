"""harness report ladder: what others published, and ours beside it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import click

from harness.bench.measure import MeasureSettings
from harness.cli.options import echo_json, json_option, no_wait_option
from harness.config import Config, load_config
from harness.device import backends
from harness.device.lock import Busy
from harness.device.machine import machine_name
from harness.errors import DeviceError, ExitCode, UsageError
from harness.output.ladder_sweeps import newest_swept
from harness.output.ladder_tables import markdown, print_hints, print_ladder
from harness.output.ladders import (
    LadderReport,
    Line,
    Swept,
    as_json,
    fastest,
    is_plain,
    is_slow,
    ladder_report,
    placed,
)
from harness.output.progress import ProgressObserver
from harness.records import DeviceInfo
from harness.run.run import RunResult, Session, SessionSettings
from harness.spec.loader import LoadedSuite
from harness.spec.planning import PlannedCase, parse_size
from harness.spec.selection import load_suites
from harness.spec.suite import Case, Kernel, Ladder, size_label
from harness.store.records_file import StoredRow, newest_rows

SLOW_TIMEOUT_S = 3600.0
MORE_DEVICES = ("opengl:0", "cpu:0")
"""Where `--measure` measures too, beside the default device: the compute shader's, and what both are held
against."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A ladder of a suite, at the sizes to show."""

    loaded: LoadedSuite
    ladder: Ladder
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    config: Config
    results: Path
    devices: tuple[str, ...]
    sizes: tuple[str, ...]
    slow: bool
    against: str
    timeout_s: float
    busy: Busy


@click.command("ladder")
@click.argument("names", nargs=-1, metavar="[SUITE|LADDER]...")
@click.option("--measure", is_flag=True, help="Measure what is missing first, as 'harness run' does.")
@click.option("--slow", is_flag=True, help="With --measure: what takes minutes too.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="SPEC",
    help="Show, or measure on, this device alone; repeatable.",
)
@click.option("--size", "sizes", multiple=True, metavar="N|M,N,K", help="Other sizes than the authors'.")
@click.option(
    "--against",
    metavar="KERNEL",
    default="",
    help="The kernel to hold against the host; default: the fastest.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="For one case; default 120, with --slow 3600.",
)
@click.option("--results", type=click.Path(path_type=Path), metavar="FOLDER", help="Where records lie.")
@no_wait_option
@click.option(
    "--format", "form", type=click.Choice(("terminal", "markdown")), default="terminal", show_default=True
)
@json_option
def command(
    names: tuple[str, ...],
    measure: bool,
    slow: bool,
    devices: tuple[str, ...],
    sizes: tuple[str, ...],
    against: str,
    timeout: float | None,
    results: Path | None,
    busy: Busy,
    form: str,
    as_json: bool,
) -> int:
    """Show what others published of a suite's kernels, and our newest figures of the same kernels beside it.

    Figures come from records, from every device that has any; what is not there is a dash. Default: every
    ladder of every suite.
    """
    for spec in devices:
        backends.parse_spec(spec)
    config = load_config()
    options = _Options(
        config=config,
        results=results or config.results_folder,
        devices=devices,
        sizes=sizes,
        slow=slow,
        against=against,
        timeout_s=timeout or (max(SLOW_TIMEOUT_S, config.timeout_s) if slow else config.timeout_s),
        busy=busy,
    )
    asked = list(_asked(load_suites(config), names, options))
    finished = _measure(asked, options) if measure else []
    reports = _reports(asked, options)
    if as_json:
        echo_json([_as_json(report) for report in reports])
    else:
        _print(reports, form)
    return _status(finished)


_as_json = as_json


def _asked(suites: Sequence[LoadedSuite], names: Sequence[str], options: _Options) -> Iterator[_Asked]:
    """Raises UsageError for a name that is none, a size that fits nothing, and where nobody published."""
    known = [(loaded, ladder) for loaded in suites for ladder in loaded.suite.ladders]
    if not known:
        raise UsageError(
            "No suite here has ladders: Suite(ladders=[Ladder(...)]) says what others published."
        )
    called = {
        id(ladder): (loaded.suite.name, ladder.name, f"{loaded.suite.name}.{ladder.name}")
        for loaded, ladder in known
    }
    for name in names:
        if not any(name in each for each in called.values()):
            there = ", ".join(each[2] for each in called.values())
            raise UsageError(f"No suite or ladder is called {name!r}. Ladders: {there}.")
    for loaded, ladder in known:
        if names and not set(names) & set(called[id(ladder)]):
            continue
        if options.against and options.against not in loaded.suite.by_name:
            raise UsageError(f"--against {options.against}: suite {loaded.suite.name!r} has no such kernel.")
        points = [parse_size(size, loaded.suite.problem) for size in options.sizes]
        yield _Asked(loaded, ladder, tuple(placed(loaded.suite, ladder, points)))


def _reports(asked: Sequence[_Asked], options: _Options) -> list[LadderReport]:
    """Every ladder with its figures; what cannot be read is told."""
    reports: list[LadderReport] = []
    told: list[str] = []
    for loaded, ladders in _by_suite(asked):
        rows, problems = _rows(loaded, ladders, options)
        swept, unread = _swept(loaded, ladders, options)
        told += problems + unread
        tree = loaded.source.tree_sha256
        reports += [
            ladder_report(
                loaded.suite,
                tree,
                each.ladder,
                each.lines,
                rows,
                swept,
                shown=lambda device: _is_shown(device, options),
                against=options.against,
            )
            for each in ladders
        ]
    for problem in dict.fromkeys(told):
        click.echo(f"harness: {problem}", err=True)
    return reports


def _by_suite(asked: Sequence[_Asked]) -> list[tuple[LoadedSuite, list[_Asked]]]:
    suites = {each.loaded.suite.name: each.loaded for each in asked}
    return [(loaded, [a for a in asked if a.loaded is loaded]) for loaded in suites.values()]


def _rows(
    loaded: LoadedSuite, asked: Sequence[_Asked], options: _Options
) -> tuple[list[StoredRow], list[str]]:
    """What is stored of any kernel of a suite at the sizes of its ladders."""
    points = {size_label(line.sizes): line.sizes for each in asked for line in each.lines if line.sizes}
    suite = loaded.suite
    cases = {Case(suite.name, kernel.name, point).id for kernel in suite.kernels for point in points.values()}
    found, problems = newest_rows(options.results, suite.name, cases)
    return [each for each in found if _is_wanted(each.run.device, options)], problems


def _swept(loaded: LoadedSuite, asked: Sequence[_Asked], options: _Options) -> tuple[list[Swept], list[str]]:
    kernels = {line.kernel.name for each in asked for line in each.lines if line.kernel.tune}
    found, problems = newest_swept(options.results, loaded.suite, sorted(kernels))
    return [each for each in found if _is_wanted(each.device, options)], problems


def _is_wanted(device: DeviceInfo, options: _Options) -> bool:
    """Times of the null device are made up: nobody gets them without asking."""
    return device.backend != "null" or _is_shown(device, options)


def _is_shown(device: DeviceInfo, options: _Options) -> bool:
    specs = [backends.parse_spec(spec) for spec in options.devices]
    return backends.parse_spec(device.spec) in specs if specs else device.backend != "null"


# Measuring


def _measure(asked: Sequence[_Asked], options: _Options) -> list[RunResult]:
    """Run what is missing on each device, and then, where a table holds one kernel of a device against the
    host, the fastest at the table's sizes.
    """
    finished: list[RunResult] = []
    with ProgressObserver() as observer:
        for loaded, ladders in _by_suite(asked):
            for spec in _specs(loaded, options):
                try:
                    finished += _measured_on(spec, loaded, ladders, options, observer)
                except DeviceError as error:
                    if options.devices or spec == options.config.device:
                        raise
                    click.echo(f"harness: {error.message}", err=True)
                if finished and finished[-1].interrupted:
                    return finished
    return finished


def _measured_on(
    spec: str | None,
    loaded: LoadedSuite,
    asked: Sequence[_Asked],
    options: _Options,
    observer: ProgressObserver,
) -> Iterator[RunResult]:
    settings = SessionSettings(
        device=spec,
        measure=MeasureSettings(l2=options.config.l2),  # type: ignore[arg-type]
        timeout_s=options.timeout_s,
        busy=options.busy,
        results=options.results,
    )
    with Session(loaded, settings, observer) as session:
        device = session.device
        plan = _missing(loaded, asked, device, options)
        if plan:
            result = _told(session.run(plan))
            yield result
            if result.interrupted:
                return
    if plan := _missing_fastest(loaded, asked, device, options):
        with Session(loaded, settings, observer) as session:
            yield _told(session.run(plan))


def _told(result: RunResult) -> RunResult:
    for row in result.rows:
        if row.status == "failed":
            click.echo(f"{row.case} failed ({row.reason}): {row.message}", err=True)
            if row.log:
                click.echo(indent(row.log, "    "), err=True)
    if result.problem:
        click.echo(f"harness: {result.problem}", err=True)
    if result.path:
        click.echo(f"Record: {result.path}", err=True)
    if result.interrupted:
        click.echo("Interrupted: figures that are missing stay so.", err=True)
    return result


def _specs(loaded: LoadedSuite, options: _Options) -> Iterator[str | None]:
    if options.devices:
        yield from options.devices
        return
    there = {backend for kernel in loaded.suite.kernels for backend in kernel.sources}
    for spec in dict.fromkeys((options.config.device, *MORE_DEVICES)):
        if spec is None or spec.partition(":")[0] in there:
            yield spec


def _missing(
    loaded: LoadedSuite, asked: Sequence[_Asked], device: DeviceInfo, options: _Options
) -> list[PlannedCase]:
    """What a device can be asked for, kernel by kernel, and has no figure of with the suite as it is."""
    suite = loaded.suite
    wanted = {
        (line.kernel.name, size_label(line.sizes)): PlannedCase(
            line.kernel, suite.case(line.kernel, line.sizes)
        )
        for each in asked
        for line in each.lines
        if is_plain(line, suite)
        and line.rung.backend in ("", device.backend)
        and line.kernel.source_for(device.backend) is not None
        and (options.slow or not is_slow(line, suite, device))
    }
    order = [kernel.name for kernel in suite.kernels]
    plan = sorted(wanted.values(), key=lambda planned: order.index(planned.kernel.name))
    return _not_stored(loaded, asked, device, options, plan)


def _not_stored(
    loaded: LoadedSuite,
    asked: Sequence[_Asked],
    device: DeviceInfo,
    options: _Options,
    plan: Sequence[PlannedCase],
) -> list[PlannedCase]:
    tree = loaded.source.tree_sha256
    fresh = {
        stored.row.case
        for stored in _stored_on(loaded, asked, device, options)
        if stored.row.status == "measured" and stored.run.source.tree_sha256 == tree
    }
    return [planned for planned in plan if planned.case.id not in fresh]


def _stored_on(
    loaded: LoadedSuite, asked: Sequence[_Asked], device: DeviceInfo, options: _Options
) -> list[StoredRow]:
    shown = dataclasses.replace(options, devices=(device.spec,))
    rows, _ = _rows(loaded, asked, shown)
    return [stored for stored in rows if stored.machine == machine_name(device)]


def _missing_fastest(
    loaded: LoadedSuite, asked: Sequence[_Asked], device: DeviceInfo, options: _Options
) -> list[PlannedCase]:
    """The kernel that stands for a device in a table against the host, where the author's does not run."""
    if device.backend == "cpu":
        return []
    plan: list[PlannedCase] = []
    for each in (each for each in asked if each.ladder.against):
        kernel = _standing(loaded, asked, each, device, options)
        if kernel is None:
            continue
        for line in (line for line in each.lines if line.kernel.name == each.ladder.against):
            moved = dataclasses.replace(
                line, kernel=kernel, rung=dataclasses.replace(line.rung, slow=False, backend="")
            )
            if options.slow or not is_slow(moved, loaded.suite, device):
                plan.append(PlannedCase(kernel, loaded.suite.case(kernel, line.sizes)))
    return _not_stored(loaded, asked, device, options, plan)


def _standing(
    loaded: LoadedSuite, asked: Sequence[_Asked], each: _Asked, device: DeviceInfo, options: _Options
) -> Kernel | None:
    suite = loaded.suite
    if options.against:
        kernel = suite.by_name[options.against]
        return kernel if kernel.source_for(device.backend) is not None else None
    theirs = [line.kernel for line in each.lines if not line.rung.backend]
    if any(kernel.source_for(device.backend) is not None for kernel in theirs):
        return None
    return fastest(suite, each.ladder, _stored_on(loaded, asked, device, options))


def _print(reports: Sequence[LadderReport], form: str) -> None:
    now = dt.datetime.now(dt.timezone.utc)
    for number, report in enumerate(reports):
        if number:
            click.echo()
        if form == "markdown":
            click.echo(markdown(report), nl=False)
        else:
            print_ladder(report, now)
    if form == "terminal":
        click.echo()
        print_hints(reports)


def _status(finished: Sequence[RunResult]) -> ExitCode:
    rows = [row for result in finished for row in result.rows]
    if any(result.interrupted for result in finished):
        return ExitCode.INTERRUPTED
    if any(row.reason == "wrong-result" for row in rows):
        return ExitCode.REGRESSION
    failed = any(row.status == "failed" for row in rows) or any(result.problem for result in finished)
    return ExitCode.NOT_MEASURED if failed else ExitCode.FINE
