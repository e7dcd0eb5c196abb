"""asv's pages with the history's own: what `asv publish` makes."""

from __future__ import annotations

import hashlib
import io
import math
import re
import shutil
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asv
import msgspec
from asv.console import log
from asv.publishing import OutputPublisher
from asv.util import UserError

from harness.config import load_config
from harness.errors import ConfigError, HarnessError
from harness.history.cards import machine_of
from harness.history.figures import DIRECTIONS, Direction, direction_of
from harness.history.reading import History, read_history
from harness.integrations.asv.builds import case_of

KNOWN_SOURCES: Mapping[str, str] = {
    "commands/compare.py": "e35c3c78155fe871275da2c499dfc2d57026f007749b31862449036917ef8757",
    "commands/continuous.py": "1e6135a2470523ecd0b81326f607494f814e4117c180459b31eea14ea1aa992a",
    "commands/find.py": "72f1ffb4df1f22e8c19aafd489f7f29e165676d34eea5095971de9e743bb3a38",
    "plugins/regressions.py": "e4a2e06d675befa9eba01ba3a27fa215ca41759c993c06ec14888780e3d3cc42",
    "step_detect.py": "52db5851e70bf7c754f5a35a079ad047d2d6fe81645e3621989536aed3fd7ea6",
    "www/asv.js": "f68b8120e25bf46610c04a3d111f08eab6e1bd5c0603a65ea97ccfcb350e3a0a",
    "www/graphdisplay.js": "07e5125f5f5c1d527bb12cf137a1d3d2b54a1b4b57d87f31e9ee5d5560ca43d1",
    "www/regressions.js": "03e94118b303b2052f3308699083a08dfdf6faa497b5009ba55d74c1077b2deb",
    "www/summarylist.css": "4a3c108b64b239269071770f8977e268e3441b1f404d790b315b629f79052aff",
    "www/summarylist.js": "afa9b5613b9201e23bb8054fcc69f0780e859b96000bef053e3acb6309696cd8",
}
"""Files of asv 0.6.6 whose work is changed or reckoned with, by path in its package; SHA-256, of
Python without comments and blank lines."""


class UnknownAsvError(ConfigError, UserError):  # type: ignore[misc]  # asv is untyped
    """A file of asv is not the one of 0.6.6; asv prints the message as one line."""


def direction_in_asv(benchmark: Mapping[str, Any]) -> Direction:
    """The direction that asv compares by. Where nothing tells it, lower is better, as in asv."""
    direction = direction_of(benchmark, load_config().directions)
    return "lower" if direction == "unknown" else direction


def warn_of_unknown_directions(benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn of a mistyped direction, which would else be taken for none in silence."""
    for name, benchmark in benchmarks.items():
        declared = benchmark.get("direction")
        if declared is not None and declared not in DIRECTIONS:
            log.warning(
                f"{name} has the direction {declared!r}, which is none of {', '.join(DIRECTIONS)}: "
                f"taken as {direction_in_asv(benchmark)}"
            )


def check_asv(*names: str) -> None:
    """Raise UnknownAsvError unless these files of the asv that runs are those of 0.6.6."""
    check_sources(Path(asv.__file__).parent, names)


def check_sources(folder: Path, names: Iterable[str]) -> None:
    """Raise UnknownAsvError unless the files below a folder are those of asv 0.6.6.

    `names` are keys of KNOWN_SOURCES; a name's "www/" is left out below a published folder.
    """
    for name in names:
        path = folder / name
        path = path if path.is_file() else folder / name.removeprefix("www/")
        found = hashlib.sha256(_code_of(path)).hexdigest() if path.is_file() else None
        if found != KNOWN_SOURCES[name]:
            raise UnknownAsvError(
                f"{path} is {'not there' if found is None else 'not that of asv 0.6.6'} (asv here is "
                f"{asv.__version__}). The plugin teaches asv which way is better by changing what that file "
                "does; with another one it could show a regression as an improvement. To get the known one: "
                "pip install --force-reinstall asv==0.6.6"
            )


def _code_of(path: Path) -> bytes:
    """The file's content; of Python all but comments and blank lines."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    try:
        lines = content.decode("utf-8").split("\n")
        for token in tokenize.tokenize(io.BytesIO(content).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    except (SyntaxError, ValueError, tokenize.TokenError):
        return content
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()


_NEAR = 2
"""Commits by which two searches of the same noisy series may differ."""


class Explained:
    """The environment changes of a history, read when first asked for."""

    def __init__(self, conf: Any, repository: Path, benchmarks: Mapping[str, Mapping[str, Any]]) -> None:
        self.conf, self.repository, self.benchmarks = conf, repository, benchmarks
        self.left_out = 0

    def without(self, machine: str, name: str, jumps: Sequence[Any], hashes: Mapping[int, str]) -> list[Any]:
        """The jumps of asv's (revision before, revision after, ...) that the card does not explain."""
        spans = self._spans.get((machine, case_of(name, self.benchmarks)), ())
        if not spans or self._history is None:
            return list(jumps)
        positions = self._history.commits.positions

        def is_explained(jump: Any) -> bool:
            return any(first <= positions.get(hashes[jump[1]], -1) <= last for first, last in spans)

        left = [jump for jump in jumps if not is_explained(jump)]
        self.left_out += not left
        return left

    def tell(self) -> None:
        if self.left_out:
            log.info(
                f"{self.left_out} regression(s) left out: the card's clocks moved and its cycles did not, "
                "or the binary was the same. 'harness history --all' lists them."
            )

    @cached_property
    def _history(self) -> History | None:
        try:
            return read_history(
                Path(self.conf.results_dir),
                Path.cwd(),
                repository=self.repository,
                revision=next(filter(None, self.conf.branches or []), "HEAD"),
                directions=load_config().directions,
            )
        except HarnessError as error:
            log.warning(f"asv's regressions are taken as they are: {error.message}")
            return None

    @cached_property
    def _spans(self) -> Mapping[tuple[str, str], Sequence[tuple[int, int]]]:
        spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for card in self._history.cards if self._history else ():
            for each in card.changes:
                if each.change.kind == "environment":
                    span = (each.change.good + 1 - _NEAR, each.change.bad + _NEAR)
                    spans[machine_of(card.name), each.change.case].append(span)
        return spans


SCRIPT = "asv-direction.js"

HISTORY = "harness/index.html"
"""Path of the first of the harness's own pages, below the published folder."""

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
            if (direction := direction_in_asv(benchmark)) != "lower":
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
    html = _read(page)
    without = html.replace(line, "")
    if without.count(after) != 1:
        raise SiteError(f"{page} is not the page of asv 0.6.6: {after.strip()!r} is not in it exactly once.")
    edited = without.replace(after, after + line) if wanted else without
    if edited != html:
        page.write_bytes(edited.encode())


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
    """One vendored file: `path` is below the vendor folder, `licence` an SPDX identifier."""

    path: str
    package: str
    version: str
    licence: str
    sha256: str
    url: str | None = None
    """The address in asv's index.html; None for a file that only another vendored file names."""
    integrity: str | None = None
    matches_upstream_integrity: bool | None = None
    note: str = ""


class VendorManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asv: str
    assets: tuple[Asset, ...]


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
    for sheet in sorted(html_dir.rglob("*.css")):
        if found := CSS_LOAD.search(_read(sheet)):
            raise _needs_network(sheet, f"it loads {found[1]}", manifest)
    for page, html in rewritten.items():
        page.write_bytes(html.encode())
    for source in sorted(path for path in (ASSETS / VENDOR).rglob("*") if path.is_file()):
        _copy(source, html_dir / source.relative_to(ASSETS))
    # asv's own text blames the reader's internet connection, which can no longer be the cause.
    _copy(ASSETS / "error.html", html_dir / "error.html")


def load_manifest() -> VendorManifest:
    return msgspec.json.decode((ASSETS / VENDOR / "manifest.json").read_bytes(), type=VendorManifest)


def find_remote_loads(html: str) -> dict[str, str | None]:
    """The URLs that a browser would fetch from another host as soon as it reads a page, each with its tag's
    integrity.
    """
    tags = _TagCollector(html).tags
    return {url: dict(tag.attributes).get("integrity") for tag in tags for _, url in _remote_loads(tag)}


class _Tag(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    attributes: Attributes
    start: int
    source: str


class _TagCollector(HTMLParser):
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
    loads = attribute in {"src", "poster"} or (tag.name, attribute) == ("object", "data")
    return [value.strip()] if loads else []


def _localise(page: Path, html_dir: Path, manifest: VendorManifest) -> str:
    paths = {asset.url: asset.path for asset in manifest.assets if asset.url is not None}
    to_root = "../" * (len(page.relative_to(html_dir).parts) - 1)
    html = _read(page)
    pieces, done = [], 0
    for tag in _TagCollector(html).tags:
        local = {}
        for attribute, url in _remote_loads(tag):
            # Only a whole attribute can be exchanged; a URL inside a style counts as unknown.
            if url not in paths or attribute in {"style", "srcset"}:
                raise _needs_network(page, f"<{tag.name} {attribute}> loads {url}", manifest)
            local[attribute] = f"{to_root}{VENDOR}/{paths[url]}"
        if local:
            words = [
                name if value is None else f'{name}="{escape(local.get(name, value))}"'
                for name, value in tag.attributes
                if name not in DROPPED
            ]
            end = "/>" if tag.source.endswith("/>") else ">"
            pieces += [html[done : tag.start], f"<{' '.join([tag.name, *words])}{end}"]
            done = tag.start + len(tag.source)
    return "".join([*pieces, html[done:]])


def _needs_network(file: Path, what: str, manifest: VendorManifest) -> SiteError:
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
    return file.read_bytes().decode()  # read_text would change line ends
