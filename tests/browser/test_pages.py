"""The pages of `harness publish` in a browser: their content, their use, and their messages on errors."""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import io
import json
import math
import os
import re
import shutil
import struct
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from harness.numbers import percent, rough, typeset
from harness.records.imports.imported import FORMATS
from harness.report.site.publishing import publish_pages
from tests import synthetic_history as synthetic
from tests.browser.chromium import serve
from tests.browser.history_site import (
    CASE,
    FIXED,
    Pages,
    axe_source,
    publish_empty,
    publish_long,
    publish_shown,
)
from tests.support import commit_each, make_repository
from tests.synthetic_history import HOSTILE_TEXTS

pytestmark = pytest.mark.slow

ASSETS = Path(__file__).resolve().parents[2] / "harness" / "report" / "site" / "assets"
VENDOR = ASSETS / "static" / "vendor"
SHELLS = ("index", "commit", "card", "ladder", "case", "compare", "calibration", "run")
EXAMPLES = ("index", "case", "run")
"""A page with what all read, and one with each kind of data that one alone reads."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
MOST_BYTES = 255_000
MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
SVG = "{http://www.w3.org/2000/svg}"
# Somebody who wants to look at the pages names a folder here.
SCREENSHOTS = os.environ.get("HARNESS_SCREENSHOTS")


@pytest.fixture(scope="session")
def shown(tmp_path_factory):
    return publish_shown(tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="session")
def long_history(tmp_path_factory):
    return publish_long(tmp_path_factory.mktemp("long"))


@pytest.fixture(scope="session")
def served(shown):
    with serve(shown.folder) as url:
        yield url


@pytest.fixture
def pages(browser, served):
    yield Pages(browser, served)
    emulate(browser, "light")


@pytest.fixture
def on_disk(browser, shown):
    """The same pages with no server."""
    return Pages(browser, shown.folder.as_uri())


@pytest.fixture
def copy(shown, tmp_path):
    """The site in a folder of its own, to be damaged."""
    return Path(shutil.copytree(shown.folder, tmp_path / "harness"))


def emulate(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def views(shown):
    """A view of every page."""
    h200, a100 = shown.card("h200"), shown.card("a100")
    run = shown.document(f"cards/{h200}")["runs"][0]["file"]
    return {
        "index": {},
        "commit": {"commit": shown.document("commits/0")[40][0]},
        "card": {"card": h200, "suite": "matmul", "size": "1024"},
        "ladder": {"ladder": "matmul.shader"},
        "case": {"card": h200, "case": CASE},
        "compare": {"left": f"{h200}@60", "right": f"{a100}@newest"},
        "calibration": {"card": h200},
        "run": {"run": run},
    }


def too_wide(site, width):
    """Return True if the page itself scrolls sideways. Tables may scroll in their boxes."""
    return site.script("return document.documentElement.scrollWidth") > width


def run_axe(site):
    """Return the violations that axe finds, one a line, without those that it could not decide."""
    if not site.script("return 'axe' in window"):
        site.script(axe_source())
    result = site.driver.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations'], preload: false}).then(done, done);"
    )
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in result["violations"]
        for node in one["nodes"]
    ]


# Every page


@pytest.mark.parametrize(
    ("page", "width", "scheme"),
    [*((page, 360, "dark") for page in SHELLS), *((page, 1280, "light") for page in EXAMPLES)],
)
def test_every_page_shows_itself_quietly_and_accessibly(pages, browser, shown, page, width, scheme):
    emulate(browser, scheme)
    pages.visit(page, width=width, **views(shown)[page])
    assert pages.script("return document.documentElement.dataset.theme") == scheme
    assert "cannot be shown" not in pages.text("main")
    assert pages.count("h1") == 1
    assert pages.script("return document.title").endswith("sample")
    assert pages.count("nav[aria-label=Pages] a") == 5  # asv's pages are not there
    if SCREENSHOTS:
        pages.screenshot(Path(SCREENSHOTS) / f"{page}-{scheme}-{width}.png")
    assert not too_wide(pages, width)
    assert run_axe(pages) == []
    pages.click("#theme")
    assert pages.script("return document.documentElement.dataset.theme") != scheme
    pages.click("#theme")
    assert pages.problems() == []


@pytest.mark.parametrize("page", EXAMPLES)
def test_a_page_works_from_a_disk(on_disk, shown, page):
    on_disk.visit(page, width=360, **views(shown)[page])
    assert "cannot be shown" not in on_disk.text("main")
    assert on_disk.count("main table, main .empty") > 0
    assert on_disk.problems() == []
    if page != "index":
        assert on_disk.painted("canvas")


def test_a_chosen_theme_outlasts_the_page(pages):
    pages.visit("index")
    pages.click("#theme")
    pages.visit("compare")
    assert pages.script("return document.documentElement.dataset.theme") == "dark"
    pages.click("#theme")
    assert pages.script("return localStorage.length") == 0


def test_the_skip_link_leads_past_the_header_and_keeps_the_view(pages):
    pages.visit("index", q="naive")
    pages.script("document.querySelector('.skip').click()")
    assert pages.script("return document.activeElement.id") == "main"
    assert pages.hash() == {"q": "naive"}


def test_links_of_the_pages_lead_somewhere(pages, shown):
    links = set()
    for page, state in views(shown).items():
        pages.visit(page, **state)
        links |= set(pages.hrefs())
    here = urlsplit(pages.url).netloc
    paths = {unquote(urlsplit(link).path) for link in links if urlsplit(link).netloc == here}
    missing = {path for path in paths if not (shown.folder / path.lstrip("/")).exists()}
    assert missing == set()
    outside = {link for link in links if urlsplit(link).netloc not in (here, "example.invalid")}
    published = {"https://github.com/vantaa89/cuda-matmul"}
    assert {link for link in outside if not link.startswith("blob:")} == published


# The overview


def test_the_overview_says_what_is_open(pages, shown):
    pages.visit("index")
    open_now = [change for change in shown.changes if change["state"] in ("new", "expired")]
    events = [event for event in shown.document("events") if event["state"] in ("new", "expired")]
    assert pages.text(".verdict") == f"{len(open_now)} regressions are open, of {len(events)} events."
    told = pages.column("Open regressions", 0)
    assert len(told) == len(events) < len(open_now)
    naive = next(i for i, cell in enumerate(told) if CASE in cell)
    assert "and 1 more change of 1 case on 2 cards" in told[naive]
    minus = pages.script("return harness.changes.sentence({sentence: 'a-1: -2 to +3 %'}).textContent")
    assert minus == "a-1: \u22122 to +3 %"
    effects = " ".join(pages.column("Open regressions", 1))
    assert "+11.2" in effects
    assert "slower" in effects
    assert "faster" not in effects
    assert "p < 0.001" in effects
    assert "Code" in pages.column("Open regressions", 3)[naive]
    assert "registers 56 → 62" in pages.column("Open regressions", 3)[naive]
    by_paths = "{cause: 'code', worst: {attribution: 'unknown'}}"
    cause = pages.script(f"return harness.events.columns({{}})[3].cell({by_paths}).textContent")
    assert cause == "Code, by the files it touches"
    none = json.dumps({**events[naive], "likely": 0, "accused": None, "commits": 3, "loose": 1, "cases": 2})
    who = pages.script(f"return harness.events.columns({{}})[2].cell({none}).textContent")
    assert who.startswith("no commit is accused: none of 3 touches code")
    assert "likeliest" not in who
    assert who.endswith("1 of 2 cases may be of other commits")
    hrefs = pages.script("return [...document.querySelectorAll('.commit a')].map(one => one.hash)")
    event = events[naive]
    assert f"#commit={event['suspects'][0]['hash']}&at={event['bad']}" in hrefs
    assert "open again" in " ".join(told)


def test_an_event_has_its_commands_to_copy(pages, shown):
    pages.visit("index")
    event = next(
        each
        for each in shown.document("events")
        if shown.site["cases"][each["worst"]["case"]]["name"] == CASE and each["state"] == "new"
    )
    good, bad = event["good_hash"][:10], event["bad_hash"][:10]
    commands = pages.texts(".command code")
    assert f"harness compare {good}..{bad} {CASE}" in commands
    assert f"harness bisect {CASE} {good} {bad}" in commands
    assert f"harness history --acknowledge {event['id']} --reason why --author who" in commands
    quoted = (
        "return harness.command('x', 'harness', 'compare', \"a(b, 'c')\").querySelector('code').textContent"
    )
    assert pages.script(quoted) == r"harness compare 'a(b, '\''c'\'')'"


@pytest.mark.parametrize("card", ["static-sm_86", *(f"{name}-quadro-gv100" for name in FORMATS)])
def test_what_no_command_measures_has_none_that_would(pages, card):
    pages.visit("index")
    kase = {"name": "matmul.naive@1024", "suite": "matmul", "kernel": "naive"}
    change = {"case": 0, "card": 0, "good_hash": "a" * 40, "bad_hash": "b" * 40, "id": "0123456789"}

    def commands(card, state):
        site = {"cases": [kase], "cards": [{"name": card}]}
        told = json.dumps([site, {**change, "kind": "regression", "state": state}])
        return pages.script(f"return harness.commandsOf(...{told})?.textContent ?? null")

    assert "harness bisect matmul.naive@1024" in commands("nvidia-h200", "new")
    acknowledge = "harness history --acknowledge 0123456789 --reason why --author who"
    assert commands(card, "new") == f"CommandsCopy acknowledge{acknowledge}"
    assert commands(card, "fixed") is None

    def compares(*cards):
        site = {"cases": [kase], "cards": [{"name": name} for name in cards]}
        told = json.dumps([site, "a" * 40, "b" * 40])
        return pages.script(f"return harness.compareCommand(...{told})?.textContent ?? null")

    assert compares("nvidia-h200", card) == f"Copy compareharness compare {'a' * 10} {'b' * 10}"
    assert compares(card) is None


def test_a_button_copies_its_command(pages, on_disk):
    for site in (pages, on_disk):
        site.visit("index")
        site.script(
            """Object.defineProperty(navigator, "clipboard", {value: undefined});
            document.addEventListener("copy", (event) => (window.copied = event.target.value));
            document.querySelector(".quietly").open = true;"""
        )
        site.driver.find_element("css selector", "button.copy").click()
        site.wait(lambda site=site: site.text("button.copy") == "Copied", "the button to say so")
        command = site.script("return document.querySelector('.command code').textContent")
        assert site.script("return window.copied") == command


def test_every_kernel_stands_on_every_card_at_a_glance(pages, shown):
    pages.visit("index")
    squares = pages.script(
        """return [...document.querySelectorAll('td .square')].map(one => [one.className, one.ariaLabel]);"""
    )
    assert len(squares) == len(shown.site["series"])
    naive = [kind for kind, told in squares if told.startswith(f"{CASE}: ") and "open" in told]
    assert naive == ["square open"] * 2
    assert any(kind == "square good-2" and "matmul.thread_tiling@" in told for kind, told in squares)
    lines = len(pages.texts(".spark polyline"))
    assert lines >= 40


def test_a_slash_searches_cases_kernels_cards_and_commits(pages, shown):
    pages.visit("calibration", card=shown.card("h200"))
    pages.press("/")  # which loads a script first
    pages.wait(lambda: pages.script("return document.activeElement.name") == "Search", "the search")

    def found(words):
        pages.choose("Search", words)
        return pages.script("return [...document.querySelectorAll('.found a')].map(one => one.innerText)")

    assert "matmul.naive" in found("naive 1024 h200")[0]
    assert shown.card("a100") in found("a100")[0]
    commit = shown.document("commits/0")[40]
    assert found(commit[0][:7])[0].startswith(commit[0][:8])
    assert found("no such thing") == []
    assert "Nothing is called so" in pages.text(".found")
    found(f"{CASE} h200")
    for key in ("ArrowDown", "ArrowUp", "Enter"):
        pages.script(
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0]}))",
            key,
        )
    pages.wait(lambda: "case.html" in pages.script("return location.href"), "the case's page")


def test_acknowledged_regressions_are_folded_and_say_why(pages):
    pages.visit("index")
    assert pages.count("#section-acknowledged") == 1
    assert not pages.script("return document.querySelector('#section-acknowledged').closest('details').open")
    pages.click("a[href='#show=acknowledged']")
    assert pages.script("return document.querySelector('#section-acknowledged').closest('details').open")
    assert pages.hash() == {"show": "acknowledged"}
    assert "Acknowledged by Ada: traded for <b>registers</b>" in " ".join(
        pages.column("Acknowledged regressions", 0)
    )


def test_what_the_clocks_did_is_one_line_for_all_cases(pages):
    pages.visit("index")
    caption = "Changes of clocks, heat, power and environment"
    assert [cause.splitlines()[0] for cause in pages.column(caption, 3)] == ["Heat", "Heat"]
    assert all("and 14 more changes of 15 cases" in cell for cell in pages.column(caption, 0))


def test_filters_narrow_the_tables_and_stand_in_the_address(pages, shown):
    pages.visit("index")
    everything = pages.column("Open regressions", 0)
    pages.choose("Card", shown.card("h200"))
    pages.choose("Text", "naive")
    assert pages.hash() == {"card": shown.card("h200"), "q": "naive"}
    narrowed = pages.column("Open regressions", 0)
    assert [cell.splitlines()[0] for cell in narrowed] == [CASE]
    assert len(everything) > 1
    pages.visit("index", card=shown.card("h200"), q="naive")
    assert pages.column("Open regressions", 0) == narrowed
    pages.choose("Text", "there is no such thing")
    assert "Nothing here matches the filter" in pages.text("main")


def test_a_heading_sorts_and_says_so(pages):
    pages.visit("index")

    def cases():
        table = "All cases: newest figure, and the change of its level over 90 days"
        return pages.column(table, 0)

    heading = "#section-cases ~ div thead th:first-child"
    before = cases()
    pages.click(f"{heading} button")
    assert pages.script("return document.querySelector(arguments[0]).ariaSort", heading) == "ascending"
    ascending = cases()
    assert sorted(ascending) == sorted(before)
    assert [name for name in ascending if "wmma" in name] == [f"matmul.wmma@{n}" for n in (1024, 2048, 4096)]
    assert [name.split(".")[0] for name in ascending] == ["copy"] * 6 + ["matmul"] * 15
    pages.click(f"{heading} button")
    assert pages.script("return document.querySelector(arguments[0]).ariaSort", heading) == "descending"
    assert pages.hash() == {"order-cases": "-case"}
    shown_now = cases()
    assert shown_now == ascending[::-1]
    pages.driver.refresh()
    pages.wait(lambda: pages.script("return document.getElementById('main').dataset.ready"), "the page")
    assert cases() == shown_now


# A card


def test_a_card_shows_the_ladder_of_the_chosen_size(pages, shown):
    h200 = shown.card("h200")
    pages.visit("card", card=h200, suite="matmul", size="4096")
    ladder = shown.document(f"cards/{h200}")["ladder"]
    cases = shown.site["cases"]
    wanted = [
        row
        for row in ladder
        if cases[row["case"]]["suite"] == "matmul" and cases[row["case"]]["size"] == "4096"
    ]
    assert pages.column("Ladder of matmul", 0) == [cases[row["case"]]["kernel"] for row in wanted]
    shares = [typeset(percent(row["peak_share"])) for row in wanted]
    assert pages.column("Ladder of matmul", 2) == shares
    details = "Figures, clocks and registers of the newest run"
    assert pages.column(details, 5) == [f"{row['registers']:.0f}" for row in wanted]
    label = pages.script("return document.querySelector('.roofline svg').ariaLabel")
    assert f"{len(wanted)} kernels" in label
    drawn = pages.texts(".roofline text")
    assert {cases[row["case"]]["kernel"] for row in wanted} <= set(drawn)


def test_another_size_is_a_view_to_go_back_from(pages, shown):
    pages.visit("card", card=shown.card("h200"), suite="matmul", size="4096")
    largest = pages.column("Ladder of matmul", 1)
    pages.choose("Size", "1024")
    assert pages.hash()["size"] == "1024"
    assert pages.column("Ladder of matmul", 1) != largest
    assert pages.script("return document.activeElement.name") == "Size"
    pages.script("history.back()")
    pages.wait(lambda: pages.hash().get("size") == "4096", "the address before")
    pages.wait(lambda: pages.column("Ladder of matmul", 1) == largest, "the ladder before")


def test_figures_of_a_card_sort_by_their_value(pages, shown):
    pages.visit("card", card=shown.card("h200"), suite="matmul", size="all", details="-time_ms")
    told = pages.column("Figures, clocks and registers of the newest run", 1)
    times = [float(text.replace(",", "")) for text in told if text != "\N{EN DASH}"]
    assert len(set(times)) > 3
    assert times == sorted(times, reverse=True)


def test_a_suite_without_operations_has_the_roof_of_the_memory(pages, shown):
    pages.visit("card", card=shown.card("h200"), suite="copy")
    drawn = pages.texts(".roofline text")
    assert {"copy", "copy_unrolled", "memory 4,814 GB/s"} <= set(drawn)
    assert "of what the memory can" in pages.text("main")


def test_cards_of_one_kind_are_told_apart(browser, copy):
    site = copy / "data" / "site.js"
    alike = re.sub(r'"gpu":"[^"]*"', '"gpu":"NVIDIA H200"', site.read_text(encoding="utf-8"))
    site.write_text(alike, encoding="utf-8")
    with serve(copy) as url:
        pages = Pages(browser, url)
        pages.visit("card")
        names = pages.texts(".chooser a")
    assert len(set(names)) == len(names) > 1
    assert all(name.startswith("NVIDIA H200 (") for name in names)


def test_strips_keep_their_range_and_show_every_figure(pages, shown):
    pages.visit("case", **views(shown)["case"])

    def strip(key, *values):
        trace = f"harness.TRACES.find(one => one.key === '{key}')"
        return pages.script(f"return harness.stripRange({trace}, {json.dumps(values)})")

    assert strip("sm_clock_mhz", 1974, None, 1980) == [
        990,
        2079,
    ]  # a jitter of 6 MHz is not half of the strip
    assert strip("sm_clock_mhz", 300, 1980) == [300, 2079]
    assert strip("temperature_c", 41, 44) == [20, 90]
    assert strip("temperature_c", 41, 95) == [20, 95]
    assert strip("power_w", None) == [0, 1]


def test_a_card_opens_on_its_largest_suite(pages, shown):
    pages.visit("card", card=shown.card("h200"))
    assert pages.script("return document.querySelector('[name=Suite]').value") == "matmul"


def test_cards_without_one_chosen_are_a_list(pages, shown):
    pages.visit("card")
    assert pages.count(".chooser a") == len(shown.site["cards"])
    pages.click(".chooser a")
    pages.wait(lambda: pages.count("main table"), "the card's page")
    assert pages.hash()["card"] == shown.site["cards"][0]["file"]


# A case


def test_a_case_tells_its_changes(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    told = list(
        zip(pages.column("Changes of this case", 0), pages.column("Changes of this case", 1), strict=True)
    )
    assert [cell.splitlines()[0][0] for cell, _ in told] == ["C", "B", "A"]
    assert "regression" in told[-1][0]
    assert "slower" in told[-1][1]
    assert "+11.2" in told[-1][1]
    assert "thermal" not in pages.text("main")  # a word of the data; the reader gets "Heat"
    assert "Heat" in pages.column("Changes of this case", 3)[0]
    assert pages.painted("canvas")
    assert "120 points" in pages.text("figcaption")


def test_the_dates_of_a_case_are_exact(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    times = [row[1] for row in shown.document("commits/0")]
    days = list(accumulate((time // 86400 for time in times), max))
    ticks = pages.script("return harness.stack.options.xTicks(-0.5, 119.5, 1100)")
    assert len(ticks) > 5
    for tick in ticks:
        date = dt.datetime.strptime(tick["label"] + " +0000", "%d %b\n%Y %z")
        day = int(date.timestamp()) // 86400
        assert all((days[at] >= day) is (at > tick["at"]) for at in range(len(days)))


def test_a_case_is_shown_in_other_figures_and_beside_others(pages, shown):
    h200 = shown.card("h200")
    document = shown.document(f"series/{shown.series(CASE, h200)['file']}")
    pages.visit("case", card=h200, case=CASE, figure="energy_mj", over="sizes")
    time_ms = document["work"] / document["values"][30]
    shown_y = pages.script("return harness.stack.plots[0].data[1][30]")
    assert shown_y == pytest.approx(time_ms * document["power_w"][30], rel=1e-3)
    legend = pages.script("return document.querySelector('[aria-label=\"Lines drawn beside\"]').innerText")
    assert legend.split("\n") == ["1024 (this)", "2048", "4096"]
    pages.choose("Figure", "time_ms")
    pages.wait(lambda: pages.hash().get("figure") == "time_ms", "the address")
    pages.wait(
        lambda: pages.script("return harness.stack.plots[0].data[1][30]") == pytest.approx(time_ms, rel=1e-3),
        "the time",
    )
    assert pages.problems() == []


def test_the_newest_figures_have_their_slots(pages, shown):
    h200 = shown.card("h200")
    pages.visit("case", card=h200, case=CASE, **{"from": 108, "to": 119})
    document = shown.document(f"series/{shown.series(CASE, h200)['file']}")
    assert len(document["samples"]) == 12  # 24 runs of two suites
    for sample in document["samples"]:
        assert sample["low"] <= document["values"][sample["at"]] <= sample["high"]
        assert min(sample["slots"]) <= sample["low"]
        assert len(sample["slots"]) == 21
    assert "99.9 % interval of a newest figure" in pages.text(".legend")


def test_a_case_leads_to_its_source_and_to_diffs(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    hrefs = pages.hrefs()
    name = shown.series(CASE, shown.card("h200"))["file"]
    change = shown.document(f"series/{name}")["changes"][0]
    assert any(f"/compare/{change['good_hash']}...{change['bad_hash']}" in href for href in hrefs)
    found = {
        "why": "Because <b>it spills</b>.",
        "counters": [["L2 hits, %", "61.3", "22.0", "-39.3"]],
        "loop": {
            "title": "Hottest loop: 2 → 3 instructions",
            "places": "k.cu:5",
            "told": "1 added.",
            "lines": [{"change": "added", "text": "STL [R1], R2", "place": "k.cu:5", "count": 1}],
        },
    }
    reason = pages.script("return harness.changes.why({diagnosis: arguments[0]}, 'A').innerText", found)
    assert reason.startswith("Reason of change ABecause <b>it spills</b>.Hardware counters of a launch")
    counters, code = "L2 hits, %61.322.0\N{MINUS SIGN}39.3", "STL [R1], R2head alone1k.cu:5"
    assert all(part in reason for part in (counters, "k.cu:5: 1 added.", code))
    assert pages.script("return harness.changes.why({diagnosis: null}, 'A')") is None
    address = "return harness.repository({commit_url: arguments[0]}).source('abc', 'a b/c.cu', 7)"
    assert (
        pages.script(address, "https://git.example/x/-/commit/{}")
        == "https://git.example/x/-/blob/abc/a%20b/c.cu#L7"
    )
    assert (
        pages.script(address, "https://codeberg.org/x/commit/{}")
        == "https://codeberg.org/x/src/commit/abc/a%20b/c.cu#L7"
    )
    assert pages.script(address, "https://bitbucket.org/x/commits/{}") is None


def test_a_fixed_regression_names_what_fixed_it(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=FIXED)
    assert re.search(r"Fixed by change [B-Z]\.", pages.text("main"))


def test_buttons_keys_and_wheel_zoom_and_the_address_follows(pages, shown):
    state = {"card": shown.card("h200"), "case": CASE}
    pages.visit("case", **state)
    whole = pages.view()
    pages.click("[aria-label='Zoom in']")
    closer = pages.view()
    assert closer[1] - closer[0] < whole[1] - whole[0]
    pages.focus(".chart")
    pages.press("+")
    by_key = pages.view()
    assert by_key[1] - by_key[0] < closer[1] - closer[0]
    pages.script(
        """const over = document.querySelector('.u-over'); const box = over.getBoundingClientRect();
        over.dispatchEvent(new WheelEvent('wheel', {deltaY: -100, bubbles: true, cancelable: true,
            clientX: box.left + box.width / 2, clientY: box.top + 20}));"""
    )
    by_wheel = pages.view()
    assert by_wheel[1] - by_wheel[0] < by_key[1] - by_key[0]
    pages.click("[aria-label='Earlier']")
    earlier = pages.view()
    assert earlier[0] < by_wheel[0]
    noted = pages.noted()
    assert abs(float(noted["from"]) - earlier[0]) <= 1
    pages.visit("case", **noted)
    again = pages.view()
    assert abs(again[0] - earlier[0]) <= 1.5
    assert abs(again[1] - earlier[1]) <= 1.5
    pages.focus(".chart")
    pages.press("0")
    assert pages.view() == whole
    assert pages.noted() == {key: str(value) for key, value in state.items()}
    assert pages.problems() == []


def test_the_wheel_scrolls_the_page_until_the_chart_has_the_focus(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    whole = pages.view()
    turned = """const event = new WheelEvent('wheel', {deltaY: 100, bubbles: true, cancelable: true});
        document.querySelector('.u-over').dispatchEvent(event); return event.defaultPrevented;"""
    assert not pages.script(turned)
    assert pages.view() == whole
    pages.focus(".chart")
    assert pages.script(turned)


def drag(pages, start, stop, **more):
    """With the mouse over the first panel, from and to shares of its width."""
    box = pages.script(
        """const box = document.querySelector('.u-over').getBoundingClientRect();
        return [box.left, box.top, box.width, box.height]"""
    )
    height = box[1] + box[3] / 2
    for kind, share, buttons in (
        ("mouseMoved", start, 0),
        ("mousePressed", start, 1),
        ("mouseMoved", (start + stop) / 2, 1),
        ("mouseMoved", stop, 1),
        ("mouseReleased", stop, 0),
    ):
        event = {"type": kind, "x": box[0] + share * box[2], "y": height, "buttons": buttons}
        button = "none" if kind == "mouseMoved" else "left"
        pages.driver.execute_cdp_cmd(
            "Input.dispatchMouseEvent", {**event, "button": button, "clickCount": 1, **more}
        )


def test_dragging_zooms_and_with_shift_moves(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    low, high = pages.view()
    drag(pages, 0.25, 0.5)
    left, right = pages.view()
    assert left == pytest.approx(low + 0.25 * (high - low), abs=2)
    assert right == pytest.approx(low + 0.5 * (high - low), abs=2)
    drag(pages, 0.5, 0.75, modifiers=8)
    moved = pages.view()
    assert moved[0] == pytest.approx(left - 0.25 * (right - left), abs=2)
    assert moved[1] - moved[0] == pytest.approx(right - left)


def test_two_fingers_zoom_and_one_moves(pages, shown):
    pages.visit("case", width=360, card=shown.card("h200"), case=CASE)
    pages.script("document.querySelector('.chart').scrollIntoView()")
    box = pages.script(
        "const b = document.querySelector('.u-over').getBoundingClientRect(); return [b.left, b.top, b.width]"
    )
    whole = pages.view()

    def touch(kind, *shares):
        points = [{"x": box[0] + share * box[2], "y": box[1] + 60, "id": i} for i, share in enumerate(shares)]
        pages.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0.4, 0.6)
    for spread in (0.15, 0.25, 0.35):
        touch("touchMove", 0.5 - spread, 0.5 + spread)
    touch("touchEnd")
    pinched = pages.view()
    assert pinched[1] - pinched[0] < 0.6 * (whole[1] - whole[0])
    touch("touchStart", 0.3)
    for share in (0.4, 0.5, 0.6):
        touch("touchMove", share)
    touch("touchEnd")
    moved = pages.view()
    assert moved[0] < pinched[0]
    assert moved[1] - moved[0] == pytest.approx(pinched[1] - pinched[0])


def test_the_keyboard_walks_the_points_and_says_each(pages, shown):
    h200 = shown.card("h200")
    pages.visit("case", card=h200, case=CASE)
    commits = shown.document("commits/0")
    pages.focus(".chart")
    pages.press("Home")
    pages.wait(lambda: commits[0][0][:8] in pages.text(".readout"), "the first commit")
    pages.press("ArrowRight", times=2)
    pages.wait(lambda: commits[2][0][:8] in pages.text(".readout"), "the third commit")
    said = pages.text(".readout")
    assert "1,98" in said  # MHz
    assert "°C" in said
    pages.wait(
        lambda: "Commit 2," in pages.script("return harness.stack.live.textContent"), "the spoken text"
    )
    pages.press("n")
    pages.wait(lambda: commits[40][0][:8] in pages.text(".readout"), "the first change")
    spoken = "return harness.stack.live.textContent"
    pages.wait(lambda: "change A" in pages.script(spoken), "the change in words")
    assert "slower" in pages.script(spoken)


def test_the_chart_stays_where_it_is_whatever_the_cursor_says(pages, shown):
    commits = shown.document("commits/0")
    lengths = [len(row[3]) for row in commits]
    for width in (1280, 360):
        pages.visit("case", width=width, card=shown.card("h200"), case=CASE)
        tops = set()
        for at in (lengths.index(min(lengths)), lengths.index(max(lengths))):
            pages.script("harness.stack.point(arguments[0])", at)
            pages.wait(lambda at=at: commits[at][0][:8] in pages.text(".readout"), "the commit")
            tops.add(pages.script("return document.querySelector('.chart').offsetTop"))
        assert len(tops) == 1


def test_the_mouse_shows_the_commit_under_it(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    drag(pages, 0.3, 0.3)
    index = pages.script("return harness.stack.cursor")
    assert 0 < index < 119
    commit = shown.document("commits/0")[index]
    pages.wait(lambda: commit[0][:8] in pages.text(".readout"), "the commit")


def test_a_link_to_a_change_shows_it(pages, shown):
    change = next(
        one
        for one in shown.changes
        if one["state"] == "new" and shown.site["cases"][one["case"]]["name"] == CASE
    )
    card = shown.site["cards"][change["card"]]["file"]
    pages.visit("case", card=card, case=CASE, change=change["id"])
    low, high = pages.view()
    assert low < change["good"] < change["bad"] < high
    assert high - low < 60
    assert pages.count("tr.chosen") == 1
    assert change["bad_hash"][:8] in pages.text("tr.chosen")
    assert change["bad_hash"][:8] in pages.text(".readout")


def test_the_letter_of_a_change_shows_it_in_the_chart(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    whole = pages.view()
    pages.click("button.flag", 2)  # A, the oldest
    part = pages.view()
    assert part[1] - part[0] < 0.5 * (whole[1] - whole[0])
    assert part[0] < 39 < 40 < part[1]
    assert pages.text("tr.chosen").startswith("A")
    assert pages.script("return document.activeElement.className") == "chart"
    pages.click("button.flag", 0)
    pages.wait(lambda: pages.text("tr.chosen").startswith("C"), "the other change")
    assert pages.count("tr.chosen") == 1
    noted = pages.noted()
    pages.visit("case", **{key: noted[key] for key in ("card", "case", "change")})
    assert pages.text("tr.chosen").startswith("C")


def test_a_range_may_be_given_by_hashes(pages, shown):
    commits = shown.document("commits/0")
    state = {"from": commits[30][0][:12], "to": commits[50][0][:12]}
    pages.visit("case", card=shown.card("h200"), case=CASE, **state)
    low, high = pages.view()
    assert 29 <= low <= 30
    assert 50 <= high <= 51
    pages.visit("case", card=shown.card("h200"), case=CASE, **{"from": "100"})
    low, high = pages.view()
    assert 99 <= low <= 100
    assert high > 119


def test_one_goes_to_the_next_case_and_other_cards_and_back(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    pages.click("a[rel=next]")
    pages.wait(lambda: pages.hash()["case"] != CASE, "the next case")
    pages.wait(lambda: "2048" in pages.text("h1"), "its page")
    pages.script("history.back()")
    pages.wait(lambda: "1024" in pages.text("h1"), "the case before")
    assert shown.title("a100") in pages.texts(".neighbours a")


def download(pages, folder, kind):
    parameters = {"behavior": "allow", "downloadPath": str(folder)}
    pages.driver.execute_cdp_cmd("Browser.setDownloadBehavior", parameters)
    pages.script(
        "[...document.querySelectorAll('.toolbar button')].find(b => b.textContent === arguments[0]).click()",
        kind,
    )

    def finished():
        # Chromium keeps the name with an empty file until it has the whole.
        suffix = f".{kind.lower()}"
        return [path for path in folder.iterdir() if path.suffix == suffix and path.stat().st_size]

    pages.wait(finished, f"the {kind}")
    return finished()[0]


@pytest.mark.parametrize("page", ["case", "run"])
def test_downloads_hold_what_is_in_view(pages, shown, tmp_path, page):
    state = views(shown)[page]
    pages.visit(page, **state, **({"from": 30, "to": 60} if page == "case" else {}))
    seen = pages.script("const [a, b] = harness.stack.visible(); return b - a")
    picture = ET.fromstring(download(pages, tmp_path, "SVG").read_text(encoding="utf-8"))
    assert picture.tag == f"{SVG}svg"
    texts = [node.text or "" for node in picture.iter(f"{SVG}text")]
    assert any("SM clock" in text for text in texts)
    if page == "case":
        assert f"{CASE} on {shown.title(state['card'])}" in texts
        assert {"A"} <= set(texts)
        assert {"B", "C"}.isdisjoint(texts)  # those changes are out of view
    dots = [node.get("d") or "" for node in picture.iter(f"{SVG}path")]
    if page == "case":
        assert seen in [path.count("h0") for path in dots]
    raster = download(pages, tmp_path, "PNG").read_bytes()
    assert raster.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">I", raster[16:20]) == (2 * int(picture.get("width") or 0),)
    text = download(pages, tmp_path, "CSV").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == seen
    if page == "case":
        commits = shown.document("commits/0")
        assert [row["hash"] for row in rows] == [commits[int(row["position"])][0] for row in rows]
        assert all(float(row["value_GFLOP_s"]) > 0 for row in rows)
        assert all(float(row["sm_clock_mhz"]) > 1000 for row in rows)
    assert pages.problems() == []


# Compare


def compared(pages, column):
    caption = "Both sides of every case"
    return dict(zip(pages.column(caption, 0), pages.column(caption, column), strict=True))


def test_two_commits_are_compared_case_by_case(pages, shown):
    h200 = shown.card("h200")
    pages.visit("compare", left=f"{h200}@39", right=f"{h200}@40")
    told = shown.series(CASE, h200)
    values = shown.document(f"series/{told['file']}")["values"]
    assert typeset(percent(values[39] / values[40] - 1, sign=True)) in compared(pages, 3)[CASE]
    assert "slower" in compared(pages, 3)[CASE]
    verdicts = compared(pages, 4)
    assert verdicts.pop(CASE) == "slower beyond the noise"
    assert {each.split("\n")[0] for each in verdicts.values()} <= {"inconclusive", "unchanged"}
    pages.choose("Verdict", "slower beyond the noise")
    assert list(compared(pages, 4)) == [CASE]
    pages.click("[name=swap]")
    pages.wait(lambda: pages.hash().get("left") == f"{h200}@40", "the sides to change")
    pages.choose("Verdict", "")
    pages.wait(lambda: compared(pages, 4)[CASE] == "faster beyond the noise", "the words")


def test_another_driver_makes_two_commits_not_comparable(pages, shown):
    a100 = shown.card("a100")
    (own,) = (each for each in shown.document(f"cards/{a100}")["epochs"] if each["suite"] == "matmul")
    begin = own["starts"][1]
    pages.visit("compare", left=f"{a100}@{begin - 1}", right=f"{a100}@{begin}")
    told = compared(pages, 4)[CASE].split("\n")
    assert told[0] == "not comparable"
    assert told[1].startswith("another epoch: driver 580.159.04 ")


UNCHANGED_PAIRS = """
const [done, file] = [arguments[1], arguments[0]];
harness.load("site").then(async (site) => {
  const one = harness.objects(site.series).find((each) => each.file === file);
  const series = await harness.series(site, one);
  const kase = harness.objects(site.cases)[one.case];
  const [x, y] = [Array.from(harness.decode(series.commits)), harness.figures(series.values)];
  const starts = series.epochs.map((epoch) => epoch.start);
  const side = (value) => ({ ...one, value });
  const tones = [];
  for (let k = 1; k < x.length; k++) {
    const changed = series.changes.some((each) => each.good < x[k] && each.bad > x[k - 1]);
    if (!changed && !starts.includes(k) && y[k] !== null && y[k - 1] !== null)
      tones.push(harness.difference(site.pair, kase, side(y[k - 1]), side(y[k])).tone);
  }
  done([tones.length, tones.filter((tone) => tone !== "none").length]);
});
"""


def test_noise_between_neighbours_is_hardly_ever_marked(pages, shown):
    pages.visit("compare")
    found = [
        pages.driver.execute_async_script(UNCHANGED_PAIRS, each["file"]) for each in shown.site["series"]
    ]
    pairs, marked = (sum(column) for column in zip(*found, strict=True))
    assert pairs > 4000
    assert marked <= 0.002 * pairs


HIGHER, LOWER, NEITHER = (
    {"unit": unit, "direction": direction, "metric": "m"}
    for unit, direction in (("GFLOP/s", "higher"), ("points", "lower"), ("points", "none"))
)
PAIRS = [
    # The case, the right figure against 100, the noise of both, their floors, the status, the tone, why.
    (HIGHER, 95, 0.01, 0.01, "slower beyond the noise", "bad", ""),
    (HIGHER, 106, 0.01, 0.01, "faster beyond the noise", "good", ""),
    (LOWER, 106, 0.01, 0.01, "worse beyond the noise", "bad", ""),
    (LOWER, 95, 0.01, 0.01, "better beyond the noise", "good", ""),
    (NEITHER, 106, 0.01, 0.01, "changed", "none", ""),
    ({**LOWER, "unit": "ms"}, 106, 0.01, 0.01, "slower beyond the noise", "bad", ""),
    # 3.29 standard errors of both: 4.65 % of 1 % each.
    (HIGHER, 95.4, 0.01, 0.01, "slower beyond the noise", "bad", ""),
    (HIGHER, 95.6, 0.01, 0.01, "inconclusive", "none", "within the noise"),
    (HIGHER, 104.7, 0.01, 0.01, "inconclusive", "none", "within the noise"),
    (HIGHER, 104.8, 0.01, 0.01, "faster beyond the noise", "good", ""),
    (HIGHER, 100, 0.01, 0.01, "inconclusive", "none", "within the noise"),
    # The floor: the larger one of both, the site's where a side has none.
    (HIGHER, 99.8, 0.0001, 0.01, "unchanged", "none", ""),
    (HIGHER, 100, 0.0001, 0.01, "unchanged", "none", ""),
    (HIGHER, 98.98, 0.0001, 0.01, "slower beyond the noise", "bad", ""),
    (HIGHER, 99.02, 0.0001, 0.01, "inconclusive", "none", "less than the smallest change that counts"),
    (HIGHER, 98.5, 0.0001, 0.02, "unchanged", "none", ""),
    (HIGHER, 99.8, 0.0001, None, "unchanged", "none", ""),
    (HIGHER, 98.98, 0.0001, None, "slower beyond the noise", "bad", ""),
    (HIGHER, 50, None, 0.01, "inconclusive", "none", "too few points to know the noise"),
    (HIGHER, 0, 0.01, 0.01, "", "none", "no ratio: a figure is not above zero"),
    (HIGHER, -5, 0.01, 0.01, "", "none", "no ratio: a figure is not above zero"),
    (HIGHER, None, 0.01, 0.01, "", "none", "no figure on the right"),
]


def test_two_figures_say_what_their_noise_and_the_sites_floor_let_them(pages, shown):
    pages.visit("compare")
    judged = "return arguments[0].map((pair) => harness.difference(arguments[1], ...pair));"
    given: list[list[object]] = []
    wanted = []
    for case, value, noise, floor, *said in PAIRS:
        left = {"value": 100, "noise": 0.01 if noise is None else noise, "floor": 0.01}
        given.append(
            [
                case,
                left if floor else {**left, "floor": None},
                {"value": value, "noise": noise, "floor": floor},
            ]
        )
        wanted.append(said)
    given.append([HIGHER, given[0][1], given[0][2], ["driver 1 \u2192 2"]])
    wanted.append(["not comparable", "none", "another epoch: driver 1 \u2192 2"])
    found = pages.script(judged, given, shown.site["pair"])
    assert [[each["status"], each["tone"], each["why"]] for each in found] == wanted
    assert found[0]["effect"] == pytest.approx(-0.05)
    reach = 3.29 * math.hypot(0.01, 0.01)
    ends = [math.expm1(math.log(0.95) - reach), math.expm1(math.log(0.95) + reach)]
    assert [found[0]["low"], found[0]["high"]] == pytest.approx(ends)


def test_a_commit_is_named_by_its_hash(pages, shown):
    h200 = shown.card("h200")
    commits = shown.document("commits/0")
    pages.visit("compare", left=f"{h200}@{commits[39][0][:9]}", right=f"{h200}@newest")
    assert "(#39)" in pages.text("main")
    pages.choose("Right commit", commits[40][0][:9].upper())
    pages.wait(lambda: "(#40)" in pages.text("main"), "the other commit")
    assert pages.hash()["right"] == f"{h200}@{commits[40][0][:9].upper()}"


def test_an_unknown_commit_is_said_beside_its_field(pages, shown):
    h200 = shown.card("h200")
    pages.visit("compare", left=f"{h200}@ffffffff", right=f"{h200}@newest")
    assert "No commit here begins with “ffffffff”" in pages.text("[role=alert]")
    assert pages.count("[name='Left commit']") == 1
    pages.visit("compare", left="nobody@newest", right=f"{h200}@newest")
    assert "There is no card “nobody” here" in pages.text("[role=alert]")


def test_a_commit_that_a_card_missed_offers_the_one_before(pages, shown):
    a100 = shown.card("a100")
    pages.visit("compare", left=f"{a100}@22", right=f"{a100}@30")
    assert "measured nothing at this commit" in pages.text("[role=alert]")
    assert "#19" in pages.text("[role=alert] button")
    pages.click("[role=alert] button")
    pages.wait(lambda: pages.hash()["left"] == f"{a100}@19", "the commit before")
    pages.wait(lambda: not pages.count("[role=alert]"), "the message to go")
    assert compared(pages, 3)


def test_two_cards_are_compared_and_sorted_by_what_is_worst(pages, shown):
    pages.visit("compare", left=f"{shown.card('h200')}@newest", right=f"{shown.card('a100')}@newest")
    cells = pages.column("Both sides of every case", 3)
    assert "no figure on the right" in cells  # the A100 has no room for one of them
    (label, count, mean, ends), (everything, *_) = pages.script(
        "return [...document.querySelectorAll('.summary tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert (label, count, everything) == ("Slower or worse", "20", "All")
    low, high = (float(end) for end in re.findall(r"[\d.]+", ends))
    assert low < float(re.findall(r"[\d.]+", mean)[0]) < high
    assert set(pages.column("Both sides of every case", 4)) == {"slower", ""}
    assert pages.texts("thead .axis text") == ["\u2212100", "\u221210", "0\u00a0%", "+10", "+100"]
    drawn = (
        "return [...document.querySelectorAll('tbody .interval')]"
        ".map(line => line.x2.baseVal.value - line.x1.baseVal.value)"
    )
    assert len(pages.script(drawn)) == 20
    assert min(pages.script(drawn)) > 0
    pages.click("thead th:nth-child(4) button")
    sizes = [
        float(re.findall(r"[\d.]+", cell)[0])
        for cell in pages.column("Both sides of every case", 3)
        if "%" in cell
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert pages.column("Both sides of every case", 3)[-1] == "no figure on the right"
    pages.choose("Suite", "copy")
    assert {name.split(".")[0] for name in pages.column("Both sides of every case", 0)} == {"copy"}


# A commit


def test_a_commit_says_what_it_did_on_every_card(pages, shown):
    commits = shown.document("commits/0")
    pages.visit("commit", commit=commits[40][0], at=40)
    [cell] = pages.column("Events of which this commit may be the cause", 0)
    assert CASE in cell
    caption = "Figures of this commit on every card"
    figures = dict(zip(pages.column(caption, 0), pages.column(caption, 2), strict=True))
    assert "slower" in figures[CASE]
    assert next(iter(figures)) == CASE
    assert sum("slower" in each or "faster" in each for each in figures.values()) == 1
    assert pages.column("Registers and local memory", 2) == ["registers 56 → 62"] * 2
    assert "kernels/matmul/naive.cu" in pages.text(".paths")
    assert f"harness compare {commits[39][0][:10]} {commits[40][0][:10]}" in pages.text(".command code")
    hrefs = pages.hrefs()
    assert f"https://example.invalid/compare/{commits[39][0]}...{commits[40][0]}" in hrefs
    pages.click("a[rel=next]")
    pages.wait(lambda: "commit #41" in pages.text("main"), "the next commit")
    assert "No level changed here" in pages.text("main")


def test_the_newest_commit_tells_which_binaries_it_changed(pages, shown):
    pages.visit("commit", commit="newest")
    assert re.search(r"(all|\d+ of) \d+ binaries (are those of|differ from) [0-9a-f]{8}", pages.text("main"))


def test_a_commit_that_is_not_there_is_said(pages):
    pages.visit("commit", commit="ffffffff")
    assert "No commit here begins with “ffffffff”" in pages.text("[role=alert]")


# What cannot be judged yet


@pytest.fixture(scope="module")
def unjudged(tmp_path_factory):
    """Three commits, of which the last one makes one case half and another one three times as fast: figures
    too few to know any noise.
    """
    root = tmp_path_factory.mktemp("unjudged")
    suite = synthetic.Suite(kernels=("naive", "tiled"), sizes=(1024, 2048))
    steps = (
        synthetic.Step(case="naive 1024", at=2, effect=-0.5),
        synthetic.Step(case="tiled 2048", at=2, effect=2.0),
    )
    history = synthetic.History(commits=3, cards=synthetic.CARDS[:1], suites=(suite,), events=steps)
    written = synthetic.write(history, root)
    publish_pages(written.results, root, root / "html", project="p")
    return root / "html" / "harness"


def test_what_cannot_be_judged_is_grey_with_the_command_that_settles_it(browser, unjudged):
    with serve(unjudged) as url:
        pages = Pages(browser, url)
        pages.visit("index")
        assert re.fullmatch(
            r"1 case became worse too lately to judge, up to \+(9\d|10\d)(\.\d)?\s%\.",
            pages.text(".verdict"),
        )
        assert pages.script("return document.querySelector('.verdict').classList.contains('unjudged')")
        assert "4 of 4 series have too few points" in pages.text(".lead")
        [cell] = pages.column("Unjudged", 0)
        assert "matmul.naive@1024" in cell
        assert re.search(r"harness compare [0-9a-f]{10}\.\.[0-9a-f]{10} matmul\.naive@1024", cell)
        grid = pages.column("All cases: newest figure, and the change of its level over 90 days", 1)
        assert all("unjudged" in each for each in grid[:2])
        assert all("too few points" in each for each in grid[2:])
        assert "steady" not in " ".join(grid)
        assert pages.texts(".good, td .square:not(.unjudged, .unknown)") == []
        [card] = shown_cards(unjudged)
        badge = json.loads((unjudged / f"badges/{card}.json").read_text(encoding="utf-8"))
        assert badge["message"] == "1 unjudged"
        pages.visit("case", card=card, case="matmul.naive@1024")
        facts = pages.text(".facts")
        assert "unjudged" in facts
        assert "not known" in facts
        assert "0.00" not in facts
        assert "no interval yet" in pages.column("Changes of this case", 1)[0]
        pages.visit("case", card=card, case="matmul.tiled@1024")
        assert "Too few points to know the noise" in pages.text("main")
        assert pages.problems() == []


def shown_cards(folder):
    told = json.loads((folder / "api" / "site.json").read_text(encoding="utf-8"))
    return [card["file"] for card in told["cards"]]


# Calibration and runs


def test_calibration_tells_false_alarms_and_what_was_found(pages, shown):
    pages.visit("calibration", card=shown.card("h200"))
    bound = next(c for c in shown.site["cards"] if c["calibration"])["calibration"]["bound"]
    assert f"1 time in 304 verdicts. The rate of false alarms is below {typeset(rough(bound))}" in pages.text(
        ".lead"
    )
    assert pages.column("Planted slowdowns that were found", 0) == ["0.5\u00a0%", "1\u00a0%"]
    assert pages.column("Planted slowdowns that were found", 3) == ["12.5\u00a0%", "37.5\u00a0%"]
    assert pages.column("Cases compared with themselves", 3) == ["1.10\u00a0%"] * 2
    assert len(pages.texts("tr:first-child > td > .with-dots > .dot-plot circle")) == 4
    pages.choose("Card", shown.card("a100"))
    pages.wait(lambda: "is not calibrated" in pages.text("main"), "the other card")


def test_a_run_shows_its_cases_and_telemetry(pages, shown):
    run = views(shown)["run"]["run"]
    pages.visit("run", run=run)
    rows = shown.document(f"runs/{run}")["rows"]
    assert pages.column("Cases of this run", 0) == [row["name"] for row in rows]
    links = pages.hrefs("main table a")
    assert [unquote(link).partition("&case=")[2] for link in links] == [row["name"] for row in rows]
    assert pages.count(".panel") == 5
    assert pages.painted(".panel:nth-child(1) canvas")
    assert pages.painted(".panel:nth-child(2) canvas")
    whole = pages.view()
    drag(pages, 0.2, 0.6)
    part = pages.view()
    assert part[1] - part[0] < whole[1] - whole[0]
    noted = pages.noted()
    pages.visit("run", **noted)
    assert pages.view() == pytest.approx(part, abs=0.02)


# Hostile text


def test_text_of_the_data_is_only_ever_text(pages, shown):
    commits = shown.document("commits/0")
    authors = {row[2] for row in commits}
    assert {row[3][:24] for row in commits} >= {text[:24] for text in HOSTILE_TEXTS[:1]}
    pages.visit("case", card=shown.card("h200"), case=CASE)
    scripts = pages.script("return document.scripts.length")
    pages.focus(".chart")
    for wanted in ("<script>alert(1)</script>", "gnp.exe", "x" * 50, "javascript:alert(1)//"):
        at = next(index for index, row in enumerate(commits) if wanted in row[3])
        pages.script("harness.stack.point(arguments[0])", at)
        pages.wait(lambda at=at: commits[at][0][:8] in pages.text(".readout"), "the commit")
        told = pages.script("return document.querySelector('.readout').textContent")
        assert wanted in told
        assert len(told) < 1000
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", told)
    assert pages.script("return document.scripts.length") == scripts
    assert pages.texts("main img, main iframe") == []
    assert len(authors) > 1
    assert pages.problems() == []


def test_names_from_the_address_are_only_text_too(pages):
    pages.visit("card", card="<img src=x onerror=alert(1)>\u202e")
    assert "There is no card “<img src=x onerror=alert(1)>" in pages.text(".problem")
    assert pages.count(".problem img") == 0
    pages.visit("run", run="../../../etc/passwd")
    assert "There is no run" in pages.text(".problem")
    assert all("etc/passwd" not in url for url in pages.requests() if "#" not in url)


def test_data_of_an_earlier_publication_is_not_taken_from_a_cache(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    data = {urlsplit(url).path: urlsplit(url).query for url in pages.requests() if "/data/" in url}
    version = re.sub(r"[^0-9T]", "", shown.site["generated_at"])
    assert data.pop("/data/site.js") == ""
    assert set(data.values()) == {version}


def test_the_pages_lead_to_those_of_asv_where_there_are_some(browser, copy):
    site = copy / "data" / "site.js"
    site.write_text(site.read_text(encoding="utf-8").replace('"asv":false', '"asv":true'), encoding="utf-8")
    with serve(copy) as url:
        pages = Pages(browser, url)
        pages.visit("index")
        assert pages.texts("nav a[href='../index.html']") == ["asv"]
    pages = Pages(browser, copy.as_uri())  # asv's pages fetch, which no browser lets a file do
    pages.visit("index")
    assert pages.texts("nav a[href='../index.html']") == []


# When something is wrong


def assert_problem(pages, sentence):
    assert sentence in pages.text(".problem")
    assert pages.count(".problem p") >= 3
    assert pages.count(".problem a[href='index.html']") == 1
    assert "Cannot be shown" in pages.script("return document.title")


def test_unknown_cards_cases_and_runs_are_said(pages, shown):
    pages.visit("card", card="nobody")
    assert_problem(pages, "There is no card “nobody” here.")
    pages.visit("case", card=shown.card("h200"), case="matmul.nothing@1")
    assert_problem(pages, "has no case “matmul.nothing@1”")
    pages.visit("case")
    assert_problem(pages, "The address names no card.")
    pages.visit("run")
    assert_problem(pages, "The address names no run.")


def test_missing_damaged_and_newer_data_are_said(browser, copy):
    with serve(copy) as url:
        pages = Pages(browser, url)
        browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
        site = json.loads((copy / "api" / "site.json").read_text(encoding="utf-8"))
        card, case = site["cards"][0]["file"], site["cases"][0]["name"]
        series, state = copy / "data" / "series" / card / "0.js", {"card": card, "case": case}
        series.write_text('harness.data("other", {});', encoding="utf-8")
        pages.visit("case", **state)
        assert_problem(pages, f"data/series/{card}/0.js is damaged")
        series.unlink()
        pages.visit("case", **state)
        assert_problem(pages, f"data/series/{card}/0.js is missing.")
        assert "harness publish" in pages.text(".problem")
        first = copy / "data" / "site.js"
        newer = first.read_text(encoding="utf-8").replace('"schema":2', '"schema":3')
        first.write_text(newer, encoding="utf-8")
        pages.visit("index")
        assert_problem(pages, "newer than the 2 these pages know")
        first.unlink()
        for page in ("index", "case"):
            pages.visit(page)
            assert_problem(pages, "data/site.js is missing.")


def test_an_empty_history_says_what_to_do(browser, tmp_path):
    with serve(publish_empty(tmp_path / "empty")) as url:
        pages = Pages(browser, url)
        for page in ("card", "compare", "calibration", "index"):
            pages.visit(page)
            assert "asv run" in pages.text("main"), page
        assert run_axe(pages) == []
        assert pages.text(".verdict") == "Nothing is measured yet."
        assert pages.problems() == []


# A long history


def test_five_thousand_points_open_move_and_stay_light(browser, long_history):
    with serve(long_history) as url:
        pages = Pages(browser, url)
        pages.requests()
        site = json.loads((long_history / "api" / "site.json").read_text(encoding="utf-8"))
        pages.visit("case", card=site["cards"][0]["file"], case=site["cases"][0]["name"])
        pages.wait(lambda: "5,000 points" in pages.text("figcaption"), "the chart")
        assert pages.painted("canvas")
        asked = {unquote(urlsplit(one).path).lstrip("/") for one in pages.requests() if one.startswith(url)}
        # As they lie on the disk: not every host compresses.
        sent = sum((long_history / path).stat().st_size for path in asked if path)
        assert {f"data/series/{site['cards'][0]['file']}/0.js"} <= asked
        assert sent < MOST_BYTES
        for first in (1000, 3500):
            pages.script("harness.stack.setRange(arguments[0], arguments[0] + 900)", first)
            low, high = pages.view()
            assert (low, high) == (first, first + 900)
            drawn = pages.script("return harness.stack.plots.map(u => [u.scales.x.min, u.scales.x.max])")
            assert drawn == [[low, high]] * len(drawn)
        assert pages.problems() == []


# What others published, and what a kernel asks of a card


def test_a_case_shows_what_others_published_of_it(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=FIXED)
    assert "Grace, H200: 25,500.0" in pages.text(".legend")
    assert "dashed in the chart" in pages.column("Published: A ladder of the same card", 5)
    lead = pages.text("section .lead")
    assert "Grace" in lead
    assert "“On <i>speed</i>”" in lead  # as text
    assert pages.count("section .lead a") == 0  # an address that is none of the web is no link
    assert "A <b>doubt</b>." in pages.text("section .note")
    picture = pages.script("return harness.stack.picture({title: '', lines: []}).svg")
    assert 'stroke-dasharray="7 4"' in picture
    # The same kernel on another card has the table alone.
    pages.visit("case", card=shown.card("a100"), case=FIXED)
    assert "Grace" not in pages.text(".legend")
    assert pages.column("Published: A ladder of the same card", 5) == ["another card"]
    assert pages.problems() == []


def test_a_figure_far_away_does_not_flatten_a_history(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    scale = "return [harness.stack.plots[0].scales.y.min, harness.stack.plots[0].scales.y.max]"
    low, _ = pages.script(scale)
    assert low > 8000
    picture = "return harness.stack.picture({title: '', lines: []}).svg"
    assert "Grace, H200: 1.0 ↓" in pages.script(picture)
    assert "Grace, H200: 2.0" not in pages.script(picture)  # of another size
    rows = pages.column("Published: A ladder of the same card", 5)
    assert rows == ["dashed in the chart", "another size"]
    pages.visit("case", card=shown.card("h200"), case=CASE, zero="1")
    assert pages.script(scale)[0] <= 1
    assert "Grace, H200: 1.0<" in pages.script(picture)


def test_pages_tell_what_a_kernel_asks_of_the_card(pages, shown):
    pages.visit("case", card=shown.card("h200"), case=CASE)
    sectors = pages.column("Accesses of a warp at 4096, from the source", 3)
    assert sectors == ["32 (neighbours: 4)", "1 (neighbours: 4)", "32 (neighbours: 4)"]
    facts = pages.script(
        "return [...document.querySelectorAll('section .facts dt')].map(one => one.innerText)"
    )
    assert facts[-4:] == ["resident blocks", "occupancy", "waves", "last wave"]
    pages.visit("card", card=shown.card("h200"), suite="matmul", size="1024")
    caption = "What the kernels of matmul ask of the card"
    by_kernel = dict(zip(pages.column(caption, 0), pages.column(caption, 8), strict=True))
    assert by_kernel["naive"] == "32 / 4"
    assert pages.problems() == []


def test_a_ladder_is_drawn_over_the_size(pages, shown):
    pages.visit("ladder", ladder="matmul.shader")
    assert "Sangkun Park" in pages.text(".lead")
    assert "twice what 2 N^3" in pages.text(".note")
    rates = pages.column("A compute shader against one core of the host: published, and measured here", 2)
    assert {"46.60", "0.40"} <= set(rates)
    titles = pages.texts("figure svg text")
    assert {"GFLOP/s", "speed-up over cpu_loop", "128", "4,096"} <= set(titles)
    assert "compute shader, published (Quadro 4000)" in pages.text(".legend")
    assert len(pages.texts("figure .roofline path[stroke-dasharray]")) == 3  # two rates and a speed-up
    pages.choose("Ladder", "matmul.cuda")
    assert pages.hash()["ladder"] == "matmul.cuda"
    assert pages.count("figure svg") == 0  # one size
    pages.visit("ladder", ladder="matmul.none")
    assert "There is no ladder “matmul.none” here." in pages.text("main")


# The words, and the files themselves


def test_numbers_and_words_mean_what_they_say(pages):
    pages.visit("index")

    def call(expression):
        return pages.script(f"return harness.format.{expression}")

    rate, span = "{direction: 'higher', unit: 'GFLOP/s'}", "{direction: 'lower', unit: 'ms'}"
    other, none = "{direction: 'lower', unit: 'bytes'}", "{direction: 'none', unit: 'MHz'}"
    unknown = "{direction: 'unknown', unit: 'x'}"
    assert call(f"meaning({rate}, -0.1)") == {"word": "slower", "tone": "bad"}
    assert call(f"meaning({rate}, 0.1)") == {"word": "faster", "tone": "good"}
    assert call(f"meaning({span}, 0.1)") == {"word": "slower", "tone": "bad"}
    assert call(f"meaning({span}, -0.1)") == {"word": "faster", "tone": "good"}
    assert call(f"meaning({other}, 0.1)") == {"word": "worse", "tone": "bad"}
    assert call(f"meaning({none}, 0.1)") == {"word": "higher", "tone": "none"}
    assert call(f"meaning({unknown}, 0.1)") == {"word": "higher", "tone": "none"}
    assert call("change(0.1234)") == "+12.3\u00a0%"
    assert call("change(-0.00123)") == f"{MINUS}0.12\u00a0%"
    assert call("change(null)") == "\N{EN DASH}"
    assert call("interval(-0.05, 0.012)") == f"{MINUS}5.00 to +1.20\u00a0%"
    assert [call(f"number({value})") for value in (12345.6, 123.45, 1.23456, 0.0123456, 0, -3)] == [
        "12,346",
        "123.5",
        "1.235",
        "0.01235",
        "0",
        f"{MINUS}3",
    ]
    assert call("axis([0.1, 0.15, 0.2])") == ["0.10", "0.15", "0.20"]
    assert call("axis([0, 2.5, 5, 7.5])") == ["0.0", "2.5", "5.0", "7.5"]
    assert call("axis([0, 25, 50])") == ["0", "25", "50"]
    assert call("letter(0)") + call("letter(25)") + call("letter(26)") == "AZAA"
    assert call("probability(0.0004)") == "p < 0.001"
    assert call("probability(0.0123)") == "p = 0.012"


class Names(HTMLParser):
    """The files that a page loads, and its policy."""

    def __init__(self, html):
        super().__init__()
        self.files, self.policy, self.loose = [], None, []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "meta" and values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        if tag == "script" and "src" not in values:
            self.loose.append("script")
        self.loose += [name for name in values if name == "style" or name.startswith("on")]
        self.files += [
            values[name] for name in ("src", "href") if name in values and tag in ("script", "link")
        ]


@pytest.mark.parametrize("page", SHELLS)
def test_shells_name_files_that_are_there_and_nothing_inline(shown, page):
    names = Names((shown.folder / f"{page}.html").read_text(encoding="utf-8"))
    assert names.policy == POLICY
    assert names.loose == []
    for file in names.files:
        assert (shown.folder / file).is_file(), file


def test_paper_has_no_colour_of_the_dark_theme():
    style = (ASSETS / "static" / "style.css").read_text(encoding="utf-8")
    (dark,) = re.finditer(r'\[data-theme="dark"\]', style)
    assert style[: dark.start()].rstrip().endswith("@media not print {\n  :root")


def test_our_scripts_make_no_html_out_of_text_and_name_no_host():
    scripts = list((ASSETS / "static").glob("*.js"))
    assert len(scripts) > 10
    for path in scripts:
        source = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", source
        ), path
        hosts = set(re.findall(r"""https?://[\w.]+""", source)) - {"http://www.w3.org"}
        assert hosts == set(), path
        # They are published without indentation, which a text of several lines would lose.
        assert all(line.count("`") % 2 == 0 for line in source.splitlines()), path
        assert source.isascii() or not re.search("[\u200e\u200f\u202a-\u202e\u2066-\u2069]", source), path


def test_vendored_files_are_those_of_the_manifest():
    manifest = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
    listed = {asset["path"] for asset in manifest["assets"]}
    there = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    assert there == listed | {"manifest.json", "LICENSES.txt"}
    licences = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    for asset in manifest["assets"]:
        assert hashlib.sha256((VENDOR / asset["path"]).read_bytes()).hexdigest() == asset["sha256"]
    assert "uPlot 1.6.32 (MIT)" in licences
    assert "Permission is hereby granted" in licences


@pytest.fixture(scope="module")
def of_asv(tmp_path_factory):
    """Results of another asv project, of which one benchmark takes twice as long since the ninth commit."""
    root = make_repository(tmp_path_factory.mktemp("asv"))
    boxes = [root / "results" / name for name in ("box", "pi")]
    for box in boxes:
        box.mkdir(parents=True)
        machine = json.dumps({"machine": box.name, "version": 1})
        (box / "machine.json").write_text(machine, encoding="utf-8")
    listed = {"bench.time_x": {"type": "time", "unit": "seconds", "params": [], "version": "1"}, "version": 2}
    (root / "results" / "benchmarks.json").write_text(json.dumps(listed), encoding="utf-8")
    for place, name in enumerate(commit_each(root, [{"a": str(day)} for day in range(16)])):
        content = {
            "commit_hash": name,
            "env_name": "py",
            "params": {},
            "result_columns": ["result", "params", "version"],
            "results": {"bench.time_x": [[(1 + place // 8) * (1 + place % 3 / 1000)], [], "1"]},
            "version": 2,
        }
        for box in boxes:
            (box / f"{name[:8]}-py.json").write_text(json.dumps(content), encoding="utf-8")
    publish_pages(root / "results", root, root / "html", project="p")
    return root / "html" / "harness"


def test_a_machine_without_a_card_and_without_suites_has_words_and_commands_that_fit(browser, of_asv):
    event = json.loads((of_asv / "api" / "events.json").read_text(encoding="utf-8"))[0]
    with serve(of_asv) as url:
        pages = Pages(browser, url)
        pages.visit("card")
        assert pages.text(".chooser small") == "1 open regression"
        card = json.loads((of_asv / "api" / "site.json").read_text(encoding="utf-8"))["cards"][0]["file"]
        pages.visit(
            "card", card=card
        )  # no operations, no peaks, no telemetry: nothing is drawn or told of them
        assert pages.texts("h2") == ["Ladder", "Figures", "Runs"]
        assert not {"Registers", "Power, W", "of peak"} & set(pages.texts("thead button"))
        assert pages.texts("nav[aria-label=Pages] a") == ["Overview", "Cards", "Compare"]
        pages.visit("commit", commit=event["bad_hash"])
        pages.wait(lambda: pages.count(".command"), "the page of the commit")
        assert (
            pages.text(".command code")
            == f"asv continuous {event['good_hash'][:10]} {event['bad_hash'][:10]}"
        )
