"""`harness publish`: documents on disk, what is written again and what is not, feed, badges, bad input."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
import resource
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from harness.errors import ConfigError, ExitCode, StoreError
from harness.history.reading import read_history
from harness.history.triage import FILE, Decision, acknowledge
from harness.integrations.asv.conf import SiteConf, read_conf
from harness.records.record_files import RunResult, read_run
from harness.records.types import Effect, Snapshot
from harness.report.site import card_documents
from harness.report.site.documents import (
    CardStatus,
    Numbers,
    Site,
    atom,
    badge,
    badge_svg,
    file_name,
    run_document,
)
from harness.report.site.publishing import FOLDER, publish_pages
from harness.report.words.of_verdict import why
from tests import synthetic_history as synthetic
from tests.histories import series_case
from tests.review_samples import case as sample_case
from tests.review_samples import diagnosis
from tests.support import git, run_command
from tests.synthetic_history import (
    CARDS,
    HOSTILE_TEXTS,
    Card,
    History,
    Step,
    Suite,
    Throttle,
    Written,
    extend,
    write,
)

pytestmark = pytest.mark.usefixtures("own_cache")

H200, A100 = CARDS[:2]
NAIVE = "matmul.naive@1024"
SUITE = Suite(kernels=("naive", "tiled"), sizes=(1024,))
FALL, RISE, COMMITS = 15, 30, 60
SHOWN = History(
    commits=COMMITS,
    cards=(H200, A100),
    suites=(SUITE,),
    tracks=("gflops", "sm_clock_mhz", "temperature_c", "power_w"),
    events=(
        Step(case="naive", at=FALL, effect=-0.10, card=H200.name),
        Step(case="tiled", at=RISE, effect=0.10),
        Throttle(card=H200.name, start=42, stop=54),
    ),
    noise=0.004,
)
TODAY = dt.date(2026, 6, 1)
LINK = '<a href="harness/index.html">GPU history</a>'
ATOM = "{http://www.w3.org/2005/Atom}"
TURNS = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
"""What turns the direction of the text around it."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return write(SHOWN, tmp_path_factory.mktemp("shown"))


@pytest.fixture
def shown(template, tmp_path, monkeypatch, own_cache):
    """A history that is also the current folder; a copy, to be changed at will."""
    root = tmp_path / "project"
    shutil.copytree(template.repository, root, symlinks=True)
    monkeypatch.chdir(root)
    return replace(template, repository=root, results=root / ".asv" / "results", conf=root / "asv.conf.json")


@pytest.fixture
def made(tmp_path, monkeypatch, own_cache):
    """Writes a history and goes there."""

    def make(**changes: Any) -> Written:
        known = {"commits": 6, "suites": (SUITE,), "tracks": ("gflops", "sm_clock_mhz"), "noise": 0.004}
        written = write(History(**{**known, **changes}), tmp_path / "made")
        monkeypatch.chdir(written.repository)
        return written

    return make


def publish(written, html=None, **options):
    """The site's folder, and what the publication came to."""
    html = html or written.repository / ".asv" / "html"
    given = {"project": "p", "today": TODAY, **options}
    return html / FOLDER, publish_pages(written.results, written.repository, html, **given)


def api(site, name):
    return json.loads((site / "api" / f"{name}.json").read_text("utf-8"))


def anew(written, tmp_path, monkeypatch, **options):
    """The same published from nothing: no cache, no site."""
    with monkeypatch.context() as patched:
        patched.setenv("HARNESS_CACHE_DIR", str(tmp_path / "fresh-cache"))
        return publish(written, tmp_path / "fresh-html", **options)[0]


def contents(site):
    """Every file by its name, but for when it was made."""
    moment = re.compile(rb'"generated_at":"[^"]*"|<updated>[^<]*</updated>')
    return {
        path.relative_to(site).as_posix(): moment.sub(b"", path.read_bytes(), count=1)
        for path in site.rglob("*")
        if path.is_file()
    }


def assert_as_anew(site, fresh):
    """Nothing differs but runs that are no longer among the newest."""
    left, right = contents(site), contents(fresh)
    assert {name for name in left.keys() - right.keys() if "/runs/" not in name} == set()
    assert {name for name in right if left.get(name) != right[name]} == set()


def age(site):
    """Every file as of long ago, so that one which is written again can be told."""
    for path in site.rglob("*"):
        os.utime(path, (1, 1))


def rewritten(site):
    """Names of the series that were written since."""
    return {path.stem for path in (site / "api/series").iterdir() if path.stat().st_mtime != 1}


def series_of(site, machine=None):
    told = api(site, "site")
    cards = [each["file"] for each in told["cards"]]
    return {each["file"] for each in told["series"] if machine in (None, cards[each["card"]])}


def move(written, hashes):
    """Let the branch end with a commit."""
    git(written.repository, "update-ref", "refs/heads/main", hashes)


def amended(written, count):
    """Write the last commits anew, with other messages."""
    parent = written.commits[-count - 1]
    for commit in written.commits[-count:]:
        arguments = ("commit-tree", f"{commit}^{{tree}}", "-p", parent, "-m", "written anew")
        parent = git(written.repository, *arguments)
    move(written, parent)


# Numbers


def decode(packed):
    """As decode of assets/static/data.js."""
    kind = np.dtype({"f32": "<f4", "u32": "<u4", "u16": "<u2", "u8": "<u1"}[packed["t"]])
    if "d" in packed:
        return np.frombuffer(base64.b64decode(packed["d"]), kind)
    if "step" in packed:
        return np.array([packed["first"] + k * packed["step"] for k in range(packed["n"])], kind)
    values = [packed["first"]]
    for step in np.frombuffer(base64.b64decode(packed["steps"]), np.int8).tolist():
        values.append(values[-1] + step)
    return np.array(values, kind)


def figures(packed):
    """As figures of assets/static/data.js."""
    none = {"u16": 0xFFFF, "u8": 0xFF}.get(packed["t"])
    return [None if value != value or value == none else value for value in decode(packed).tolist()]


@pytest.mark.parametrize(
    ("values", "kept_as"),
    [
        ([0, 1, 2, 3], {"n", "first", "step"}),
        ([5, 9, 13], {"n", "first", "step"}),
        ([7, 7, 7], {"n", "first", "step"}),
        ([3, 4, 131, 4], {"first", "steps"}),
        ([1000, 1127, 1128], {"first", "steps"}),
        ([1000, 1128, 1129], {"d"}),
        ([1000, 872, 871], {"d"}),
        ([1, 2, 2**32 - 1], {"d"}),
        ([12], {"d"}),
        ([], {"d"}),
    ],
)
def test_whole_numbers_come_back_from_their_smallest_form(values, kept_as):
    packed = Numbers(np.array(values, np.int64), "u32")
    assert packed.packed().keys() - {"t"} == kept_as
    assert decode(json.loads(json.dumps(packed.packed()))).tolist() == values
    assert packed.plain() == values


@pytest.mark.parametrize(("kind", "largest"), [("u8", 255), ("u16", 65535)])
@pytest.mark.parametrize(
    "values", [[None], [None, None, None], [40.0, None, 41.0], [40.0, 41.0, 40.0, 43.0], []]
)
def test_a_missing_figure_is_the_largest_value_and_comes_back_as_none(kind, largest, values):
    given = np.array([np.nan if value is None else value for value in values], np.float64)
    packed = Numbers(given, kind)
    assert figures(packed.packed()) == values
    assert packed.plain() == values
    stored = decode(packed.packed()).tolist()
    assert [value == largest for value in stored] == [value is None for value in values]


def test_figures_beyond_their_kind_are_cut_and_never_taken_for_missing():
    assert figures(Numbers(np.array([-3.0, 254.4, 255.0, 1e9]), "u8").packed()) == [0, 254, 254, 254]
    assert figures(Numbers(np.array([70000.0, 1.5]), "u16").packed()) == [65534, 2]


@pytest.mark.parametrize("values", [[1.5, np.nan, -0.25], [np.nan], [3.0e-30, 1.0e30], [0.0], []])
def test_figures_of_single_precision_come_back(values):
    given = np.array(values, np.float32)
    packed = Numbers(given).packed()
    assert decode(packed).tobytes() == given.tobytes()
    expected = [None if np.isnan(value) else pytest.approx(value, rel=1e-6) for value in values]
    assert figures(packed) == expected
    assert Numbers(given).plain() == expected


def test_programs_get_six_digits_and_no_infinity():
    values = np.array([0.1, 1234.56789, -987654321.0, np.inf, -np.inf], np.float32)
    assert Numbers(values).plain() == [0.1, 1234.57, -987654000.0, None, None]


# Documents


HOSTILE = "</script><!--\u2028\u2029 \x00 \u202e \" ' & <b>"


def test_a_document_cannot_leave_its_script(tmp_path):
    Site(tmp_path).write("series/x", {"text": HOSTILE, HOSTILE: [HOSTILE]})
    script = (tmp_path / "data/series/x.js").read_text("utf-8")
    assert "</" not in script
    assert not {"\u2028", "\u2029", "\x00"} & set(script)
    call, _, document = script.partition(", ")
    assert call == 'harness.data("series/x"'
    told = json.loads(document.removesuffix(");\n"))
    assert told == {"text": HOSTILE, HOSTILE: [HOSTILE]} == api(tmp_path, "series/x")


def test_a_document_for_the_pages_alone_has_no_json(tmp_path):
    Site(tmp_path).write("at/x", [1], api=False)
    assert (tmp_path / "data/at/x.js").exists()
    assert not (tmp_path / "api").exists()


def test_a_full_disk_is_an_error_with_the_path_and_leaves_the_older_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    site = Site(tmp_path)
    site.write_json("x.json", ["older"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"x\.json: File too large\."):
            site.write_json("x.json", ["newer"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == '["older"]\n'


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_folder_that_is_read_only_is_an_error_with_the_path(tmp_path):
    site = Site(tmp_path)
    site.write_json("x.json", ["older"])
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(StoreError, match=r"x\.json: Permission denied\."):
            site.write_json("x.json", ["newer"])
    finally:
        tmp_path.chmod(0o755)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text() == '["older"]\n'


@pytest.mark.parametrize("in_the_way", ["data", "data/series", "data/series/x.js"])
def test_what_is_in_the_way_is_an_error_with_the_path_and_stays(tmp_path, in_the_way):
    path = tmp_path / in_the_way
    if path.suffix:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("other")
    with pytest.raises(StoreError, match=re.escape(str(tmp_path / "data/series/x.js"))):
        Site(tmp_path).write("series/x", {})
    assert path.is_dir() if path.suffix else path.read_text() == "other"
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("name", ["nvidia-h200-c23567a6", "A_b-9", "x" * 80])
def test_a_plain_name_is_a_file_name(name):
    assert file_name(name) == name


def test_other_names_become_different_file_names_without_places_in_them():
    texts = [
        *HOSTILE_TEXTS,
        *("", ".", "..", "../x", "x/..", "/etc/x", "a/b", "a\\b", "a b", "a-b", "a.b", "a:b", "a%2fb", "-a"),
        *("a", "a-", " ", "\u00e9", "e\u0301", "CON.txt", "x" * 81, "x" * 82, "\udcff", "\0", "\n"),
    ]
    names = [file_name(text) for text in texts]
    assert len(set(names)) == len(texts)
    assert all(re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{0,80}", name) for name in names)
    assert names == [file_name(text) for text in texts]


# Feed and badges


def event(**told):
    worst = {"id": "0123456789", "card": 0, "case": 0, "effect": -0.1, "sentence": "11.1 % slower."}
    suspect = {"hash": "ab" * 20, "subject": "a subject", "author": "Ada", "time": 1_700_000_000}
    known = {
        "id": "abcdef0123",
        "kind": "regression",
        "state": "new",
        "cards": [0],
        "changes": 1,
        "commits": 1,
        "likely": 1,
    }
    return {
        **known,
        **{key: value for key, value in told.items() if key in known},
        "worst": {key: told.get(key, value) if key != "id" else value for key, value in worst.items()},
        "suspects": [{key: told.get(key, value) for key, value in suspect.items()}],
    }


def feed_of(events, cards=(("h200", "NVIDIA H200"),), cases=(NAIVE,), project="p"):
    told = [series_case(name) for name in cases]
    return ET.fromstring(atom(events, cards, told, project, "2026-06-01T00:00:00+00:00"))


def said(element, name):
    return element.findtext(f"{ATOM}{name}")


def test_an_entry_leads_to_its_change_on_its_card():
    case = "matmul.a&b#c d?=%@1024"
    feed = feed_of([event(card=1)], [("x", "X"), ("h200-ab", "H")], [case])
    [entry] = feed.findall(f"{ATOM}entry")
    [link] = entry.findall(f"{ATOM}link")
    place = urlsplit(link.get("href"))
    assert place.path == "case.html"
    assert parse_qs(place.fragment) == {"card": ["h200-ab"], "case": [case], "change": ["0123456789"]}
    assert said(entry, "title") == f"regression (new): {case} on H +11.1 %"
    assert said(entry, "updated") == "2023-11-14T22:13:20+00:00"
    assert said(entry, "summary") == "11.1 % slower. ababababab a subject (Ada)"


def test_an_entry_says_how_many_changes_and_commits_there_are_and_that_some_are_unjudged():
    [entry] = feed_of([event(state="unjudged", changes=4, cards=[0, 1], commits=3)]).findall(f"{ATOM}entry")
    assert said(entry, "title") == f"unjudged: {NAIVE} on NVIDIA H200 +11.1 %, and 3 more on 2 cards"
    assert "At least one of 3 commits, perhaps ababababab" in said(entry, "summary")


def test_an_entry_accuses_no_commit_where_none_touches_code():
    [entry] = feed_of([event(likely=0)]).findall(f"{ATOM}entry")
    assert said(entry, "summary").endswith("No commit is accused, as none there touches code.")


def test_a_feed_has_what_atom_asks_for():
    feed = feed_of([event(), event(id="1", state="", kind="improvement")])
    assert feed.tag == f"{ATOM}feed"
    for name in ("title", "id", "updated"):
        assert len(feed.findall(f"{ATOM}{name}")) == 1
    assert feed.findtext(f"{ATOM}author/{ATOM}name")
    assert {link.get("rel"): link.get("href") for link in feed.findall(f"{ATOM}link")} == {
        "self": "feed.xml",
        "alternate": "index.html",
    }
    ids = [said(entry, "id") for entry in feed.findall(f"{ATOM}entry")]
    assert len({*ids, said(feed, "id")}) == 3
    assert ids == [f"urn:gpu-harness:event:{each}" for each in ("abcdef0123", "1")]


NASTY = (*HOSTILE_TEXTS, "\ud800 half", "\ufffe\uffff", "]]>", "\u2066isolated\u2069", "\x00")


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_texts_of_others_are_only_text_in_the_feed(text):
    nasty = event(subject=text, author=text, sentence=text)
    feed = feed_of([nasty, event()], [(file_name(text), text)], [text], text)
    assert len(feed.findall(f"{ATOM}entry")) == 2
    plain = feed_of([event(), event()])
    assert [each.tag for each in feed.iter()] == [each.tag for each in plain.iter()]
    told = "".join(feed.itertext())
    assert not TURNS & set(told)
    assert re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", told) is None
    assert re.fullmatch("urn:gpu-harness:[A-Za-z0-9._-]+", str(said(feed, "id")))
    if text == HOSTILE_TEXTS[0]:
        assert f"{text} ({text})" in told


def card_status(opened=0, unjudged=0, unknown=0, series=4, *, stale=False):
    return CardStatus(open=opened, unjudged=unjudged, unknown=unknown, series=series, stale=stale)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (card_status(), "no regression"),
        (card_status(unknown=3), "no regression"),
        (card_status(opened=1, unjudged=2), "1 regression"),
        (card_status(opened=2), "2 regressions"),
        (card_status(unjudged=2), "2 unjudged"),
        (card_status(unknown=4), "too few points"),
        (card_status(stale=True), "not measured lately"),
        (card_status(series=0), "not measured"),
    ],
)
def test_badges_say_how_it_stands(status, message):
    told = badge("H200", status)
    assert told.keys() == {"schemaVersion", "label", "message", "color"}
    assert (told["schemaVersion"], told["label"], told["message"]) == (1, "H200", message)
    assert re.fullmatch("[0-9a-f]{6}", told["color"])
    picture = ET.fromstring(badge_svg("H200", status))
    assert picture.get("aria-label") == f"H200: {message}"
    texts = [each.text for each in picture.iter() if each.tag.endswith("}text")]
    assert texts == ["H200", message]
    assert any(each.get("fill") == f"#{told['color']}" for each in picture.iter())


def test_a_badge_is_green_only_where_something_was_judged_and_nothing_waits():
    def colour(**told):
        return badge("x", card_status(**told))["color"]

    green, red, grey = colour(), colour(opened=1), colour(series=0)
    assert len({green, red, grey}) == 3
    assert colour(unjudged=1) == colour(unknown=4) == colour(stale=True) == grey
    assert colour(unknown=3) == green


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_a_card_of_any_name_has_a_badge(text):
    picture = ET.fromstring(badge_svg(text, card_status(opened=1)))
    plain = ET.fromstring(badge_svg("x", card_status(opened=1)))
    assert [each.tag for each in picture.iter()] == [each.tag for each in plain.iter()]
    assert not TURNS & set("".join(picture.itertext()))
    assert int(picture.get("width", "")) < 500


def test_open_regressions_come_first_and_the_card_s_own_doings_not_at_all(shown):
    site, done = publish(shown)
    counts = api(site, "site")["counts"]
    assert (counts["new"], counts["improvement"], done.open) == (1, 2, 1)
    assert counts["environment"] >= 2
    entries = ET.parse(site / "feed.xml").getroot().findall(f"{ATOM}entry")
    titles = [str(said(entry, "title")) for entry in entries]
    assert [title.partition(":")[0] for title in titles] == ["regression (new)", "improvement"]
    bad = [each["bad"] for each in api(site, "changes")]
    assert bad[0] == FALL
    assert bad[1:] == sorted(bad[1:], reverse=True)
    assert max(bad) > FALL
    ids = [said(entry, "id") for entry in entries]
    assert len(set(ids)) == 2
    again, _ = publish(extend(shown))
    later = ET.parse(again / "feed.xml").getroot().findall(f"{ATOM}entry")
    assert [said(entry, "id") for entry in later] == ids


# What several cards tell together


def test_what_another_card_is_sure_of_counts_and_moves_the_levels_of_that_case(made, tmp_path, monkeypatch):
    alone = Step(case="naive", at=20, effect=-0.10, card=H200.name)
    weak = Step(case="naive", at=20, effect=-0.035, card=A100.name)
    one = Suite(kernels=("naive",), sizes=(1024,))
    events = (alone, weak)
    history = {"commits": 40, "noise": 0.02, "suites": (one,), "tracks": ("gflops",), "seed": 0}
    written = made(cards=(H200, A100), events=events, **history)
    site, done = publish(written)
    assert done.open == 2
    series = [api(site, f"series/{each['file']}") for each in api(site, "site")["series"]]
    assert [len(each["changes"]) for each in series] == [1, 1]
    assert [len(each["levels"]) for each in series] == [2, 2]
    [event] = api(site, "events")
    assert (event["changes"], event["state"]) == (2, "new")
    assert_as_anew(site, anew(written, tmp_path, monkeypatch))
    assert publish(written)[1].open == 2


def states_of_pages(site):
    """The states of changes in the files that pages of cases read."""
    found = set()
    for path in (site / "data/series").rglob("*.js"):
        document = json.loads(path.read_text("utf-8").partition(", ")[2].removesuffix(");\n"))
        at = document["changes"]["keys"].index("state")
        column = document["changes"]["columns"][at]
        found |= set(column if isinstance(column, list) else column["of"])
    return found


def test_a_decision_about_an_event_reaches_every_series_and_can_be_taken_back(made):
    step = Step(case=None, at=20, effect=-0.1)
    written = made(cards=(H200, A100), commits=40, events=(step,))
    site, _ = publish(written)
    [event] = api(site, "events")
    decision = Decision(id=event["id"], commit=event["bad_hash"], reason="a trade", author="Ada")
    acknowledge(written.repository, decision)

    def states():
        told = [api(site, f"series/{each['file']}") for each in api(site, "site")["series"]]
        states = {change["state"] for each in told for change in each["changes"]}
        assert states_of_pages(site) == states
        return states

    assert publish(written)[1].open == 0
    assert states() == {"acknowledged"}
    assert publish(written)[1].open == 0
    assert states() == {"acknowledged"}
    (written.repository / FILE).unlink()
    assert publish(written)[1].open == 4
    assert states() == {"new"}


# The command


def command(written, *arguments):
    return run_command("publish", *arguments, cwd=written.repository)


UNRECORDED = [
    f"{card}: Only asv's files hold {2 * COMMITS} results of suites: "
    "'harness import asv' makes records of them."
    for card in sorted((H200.machine, A100.machine))
]


def test_asv_s_pages_and_ours_lie_beside_each_other_and_are_linked(shown):
    done = command(shown)
    assert done.returncode == ExitCode.FINE
    html = shown.repository / ".asv" / "html"
    told = f"{4 * COMMITS} points of 4 series on 2 cards, 1 open regression"
    assert done.stdout == f"{told}: {html / 'harness/index.html'}\n"
    assert "Generating graphs" in done.stderr
    page = (html / "index.html").read_bytes()
    assert page.count(LINK.encode()) == 1
    assert (html / "graphs").is_dir()
    assert api(html / FOLDER, "site")["asv"] is True
    age(html)

    again = command(shown, "--without-asv")
    assert (again.returncode, again.stdout) == (ExitCode.FINE, done.stdout)
    assert again.stderr == "".join(f"harness: {each}\n" for each in UNRECORDED)
    assert (html / "index.html").read_bytes() == page
    assert (html / "index.html").stat().st_mtime == 1
    assert (html / "harness/index.html").stat().st_mtime != 1

    # As another publication by asv alone leaves it.
    (html / "index.html").write_bytes(page.replace(f'\t<li id="nav-li-harness">{LINK}</li>\n'.encode(), b""))
    assert LINK not in (html / "index.html").read_text()
    command(shown, "--without-asv")
    assert (html / "index.html").read_bytes() == page


def test_json_is_all_of_standard_output_even_beside_asv(shown):
    done = command(shown, "--json")
    assert done.returncode == ExitCode.FINE
    assert json.loads(done.stdout) == {
        "folder": str(shown.repository / ".asv/html/harness"),
        "cards": 2,
        "series": 4,
        "points": 4 * COMMITS,
        "open": 1,
        "problems": [],
        "unrecorded": UNRECORDED,
    }


def test_asv_that_fails_is_status_3_and_says_how_to_do_without(made):
    written = made()
    (written.results / "benchmarks.json").unlink()
    done = command(written)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert "harness: asv publish failed with status" in done.stderr
    assert "'harness publish --without-asv'" in done.stderr


def test_a_broken_triage_file_is_status_2_before_asv_empties_the_site(made):
    written = made()
    site, _ = publish(written)
    before = contents(site.parent)
    (written.repository / FILE).write_text("[[change]]\nid = 1\n")
    done = command(written)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith(f"harness: {written.repository / FILE}, change 1: id is 1")
    assert contents(site.parent) == before


def test_outside_a_repository_it_is_status_2(harness, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = harness("publish", "--without-asv")
    assert done.status == ExitCode.USAGE
    assert done.err.startswith("harness: ")
    assert done.out == ""
    assert not (tmp_path / ".asv").exists()


def test_without_results_it_is_status_3(harness, made):
    written = made()
    shutil.rmtree(written.results)
    done = harness("publish", "--without-asv")
    assert done.status == ExitCode.NOT_MEASURED
    assert "There is no history in" in done.err
    assert "asv run" in done.err


def test_an_empty_repository_is_status_2(harness, made):
    made(commits=0)
    assert harness("publish", "--without-asv").status == ExitCode.USAGE


def test_folders_can_be_named(harness, made, tmp_path):
    written = made()
    results, html = tmp_path / "other-results", tmp_path / "other-html"
    written.results.rename(results)
    done = harness("publish", "--results", str(results), "--html", str(html))
    assert done.status == ExitCode.FINE
    assert done.out.endswith(f"{html / 'harness/index.html'}\n")
    assert api(html / FOLDER, "site")["asv"] is False
    assert not (written.repository / ".asv/html").exists()


def test_a_full_disk_is_status_3_and_harms_no_older_file(shown):
    site, _ = publish(shown)
    longer = extend(shown)
    before = contents(site)
    done = run_command("publish", "--without-asv", cwd=longer.repository, file_limit_bytes=1024)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert re.search(f"^harness: Cannot write {re.escape(str(site))}.*: File too large", done.stderr)
    assert contents(site) == before


# asv.conf.json


CONF = '{"version": 1, "repo": ".", "project": "p", "results_dir": ".asv/results", "html_dir": ".asv/html"'


def test_asv_s_conf_with_comments_and_without_an_address_of_commits(harness, made):
    written = made()
    written.conf.write_text(f'// ours\n{CONF},\n  // "show_commit_url": "https://example.org/",\n}}\n')
    assert harness("publish", "--without-asv").status == ExitCode.FINE
    told = api(written.repository / ".asv/html/harness", "site")
    assert (told["project"], told["commit_url"]) == ("p", "")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://example.org/commit/", "https://example.org/commit/{}"),
        ("http://example.org/", "http://example.org/{}"),
        ("#", ""),
        ("javascript:alert(1)//", ""),
        ("", ""),
    ],
)
def test_commits_are_linked_to_web_pages_alone(tmp_path, url, told):
    given = {"version": 1, "repo": ".", "project": "p", "show_commit_url": url, "branches": ["perf", "x"]}
    (tmp_path / "asv.conf.json").write_text(json.dumps(given))
    conf = read_conf(tmp_path)
    assert (conf.commit_url, conf.branch, conf.project) == (told, "perf", "p")


def test_without_a_conf_results_and_pages_lie_where_asv_s_would(harness, made):
    written = made()
    written.conf.unlink()
    assert read_conf(written.repository) == SiteConf(
        file=None,
        project=written.repository.name,
        repository=written.repository,
        results=written.results,
        html=written.repository / ".asv/html",
        branch="HEAD",
        commit_url="",
    )
    done = harness("publish")
    assert done.status == ExitCode.FINE
    assert api(written.repository / ".asv/html/harness", "site")["project"] == "made"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", '"x"', "{}", '{"version": 7}', '{"version": 1}', CONF + ', "branches": 5}', "\0"],
)
def test_a_conf_that_asv_cannot_read_is_status_2(harness, made, content):
    written = made(commits=1)
    written.conf.write_text(content)
    done = harness("publish")
    assert done.status == ExitCode.USAGE
    assert done.err.startswith(f"harness: asv cannot read {written.conf}: ")
    assert "Traceback" not in done.err
    assert not done.err.rstrip().endswith("..")


def test_a_conf_that_is_a_folder_is_an_error(tmp_path):
    (tmp_path / "asv.conf.json").mkdir()
    with pytest.raises(ConfigError, match="asv cannot read"):
        read_conf(tmp_path)


def test_another_s_page_is_left_alone(harness, made, tmp_path):
    made()
    html = tmp_path / "site"
    html.mkdir()
    (html / "index.html").write_text("ours")
    assert harness("publish", "--html", str(html)).status == ExitCode.FINE
    assert (html / "index.html").read_text() == "ours"
    assert api(html / FOLDER, "site")["asv"] is False


# What is written again


def test_nothing_of_a_card_is_written_again_where_nothing_changed(shown):
    site, first = publish(shown)
    age(site)
    again, second = publish(shown)
    assert rewritten(site) == set()
    assert (again, second) == (site, first)
    assert (site / "api/site.json").stat().st_mtime != 1


def test_a_new_commit_on_one_card_costs_that_card_and_comes_out_as_anew(shown, tmp_path, monkeypatch):
    site, _ = publish(shown)
    age(site)
    longer = extend(shown, cards=(H200,))
    publish(longer)
    assert rewritten(site) == series_of(site, H200.machine)
    assert len(rewritten(site)) == 2
    assert_as_anew(site, anew(longer, tmp_path, monkeypatch))


def touch_result(written, site):
    path = written.result(0)
    path.write_text(path.read_text().replace('"params"', ' "params"', 1))


def forget_track(written, site):
    path = written.results / "benchmarks.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({name: each for name, each in told.items() if "power_w" not in name}))


def decide(written, site):
    (found,) = read_history(written.results, written.repository).conclusion.open
    commit = written.commits[found.change.bad][:12]
    decision = Decision(id=found.change.id, case=found.change.case, commit=commit, reason="a", author="A")
    acknowledge(written.repository, decision)


@pytest.mark.parametrize(
    ("happens", "cards"),
    [
        (touch_result, [H200]),
        (lambda written, site: written.result(3).unlink(), [H200]),
        (forget_track, [H200, A100]),
        (lambda written, site: shutil.rmtree(site), [H200, A100]),
        (decide, [H200, A100]),
        (lambda written, site: amended(written, 3), [H200, A100]),
        (lambda written, site: move(written, "main~2"), [H200, A100]),
    ],
    ids=["changed", "deleted", "benchmarks", "html", "triage", "amended", "back"],
)
def test_what_a_change_concerns_is_written_as_anew(shown, tmp_path, monkeypatch, happens, cards):
    site, _ = publish(shown)
    age(site)
    happens(shown, site)
    publish(shown)
    assert rewritten(site) == {file for card in cards for file in series_of(site, card.machine)}
    assert_as_anew(site, anew(shown, tmp_path, monkeypatch))


def test_results_of_commits_that_are_merged_later_are_shown_then(shown, tmp_path, monkeypatch):
    move(shown, "main~2")
    site, before = publish(shown)
    assert any("2 of 60 results are of commits that are not in the history" in p for p in before.problems)
    move(shown, shown.commits[-1])
    _, after = publish(shown)
    assert after.points == before.points + 2 * 4
    assert after.problems == ()
    assert_as_anew(site, anew(shown, tmp_path, monkeypatch))


def test_figures_of_commits_that_were_written_anew_are_no_longer_compared(made, tmp_path, monkeypatch):
    written = made(commits=66)
    site, _ = publish(written)
    assert (site / f"data/at/{H200.machine}/1.js").exists()
    amended(written, 3)
    publish(written)
    assert not (site / f"data/at/{H200.machine}/1.js").exists()
    assert_as_anew(site, anew(written, tmp_path, monkeypatch))


def test_series_of_many_cases_are_for_pages_alone(made, monkeypatch):
    written = made(commits=40, events=(Step(case=None, at=20, effect=-0.1),))
    site, _ = publish(written)
    files = [each["file"] for each in api(site, "site")["series"]]
    assert all((site / f"api/series/{file}.json").exists() for file in files)
    monkeypatch.setattr(card_documents, "_API_CASES", 1)
    [event] = api(site, "events")
    decision = Decision(id=event["id"], commit=event["bad_hash"], reason="a trade", author="Ada")
    acknowledge(written.repository, decision)
    assert publish(written)[1].open == 0
    assert not any((site / f"api/series/{file}.json").exists() for file in files)
    assert states_of_pages(site) == {"acknowledged"}


def test_a_decision_expires_without_a_change_of_files(shown):
    (found,) = read_history(shown.results, shown.repository).conclusion.open
    decision = Decision(
        id=found.change.id,
        case=NAIVE,
        commit=shown.commits[FALL],
        reason="a trade",
        author="Ada",
        expires=TODAY,
    )
    acknowledge(shown.repository, decision)
    site, done = publish(shown)
    assert (done.open, api(site, "site")["counts"]["acknowledged"]) == (0, 1)
    _, done = publish(shown, today=TODAY + dt.timedelta(days=1))
    counts = api(site, "site")["counts"]
    assert (done.open, counts["acknowledged"], counts["expired"]) == (1, 0, 1)
    badges = [json.loads(path.read_text())["message"] for path in sorted(site.glob("badges/*.json"))]
    assert badges == ["no regression", "1 regression"]


def test_a_new_card_takes_its_place_before_one_that_is_known(shown, tmp_path, monkeypatch):
    folder = shown.results / A100.machine
    folder.rename(tmp_path / "later")
    site, first = publish(shown)
    assert first.cards == 1
    (tmp_path / "later").rename(folder)
    _, second = publish(shown)
    assert (second.cards, second.series) == (2, 4)
    assert_as_anew(site, anew(shown, tmp_path, monkeypatch))


# Bad input


def problems_of(site):
    return api(site, "site")["problems"]


def test_two_folders_of_one_machine_are_two_cards(made):
    written = made(commits=8)
    other = synthetic.split_machine(written, H200)
    site, done = publish(written)
    cards = api(site, "site")["cards"]
    assert [card["name"] for card in cards] == [H200.machine] * 2
    assert [card["file"] for card in cards] == [H200.machine, other.name]
    assert [card["points"] for card in cards] == [8, 8]
    assert done.points == 16
    series = api(site, "site")["series"]
    assert len({each["file"] for each in series}) == 4
    assert [api(site, f"series/{each['file']}")["card"] for each in series] == [0, 0, 1, 1]


def without_machine(written):
    (written.results / H200.machine / "machine.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "told", "points"),
    [
        (without_machine, "machine.json is missing or damaged", 12),
        (lambda written: synthetic.truncate(written.result(2)), "is left out", 10),
        (
            lambda written: synthetic.make_newer(written.result(2)),
            "the format is 3, and this harness reads 2",
            10,
        ),
        (lambda written: synthetic.rebase_away(written, 1, 3), "2 of 6 results are of commits", 8),
    ],
    ids=["machine", "truncated", "newer", "unknown"],
)
def test_what_cannot_be_read_is_told_and_the_rest_is_published(harness, made, spoil, told, points):
    written = made()
    spoil(written)
    done = harness("publish", "--without-asv", "--json")
    assert done.status == ExitCode.FINE
    said = done.json
    [problem] = said["problems"]
    assert problem.startswith(f"{H200.machine}: ")
    assert told in problem
    assert said["points"] == points
    assert done.err == "".join(f"harness: {each}\n" for each in (problem, *said["unrecorded"]))
    site = Path(said["folder"])
    assert problems_of(site) == [problem]
    [card] = api(site, "site")["cards"]
    assert card["name"] == H200.machine
    assert {"level": "warning", "text": "1 problem with its files."} in card["health"]
    # A second look finds nothing changed, and says the same.
    assert harness("publish", "--without-asv").err == done.err


def test_a_history_without_a_card_has_pages(harness, made):
    written = made(cards=())
    done = harness("publish", "--without-asv", "--json")
    assert done.status == ExitCode.FINE
    told = done.json
    assert (told["cards"], told["series"], told["points"], told["open"]) == (0, 0, 0, 0)
    site = Path(told["folder"])
    assert (site / "index.html").exists()
    assert api(site, "site")["cards"] == api(site, "site")["series"] == api(site, "changes") == []
    assert api(site, "site")["commits"]["newest"]["hash"] == written.commits[-1]
    assert ET.parse(site / "feed.xml").getroot().findall(f"{ATOM}entry") == []


def test_a_card_without_results_is_there_and_not_measured(made):
    written = made()
    for path in (written.results / H200.machine).glob("*-pyany.json"):
        path.unlink()
    site, done = publish(written)
    assert (done.cards, done.series, done.points) == (1, 0, 0)
    [card] = api(site, "site")["cards"]
    assert card["newest"] is None
    assert json.loads((site / f"badges/{card['file']}.json").read_text())["message"] == "not measured"
    document = api(site, f"cards/{card['file']}")
    assert (document["commit"], document["ladder"], document["runs"]) == (None, [], [])


def test_a_comparison_adds_changes_of_the_problem_and_the_reason_of_a_regression(made):
    written = made()
    line = git(written.repository, "rev-list", "--reverse", "--first-parent", "HEAD").split()
    told = "largest tolerance: 1e-06 → 1e+06 at 1024 float32."
    time = Effect(effect=0.5, low=0.4, high=0.6, processes=2, quads=9)
    slower = sample_case("naive", 1024, "regression", time=time, diagnosis=diagnosis())

    def store(name, base, head, *changes):
        described = {
            "command": "compare",
            **{side: {"suite": "matmul", "commit": c} for side, c in (base, head)},
        }
        verdicts = [{"verdict": asdict(slower)}] if name == 2 else []
        lines = [{"comparison": described}, *verdicts, {"complete": True, "problem_changes": changes}]
        path = written.results / H200.machine / f"20260101T00000{name}Z-a..b-matmul-0000000{name}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    store(1, ("base", line[1]), ("head", line[3]), told)
    store(2, ("base", line[1]), ("head", line[2]))
    store(3, ("base", "f" * 40), ("head", line[2]), told)
    site, _ = publish(written)
    found = api(site, f"cards/{H200.machine}")["problem_changes"]
    assert found == [{"suite": "matmul", "base": 1, "head": 3, "changes": [told]}]
    [change] = [each for each in api(site, "changes") if each["good"] == 1 and each["bad"] == 2]
    changes = api(site, f"series/{change['series']}")["changes"]
    [reason] = [each["diagnosis"] for each in changes if each["diagnosis"]]
    assert reason["why"] == why(diagnosis())
    assert ["L2 hits, %", "61.3", "22.0", "-39.3 points"] in reason["counters"]
    assert reason["loop"]["lines"][1] == {"change": "alike", "text": "", "place": "", "count": 152}


def test_a_machine_s_folder_may_have_any_name(harness, made):
    written = made(commits=3, records=True)
    hostile = "..\u202e<b>\x1b[31m &'\" \u2028"
    folder = written.results / hostile
    (written.results / H200.machine).rename(folder)
    (folder / "machine.json").unlink()
    (folder / "\x1b[2J.json").write_text("{")
    done = harness("publish", "--without-asv")
    assert done.status == ExitCode.FINE
    assert not {"\x1b", "\u202e", "\u2028"} & set(done.out + done.err)
    assert len(done.err.splitlines()) == 1
    site = written.repository / ".asv/html/harness"
    [card] = api(site, "site")["cards"]
    assert card["name"] == hostile
    assert card["file"] == file_name(hostile)
    assert (site / f"data/cards/{card['file']}.js").exists()
    assert (site / f"badges/{card['file']}.svg").exists()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", path.name) for path in site.rglob("*"))
    assert all(path.resolve().is_relative_to(site.resolve()) for path in site.rglob("*"))


def test_hostile_commits_and_kernels_reach_the_pages_whole_and_harmless(made):
    kernels = tuple(f"{text[:40]}{number}" for number, text in enumerate(HOSTILE_TEXTS))
    written = made(
        commits=40,
        cards=(Card(name="evil <b>\x1b[2J\u202e card"),),
        suites=(Suite(kernels=kernels, sizes=(1024,)),),
        events=(Step(case=None, at=20, effect=-0.1),),
        hostile=True,
    )
    site, done = publish(written)
    assert done.open == len(kernels)
    changes = api(site, "changes")
    subjects = dict(zip(written.commits, [row[3] for row in api(site, "commits/0")], strict=True))
    assert all(each["subject"] == subjects[each["bad_hash"]] for each in changes)
    assert all(len(subject) <= 500 for subject in subjects.values())
    assert {each["name"] for each in api(site, "site")["cases"]} == {f"matmul.{k}@1024" for k in kernels}
    for path in (site / "data").rglob("*.js"):
        script = path.read_text("utf-8")
        assert "</" not in script
        assert not set("\u2028\u2029\x1b\x00") & set(script)
        assert script.count("\n") == 1
    [entry] = ET.parse(site / "feed.xml").getroot().findall(f"{ATOM}entry")
    assert f"and {len(kernels) - 1} more on 1 card" in str(said(entry, "title"))


# Runs


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run of two cases with telemetry."""
    history = History(commits=1, suites=(SUITE,), tracks=("gflops",), records=True)
    written = write(history, tmp_path_factory.mktemp("run"))
    return read_run(written.records(H200)[0])


def moment(at_s, *reasons, clock=1980.0):
    return Snapshot(at_ns=round(1e9 * (100 + at_s)), sm_clock_mhz=clock, clock_event_reasons=reasons)


def timed(stored, *cases):
    """The run with snapshots (before, during, after) and seconds of its measurements."""
    rows = []
    for row, (begin, end, snapshots) in zip(stored.rows, cases, strict=True):
        before, *during, after = snapshots
        nanoseconds = {"started_ns": round(1e9 * (100 + begin)), "ended_ns": round(1e9 * (100 + end))}
        telemetry = replace(row.telemetry, before=before, during=tuple(during), after=after)
        rows.append(replace(row, measurement=replace(row.measurement, **nanoseconds), telemetry=telemetry))
    return replace(stored, rows=tuple(rows))


def document(stored, position=7):
    """As programs get it."""
    told = run_document(stored, 3, position)
    telemetry = told["telemetry"]
    if telemetry:
        plain = {k: each.plain() if isinstance(each, Numbers) else each for k, each in telemetry.items()}
        told = {**told, "telemetry": plain}
    return told


def test_seconds_of_a_run_count_from_its_first_snapshot(stored):
    first = [moment(0), moment(1, clock=None), moment(2)]
    second = [moment(2.5, clock=1500.0), moment(3), moment(4)]
    told = document(timed(stored, (0.5, 1.5, first), (2.75, 3.5, second)))
    assert [(row["begin_s"], row["end_s"]) for row in told["rows"]] == [(0.5, 1.5), (2.75, 3.5)]
    assert told["telemetry"]["at_s"] == [0, 1, 2, 2.5, 3, 4]
    assert told["telemetry"]["sm_clock_mhz"] == [1980, None, 1980, 1500, 1980, 1980]
    assert told["telemetry"]["power_w"] == [None] * 6
    assert told["telemetry"]["reasons"] == []
    assert (told["card"], told["commit"], told["hash"]) == (3, 7, stored.run.source.commit)


def test_snapshots_are_in_order_of_time_whatever_the_order_of_rows(stored):
    later, sooner = [moment(5), moment(6), moment(7)], [moment(0), moment(1), moment(2)]
    told = document(timed(stored, (5.5, 6.5, later), (0.5, 1.5, sooner)))
    assert told["telemetry"]["at_s"] == [0, 1, 2, 5, 6, 7]
    assert [row["begin_s"] for row in told["rows"]] == [5.5, 0.5]


def test_reasons_of_the_clock_are_spans_of_snapshots_that_say_the_same(stored):
    heat, both = ("sw_thermal",), ("sw_thermal", "sw_power_cap")
    first = [moment(0), moment(1, *heat), moment(2, *heat)]
    second = [moment(3, *heat), moment(4, *both), moment(5)]
    told = document(timed(stored, (0.5, 1.5, first), (3.5, 4.5, second)))
    assert told["telemetry"]["reasons"] == [(1, 3, "sw_thermal"), (4, 4, "sw_thermal, sw_power_cap")]


def test_a_device_that_tells_no_reasons_has_none(stored):
    silent = [replace(moment(at), clock_event_reasons=None) for at in range(3)]
    told = document(timed(stored, (0.5, 1.5, silent), (0.5, 1.5, silent)))
    assert told["telemetry"]["reasons"] == []


def test_a_run_without_telemetry_has_the_seconds_of_its_rows(stored):
    rows = tuple(replace(row, telemetry=None) for row in timed(stored, *[(2, 3, [moment(0)] * 3)] * 2).rows)
    told = document(replace(stored, rows=rows), position=None)
    assert told["telemetry"] is None
    assert [(row["begin_s"], row["end_s"]) for row in told["rows"]] == [(0, 1), (0, 1)]
    assert told["commit"] is None


def test_a_run_in_which_everything_failed_has_rows_without_seconds(stored):
    failed = tuple(
        replace(row, telemetry=None, measurement=None, status="failed", reason="build-failed", message="no")
        for row in stored.rows
    )
    told = document(replace(stored, rows=failed))
    assert told["telemetry"] is None
    assert {(row["begin_s"], row["end_s"], row["time_ms"]) for row in told["rows"]} == {(None, None, None)}
    assert {(row["status"], row["reason"], row["message"]) for row in told["rows"]} == {
        ("failed", "build-failed", "no")
    }


def test_a_run_of_no_row_is_a_document(stored):
    told = document(RunResult(stored.run, (), None, interrupted=True))
    assert (told["rows"], told["telemetry"]) == ([], None)
    assert told["hash"] == asdict(stored.run)["source"]["commit"]


def test_runs_of_a_card_are_listed_newest_first_with_their_documents(made):
    written = made(commits=26, records=True)
    site, _ = publish(written)
    runs = api(site, f"cards/{H200.machine}")["runs"]
    assert [run["commit"] for run in runs] == [*range(25, 1, -1)]
    for run in runs[:2]:
        told = api(site, f"runs/{run['file']}")
        assert (told["commit"], told["hash"]) == (run["commit"], written.commits[run["commit"]])
        assert min(told["telemetry"]["at_s"]) == 0
        assert all(row["begin_s"] >= 0 for row in told["rows"])


def test_a_damaged_record_costs_its_own_page_alone(made):
    written = made(commits=4, records=True)
    newest = written.records(H200)[-1]
    newest.write_bytes(newest.read_bytes().split(b"\n", 1)[0] + b"\n{]\n{}\n")
    site, done = publish(written)
    assert done.points == 6
    [problem] = done.problems
    assert problem.endswith("asv's file of this commit has 2 results of the suite: run 'harness import asv'.")
    runs = api(site, f"cards/{H200.machine}")["runs"]
    assert [run["commit"] for run in runs] == [2, 1, 0]
