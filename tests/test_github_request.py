"""`harness ci request`: who may have which commit measured, and what is asked of GitHub for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.github_reports import posting
from tests.github_server import HEAD, REPOSITORY, TOKEN, comment_event, run_event, serving

DISPATCH = f"/repos/{REPOSITORY}/actions/workflows/perf-pr.yml/dispatches"
LINE = f"/perf {HEAD}"


@pytest.fixture
def github():
    with serving() as server:
        server.open_pull()
        server.people["maintainer"] = {"permission": "write", "role_name": "maintain"}
        yield server


@pytest.fixture
def request_(github, tmp_path, capsys, monkeypatch):
    return posting(github, tmp_path, capsys, monkeypatch, "request")


def refused(github: Any, done: Any, reason: str) -> None:
    assert (done.status, done.out) == (2, "")
    command, told = done.err.splitlines()
    assert command.startswith("::error title=harness ci request::")
    assert reason in told
    assert github.dispatched == []
    assert github.writes == []


@pytest.mark.parametrize("body", [LINE, f"{LINE}\n", f"{LINE}\r\nThanks!", f"{LINE}\n/perf {'d' * 40}"])
def test_the_commit_of_the_first_line_is_measured(github, request_, body):
    done = request_(comment_event(body))
    assert (done.status, done.err) == (0, "")
    assert done.out == f"Measuring {HEAD} of pull request 12, as maintainer asked.\n"
    assert github.dispatched == [{"ref": "main", "inputs": {"pull_request": "12", "sha": HEAD}}]
    assert [(each.method, each.path) for each in github.writes] == [("POST", DISPATCH)]


@pytest.mark.parametrize(
    "event",
    [
        comment_event("LGTM"),
        comment_event(""),
        comment_event(None),
        comment_event(f"Please {LINE}"),
        comment_event(f" {LINE}"),
        comment_event(f"\n{LINE}"),
        comment_event(f"> {LINE}"),
        comment_event(f"/performance {HEAD}"),
        {**comment_event(LINE), "action": "edited"},
        {**comment_event(LINE), "action": "deleted"},
        {**comment_event(LINE), "issue": {"number": 12}},
        {**comment_event(LINE), "issue": {"number": 12, "pull_request": None}},
    ],
)
def test_a_comment_that_asks_for_nothing_starts_nothing(github, request_, event):
    done = request_(event)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("No request: ")
    assert github.log == []


@pytest.mark.parametrize(
    "line",
    [
        "/perf",
        "/perf ",
        "/perf HEAD",
        f"/perf {HEAD[:10]}",
        f"/perf {HEAD.upper()}",
        f"/perf  {HEAD}",
        f"{LINE} ",
        f"{LINE} please",
        f"{LINE}0",
        f"/perf {HEAD[:-1]}\u0661",
        f"/perf {HEAD[:-3]}/..",
        "/perf ##[add-mask]x\x1b[2J",
        f"/perf {HEAD}\x0b",
        f"/perf {HEAD}\u2028",
    ],
)
def test_a_line_that_does_not_name_a_commit_is_refused(github, request_, line):
    done = request_(comment_event(line))
    refused(github, done, "with all 40 digits")
    assert "##[" not in done.err
    assert "\x1b" not in done.err
    assert github.log == []


@pytest.mark.parametrize(
    "login", ["", "../../orgs/x", "a/b", "a b", "mallory\n", "x?y=1", "dependabot[bot]", "é", "%2e%2e", "-x"]
)
def test_a_login_that_is_none_reaches_no_address(github, request_, login):
    done = request_(comment_event(LINE, login))
    refused(github, done, "no person's login")
    assert github.log == []


def test_a_comment_of_nobody_is_refused(github, request_):
    event = comment_event(LINE)
    event["comment"]["user"] = None
    refused(github, request_(event), "no person's login")


@pytest.mark.parametrize(
    "person",
    [
        {"permission": "admin", "role_name": "admin"},
        {"permission": "write", "role_name": "maintain"},
        {"permission": "write", "role_name": "write"},
        {"permission": "write", "role_name": "kernel-team"},
        {"permission": "write"},
    ],
)
def test_whoever_may_write_may_ask(github, request_, person):
    github.people["somebody"] = person
    assert request_(comment_event(LINE, "somebody")).status == 0
    assert len(github.dispatched) == 1


@pytest.mark.parametrize(
    "person",
    [
        {"permission": "read", "role_name": "read"},
        {"permission": "read", "role_name": "triage"},
        {"permission": "none", "role_name": ""},
        {"permission": "read", "role_name": "write-docs"},
        {"permission": "WRITE", "role_name": "Admin"},
        None,
    ],
)
def test_nobody_else_may(github, request_, person):
    if person:
        github.people["mallory"] = person
    refused(github, request_(comment_event(LINE, "mallory")), "mallory may not write to example/kernels")


def test_an_author_who_was_a_maintainer_in_the_event_is_asked_after_all_the_same(github, request_):
    event = comment_event(LINE, "mallory")
    event["comment"]["author_association"] = "OWNER"
    refused(github, request_(event), "may not write")


@pytest.mark.parametrize("answer", [{}, {"permission": 1}, {"permission": None}, {"permission": ["write"]}])
def test_an_answer_that_is_no_permission_is_none(github, request_, answer):
    github.people["maintainer"] = answer
    done = request_(comment_event(LINE))
    assert done.status == 3
    assert "something else than expected" in done.err
    assert github.dispatched == []


def test_a_commit_that_was_pushed_over_is_refused(github, request_):
    github.open_pull(head="d" * 40)
    refused(
        github, request_(comment_event(LINE)), f"The head of pull request 12 is {'d' * 40} by now, not {HEAD}"
    )


def test_a_closed_pull_request_is_refused(github, request_):
    github.open_pull(state="closed")
    refused(github, request_(comment_event(LINE)), "Pull request 12 is closed.")


def test_a_pull_request_that_is_none_is_an_error(github, request_):
    done = request_(comment_event(LINE, number=13))
    assert done.status == 3
    assert "needs pull-requests: read" in done.err
    assert github.dispatched == []


def test_an_event_of_another_repository_is_refused(github, request_):
    event = {**comment_event(LINE), "repository": {"full_name": "evil/kernels", "default_branch": "main"}}
    refused(github, request_(event), "expected example/kernels")


@pytest.mark.parametrize("branch", ["", "a b", "a\nb", "x" * 300])
def test_a_default_branch_that_is_none_is_refused(github, request_, branch):
    event = {**comment_event(LINE), "repository": {"full_name": REPOSITORY, "default_branch": branch}}
    refused(github, request_(event), "the name of no branch")


def test_an_event_of_another_kind_is_refused(github, request_):
    refused(github, request_(run_event()), "no issue_comment event")


def test_a_token_that_may_not_start_workflows_says_so(github, request_):
    github.allowed = frozenset({"contents: read", "pull-requests: read"})
    done = request_(comment_event(LINE))
    assert done.status == 3
    assert "needs actions: write" in done.err


def test_a_lost_answer_starts_nothing_twice(github, request_):
    github.trouble("POST", "/dispatches", after=True)
    done = request_(comment_event(LINE))
    assert done.status == 3
    assert "no answer" in done.err
    assert len(github.dispatched) == 1


def test_a_rate_limit_is_waited_for(github, request_):
    github.trouble("POST", "/dispatches", 429, headers={"Retry-After": "5"})
    assert request_(comment_event(LINE)).status == 0
    assert len(github.dispatched) == 1


def test_a_dry_run_prints_the_request_and_starts_nothing(github, request_):
    done = request_(comment_event(LINE), "--dry-run")
    assert done.status == 0
    head, body, told = done.out.split("\n\n")
    assert head.splitlines()[0] == f"POST {github.url}{DISPATCH}"
    assert TOKEN not in done.out
    assert json.loads(body) == {"ref": "main", "inputs": {"pull_request": "12", "sha": HEAD}}
    assert told.startswith(f"Would measure {HEAD}")
    assert github.writes == []


def test_as_json_it_says_what_was_asked_for(github, request_):
    done = request_(comment_event(LINE), "--dry-run", "--json")
    assert done.status == 0
    assert (done.json["state"], done.json["pull_request"], done.json["commit"]) == ("requested", 12, HEAD)
    assert [each["method"] for each in done.json["requests"]] == ["POST"]
    assert request_(comment_event("thanks"), "--json").json["state"] == "no-request"


def test_without_a_token_nothing_is_asked(github, request_, monkeypatch):
    monkeypatch.delenv("GITHUB_TOKEN")
    done = request_(comment_event(LINE))
    assert done.status == 2
    assert "GITHUB_TOKEN is not set" in done.err
    assert github.log == []
