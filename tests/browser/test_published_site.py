from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.asv_tree import GFLOPS, TIME

if TYPE_CHECKING:
    from tests.browser.chromium import Site

pytestmark = pytest.mark.slow

WIDTHS = (1280, 390)
# Somebody who wants to look at the pages names a folder here.
SCREENSHOTS = os.environ.get("HARNESS_SCREENSHOTS")


def keep(site: Site, name: str, tmp_path: Path) -> None:
    site.screenshot(Path(SCREENSHOTS or tmp_path) / f"{name}.png")


def assert_quiet(site: Site) -> None:
    assert site.console_errors() == []
    assert site.external_requests() == []
    assert any(url.endswith("/index.json") or "/index.json?" in url for url in site.requests())


@pytest.mark.parametrize("width", WIDTHS)
def test_the_grid_shows_every_benchmark(open_site, sample_site, tmp_path, width):
    site = open_site(sample_site)
    site.goto(width=width)
    site.wait(lambda: site.count("#summarygrid-display canvas"), "the grid's small graphs")
    # The grid groups by module, so it shows a name in two parts.
    grid = site.text("#summarygrid-display").split()
    assert grid == ["matmul", *(name.removeprefix("matmul.") for name in (TIME, GFLOPS))]
    keep(site, f"grid-{width}", tmp_path)
    assert_quiet(site)


@pytest.mark.parametrize("name", [TIME, GFLOPS])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_benchmark_page_draws_its_graph(open_site, sample_site, tmp_path, name, width):
    site = open_site(sample_site)
    site.goto(f"#{name}", width=width)
    site.wait(lambda: site.painted("#main-graph canvas.flot-base"), "the graph")
    assert name in site.text("#title")
    assert site.painted("#overview canvas.flot-base")
    keep(site, f"graph-{name}-{width}", tmp_path)
    assert_quiet(site)


def test_the_graph_takes_time_and_category_axes(open_site, sample_site, tmp_path):
    site = open_site(sample_site)
    site.goto(f"#{GFLOPS}?x-axis-scale=date&y-axis-scale=log")
    site.wait(lambda: site.painted("#main-graph canvas.flot-base"), "the graph over dates")
    keep(site, "graph-date", tmp_path)
    # A parameter on the x axis is drawn as bars. One size only: with the flot-orderbars that it asks for, asv
    # 0.6.6 draws no bar at all where several series share an axis of words.
    site.goto(f"#{GFLOPS}?x-axis=kernel&p-n=1024")
    site.wait(lambda: site.painted("#main-graph canvas.flot-base"), "the graph over kernels")
    assert "thread_tiling_2d" in site.text("#main-graph")
    keep(site, "graph-bars", tmp_path)
    assert_quiet(site)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_is_sorted_by_a_click(open_site, sample_site, tmp_path, width):
    site = open_site(sample_site)
    site.goto("#/summarylist", width=width)
    rows = "#summarylist-body tbody tr"
    names = f"return [...document.querySelectorAll({rows + ' td:first-child'!r})].map(e => e.innerText)"
    site.wait(lambda: site.count(rows) > 1, "the list")
    site.wait(lambda: site.count("#summarylist-body th.asc"), "the first sorting")
    before = site.script(names)
    assert before == sorted(before)
    keep(site, f"list-{width}", tmp_path)
    site.script("document.querySelector('#summarylist-body th').click()")
    site.wait(lambda: site.script(names) == before[::-1], "the list in reverse")
    assert_quiet(site)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_regressions_page_opens(open_site, sample_site, tmp_path, width):
    site = open_site(sample_site)
    site.goto("#/regressions", width=width)
    site.wait(lambda: TIME in site.text("#regressions-body"), "the regression of the sample")
    keep(site, f"regressions-{width}", tmp_path)
    assert_quiet(site)


def test_every_entry_of_the_navigation_opens_a_page(open_site, sample_site):
    site = open_site(sample_site)
    site.goto()
    links = site.script("return [...document.querySelectorAll('#nav a[href^=\"#/\"]')].map(e => e.hash)")
    assert len(links) >= 3
    for link in links:
        site.goto(link)
        site.wait(lambda: site.count("[id$='-display']") == 1, f"one page behind {link}")
    assert_quiet(site)


def test_a_missing_file_leads_to_a_page_that_says_so(open_site, sample_site, tmp_path):
    broken = tmp_path / "html"
    broken.mkdir()
    for entry in sample_site.iterdir():
        if entry.name != "vendor":
            (broken / entry.name).symlink_to(entry)
    site = open_site(broken)
    site.goto()
    site.wait(lambda: "vendor" in site.text("body"), "the error page")
    keep(site, "error", tmp_path)
    assert site.external_requests() == []


def test_the_helper_notices_a_request_to_another_host(open_site, tmp_path):
    html = tmp_path / "html"
    html.mkdir()
    (html / "index.html").write_text(
        '<link rel="icon" href="data:,"><script src="https://cdn.invalid/a.js"></script>', encoding="utf-8"
    )
    site = open_site(html)
    site.goto()
    assert site.external_requests() == ["https://cdn.invalid/a.js"]
    assert any("cdn.invalid" in error for error in site.console_errors())
