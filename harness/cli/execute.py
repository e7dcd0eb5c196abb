"""What check and run have in common: suites in, rows out, an exit status."""

from __future__ import annotations

__all__ = ["execute", "fitting"]

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import click

from harness.cli.options import Selection, echo_json, load_suites
from harness.config import load_config
from harness.errors import ExitCode
from harness.loader import LoadedSuite
from harness.measure import MeasureSettings
from harness.planning import parse_size, plan
from harness.report.progress import ProgressObserver
from harness.report.summary import summary_of
from harness.report.tables import check_table, console, ladder_tables, print_out
from harness.session import RunResult, Session, SessionSettings


def execute(
    selection: Selection, command: str, measure: MeasureSettings | None, *, results: Path | None, save: bool
) -> int:
    config = load_config()
    if measure is not None and measure.l2 is None:
        measure = dataclasses.replace(measure, l2=config.l2)  # type: ignore[arg-type]
    settings = SessionSettings(
        command=command,
        device=selection.device or config.device,
        measure=measure,
        timeout_s=selection.timeout or config.timeout_s,
        seed=selection.seed,
        results=(results or config.root / config.results) if save else None,
    )
    finished: list[RunResult] = []
    with ProgressObserver() as observer:
        for loaded, sizes in fitting(load_suites(config, selection.commit, selection.cases), selection):
            with Session(loaded, settings, observer) as session:
                quick = selection.quick or session.device.kind != "gpu"
                result = session.run(plan(loaded.suite, selection.cases, sizes, quick=quick))
            finished.append(result)
            if result.interrupted:
                break
    if selection.as_json:
        echo_json([_as_json(result) for result in finished])
    else:
        _print(finished, timed=measure is not None)
    return _status(finished)


def fitting(suites: Sequence[LoadedSuite], selection: Selection) -> list[tuple[LoadedSuite, list[str]]]:
    """The suites that are asked for, each with the sizes that have as many numbers as it has axes.

    Raises UsageError for a size that is wrong, or that fits no suite.
    """
    wanted = [loaded for loaded in suites if plan(loaded.suite, selection.cases)]
    fitting = []
    for loaded in wanted:
        sizes = [
            size for size in selection.size if len(size.split(",")) in (1, len(loaded.suite.problem.axes))
        ]
        for size in sizes:
            parse_size(size, loaded.suite.problem)
        if sizes or not selection.size:
            fitting.append((loaded, sizes))
    unfit = [size for size in selection.size if not any(size in sizes for _, sizes in fitting)]
    if unfit:
        parse_size(unfit[0], wanted[0].suite.problem)
    for loaded in wanted if fitting else []:
        if not any(loaded is fit for fit, _ in fitting):
            axes = ", ".join(loaded.suite.problem.axes)
            click.echo(f"{loaded.suite.name} is left out: no --size gives numbers for {axes}.", err=True)
    return fitting


def _as_json(result: RunResult) -> dict[str, Any]:
    return {
        "run": result.run,
        "complete": not result.interrupted,
        "record": str(result.path) if result.path else None,
        "problem": result.problem,
        "rows": [{"row": row, "summary": summary_of(row, result.run)} for row in result.rows],
    }


def _print(results: Sequence[RunResult], *, timed: bool) -> None:
    for result in results:
        for table in ladder_tables(result, console().width) if timed else [check_table(result)]:
            print_out(table)
            click.echo()
        for message in dict.fromkeys(row.message for row in result.rows if row.status == "skipped"):
            click.echo(f"Left out: {message}", err=True)
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
            click.echo("Interrupted: the rows above are all that was finished.", err=True)


def _status(results: Sequence[RunResult]) -> ExitCode:
    rows = [row for result in results for row in result.rows]
    if any(result.interrupted for result in results):
        return ExitCode.INTERRUPTED
    if any(row.reason == "wrong-result" for row in rows):
        return ExitCode.REGRESSION
    unstored = any(result.problem for result in results)
    if (
        unstored
        or any(row.status == "failed" for row in rows)
        or all(row.status == "skipped" for row in rows)
    ):
        return ExitCode.NOT_MEASURED
    return ExitCode.FINE
