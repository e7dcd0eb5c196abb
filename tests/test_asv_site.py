from __future__ import annotations

import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("asv")

from harness.integrations.asv.publish import (
    ASSETS,
    VENDOR,
    OfflineSite,
    find_remote_loads,
    load_manifest,
    make_offline,
)
from tests.browser.asv_tree import OFFLINE, make_project, publish

ASV_WWW = Path(str(files("asv").joinpath("www")))
OURS = ASSETS / VENDOR
MANIFEST = load_manifest()


class Loads(HTMLParser):
    """An independent reading of a page: what its scripts, links and images name."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.urls: list[str | None] = []
        self.attributes: list[dict[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in {"script", "link", "img"}:
            self.attributes.append(values)
            self.urls += [values[name] for name in ("src", "href") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = make_project(tmp_path_factory.mktemp("project"))
    done = publish(root)
    assert done.returncode == 0, done.stdout
    assert "OfflineSite" in done.stdout
    return root / "html"


@pytest.fixture
def www(tmp_path):
    return Path(shutil.copytree(ASV_WWW, tmp_path / "html"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_published_pages_name_only_files_of_the_site(site):
    pages = sorted(site.rglob("*.html"))
    assert [page.name for page in pages] == ["error.html", "index.html"]
    for page in pages:
        for url in Loads(page.read_text(encoding="utf-8")).urls:
            assert not urlsplit(url).netloc, f"{page.name} loads {url}"
            assert (page.parent / urlsplit(url).path).is_file(), (
                f"{page.name} names {url}, which is not there"
            )


def test_published_copies_are_those_of_the_manifest(site):
    for asset in MANIFEST.assets:
        assert sha256(site / VENDOR / asset.path) == asset.sha256, asset.path
    assert "Permission is hereby granted" in (site / VENDOR / "LICENSES.txt").read_text(encoding="utf-8")


def test_local_copies_carry_no_integrity_and_keep_the_way_to_the_error_page(site):
    loads = Loads((site / "index.html").read_text(encoding="utf-8"))
    vendored = [a for a in loads.attributes if (a.get("src") or a.get("href") or "").startswith(f"{VENDOR}/")]
    assert len(vendored) == sum(asset.url is not None for asset in MANIFEST.assets)
    for attributes in vendored:
        assert not {"integrity", "crossorigin", "referrerpolicy"} & attributes.keys()
        if "src" in attributes:
            assert attributes["onerror"] == "js_load_failure()"


def test_the_rest_of_the_page_is_untouched(site):
    def without_remote(html: str) -> str:
        return re.sub(r'<(?:script|link)[^>]*(?:https://|"vendor/)[^>]*>', "", html)

    before = (ASV_WWW / "index.html").read_text(encoding="utf-8")
    after = (site / "index.html").read_text(encoding="utf-8")
    assert without_remote(after) == without_remote(before)


def test_the_publisher_comes_last_and_promises_no_page(site):
    pages = json.loads((site / "index.json").read_text(encoding="utf-8"))["pages"]
    assert [name for name, _, _ in pages] == ["", "summarylist", "regressions", "direction", OfflineSite.name]
    assert pages[-1][1] is None
    assert OfflineSite.name not in (site / "index.html").read_text(encoding="utf-8")


def test_the_error_page_does_not_blame_the_connection(site):
    text = (site / "error.html").read_text(encoding="utf-8")
    assert "internet" not in text
    assert VENDOR in text


def test_no_script_of_asv_fetches_from_another_host():
    # Its scripts have no URL of their own at all; what they fetch is relative.
    for script in ASV_WWW.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        code = re.sub(r"/\*.*?\*/|^\s*//.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"""["'](?:https?:)?//[\w.-]+\.\w""", code), script.name


def test_vendored_folder_is_complete_and_nothing_more():
    listed = {asset.path for asset in MANIFEST.assets} | {"manifest.json", "LICENSES.txt"}
    assert {path.relative_to(OURS).as_posix() for path in OURS.rglob("*") if path.is_file()} == listed


def test_manifest_covers_what_asv_loads():
    loads = find_remote_loads((ASV_WWW / "index.html").read_text())
    assert {asset.url: asset.integrity for asset in MANIFEST.assets if asset.url} == loads


def test_every_difference_from_upstream_is_explained():
    for asset in MANIFEST.assets:
        assert asset.matches_upstream_integrity or asset.note, asset.path
        assert f"{asset.package} {asset.version} ({asset.licence})" in (OURS / "LICENSES.txt").read_text()


def test_styles_name_only_files_that_are_there():
    for sheet in OURS.rglob("*.css"):
        for url in re.findall(r"url\(([^)]+)\)", sheet.read_text(encoding="utf-8")):
            assert (sheet.parent / urlsplit(url).path).is_file(), url


def test_a_second_time_changes_nothing(www):
    make_offline(www)
    once = {path: sha256(path) for path in www.rglob("*") if path.is_file()}
    make_offline(www)
    assert {path: sha256(path) for path in www.rglob("*") if path.is_file()} == once


def test_a_page_in_a_folder_reaches_up_to_the_copies(www):
    page = www / "gpu" / "clocks" / "index.html"
    page.parent.mkdir(parents=True)
    url = next(asset.url for asset in MANIFEST.assets if asset.url)
    page.write_text(
        f"<SCRIPT async data-note='a &amp; \"b\"' SRC={url}></SCRIPT>\r\n", encoding="utf-8", newline=""
    )
    make_offline(www)
    (source,) = Loads(page.read_text(encoding="utf-8")).urls
    assert (page.parent / source).resolve().is_file()
    text = page.read_bytes().decode()
    assert text == f'<script async data-note="a &amp; &quot;b&quot;" src="{source}"></SCRIPT>\r\n'


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/new.js"></script>',
        "<script src='//cdn.example/new.js'></script>",
        '<SCRIPT\n  async\n  SRC = "HTTPS://cdn.example/new.js"\n></SCRIPT>',
        '<link rel="stylesheet" href="http://cdn.example/new.css"/>',
        '<link rel="alternate stylesheet" href="https://cdn.example/new.css">',
        '<link rel="preconnect" href="https://cdn.example/new">',
        '<link href="https://cdn.example/new.css">',
        '<base href="https://cdn.example/new/">',
        '<img srcset="small.png 1x, https://cdn.example/new.png 2x">',
        '<object data="https://cdn.example/new.svg"></object>',
        "<style>@import 'https://cdn.example/new.css';</style>",
        '<style>@font-face { src: url( "https://cdn.example/new.woff" ) }</style>',
        '<p style="background: url(//cdn.example/new.png)">',
    ],
)
def test_an_unknown_remote_file_is_left_as_it_is_and_named(www, html):
    page = www / "extra.html"
    page.write_text(f"<!doctype html>\n<p>ä</p>{html}", encoding="utf-8")
    before = page.read_bytes()
    (problem,) = make_offline(www)
    assert re.search(r"extra\.html needs the network: .*cdn\.example/new", problem)
    assert page.read_bytes() == before
    assert find_remote_loads((www / "index.html").read_text(encoding="utf-8")) == {}
    # asv's own error page is right again: the reader's connection may be the cause.
    assert (www / "error.html").read_bytes() == (ASV_WWW / "error.html").read_bytes()


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://example.org/">a link that is clicked</a>',
        '<link rel="canonical" href="https://example.org/">',
        '<!-- <script src="https://cdn.example/old.js"></script> -->',
        "<script>var url = '<img src=\"https://cdn.example/in-a-string.png\">';</script>",
        '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
        '<script src="local.js?from=https://example.org"></script>',
    ],
)
def test_what_a_browser_does_not_load_is_left_alone(www, html):
    page = www / "extra.html"
    page.write_text(html, encoding="utf-8")
    make_offline(www)
    assert page.read_text(encoding="utf-8") == html


def test_a_style_sheet_that_imports_from_elsewhere_is_named(www):
    (www / "fonts.css").write_text("@import url(https://fonts.example/css?family=Mono);", encoding="utf-8")
    (problem,) = make_offline(www)
    assert "fonts.css needs the network: it loads https://fonts.example/css?family=Mono" in problem


def test_asv_warns_of_a_page_that_needs_the_network_and_publishes_it(tmp_path):
    root = make_project(tmp_path / "project", plugins=(OFFLINE, ".adds_remote"))
    (root / "adds_remote.py").write_text(
        "from pathlib import Path\n"
        "from asv.publishing import OutputPublisher\n"
        "class Adds(OutputPublisher):\n"
        "    name, order = 'adds', 9\n"
        "    @classmethod\n"
        "    def publish(cls, conf, *rest):\n"
        "        Path(conf.html_dir, 'more.html').write_text('<script src=\"https://cdn.example/x.js\">')\n",
        encoding="utf-8",
    )
    done = publish(root)
    assert done.returncode == 0
    assert "https://cdn.example/x.js, and the harness ships no copy of that" in " ".join(
        done.stdout.replace("·", " ").split()
    )
    assert (root / "html" / "info.json").is_file()
