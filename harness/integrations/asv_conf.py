"""What asv.conf.json says of the site: where results and pages lie, and how commits are linked."""

from __future__ import annotations

__all__ = ["SiteConf", "link_from_asv", "read_conf", "run_publish"]

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError, MeasureError


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConf:
    file: Path | None
    """None where the project has no asv.conf.json."""
    project: str
    results: Path
    html: Path
    branch: str
    commit_url: str
    """With {} for the hash; empty where there is no place to link to."""


def read_conf(root: Path) -> SiteConf:
    """Raises ConfigError for a file that asv cannot read."""
    file = root / "asv.conf.json"
    folder = root / ".asv"
    if not file.exists():
        return SiteConf(
            file=None,
            project=root.name,
            results=folder / "results",
            html=folder / "html",
            branch="HEAD",
            commit_url="",
        )
    try:
        from asv.config import Config
        from asv.util import UserError
    except ImportError:
        raise ConfigError(
            f"{file} cannot be read without asv: install it with pip install asv==0.6.6."
        ) from None
    try:
        conf = Config.load(str(file))
        branches = [str(each) for each in conf.branches or [] if each]
    except (UserError, ValueError, TypeError, OSError) as error:  # asv trips over what is no object or list
        raise ConfigError(f"asv cannot read {file}: {str(error).rstrip('.')}.") from None
    url = str(conf.show_commit_url or "")
    return SiteConf(
        file=file,
        project=str(conf.project or root.name),
        results=root / str(conf.results_dir),
        html=root / str(conf.html_dir),
        branch=branches[0] if branches else "HEAD",
        # asv's default, "#", is no place.
        commit_url=f"{url}{{}}" if url.startswith(("https://", "http://")) else "",
    )


def run_publish(conf: SiteConf) -> None:
    """Let asv publish its own pages, its words on standard error. Raises MeasureError where it fails."""
    assert conf.file
    command = [sys.executable, "-m", "asv", "publish", "--config", str(conf.file)]
    done = subprocess.run(command, cwd=conf.file.parent, stdout=sys.stderr, check=False)
    if done.returncode:
        raise MeasureError(
            f"asv publish failed with status {done.returncode}; its own words are above. "
            "'harness publish --without-asv' writes the other pages."
        )


def link_from_asv(conf: SiteConf, html: Path) -> None:
    """Let asv's pages lead to ours, where there are any of asv's. A page of somebody else's is left alone."""
    if conf.file and (html / "asv.js").exists():
        from harness.integrations.asv_pages import link_pages

        link_pages(html)
