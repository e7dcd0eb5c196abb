"""The client of GitHub's API: receivers of the token, repeated requests, messages of errors; and events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from harness.ci.forge import Api, ApiError, UnclearError, Waits, check_address, quoted
from harness.ci.github.github_api import GITHUB, path_of
from harness.ci.github.workflow_events import annotation, measured_run, measurement_asked, read_event
from harness.errors import ConfigError, RefusedError, RemoteError
from tests import http_servers
from tests.github_server import HEAD, REPOSITORY, TOKEN, Artifact, comment_event, run_event, serving

PULL = path_of(REPOSITORY, "pulls", 12)
COMMENTS = path_of(REPOSITORY, "issues", 12, "comments")
ZIP = path_of(REPOSITORY, "actions", "artifacts", 5, "zip")
NOW = 1_800_000_000.0


@dataclass
class Clock:
    """Time that passes when somebody sleeps."""

    slept: list[float] = field(default_factory=list)

    @property
    def waits(self) -> Waits:
        return Waits(sleep=self.slept.append, now=lambda: NOW + sum(self.slept), jitter=lambda: 0.5)


@pytest.fixture
def github():
    with serving() as server:
        server.open_pull()
        yield server


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def api(github, clock):
    return Api(GITHUB, github.url, TOKEN, waits=clock.waits)


def get_pull(api: Api) -> Any:
    return api.get(PULL, dict, needs="pull-requests: read")


def say(api: Api, body: str = "Hello", done: Any = None) -> Any:
    return api.create(COMMENTS, {"body": body}, dict, needs="pull-requests: write", done=done)


def download(api: Api, limit_bytes: int = 1000) -> bytes:
    return api.download(ZIP, needs="actions: read", limit_bytes=limit_bytes)


def test_a_request_is_as_github_documents_it(github, api):
    assert get_pull(api)["number"] == 12
    [request] = github.log
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["x-github-api-version"] == "2022-11-28"
    assert request.headers["user-agent"].startswith("gpu-harness/")
    assert request.status == 200


def test_pages_are_followed_by_number_and_never_by_the_address_that_an_answer_gives(github, api):
    for number in range(250):
        github.say(12, f"comment {number}")
    pages = list(api.pages(COMMENTS, list[dict[str, Any]], needs="pull-requests: read"))
    assert [len(page) for page in pages] == [100, 100, 50]
    assert [each["body"] for page in pages for each in page] == [f"comment {n}" for n in range(250)]


def test_a_page_that_is_not_full_is_not_taken_for_the_last(github, api):
    # GitHub leaves out of a page what was written by accounts that it has hidden.
    github.per_page = 2
    for number in range(5):
        github.say(12, f"comment {number}")
    pages = api.pages(COMMENTS, list[dict[str, Any]], needs="pull-requests: read")
    assert [len(page) for page in pages] == [2, 2, 1]


def test_pages_without_end_are_an_error(github, api):
    github.per_page = 1
    for number in range(101):
        github.say(12, f"comment {number}")
    with pytest.raises(RemoteError, match="more than 100 pages"):
        list(api.pages(COMMENTS, list[dict[str, Any]], needs="pull-requests: read"))


@pytest.mark.parametrize("status", [500, 502, 503, 504, 0])
def test_what_only_reads_is_tried_again(github, api, clock, status):
    github.trouble("GET", "/pulls/12", status, times=3)
    assert get_pull(api)["number"] == 12
    assert [each.status for each in github.log] == [status, status, status, 200]
    assert clock.slept == [1.5, 3.0, 6.0]


def test_trying_ends(github, api, clock):
    github.trouble("GET", "/pulls/12", 503, times=99)
    with pytest.raises(RemoteError, match="gave status 503 in 5 tries") as caught:
        get_pull(api)
    assert len(github.log) == 5
    assert TOKEN not in str(caught.value)


def test_an_answer_that_breaks_off_is_no_answer(github, api):
    github.trouble("GET", "/pulls/12", truncate=True)
    assert get_pull(api)["number"] == 12
    assert len(github.log) == 2


def test_a_server_that_is_not_there_is_an_error_that_says_so(clock):
    api = Api(GITHUB, "http://127.0.0.1:9", TOKEN, waits=clock.waits)
    with pytest.raises(RemoteError, match=r"no answer .*refused.* in 5 tries"):
        get_pull(api)


@pytest.mark.parametrize(
    ("status", "headers", "message", "waited_s"),
    [
        pytest.param(429, {"Retry-After": "7"}, "", 7, id="429 that says how long"),
        pytest.param(429, {}, "", 60, id="429 that does not"),
        pytest.param(429, {"Retry-After": "soon"}, "", 60, id="nonsense"),
        pytest.param(429, {"Retry-After": "0"}, "", 1, id="at once"),
        pytest.param(403, {"Retry-After": "30"}, "", 30, id="403 that says how long"),
        pytest.param(
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) + 90)},
            "API rate limit exceeded",
            91,
            id="primary limit",
        ),
        pytest.param(403, {"X-RateLimit-Remaining": "0"}, "API rate limit exceeded", 60, id="no reset"),
        pytest.param(403, {}, "You have exceeded a secondary rate limit.", 60, id="secondary limit"),
    ],
)
def test_a_rate_limit_is_waited_for_and_nothing_is_done_twice(
    github, api, clock, status, headers, message, waited_s
):
    github.trouble("POST", "/comments", status, headers=headers, message=message)
    assert say(api)["body"] == "Hello"
    assert clock.slept == [waited_s]
    assert github.bodies() == ["Hello"]


def test_a_limit_that_holds_is_waited_for_longer_each_time(github, api, clock):
    github.trouble("GET", "/pulls/12", 403, message="You have exceeded a secondary rate limit", times=3)
    assert get_pull(api)
    assert clock.slept == [60, 120, 240]


def test_a_limit_that_takes_too_long_is_an_error_that_says_when(github, api, clock):
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW) + 3599)}
    github.trouble("GET", "/pulls/12", 403, headers=reset)
    with pytest.raises(RemoteError, match=r"until 2027-01-15T09:00:00Z.*Run this again then"):
        get_pull(api)
    assert clock.slept == []


def test_patience_with_limits_is_that_of_the_whole_process(github, api, clock):
    github.trouble("GET", "/pulls/12", 429, headers={"Retry-After": "200"}, times=99)
    with pytest.raises(RemoteError, match="rate limit"):
        get_pull(api)
    assert clock.slept == [200, 200, 200]


def test_a_limit_of_centuries_is_told_too(github, api):
    github.trouble("GET", "/pulls/12", 429, headers={"Retry-After": "9" * 12})
    with pytest.raises(RemoteError, match="rate limit for this token is reached until 2028"):
        get_pull(api)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "GITHUB_TOKEN"),
        (403, "needs pull-requests: write.*every token is read-only"),
        (404, "needs pull-requests: write"),
        (410, "expire"),
        (422, "report this"),
        (418, "githubstatus.com"),
    ],
)
def test_an_error_says_what_github_said_and_what_to_do(github, api, status, advice):
    github.trouble("POST", "/comments", status, message="No\nsuch \x1b[31mluck ##[error]x")
    with pytest.raises(ApiError, match=advice) as caught:
        say(api)
    assert caught.value.status == status
    assert f"POST {github.url}{COMMENTS} was refused with {status} (No such" in caught.value.message
    assert not {"\n", "\x1b"} & set(caught.value.message)
    assert "##[" not in caught.value.message
    assert len(github.log) == 1


def test_what_is_missing_of_a_field_is_told(github, api):
    with pytest.raises(ApiError, match=r"422 \(Validation Failed .*too long \(maximum is 65536"):
        say(api, "x" * 65_537)


def test_a_wrong_token_is_never_shown(github, clock):
    with pytest.raises(ApiError, match="401") as caught:
        get_pull(Api(GITHUB, github.url, "ghs_wrongwrongwrong", waits=clock.waits))
    assert "wrongwrong" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "é", "x" * 5000])
def test_what_is_no_token_is_refused_without_being_shown(token):
    with pytest.raises(ConfigError, match="GITHUB_TOKEN") as caught:
        Api(GITHUB, "https://api.github.com", token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    "root",
    [
        "http://api.github.com",
        "ftp://api.github.com",
        "file:///etc/passwd",
        "https://user@api.github.com",
        "https://",
        "https://[::1",
        "https://api.github.com:99999",
        "https://api.github.com/?x=1",
        "https://api.github.com/#x",
        "http://127.0.0.1.evil.example",
        "https://api.github.com/\nHost: evil",
        "javascript:alert(1)",
        "https://a..b/",
        f"https://{'a' * 64}.example/",
        "",
    ],
)
def test_an_api_is_called_by_https_alone(root):
    with pytest.raises(ConfigError, match="GITHUB_API_URL"):
        Api(GITHUB, root, TOKEN)


def test_addresses_that_are_fine(github):
    assert check_address("https://api.github.com", "X")
    assert check_address("https://git.example:8443/api/v3", "X")
    assert check_address("http://127.0.0.1:8000", "X")
    assert check_address("http://localhost:8000", "X")


def test_an_answer_of_another_kind_is_an_error(github, api):
    with pytest.raises(RemoteError, match=r"an unexpected answer.*GITHUB_API_URL"):
        api.get(PULL, list[int], needs="pull-requests: read")


@pytest.mark.parametrize(
    ("status", "moved"), [(301, True), (302, True), (307, True), (308, True), (304, False)]
)
def test_the_token_follows_no_redirect(github, api, status, moved):
    with serving() as elsewhere:
        github.trouble("GET", "/pulls/12", status, headers={"Location": f"{elsewhere.url}{PULL}"})
        with pytest.raises(ApiError, match="has moved" if moved else "refused with 304"):
            get_pull(api)
        assert not elsewhere.log


def test_a_lost_answer_to_something_new_is_looked_after_before_it_is_sent_again(github, api, clock):
    github.trouble("POST", "/comments", after=True)
    looked = []

    def done() -> Any:
        looked.append(len(github.comments[12]))
        return github.comments[12][0]

    assert say(api, done=done)["body"] == "Hello"
    assert looked == [1]
    assert github.bodies() == ["Hello"]
    assert clock.slept == [1.5]


@pytest.mark.parametrize("status", [0, 502, 503])
def test_what_was_not_done_is_done_again(github, api, status):
    github.trouble("POST", "/comments", status, times=2)
    assert say(api, done=lambda: None)["body"] == "Hello"
    assert github.bodies() == ["Hello"]


@pytest.mark.parametrize("status", [0, 500, 503])
def test_without_a_way_to_look_nothing_is_sent_twice(github, api, status):
    github.trouble("POST", "/comments", status, after=True)
    with pytest.raises(UnclearError):
        say(api)
    assert len(github.writes) == 1


def test_trying_to_make_something_ends(github, api):
    github.trouble("POST", "/comments", 500, times=99)
    with pytest.raises(UnclearError, match="status 500"):
        say(api, done=lambda: None)
    assert len(github.writes) == 5


def test_what_changes_something_is_sent_again(github, api):
    known = github.say(12, "before")
    github.trouble("PATCH", "/comments", times=2, after=True)
    path = path_of(REPOSITORY, "issues", "comments", known["id"])
    api.update(path, {"body": "after"}, dict, needs="pull-requests: write")
    assert github.bodies() == ["after"]


def test_what_is_gone_already_is_removed(github, api):
    known = github.say(12, "before")
    github.trouble("DELETE", "/comments", after=True)
    path = path_of(REPOSITORY, "issues", "comments", known["id"])
    api.delete(path, needs="pull-requests: write")
    assert [each.status for each in github.writes] == [0, 404]
    assert github.bodies() == []


def test_a_dry_run_sends_nothing_that_writes_and_keeps_it(github):
    api = Api(GITHUB, github.url, TOKEN, dry_run=True)
    assert get_pull(api)["number"] == 12
    assert say(api, "Grüße") is None
    assert api.update("/x", {"a": 1}, dict, needs="") is None
    api.delete("/y", needs="")
    assert [(held.method, held.url) for held in api.held] == [
        ("POST", f"{github.url}{COMMENTS}"),
        ("PATCH", f"{github.url}/x"),
        ("DELETE", f"{github.url}/y"),
    ]
    assert not any("uthorization" in held.headers or TOKEN in str(held) for held in api.held)
    assert github.writes == []


def test_what_a_dry_run_keeps_is_what_is_sent_otherwise(github, api):
    dry = Api(GITHUB, github.url, TOKEN, dry_run=True)
    say(dry, "Grüße")
    say(api, "Grüße")
    [held], [sent] = dry.held, github.writes
    assert (held.method, held.url.removeprefix(github.url), held.body) == (sent.method, sent.path, sent.body)
    added = {"authorization", "host", "connection", "content-length", "accept-encoding"}
    as_sent = {name: value for name, value in sent.headers.items() if name not in added}
    assert as_sent == {name.lower(): value for name, value in held.headers.items()}


def test_a_download_shows_the_token_to_the_api_alone(github, api):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"content")]
    assert download(api) == b"content"
    [request] = github.fetched
    assert "authorization" not in request.headers
    assert TOKEN not in str(request)


@pytest.mark.parametrize(
    "location",
    [
        "http://storage.example/x",
        "ftp://storage.example/x",
        "file:///etc/passwd",
        "/relative",
        "https://user:secret@storage.example/",
        "",
        "http://[::1",
    ],
)
def test_a_download_is_fetched_by_https_alone(github, api, location):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"content")]
    github.redirect_to = location
    if not location:
        github.trouble("GET", "/zip", 302)
    with pytest.raises(RemoteError, match="not https"):
        download(api)
    assert github.fetched == []


@pytest.mark.parametrize(
    "more", [{"status": 500}, {"status": 403}, {"status": 429}, {"status": 0}, {"truncate": True}]
)
def test_a_download_that_fails_is_asked_for_again(github, api, more):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"content")]
    github.trouble("STORAGE", "/blob", times=2, **more)
    assert download(api) == b"content"
    assert [each.path for each in github.log] == [ZIP] * 3


def test_a_download_is_not_sent_to_this_machine_by_an_api_that_is_elsewhere(github, api):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"content")]
    api._loopback = False
    with pytest.raises(RemoteError, match="not https"):
        download(api)
    assert github.fetched == []


def test_a_download_that_keeps_failing_is_an_error_that_hides_the_signed_address(github, api, clock):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"content")]
    github.trouble("STORAGE", "/blob", 503, times=99)
    with pytest.raises(RemoteError, match="its storage gave status 503") as caught:
        download(api)
    assert "SECRET-SIGNATURE" not in str(caught.value)
    assert len(github.fetched) == 5
    assert len(clock.slept) == 4


def test_redirects_in_a_circle_end(github, api):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"content")]
    github.trouble("STORAGE", "/blob", 302, times=99)
    with pytest.raises(RemoteError):
        download(api)
    assert len(github.fetched) <= 5


def test_no_more_is_downloaded_than_asked_for(github, api):
    github.artifacts[1] = [Artifact(5, "perf-review-h200", b"x" * 1001)]
    with pytest.raises(RefusedError, match="more than 1000 bytes") as caught:
        download(api)
    assert "SECRET-SIGNATURE" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "kernels", "a/b/c", "../x", "a/..", "a/.", "a b/c", "a/b\n", "-a/b", "a/é"]
)
def test_what_is_no_repository_is_refused(name):
    with pytest.raises(ConfigError, match="OWNER/NAME"):
        path_of(name, "pulls")


def test_a_part_of_a_path_stays_one():
    assert path_of("a/b", "compare", "x/../y?z#…") == "/repos/a/b/compare/x%2F..%2Fy%3Fz%23%E2%80%A6"


def test_a_proxy_is_asked_for_a_tunnel_and_never_shown_the_token(clock, monkeypatch):
    asked = []

    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append((self.path, str(self.headers)))
            self.send_error(502)

    with http_servers.serving(Proxy) as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        api = Api(GITHUB, "https://api.github.example", TOKEN, waits=clock.waits)
        with pytest.raises(RemoteError, match="no answer"):
            get_pull(api)
    assert {path for path, _ in asked} == {"api.github.example:443"}
    assert TOKEN not in str(asked)


def test_a_quoted_text_is_one_line_and_no_command():
    assert quoted("a\n::error::b\r\n\x1b[1m ##[debug]c\u202e") == (
        "a :\ufffd:error:\ufffd:b \ufffd[1m ##\ufffd[debug]c\ufffd"
    )
    assert len(quoted("x" * 1000)) == 300


def test_a_line_of_error_keeps_to_its_line():
    line = annotation("error", "a: b, c", "50 %\n::error::")
    assert line == "::error title=a%3A b%2C c::50 %25%0A::error::"


def run_of(event: dict[str, Any], repository: str = REPOSITORY) -> Any:
    return measured_run(json.dumps(event).encode(), repository)


def test_a_push_to_the_mirror_of_a_pull_request_is_measured():
    run = run_of(run_event(conclusion="timed_out"))
    assert (run.pull_request, run.head, run.default_branch) == (12, HEAD, "main")
    assert run.ending == "timed out"


def test_a_start_by_hand_is_measured_by_its_title():
    run = run_of(run_event(77, "d" * 40, event="workflow_dispatch"))
    assert (run.pull_request, run.head) == (77, "d" * 40)


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/perf-pr.yml",
        ".github/workflows/perf-pr.yml@pull-request/12",
        ".github/workflows/perf-pr.yml@refs/heads/pull-request/12",
    ],
)
def test_a_path_may_say_of_which_branch_it_is(path):
    assert run_of(run_event(path=path)).pull_request == 12


def test_names_of_repositories_have_no_case():
    assert run_of(run_event(head_repository={"full_name": "Example/Kernels"}), "example/KERNELS")


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        pytest.param({"event": "pull_request"}, "started by pull_request", id="of a fork's own"),
        pytest.param({"event": "pull_request_target"}, "started by pull_request_target", id="target"),
        pytest.param({"event": "schedule"}, "started by schedule", id="schedule"),
        pytest.param({"event": "workflow_dispatch"}, "on branch 'pull-request/12'", id="by hand, elsewhere"),
        pytest.param({"head_branch": "main"}, "on branch 'main'", id="a push to the default branch"),
        pytest.param({"head_branch": "pull-request/012"}, "on branch", id="leading zero"),
        pytest.param({"head_branch": "pull-request/0"}, "on branch", id="zero"),
        pytest.param({"head_branch": "pull-request/12\n"}, "on branch", id="line break"),
        pytest.param({"head_branch": "pull-request/12/../13"}, "on branch", id="more path"),
        pytest.param({"head_branch": "x/pull-request/12"}, "on branch", id="less path"),
        pytest.param({"head_branch": "pull-request/1234567890"}, "on branch", id="too long"),
        pytest.param({"head_branch": "pull-request/\u0661\u0662"}, "on branch", id="other digits"),
        pytest.param({"head_branch": None}, "on branch", id="no branch"),
        pytest.param({"head_repository": {"full_name": "evil/kernels"}}, "another repository", id="fork"),
        pytest.param({"head_repository": None}, "another repository", id="a fork that is gone"),
        pytest.param({"path": ".github/workflows/perf-pr.yml.yml"}, "is of workflow", id="longer path"),
        pytest.param({"path": ".github/workflows/evil.yml"}, "is of workflow", id="other workflow"),
        pytest.param({"path": ".github/workflows/perf-pr.yml@x.yml"}, "is of workflow", id="@ in a name"),
        pytest.param({"path": "evil/r/.github/workflows/perf-pr.yml@main"}, "is of workflow", id="elsewhere"),
        pytest.param({"head_sha": "abc"}, "no commit", id="short commit"),
        pytest.param({"head_sha": f"{HEAD}\n"}, "no commit", id="commit and line break"),
        pytest.param({"status": "in_progress"}, "not completed", id="not done"),
        pytest.param({"id": 0}, "positive", id="run 0"),
        pytest.param({"id": 2**70}, "int|positive", id="a run beyond numbers"),
        pytest.param({"id": "5"}, "Expected `int`", id="a run in words"),
        pytest.param({"run_attempt": -1}, "positive", id="attempt before the first"),
    ],
)
def test_a_run_of_any_other_kind_is_refused(over, reason):
    with pytest.raises(RefusedError, match=reason):
        run_of({**run_event(), "workflow_run": {**run_event()["workflow_run"], **over}})


@pytest.mark.parametrize(
    "title",
    [
        f"Performance of #12 at {HEAD} ",
        f"Performance of #12 at {HEAD}\n",
        f"xPerformance of #12 at {HEAD}",
        f"Performance of #012 at {HEAD}",
        f"Performance of pull-request/12 at {HEAD}",
        f"Performance of #12 at {HEAD[:10]}",
        f"Performance of #12 at {HEAD.upper()}",
    ],
)
def test_a_title_of_another_form_is_refused(title):
    with pytest.raises(RefusedError, match="expected 'Performance of #N at SHA'"):
        run_of(run_event(event="workflow_dispatch", display_title=title))


def test_a_start_by_hand_on_another_branch_is_refused():
    # Its workflow file is that branch's, and so is its title.
    with pytest.raises(RefusedError, match="started by workflow_dispatch on branch 'evil'"):
        run_of(run_event(event="workflow_dispatch", head_branch="evil"))


def test_an_event_of_another_repository_is_refused():
    with pytest.raises(RefusedError, match="GITHUB_REPOSITORY"):
        run_of(run_event(), "other/kernels")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"action":"completed"}', b"null"]
)
def test_what_is_no_event_is_refused(content):
    with pytest.raises(RefusedError, match="no workflow_run event"):
        measured_run(content, REPOSITORY)
    with pytest.raises(RefusedError, match="no issue_comment event"):
        measurement_asked(content, REPOSITORY)


def test_an_event_that_cannot_be_read_names_the_variable(tmp_path):
    with pytest.raises(ConfigError, match=r"No such file.*GITHUB_EVENT_PATH.*--event"):
        read_event(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="GITHUB_EVENT_PATH"):
        read_event(tmp_path)


def test_an_event_larger_than_github_makes_them_is_not_read(tmp_path):
    path = tmp_path / "event.json"
    with path.open("wb") as file:
        file.truncate(25 * 2**20 + 1)
    with pytest.raises(ConfigError, match="more than 26214400 bytes"):
        read_event(path)


def test_a_comment_may_ask_for_the_commit_it_names():
    asked = measurement_asked(json.dumps(comment_event(f"/perf {HEAD}\r\nplease")).encode(), REPOSITORY)
    assert asked is not None
    assert (asked.pull_request, asked.words, asked.login) == (12, (HEAD,), "maintainer")
