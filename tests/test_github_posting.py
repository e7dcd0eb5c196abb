"""`harness ci post`: one comment and one check run, whatever happens meanwhile and however often."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from harness.ci.forge import Api, Waits
from harness.ci.github.github_api import GITHUB, path_of
from harness.ci.github.posting import post_comment
from harness.ci.sticky_comment import ReportKey
from harness.errors import RemoteError
from harness.report.document.document import encode
from harness.report.pull_request.faces import CHECK_NAME
from tests import review_samples as samples
from tests.github_reports import honest, left, posting, zipped
from tests.github_server import (
    BASE,
    BOT,
    HEAD,
    READ_ONLY,
    REPOSITORY,
    RUN,
    TOKEN,
    Artifact,
    GitHub,
    comment_event,
    run_event,
    serving,
)
from tests.support import caller

CLEAN = honest(samples.clean())
REGRESSIONS = honest(samples.regressions())
OTHER_HEAD = "d" * 40
COMMENT = rf"^/repos/{REPOSITORY}/issues/(\d+/comments|comments/\d+)$"


def marker(run: int = RUN, attempt: int = 1, head: str = HEAD) -> str:
    return f"<!-- gpu-harness:review run={run} attempt={attempt} head={head} -->"


@pytest.fixture
def github():
    with serving() as server:
        server.open_pull()
        left(server, CLEAN)
        yield server


@pytest.fixture
def post(github, tmp_path, capsys, monkeypatch):
    return posting(github, tmp_path, capsys, monkeypatch)


def sent(github: Any) -> list[tuple[str, str]]:
    """Return the writing requests, without numbers."""
    return [
        (each.method, re.sub(r"\d+", "N", each.path.removeprefix(f"/repos/{REPOSITORY}")))
        for each in github.writes
    ]


def test_a_first_report_becomes_a_comment_and_a_check_run(github, post, tmp_path):
    done = post(run_event(), "--out", "report", "--history", "https://example.github.io/kernels/")
    assert (done.status, done.err) == (0, "")
    [body] = github.bodies()
    assert body.splitlines()[0] == marker()
    assert "NVIDIA H200" in body
    assert f"https://github.example/{REPOSITORY}/actions/runs/{RUN}" in body
    [check] = github.check_runs
    assert (check["name"], check["conclusion"], check["head_sha"]) == (CHECK_NAME, "success", HEAD)
    assert check["details_url"] == f"https://github.example/{REPOSITORY}/actions/runs/{RUN}"
    assert (tmp_path / "report" / "comment.md").read_text(encoding="utf-8") == body
    written = json.loads((tmp_path / "report" / "check.json").read_bytes())
    assert (written["conclusion"], written["output"]["summary"]) == ("success", check["output"]["summary"])
    assert "NVIDIA H200" in (tmp_path / "report" / "review.html").read_text(encoding="utf-8")
    summary = (tmp_path / "report" / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == summary
    assert re.fullmatch(
        r"Pull request 12: check run created \(\S+\); comment created \(\S+#issuecomment-\d+\)\.\n", done.out
    )


@pytest.mark.parametrize("command", ["post", "request"])
def test_what_holds_the_token_loads_few_packages(github, post, tmp_path, command):
    """Each package could read the token. The packages allowed read the command line, read JSON against a
    schema, name the cache, and escape the text of others.
    """
    github.people["maintainer"] = {"permission": "write"}
    event = run_event() if command == "post" else comment_event(f"/perf {HEAD}")
    (tmp_path / "event.json").write_text(json.dumps(event))
    code = (
        "import sys; before = set(sys.modules); from harness.cli import cli; "
        "cli.main(sys.argv[1:], standalone_mode=False); "
        "print(*{name.partition('.')[0] for name in {*sys.modules} - before}, file=sys.stderr)"
    )
    arguments = [sys.executable, "-c", code, "ci", command]
    arguments += ["--out", "report"] if command == "post" else []
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packages = {name for name in done.stderr.split() if not name.startswith("_")} - sys.stdlib_module_names
    assert {"harness", "click", "msgspec"} <= packages
    # Python 3.10 has no tomllib.
    allowed = {"harness", "click", "markupsafe", "msgspec", "platformdirs", "typing_extensions", "tomli"}
    assert packages <= (allowed | {"jinja2"} if command == "post" else allowed)
    assert len(github.writes) == (2 if command == "post" else 5)


def test_a_later_report_takes_the_place_of_the_first(github, post):
    post(run_event())
    [before] = github.comments[12]
    left(github, REGRESSIONS, run=RUN + 1)
    done = post(run_event(run=RUN + 1))
    assert done.status == 0
    [after] = github.comments[12]
    assert after["id"] == before["id"]
    assert after["body"].startswith(marker(RUN + 1))
    assert [check["conclusion"] for check in github.check_runs] == ["success", "failure"]
    assert "comment updated" in done.out


def test_the_same_report_twice_changes_nothing(github, post):
    left(github, REGRESSIONS)
    post(run_event())
    [comment], [check] = github.bodies(), github.check_runs
    notes = len(check["annotations"])
    assert notes
    done = post(run_event())
    assert "check run updated" in done.out
    assert github.bodies() == [comment]
    assert github.check_runs == [check]
    assert len(check["annotations"]) == notes


def test_ours_is_found_behind_a_check_run_that_another_app_calls_the_same(github, post):
    post(run_event())
    [ours] = github.check_runs
    github.check_runs.append({**ours, "id": 5, "external_id": "theirs"})
    post(run_event())
    assert sent(github)[2:] == [("PATCH", "/check-runs/N"), ("PATCH", "/issues/comments/N")]
    assert len(github.check_runs) == 2


def test_another_attempt_is_newer(github, post):
    post(run_event())
    post(run_event(attempt=2))
    assert [body.splitlines()[0] for body in github.bodies()] == [marker(attempt=2)]
    assert [check["external_id"] for check in github.check_runs] == [f"{RUN}.1", f"{RUN}.2"]


@pytest.mark.parametrize("newer", [{"run": RUN + 1}, {"attempt": 2}])
def test_what_a_newer_run_has_posted_is_left(github, post, newer):
    left(github, REGRESSIONS, run=newer.get("run", RUN))
    post(run_event(**newer))
    comments, checks = github.bodies(), list(github.check_runs)
    github.log.clear()
    done = post(run_event())
    assert done.status == 0
    assert done.out.count("left unchanged, because a newer run wrote it (https://") == 2
    assert github.writes == []
    assert (github.bodies(), github.check_runs) == (comments, checks)


def test_what_a_newer_run_has_posted_of_another_commit_is_replaced(github, post):
    """Somebody pushed the first commit again, and had it measured again under its old number."""
    github.say(12, f"{marker(RUN + 1, head=OTHER_HEAD)}\nof a commit that is gone")
    assert post(run_event(attempt=2)).status == 0
    [body] = github.bodies()
    assert body.startswith(marker(attempt=2))


@pytest.mark.parametrize(
    "user",
    [
        None,
        {"login": "mallory", "type": "User"},
        {"login": "github-actions", "type": "User"},
        {"login": "github-actions[bot]", "type": "User"},
        {"login": "GitHub-Actions[bot]", "type": "Bot"},
        {"login": "dependabot[bot]", "type": "Bot"},
    ],
)
def test_a_comment_of_somebody_else_is_not_ours_whatever_it_says(github, post, user):
    theirs = github.say(12, f"{marker(run=10**18)}\nAll is well.", user)
    assert post(run_event()).status == 0
    assert github.bodies()[0] == f"{marker(run=10**18)}\nAll is well."
    assert github.bodies()[1].startswith(marker())
    assert not [each for each in github.writes if str(theirs["id"]) in each.path]


@pytest.mark.parametrize("body", [None, "", "Hello", f" {marker()}", f"Hello\n{marker()}"])
def test_another_comment_of_the_same_author_is_not_ours(github, post, body):
    github.say(12, body)
    post(run_event())
    assert github.bodies()[0] == body
    assert len(github.bodies()) == 2


@pytest.mark.parametrize("rest", ["run=1 -->", "-->", "run=x attempt=1 head=y -->", ""])
def test_a_comment_of_ours_with_a_marker_that_says_nothing_is_replaced(github, post, rest):
    github.say(12, f"<!-- gpu-harness:review {rest}\nold")
    post(run_event())
    [body] = github.bodies()
    assert body.startswith(marker())


def test_ours_is_found_among_hundreds(github, post):
    for number in range(130):
        github.say(12, f"comment {number}", {"login": "somebody", "type": "User"})
    ours = github.say(12, f"{marker(run=1)}\nold")
    for number in range(130):
        github.say(12, f"comment {number}", {"login": "somebody", "type": "User"})
    post(run_event())
    assert ours["body"].startswith(marker())
    assert len(github.comments[12]) == 261


def test_a_person_may_post_by_a_token_of_their_own(github, post, monkeypatch):
    monkeypatch.setattr("tests.github_server.BOT", {"login": "octocat", "type": "User"})
    ours = github.say(12, f"{marker(run=1)}\nold", {"login": "octocat", "type": "User"})
    assert post(run_event(), "--author", "octocat").status == 0
    assert ours["body"].startswith(marker())
    assert len(github.comments[12]) == 1


def test_what_a_reporter_left_that_died_is_removed(github, post):
    first, second = (github.say(12, f"{marker(run=run)}\nold") for run in (1, 2))
    github.say(12, "somebody's", {"login": "somebody", "type": "User"})
    post(run_event())
    numbers = [comment["id"] for comment in github.comments[12]]
    assert numbers == [first["id"], second["id"] + 1]


def test_a_start_by_hand_is_posted_to_the_commit_of_its_title(github, post):
    github.open_pull(77, OTHER_HEAD)
    left(github, honest(samples.clean(), OTHER_HEAD))
    assert post(run_event(77, OTHER_HEAD, event="workflow_dispatch")).status == 0
    [body] = github.bodies(77)
    assert body.startswith(marker(head=OTHER_HEAD))
    assert github.check_runs[0]["head_sha"] == OTHER_HEAD
    assert github.bodies(12) == []


def pushed(github: Any, after: int) -> None:
    """Somebody pushes once the pull request was looked at so many times."""
    looked = 0

    def before(method: str, path: str) -> None:
        nonlocal looked
        if method == "GET" and path.endswith("/pulls/12"):
            looked += 1
            if looked > after:
                github.pulls[12]["head"]["sha"] = OTHER_HEAD

    github.before = before


def test_a_commit_that_is_the_head_no_more_is_not_posted(github, post):
    github.open_pull(head=OTHER_HEAD)
    done = post(run_event())
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        f"The head of pull request 12 is {OTHER_HEAD} by now, not {HEAD}. So nothing of this run is shown "
        "there.\n"
    )
    assert github.writes == []
    assert github.fetched == []


@pytest.mark.parametrize("state", ["closed", "merged"])
def test_a_pull_request_that_is_not_open_is_left_alone(github, post, state):
    github.open_pull(state=state)
    done = post(run_event(), "--json")
    assert done.status == 0
    assert (done.json["state"], done.json["requests"]) == ("stale", [])
    assert f"Pull request 12 is {state}." in done.json["message"]
    assert github.writes == []


def test_a_push_between_check_and_posting_is_seen(github, post):
    pushed(github, after=1)
    done = post(run_event())
    assert done.status == 0
    assert "by now" in done.out
    assert github.fetched != []
    assert github.writes == []


def test_a_push_between_check_run_and_comment_is_seen(github, post):
    pushed(github, after=2)
    done = post(run_event())
    assert done.status == 0
    assert "by now" in done.out
    assert sent(github) == [("POST", "/check-runs")]
    assert github.check_runs[0]["head_sha"] == HEAD


def test_a_push_before_a_comment_is_changed_is_seen(github, post):
    github.say(12, f"{marker(run=1)}\nold")
    pushed(github, after=2)
    assert post(run_event()).status == 0
    assert github.bodies() == [f"{marker(run=1)}\nold"]


def test_a_push_while_another_answer_was_lost_is_seen(github, post):
    pushed(github, after=3)
    github.trouble("POST", COMMENT)
    assert post(run_event()).status == 0
    assert github.bodies() != []  # it was sent before, and GitHub was asked whether it came to be


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (401, "Bad credentials", "GITHUB_TOKEN"),
        (403, "Resource not accessible by integration", "pull-requests: write.*every token is read-only"),
        (404, "Not Found", "pull-requests: write"),
        (422, "Validation Failed", "Validation Failed"),
        (500, "Server Error", "status 500 in 5 tries"),
        (503, "Unavailable", "status 503 in 5 tries"),
    ],
)
def test_a_comment_that_github_refuses_fails_the_command_and_the_check_run_is_there(
    github, post, status, message, told
):
    github.trouble("POST", COMMENT, status, message=message, times=99)
    done = post(run_event(), "--out", "report")
    assert done.status == 3
    assert re.search(told, done.err), done.err
    assert done.err.startswith("::error title=harness ci post::")
    assert github.bodies() == []
    assert [check["conclusion"] for check in github.check_runs] == ["success"]


def test_a_check_run_that_github_refuses_does_not_keep_the_comment_from_being_posted(github, post):
    github.allowed = github.allowed - {"checks: write"} | {"checks: read"}
    assert "needs checks: write" in post(run_event()).failed_with(3)
    assert len(github.bodies()) == 1


def test_a_token_that_may_only_read_posts_nothing_and_says_what_it_needs(github, post):
    github.allowed = READ_ONLY
    done = post(run_event())
    assert "checks: write" in done.failed_with(3)
    assert "pull-requests: write" in done.err
    assert github.bodies() == []


def test_a_token_that_may_not_read_artifacts_says_so(github, post):
    github.allowed = READ_ONLY - {"actions: read"}
    assert "needs actions: read" in post(run_event()).failed_with(3)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 0])
@pytest.mark.parametrize("method", ["GET", "POST", "STORAGE"])
def test_what_fails_for_a_while_is_posted_once(github, post, method, status):
    github.trouble(method, "", status, times=3)
    done = post(run_event())
    assert (done.status, done.err) == (0, "")
    assert (len(github.bodies()), len(github.check_runs)) == (1, 1)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 0])
def test_an_answer_that_was_lost_makes_no_second_comment_and_no_second_check_run(github, post, status):
    github.trouble("POST", "/comments", status, after=True)
    github.trouble("POST", "/check-runs", status, after=True)
    done = post(run_event())
    assert (done.status, done.err) == (0, "")
    assert (len(github.bodies()), len(github.check_runs)) == (1, 1)
    assert sent(github) == [("POST", "/check-runs"), ("POST", "/issues/N/comments")]


def test_an_answer_that_breaks_off_makes_no_second_comment(github, post):
    github.trouble("POST", "/comments", truncate=True)
    assert post(run_event()).status == 0
    assert len(github.bodies()) == 1


@pytest.mark.parametrize(
    "limit",
    [
        {"status": 429, "headers": {"Retry-After": "9"}},
        {"status": 403, "message": "You have exceeded a secondary rate limit"},
        {"status": 403, "headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000010"}},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_a_rate_limit_is_waited_for(github, post, method, limit):
    github.say(12, f"{marker(run=1)}\nold")
    github.trouble(method, "", **limit)
    assert post(run_event()).status == 0
    assert (len(github.bodies()), len(github.check_runs)) == (1, 1)


def test_a_rate_limit_for_an_hour_ends_the_command_with_the_time(github, post):
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800003599"}
    github.trouble("GET", "/pulls", 403, headers=headers, times=99)
    assert "until 2027-01-15T09:00:00Z" in post(run_event()).failed_with(3)


def test_a_comment_that_vanishes_while_it_is_changed_is_made_anew(github, post):
    github.say(12, f"{marker(run=1)}\nold")

    def before(method: str, path: str) -> None:
        if method == "PATCH":
            github.comments[12].clear()

    github.before = before
    assert post(run_event()).status == 0
    [body] = github.bodies()
    assert body.startswith(marker())


@pytest.mark.parametrize(("run", "action"), [(RUN - 1, "updated"), (RUN, "updated"), (RUN + 1, "left")])
def test_a_comment_that_another_reporter_makes_a_moment_earlier_is_the_one_that_stays(
    github, post, run, action
):
    def before(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/comments"):
            github.say(12, f"{marker(run)}\nof the other reporter")

    github.before = before
    done = post(run_event(), "--json")
    [comment] = github.comments[12]
    assert done.json["comment"]["action"] == action
    assert done.json["comment"]["id"] == comment["id"]
    assert ("of the other reporter" in comment["body"]) == (action == "left")


def test_a_listing_that_lags_makes_no_second_comment(github, post):
    def before(method: str, path: str) -> None:
        github.unlisted = {comment["id"] for comment in github.comments[12]}

    github.before = before
    assert post(run_event()).status == 0
    assert len(github.bodies()) == 1


def test_a_comment_that_an_older_report_took_back_is_written_again(github, post):
    ours = github.say(12, f"{marker(run=1)}\nold")
    changes: list[int] = []

    def before(method: str, path: str) -> None:
        if method == "GET" and path.endswith("/comments") and len(changes) == 1:
            changes.append(1)
            ours["body"] = f"{marker(run=2)}\nlate"
        elif method == "PATCH":
            changes.append(0)

    github.before = before
    assert post(run_event()).status == 0
    assert ours["body"].startswith(marker())
    assert changes == [0, 1, 0]


def test_a_comment_that_others_keep_changing_is_given_up(github, post):
    ours = github.say(12, f"{marker(run=1)}\nold")

    def before(method: str, path: str) -> None:
        if method == "GET":
            ours["body"] = f"{marker(run=1)}\nold"

    github.before = before
    assert "let one job at a time post" in post(run_event()).failed_with(3)


def report_at_once(github: Any, runs: tuple[int, ...]) -> list[str]:
    """So many reporters in threads, which all look before any of them writes; what each says it did."""
    barrier = threading.Barrier(len(runs))
    said: dict[int, str] = {}

    def report(number: int, run: int) -> None:
        waits = iter((barrier.wait,))

        def meet_once() -> None:
            for wait in waits:
                wait(30)

        key = ReportKey(run=run, attempt=1, head=HEAD)
        posted = post_comment(
            Api(GITHUB, github.url, TOKEN, waits=Waits(sleep=lambda _seconds: None)),
            REPOSITORY,
            12,
            key,
            f"{key.marker}\ntext of {run}",
            author=BOT["login"],
            still_current=meet_once,
        )
        said[number] = posted.action

    threads = [threading.Thread(target=report, args=item) for item in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(said) == len(runs)
    return [said[number] for number in range(len(runs))]


@pytest.mark.parametrize("runs", [(1, 2), (5, 5), (1, 2, 3), (2, 2, 1), (7, 3, 5, 3, 9)], ids=str)
@pytest.mark.parametrize("there", [False, True])
def test_reporters_at_once_leave_one_comment(github, runs, there):
    for _ in range(5):
        github.comments[12].clear()
        if there:
            github.say(12, f"{marker(run=0)}\nold")
        created = len([each for each in github.writes if each.method == "POST"])
        report_at_once(github, runs)
        [body] = github.bodies()
        assert body in {f"{marker(run)}\ntext of {run}" for run in runs}
        made = len([each for each in github.writes if each.method == "POST"]) - created
        assert made == (0 if there else len(runs))


@pytest.mark.parametrize("first", [1, 2])
def test_of_two_comments_made_at_once_the_newer_text_stays(github, first):
    for _ in range(5):
        github.comments[12].clear()
        said = report_at_once(github, (first, 3 - first))
        assert github.bodies() == [f"{marker(2)}\ntext of 2"]
        assert said[first != 2] != "left"


def test_a_run_without_a_report_is_told_in_words_of_our_own(github, post, tmp_path):
    github.artifacts[RUN] = [Artifact(5, "perf-records-h200", b"x"), Artifact(6, "<b>evil", b"x")]
    done = post(run_event(conclusion="timed_out"), "--out", "report", "--json")
    assert done.status == 0
    assert (done.json["state"], done.json["comment"]) == ("no-report", None)
    [check] = github.check_runs
    assert (check["name"], check["conclusion"], check["external_id"]) == (CHECK_NAME, "neutral", f"{RUN}.1")
    assert check["output"]["title"] == "No report"
    assert check["output"]["summary"] == (
        f"The [run](https://github.example/{REPOSITORY}/actions/runs/{RUN}) that was to measure {HEAD} ended "
        "as timed out and left no report, so nothing is known of this commit. Its log says why. Reason: "
        "no-report."
    )
    assert github.bodies() == []
    assert github.fetched == []
    assert "left no report" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_a_run_without_a_report_leaves_the_comment_of_an_earlier_one(github, post):
    post(run_event())
    comments = github.bodies()
    post(run_event(run=RUN + 1))
    assert github.bodies() == comments
    assert github.check_runs[-1]["conclusion"] == "neutral"


@pytest.mark.parametrize("conclusion", ["failure", "cancelled", "timed_out", "<b>x", None])
def test_a_run_that_did_not_end_well_does_not_pass(github, post, conclusion):
    post(run_event(conclusion=conclusion))
    [check] = github.check_runs
    ending = {"timed_out": "timed out", "<b>x": "unknown", None: "unknown"}.get(conclusion, conclusion)
    assert check["conclusion"] == "neutral"
    assert check["output"]["title"] == f"The run ended as {ending}: a card may be missing here."
    [body] = github.bodies()
    assert body.splitlines()[0] == marker()
    assert f"The run ended as {ending}: a card may be missing here." in body


@pytest.mark.parametrize(
    ("event", "conclusion", "told"),
    [
        ("push", "failure", False),
        ("push", "timed_out", True),
        ("workflow_dispatch", "failure", True),
        ("workflow_dispatch", "success", False),
    ],
)
def test_a_regression_stays_one_and_a_failure_that_it_does_not_explain_is_told(
    github, post, event, conclusion, told
):
    left(github, REGRESSIONS)
    post(run_event(event=event, conclusion=conclusion))
    assert github.check_runs[0]["conclusion"] == "failure"
    assert ("a card may be missing here" in github.bodies()[0]) == told


@pytest.mark.parametrize(
    ("made", "options", "conclusion"),
    [
        (samples.inconclusive, (), "neutral"),
        (samples.inconclusive, ("--strict",), "failure"),
        (samples.clean, ("--strict",), "success"),
        (samples.regressions, ("--strict",), "failure"),
    ],
)
def test_an_unclear_report_is_neutral_and_fails_where_that_is_asked_for(
    github, post, made, options, conclusion
):
    left(github, honest(made()))
    post(run_event(), *options)
    assert github.check_runs[0]["conclusion"] == conclusion


def test_each_card_of_a_run_is_in_the_one_comment(github, post):
    cards = [
        replace(CLEAN, cards=(replace(CLEAN.cards[0], device=name),)) for name in ("NVIDIA L4", "NVIDIA H200")
    ]
    left(github, *cards)
    github.artifacts[RUN].append(Artifact(7, "perf-records-l4", b"not a report"))
    assert post(run_event()).status == 0
    [body] = github.bodies()
    assert "NVIDIA L4" in body
    assert "NVIDIA H200" in body


@pytest.fixture
def lightly(tmp_path):
    path = tmp_path / "light.json"
    path.write_text('{"cards": [], "light": true}')
    return ("--fleet", str(path), "--strict")


def test_a_light_comparison_advises_and_fails_nothing(github, post, lightly):
    left(github, REGRESSIONS)
    assert post(run_event(conclusion="failure"), *lightly).status == 0
    [check] = github.check_runs
    assert check["conclusion"] == "neutral"
    assert check["output"]["title"].startswith("Light: ")
    assert "A light comparison, as advice" in github.bodies()[0]


def test_what_was_asked_for_by_name_is_no_light_comparison(github, post, lightly):
    left(github, REGRESSIONS)
    title = f"Performance of #12 at {HEAD}, some cases"
    assert post(run_event(event="workflow_dispatch", display_title=title), *lightly).status == 0
    [check] = github.check_runs
    assert check["conclusion"] == "failure"
    assert "A light comparison" not in github.bodies()[0]


def test_thirty_cards_are_one_comment_within_its_limit(github, post):
    [card] = REGRESSIONS.cards[:1]
    names = [f"NVIDIA card {number}" for number in range(30)]
    left(github, *(replace(REGRESSIONS, cards=(replace(card, device=name),)) for name in names))
    assert post(run_event(conclusion="failure")).status == 0
    [body] = github.bodies()
    assert len(body.encode()) <= 65_536
    assert all(name in body for name in names)
    assert github.check_runs[0]["conclusion"] == "failure"


def test_of_several_attempts_the_newest_report_counts(github, post):
    names = ("NVIDIA L4", "NVIDIA H200", "NVIDIA A100")
    reviews = [replace(CLEAN, cards=(replace(CLEAN.cards[0], device=name),)) for name in names]
    github.artifacts[RUN] = [
        Artifact(number, "perf-review-x", zipped(encode(made)))
        for number, made in zip((8, 9, 7), reviews, strict=True)
    ]
    post(run_event(attempt=3))
    [body] = github.bodies()
    assert [name in body for name in names] == [False, True, False]


@pytest.mark.parametrize(
    ("branches", "measured_against", "fine"),
    [
        ({"main": BASE}, BASE, True),
        ({"main": BASE, "release/1": "e" * 40}, "e" * 40, True),
        ({"main": BASE, "release/1": "e" * 40}, BASE, True),
        ({"main": BASE, "release/1": "e" * 40}, "f" * 40, False),
        ({"release/1": "e" * 40}, "e" * 40, True),
        ({"release/1": "e" * 40}, BASE, False),
    ],
)
def test_what_was_measured_against_is_where_the_pull_request_left_a_branch(
    github, post, branches, measured_against, fine
):
    github.open_pull(base="release/1" if "release/1" in branches else "main")
    github.merge_bases = branches
    left(github, honest(samples.clean(), base=measured_against))
    done = post(run_event())
    assert done.status == (0 if fine else 2)
    assert bool(github.writes) == fine
    assert ("has moved" in done.err) == (not fine)


def test_without_any_common_commit_nothing_is_posted(github, post):
    github.merge_bases = {}
    assert "needs contents: read" in post(run_event()).failed_with(3)
    assert github.writes == []


@pytest.mark.parametrize("over", [{"number": 13}, {"base": {"ref": "main", "repo": {"full_name": "evil/x"}}}])
def test_an_api_that_tells_of_something_else_is_not_believed(github, post, over):
    github.pulls[12].update(over)
    assert "Check GITHUB_API_URL" in post(run_event()).failed_with(3)
    assert github.writes == []


def test_a_dry_run_writes_nothing_and_prints_what_would_be_written(github, post):
    github.say(12, f"{marker(run=1)}\nold")
    github.say(12, f"{marker(run=2)}\nolder")
    dry = post(run_event(), "--dry-run", "--json")
    assert dry.status == 0
    assert github.writes == []
    assert (dry.json["check"]["action"], dry.json["comment"]["action"]) == ("created", "updated")
    post(run_event())
    assert [
        (each["method"], each["url"].removeprefix(github.url), each["body"]) for each in dry.json["requests"]
    ] == [(each.method, each.path, each.body) for each in github.writes]
    for shown, wire in zip(dry.json["requests"], github.writes, strict=True):
        headers = {name.lower(): value for name, value in shown["headers"].items()}
        assert headers.items() <= wire.headers.items()
        assert "authorization" not in headers


def test_a_dry_run_in_words_shows_each_request_whole(github, post):
    done = post(run_event(), "--dry-run")
    assert done.status == 0
    requests = done.out.split("\n\n{")
    assert len(requests) == 3
    assert requests[0].startswith(f"POST {github.url}/repos/{REPOSITORY}/check-runs\nAccept: application/vnd")
    assert f"POST {github.url}/repos/{REPOSITORY}/issues/12/comments\n" in requests[1]
    body = json.JSONDecoder().raw_decode("{" + requests[2])[0]["body"]
    assert body.startswith(marker())
    assert done.out.endswith("Pull request 12: check run would be created; comment would be created.\n")


def hostile() -> Any:
    """Return failed cases with hostile values in every field that the schema leaves free."""
    cases = tuple(
        samples.case(f"k{at}", 1, "failed", message=text, log=text, reason="crashed")
        for at, text in enumerate(samples.ATTACKS)
    )
    return honest(samples.review(samples.card(*cases, twins=(), places={}, problem=samples.ATTACKS[6])))


def test_no_line_of_a_dry_run_is_a_command_to_the_runner(github, post):
    left(github, hostile())
    for arguments in ((), ("--json",)):
        done = post(run_event(), "--dry-run", *arguments)
        assert done.status == 0
        assert "gotcha" in done.out
        assert "##[" not in done.out
        assert not [line for line in done.out.splitlines() if line.strip().startswith("::")]
        assert done.out.isascii()


def test_texts_of_strangers_arrive_as_texts(github, post):
    left(github, hostile())
    assert post(run_event()).status == 0
    [body] = github.bodies()
    assert "<script" not in body
    assert "<img" not in body
    assert body.count(marker()) == 1


def test_a_report_of_two_thousand_regressions_fits_into_what_github_takes(github, post):
    cases = [samples.case(f"k{at}_{'x' * 80}", 1024, "regression") for at in range(1000)]
    card = samples.card(*cases, twins=(), places={case.kernel: samples.PLACES["naive"] for case in cases})
    left(github, honest(samples.review(card, replace(card, device="NVIDIA L4"))))
    done = post(run_event())
    assert (done.status, done.err) == (0, "")
    assert len(github.bodies()) == 1
    assert github.check_runs[0]["conclusion"] == "failure"


@pytest.mark.parametrize("packed", [False, True])
def test_a_report_may_be_given_by_hand(github, post, tmp_path, packed):
    content = encode(REGRESSIONS)
    (tmp_path / "given").write_bytes(zipped(content) if packed else content)
    assert post(run_event(), "--review", "given").status == 0
    assert github.check_runs[0]["conclusion"] == "failure"
    assert not [each for each in github.log if "artifacts" in each.path]


def test_a_report_given_by_hand_is_checked_like_any(github, post, tmp_path):
    (tmp_path / "bad").write_bytes(encode(replace(CLEAN, head=OTHER_HEAD)))
    assert "expected aaaa" in post(run_event(), "--review", "bad").failed_with(2)
    assert "cannot be read" in post(run_event(), "--review", "none").err
    assert "cannot be read" in post(run_event(), "--review", ".").err
    assert github.writes == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GITHUB_TOKEN", None),
        ("GITHUB_TOKEN", ""),
        ("GITHUB_REPOSITORY", None),
        ("GITHUB_REPOSITORY", "nonsense"),
        ("GITHUB_EVENT_PATH", None),
        ("GITHUB_EVENT_PATH", "/none/at/all"),
        ("GITHUB_API_URL", "http://api.example"),
        ("GITHUB_SERVER_URL", "javascript:alert(1)"),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_named(github, post, monkeypatch, variable, value):
    if value is None:
        monkeypatch.delenv(variable)
    else:
        monkeypatch.setenv(variable, value)
    done = post(run_event())
    assert done.status == 2
    assert variable in done.err.splitlines()[-1]
    assert github.log == []


def test_what_is_given_counts_more_than_a_variable(github, post, monkeypatch, tmp_path):
    for name in ("GITHUB_REPOSITORY", "GITHUB_EVENT_PATH", "GITHUB_API_URL"):
        monkeypatch.setenv(name, "https://nonsense.example")
    given = ("--repository", REPOSITORY, "--event", str(tmp_path / "event.json"), "--api", f"{github.url}/")
    assert post(run_event(), *given).status == 0
    assert len(github.bodies()) == 1


@pytest.mark.parametrize("history", ["javascript:alert(1)", "http://example.org", "https://a b", "//x"])
def test_pages_are_linked_to_by_https_alone(github, post, history):
    assert "--history" in post(run_event(), "--history", history).failed_with(2)
    assert github.log == []


def test_without_pages_there_is_no_link_to_them(github, post):
    assert post(run_event(), "--history", "").status == 0


def test_an_event_of_another_kind_is_refused(github, post):
    assert "no workflow_run event" in post(comment_event("/perf")).failed_with(2)
    assert github.log == []


def test_outside_a_workflow_an_error_is_no_command(github, post, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS")
    done = post({})
    assert done.status == 2
    assert done.err.startswith("harness: The event is no workflow_run event")


def test_files_that_cannot_be_written_stop_it_before_anything_is_posted(github, post, tmp_path):
    (tmp_path / "report").write_text("in the way", encoding="utf-8")
    assert "Cannot write the report" in post(run_event(), "--out", "report").failed_with(3)
    assert github.writes == []


def test_the_fake_refuses_what_github_would(github):
    api = Api(GITHUB, github.url, TOKEN, waits=Waits(sleep=lambda _seconds: None))
    path = path_of(REPOSITORY, "check-runs")
    note = {"path": "a", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "x"}
    output = {"title": "t", "summary": "s", "annotations": [note] * 50}
    fine = {"name": "n", "head_sha": HEAD, "status": "completed", "conclusion": "neutral", "output": output}
    assert api.create(path, fine, dict, needs="checks: write")
    for wrong in (
        {"output": {**output, "annotations": [note] * 51}},
        {"output": {**output, "summary": "x" * 65_536}},
        {"output": {**output, "annotations": [{**note, "annotation_level": "error"}]}},
        {"conclusion": "passed"},
        {"conclusions": "success"},
        {"head_sha": OTHER_HEAD},
    ):
        with pytest.raises(RemoteError, match="422"):
            api.create(path, {**fine, **wrong}, dict, needs="checks: write")


def test_an_enterprise_server_is_asked_and_linked_to_and_no_other_host(tmp_path, capsys, monkeypatch):
    """Its API is below /api/v3, and GITHUB_SERVER_URL is its own."""
    server = GitHub()
    server.below = "/api/v3"
    with serving(server) as github:
        github.open_pull()
        left(github, REGRESSIONS)
        post = posting(github, tmp_path, capsys, monkeypatch)
        monkeypatch.setenv("GITHUB_SERVER_URL", "https://ghe.example")
        done = post(run_event())
        assert (done.status, done.err) == (0, "")
        assert {each.path.startswith("/api/v3/repos/") for each in github.log} == {True}
        [body], [check] = github.bodies(), github.check_runs
        hosts = set(re.findall(r'href="https://([^/"]+)', body))
        assert hosts == {"ghe.example"}
        assert check["details_url"].startswith(f"https://ghe.example/{REPOSITORY}/actions/runs/")


def test_an_enterprise_server_is_audited(tmp_path, capsys, monkeypatch):
    server = GitHub()
    server.below = "/api/v3"
    with serving(server) as github:
        github.settings = {"": {"full_name": REPOSITORY, "default_branch": "main", "private": True}}
        posting(github, tmp_path, capsys, monkeypatch)
        done = caller(capsys, monkeypatch)("ci", "audit", "--relied", "--json", cwd=tmp_path)
        assert done.status == 1
        assert {each["state"] for each in done.json} >= {"missing"}
