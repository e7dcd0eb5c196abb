"""Pictures of a published history for the docs: overview, case, compare page, and two widths of terminal.

    python scripts/history_pictures.py PROJECT docs/pictures --case CASE
    python scripts/history_pictures.py PROJECT docs/pictures --run

PROJECT is a folder where `harness publish` was called. With --run the pictures are of the first card, and of
its run with the most cases. With --every they are of a phone and of dark pages too, to be looked at.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

if __package__ in (None, ""):  # run as a command: the folder above is where `tests` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser.chromium import Site, chromium, serve

SITE = ".asv/html/harness"
DESKTOP, TALL, PHONE = (1280, 900), (1280, 1100), (390, 844)
COLUMNS = (80, 160)
MOST_LINES = 40
READY = "return document.getElementById('main').dataset.ready"
STYLE = (
    "body{margin:0;background:#fff}"
    "pre{margin:0;padding:12px;font:13px/1.35 'DejaVu Sans Mono',monospace;will-change:transform;"
    "white-space:pre-wrap;overflow-wrap:anywhere}"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path, metavar="PROJECT")
    parser.add_argument("pictures", type=Path, metavar="FOLDER", help="where the pictures go")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--case", help="the case whose page is pictured")
    choice.add_argument("--run", action="store_true", help="a card and its largest run instead")
    parser.add_argument("--every", action="store_true", help="phones and dark pages too")
    asked = parser.parse_args()
    folder, pictures = asked.project / SITE, asked.pictures.absolute()
    with tempfile.TemporaryDirectory() as scratch, chromium(Path(scratch) / "profile") as driver:
        pages = pages_of(folder, asked.case) if asked.case else pages_of_card(folder)
        with serve(folder) as url:
            picture_pages(Site(driver, url), pages, pictures, every=asked.every)
        if asked.run:
            return 0
        texts = Path(scratch) / "texts"
        texts.mkdir()
        for columns in COLUMNS:
            lines = said(asked.project, ["history"], columns).splitlines()[:MOST_LINES]
            shown = "\n".join(["$ harness history", *lines])
            (texts / f"{columns}.html").write_text(terminal_page(shown, columns), "utf-8")
        with serve(texts) as url:
            site = Site(driver, url)
            for columns in COLUMNS:
                picture_of(site, f"{columns}.html", 24 + 8 * columns, pictures / f"terminal-{columns}.png")
    return 0


def pages_of(folder: Path, case: str) -> dict[str, str]:
    """Return the addresses of the pages by the names of their pictures; two show the case's worst change."""
    site = json.loads((folder / "api/site.json").read_text("utf-8"))
    card = site["cards"][0]["file"]
    number = next(each["order"] for each in site["cases"] if each["name"] == case)
    changes: list[Any] = json.loads((folder / "api/changes.json").read_text("utf-8"))
    own = max((each for each in changes if each["case"] == number), key=lambda each: abs(each["effect"]))
    fragment = urlencode({"card": card, "case": case, "change": own["id"]})
    sides = urlencode({"left": f"{card}@{own['good_hash']}", "right": f"{card}@{own['bad_hash']}"})
    return {
        "overview": "index.html",
        "case": f"case.html#{fragment}",
        "compare": f"compare.html#{sides}",
    }


def pages_of_card(folder: Path) -> dict[str, str]:
    """Return the addresses of the first card's page and of the run with the most rows, by picture."""
    card = json.loads((folder / "api/site.json").read_text("utf-8"))["cards"][0]["file"]
    runs = json.loads((folder / f"api/cards/{card}.json").read_text("utf-8"))["runs"]
    largest = max(runs, key=lambda run: run["rows"])["file"]
    return {
        "ladder": f"card.html#{urlencode({'card': card})}",
        "run": f"run.html#{urlencode({'run': largest})}",
    }


def picture_pages(site: Site, pages: dict[str, str], pictures: Path, *, every: bool) -> None:
    for name, address in pages.items():
        for scheme in ("light", "dark") if every else ("light",):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            site.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            desktop = DESKTOP if name in ("overview", "case", "compare") else TALL
            for width, height in (desktop, PHONE) if every else (desktop,):
                site.goto(address, width=width, height=height)
                site.wait(lambda: bool(site.script(READY)), "the page")
                site.script("return new Promise(done => setTimeout(done, 300))")
                file = f"{name}-{scheme}-{width}" if every else name
                site.screenshot(pictures / f"{file}.png")


def picture_of(site: Site, address: str, width: int, picture: Path) -> None:
    """Picture a whole page, as high as its content."""
    site.goto(address, width=width, height=100)
    high = site.script("return document.body.offsetHeight")
    site.goto(address, width=width, height=high)
    site.screenshot(picture)


def said(project: Path, words: Sequence[str], columns: int) -> str:
    """Return the output of `harness` in a terminal of so many columns."""
    shown = subprocess.run(
        [sys.executable, "-m", "harness", *words],
        cwd=project,
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def terminal_page(text: str, columns: int) -> str:
    style = f"<meta charset='utf-8'><style>{STYLE}</style>"
    return f"{style}<pre style='width:{columns}ch'>{html.escape(text)}</pre>"


if __name__ == "__main__":
    sys.exit(main())
