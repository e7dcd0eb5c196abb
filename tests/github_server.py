"""A loopback fake of GitHub's REST API, as strict as the documentation of version 2022-11-28, or stricter.

It takes nothing that it does not know: an unknown path, field or parameter is an error. It can be told to
fail, before or after what was asked of it is done.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests import http_servers

REPOSITORY = "example/kernels"
TOKEN = "ghs_0123456789abcdefghij"
"""Token of a workflow."""
APP_TOKEN = "ghs_of_an_app_0123456789"
"""Token of an App that may write checks."""
ACTIONS = {"id": 15368, "slug": "github-actions"}
"""The App that a workflow's token is of."""
BOT = {"login": "github-actions[bot]", "type": "Bot"}
HEAD, BASE = "a" * 40, "b" * 40
RUN = 9_876_543_210
RUNS = f"https://github.example/{REPOSITORY}/actions/runs"

ALL = frozenset({"actions: write", "checks: write", "contents: write", "pull-requests: write"})
"""Permissions that a token can have."""
REPORTER = frozenset({"actions: read", "checks: write", "contents: read", "pull-requests: write"})
READ_ONLY = frozenset({"actions: read", "checks: read", "contents: read", "pull-requests: read"})
_CONCLUSIONS = {"success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"}


@dataclass(frozen=True)
class Logged:
    """A request, and how it was answered."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Headers by name in lower case."""
    body: Any
    status: int
    """0 where the connection was cut."""


@dataclass
class Trouble:
    """A fault that the server makes for some requests."""

    method: str
    path: str
    """A pattern that the path must match somewhere."""
    status: int = 0
    """0 to cut the connection."""
    message: str = "Something is wrong."
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    after: bool = False
    """True if the server does what was asked although it answers with an error."""
    truncate: bool = False
    """True if the answer breaks off."""


@dataclass(frozen=True)
class Artifact:
    """An artifact of a run."""

    id: int
    name: str
    content: bytes
    size_in_bytes: int | None = None
    expired: bool = False


@dataclass
class App:
    """A GitHub App that is installed on the repository."""

    id: int = 4242
    slug: str = "kernels-performance"
    permissions: Mapping[str, str] = field(default_factory=lambda: {"checks": "write", "metadata": "read"})
    """Permissions of the installation. A token has these or fewer."""
    public_key: str = ""
    """PEM."""
    tokens: dict[str, frozenset[str]] = field(default_factory=dict)
    """Permissions of each token that the App made."""
    made: int = 0

    @property
    def shown(self) -> dict[str, Any]:
        return {"id": self.id, "slug": self.slug}


class Fail(Exception):  # noqa: N818 - an answer, not an error of ours
    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.body = status, {"message": message, **more}


@dataclass
class Answer:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class GitHub:
    """GitHub with a repository, its pull requests, and a token. Start it with `serving`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.url = ""
        self.below = ""
        """Path of the API on its host: /api/v3 on a GitHub Enterprise Server."""
        self.storage = ""
        self.allowed: frozenset[str] = ALL
        self.app = App(tokens={APP_TOKEN: frozenset({"checks: write"})})
        self.caller: Mapping[str, Any] = ACTIONS
        """The App whose token the request that is handled has."""
        self.pulls: dict[int, dict[str, Any]] = {}
        self.merge_bases: dict[str, str] = {"main": BASE}
        """Merge bases by branch, the same for every head."""
        self.comments: dict[int, list[dict[str, Any]]] = {}
        self.check_runs: list[dict[str, Any]] = []
        self.artifacts: dict[int, list[Artifact]] = {}
        self.people: dict[str, dict[str, str]] = {}
        """Answers of /permission, by login."""
        self.dispatched: list[Any] = []
        self.reactions: list[str] = []
        self.branches = {"main": "c" * 40}
        self.queue: set[str] = set()
        """Commits that wait to be merged."""
        self.knows_run_details = True
        """True for servers of 2026 and later."""
        self.log: list[Logged] = []
        self.fetched: list[Logged] = []
        """From storage."""
        self.troubles: list[Trouble] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        """Called before a request is handled, in its thread."""
        self.redirect_to = ""
        """Target of redirected downloads; if empty, the storage of this server."""
        self.unlisted: set[int] = set()
        """Comments that no listing shows: GitHub's own may lag behind."""
        self.per_page = 100
        """The most that a page holds, whatever is asked for."""
        self.settings: dict[str, Any] = {}
        """Answers on the repository's settings, by path below it. Any other path is not found."""
        self.unseen: tuple[str, ...] = ()
        """Settings that the token may not see."""
        self._id = 1000

    @property
    def writes(self) -> list[Logged]:
        """Return all requests but GET, also those that failed."""
        return [each for each in self.log if each.method != "GET"]

    def next_id(self) -> int:
        with self.lock:
            self._id += 1
            return self._id

    def open_pull(
        self,
        number: int = 12,
        head: str = HEAD,
        base: str = "main",
        state: str = "open",
        label: str = "them:main",
    ) -> None:
        self.pulls[number] = {
            "number": number,
            "state": state,
            "draft": False,
            "title": "</code> ::error:: @everyone",
            "head": {"label": label, "ref": label.partition(":")[2], "sha": head, "repo": None},
            "base": {"ref": base, "sha": BASE, "repo": {"full_name": REPOSITORY}},
        }
        self.comments.setdefault(number, [])

    def say(self, number: int, body: str | None, user: Mapping[str, str] | None = BOT) -> dict[str, Any]:
        made = {
            "id": self.next_id(),
            "body": body,
            "user": None if user is None else dict(user),
            "html_url": f"https://github.example/{REPOSITORY}/pull/{number}#issuecomment-{self._id}",
            "author_association": "NONE",
        }
        self.comments[number].append(made)
        return made

    def bodies(self, number: int = 12) -> list[str]:
        return [comment["body"] for comment in self.comments[number]]

    def trouble(self, method: str, path: str, status: int = 0, **more: Any) -> None:
        self.troubles.append(Trouble(method, path, status, **more))

    def next_trouble(self, method: str, path: str) -> Trouble | None:
        with self.lock:
            for each in self.troubles:
                if each.times > 0 and each.method in (method, "*") and re.search(each.path, path):
                    each.times -= 1
                    return each
        return None

    def whose(self, token: str) -> tuple[Mapping[str, Any], frozenset[str]]:
        """The App that a token is of, and what it may do. Raises Fail."""
        if token == TOKEN:
            return ACTIONS, self.allowed
        if token in self.app.tokens:
            return self.app.shown, self.app.tokens[token]
        raise Fail(401, "Bad credentials")

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any, token: str) -> Answer:
        """Raises Fail."""
        caller, allowed = self.whose(token)
        prefix = f"{self.below}/repos/{REPOSITORY}"
        for known, pattern, handler, needs, parameters in ROUTES:
            found = re.fullmatch(re.escape(prefix) + pattern, path)
            if known == method and found:
                if unknown := set(query) - parameters:
                    raise Fail(422, f"Unknown parameters {sorted(unknown)}")
                if not {needs, needs.replace(": read", ": write")} & {*allowed, "metadata: read"}:
                    raise Fail(403, "Resource not accessible by integration")
                with self.lock:
                    self.caller = caller
                    return handler(self, query, body, *(unquote(part) for part in found.groups()))
        raise Fail(404, "Not Found", documentation_url="https://docs.github.example/rest")

    def minting(self, method: str, path: str, body: Any, authorization: str) -> Answer:
        """Answer requests of actions/create-github-app-token with the App's key. Raises Fail."""
        kind, _, word = authorization.partition(" ")
        with self.lock:
            if (method, path) == ("DELETE", f"{self.below}/installation/token"):
                if self.app.tokens.pop(word, None) is None:
                    raise Fail(401, "Bad credentials")
                return Answer(204)
            if kind.lower() != "bearer" or not _signed(word, self.app):
                raise Fail(401, "A JSON web token could not be decoded")
            if (method, path) == ("GET", f"{self.below}/repos/{REPOSITORY}/installation"):
                return Answer(200, {"id": 77, "app_id": self.app.id, "app_slug": self.app.slug})
            if (method, path) != ("POST", f"{self.below}/app/installations/77/access_tokens"):
                raise Fail(404, "Not Found")
            if body.get("repositories") != [REPOSITORY.partition("/")[2]]:
                raise Fail(422, "There is at least one repository that does not exist or is not accessible")
            asked = body.get("permissions", self.app.permissions)
            if not asked.items() <= self.app.permissions.items():
                raise Fail(422, "The permissions requested are not granted to this installation.")
            self.app.made += 1
            token = f"ghs_minted_{self.app.made:016}"
            self.app.tokens[token] = frozenset(f"{name}: {level}" for name, level in asked.items())
            until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
            return Answer(
                201, {"token": token, "expires_at": f"{until:%Y-%m-%dT%H:%M:%SZ}", "permissions": asked}
            )

    def page(self, path: str, query: Mapping[str, str], found: list[Any]) -> tuple[list[Any], dict[str, str]]:
        size = min(_number(query.get("per_page", "30"), 100), self.per_page)
        page = _number(query.get("page", "1"), 10_000)
        headers = {}
        if page * size < len(found):
            kept = "&".join(f"{name}={value}" for name, value in query.items() if name != "page")
            # Elsewhere on purpose: whoever follows it takes the token there.
            headers["Link"] = f'<http://127.0.0.2:9{path}?{kept}&page={page + 1}>; rel="next"'
        return found[(page - 1) * size : page * size], headers

    def pull(self, _query: Any, _body: Any, number: str) -> Answer:
        return Answer(200, self._pull(number))

    def _pull(self, number: str) -> dict[str, Any]:
        if int(number) not in self.pulls:
            raise Fail(404, "Not Found")
        return self.pulls[int(number)]

    def list_pulls(self, query: Any, _body: Any) -> Answer:
        if query.get("state") != "open" or not re.fullmatch("[^:]+:.+", query.get("head", "")):
            raise Fail(422, "Validation Failed")
        listed = [
            pull
            for pull in self.pulls.values()
            if pull["state"] == "open" and pull["head"]["label"] == query["head"]
        ]
        found, headers = self.page(f"/repos/{REPOSITORY}/pulls", query, listed)
        return Answer(200, found, headers)

    def compare(self, _query: Any, _body: Any, pair: str) -> Answer:
        branch, _, head = pair.rpartition("...")
        if branch not in self.merge_bases or not re.fullmatch("[0-9a-f]{40}", head):
            raise Fail(404, "Not Found")
        # What a branch has is where it left that branch.
        base = head if head == self.branches.get(branch) else self.merge_bases[branch]
        return Answer(200, {"merge_base_commit": {"sha": base}, "commits": [], "files": []})

    def list_comments(self, query: Any, _body: Any, number: str) -> Answer:
        self._pull(number)
        path = f"/repos/{REPOSITORY}/issues/{number}/comments"
        listed = [each for each in self.comments[int(number)] if each["id"] not in self.unlisted]
        found, headers = self.page(path, query, listed)
        return Answer(200, found, headers)

    def create_comment(self, _query: Any, body: Any, number: str) -> Answer:
        self._pull(number)
        return Answer(201, self.say(int(number), _comment_body(body)))

    def update_comment(self, _query: Any, body: Any, number: str) -> Answer:
        comment = self._own_comment(number)
        comment["body"] = _comment_body(body)
        return Answer(200, comment)

    def delete_comment(self, _query: Any, _body: Any, number: str) -> Answer:
        comment = self._own_comment(number)
        for comments in self.comments.values():
            if comment in comments:
                comments.remove(comment)
        return Answer(204)

    def _own_comment(self, number: str) -> dict[str, Any]:
        for comments in self.comments.values():
            for comment in comments:
                if comment["id"] == int(number):
                    if comment["user"] != BOT:
                        raise Fail(403, "Must have admin rights to Repository.")
                    return comment
        raise Fail(404, "Not Found")

    def list_checks(self, query: Any, _body: Any, commit: str) -> Answer:
        if query.get("filter", "latest") not in ("latest", "all"):
            raise Fail(422, "Invalid filter")
        found = [
            each
            for each in reversed(self.check_runs)
            if each["head_sha"] == commit and query.get("check_name", each["name"]) == each["name"]
        ]
        if query.get("filter", "latest") == "latest":
            found = found[:1]
        path = f"/repos/{REPOSITORY}/commits/{commit}/check-runs"
        page, headers = self.page(path, query, found)
        return Answer(200, {"total_count": len(found), "check_runs": page}, headers)

    def create_check(self, _query: Any, body: Any) -> Answer:
        made: dict[str, Any] = {
            "id": self.next_id(),
            "html_url": f"https://github.example/{REPOSITORY}/runs/{self._id}",
            "annotations": [],
            "external_id": "",
            "app": dict(self.caller),
        }
        _check_fields(
            body, {"name", "head_sha", "status", "output"}, {"conclusion", "details_url", "external_id"}
        )
        if body["head_sha"] not in {pull["head"]["sha"] for pull in self.pulls.values()} | self.queue:
            raise Fail(422, f"No commit found for SHA: {body['head_sha']}")
        self._set_check(made, body)
        self.check_runs.append(made)
        return Answer(201, made)

    def update_check(self, _query: Any, body: Any, number: str) -> Answer:
        known = [each for each in self.check_runs if each["id"] == int(number)]
        if not known:
            raise Fail(404, "Not Found")
        if known[0]["app"]["id"] != self.caller["id"]:
            whose = f"Invalid app_id `{self.caller['id']}`"
            raise Fail(403, f"{whose} - check run can only be modified by the GitHub App that created it.")
        _check_fields(body, set(), {"name", "status", "output", "conclusion", "details_url", "external_id"})
        self._set_check(known[0], body)
        return Answer(200, known[0])

    def _set_check(self, made: dict[str, Any], body: Mapping[str, Any]) -> None:
        if (body["status"] == "completed") != (body.get("conclusion") in _CONCLUSIONS):
            raise Fail(422, "Invalid request. A completed check has a conclusion.")
        _check_output(body["output"])
        # As on GitHub: those of an update are added.
        made["annotations"] += body["output"].get("annotations", [])
        made.update({name: value for name, value in body.items() if name != "output"})
        kept = {name: value for name, value in body["output"].items() if name != "annotations"}
        made["output"] = {**kept, "annotations_count": len(made["annotations"])}

    def list_artifacts(self, query: Any, _body: Any, run: str) -> Answer:
        found = [
            {
                "id": each.id,
                "name": each.name,
                "size_in_bytes": len(each.content) if each.size_in_bytes is None else each.size_in_bytes,
                "expired": each.expired,
                "archive_download_url": f"http://127.0.0.2:9/stolen/{each.id}/zip",
            }
            for each in self.artifacts.get(int(run), [])
        ]
        path = f"/repos/{REPOSITORY}/actions/runs/{run}/artifacts"
        page, headers = self.page(path, query, found)
        return Answer(200, {"total_count": len(found), "artifacts": page}, headers)

    def find_artifact(self, number: int) -> Artifact | None:
        return next((a for run in self.artifacts.values() for a in run if a.id == number), None)

    def download(self, _query: Any, _body: Any, number: str) -> Answer:
        found = self.find_artifact(int(number))
        if found is None:
            raise Fail(404, "Not Found")
        if found.expired:
            raise Fail(410, "Artifact has expired")
        location = self.redirect_to or f"{self.storage}/blob/{number}?sig=SECRET-SIGNATURE"
        return Answer(302, None, {"Location": location})

    def permission(self, _query: Any, _body: Any, login: str) -> Answer:
        if login not in self.people:
            raise Fail(404, f"{login} is not a user")
        return Answer(200, {**self.people[login], "user": {"login": login}})

    def dispatch(self, _query: Any, body: Any, workflow: str) -> Answer:
        if "return_run_details" in body and not self.knows_run_details:
            raise Fail(422, 'Invalid request. "return_run_details" is not a permitted key.')
        _check_fields(body, {"ref"}, {"inputs", "return_run_details"})
        if workflow != "perf-pr.yml":
            raise Fail(404, "Not Found")
        if body["ref"] not in self.branches:
            raise Fail(422, f"No ref found for: {body['ref']}")
        inputs = body.get("inputs", {})
        if not {"pull_request", "sha"} <= set(inputs) <= {"pull_request", "sha", "cases"} or not all(
            isinstance(each, str) for each in inputs.values()
        ):
            raise Fail(422, "Unexpected inputs provided")
        self.dispatched.append({name: body[name] for name in ("ref", "inputs")})
        if not body.get("return_run_details"):
            return Answer(204)
        urls = {"run_url": "https://api.github.example/x", "html_url": f"{RUNS}/{RUN}"}
        return Answer(200, {"workflow_run_id": RUN, **urls})

    def setting(self, query: Any, _body: Any, path: str) -> Answer:
        if path.startswith(self.unseen):
            raise Fail(403, "Resource not accessible by integration")
        if path not in self.settings:
            raise Fail(404, "Not Found")
        shown, headers = self.settings[path], dict[str, str]()
        if isinstance(shown, dict) and "total_count" in shown:
            lists = {name: each for name, each in shown.items() if isinstance(each, list)}
            for name, each in lists.items():
                found, headers = self.page(f"/repos/{REPOSITORY}{path}", query, each)
                shown = {**shown, name: found}
        return Answer(200, shown, headers)

    def branch(self, _query: Any, _body: Any, name: str) -> Answer:
        if name not in self.branches:
            raise Fail(404, "Branch not found")
        return Answer(200, {"name": name, "commit": {"sha": self.branches[name]}})

    def move_ref(self, _query: Any, body: Any, name: str) -> Answer:
        _check_fields(body, {"sha"}, {"force"})
        if name not in self.branches:
            raise Fail(422, "Reference does not exist")
        return self._set_ref(name, body["sha"])

    def create_ref(self, _query: Any, body: Any) -> Answer:
        _check_fields(body, {"ref", "sha"}, set())
        name = body["ref"].removeprefix("refs/heads/")
        if name == body["ref"] or name in self.branches:
            raise Fail(422, "Reference already exists")
        return Answer(201, self._set_ref(name, body["sha"]).body)

    def _set_ref(self, name: str, sha: str) -> Answer:
        if sha not in self.branches.values():
            raise Fail(422, "Object does not exist")
        self.branches[name] = sha
        return Answer(200, {"ref": f"refs/heads/{name}", "object": {"sha": sha, "type": "commit"}})

    def react(self, _query: Any, body: Any, _comment: str) -> Answer:
        _check_fields(body, {"content"}, set())
        known = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}
        if body["content"] not in known:
            raise Fail(422, "Validation Failed")
        self.reactions.append(body["content"])
        return Answer(201, {"id": self.next_id(), "content": body["content"]})


Handler = Callable[..., Answer]
_PAGES = {"per_page", "page"}
ROUTES: tuple[tuple[str, str, Handler, str, set[str]], ...] = (
    ("GET", r"/pulls", GitHub.list_pulls, "pull-requests: read", _PAGES | {"state", "head"}),
    ("GET", r"/pulls/(\d+)", GitHub.pull, "pull-requests: read", set()),
    ("GET", r"/compare/([^/]+)", GitHub.compare, "contents: read", _PAGES),
    ("GET", r"/issues/(\d+)/comments", GitHub.list_comments, "pull-requests: read", _PAGES),
    ("POST", r"/issues/(\d+)/comments", GitHub.create_comment, "pull-requests: write", set()),
    ("PATCH", r"/issues/comments/(\d+)", GitHub.update_comment, "pull-requests: write", set()),
    ("DELETE", r"/issues/comments/(\d+)", GitHub.delete_comment, "pull-requests: write", set()),
    (
        "GET",
        r"/commits/([0-9a-f]{40})/check-runs",
        GitHub.list_checks,
        "checks: read",
        _PAGES | {"check_name", "filter"},
    ),
    ("POST", r"/check-runs", GitHub.create_check, "checks: write", set()),
    ("PATCH", r"/check-runs/(\d+)", GitHub.update_check, "checks: write", set()),
    ("GET", r"/actions/runs/(\d+)/artifacts", GitHub.list_artifacts, "actions: read", _PAGES),
    ("GET", r"/actions/artifacts/(\d+)/zip", GitHub.download, "actions: read", set()),
    ("GET", r"/collaborators/([^/]+)/permission", GitHub.permission, "metadata: read", set()),
    ("POST", r"/actions/workflows/([^/]+)/dispatches", GitHub.dispatch, "actions: write", set()),
    (
        "GET",
        r"(|/environments/.+|/actions/(?:permissions|secrets|variables|runners|caches).*|/rules/branches/.+)",
        GitHub.setting,
        "metadata: read",
        _PAGES,
    ),
    ("GET", r"/branches/([^/]+)", GitHub.branch, "contents: read", set()),
    ("PATCH", r"/git/refs/heads/([^/]+)", GitHub.move_ref, "contents: write", set()),
    ("POST", r"/git/refs", GitHub.create_ref, "contents: write", set()),
    ("POST", r"/issues/comments/(\d+)/reactions", GitHub.react, "pull-requests: write", set()),
)


def _signed(word: str, app: App) -> bool:
    """Return True if a JSON web token is of this App, not expired, and signed by its key."""
    signed, _, signature = word.rpartition(".")
    try:
        claims = json.loads(_from_base64(signed.partition(".")[2]))
        header = json.loads(_from_base64(signed.partition(".")[0]))
    except ValueError:
        return False
    now = time.time()
    good = header["alg"] == "RS256" and str(claims["iss"]) == str(app.id)
    if not (good and claims["iat"] <= now < claims["exp"] <= now + 660):
        return False
    with tempfile.TemporaryDirectory() as folder:
        key, sign = Path(folder, "key.pem"), Path(folder, "signature")
        key.write_text(app.public_key)
        sign.write_bytes(_from_base64(signature))
        command = ["openssl", "dgst", "-sha256", "-verify", str(key), "-signature", str(sign)]
        done = subprocess.run(command, input=signed.encode(), capture_output=True, check=False)
    return done.returncode == 0


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(text: str, most: int) -> int:
    if not re.fullmatch(r"[1-9]\d{0,4}", text) or int(text) > most:
        raise Fail(422, f"{text} is not from 1 to {most}")
    return int(text)


def _comment_body(body: Any) -> str:
    _check_fields(body, {"body"}, set())
    text = body["body"]
    if not isinstance(text, str) or not text.strip():
        raise Fail(422, "Validation Failed", errors=[{"code": "missing_field", "field": "body"}])
    if len(text) > 65_536:
        raise Fail(422, "Validation Failed", errors=["body is too long (maximum is 65536 characters)"])
    return text


def _check_fields(body: Any, must: set[str], may: set[str]) -> None:
    if not isinstance(body, dict):
        raise Fail(400, "Problems parsing JSON")
    if must - set(body) or set(body) - must - may:
        raise Fail(422, f"Invalid request. Fields {sorted(body)}, expected {sorted(must)} and {sorted(may)}.")


def _check_output(output: Any) -> None:
    _check_fields(output, {"title", "summary"}, {"text", "annotations"})
    for name in ("summary", "text"):
        if len(output.get(name, "")) > 65_535:
            raise Fail(422, f"Invalid request. Only 65535 characters are allowed; {name} has more.")
    if not output["title"] or len(output["title"]) > 255:
        raise Fail(422, "Invalid request. The title has 1 to 255 characters.")
    annotations = output.get("annotations", [])
    if len(annotations) > 50:
        raise Fail(422, "Invalid request. No more than 50 items are allowed; annotations has more.")
    for each in annotations:
        must = {"path", "start_line", "end_line", "annotation_level", "message"}
        _check_fields(each, must, {"title", "raw_details"})
        if each["annotation_level"] not in ("notice", "warning", "failure"):
            raise Fail(422, "Invalid request. An annotation has no such level.")
        if not 1 <= each["start_line"] <= each["end_line"] or len(each["message"].encode()) > 65_536:
            raise Fail(422, "Invalid request. An annotation is at no line, or too long.")


def _fail(trouble: Trouble | None, *, after: bool) -> None:
    if trouble and trouble.after == after and not trouble.truncate:
        raise Fail(trouble.status, trouble.message)


def _lowered(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class _Base(BaseHTTPRequestHandler):
    github: GitHub

    def send(
        self, status: int, content: bytes, headers: Mapping[str, str], *, truncate: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if truncate else content)

    def cut(self) -> None:
        """Reset the connection without an answer, like a proxy that dies."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def finish(self) -> None:
        if self.connection.fileno() >= 0:
            super().finish()


class _ApiHandler(_Base):
    def handle_request(self) -> None:
        github, parts = self.github, urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        github.before(self.command, parts.path)
        trouble = github.next_trouble(self.command, parts.path)
        body: Any = None
        try:
            authorization = self.headers.get("Authorization", "")
            if self.headers.get("User-Agent", "").startswith("actions/create-github-app-token"):
                body = json.loads(content) if content else None
                answer = github.minting(self.command, parts.path, body, authorization)
            else:
                body = self._checked(content)
                _fail(trouble, after=False)
                answer = github.answer(
                    self.command, parts.path, query, body, authorization.removeprefix("Bearer ")
                )
            _fail(trouble, after=True)
        except Fail as fail:
            answer = Answer(fail.status, fail.body, trouble.headers if trouble else {})
        with github.lock:
            github.log.append(
                Logged(self.command, parts.path, query, _lowered(self.headers), body, answer.status)
            )
        if answer.status == 0:
            self.cut()
            return
        sent = b"" if answer.body is None else json.dumps(answer.body).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", **answer.headers}
        self.send(answer.status, sent, headers, truncate=bool(trouble and trouble.truncate))

    def _checked(self, content: bytes) -> Any:
        """The body. Raises Fail for a request that is not as the documentation says."""
        headers = self.headers
        if not headers.get("User-Agent", "").startswith("gpu-harness/"):
            raise Fail(403, "Request forbidden by administrative rules. Please set a User-Agent.")
        if not headers.get("Authorization", "").startswith("Bearer "):
            raise Fail(401, "Bad credentials")
        if headers.get("Accept") != "application/vnd.github+json":
            raise Fail(415, "Unsupported 'Accept' header")
        if headers.get("X-GitHub-Api-Version") != "2022-11-28":
            raise Fail(400, "Unsupported API version")
        if not content:
            return None
        if not headers.get("Content-Type", "").startswith("application/json"):
            raise Fail(415, "Unsupported 'Content-Type' header")
        try:
            return json.loads(content)
        except ValueError:
            raise Fail(400, "Problems parsing JSON") from None

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_request  # noqa: N815


class _StorageHandler(_Base):
    """The storage of archives. Like the real storage, it refuses a request with a token."""

    def do_GET(self) -> None:
        github, parts = self.github, urlsplit(self.path)
        trouble = github.next_trouble("STORAGE", parts.path)
        found = github.find_artifact(int(parts.path.rpartition("/")[2]))
        status, content = 200, found.content if found else b""
        if trouble and not trouble.truncate:
            status, content = trouble.status, b""
        elif self.headers.get("Authorization") or "sig=SECRET-SIGNATURE" not in parts.query or found is None:
            status, content = 400, b"InvalidAuthenticationInfo"
        with github.lock:
            github.fetched.append(Logged("GET", parts.path, {}, _lowered(self.headers), None, status))
        if status == 0:
            self.cut()
        else:
            self.send(status, content, {}, truncate=bool(trouble and trouble.truncate))


@contextmanager
def serving(github: GitHub | None = None) -> Iterator[GitHub]:
    """A server of the API, and one of the storage, while the block runs."""
    github = github or GitHub()
    api, storage = (http_servers.serving(kind, github=github) for kind in (_ApiHandler, _StorageHandler))
    with api as url, storage as github.storage:
        github.url = f"{url}{github.below}"
        yield github


def run_event(
    number: int = 12, head: str = HEAD, *, event: str = "push", run: int = RUN, attempt: int = 1, **over: Any
) -> dict[str, Any]:
    """A `workflow_run` event: of a vetted pull request's branch, or of a start by hand."""
    pushed = event == "push"
    workflow_run: dict[str, Any] = {
        "id": run,
        "run_attempt": attempt,
        "name": "Performance of a pull request",
        "path": ".github/workflows/perf-pr.yml",
        "event": event,
        "status": "completed",
        "conclusion": "success",
        "head_branch": f"pull-request/{number}" if pushed else "perf-dispatch",
        "head_sha": head if pushed else "c" * 40,
        "display_title": "its author's words" if pushed else f"Performance of #{number} at {head}",
        "head_repository": {"full_name": REPOSITORY},
        "pull_requests": [],
    }
    return {
        "action": "completed",
        "workflow_run": {**workflow_run, **over},
        "repository": {"full_name": REPOSITORY, "default_branch": "main"},
    }


def comment_event(body: str | None, login: str = "maintainer", number: int = 12) -> dict[str, Any]:
    """An `issue_comment` event: a new comment on a pull request."""
    return {
        "action": "created",
        "issue": {"number": number, "state": "open", "pull_request": {"url": "https://api.github.example"}},
        "comment": {"id": 1, "body": body, "user": {"login": login, "type": "User"}},
        "repository": {"full_name": REPOSITORY, "default_branch": "main"},
    }


def push_event(
    head: str = HEAD,
    login: str = "maintainer",
    *,
    action: str = "synchronize",
    draft: bool = False,
    repository: str = REPOSITORY,
) -> dict[str, Any]:
    """A `pull_request` event: somebody opened it, or pushed to its branch."""
    return {
        "action": action,
        "number": 12,
        "pull_request": {
            "number": 12,
            "draft": draft,
            "state": "open",
            "head": {"ref": "topic", "sha": head, "repo": {"full_name": repository}},
            "base": {"ref": "main", "sha": BASE, "repo": {"full_name": REPOSITORY}},
        },
        "sender": {"login": login, "type": "User"},
        "repository": {"full_name": REPOSITORY, "default_branch": "main"},
    }


def queue_event(commit: str, *, number: int = 12, action: str = "checks_requested") -> dict[str, Any]:
    """A `merge_group` event: a pull request is on top of the queue's others."""
    return {
        "action": action,
        "merge_group": {
            "head_sha": commit,
            "head_ref": f"refs/heads/gh-readonly-queue/main/pr-{number}-{BASE}",
            "base_sha": BASE,
            "base_ref": "refs/heads/main",
            "head_commit": {"id": commit},
        },
        "repository": {"full_name": REPOSITORY, "default_branch": "main"},
        "sender": {"login": "maintainer", "type": "User"},
    }
