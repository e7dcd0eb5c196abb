"""Pictures of a regression that `compare --explain` explained, for the docs: terminal, comment, and page.

    python scripts/explained_pictures.py PROJECT docs/pictures

PROJECT is a folder with the records of a history and of one such comparison, which is the newest. Its pages
are published into it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):  # run as a command: the folder above is where `tests` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.history_pictures import READY, SITE, pages_of, picture_of, said, terminal_page
from tests.browser.chromium import Site, chromium, serve

COLUMNS = 100
PAGE = (1280, 1300)
OPEN = """
const told = [...document.querySelectorAll("details")].find((each) => each.innerText.startsWith("Hardware"));
told.open = true;
told.closest("section").scrollIntoView();
"""
COMMENT_WIDTH = 860
STYLE = """
body{margin:0;padding:16px;background:#fff;color:#1f2328;font:14px/1.5 'DejaVu Sans',sans-serif}
main{border:1px solid #d0d7de;border-radius:6px}
header{background:#f6f8fa;border-bottom:1px solid #d0d7de;padding:8px 16px;color:#59636e}
article{padding:0 16px}
code{background:#eff1f3;border-radius:6px;padding:2px 5px;font:12px 'DejaVu Sans Mono',monospace}
pre{background:#f6f8fa;border-radius:6px;padding:16px;font:12px/1.45 'DejaVu Sans Mono',monospace}
details{margin:12px 0}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path, metavar="PROJECT")
    parser.add_argument("pictures", type=Path, metavar="FOLDER", help="where the pictures go")
    parser.add_argument("--case", required=True, help="the case that became slower")
    asked = parser.parse_args()
    project, pictures = asked.project, asked.pictures.absolute()
    subprocess.run([sys.executable, "-m", "harness", "publish", "--without-asv"], cwd=project, check=True)
    with tempfile.TemporaryDirectory() as scratch, chromium(Path(scratch) / "profile") as driver:
        texts = Path(scratch) / "texts"
        texts.mkdir()
        shown = said(project, ["report"], COLUMNS)
        (texts / "terminal.html").write_text(terminal_page(f"$ harness report\n{shown}", COLUMNS), "utf-8")
        (texts / "comment.html").write_text(comment_page(project), "utf-8")
        with serve(texts) as url:
            site = Site(driver, url)
            picture_of(site, "terminal.html", 24 + 8 * COLUMNS, pictures / "explained-terminal.png")
            picture_of(site, "comment.html", COMMENT_WIDTH, pictures / "explained-comment.png")
        with serve(project / SITE) as url:
            site = Site(driver, url)
            site.goto(pages_of(project / SITE, asked.case)["case"], width=PAGE[0], height=PAGE[1])
            site.wait(lambda: bool(site.script(READY)), "the page")
            site.script(OPEN)
            site.script("return new Promise(done => setTimeout(done, 300))")
            site.screenshot(pictures / "explained-page.png")
    return 0


def comment_page(project: Path) -> str:
    """Return the pull request's comment as its host shows it."""
    comment = said(project, ["report", "--format", "markdown"], COLUMNS)
    above = f"<meta charset='utf-8'><style>{STYLE}</style><main><header><b>github-actions</b> bot</header>"
    return f"{above}<article>{comment}</article></main>"


if __name__ == "__main__":
    sys.exit(main())
