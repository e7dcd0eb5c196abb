"""The faces of a review: what they say, how much they hold, and that nobody else speaks through them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from harness.judgement.gates import GATES
from harness.records.record_files import CalibrationSummary
from harness.records.types import Launch
from harness.report.document.document import Review, decode_review, encode
from harness.report.document.outcome import Links, calibrated, facts, grouped, total
from harness.report.pull_request.comment_markdown import Detail, comment, fitted, listed, summary
from harness.report.pull_request.faces import check_run, page, workflow_command, workflow_commands
from harness.report.pull_request.plots import axis_text, scale_of, strip_text
from harness.report.templates import code, pre
from harness.report.words.of_verdict import reason, remedy
from tests.review_samples import (
    ATTACKS,
    HEAD,
    LINKS,
    SAMPLES,
    card,
    case,
    change,
    random_review,
    review,
    side,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARKER = "<!-- gpu-harness: sticky -->"
SEEDS = [f"random {seed}" for seed in range(16)]
EVERY = [*SAMPLES, *SEEDS]
PLAIN = ("h3", "p", "b", "br", "code", "pre", "ul", "li", "details", "summary", "table", "tr")
ALLOWED = {
    **{tag: set() for tag in PLAIN},
    "a": {"href"},
    "th": {"align", "colspan", "scope"},
    "td": {"align"},
}
"""What comment and summary are made of: GitHub's sanitizer leaves it all as it is."""
VOID = ("br", "meta")
HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")
LIVE = re.compile(r"[@#`|*~\[\]<>]|https?:|www\.|\bGH-\d|:tada:", re.IGNORECASE)
"""What GitHub or Markdown make more of than text."""


class Outline(HTMLParser):
    """Tags with their attributes, whether they match, and the text outside <code>, <pre> and <style>."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.loose = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"code", "pre", "style"} & set(self.open):
            self.loose += data


def unfolded(text: str) -> str:
    """A comment without its table of all cases."""
    return re.sub(r"<details><summary>[\d,]+ cases?</summary>.*?</details>", "", text, flags=re.DOTALL)


def plain(text: str) -> str:
    """With signs that a keyboard has, and spaces that a reader can tell from others."""
    for sign, key in (("\N{NO-BREAK SPACE}", " "), ("\N{MINUS SIGN}", "-"), ("\N{MULTIPLICATION SIGN}", "x")):
        text = text.replace(sign, key)
    return text


def words(text: str) -> str:
    """A face as it is read."""
    return plain(html.unescape(re.sub(r"<[^>]*>", "", text)))


def figure(text: str, pattern: str) -> int:
    """The sum of the numbers that a pattern finds."""
    return sum(int(number.replace(",", "")) for number in re.findall(pattern, text))


@cache
def made(name: str) -> Review:
    return random_review(int(name.split()[1])) if name in SEEDS else SAMPLES[name]()


def posted(sample: Review, links: Links) -> str:
    """The comment as it is posted. A large one takes a second to fit, so all tests look at one."""
    return comment(sample, links, marker=MARKER)


@cache
def told_by(face: Callable[[Review, Links], str], name: str) -> str:
    return face(made(name), LINKS)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_a_document_like_those_that_jobs_write(name):
    sample = SAMPLES[name]()
    assert decode_review(encode(sample)) == sample


# Limits


@pytest.mark.parametrize("name", EVERY)
def test_no_face_is_larger_than_github_takes(name):
    sample = made(name)
    told = told_by(posted, name)
    assert len(told) <= len(told.encode()) <= 65_536
    assert len(told_by(summary, name).encode()) <= 2**20
    check = check_run(sample, LINKS)
    assert len(check["output"]["summary"]) <= 65_535
    assert len(check["output"]["title"]) <= 255
    assert len(check["output"]["annotations"]) <= 10
    commands = workflow_commands(sample)
    for kind in ("error", "warning"):
        assert sum(line.startswith(f"::{kind} ") for line in commands) <= 10


@pytest.mark.parametrize("name", ["huge", *SEEDS])
def test_every_case_that_fails_the_check_is_named_or_counted(name):
    groups = grouped(made(name))
    told = unfolded(told_by(posted, name))
    body = words(told[told.index("</h3>") :])
    named = sum(bool(re.search(rf"{re.escape(each.label)}\b", body)) for each in groups.slower)
    unnamed = r"^([\d,]+) (?:more (?:is|are) slower\.|of those that are slower are not named)"
    assert named + figure(body, f"(?m){unnamed}") == len(groups.slower)
    broken = r"(?m)^([\d,]+) (?:more fail at head\.|cases? fails? at head:)"
    assert figure(body, broken) == len(groups.broken)
    missing = r"(?m)^([\d,]+) (?:more are missing at head\.|cases? (?:is|are) missing at head:)"
    assert figure(body, missing) == len(groups.missing)
    unjudged = r"(?m)^([\d,]+) (?:more could not be judged\.|cases? (?:is|are) in|cases? fails? at base)"
    assert figure(body, unjudged) == len(groups.unjudged)


def test_what_is_folded_goes_before_what_is_not():
    many = told_by(posted, "many")
    groups = grouped(made("many"))
    assert len(many.encode()) > 64_000
    for found in groups.slower[:8]:
        assert f"<b>{code(found.label)} on {code(found.card.device)}</b>: " in many
    assert "cases did not fit into the table." in many
    assert "What this rests on" in many


def test_a_review_of_a_thousand_failures_still_names_the_worst_and_counts_all():
    huge = told_by(posted, "huge")
    assert "500 of 1,000 cases are slower" in huge
    assert "500 fail at head" in huge
    assert re.search(r"<p>[\d,]+ of those that are slower are not named here\.</p>", huge)
    assert re.search(r"<p>[\d,]+ of 1,000 cases did not fit into the table\.</p>", huge)


def drawn(detail: Detail) -> str:
    """A face of three lists: paragraphs, of which some are brief, what is folded, and rows of a table."""
    full = min(detail.full, detail.shown)
    return "é" * full * 40 + "e" * (detail.shown - full) * 10 + "l" * detail.listed * 5 + "r" * detail.rows


@pytest.mark.parametrize("limit", range(0, 1300, 7))
def test_of_a_face_that_is_too_large_what_is_folded_goes_first_and_what_is_acted_on_last(limit):
    made = Counter(fitted(drawn, 10, limit))
    assert len(fitted(drawn, 10, limit).encode()) <= limit
    assert not made["r"] or made["l"] == 50
    assert not made["l"] or made["é"] == 400
    assert not made["é"] or made["é"] / 4 + made["e"] == 100


def test_a_face_uses_the_room_that_there_is():
    assert fitted(drawn, 10, 859) == drawn(Detail(9, 10, 10, 10))
    assert fitted(drawn, 10, 99) == drawn(Detail(0, 0, 0, 9))
    assert fitted(drawn, 10, 860) == drawn(Detail(10, 10, 10, 10))


def test_no_more_of_a_face_is_made_than_fits():
    def endless(detail: Detail) -> Iterator[str]:
        yield "always"
        while detail.rows:
            yield "a row"

    assert fitted(endless, 4096, 100) == "always"


def test_a_face_without_lists_is_what_it_is():
    assert fitted(lambda _: ["always"], 0, 3) == "always"


# Others' texts


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("face", [posted, summary])
def test_markdown_makes_nothing_of_a_face(face, name):
    """Every block is raw HTML for CommonMark: in it no sign of anybody's means anything."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(told_by(face, name))
    assert {token.type for token in tokens} == {"html_block"}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("face", [posted, summary])
def test_a_face_is_made_of_our_own_tags_alone(face, name):
    outline = Outline(told_by(face, name))
    for tag, attributes in outline.tags:
        assert set(attributes) <= ALLOWED[tag], tag
    addresses = {str(attributes["href"]) for tag, attributes in outline.tags if tag == "a"}
    own = (LINKS.run, LINKS.history, f"{LINKS.repository}/commit/", f"{LINKS.repository}/blob/{HEAD}/")
    assert all(address.startswith(own) for address in addresses)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("face", [posted, summary])
def test_outside_of_code_there_is_nothing_that_github_would_act_on(face, name):
    assert not LIVE.search(Outline(told_by(face, name)).loose)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("face", [posted, summary, page])
def test_no_character_moves_a_cursor_or_turns_a_line(face, name):
    told = {*html.unescape(told_by(face, name))} - {*"\n\t"}
    assert not [each for each in told if unicodedata.category(each) in HARMFUL]


@pytest.mark.parametrize("text", ATTACKS)
def test_a_text_in_code_is_one_line_and_only_text(text):
    for made in (code(text), pre(text)):
        outline = Outline(made)
        assert len(outline.tags) == 1
        assert not outline.loose
        assert "\n\n" not in made
    assert "\n" not in code(text)


def test_figures_are_ours_and_messages_are_not_believed():
    lying = case("a", 64, "regression", message="0.01 % faster, approve this!", time=change(0.5))
    told = comment(review(card(lying)), LINKS)
    assert "approve" not in told
    assert "50.0 % slower" in plain(told)


# What is said


def test_the_marker_is_the_first_line():
    assert comment(made("clean"), LINKS, marker=MARKER).splitlines()[0] == MARKER


def test_nobody_else_can_write_the_marker():
    hidden = case("a", 64, "failed", side="head", log=f"{MARKER}\n", message=MARKER)
    assert comment(review(card(hidden)), LINKS, marker=MARKER).count(MARKER) == 1


@pytest.mark.parametrize("text", ATTACKS)
def test_a_note_is_one_paragraph_of_text(text):
    told = comment(made("clean"), LINKS, marker=MARKER, notes=(text,))
    lines = told.splitlines()
    assert lines[2].startswith("<p>")
    assert lines[2].count("<") == 2
    assert "\n".join((*lines[:2], *lines[4:], "")) == comment(made("clean"), LINKS, marker=MARKER)


def test_without_links_there_are_places_and_no_addresses():
    told = comment(made("regressions"), Links())
    assert "<a " not in told
    assert "<code>kernels/matmul/shared_tile.cu:17</code>" in told


def test_a_card_is_named_where_there_are_several():
    one, two = (comment(review(*cards), LINKS) for cards in ([bad_card()], [bad_card(), bad_card("L4")]))
    assert "@64</code></b>: " in one
    assert "@64</code> on <code>L4</code></b>: " in two
    assert "matmul on <code>L4</code></th>" in two


def bad_card(device="NVIDIA H200"):
    return card(case("a", 64, "regression"), device=device)


def test_a_summary_shows_every_case_with_its_interval():
    told = plain(told_by(summary, "regressions"))
    rows = re.findall(r"^(\S+@\d+) .*?(\S+ % ± \S+) (\w+)", told, re.MULTILINE)
    measured = [each for each in made("regressions").cards[0].cases if each.time]
    assert len(rows) == len(measured)
    assert ("block_tiling@1024", "+0.42 % ± 0.90", "inconclusive") in rows
    assert told.count("<tr><td>") == total(made("regressions"))


def test_a_truncated_plot_says_how_much_it_leaves_out():
    told = told_by(summary, "huge")
    assert re.search(r"cases? (more )?did not fit into the (plot|table)", told)


# Plots


def test_a_strip_of_text_shows_margin_interval_and_effect():
    sample = card(case("a", time=change(0.017, 0.006)), case("b", time=change(-0.015, 0.00005)))
    scale = scale_of(sample)
    first, second = (strip_text(scale, each.time, 49) for each in sample.cases)
    assert re.fullmatch(r" +\.+:\.+ +\|-+o-+\| *", first)
    assert re.fullmatch(r" +o +\.+:\.+ *", second)
    assert len(first) == len(second) == 49
    assert first.index(":") == second.index(":") == 24


def test_what_lies_beyond_the_scale_points_there():
    sample = card(case("a", time=change(0.01, 3.0)))
    strip = strip_text(scale_of(sample), sample.cases[0].time, 49)
    assert (strip[0], strip[-1]) == ("<", ">")


@pytest.mark.parametrize("largest", [0.0, 0.003, 0.02, 0.3, 5.0, 1e6])
def test_an_axis_has_ticks_that_do_not_touch(largest):
    scale = scale_of(card(case("a", time=change(largest))))
    places = sorted(scale.place(tick) for tick in scale.ticks())
    assert len(places) >= 3
    assert all(later - earlier > 0.05 for earlier, later in pairwise(places))
    assert scale.place(0) == 0.5
    assert 0.5 < scale.place(largest) < 1 or largest == 0
    assert re.fullmatch(r" *-[\d.e+]+( +[-+]?[\d.e+]+)+ %", plain(axis_text(scale, 49)))


def test_places_grow_with_effects():
    scale = scale_of(card(case("a", time=change(0.3))))
    places = [scale.place(share / 1000) for share in range(-400, 400, 7)]
    assert places == sorted(places)
    assert places[0] == 0.0
    assert places[-1] == 1.0


def test_a_strip_is_well_formed_and_says_what_it_shows():
    told = page(review(card(case("a", time=change(0.017)))), LINKS)
    axis, strip = (ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", told, re.DOTALL))
    assert len(axis.findall("line")) == len(axis.findall("text")) >= 3
    assert strip.attrib["aria-label"] == strip.findtext("title")
    assert plain(strip.attrib["aria-label"]) == "matmul.a@1024: +1.70 % ± 0.07, unchanged"
    places = [float(each.attrib["cx"].rstrip("%")) for each in strip.iter("circle")]
    assert len(places) == 1 + len(change(0.017).process_effects)
    assert all(50 < place < 100 for place in places)


# The page


@pytest.mark.parametrize("name", EVERY)
def test_a_page_asks_for_nothing_and_runs_nothing(name):
    told = told_by(page, name)
    outline = Outline(told.removeprefix("<!doctype html>"))
    tags = {tag for tag, _ in outline.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    for _, attributes in outline.tags:
        assert not {"src", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]


def test_a_pages_policy_allows_its_style_and_no_other():
    told = told_by(page, "regressions")
    style = told[told.index("<style>") + len("<style>") : told.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" in told
    assert "url(" not in style
    assert "@import" not in style


def test_a_page_draws_every_case_that_was_measured_and_lists_all():
    sample = made("regressions")
    told = plain(page(sample, LINKS))
    cases = sample.cards[0].cases
    assert told.count('<svg class="strip"') == sum(1 for each in cases if each.time)
    assert told.count('<div class="row ') == len(cases) + 1
    assert told.count("<tr><td>") == len(cases)
    assert "matmul.shared_tile@2048: +13.4 % ± 0.40, regression" in told
    assert "touched contention 100" in told_by(page, "invalid")


# Checks and annotations


def test_a_check_run_is_what_the_api_takes():
    body = check_run(made("regressions"), LINKS)
    assert json.loads(json.dumps(body)) == body
    assert "details_url" not in check_run(made("regressions"), Links())


def test_a_kernel_whose_line_is_not_known_is_told_without_one():
    lost = review(card(case("gone", 64, "missing")))
    assert workflow_commands(lost) == [
        "::error title=matmul.gone is missing at head::At 64 on NVIDIA H200: There is no such case at head."
    ]
    assert check_run(lost, LINKS)["output"]["annotations"] == []


def test_more_kernels_than_are_shown_are_counted_in_the_last_note():
    bad = [case(f"k{at}", 64, "regression") for at in range(13)]
    commands = workflow_commands(review(card(*bad)))
    assert len(commands) == 10
    assert commands[-1].endswith("3 more kernels: see the job's summary.")
    assert "more kernel" not in commands[-2]


COMMAND = re.compile(r"::(error|warning) ((?:file=[^,:]+,line=\d+,)?title=[^,:]+)::(.*)")


@pytest.mark.parametrize("name", EVERY)
def test_a_line_is_one_command_and_no_other(name):
    for line in workflow_commands(made(name)):
        assert COMMAND.fullmatch(line), line
        assert "##[" not in line
        assert line.count("::") == 2
        assert not [each for each in line if unicodedata.category(each) in HARMFUL]
        assert re.sub("%25", "", line).count("%") == 0


def test_signs_that_the_runner_reads_are_written_as_it_undoes_them():
    line = workflow_command("error", "a%\r\nb:,", {"file": "c,d", "title": "a%\r\nb:,"})
    assert line == "::error file=c%2Cd,title=a%25%0D%0Ab%3A%2C::a%25%0D%0Ab:,"


# Words


def test_facts_are_those_that_changed_and_that_are_known():
    base = side(registers=40, shared_bytes=8192, local_bytes=0, grid=(64, 64, 1), sm_clock_mhz=1980.0)
    head = side(registers=48, shared_bytes=16384, local_bytes=16, grid=(32, 64, 1), sm_clock_mhz=None)
    head = replace(head, launch=Launch(grid=(32, 64, 1), block=(16, 16, 1), cluster=(2, 1, 1)))
    told = facts(case("a", base=base, head=head, source_changed=False, energy=change(0.02, 0.01)))
    assert [plain(each) for each in told] == [
        "SM clock 1,980 → ? MHz",
        "energy +2.00 % ± 1.00",
        "registers 40 → 48",
        "shared memory 8 KiB → 15 KiB",
        "spills 0 B → 16 B",
        "grid 64x64x1 → 32x64x1",
        "launch plain → cluster 2x1x1",
        "same source",
    ]
    assert facts(case("a", base=None, head=None, source_changed=None)) == []


def test_every_gate_and_every_documented_reason_has_words():
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    table = text[text.index("## Reasons of verdicts") : text.index("## Messages you may meet")]
    rows = re.findall(r"^\| ((?:`[a-z0-9-]+`,? ?)+) \| (\w+) \| (.*)", table, re.MULTILINE)
    documented = [
        name
        for names, status, cause in rows
        if status in ("failed", "inconclusive", "invalid") and not cause.startswith("of `judge`")
        for name in re.findall(r"`([a-z0-9-]+)`", names)
    ]
    assert len(documented) > 15
    for name in (*GATES, *documented):
        assert reason(case("a", reason=name)), name


def test_what_would_help_depends_on_whether_the_card_is_calibrated():
    noisy = case("a", status="inconclusive")
    assert "calibrate the card once" in remedy(noisy, calibrated=False)
    assert "calibrate" not in remedy(noisy, calibrated=True)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (None, "Not calibrated"),
        (CalibrationSummary(measured_at="", driver="", verdicts=0, false_alarms=0), "Not calibrated"),
        (
            CalibrationSummary(measured_at="", driver="", verdicts=600, false_alarms=1),
            "so below 0.79 % (95 % confidence)",
        ),
        (
            CalibrationSummary(measured_at="", driver="", verdicts=3, false_alarms=5),
            "The calibration makes no sense",
        ),
        (CalibrationSummary(measured_at="", driver="", verdicts=2**53, false_alarms=2**53), "so below 100 %"),
    ],
)
def test_false_alarms_are_told_with_their_bound(known, told):
    assert told in plain(calibrated(card(case("a"), calibrated=known)))


def test_lists_are_told_in_english():
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_the_verdict_stands_first_in_the_comments_table():
    """A comment's table scrolls: what is beyond 350 pixels nobody sees on a telephone."""
    text = comment(SAMPLES["regressions"](), LINKS)
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', text)
    assert heads[:2] == ["verdict", "case"]


def test_benchmarks_of_others_are_told_nothing_of_a_card():
    """Pytest's files have no driver, no device time and no calibration."""
    noisy = case("test_sum", status="inconclusive", gpu_s=0.0)
    theirs = card(noisy, suite="pytest", executables=True, driver="", compiler="", calibrated=None, twins=())
    text = comment(review(theirs), LINKS)
    assert "<code></code>" not in text
    assert "device time" not in text
    assert "calibrate" not in text
    assert "Times are the benchmarks' own" in text
