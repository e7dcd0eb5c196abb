"""Our pages beside asv's: the output of `harness publish` and `asv gh-pages`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.config import load_config
from harness.errors import HarnessError, MeasureError
from harness.integrations.asv.conf import SiteConf, asvs_conf
from harness.report.site.publishing import Published, publish_pages
from harness.suite.suite import Suite
from harness.system.python_module import python_module


def write_pages(
    conf: SiteConf,
    root: Path,
    *,
    results: Path | None = None,
    html: Path | None = None,
    suites: Sequence[Suite] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Write our pages beside asv's, and link them from asv's. Raises the errors of publish_pages."""
    site = html or conf.html
    published = publish_pages(
        results or conf.results,
        root,
        site,
        repository=conf.repository,
        project=conf.project,
        revision=conf.branch,
        commit_url=conf.commit_url,
        suites=suites,
        directions=load_config(root).directions,
        limits=conf.limits,
        tell=tell,
    )
    if conf.file and (site / "asv.js").exists():  # another site's page stays unchanged
        from harness.integrations.asv.publish import link_pages

        if problem := link_pages(site):
            return replace(published, problems=(*published.problems, problem))
    return published


def run_publish(conf: SiteConf) -> tuple[str, ...]:
    """Let asv publish its own pages, with its output on standard error, from results completed by records.

    Returns sentences on results that could not be completed. Raises MeasureError if asv fails.
    """
    assert conf.file
    problems = _completed(conf, conf.file)
    command = python_module("asv", "publish", "--config", str(conf.file))
    done = subprocess.run(command, cwd=conf.file.parent, stdout=sys.stderr, check=False)
    if done.returncode:
        raise MeasureError(
            f"asv publish failed with status {done.returncode}; its own words are above. "
            "'harness publish --without-asv' writes the other pages."
        )
    return problems


def _completed(conf: SiteConf, file: Path) -> tuple[str, ...]:
    """Add results that only records hold to asv's results. Return what could not be written, and why."""
    try:
        loaded = asvs_conf(file)
        from harness.integrations.asv.write_results import write_results

        return write_results(loaded, file.parent, conf.results, every=False).problems
    except HarnessError as error:
        return (error.message,)
