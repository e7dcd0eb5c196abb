"""`harness ci post` in a job of GitLab: one note and one commit status, by the data of GitLab instead of
those of the job with the card.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.ci import forge as forge_api
from harness.ci.gitlab.measured_pipeline import links_of_job, without_actions
from harness.errors import ExitCode
from harness.report.document.document import encode
from tests import review_samples as samples
from tests.github_reports import WAITS, honest
from tests.github_server import HEAD
from tests.gitlab_server import ME, PIPELINE, SOMEBODY, TOKEN, WEB, job, serving

CLEAN, REGRESSIONS = (encode(honest(sample)) for sample in (samples.clean(), samples.regressions()))
MARKER = f"<!-- gpu-harness:review run={PIPELINE} attempt=1 head={HEAD} -->"


@pytest.fixture
def gitlab():
    with serving() as server:
        server.open()
        yield server


@pytest.fixture
def post(gitlab, tmp_path, monkeypatch, harness):
    monkeypatch.setattr(forge_api, "Waits", lambda: WAITS)

    def run(*words, **over):
        for name, value in job(gitlab, **over).items():
            monkeypatch.setenv(name, value)
        done = harness("ci", "post", *words, cwd=tmp_path)
        assert TOKEN not in done.out + done.err
        return done

    return run


def test_a_first_report_becomes_a_note_and_a_status(gitlab, post, tmp_path):
    gitlab.measured(REGRESSIONS)
    done = post("--out", "perf-report")
    assert (done.status, done.err) == (0, "")
    [body] = gitlab.bodies()
    assert body.startswith(MARKER)
    assert f'href="{WEB}/-/commit/{HEAD}"' in body
    assert f"{WEB}/-/blob/{HEAD}/" in body
    assert f'href="{WEB}/-/jobs/77/artifacts/file/perf-report/review.html"' in body
    assert (tmp_path / "perf-report" / "review.html").exists()
    [status] = gitlab.statuses
    assert (status["name"], status["state"], status["sha"]) == ("GPU performance", "failed", HEAD)
    assert (status["pipeline_id"], status["target_url"]) == (PIPELINE, f"{WEB}/-/pipelines/{PIPELINE}")
    assert f"note created ({WEB}/-/merge_requests/12#note_" in done.out


def test_the_next_pipeline_takes_the_place_of_the_note_and_of_no_other_note(gitlab, post):
    gitlab.say(12, f"{MARKER}\nlooks alike", SOMEBODY)
    gitlab.say(12, "changed the description", ME, system=True)
    gitlab.measured(REGRESSIONS)
    post()
    gitlab.reports[gitlab.jobs[0]["id"]] = CLEAN
    assert post().status == 0
    theirs, system, ours = gitlab.bodies()
    assert (theirs, system) == (f"{MARKER}\nlooks alike", "changed the description")
    assert ours.startswith(MARKER)
    assert [each["state"] for each in gitlab.statuses] == ["failed", "success"]


def test_what_an_older_pipeline_says_is_left_out(gitlab, post):
    newer = gitlab.say(12, MARKER.replace(str(PIPELINE), str(PIPELINE + 1)), ME)
    gitlab.measured(CLEAN)
    done = post("--json")
    assert done.json["comment"]["action"] == done.json["check"]["action"] == "left"
    assert (gitlab.bodies(), gitlab.writes) == ([newer["body"]], [])


@pytest.mark.parametrize(
    "line", ["/merge", "/approve", "  /label ~security", "\t/close", "/shrug", "// no action", "/*"]
)
def test_a_log_starts_no_quick_action(gitlab, post, line):
    """GitLab does what a line of a note says that begins with a slash: with the token's rights."""
    review = honest(samples.regressions())
    [card] = review.cards
    broken = samples.case("naive", status="failed", log=f"error:\n{line}\n", side="head", message="m")
    gitlab.measured(encode(replace(review, cards=(replace(card, cases=(broken,), places={}),))))
    assert post().status == 0
    assert gitlab.acted == []
    assert line.strip().removeprefix("/") in gitlab.bodies()[0]


def test_a_slash_within_a_line_stays():
    assert without_actions("a/b\n/x\n https://c/d") == "a/b\n&#47;x\n https://c/d"


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({}, {"pipeline_id": PIPELINE}),
        ({"CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD, "CI_COMMIT_SHA": "9" * 40}, {"pipeline_id": PIPELINE}),
        (
            {
                "PERF_MERGE_REQUEST": "12",
                "PERF_COMMIT": HEAD,
                "CI_COMMIT_SHA": "9" * 40,
                "CI_MERGE_REQUEST_IID": "",
            },
            {"ref": "faster"},
        ),
    ],
)
def test_the_commit_is_the_merge_requests_in_every_kind_of_pipeline(gitlab, post, variables, where):
    gitlab.measured(CLEAN)
    assert post(**variables).status == 0
    [status] = gitlab.statuses
    assert status["sha"] == HEAD
    assert where.items() <= status.items()
    assert {"ref", "pipeline_id"} & set(status) == set(where)


def test_a_forks_commit_has_a_ref_of_its_own(gitlab, post):
    gitlab.open(fork=True)
    gitlab.measured(CLEAN)
    post(PERF_MERGE_REQUEST="12", PERF_COMMIT=HEAD)
    assert gitlab.statuses[0]["ref"] == "refs/merge-requests/12/head"


@pytest.mark.parametrize("moved", [{"head": "d" * 40}, {"state": "merged"}])
def test_of_what_has_moved_on_nothing_is_shown(gitlab, post, moved):
    gitlab.open(**moved)
    gitlab.measured(CLEAN)
    done = post("--json")
    assert (done.status, done.json["state"], gitlab.writes) == (0, "stale", [])


def test_a_commit_that_is_pushed_meanwhile_gets_no_note(gitlab, post):
    """Between reading the report and writing."""
    gitlab.measured(CLEAN)
    gitlab.before = lambda _method, path: gitlab.open(head="d" * 40) if path.endswith("/notes") else None
    assert post("--json").json["state"] == "stale"
    assert gitlab.writes == []


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (b"{}", "schema_version"),
        (CLEAN.replace(HEAD.encode(), b"e" * 40), "nothing is posted"),
        (CLEAN.replace(b"b" * 40, b"e" * 40), "nothing is posted"),
        (b" " * (2**24 + 1), "more than"),
    ],
)
def test_a_report_that_is_not_what_it_should_be_is_refused(gitlab, post, report, said):
    gitlab.measured(report)
    done = post()
    assert (done.status, gitlab.writes) == (2, [])
    assert said in done.err


def test_reports_of_a_matrix_are_one(gitlab, post):
    other = honest(samples.clean())
    other = replace(other, cards=tuple(replace(card, device="NVIDIA L40S") for card in other.cards))
    gitlab.measured(CLEAN, "perf-measure: [h200]")
    gitlab.measured(encode(other), "perf-measure: [l40s]")
    gitlab.measured(b"not ours", "perf-measurement")
    post()
    assert "NVIDIA H200" in gitlab.bodies()[0]
    assert "NVIDIA L40S" in gitlab.bodies()[0]
    assert gitlab.statuses[0]["state"] == "success"


@pytest.mark.parametrize(("strict", "state"), [((), "skipped"), (("--strict",), "failed")])
def test_not_knowing_is_not_green(gitlab, post, strict, state):
    """GitLab has no neutral status; a skipped one is grey."""
    gitlab.measured(CLEAN, "perf-measure: [h200]")
    gitlab.measured(None, "perf-measure: [l40s]", "failed")
    post(*strict)
    assert gitlab.statuses[0]["state"] == state
    told = "perf-measure: [l40s] ended as failed without a report"
    assert told in gitlab.statuses[0]["description"]
    assert told in gitlab.bodies()[0]


def test_a_pipeline_without_a_report_gets_a_status_and_no_note(gitlab, post):
    gitlab.measured(None, status="canceled")
    assert post("--json").json["state"] == "no-report"
    assert gitlab.bodies() == []
    assert (gitlab.statuses[0]["state"], gitlab.statuses[0]["description"]) == ("skipped", "No report")


def test_a_report_that_may_not_be_fetched_is_not_taken_for_none(gitlab, post):
    gitlab.measured(CLEAN)
    gitlab.unseen = (f"/jobs/{gitlab.jobs[0]['id']}/artifacts/perf-review/review.json",)
    done = post()
    assert (done.status, gitlab.writes) == (ExitCode.NOT_MEASURED, [])
    assert "403" in done.err


def test_a_status_that_fails_does_not_cost_the_note(gitlab, post):
    gitlab.measured(CLEAN)
    gitlab.broken.add(f"POST /projects/42/statuses/{HEAD}")
    done = post()
    assert done.status == 3
    assert len(gitlab.bodies()) == 1


def test_a_dry_run_writes_nothing_and_shows_what_it_would(gitlab, post):
    gitlab.measured(CLEAN)
    done = post("--dry-run")
    assert (done.status, gitlab.writes) == (0, [])
    assert "POST " in done.out
    assert f"/projects/42/statuses/{HEAD}" in done.out


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CI_MERGE_REQUEST_IID": ""}, "PERF_MERGE_REQUEST"),
        ({"PERF_MERGE_REQUEST": "12; rm", "PERF_COMMIT": HEAD}, "expected numbers"),
        ({"PERF_MERGE_REQUEST": "12"}, "a full hash"),
        ({"CI_PROJECT_ID": "../user"}, "no project"),
        ({"GITLAB_TOKEN": ""}, "GITLAB_TOKEN is empty"),
        ({"CI_API_V4_URL": "http://gitlab.example/api/v4"}, "CI_API_V4_URL"),
    ],
)
def test_variables_that_say_nothing_are_refused_before_anything_is_asked(gitlab, post, variables, said):
    done = post(**variables)
    assert (done.status, gitlab.log) == (2, [])
    assert said in done.err


def test_a_refusal_says_what_to_do_at_gitlab(gitlab, post):
    gitlab.measured(CLEAN)
    gitlab.unseen = ("/merge_requests/12",)
    done = post()
    assert "CI_JOB_TOKEN has not" in done.failed_with(3)
    assert "GITHUB" not in done.err


def test_a_bare_report_is_posted_in_place_of_the_jobs(gitlab, post, tmp_path):
    (tmp_path / "review.json").write_bytes(CLEAN)
    assert json.loads(post("--review", "review.json", "--json").out)["state"] == "posted"


@pytest.mark.parametrize(
    ("command", "said"), [("request", "PERF_MERGE_REQUEST"), ("post-static", "only at GitHub")]
)
def test_what_is_github_s_alone_is_refused_there(gitlab, tmp_path, harness, monkeypatch, command, said):
    for name, value in job(gitlab).items():
        monkeypatch.setenv(name, value)
    done = harness("ci", command, cwd=tmp_path)
    assert (done.status, gitlab.log) == (2, [])
    assert said in done.err


def test_a_report_in_a_job_of_gitlabs_links_to_it(gitlab):
    """The link leads to the job with the card. A strange address loses no result."""
    links = links_of_job(job(gitlab, CI_PROJECT_URL="http://gitlab.example/a/b"), history="https://h.example")
    assert (links.repository, links.history) == ("http://gitlab.example/a/b/-", "https://h.example")
    assert links.run == f"{WEB}/-/pipelines/{PIPELINE}"
    assert links_of_job({}).repository == ""
