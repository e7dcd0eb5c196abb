"""`harness ci request`: who may have which commit measured, and what is asked of GitHub for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests import review_samples as samples
from tests.github_reports import honest, left, posting
from tests.github_server import (
    ACTIONS,
    HEAD,
    REPOSITORY,
    RUN,
    RUNS,
    TOKEN,
    comment_event,
    push_event,
    queue_event,
    run_event,
    serving,
)

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


@pytest.fixture
def post(github, tmp_path, capsys, monkeypatch):
    return posting(github, tmp_path, capsys, monkeypatch)


def refused(github: Any, done: Any, reason: str, *, answered: bool = False) -> None:
    """Nothing is measured; in words it is said only to who may write."""
    assert (done.status, done.out) == (2, "")
    command, told = done.err.splitlines()
    assert command.startswith("::error title=harness ci request::")
    assert reason in told
    assert github.dispatched == []
    assert len(github.bodies()) == answered
    assert set(github.reactions) <= {"confused"}


@pytest.mark.parametrize("body", [LINE, f"{LINE}\n", f"{LINE}\r\nThanks!", f"{LINE}\n/perf {'d' * 40}"])
def test_the_commit_of_the_first_line_is_measured(github, request_, body):
    done = request_(comment_event(body))
    assert (done.status, done.err) == (0, "")
    assert done.out == f"Measuring {HEAD} of pull request 12, as maintainer asked. {RUNS}/{RUN}\n"
    assert github.dispatched == [dispatch()]
    assert github.reactions == ["eyes"]
    assert github.bodies() == []


def dispatch(cases: str = "") -> dict[str, Any]:
    return {"ref": "perf-dispatch", "inputs": {"pull_request": "12", "sha": HEAD, "cases": cases}}


@pytest.mark.parametrize("known", [{}, {"perf-dispatch": "d" * 40}], ids=["no branch yet", "an older commit"])
def test_it_is_started_on_a_branch_of_its_own_at_the_default_branch_s_commit(github, request_, known):
    """On the default branch a stranger's suite could write caches that other workflows restore."""
    github.branches |= known
    assert request_(comment_event(LINE)).status == 0
    assert github.branches == {"main": "c" * 40, "perf-dispatch": "c" * 40}


@pytest.mark.parametrize("cases", ["", "matmul.* copy.naive[n=64]"])
def test_a_check_waits_and_becomes_what_is_posted_of_the_run(github, request_, post, cases):
    """A measurement of some cases is another check, so it cannot satisfy a required one."""
    assert request_(comment_event(f"{LINE} {cases}".rstrip())).status == 0
    assert github.dispatched == [dispatch(cases)]
    [check] = github.check_runs
    name = "GPU performance of some cases" if cases else "GPU performance"
    assert (check["name"], check["status"], check["head_sha"]) == (name, "queued", HEAD)
    assert check["details_url"] == f"{RUNS}/{RUN}"
    some = ", some cases" if cases else ""
    title = f"Performance of #12 at {HEAD}{some}"
    assert post(run_event(event="workflow_dispatch", display_title=title, conclusion="failure")).status == 0
    [check] = github.check_runs
    assert (check["name"], check["status"], check["conclusion"]) == (name, "completed", "neutral")


def test_a_check_that_waits_ends_where_the_pull_request_has_moved_on(github, request_, post):
    assert request_(comment_event(LINE)).status == 0
    github.open_pull(head="d" * 40)
    assert post(run_event(event="workflow_dispatch", conclusion="cancelled")).status == 0
    [check] = github.check_runs
    assert (check["status"], check["conclusion"]) == ("completed", "cancelled")


def test_a_check_that_waits_fails_where_the_base_was_pushed_over(github, request_, post):
    """It was compared with a commit that is in no branch any more: nothing of that is shown."""
    assert request_(comment_event(LINE)).status == 0
    left(github, honest(samples.clean()))
    github.merge_bases["main"] = "d" * 40
    assert post(run_event(event="workflow_dispatch")).status == 2
    [check] = github.check_runs
    assert (check["status"], check["conclusion"]) == ("completed", "failure")
    assert check["output"]["title"] == "The report was refused"
    assert f"expected {'d' * 40}" in check["output"]["summary"]
    assert github.bodies() == []


def test_of_two_comments_in_the_same_second_the_later_run_counts(github, request_, post):
    """Each comment starts a run. The later run cancels the earlier one, whose check must then end."""
    for _ in range(2):
        assert request_(comment_event(LINE)).status == 0
    github.check_runs[1]["external_id"] = f"{RUN + 1}.1"
    assert post(run_event(event="workflow_dispatch", conclusion="cancelled")).status == 0
    left(github, honest(samples.clean()), run=RUN + 1)
    assert post(run_event(event="workflow_dispatch", run=RUN + 1)).status == 0
    assert [check["conclusion"] for check in github.check_runs] == ["cancelled", "success"]
    [body] = github.bodies()
    assert f"run={RUN + 1} " in body


def test_a_run_whose_workflow_file_is_not_the_default_branch_s_is_not_believed(github, post):
    """Whoever may push could have moved the branch that it was dispatched on."""
    assert "which is no commit of main" in post(
        run_event(event="workflow_dispatch", head_sha="e" * 40)
    ).failed_with(2)
    assert github.writes == []


def test_a_server_that_does_not_say_which_run_it_is_starts_it_all_the_same(github, request_):
    github.knows_run_details = False
    done = request_(comment_event(LINE))
    assert (done.status, done.out) == (0, f"Measuring {HEAD} of pull request 12, as maintainer asked.\n")
    assert github.dispatched == [dispatch()]
    assert github.check_runs == []


def test_what_cannot_be_shown_keeps_nothing_from_being_measured(github, request_):
    github.allowed = frozenset({"actions: write", "contents: write", "pull-requests: read"})
    done = request_(comment_event(LINE))
    assert (done.status, len(github.dispatched)) == (0, 1)
    assert done.err.count("::warning title=Not shown on the pull request::") == 2


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
        f"{LINE}0",
        "/perf matmul.* copy.*",
    ],
)
def test_a_line_that_does_not_name_a_commit_is_answered_with_one_to_paste(github, request_, line):
    refused(github, request_(comment_event(line)), "with all 40 digits", answered=True)
    [answer] = github.bodies()
    words = line.split()[1:]
    assert f"<pre>{' '.join(('/perf', HEAD, *words))}</pre>" in answer


@pytest.mark.parametrize(
    "line",
    [
        f"/perf {HEAD[:-1]}\u0661",
        f"/perf {HEAD[:-3]}/..",
        "/perf ##[add-mask]x\x1b[2J",
        f"/perf {HEAD}\x0b",
        f"/perf {HEAD}\u2028",
        f"{LINE} --device null",
        f"{LINE} $(id)",
        f"{LINE} @everyone",
        f"{LINE} {'x' * 300}",
        f"{LINE} {'matmul.* ' * 65}",
    ],
)
def test_what_names_no_cases_is_refused_and_reaches_no_command(github, request_, line):
    done = request_(comment_event(line))
    refused(github, done, "names no cases", answered=True)
    assert "##[" not in done.err
    assert "\x1b" not in done.err
    assert "@everyone" not in github.bodies()[0] or "<code>" in github.bodies()[0]


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
    assert github.reactions == ["confused"]


def test_an_author_who_was_a_maintainer_in_the_event_is_asked_after_all_the_same(github, request_):
    event = comment_event(LINE, "mallory")
    event["comment"]["author_association"] = "OWNER"
    refused(github, request_(event), "may not write")


@pytest.mark.parametrize("answer", [{}, {"permission": 1}, {"permission": None}, {"permission": ["write"]}])
def test_an_answer_that_is_no_permission_is_none(github, request_, answer):
    github.people["maintainer"] = answer
    assert "an unexpected answer" in request_(comment_event(LINE)).failed_with(3)
    assert github.dispatched == []


def test_a_commit_that_was_pushed_over_is_refused(github, request_):
    github.open_pull(head="d" * 40)
    told = f"The head of pull request 12 is {'d' * 40} by now, not {HEAD}"
    refused(github, request_(comment_event(LINE)), told, answered=True)


def test_a_closed_pull_request_is_refused(github, request_):
    github.open_pull(state="closed")
    refused(github, request_(comment_event(LINE)), "Pull request 12 is closed.", answered=True)


def test_a_pull_request_that_is_none_is_an_error(github, request_):
    assert "needs pull-requests: read" in request_(comment_event(LINE, number=13)).failed_with(3)
    assert github.dispatched == []


def test_an_event_of_another_repository_is_refused(github, request_):
    event = {**comment_event(LINE), "repository": {"full_name": "evil/kernels", "default_branch": "main"}}
    refused(github, request_(event), "expected example/kernels")


@pytest.mark.parametrize("branch", ["", "a b", "a\nb", "x" * 300])
def test_a_default_branch_that_is_none_is_refused(github, request_, branch):
    event = {**comment_event(LINE), "repository": {"full_name": REPOSITORY, "default_branch": branch}}
    refused(github, request_(event), "is no branch name")


def test_an_event_of_another_kind_is_refused(github, request_):
    refused(github, request_({"ref": "refs/heads/main"}), "no issue_comment event")


def test_a_token_that_may_not_start_workflows_says_so(github, request_):
    github.allowed = frozenset({"contents: write", "pull-requests: read"})
    assert "needs actions: write" in request_(comment_event(LINE)).failed_with(3)


def test_a_lost_answer_starts_nothing_twice(github, request_):
    github.trouble("POST", "/dispatches", after=True)
    assert "no answer" in request_(comment_event(LINE)).failed_with(3)
    assert len(github.dispatched) == 1


def test_a_rate_limit_is_waited_for(github, request_):
    github.trouble("POST", "/dispatches", 429, headers={"Retry-After": "5"})
    assert request_(comment_event(LINE)).status == 0
    assert len(github.dispatched) == 1


def test_a_dry_run_prints_the_request_and_starts_nothing(github, request_):
    done = request_(comment_event(LINE), "--dry-run")
    assert done.status == 0
    lines = done.out.splitlines()
    assert f"POST {github.url}{DISPATCH}" in lines
    assert TOKEN not in done.out
    assert lines[-1].startswith(f"Would measure {HEAD}")
    assert github.writes == []


def test_as_json_it_says_what_was_asked_for(github, request_):
    done = request_(comment_event(LINE), "--dry-run", "--json")
    assert done.status == 0
    assert (done.json["state"], done.json["pull_request"], done.json["commit"]) == ("requested", 12, HEAD)
    assert [each["method"] for each in done.json["requests"]] == ["PATCH", "POST", "POST"]
    assert done.json["requests"][1]["body"] == {**dispatch(), "return_run_details": True}
    assert request_(comment_event("thanks"), "--json").json["state"] == "no-request"


def test_without_a_token_nothing_is_asked(github, request_, monkeypatch):
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "GITHUB_TOKEN is not set" in request_(comment_event(LINE)).failed_with(2)
    assert github.log == []


@pytest.mark.parametrize(
    ("automatic", "event"),
    [
        ("yes", push_event()),
        ("yes", push_event(action="opened")),
        ("yes", push_event(action="ready_for_review")),
        ("drafts", push_event(draft=True)),
    ],
)
def test_a_push_is_measured_unasked_where_the_repository_says_so(github, request_, automatic, event):
    done = request_(event, "--automatic", automatic)
    assert (done.status, done.err) == (0, "")
    assert github.dispatched == [dispatch()]
    assert (github.reactions, github.bodies()) == ([], [])
    assert github.check_runs[0]["status"] == "queued"


@pytest.mark.parametrize(
    ("automatic", "event", "why"),
    [
        ("", push_event(), "no push is measured unasked here"),
        ("yes", push_event(draft=True), "it is a draft"),
        ("yes", push_event(action="labeled"), "'labeled' brings no new commit"),
        ("yes", push_event(repository="stranger/kernels"), "another repository"),
        ("drafts", push_event(login="stranger"), "stranger may not write"),
        ("yes", push_event(login="helpful[bot]"), "no person pushed it"),
    ],
)
def test_another_push_is_left_to_somebody_who_asks(github, request_, automatic, event, why):
    github.people["stranger"] = {"permission": "read"}
    done = request_(event, *(["--automatic", automatic] if automatic else []))
    assert (done.status, done.err) == (0, "")
    assert why.replace("'", "") in done.out.replace("'", "")
    assert github.writes == []


def test_a_push_that_another_has_overtaken_is_not_measured(github, request_):
    github.open_pull(head="d" * 40)
    done = request_(push_event(), "--automatic", "yes")
    assert done.status == 2
    assert github.writes == []


GROUP = "9" * 40


def queue(github: Any, **check: Any) -> None:
    """The pull request's own commit has this check."""
    github.queue.add(GROUP)
    made = {"id": 1, "name": "GPU performance", "head_sha": HEAD, "status": "completed"}
    about = {"html_url": f"{RUNS}/1", "external_id": "7.1", "output": {"title": "2 cases are slower"}}
    about["app"] = dict(ACTIONS)
    github.check_runs.append({**made, **about, **check})


@pytest.mark.parametrize("conclusion", ["success", "failure", "neutral"])
def test_a_commit_of_the_merge_queue_gets_the_pull_requests_conclusion(github, request_, conclusion):
    queue(github, conclusion="failure", external_id="6.1")
    queue(github, conclusion=conclusion)
    queue(github, status="queued", external_id="8.1")
    done = request_(queue_event(GROUP))
    assert (done.status, done.err) == (0, "")
    check = github.check_runs[-1]
    assert (check["head_sha"], check["status"], check["conclusion"]) == (GROUP, "completed", conclusion)
    assert (check["name"], check["output"]["title"]) == ("GPU performance", "2 cases are slower")
    assert HEAD in check["output"]["summary"]
    assert github.dispatched == []


@pytest.mark.parametrize(("options", "conclusion"), [((), "neutral"), (("--strict",), "failure")])
def test_what_was_not_measured_is_not_known_in_the_queue(github, request_, options, conclusion):
    queue(github, name="GPU performance of some cases", conclusion="success")
    queue(github, conclusion="success", external_id="of another tool")
    assert request_(queue_event(GROUP), *options).status == 0
    check = github.check_runs[-1]
    assert (check["head_sha"], check["conclusion"]) == (GROUP, conclusion)
    assert check["output"]["title"] == "Not measured"


def test_what_has_left_the_queue_gets_no_conclusion(github, request_):
    queue(github, conclusion="success")
    github.open_pull(state="closed")
    done = request_(queue_event(GROUP))
    assert (done.status, done.err) == (0, "")
    assert "Pull request 12 is closed." in done.out
    assert github.writes == []


def test_a_queue_that_is_none_is_refused(github, request_):
    event = queue_event(GROUP)
    event["merge_group"]["head_ref"] = "refs/heads/main"
    assert "gh-readonly-queue" in request_(event).failed_with(2)
    assert request_(queue_event(GROUP, action="destroyed")).status == 0
    assert github.writes == []
