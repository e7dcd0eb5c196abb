"""Reports that a pull request's code may have written. Honest reports are read. False reports are refused
with a reason, and nothing of them is posted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import random
import re
import stat
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.ci.github.artifacts import MAX_ARTIFACTS, unpacked
from harness.ci.posts import merged, read_report
from harness.errors import RefusedError
from harness.judgement.judge import MetricEffects, MetricName, Policy, judge
from harness.judgement.statistics.moderated import Prior
from harness.judgement.statistics.paired import ProcessEffect
from harness.records.record_files import CalibrationSummary
from harness.records.types import Arm, Effect
from harness.report.document.check import problems
from harness.report.document.document import LIMITS, Review, decode_review, encode
from harness.report.document.from_results import review_of
from harness.run.compare_settings import CompareSettings, policy_for
from harness.run.stored_comparisons import newest_comparisons
from tests import review_samples as samples
from tests.commits import make_project, only
from tests.github_reports import Member, archive, deflated, honest, left, posting, zeros, zipped
from tests.github_server import BASE, HEAD, RUN, Artifact, run_event, serving
from tests.support import ROOT, run_command, write_null_script
from tests.test_records_file import RUN as STORED_RUN

CLEAN = honest(samples.clean())
DOCUMENT = encode(CLEAN)
SECRET = "Gotcha"
"""A word in every report here. No post and no file may contain it."""


def read_review(content: bytes) -> Review:
    return read_report(content, "x", decode_review)


def document(**over: Any) -> dict[str, Any]:
    """The report as JSON, to be spoilt."""
    return {**json.loads(DOCUMENT), "harness_version": SECRET, **over}


def changed(change: Any) -> bytes:
    """The report after a function has changed it in place."""
    made = document()
    change(made)
    return json.dumps(made).encode()


def of_card(**over: Any) -> bytes:
    return changed(lambda made: made["cards"][0].update(over))


def of_case(**over: Any) -> bytes:
    return changed(lambda made: made["cards"][0]["cases"][-1].update(over))


def of_time(**over: Any) -> bytes:
    return changed(lambda made: made["cards"][0]["cases"][-1]["time"].update(over))


def of_side(**over: Any) -> bytes:
    return changed(lambda made: made["cards"][0]["cases"][-1]["head"].update(over))


def literally(old: str, new: str) -> bytes:
    """The report with a text replaced that JSON's own writer would not write."""
    text = json.dumps(document())
    assert old in text
    return text.replace(old, new, 1).encode()


def many_entries(count: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for number in range(count):
            made.writestr(str(number), b"")
    return stream.getvalue()


def tarred() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        made.addfile(tarfile.TarInfo("review.json"))
    return stream.getvalue()


GOOD = Member.of(DOCUMENT)
TWICE = f'"schema_version": 4, "harness_version": "{SECRET}", "harness_version": "1"'

ARCHIVES: dict[str, tuple[bytes, str]] = {
    "parent folder": (archive(Member.of(DOCUMENT, name=b"../review.json")), r"called '\.\./review"),
    "far up": (archive(Member.of(DOCUMENT, name=b"../" * 20 + b"etc/passwd")), "called"),
    "absolute path": (archive(Member.of(DOCUMENT, name=b"/review.json")), "called '/review"),
    "drive": (archive(Member.of(DOCUMENT, name=b"C:\\review.json")), "called 'C:"),
    "backslashes": (archive(Member.of(DOCUMENT, name=b"..\\review.json")), "called"),
    "folder": (archive(Member.of(DOCUMENT, name=b"a/review.json")), "called 'a/review"),
    "folder itself": (archive(Member.of(b"", name=b"review.json/")), "called 'review.json/'"),
    "capitals": (archive(Member.of(DOCUMENT, name=b"REVIEW.JSON")), "called 'REVIEW"),
    "zero byte": (archive(Member.of(DOCUMENT, name=b"review.json\0.exe")), "called"),
    "no name": (archive(Member.of(DOCUMENT, name=b"")), "called ''"),
    "command as name": (archive(Member.of(DOCUMENT, name=b"\n::error::x ##[debug]")), "called"),
    "symlink": (archive(Member.of(b"/etc/passwd", attributes=stat.S_IFLNK | 0o777)), "link"),
    "fifo": (archive(Member.of(DOCUMENT, attributes=stat.S_IFIFO | 0o644)), "special"),
    "device": (archive(Member.of(DOCUMENT, attributes=stat.S_IFBLK | 0o644)), "special"),
    "directory by mode": (archive(Member.of(b"", attributes=stat.S_IFDIR | 0o755)), "special"),
    "two files": (archive(GOOD, Member.of(b"x", name=b"x")), "2 entries"),
    "the same file twice": (archive(GOOD, GOOD), "2 entries"),
    "no file": (archive(), "0 entries"),
    "many files": (many_entries(2000), "2000 entries"),
    "directory with more than it counts": (
        archive(GOOD, Member.of(b"", name=b"x")).replace(b"\0\0\0\0\2\0\2\0", b"\0\0\0\0\1\0\1\0"),
        "holds 2 files",
    ),
    "archive in the archive": (zipped(zipped(DOCUMENT), "inner.zip"), "called 'inner.zip'"),
    "archive in the file": (zipped(zipped(DOCUMENT)), "cannot be read"),
    "1 GB of zeros": (archive(Member(packed=zeros(1), size=2**30, crc=0)), "1073741824 bytes, more than"),
    "1 GB of zeros that says 10": (
        archive(Member(packed=zeros(1), size=10, crc=0)),
        "more than 16777216 bytes",
    ),
    "4 GB of zeros that says 10": (
        archive(Member(packed=zeros(4), size=10, crc=0)),
        "more than 16777216 bytes",
    ),
    "17 MB": (zipped(b" " * (LIMITS["bytes"] + 1)), "more than 16777216"),
    "size too small": (archive(Member.of(DOCUMENT, size=100)), "not 100 as its directory says"),
    "size and checksum of a part": (
        archive(Member.of(DOCUMENT, size=2, crc=Member.of(DOCUMENT[:2]).crc)),
        "not 2 as its directory says",
    ),
    "size too large": (archive(Member.of(DOCUMENT, size=len(DOCUMENT) + 1)), "as its directory says"),
    "packed size too small": (archive(Member.of(DOCUMENT, packed_size=10)), "something between"),
    "packed size too large": (archive(Member.of(DOCUMENT, packed_size=10**6)), "truncated"),
    "checksum": (archive(Member.of(DOCUMENT, crc=1)), "damaged"),
    "rubbish packed": (archive(Member.of(DOCUMENT, packed=b"\xff" * 50)), "invalid"),
    "something after the packed file": (
        archive(Member.of(DOCUMENT, packed=deflated(DOCUMENT) + b"more")),
        "something follows",
    ),
    "packed file that breaks off": (
        archive(Member.of(DOCUMENT, packed=deflated(DOCUMENT)[:-20])),
        "truncated, or something follows",
    ),
    "half of it": (zipped(DOCUMENT)[: len(zipped(DOCUMENT)) // 2], "does not end as one"),
    "all but a byte": (zipped(DOCUMENT)[:-1], "does not end as one"),
    "without its beginning": (zipped(DOCUMENT)[10:], "something between"),
    "nothing": (b"", "1 to"),
    "one byte": (b"P", "does not end as one"),
    "a web page": (b"<html><script>alert(1)</script>" * 10, "does not end as one"),
    "gzip": (gzip.compress(DOCUMENT), "does not end as one"),
    "tar": (tarred(), "does not end as one"),
    "bare JSON": (DOCUMENT, "does not end as one"),
    "encrypted": (archive(Member.of(DOCUMENT, flags=0x1)), "encrypted"),
    "strongly encrypted": (archive(Member.of(DOCUMENT, flags=0x41)), "encrypted"),
    "masked": (archive(Member.of(DOCUMENT, flags=0x2000)), "encrypted"),
    "patch": (archive(Member.of(DOCUMENT, flags=0x20)), "encrypted"),
    "bzip2": (archive(Member.of(DOCUMENT, method=12)), "method 12"),
    "lzma": (archive(Member.of(DOCUMENT, method=14)), "method 14"),
    "unknown method": (archive(Member.of(DOCUMENT, method=99)), "method 99"),
    "other name in the file": (archive(Member.of(DOCUMENT, local_name=b"../evil.sh")), "disagree"),
    "no beginning of a file": (b"PK\x05\x05" + archive(GOOD)[4:], "disagree"),
    "comment": (archive(GOOD, comment=b"hello"), "does not end as one|comment"),
    "comment that is an archive's end": (archive(GOOD, comment=archive()), "comment|directory has 0"),
    "program before it": (archive(GOOD, before=b"#!/bin/sh\nrm -rf /\n"), "before the file"),
    "hidden file": (archive(GOOD, between=Member.of(b"hidden").local()), "something between"),
    "zip64": (archive(GOOD, end=b"PK\x06\x06" + bytes(52) + b"PK\x06\x07" + bytes(16)), "something between"),
    "file elsewhere": (archive(Member.of(DOCUMENT, offset=5)), "before the file"),
    "file beyond": (archive(Member.of(DOCUMENT, offset=2**32 - 1)), "before the file|not an archive"),
}
"""Wrong archives, with the reason of each refusal, by their fault."""

DOCUMENTS: dict[str, tuple[bytes, str]] = {
    "NaN": (literally('"margin": 0.0025', '"margin": NaN'), "not one"),
    "Infinity": (literally('"margin": 0.0025', '"margin": Infinity'), "not one"),
    "minus Infinity": (literally('"margin": 0.0025', '"margin": -Infinity'), "not one"),
    "1e999": (literally('"margin": 0.0025', '"margin": 1e999'), "not one"),
    "number as a string": (of_time(effect="0.01"), "Expected `float`, got `str`"),
    "whole number as a string": (of_case(sizes={"m": "1024"}), "Expected `int`, got `str`"),
    "number as truth": (of_time(effect=True), "Expected `float`, got `bool`"),
    "whole number that is none": (of_case(sizes={"m": 1.5}), "Expected `int`"),
    "HTML in a kernel's name": (of_case(kernel="<script>alert(1)</script>"), "matching regex"),
    "HTML in a case's name": (of_case(case="<img src=x onerror=alert(1)>"), "matching regex"),
    "mention": (of_case(case="matmul.@everyone[m=1]"), "matching regex"),
    "Markdown": (of_case(case="matmul.[x](https://evil.example)"), "matching regex"),
    "command in a name": (of_case(kernel="a\n::error::x"), "matching regex"),
    "breakout of a table": (of_case(reason="a | b"), "matching regex"),
    "line break after a name": (of_case(kernel="naive\n"), "matching regex"),
    "control characters in a card's name": (of_card(device="H200\x1b[2J"), "matching regex"),
    "other letters in a card's name": (of_card(device="H2\u202e00"), "matching regex"),
    "a card's name of a megabyte": (of_card(device="x" * 10**6), "matching regex"),
    "message of a megabyte": (of_case(message="x" * 10**6), "length <= 2000"),
    "place outside": (of_card(places={"naive": {"path": "../../etc/passwd", "line": 1}}), "matching regex"),
    "absolute place": (of_card(places={"naive": {"path": "/etc/passwd", "line": 1}}), "matching regex"),
    "place at line 0": (of_card(places={"naive": {"path": "a.cu", "line": 0}}), ">= 1"),
    "number of a pull request": (
        json.dumps(document(pull_request=1)).encode(),
        "unknown field `pull_request`",
    ),
    "unknown field of a card": (of_card(html="<b>"), "unknown field `html`"),
    "unknown field of a case": (of_case(comment="LGTM"), "unknown field `comment`"),
    "unknown field that is a command": (of_case(**{"\n::error::x ##[debug]y": 1}), "unknown field"),
    "future schema": (json.dumps(document(schema_version=5)).encode(), "version 5; this harness reads 4"),
    "the schema before verdicts": (
        json.dumps(document(schema_version=3)).encode(),
        "version 3; this harness",
    ),
    "schema before the first": (json.dumps(document(schema_version=0)).encode(), "version 0"),
    "schema as a string": (json.dumps(document(schema_version="1")).encode(), "Expected `int`"),
    "no schema": (changed(lambda made: made.pop("schema_version")), "required field `schema_version`"),
    "no base at all": (changed(lambda made: made.pop("base")), "required field `base`"),
    "unknown field of an effect": (of_time(each=[0.1]), "unknown field `each`"),
    "unknown field of a side": (of_side(registers=40), "unknown field `registers`"),
    "effect beyond reason": (of_time(effect=1e7), "<= 1000000.0"),
    "effects of more processes than are shown": (of_time(process_effects=[0.1] * 65), "length <= 64"),
    "more gates than there are": (of_case(touched={f"g{at}": 1 for at in range(33)}), "length <= 32"),
    "reasons of more gates": (of_case(unavailable={f"g{at}": "" for at in range(33)}), "length <= 32"),
    "megabyte of why a gate has no data": (of_case(unavailable={"g": "x" * 10**6}), "length <= 2000"),
    "HTML in a type": (of_case(dtype="<b>\u202e"), "matching regex"),
    "HTML in an architecture": (of_side(resources={"arch": "\n<b>"}), "matching regex"),
    "negative registers": (of_side(resources={"registers": -1}), ">= 0"),
    "kernels that no face shows": (of_side(resources={"kernels": [{"name": "x" * 10**6}]}), "length <= 0"),
    "instructions that no face shows": (of_side(resources={"instructions": {"FFMA": 1}}), "length <= 0"),
    "steps that no face shows": (
        of_side(launch={"grid": [1, 1, 1], "block": [1, 1, 1], "steps": [{"steps": []}]}),
        "length <= 0",
    ),
    "grid of two": (of_side(launch={"grid": [1, 1], "block": [1, 1, 1]}), "length 3"),
    "more strays than can be": (
        of_case(strays={"base": 2**60, "head": 0, "slots": 1, "cost": 0.0}),
        "<= 9007199254740992",
    ),
    "probability above 1": (of_case(order_p=2.0), "<= 1.0"),
    "unknown status": (of_case(status="approved"), "Invalid enum value"),
    "deep nesting": (b'{"schema_version":2,"cards":' + b"[" * 100_000, "not one"),
    "deep nesting of a field": (literally('"margin": 0.0025', f'"margin": {"[" * 5000}'), "not one"),
    "huge number": (of_case(sizes={"m": 10**400}), "not one"),
    "number of 5000 digits": (literally('"m": 1024', f'"m": {"9" * 5000}'), "not one"),
    "number beyond 64 bits": (of_case(sizes={"m": 2**64}), "not one"),
    "invalid UTF-8": (DOCUMENT.replace(b"matmul", b"mat\xffmul", 1), "not one"),
    "overlong UTF-8": (DOCUMENT.replace(b"matmul", b"mat\xc0\xaful", 1), "not one"),
    "UTF-16": (json.dumps(document()).encode("utf-16"), "not one"),
    "byte order mark": (b"\xef\xbb\xbf" + DOCUMENT, "not one"),
    "half of a surrogate": (literally('"message": "', '"message": "\\ud800'), "not one"),
    "a name twice": (literally(f'"schema_version": 4, "harness_version": "{SECRET}"', TWICE), "name twice"),
    "a size twice": (literally('"m": 1024', '"m": 1, "m": 1024'), "name twice"),
    "a status twice": (
        literally('"status": "improvement"', '"status": "regression", "status": "improvement"'),
        "name twice",
    ),
    "two documents": (DOCUMENT + DOCUMENT, "not one"),
    "nothing": (b"", "not one"),
    "null": (b"null", "not one"),
    "list": (b"[]", "not one"),
    "a number": (b"1", "not one"),
    "rubbish": (bytes(range(256)), "not one"),
    "zeros": (bytes(10_000), "not one"),
    "too many cards": (changed(lambda made: made.update(cards=made["cards"] * 65)), "length <= 64"),
}
"""Wrong files, with the reason of each refusal, by their fault."""


def spoilt(**over: Any) -> Review:
    """The report with the first case of its card changed."""
    card = CLEAN.cards[0]
    first, *others = (case for case in card.cases if case.status == "unchanged")
    return replace(
        CLEAN, cards=(replace(card, cases=(replace(first, **over), *others), twins=(), places={}),)
    )


def with_card(**over: Any) -> Review:
    return replace(CLEAN, cards=(replace(CLEAN.cards[0], **over),))


def moved(effect: float, low: float | None = None, high: float | None = None, **over: Any) -> Effect:
    return Effect(
        **{
            "effect": effect,
            "low": effect - 0.001 if low is None else low,
            "high": effect + 0.001 if high is None else high,
            "processes": 4,
            "quads": 100,
            **over,
        }
    )


CARD = CLEAN.cards[0]
IDENTICAL = next(case for case in CARD.cases if case.status == "identical")
SAME, PLANTED = CARD.twins

IMPLAUSIBLE: dict[str, tuple[Review, str]] = {
    "no card": (replace(CLEAN, cards=()), "no card"),
    "other head": (replace(CLEAN, head="d" * 40), f"of head d+; expected {HEAD}"),
    "no head": (replace(CLEAN, head=None), "of head unknown"),
    "head with more digits": (replace(CLEAN, head=HEAD + "0" * 24), "expected"),
    "other base": (replace(CLEAN, base="d" * 40), f"base d+; expected {BASE}"),
    "no base": (replace(CLEAN, base=None), "base unknown"),
    "head as base": (replace(CLEAN, base=HEAD), "same commit"),
    "head with changes": (with_card(head_dirty=True), "working tree"),
    "the same card twice": (replace(CLEAN, cards=CLEAN.cards * 2), "in it 2 times"),
    "a case twice": (with_card(cases=(*CARD.cases, CARD.cases[0])), "in it 2 times"),
    "a twin twice": (with_card(twins=(SAME, SAME)), "in it 2 times"),
    "a case of another suite": (spoilt(case="other.a[m=1]"), "should be called matmul"),
    "a case of another kernel": (spoilt(kernel="other"), r"should be called matmul\.other"),
    "a case of other sizes": (spoilt(sizes={"m": 1}), "should be called"),
    "a case that is called a twin": (with_card(cases=(replace(SAME),), twins=()), "should be called"),
    "a twin that is a case": (with_card(twins=(CARD.cases[0],), cases=CARD.cases[1:]), "no test"),
    "a place of no kernel": (
        with_card(places={"evil": samples.PLACES["naive"]}),
        "evil, which is the kernel",
    ),
    "a twin of no kernel": (with_card(twins=(replace(SAME, kernel="evil"),)), "evil, which is the kernel"),
    "margin 0": (with_card(margin=0.0), "margin of 0 %"),
    "negative margin": (with_card(margin=-0.5), "margin of -50 %"),
    "margin above the tolerance": (with_card(margin=0.02), "not below the tolerance"),
    "margin like the tolerance": (with_card(margin=0.01), "not below the tolerance"),
    "wide margin": (
        with_card(margin=0.026, tolerance=0.05),
        "margin of 2.6 % is not above 0 and up to 2.5 %",
    ),
    "wide tolerance": (with_card(tolerance=0.11), "tolerance of 11 %"),
    "margin of everything": (with_card(margin=1e6, tolerance=1e6), "margin of 1e"),
    "tolerance of all on a CPU": (with_card(kind="cpu", tolerance=1.0), "tolerance of 100 %"),
    "never sure enough": (with_card(confidence=0.9999999), "confidence"),
    "always sure": (with_card(confidence=0.5), "confidence"),
    "more false alarms than verdicts": (
        with_card(calibrated=CalibrationSummary(measured_at="x", driver="", verdicts=1, false_alarms=2)),
        "more false alarms",
    ),
    "effect below its interval": (spoilt(time=moved(0.0, low=0.001, high=0.002)), "outside its interval"),
    "effect above its interval": (spoilt(time=moved(0.003, low=0.001, high=0.002)), "outside its interval"),
    "interval turned round": (spoilt(time=moved(0.0, low=0.001, high=-0.001)), "outside its interval"),
    "cycles outside": (spoilt(cycles=moved(0.5, low=0.0, high=0.1)), "cycles changed by"),
    "energy outside": (spoilt(energy=moved(0.5, low=0.0, high=0.1, quads=0)), "energy changed by"),
    "fewer quads than processes": (spoilt(time=moved(0.0, quads=3)), "3 quads in 4 processes"),
    "effects of more processes": (
        spoilt(time=moved(0.0, process_effects=(0.0,) * 5)),
        "effects of 5 processes",
    ),
    "effect that no process had": (
        spoilt(time=moved(0.0, process_effects=(0.1, 0.2, 0.1, 0.3))),
        "in no process",
    ),
    "negative visible": (spoilt(smallest_visible=-0.1), "negative"),
    "negative floor": (spoilt(noise_floor=-0.1), "negative"),
    "regression that is faster": (
        spoilt(status="regression", time=moved(-0.1), cycles=None),
        "called regression for -10.0 %",
    ),
    "improvement in its strays that is sure to be slower": (
        spoilt(status="improvement", reason="faster-in-tail", time=moved(0.02), cycles=moved(0.01)),
        r"for its outliers, although usual times are \+2.00 % and \+1.00 % for sure",
    ),
    "regression in its strays that is sure to be faster": (
        spoilt(status="regression", reason="slower-in-tail", time=moved(-0.02), cycles=None),
        r"for its outliers, although usual times are -2.00 % for sure",
    ),
    "regression within the margin": (
        spoilt(status="regression", time=moved(0.001), cycles=moved(0.002)),
        r"called regression for \+0.10 % and \+0.20 %",
    ),
    "improvement that is slower": (
        spoilt(status="improvement", time=moved(0.1), cycles=None),
        "called improvement",
    ),
    "slowdown called unchanged": (spoilt(time=moved(0.05)), "called unchanged for \\+5.00 %"),
    "speed-up called unchanged": (spoilt(time=moved(-0.05)), "called unchanged for -5.00 %"),
    "anything called unchanged": (spoilt(time=moved(0.0, low=-0.9, high=5.0)), "called unchanged"),
    "regression without a figure": (spoilt(status="regression", time=None), "nothing was measured"),
    "unchanged without a figure": (spoilt(time=None), "nothing was measured"),
    "identical and slower": (
        with_card(cases=(replace(IDENTICAL, time=moved(0.0)),)),
        "identical, and yet has",
    ),
    "identical and visible": (with_card(cases=(replace(IDENTICAL, smallest_visible=0.1),)), "and yet has"),
    "new and measured": (spoilt(status="new", base=None), "new, and yet has measured"),
    "new, with a base": (
        with_card(cases=(replace(IDENTICAL, status="new", base=Arm()),), twins=()),
        "seen at both",
    ),
    "missing, with a head": (
        with_card(cases=(replace(IDENTICAL, status="missing", head=Arm()),), twins=()),
        "seen at both",
    ),
    "failed and measured": (spoilt(status="failed"), "failed, and yet has measured"),
    "fine, and failed at head": (spoilt(side="head"), "yet failed at head"),
    "judged, though the twin was flagged": (
        with_card(twins=(replace(SAME, status="regression", time=moved(0.1)), PLANTED)),
        "although twin.same",
    ),
    "judged, though the planted slowdown was missed": (
        with_card(twins=(SAME, replace(PLANTED, status="unchanged", time=moved(0.0)))),
        "although twin.planted",
    ),
}
"""Wrong reports of right types, with the reason of each refusal, by their fault."""

CORPUS = {
    **ARCHIVES,
    **{f"report: {name}": (zipped(content), why) for name, (content, why) in DOCUMENTS.items()},
    **{f"untrue: {name}": (zipped(encode(made)), why) for name, (made, why) in IMPLAUSIBLE.items()},
}


@pytest.fixture
def github():
    with serving() as server:
        server.open_pull()
        yield server


@pytest.fixture
def post(github, tmp_path, capsys, monkeypatch):
    return posting(github, tmp_path, capsys, monkeypatch)


def refused(github: Any, done: Any, reason: str) -> None:
    """Exit status, reason, and nothing anywhere but that."""
    assert (done.status, done.out) == (2, ""), done
    command, told = done.err.splitlines()
    assert command.startswith("::error title=harness ci post::")
    assert told.startswith("harness: ")
    assert "##[" not in done.err
    assert (command + told).isprintable()
    assert re.search(reason, told), told
    assert github.writes == []
    assert not Path("report").exists()
    assert not Path("summary.md").exists()


@pytest.mark.parametrize("name", CORPUS)
def test_what_lies_is_refused_with_a_reason_and_nothing_is_posted(github, post, name):
    content, reason = CORPUS[name]
    left(github, content)
    refused(github, post(run_event(), "--out", "report"), reason)


@pytest.mark.parametrize("name", ["two files", "report: NaN", "untrue: no card", "untrue: margin 0"])
def test_one_that_lies_among_honest_ones_spoils_them_all(github, post, name):
    """A false report of each kind, because archives, documents, reports and cards are checked in turn."""
    first, last = (replace(CLEAN, cards=(replace(CARD, device=f"NVIDIA {card}"),)) for card in ("L4", "L40S"))
    content, reason = CORPUS[name]
    left(github, first, content, last)
    refused(github, post(run_event()), reason)


@pytest.mark.parametrize(
    "made",
    [
        samples.clean,
        samples.regressions,
        samples.inconclusive,
        samples.invalid,
        samples.failed,
        samples.renamed,
        samples.interrupted,
        samples.distrusted,
    ],
)
def test_an_honest_report_is_read_as_it_was_written(made):
    review = honest(made())
    assert read_review(unpacked(zipped(encode(review)), "x")) == review
    assert problems(review, bases={BASE}, head=HEAD) == []


@pytest.mark.parametrize(
    "packed",
    [
        zipped(DOCUMENT),
        zipped(DOCUMENT, method=zipfile.ZIP_STORED),
        archive(GOOD),
        archive(Member.of(DOCUMENT, attributes=stat.S_IFREG | 0o644)),
        archive(Member.of(DOCUMENT, packed=DOCUMENT, method=zipfile.ZIP_STORED)),
        archive(Member.of(DOCUMENT, flags=0x800)),
    ],
)
def test_any_honest_archive_is_read(packed):
    """The first is written as to a pipe: its sizes come after the file."""
    assert zipped(DOCUMENT)[6] & 0x08
    assert unpacked(packed, "x") == DOCUMENT


def test_the_largest_report_there_can_be_is_read():
    content = DOCUMENT + b" " * (LIMITS["bytes"] - len(DOCUMENT))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert unpacked(zipped(content, method=method), "x") == content
    assert read_review(content) == CLEAN


def test_spoilt_bytes_never_make_another_error():
    rng = random.Random(1)
    packed = archive(Member.of(DOCUMENT[:300], packed=DOCUMENT[:300], method=zipfile.ZIP_STORED))
    read = 0
    for _ in range(1200):
        spoilt = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            at = (
                rng.randrange(len(spoilt)) if rng.random() < 0.3 else rng.choice([*range(45), *range(-80, 0)])
            )
            spoilt[at] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del spoilt[rng.randrange(len(spoilt)) :]
        with contextlib.suppress(RefusedError):
            read += unpacked(bytes(spoilt), "x") == DOCUMENT[:300]
    assert 0 < read < 1000  # times, versions and the like are nobody's business


def test_spoilt_reports_never_make_another_error():
    rng = random.Random(2)
    for _ in range(500):
        spoilt = bytearray(DOCUMENT)
        for _ in range(rng.randint(1, 3)):
            spoilt[rng.randrange(len(spoilt))] = (
                rng.choice(b'"{}[],:0-1eE.\\\xff\n') if rng.random() < 0.8 else 0
            )
        with contextlib.suppress(RefusedError):
            problems(read_review(bytes(spoilt)), bases={BASE}, head=HEAD)


def test_a_bomb_takes_no_more_memory_than_a_report_may():
    code = """\
    import resource
    from harness.errors import RefusedError
    from harness.ci.github.artifacts import unpacked
    from tests.github_reports import Member, archive, zeros

    for size in (4 * 2**30 - 1, 10):
        bomb = archive(Member(packed=zeros(4), size=size, crc=0))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            unpacked(bomb, "bomb")
        except RefusedError:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == 2
    assert max(grown) * 1024 < 4 * LIMITS["bytes"]


def test_a_directory_that_is_too_long_for_one_file_is_not_parsed(monkeypatch):
    """It could have entries without number, whatever it counts."""
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(RefusedError, match="its directory has 1 entries in 5046 bytes"):
        unpacked(archive(Member.of(b"", name=b"x" * 5000)), "x")


def test_what_an_artifact_is_called_is_checked(github, post):
    github.artifacts[RUN] = [Artifact(5, "perf-review-../../x\n::error::", zipped(DOCUMENT))]
    refused(github, post(run_event()), "An artifact is called")
    assert github.fetched == []


@pytest.mark.parametrize("size", [0, -1, LIMITS["bytes"] + 2**17, 2**62])
def test_what_an_artifact_says_of_its_size_is_checked_before_it_is_fetched(github, post, size):
    github.artifacts[RUN] = [Artifact(5, "perf-review-x", zipped(DOCUMENT), size_in_bytes=size)]
    refused(github, post(run_event()), "bytes; expected 1 to")
    assert github.fetched == []


def test_an_artifact_larger_than_it_says_is_not_read(github, post):
    github.artifacts[RUN] = [Artifact(5, "perf-review-x", bytes(LIMITS["bytes"] + 2**17), size_in_bytes=100)]
    refused(github, post(run_event()), "has more than .* bytes: it was not read")


def test_an_artifact_that_has_expired_is_refused(github, post):
    github.artifacts[RUN] = [Artifact(5, "perf-review-x", zipped(DOCUMENT), expired=True)]
    refused(github, post(run_event()), "perf-review-x has expired: run the measurement again")
    assert not [each for each in github.log if each.path.endswith("/zip")]


def test_an_artifact_that_expires_meanwhile_is_refused(github, post):
    left(github, CLEAN)
    github.trouble("GET", "/zip", 410, message="Artifact has expired")
    refused(github, post(run_event()), "has expired: run the measurement again")


def test_too_many_artifacts_are_refused(github, post):
    left(github, *[zipped(DOCUMENT)] * (MAX_ARTIFACTS + 1))
    refused(github, post(run_event()), "65 reports; at most 64")
    assert github.fetched == []


def test_artifacts_without_end_are_refused(github, post):
    github.artifacts[RUN] = [Artifact(number, f"log-{number}", b"x") for number in range(1001)]
    refused(github, post(run_event()), "1001 artifacts; at most 1000")


def test_reports_that_are_too_large_together_are_refused(github, post):
    large = zipped(DOCUMENT + b" " * (LIMITS["bytes"] - len(DOCUMENT)))
    left(github, *[large] * 5)
    refused(github, post(run_event()), "more than 67108864 bytes in all")


def test_reports_of_different_commits_are_not_made_one(github, post):
    left(github, CLEAN, replace(CLEAN, base="d" * 40))
    refused(github, post(run_event()), "different commits")


def test_a_card_in_two_reports_is_refused(github, post):
    left(github, CLEAN, CLEAN)
    refused(github, post(run_event()), r"on NVIDIA H200 \(cuda:0\) is in it 2 times")


def test_more_cards_in_all_than_a_report_may_have_are_refused():
    many = replace(CLEAN, cards=tuple(replace(CARD, device=f"card {n}") for n in range(40)))
    with pytest.raises(RefusedError, match="80 cards; at most 64"):
        merged([many, many])


def test_reports_of_several_cards_become_one():
    cards = [replace(CARD, device=f"card {number}") for number in range(3)]
    one = merged(
        replace(CLEAN, cards=(card,), created_at=f"2026-01-0{3 - at}", harness_version=version)
        for at, (card, version) in enumerate(zip(cards, ("2", "1", "2"), strict=True))
    )
    assert one.cards == tuple(cards)
    assert (one.created_at, one.harness_version) == ("2026-01-03", "1, 2")
    assert problems(one, bases={BASE}, head=HEAD) == []


def test_no_more_problems_are_told_than_anybody_reads():
    cases = tuple(replace(case, case="a") for case in CARD.cases)
    assert len(problems(with_card(cases=cases), bases={BASE}, head=HEAD)) == 20


@pytest.mark.parametrize("kind", ["gpu", "cpu", "other"])
def test_what_a_comparison_takes_by_itself_may_be_taken_tenfold(kind):
    usual = policy_for(dataclasses.replace(STORED_RUN.device, kind=kind), CompareSettings())
    for times, fine in ((1, True), (9.9, True), (10.1, False)):
        card = with_card(kind=kind, margin=times * usual.margin, tolerance=min(times * usual.tolerance, 0.5))
        told = " ".join(problems(card, bases={BASE}, head=HEAD))
        assert ("A margin of" not in told) == fine, told
        assert ("A tolerance of" not in told) == (fine or kind == "cpu"), told


@pytest.mark.slow
def test_no_real_comparison_is_called_a_lie(tmp_path):
    names = ("slower", "faster", "changed", "untouched", "gone", "fresh", "build_head", "wrong_base", "unfit")
    repository = make_project(tmp_path / "project", only(*names))
    script = write_null_script(tmp_path / "script.json", {"noise": {"kind": "bimodal", "seed": 1}})
    results = tmp_path / "results"
    done = run_command(
        *("compare", "HEAD~1", "HEAD", "--device", "null", "--twins", "--results", str(results)),
        cwd=repository,
        env={"HARNESS_NULL_SCRIPT": script, "HARNESS_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert "Traceback" not in done.stderr, done.stderr
    review = read_review(encode(review_of(newest_comparisons(results))))
    assert review.base
    assert review.head
    assert problems(review, bases={review.base}, head=review.head) == []
    assert {case.status for case in review.cards[0].cases} >= {
        "regression",
        "improvement",
        "unchanged",
        "identical",
        "missing",
        "new",
        "failed",
    }


@pytest.mark.parametrize("effect", [0.001, -0.001, -0.0034, 0.02])
def test_a_slowdown_in_strays_alone_can_be_true(effect):
    """Usual times within the margin, or not sure to be beyond it the other way."""
    told = spoilt(status="regression", reason="slower-in-tail", time=moved(effect), cycles=None)
    assert problems(told, bases={BASE}, head=HEAD) == []


def test_nothing_that_the_judge_says_is_called_a_lie():
    rng = random.Random(3)
    policy = Policy()
    seen: Counter[tuple[str, int]] = Counter()
    for _ in range(1500):
        spread = rng.choice((1e-4, 5e-4, 2e-3, 5e-3))
        count = rng.choice((1, 2, 4, 8))
        prior = Prior(variance=rng.choice((0, 1e-7, 1e-6)), df=rng.uniform(0.5, 30))
        names: tuple[MetricName, ...] = ("time", "cycles")
        metrics = []
        for name in names[: rng.choice((1, 2))]:
            middle = rng.gauss(0, 0.004)
            effects = tuple(
                ProcessEffect(
                    value=rng.gauss(middle, spread),
                    standard_error=spread * rng.random(),
                    df=rng.randint(1, 30),
                    quads=20,
                )
                for _ in range(count)
            )
            metrics.append(MetricEffects(name, effects, prior))
        found = judge(metrics, policy, rng.randrange(3), cycles_tell=rng.choice((None, False, True)))
        if found.status == "undecided":
            continue
        seen[found.status, len(found.metrics)] += 1
        status = {"same": "unchanged", "slower": "regression", "faster": "improvement"}[found.status]
        time, cycles = (
            moved(each.effect, each.low, each.high, processes=count, quads=20 * count)
            if (each := found.estimates.get(name))
            else None
            for name in names
        )
        told = problems(spoilt(status=status, time=time, cycles=cycles), bases={BASE}, head=HEAD)
        assert told == [], (found, told)
    assert seen.total() > 400
    assert min(seen.values()) > 5
