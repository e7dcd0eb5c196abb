"""asv's pages with the history's own: the output of `asv publish`."""

from __future__ import annotations

import math
import re
import shutil
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from asv.console import log
from asv.publishing import OutputPublisher

from harness.integrations.asv.directions import ASV, direction_in_asv, warn_of_unknown_directions
from harness.integrations.asv.regressions import write_regressions
from harness.system.decoding import decode

SCRIPT = "asv-direction.js"

HISTORY = "harness/index.html"
"""Path of the harness's first page, below the published folder."""

_SCRIPT_TAG = f'    <script src="{SCRIPT}" onerror="js_load_failure()"></script>\n'
_AFTER_SCRIPT = 'src="regressions.js">\n    </script>\n'

_LINK = f'\t<li id="nav-li-harness"><a href="{HISTORY}">GPU history</a></li>\n'
_AFTER_LINK = '<li id="nav-li-regressions"><a href="#/regressions">Regressions</a></li>\n'


class DirectedPages(OutputPublisher):  # type: ignore[misc]  # asv is untyped
    """Runs after asv's own publishers, and before the site is made independent of the network."""

    name = "direction"
    button_label = None
    description = "Give the pages the better directions and the history's open regressions"
    order = 1000

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        html_dir = Path(conf.html_dir)
        warn_of_unknown_directions(benchmarks)
        write_regressions(conf, repo, benchmarks, graphs, revisions)
        for benchmark in benchmarks.values():
            # asv writes index.json, which the pages read, from this at the very end.
            if (direction := direction_in_asv(benchmark)) != "lower":
                benchmark["direction"] = direction
        for problem in filter(None, (direct_pages(html_dir), link_pages(html_dir))):
            log.warning(problem)


def direct_pages(html_dir: Path) -> str:
    """Let asv's page load the script for better directions. Return a warning if that fails."""
    shutil.copyfile(ASSETS / SCRIPT, html_dir / SCRIPT)
    page = html_dir / "index.html"
    if _edit(page, _SCRIPT_TAG, after=_AFTER_SCRIPT, wanted=True):
        return ""
    return (
        f"{page} shows every rise in red, a rate's too: {ASV} loads its scripts in a way that the harness "
        "does not know. For rates read red and green the other way, or read the GPU history: harness publish"
    )


def link_pages(html_dir: Path) -> str:
    """Link the GPU history in asv's navigation bar if its pages exist, and only then.

    Call it again when pages were added or removed. Return a warning if the bar cannot have the link.
    """
    page, history = html_dir / "index.html", html_dir / HISTORY
    if _edit(page, _LINK, after=_AFTER_LINK, wanted=history.is_file()) or not history.is_file():
        return ""
    return (
        f"{page} does not link to the GPU history: {ASV} has a navigation bar that the harness does not "
        f"know. Open {history} itself."
    )


def _edit(page: Path, line: str, *, after: str, wanted: bool) -> bool:
    """Insert a line into a page, or remove it. Return False for a page without a unique place for it."""
    html = _read(page) if page.is_file() else ""
    without = html.replace(line, "")
    if without.count(after) != 1:
        return False
    edited = without.replace(after, after + line) if wanted else without
    if edited != html:
        page.write_bytes(edited.encode())
    return True


ASSETS = Path(__file__).resolve().parent

VENDOR = "vendor"
"""Folder beside index.html, and the folder in ASSETS that it is copied from."""

# A browser follows these only on a click; asv links its feed as "alternate".
NEVER_LOADED = frozenset({"alternate", "author", "bookmark", "canonical", "help", "license", "next", "prev"})
HREF_LOADS = frozenset({"base", "image", "link", "use"})
CSS_LOAD = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)

# A same-origin copy is as trustworthy as the page that names it, so a hash adds nothing, and it breaks the
# page if a host or a checkout rewrites line ends. CORS and referrer settings mean nothing in one origin.
DROPPED = frozenset({"crossorigin", "integrity", "referrerpolicy"})

Attributes: TypeAlias = list[tuple[str, "str | None"]]


class Asset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendored file: `path` is relative to the vendor folder, `licence` is an SPDX identifier."""

    path: str
    package: str
    version: str
    licence: str
    sha256: str
    url: str | None = None
    """Address in asv's index.html; None for a file that only another vendored file needs."""
    integrity: str | None = None
    matches_upstream_integrity: bool | None = None
    note: str = ""


class VendorManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asv: str
    assets: tuple[Asset, ...]


class OfflineSite(OutputPublisher):  # type: ignore[misc]  # asv is untyped
    """Runs after every publisher with a finite order, so that it includes their changes to the pages."""

    name = "offline"
    # A page needs a label to be opened; this publisher adds none.
    button_label = None
    description = "Serve every script and style from the site itself"
    order = math.inf

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:  # noqa: ARG003
        for problem in make_offline(Path(conf.html_dir)):
            log.warning(problem)


def make_offline(html_dir: Path) -> list[str]:
    """Rewrite every page below html_dir to load vendored copies. A second call changes nothing.

    Return a warning for every reference without a copy, which stays unchanged.
    """
    manifest = load_manifest()
    problems = [
        _needs_network(sheet, f"it loads {url}", manifest)
        for sheet in sorted(html_dir.rglob("*.css"))
        for url in CSS_LOAD.findall(_read(sheet))
    ]
    for page in sorted(html_dir.rglob("*.html")):
        html, left = _localise(page, html_dir, manifest)
        page.write_bytes(html.encode())
        problems += left
    for source in sorted(path for path in (ASSETS / VENDOR).rglob("*") if path.is_file()):
        _copy(source, html_dir / source.relative_to(ASSETS))
    if not problems:
        # asv's own text blames the reader's internet connection, which can no longer be the cause.
        _copy(ASSETS / "error.html", html_dir / "error.html")
    return problems


def load_manifest() -> VendorManifest:
    return decode((ASSETS / VENDOR / "manifest.json").read_bytes(), VendorManifest)


def find_remote_loads(html: str) -> dict[str, str | None]:
    """Return the URLs that a browser fetches from another host when it reads a page, with their integrity."""
    tags = _TagCollector(html).tags
    return {url: dict(tag.attributes).get("integrity") for tag in tags for _, url in _remote_loads(tag)}


class _Tag(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    attributes: Attributes
    start: int
    source: str


class _TagCollector(HTMLParser):
    """Collects start tags with their positions, so that everything else stays unchanged, byte for byte."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[_Tag] = []
        self._line_starts = [0, *(end.end() for end in re.finditer("\n", html))]
        self._in_style = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self._add(tag, attrs, self.get_starttag_text() or "")
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._add("style", [("style", data)], data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False

    def _add(self, name: str, attributes: Attributes, source: str) -> None:
        line, column = self.getpos()
        start = self._line_starts[line - 1] + column
        self.tags.append(_Tag(name=name, attributes=attributes, start=start, source=source))


def _remote_loads(tag: _Tag) -> list[tuple[str, str]]:
    return [
        (attribute, url)
        for attribute, value in tag.attributes
        for url in _loaded_urls(tag, attribute, value or "")
        if urlsplit(url).netloc
    ]


def _loaded_urls(tag: _Tag, attribute: str, value: str) -> list[str]:
    """Return the URLs in one attribute that the browser fetches by itself, local or remote."""
    if attribute == "style":
        return CSS_LOAD.findall(value)
    if attribute == "srcset":
        return [candidate.split()[0] for candidate in value.split(",") if candidate.strip()]
    if attribute in {"href", "xlink:href"} and tag.name in HREF_LOADS:
        relations = set((dict(tag.attributes).get("rel") or "").lower().split())
        clicked = tag.name == "link" and bool(relations) and relations <= NEVER_LOADED
        return [] if clicked else [value.strip()]
    loads = attribute in {"src", "poster"} or (tag.name, attribute) == ("object", "data")
    return [value.strip()] if loads else []


def _localise(page: Path, html_dir: Path, manifest: VendorManifest) -> tuple[str, list[str]]:
    """Return a page that loads copies if there are any, and a warning for each other remote reference."""
    paths = {asset.url: asset.path for asset in manifest.assets if asset.url is not None}
    to_root = "../" * (len(page.relative_to(html_dir).parts) - 1)
    html = _read(page)
    pieces, done = [], 0
    problems = []
    for tag in _TagCollector(html).tags:
        local = {}
        for attribute, url in _remote_loads(tag):
            # Only a whole attribute can be replaced; a URL inside a style counts as unknown.
            if url in paths and attribute not in {"style", "srcset"}:
                local[attribute] = f"{to_root}{VENDOR}/{paths[url]}"
            else:
                problems.append(_needs_network(page, f"<{tag.name} {attribute}> loads {url}", manifest))
        if local:
            words = [
                name if value is None else f'{name}="{escape(local.get(name, value))}"'
                for name, value in tag.attributes
                if name not in DROPPED
            ]
            end = "/>" if tag.source.endswith("/>") else ">"
            pieces += [html[done : tag.start], f"<{' '.join([tag.name, *words])}{end}"]
            done = tag.start + len(tag.source)
    return "".join([*pieces, html[done:]]), problems


def _needs_network(file: Path, what: str, manifest: VendorManifest) -> str:
    return (
        f"{file} needs the network: {what}, and the harness ships no copy of that. Its copies are those that "
        f"asv {manifest.asv} asks for: take the reference out of the page, or publish with that asv"
    )


def _copy(source: Path, target: Path) -> None:
    # Copy contents only: if the package is installed read-only, asv could not delete the site next time.
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _read(file: Path) -> str:
    return file.read_bytes().decode()  # read_text would change line ends
