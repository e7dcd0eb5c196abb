"""harness publish: writes the pages of a history."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from harness.cli import echo_json, options, tell
from harness.config import Config, load_config
from harness.errors import ExitCode, SuiteError
from harness.history.triage import read_triage
from harness.integrations.asv.conf import find_conf, read_conf
from harness.numbers import counted
from harness.report.terminal.progress import Waiting
from harness.suite.loader import discover, load
from harness.suite.suite import Suite


@click.command("publish")
@options.flag("--without-asv", "Leave asv's own pages as they are: quick for a long history.")
@options.path("--results", "Folder of asv's results; default: asv.conf.json's.", type=options.FOLDER)
@options.path("--html", "Folder for the site; default: asv.conf.json's html_dir.", type=options.FOLDER)
@options.asv_conf
@options.json
def command(
    without_asv: bool, results: Path | None, html: Path | None, asv_conf: Path | None, as_json: bool
) -> int:
    """Write the site: the pages of the history, next to asv's own.

    The pages show open regressions, each card's ladder, each case with its changes, epochs, clocks,
    temperature and power, comparisons, calibrations and runs. They need no server and no network: open
    harness/index.html in the site's folder.
    """
    from harness.integrations.asv.site_pages import run_publish, write_pages

    config = load_config()
    root = config.root
    conf = read_conf(root, find_conf(config, asv_conf, results))
    of_asv: tuple[str, ...] = ()
    if conf.file and not without_asv and results is None and html is None:
        read_triage(root)  # asv empties the folder first, so errors must come before that
        of_asv = run_publish(conf)
    with Waiting("publishing") as waiting:
        suites = _suites(config)
        published = write_pages(conf, root, results=results, html=html, suites=suites, tell=waiting.tell)
    for problem in (*published.problems, *published.unrecorded):
        tell(problem)
    if unwritten := [each for each in of_asv if each not in published.problems]:
        more = f" 'harness rebuild' names {len(unwritten) - 1} more." if len(unwritten) > 1 else ""
        tell(f"asv's pages lack figures that records have: {unwritten[0]}{more}")
    if as_json:
        echo_json({**asdict(published), "folder": str(published.folder)})
    else:
        click.echo(
            f"{counted(published.points, 'point')} of {counted(published.series, 'series', 'series')} on "
            f"{counted(published.cards, 'card')}, {counted(published.open, 'open regression')}: "
            f"{published.folder / 'index.html'}"
        )
    return ExitCode.FINE


def _suites(config: Config) -> list[Suite]:
    """Return the suites that load. A history is published even if its suites are gone."""
    found = []
    for folder in discover(config.root, config.suites):
        try:
            found.append(load(folder).suite)
        except SuiteError as error:
            tell(f"Published without the suite in {folder.name}: {error.message}")
    return found
