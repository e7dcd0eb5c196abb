"""An asv publisher after which the published site needs no other host.

asv's index.html loads its scripts and styles from three content delivery networks and shows an error page
when one of them cannot be reached. This publisher copies pinned files beside the page and points the page at
them. It refuses to publish a page that would still need the network: its readers would find the gap later.
"""

from __future__ import annotations

__all__ = [
    "ASSETS",
    "VENDOR",
    "Asset",
    "Manifest",
    "OfflineSite",
    "RemoteLoad",
    "find_remote_loads",
    "load_manifest",
    "make_offline",
]

import math
import re
import shutil
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from asv.publishing import OutputPublisher
from asv.util import UserError

from harness.errors import ConfigError

ASSETS = Path(__file__).resolve().parents[2] / "assets"

VENDOR = "vendor"
"""The folder beside index.html, and the one in ASSETS that it is copied from."""

# A browser follows these only when somebody clicks; asv links its feed as "alternate".
NEVER_LOADED = frozenset({"alternate", "author", "bookmark", "canonical", "help", "license", "next", "prev"})
HREF_LOADS = frozenset({"base", "image", "link", "use"})
CSS_LOAD = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)

# A same-origin copy is as trustworthy as the page that names it, so a hash adds nothing, and it breaks the
# page where a host or a checkout rewrites line ends. CORS and referrer settings mean nothing in one origin.
DROPPED = frozenset({"crossorigin", "integrity", "referrerpolicy"})

Attributes: TypeAlias = list[tuple[str, "str | None"]]


class Asset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One vendored file."""

    path: str
    """Below the vendor folder."""
    package: str
    version: str
    licence: str
    """SPDX identifier; the text is in LICENSES.txt."""
    sha256: str
    url: str | None = None
    """What asv's index.html asks for; None for a file that only another vendored file names."""
    integrity: str | None = None
    matches_upstream_integrity: bool | None = None
    note: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is vendored, and for which asv."""

    asv: str
    assets: tuple[Asset, ...]


class RemoteLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a browser would fetch from another host as soon as it reads the page."""

    tag: str
    url: str
    integrity: str | None = None


class SiteError(ConfigError, UserError):  # type: ignore[misc]  # asv is untyped
    """Also asv's own kind, which asv prints as one line instead of a traceback."""


class OfflineSite(OutputPublisher):  # type: ignore[misc]  # asv is untyped
    """Runs after every publisher with a finite order, so that it also sees what they wrote into the pages."""

    name = "offline"
    # A page would need a label to be opened by; this publisher adds none.
    button_label = None
    description = "Serve every script and style from the site itself"
    order = math.inf

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:  # noqa: ARG003
        make_offline(Path(conf.html_dir))


def make_offline(html_dir: Path) -> None:
    """Rewrite every page below html_dir to load vendored copies; a second call changes nothing."""
    manifest = load_manifest()
    # Every page is rewritten before anything is written: a refused site must not look half right.
    rewritten = {page: _localise(page, html_dir, manifest) for page in sorted(html_dir.rglob("*.html"))}
    _check_styles(html_dir, manifest)
    for page, html in rewritten.items():
        _write(page, html)
    for source in sorted(path for path in (ASSETS / VENDOR).rglob("*") if path.is_file()):
        _copy(source, html_dir / source.relative_to(ASSETS))
    # asv's own text blames the reader's internet connection, which can no longer be the cause.
    _copy(ASSETS / "error.html", html_dir / "error.html")


def load_manifest() -> Manifest:
    return msgspec.json.decode((ASSETS / VENDOR / "manifest.json").read_bytes(), type=Manifest)


def find_remote_loads(html: str) -> list[RemoteLoad]:
    """Everything in a page that would be fetched from another host."""
    return [
        RemoteLoad(tag=tag.name, url=url, integrity=dict(tag.attributes).get("integrity"))
        for tag in _parse(html)
        for _, url in _remote_loads(tag)
    ]


class _Tag(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    attributes: Attributes
    start: int
    source: str


class _Reader(HTMLParser):
    """Collects start tags with their places, so that what is not rewritten stays as it was, byte by byte."""

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


def _parse(html: str) -> list[_Tag]:
    return _Reader(html).tags


def _remote_loads(tag: _Tag) -> list[tuple[str, str]]:
    return [
        (attribute, url)
        for attribute, value in tag.attributes
        for url in _loaded_urls(tag, attribute, value or "")
        if urlsplit(url).netloc
    ]


def _loaded_urls(tag: _Tag, attribute: str, value: str) -> list[str]:
    """The URLs in one attribute that the browser fetches by itself, be they local or remote."""
    if attribute == "style":
        return CSS_LOAD.findall(value)
    if attribute == "srcset":
        return [candidate.split()[0] for candidate in value.split(",") if candidate.strip()]
    if attribute in {"href", "xlink:href"} and tag.name in HREF_LOADS:
        relations = set((dict(tag.attributes).get("rel") or "").lower().split())
        clicked = tag.name == "link" and bool(relations) and relations <= NEVER_LOADED
        return [] if clicked else [value.strip()]
    if attribute in {"src", "poster"} or (tag.name, attribute) == ("object", "data"):
        return [value.strip()]
    return []


def _localise(page: Path, html_dir: Path, manifest: Manifest) -> str:
    paths = {asset.url: asset.path for asset in manifest.assets if asset.url is not None}
    to_root = "../" * (len(page.relative_to(html_dir).parts) - 1)
    html = _read(page)
    pieces, done = [], 0
    for tag in _parse(html):
        local = {}
        for attribute, url in _remote_loads(tag):
            # Only a whole attribute can be exchanged; a URL inside a style counts as unknown.
            if url not in paths or attribute in {"style", "srcset"}:
                raise _needs_network(page, f"<{tag.name} {attribute}> loads {url}", manifest)
            local[attribute] = f"{to_root}{VENDOR}/{paths[url]}"
        if local:
            pieces += [html[done : tag.start], _start_tag(tag, local)]
            done = tag.start + len(tag.source)
    return "".join([*pieces, html[done:]])


def _start_tag(tag: _Tag, local: dict[str, str]) -> str:
    words = [tag.name]
    for name, value in tag.attributes:
        if name in DROPPED:
            continue
        words.append(name if value is None else f'{name}="{escape(local.get(name, value))}"')
    return f"<{' '.join(words)}{'/' if tag.source.endswith('/>') else ''}>"


def _check_styles(html_dir: Path, manifest: Manifest) -> None:
    for sheet in sorted(html_dir.rglob("*.css")):
        found = CSS_LOAD.search(_read(sheet))
        if found:
            raise _needs_network(sheet, f"it loads {found[1]}", manifest)


def _needs_network(file: Path, what: str, manifest: Manifest) -> SiteError:
    return SiteError(
        f"{file} would need the network: {what}, and no copy of that is vendored. The copies are those that "
        f"asv {manifest.asv} asks for: publish with that asv, take the reference out of the page, or add the "
        "file with scripts/vendor_assets.py."
    )


def _copy(source: Path, target: Path) -> None:
    # Contents only: where the package is installed read-only, asv could not delete the site the next time.
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _read(file: Path) -> str:
    return file.read_bytes().decode("utf-8")


def _write(file: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8"))
