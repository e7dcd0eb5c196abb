"""A loopback fake of GitLab's REST API (v4), as strict as its documentation or stricter: what it does not
know is an error. A line of a note that begins with a slash it takes for a quick action, and says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests import http_servers
from tests.github_server import BASE, HEAD

PROJECT = 42
TOKEN = "glpat-0123456789abcdefghij"
ME = {"id": 7, "username": "project_42_bot"}
SOMEBODY = {"id": 8, "username": "somebody"}
PIPELINE = 123_456
WEB = "https://gitlab.example/group/kernels"


class Fail(Exception):  # noqa: N818 - an answer, not an error of ours
    def __init__(self, status: int, message: Any) -> None:
        super().__init__(message)
        self.status, self.body = status, {"message": message}


@dataclass
class GitLab:
    """GitLab with a project, its merge requests, and a token. Start it with `serving`."""

    url: str = ""
    merge_requests: dict[int, dict[str, Any]] = field(default_factory=dict)
    notes: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    reports: dict[int, bytes] = field(default_factory=dict)
    """The perf-review/review.json of each job."""
    statuses: list[dict[str, Any]] = field(default_factory=list)
    acted: list[str] = field(default_factory=list)
    """Quick actions of notes."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Answers to GET, by path below /projects/42; paths that begin with /runners are whole."""
    unseen: tuple[str, ...] = ()
    """Settings that the token may not see."""
    broken: set[str] = field(default_factory=set)
    """METHOD /path of what answers 500."""
    writes: list[tuple[str, str]] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    before: Any = lambda _method, _path: None
    next_id: int = 1000

    def open(self, iid: int = 12, *, head: str = HEAD, state: str = "opened", fork: bool = False) -> None:
        self.merge_requests[iid] = {
            "iid": iid,
            "state": state,
            "sha": head,
            "target_branch": "main",
            "source_branch": "faster",
            "source_project_id": 99 if fork else PROJECT,
            "target_project_id": PROJECT,
            "web_url": f"{WEB}/-/merge_requests/{iid}",
            "title": "</code> @all",
        }
        self.notes.setdefault(iid, [])

    def measured(self, report: bytes | None, name: str = "perf-measure", status: str = "success") -> None:
        """A job, and the report that it has left."""
        job: dict[str, Any] = {"id": self._id(), "name": name, "status": status, "stage": "perf"}
        self.jobs.append(job)
        if report is not None:
            self.reports[int(job["id"])] = report

    def say(self, iid: int, body: str, author: Mapping[str, Any], *, system: bool = False) -> dict[str, Any]:
        if re.search(r"^[ \t]*/[a-z]", body, re.MULTILINE):
            self.acted += [line for line in body.splitlines() if line.lstrip().startswith("/")]
        note = {"id": self._id(), "body": body, "author": dict(author), "system": system}
        self.notes[iid].append(note)
        return note

    def bodies(self, iid: int = 12) -> list[str]:
        return [note["body"] for note in self.notes[iid]]

    def _id(self) -> int:
        self.next_id += 1
        return self.next_id

    def answer(self, method: str, path: str, query: list[tuple[str, str]], body: Any) -> tuple[int, Any]:
        """Status and answer. Raises Fail."""
        if f"{method} {path}" in self.broken:
            raise Fail(500, "500 Internal Server Error")
        if path == "/user":
            return 200, ME
        below = path.removeprefix(f"/projects/{PROJECT}")
        if below in self.unseen:
            raise Fail(403, "403 Forbidden")
        if method == "GET" and below in self.settings:
            return 200, self.settings[below]
        if below == path:
            raise Fail(404, "404 Project Not Found")
        for known, pattern, handler in ROUTES:
            if known == method and (found := re.fullmatch(pattern, below)):
                answered: tuple[int, Any] = handler(self, query, body, *map(unquote, found.groups()))
                return answered
        raise Fail(404, "404 Not Found")

    def merge_request(self, _query: Any, _body: Any, iid: str) -> tuple[int, Any]:
        return 200, self._known(iid)

    def _known(self, iid: str) -> dict[str, Any]:
        if int(iid) not in self.merge_requests:
            raise Fail(404, "404 Not found")
        return self.merge_requests[int(iid)]

    def merge_base(self, query: Any, _body: Any) -> tuple[int, Any]:
        if query != [("refs[]", "main"), ("refs[]", HEAD)]:
            raise Fail(400, "Provide at least 2 refs")
        return 200, {"id": BASE, "title": "base"}

    def list_jobs(self, _query: Any, _body: Any, pipeline: str) -> tuple[int, Any]:
        return 200, self.jobs if int(pipeline) == PIPELINE else []

    def report(self, _query: Any, _body: Any, job: str) -> tuple[int, Any]:
        if int(job) not in self.reports:
            raise Fail(404, "404 Not Found")
        return 200, self.reports[int(job)]

    def list_notes(self, _query: Any, _body: Any, iid: str) -> tuple[int, Any]:
        self._known(iid)
        return 200, self.notes[int(iid)][::-1]

    def create_note(self, _query: Any, body: Any, iid: str) -> tuple[int, Any]:
        self._known(iid)
        _fields(body, {"body"})
        return 201, self.say(int(iid), body["body"], ME)

    def _own(self, iid: str, note: str) -> dict[str, Any]:
        found = [each for each in self.notes[int(iid)] if each["id"] == int(note)]
        if not found or found[0]["author"]["id"] != ME["id"]:
            raise Fail(404 if not found else 403, "no")
        return found[0]

    def update_note(self, _query: Any, body: Any, iid: str, note: str) -> tuple[int, Any]:
        _fields(body, {"body"})
        found = self._own(iid, note)
        found["body"] = body["body"]
        return 200, found

    def delete_note(self, _query: Any, _body: Any, iid: str, note: str) -> tuple[int, Any]:
        self.notes[int(iid)].remove(self._own(iid, note))
        return 204, None

    def create_status(self, _query: Any, body: Any, commit: str) -> tuple[int, Any]:
        _fields(body, {"state", "name", "description"}, {"target_url", "ref", "pipeline_id"})
        if body["state"] not in ("pending", "running", "success", "failed", "canceled", "skipped"):
            raise Fail(400, "state does not have a valid value")
        if len(body["description"]) > 255:
            raise Fail(400, {"description": ["is too long (maximum is 255 characters)"]})
        made = {"id": self._id(), "sha": commit, "target_url": None, **body}
        self.statuses.append(made)
        return 201, made


ROUTES = (
    ("GET", r"/merge_requests/(\d+)", GitLab.merge_request),
    ("GET", r"/repository/merge_base", GitLab.merge_base),
    ("GET", r"/pipelines/(\d+)/jobs", GitLab.list_jobs),
    ("GET", r"/jobs/(\d+)/artifacts/perf-review/review\.json", GitLab.report),
    ("GET", r"/merge_requests/(\d+)/notes", GitLab.list_notes),
    ("POST", r"/merge_requests/(\d+)/notes", GitLab.create_note),
    ("PUT", r"/merge_requests/(\d+)/notes/(\d+)", GitLab.update_note),
    ("DELETE", r"/merge_requests/(\d+)/notes/(\d+)", GitLab.delete_note),
    ("POST", r"/statuses/([0-9a-f]{40})", GitLab.create_status),
)


def _fields(body: Any, must: set[str], may: frozenset[str] | set[str] = frozenset()) -> None:
    if not isinstance(body, dict) or must - set(body) or set(body) - must - may:
        raise Fail(400, f"fields {sorted(body or ())}; expected {sorted(must)} and {sorted(may)}")


class _Handler(BaseHTTPRequestHandler):
    gitlab: GitLab

    def handle_request(self) -> None:
        parts, gitlab = urlsplit(self.path), self.gitlab
        path = parts.path.removeprefix("/api/v4")
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        gitlab.before(self.command, path)
        gitlab.log.append((self.command, path))
        if self.command != "GET":
            gitlab.writes.append((self.command, path))
        try:
            self._check(known=path != parts.path)
            query = [each for each in parse_qsl(parts.query) if each[0] not in ("page", "per_page")]
            status, answer = gitlab.answer(self.command, path, query, json.loads(content or b"null"))
        except Fail as fail:
            status, answer = fail.status, fail.body
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        sent = b"" if status == 204 else sent
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def _check(self, *, known: bool) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Fail(401, "401 Unauthorized")
        if not known:
            raise Fail(404, "404 Not Found")

    do_GET = do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815


@contextmanager
def serving() -> Iterator[GitLab]:
    """A server of the API while the block runs."""
    gitlab = GitLab()
    with http_servers.serving(_Handler, gitlab=gitlab) as url:
        gitlab.url = f"{url}/api/v4"
        yield gitlab


def job(gitlab: GitLab, **over: str) -> dict[str, str]:
    """The variables of a job in a merge request's pipeline."""
    return {
        "GITLAB_CI": "true",
        "GITLAB_TOKEN": TOKEN,
        "CI_API_V4_URL": gitlab.url,
        "CI_PROJECT_ID": str(PROJECT),
        "CI_PROJECT_URL": WEB,
        "CI_PIPELINE_ID": str(PIPELINE),
        "CI_PIPELINE_URL": f"{WEB}/-/pipelines/{PIPELINE}",
        "CI_JOB_URL": f"{WEB}/-/jobs/77",
        "CI_COMMIT_SHA": HEAD,
        "CI_MERGE_REQUEST_IID": "12",
        **over,
    }
