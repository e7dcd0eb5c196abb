"""harness sweep: measures every configuration of a kernel, and finds the best."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli import completion, echo_json, options, show_sheets, tell_at_end, tell_failed
from harness.config import load_config
from harness.errors import ExitCode, UsageError
from harness.suite.case_id import Selector
from harness.suite.kernel import Kernel

if TYPE_CHECKING:
    from harness.records.sweep_types import SweepResult, SweepRow
    from harness.run.device_session import DeviceObserver
    from harness.run.sweep.executors import Executor
    from harness.suite.loader import LoadedSuite


@click.command("sweep")
@click.argument("kernel", metavar="KERNEL", shell_complete=completion.tuned)
@options.size("One number for every axis, or one per axis; repeatable. Default: the tuning's.")
@options.several(
    "--rule",
    "EXPRESSION",
    "Add a rule for configurations, such as 'BM * BN < 4096'",
    to="rules",
)
@options.device
@options.cards
@options.flag("--fresh", "Ignore the stored sweep, and measure again.")
@options.path("--results", "Folder for records; default: the project's.")
@options.no_save
@options.no_wait
@options.seconds("--timeout", "Limit for one configuration.", default=60.0, show_default=True)
@options.seed("Seed of the data and of the random order.")
@options.several(
    "--export", "html:FILE|t4:FILE", "Also write the result as a page, or in Kernel Tuner's T4 format"
)
@options.json
def command(kernel: str, **given: Any) -> int:
    """Try every configuration of KERNEL, such as matmul.schedule, and show the fastest.

    Configurations that break a rule are skipped. The others are compiled in parallel, verified, and timed in
    random order. The best ones are compared in pairs, and the winner is measured again in fresh processes.
    Results are stored: an interrupted sweep continues, and a complete one is only shown.
    """
    from harness.records.sweep_types import SweepSettings
    from harness.report.terminal.progress import SweepProgress
    from harness.run.sweep.engine import Sweeping

    config = load_config()
    exports = [_export(wanted) for wanted in given["export"]]
    selector = Selector.parse(kernel)
    loaded, chosen = _chosen(kernel, selector)
    if selector.size and given["size"]:
        raise UsageError(f"{kernel} says its size itself: leave --size out, or the size of the kernel.")
    settings = SweepSettings(seed=given["seed"], timeout_s=given["timeout"], rules=given["rules"])
    sizes = (selector.size,) if selector.size else given["size"]
    results = None if given["no_save"] else given["results"] or config.results_folder
    with SweepProgress() as observer, _executor(loaded, given, config.device, observer) as executor:
        sweeping = Sweeping(loaded, chosen, executor, settings, observer, sizes)
        result = sweeping.run(results, fresh=given["fresh"])
    _print(result, as_json=given["as_json"])
    for form, file in exports:
        _write(result, form, file)
    if result.interrupted:
        return ExitCode.INTERRUPTED
    if any(row.reason == "wrong-result" for row in result.rows):
        return ExitCode.REGRESSION
    measured = any(row.status == "measured" for row in result.rows)
    return ExitCode.FINE if measured and not result.problem else ExitCode.NOT_MEASURED


def _chosen(pattern: str, selector: Selector) -> tuple[LoadedSuite, Kernel]:
    """Return the kernel that a pattern names. Raises UsageError with the kernels that have a tuning."""
    from harness.suite.planning import load_suites

    suites = load_suites(load_config(), on_broken=tell_at_end)
    every = [(loaded, kernel) for loaded in suites for kernel in loaded.suite.kernels]
    names = [f"{loaded.suite.name}.{kernel.name}" for loaded, kernel in every if kernel.tune]
    tunable = f"Kernels that can be: {', '.join(names)}." if names else "No kernel here has a tuning."
    found = [(loaded, kernel) for loaded, kernel in every if selector.names(loaded.suite.name, kernel.name)]
    tuned = [each for each in found if each[1].tune]
    if len(tuned) == 1:
        return tuned[0]
    if not found:
        raise UsageError(f"No kernel matches {pattern!r}, so none can be swept. {tunable}")
    if not tuned:
        raise UsageError(f"{pattern} has no parameters to sweep: give the kernel a Tuning. {tunable}")
    raise UsageError(f"{pattern!r} names several kernels, and one is swept at a time. {tunable}")


@contextlib.contextmanager
def _executor(
    loaded: LoadedSuite, given: dict[str, Any], configured: str | None, observer: DeviceObserver
) -> Iterator[Executor]:
    scheduler, gpus, device = given["scheduler"], given["gpus"], given["device"]
    if gpus is not None and (scheduler or device):
        other = "--scheduler" if scheduler else "--device"
        raise UsageError(f"--gpus and {other} exclude each other: give one of them.")
    if scheduler is None and gpus is None:
        from harness.run.sweep.executors import LocalExecutor

        with LocalExecutor(loaded.suite.root, device or configured, observer, given["busy"]) as local:
            yield local
        return
    from harness.run.several_cards import find_cards
    from harness.run.sweep.cluster import DaskExecutor

    # This machine's configured device has no meaning on a cluster.
    named = [device] if device else []
    devices = [card.device.spec for card in find_cards(gpus)] if gpus is not None else named
    with DaskExecutor(
        loaded.suite.root, scheduler=scheduler, devices=devices, observer=observer, busy=given["busy"]
    ) as executor:
        yield executor


def _export(wanted: str) -> tuple[str, Path]:
    """Return the format and the file of ``html:FILE`` or ``t4:FILE``. Raises UsageError."""
    form, _, file = wanted.partition(":")
    if form not in ("html", "t4") or not file:
        raise UsageError(f"--export is {wanted!r}; expected html:FILE or t4:FILE, such as html:sweep.html.")
    return form, Path(file)


def _write(result: SweepResult, form: str, file: Path) -> None:
    from harness.report.terminal.sweeps import write_page
    from harness.run.sweep.t4_files import write_t4

    if form == "html":
        write_page(result, file)
        click.echo(f"Page: {file}", err=True)
    else:
        for written in write_t4(result, file):
            click.echo(f"T4: {written}", err=True)


def _print(result: SweepResult, *, as_json: bool) -> None:
    from harness.report.terminal import sweeps
    from harness.report.terminal.run_tables import console, print_end

    if as_json:
        echo_json(sweeps.as_json(result))
    else:
        show_sheets([*sweeps.sweep_tables(result), *sweeps.heat_map(result, console().width)])
    _tell_failures(result)
    if result.reused:
        click.echo(f"{result.reused} of {result.sweep.total} configurations reused from before.", err=True)
    goes_on = "the same command goes on from there" if result.path else "it is not stored"
    interrupted = f"finished results are shown; {goes_on}" if result.interrupted else ""
    print_end(result.problem, result.path, interrupted)


def _tell_failures(result: SweepResult) -> None:
    """Report each kind of failure once, with its log and the number of configurations."""
    kinds: dict[tuple[str, str], list[SweepRow]] = {}
    for row in result.rows:
        if row.status == "failed" and row.same_as is None:
            kinds.setdefault((row.reason, row.message), []).append(row)
    for (reason, message), rows in kinds.items():
        numbers = [str(row.configuration.number) for row in rows]
        some = ", ".join(numbers[:8]) + (" and others" if len(numbers) > 8 else "")
        who = f"Configuration {some}" if len(rows) == 1 else f"{len(rows)} configurations ({some})"
        tell_failed(f"{who} failed ({reason}): {message}", rows[-1].log)
