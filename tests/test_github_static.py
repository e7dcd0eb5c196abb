"""`harness ci post-static`: what anybody's pull request left becomes a comment in our words, or nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from harness.records.types import CodeLine
from harness.report.document.document import encode
from harness.report.document.outcome import Links
from harness.report.pull_request.comment_markdown import COMMENT_BYTES
from harness.report.pull_request.static_comment import (
    StaticReport,
    StaticRisk,
    StaticRow,
    StaticSuite,
    decode_static,
    static_comment,
)
from tests.github_reports import posting, zipped
from tests.github_server import HEAD, REPOSITORY, RUN, Artifact, run_event, serving
from tests.review_samples import ATTACKS, diagnosis

SPILL = StaticRisk("spill", "0 → 48 bytes spilled (naive.cu:12)")
LOOP = diagnosis().loop
ROW = StaticRow(
    kernel="naive",
    arch="sm_86",
    status="changed",
    changes=("registers 40 → 64",),
    risks=(SPILL,),
    loop=LOOP,
)
SUITE = StaticSuite(
    suite="matmul",
    counts={"identical": 4, "changed": 2},
    rows=(ROW, replace(ROW, arch="sm_89", risks=(replace(SPILL, text=SPILL.text.replace("12", "13")),))),
)
REPORT = StaticReport(
    harness_version="1", compilers=("nvcc 13.0",), base="b" * 40, head="c" * 40, suites=(SUITE,)
)


def event(**over):
    return run_event(
        event="pull_request",
        head_sha=HEAD,
        head_branch="main",
        head_repository={"full_name": "them/kernels"},
        path=".github/workflows/perf-static.yml",
        **over,
    )


@pytest.fixture
def github():
    with serving() as server:
        server.open_pull(label="them:main")
        server.allowed = frozenset({"actions: read", "contents: read", "pull-requests: write"})
        yield server


@pytest.fixture
def post(github, tmp_path, capsys, monkeypatch):
    call = posting(github, tmp_path, capsys, monkeypatch, "post-static")

    def run(content=REPORT, given=None, **artifact):
        content = encode(content) if isinstance(content, StaticReport) else content
        held = {"name": "perf-static", "content": zipped(content, artifact.pop("member", "review.json"))}
        github.artifacts[RUN] = [Artifact(github.next_id(), **{**held, **artifact})]
        return call(given or event())

    return run


def test_a_fork_s_pull_request_is_told_what_changed_on_which_architecture(github, post):
    done = post()
    assert (done.status, done.err) == (0, "")
    [body] = github.bodies()
    assert body.startswith(f"<!-- gpu-harness:static run={RUN} attempt=1 head={HEAD} -->\n")
    assert (
        "<li><code>matmul.naive</code> on sm_86, sm_89: <code>0 → 48 bytes spilled (naive.cu:12)</code></li>"
        in body
    )
    assert "2 of 6 builds have a risk: 4 identical, 2 changed." in body
    assert f"https://github.example/{REPOSITORY}/actions/runs/{RUN}" in body
    # Again it is the same comment, and one of a measurement stays beside it.
    github.say(12, "<!-- gpu-harness:review run=1 attempt=1 head=" + HEAD + " -->")
    post(replace(REPORT, suites=()), given=event(attempt=2))
    first, measured = github.bodies()
    assert "No file that a kernel's build can read differs." in first
    assert "gpu-harness:review" in measured


HOSTILE = "</code></li></ul>\n\n# @everyone <img src=x> [a](//b) ::error::x `|` <!-- gpu-harness:review -->"


def test_what_a_stranger_wrote_is_code_and_nothing_else(github, post):
    lines = (CodeLine("added", HOSTILE, HOSTILE),)
    assert LOOP is not None
    loop = replace(LOOP, base_place=HOSTILE, head_place=HOSTILE, lines=lines)
    risks = (StaticRisk("spill", HOSTILE),)
    row = replace(ROW, kernel="</code><b>x", changes=(HOSTILE,), risks=risks, loop=loop)
    suite = replace(SUITE, rows=(row, replace(row, status="failed", message=HOSTILE)))
    assert post(replace(REPORT, suites=(suite,), compilers=("<b>@x",))).status == 0
    [body] = github.bodies()
    outside = re.sub(r"<code>[^<>]*</code>", "", body)
    assert not re.search(r"everyone|img|//b|error::|@x", outside)
    assert body.count("<!--") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"suites": [{"suite": "a b", "counts": {}, "rows": []}]}, "regex"),
        ({"suites": [{"suite": "a", "counts": {"<b>": 1}, "rows": []}]}, "Invalid enum value"),
        ({"suites": [{"suite": "a", "counts": {"new": -1}, "rows": []}]}, ">= 0"),
        ({"base": "main"}, "regex"),
        ({"more": 1}, "unknown field"),
        ({"schema_version": 2}, "schema version 2"),
        ({"compilers": ["x" * 201]}, "regex"),
    ],
)
def test_what_is_no_report_is_refused_and_nothing_posted(github, post, change, said):
    done = post(json.dumps({**json.loads(encode(REPORT)), **change}).encode())
    assert (done.status, github.writes) == (2, [])
    assert said in done.err


@pytest.mark.parametrize(
    ("artifact", "over", "said"),
    [
        ({"member": "../review.json"}, {}, "the file is called '../review.json'"),
        ({"size_in_bytes": 10**9}, {}, "has 1000000000 bytes"),
        ({}, {"path": ".github/workflows/other.yml"}, "is of workflow '.github/workflows/other.yml'"),
        ({}, {"event": "push"}, "started by push"),
        ({}, {"head_sha": "main"}, "has no commit"),
    ],
)
def test_what_is_not_that_run_s_file_is_refused(github, post, artifact, over, said):
    given = event()
    given["workflow_run"].update(over)
    done = post(given=given, **artifact)
    assert (done.status, github.writes) == (2, [])
    assert said in done.err


@pytest.mark.parametrize(
    "over",
    [{"head_sha": "d" * 40}, {"head_branch": "other"}, {"head_repository": {"full_name": "else/kernels"}}],
    ids=["a newer commit", "another branch", "another fork"],
)
def test_nothing_is_posted_where_the_commit_is_no_open_pull_request_s_head(github, post, over):
    given = event()
    given["workflow_run"].update(over)
    done = post(given=given)
    assert (done.status, github.writes) == (0, [])
    assert "no open pull requests" in done.out


def test_a_run_that_left_nothing_posts_nothing(github, post):
    done = post(name="other")
    assert (done.status, github.writes) == (0, [])


def test_a_comment_fits_whatever_the_report_holds():
    loop = diagnosis(ATTACKS).loop
    rows = tuple(replace(ROW, kernel=f"k{number}", changes=("x" * 2000,), loop=loop) for number in range(300))
    report = replace(REPORT, suites=(replace(SUITE, rows=rows),))
    text = static_comment(decode_static(encode(report)), Links())
    assert len(text.encode()) <= COMMENT_BYTES
    assert "lines more did not fit" in text
