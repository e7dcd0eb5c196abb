"""An asv publisher after which the published pages know which way is better, and lead to the GPU history.

asv's scripts stay as they are. One of ours is loaded after them (assets/asv-direction.js) and corrects what
they have drawn: colours and words of the benchmark list, the order of the regressions page, axis labels. It
knows the tables of asv 0.6.6; those of another asv are refused.
"""

from __future__ import annotations

__all__ = ["HISTORY", "SCRIPT", "DirectedPages", "link_pages"]

import shutil
from pathlib import Path
from typing import Any

from asv.publishing import OutputPublisher

from harness.integrations.asv.direction import KNOWN_SOURCES, check_sources, direction_of
from harness.integrations.asv.site import ASSETS, SiteError

SCRIPT = "asv-direction.js"
"""Beside index.html, and in ASSETS."""

HISTORY = "harness/index.html"
"""Below the published folder: the first of the harness's own pages."""

_SCRIPT_TAG = f'    <script src="{SCRIPT}" onerror="js_load_failure()"></script>\n'
_AFTER_SCRIPT = 'src="regressions.js">\n    </script>\n'

_LINK = f'\t<li id="nav-li-harness"><a href="{HISTORY}">GPU history</a></li>\n'
_AFTER_LINK = '<li id="nav-li-regressions"><a href="#/regressions">Regressions</a></li>\n'


class DirectedPages(OutputPublisher):  # type: ignore[misc]  # asv is untyped
    """Runs after asv's own publishers and before the site is made to need no network."""

    name = "direction"
    button_label = None
    description = "Tell the pages which way is better"
    order = 1000

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:  # noqa: ARG003
        html_dir = Path(conf.html_dir)
        check_sources(html_dir, [name for name in KNOWN_SOURCES if name.startswith("www/")])
        for benchmark in benchmarks.values():
            # asv writes index.json, where the pages look, from this at the very end.
            if (direction := direction_of(benchmark)) != "lower":
                benchmark["direction"] = direction
        shutil.copyfile(ASSETS / SCRIPT, html_dir / SCRIPT)
        _edit(html_dir / "index.html", _SCRIPT_TAG, after=_AFTER_SCRIPT, wanted=True)
        link_pages(html_dir)


def link_pages(html_dir: Path) -> None:
    """Show the GPU history in asv's navigation bar if, and only if, its pages are there.

    May be called again whenever they have come or gone. Raises SiteError where index.html has no such bar.
    """
    _edit(html_dir / "index.html", _LINK, after=_AFTER_LINK, wanted=(html_dir / HISTORY).is_file())


def _edit(page: Path, line: str, *, after: str, wanted: bool) -> None:
    html = page.read_bytes().decode("utf-8")
    without = html.replace(line, "")
    if without.count(after) != 1:
        raise SiteError(f"{page} is not the page of asv 0.6.6: {after.strip()!r} is not in it exactly once.")
    edited = without.replace(after, after + line) if wanted else without
    if edited != html:
        page.write_bytes(edited.encode("utf-8"))
