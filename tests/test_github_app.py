"""Check runs of an App of one's own, and check runs of others that look like ours: anybody who may write
checks can give theirs our name and our stamp. Whose a check is, GitHub says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness.ci.github.posting import Checks
from tests import review_samples as samples
from tests.github_reports import honest, left, posting
from tests.github_server import (
    ACTIONS,
    APP_TOKEN,
    HEAD,
    REPOSITORY,
    RUN,
    TOKEN,
    comment_event,
    push_event,
    queue_event,
    run_event,
    serving,
)

NAME = "GPU performance"
GROUP = "9" * 40
OTHER = {"id": 99, "slug": "another"}
BRANCH = f"gh-readonly-queue/main/pr-12-{'b' * 40}"
SLOWER = honest(samples.regressions())


@pytest.fixture
def github():
    with serving() as server:
        server.open_pull()
        server.people["maintainer"] = {"permission": "write", "role_name": "maintain"}
        yield server


@pytest.fixture(params=[None, "4242"], ids=["GitHub Actions", "an App of one's own"])
def app(request, monkeypatch):
    """Whose the checks are that these commands post."""
    if request.param:
        monkeypatch.setenv("GITHUB_CHECKS_TOKEN", APP_TOKEN)
    return request.param


@pytest.fixture
def commands(github, tmp_path, capsys, monkeypatch, app):
    options = ["--app", app] if app else []
    made = {name: posting(github, tmp_path, capsys, monkeypatch, name) for name in ("post", "request")}
    return {name: lambda event, *more, run=run: run(event, *options, *more) for name, run in made.items()}


@pytest.fixture
def ours(github, app):
    return github.app.shown if app else ACTIONS


@pytest.fixture
def forged(github, app):
    """Puts a check of somebody else's beside ours, with our name, whatever else it says."""

    def forge(**over: Any) -> dict[str, Any]:
        made = {
            "id": github.next_id(),
            "name": NAME,
            "head_sha": HEAD,
            "status": "completed",
            "conclusion": "success",
            "html_url": "https://github.example/forged",
            "external_id": f"{RUN}.1",
            "annotations": [],
            "output": {"title": "None of 2 cases is slower", "summary": "!", "annotations_count": 0},
            "app": ACTIONS if app else OTHER,
            **over,
        }
        github.check_runs.append(made)
        return dict(made)

    return forge


def of(github: Any, app: dict[str, Any]) -> list[dict[str, Any]]:
    return [check for check in github.check_runs if check["app"] == app]


def test_checks_are_the_app_s_and_all_else_is_by_the_workflow_s_token(github, commands, ours):
    assert commands["request"](comment_event(f"/perf {HEAD}")).status == 0
    left(github, SLOWER)
    done = commands["post"](run_event(event="workflow_dispatch"))
    assert (done.status, done.err) == (0, "")
    [check] = github.check_runs
    assert (check["app"], check["status"], check["conclusion"]) == (ours, "completed", "failure")
    tokens = {("/check-runs" in each.path, each.headers["authorization"]) for each in github.log}
    assert tokens == {(False, f"Bearer {TOKEN}"), (True, f"Bearer {TOKEN if ours == ACTIONS else APP_TOKEN}")}
    assert len(github.bodies()) == 1


@pytest.mark.parametrize("external_id", [f"{RUN}.1", f"{RUN + 1}.1", f"{10**18}.1"])
def test_a_forged_stamp_keeps_no_report_from_being_posted(github, commands, ours, forged, external_id):
    """The same run's, as if this had been posted; a newer run's, as if there were nothing to add."""
    theirs = forged(external_id=external_id)
    left(github, SLOWER)
    assert commands["post"](run_event()).status == 0
    assert [check["conclusion"] for check in of(github, ours)] == ["failure"]
    assert github.check_runs[0] == theirs


def test_a_forged_check_is_not_ended_in_place_of_the_one_that_waits(github, commands, ours, forged):
    theirs = forged(status="queued", conclusion=None)
    assert commands["request"](comment_event(f"/perf {HEAD}")).status == 0
    github.open_pull(head="d" * 40)
    assert commands["post"](run_event(event="workflow_dispatch")).status == 0
    assert [check["conclusion"] for check in of(github, ours)] == ["cancelled"]
    assert github.check_runs[0] == theirs


def queued(app: str | None) -> dict[str, Any]:
    """Return the event of a commit in the queue: with an App, the end of a run that the queue has started."""
    return run_event(event="merge_group", head_sha=GROUP, head_branch=BRANCH) if app else queue_event(GROUP)


def test_no_forged_conclusion_is_carried_into_the_merge_queue(github, commands, app, ours, forged):
    github.queue.add(GROUP)
    left(github, SLOWER)
    assert commands["post"](run_event()).status == 0
    forged(external_id=f"{10**18}.1")
    assert commands["request"](queued(app)).status == 0
    check = github.check_runs[-1]
    assert (check["head_sha"], check["app"], check["conclusion"]) == (GROUP, ours, "failure")


@pytest.mark.parametrize(
    ("over", "known"),
    [
        ({}, True),
        ({"app": OTHER}, False),
        ({"app": {"id": 4242}}, False),
        ({"app": None}, False),
        ({"head_sha": "e" * 40}, False),
        ({"head_sha": ""}, False),
    ],
)
def test_of_what_is_listed_only_checks_of_the_app_and_of_the_commit_count(over, known):
    listed = {"check_runs": [{"id": 1, "head_sha": HEAD, "app": ACTIONS, **over}]}

    class Listing:
        def pages(self, _path: str, kind: Any, **_asked: Any) -> list[Any]:
            return [msgspec.convert(listed, kind)]

    api: Any = Listing()
    assert [check.id for check in Checks(api, REPOSITORY).named(HEAD, NAME)] == [1] * known


@pytest.mark.parametrize("app", ["4242"], indirect=True)
def test_an_app_s_check_does_not_wait_for_what_a_push_has_started(github, commands):
    """Its workflow file is the pull request's own and has no key: another App's check would wait for ever."""
    assert commands["request"](push_event(), "--automatic", "yes").status == 0
    assert len(github.dispatched) == 1
    assert github.check_runs == []


@pytest.mark.parametrize("app", ["4242"], indirect=True)
@pytest.mark.parametrize("over", [{"event": "push"}, {"head_branch": "main"}, {"head_repository": None}])
def test_a_run_that_no_queue_has_started_carries_nothing_over(github, commands, over):
    event = run_event(**{"event": "merge_group", "head_sha": GROUP, "head_branch": BRANCH} | over)
    assert commands["request"](event).status == 2
    assert github.writes == []


@pytest.mark.parametrize("app", ["4242"], indirect=True)
@pytest.mark.parametrize("token", [None, "", "a b"])
def test_without_the_app_s_token_nothing_is_posted_as_somebody_else(github, commands, monkeypatch, token):
    if token is None:
        monkeypatch.delenv("GITHUB_CHECKS_TOKEN")
    else:
        monkeypatch.setenv("GITHUB_CHECKS_TOKEN", token)
    left(github, SLOWER)
    assert "GITHUB_CHECKS_TOKEN" in commands["post"](run_event()).failed_with(2)
    assert github.writes == []


@pytest.mark.parametrize("app", ["4242"], indirect=True)
def test_an_app_that_may_not_write_checks_is_told_where_to_grant_it(github, commands):
    """The job's permissions, which a workflow's own token lacks, are none of an App's."""
    github.app.tokens[APP_TOKEN] = frozenset({"contents: read"})
    left(github, SLOWER)
    done = commands["post"](run_event())
    assert "grant App 4242 that" in done.failed_with(3)
    assert "job's permissions" not in done.err


@pytest.mark.parametrize("app", ["4242"], indirect=True)
def test_a_dry_run_shows_what_either_would_send(github, commands, monkeypatch):
    monkeypatch.delenv("GITHUB_CHECKS_TOKEN")
    left(github, SLOWER)
    done = commands["post"](run_event(), "--dry-run")
    assert (done.status, github.writes) == (0, [])
    assert f"POST {github.url}/repos/{REPOSITORY}/check-runs" in done.out
