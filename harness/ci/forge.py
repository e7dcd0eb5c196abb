"""The REST API of a forge, GitHub or GitLab, as far as this project needs it.

The calling process holds a token with write access, and every loaded package could read that token. So the
client uses the standard library. A test checks that its commands load only click, markupsafe, msgspec,
platformdirs and, to post, Jinja2.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import http.client
import ipaddress
import json
import random
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

import harness
from harness.errors import ConfigError, RefusedError, RemoteError
from harness.system.decoding import decode
from harness.system.files import UNREADABLE
from harness.system.texts import harmless

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Body = Mapping[str, Any] | None

MAX_ANSWER_BYTES = 64 * 2**20
"""Size of a hundred comments of the largest size with each character escaped."""
_TIMEOUT_S = 30.0
_TRIES = 5
_LONGEST_PAUSE_S = 30.0
_PATIENCE_S = 600.0
"""Time to wait for rate limits, over all calls of a process, in seconds."""
_FARTHEST_S = 366 * 86400.0
_RATE_LIMIT_PAUSE_S = 60.0
"""Pause in seconds if the forge gives none, as GitHub's documentation requires."""
_LOST = 0
"""Replaces a status if there was no complete answer."""
_PASSING = (_LOST, 500, 502, 503, 504)
_AGENT = {"User-Agent": f"gpu-harness/{harness.__version__}"}
_MOST_PAGES = 100
_MOST_HOPS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_NUMBER = re.compile(r"[0-9]{1,12}")
_URL = re.compile(r"[!-~]{1,8192}")
_TOKEN = re.compile(r"[!-~]{1,4096}")


def quoted(text: str, most: int = 300) -> str:
    """Return one line without terminal controls and without commands of GitHub's runner, ``##[``
    or ``::``.
    """
    line = " ".join(harmless(" ".join(text.split())).split())
    line = line if len(line) <= most else f"{line[: most - 3]}..."
    return line.replace("##[", "##\ufffd[").replace("::", ":\ufffd:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """The differences between the APIs of forges."""

    name: str
    credential: str
    """Variable with the token."""
    credential_is: str
    """Advice on the kind of token, for messages."""
    root: str
    """Variable with the API's address."""
    default_root: str
    headers: Mapping[str, str]
    updates_by: Method
    """HTTP method that changes an existing thing."""
    permission: str
    """Advice for a missing permission."""
    renamed: str
    """Advice for a redirect."""
    status_page: str


class ApiError(RemoteError):
    """An error answer of the forge. `status` is its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class UnclearError(RemoteError):
    """No answer, so the request may or may not have been executed."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, without the token."""

    method: Method
    url: str
    headers: Mapping[str, str]
    body: Body = None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, with `headers` by name in lower case. `problem` is the reason if there is none."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """Clock and randomness, which tests replace. `now` is in seconds since 1970 (UTC), `jitter`
    from 0 to 1.
    """

    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    jitter: Callable[[], float] = random.random


class Api:
    """An API and a token. With `dry_run` nothing is written, and `held` collects the write requests."""

    def __init__(
        self, forge: Forge, root: str, token: str | None, *, waits: Waits | None = None, dry_run: bool = False
    ) -> None:
        """Prepare an API. Raises ConfigError for an address without https, and for an invalid token."""
        # Plain http is only for a server on this machine, which tests use.
        self.forge = forge
        self.root = root.rstrip("/")
        self.dry_run = dry_run
        self.held: list[HttpRequest] = []
        self._waits = waits or Waits()
        self._waited_s = 0.0
        check_address(self.root, f"{forge.root}, or give --api")
        if token is not None and not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"The token in {forge.credential} is empty, too long or has characters that no token has: "
                f"set it to {forge.credential_is}."
            )
        self._token = token
        self._loopback = _is_loopback(urlsplit(self.root).hostname or "")
        # Only HTTP and HTTPS, without urllib's extras: redirects, files, FTP, errors for a status.
        self._opener = urllib.request.OpenerDirector()
        self._opener.add_handler(urllib.request.HTTPHandler())
        self._opener.add_handler(urllib.request.HTTPSHandler())
        if not self._loopback:
            self._opener.add_handler(urllib.request.ProxyHandler())

    def with_token(self, token: str, **changes: str) -> Api:
        """Return the API with another token, `changes` to its Forge, and the same `held`."""
        forge = dataclasses.replace(self.forge, **changes)  # type: ignore[arg-type]
        made = Api(forge, self.root, token, waits=self._waits, dry_run=self.dry_run)
        made.held = self.held
        return made

    def get(self, path: str, kind: type[T], *, needs: str, query: Body = None) -> T:
        """Get a document. `needs` is the required permission. Raises ApiError, RemoteError."""
        request = self._request("GET", path, query=query)
        return self._decoded(self._call(request, needs), kind, request)

    def pages(self, path: str, kind: type[T], *, needs: str, query: Body = None) -> Iterator[T]:
        """Get a list, page by page. Raises ApiError, RemoteError."""
        for page in range(1, _MOST_PAGES + 1):
            request = self._request("GET", path, query={**(query or {}), "per_page": 100, "page": page})
            response = self._call(request, needs)
            yield self._decoded(response, kind, request)
            # Not the answered address: an answer must not decide where the token goes.
            if 'rel="next"' not in response.headers.get("link", ""):
                return
        raise RemoteError(f"{_shown(request)} has more than {_MOST_PAGES} pages: too many to read.")

    def create(
        self,
        path: str,
        body: Mapping[str, Any],
        kind: type[T],
        *,
        needs: str,
        done: Callable[[], T | None] | None = None,
    ) -> T | None:
        """Create something once. If the answer is lost, `done` looks for it. None in a dry run.

        Raises UnclearError if neither shows the result, ApiError, RemoteError.
        """
        request = self._request("POST", path, body=body)
        if self.dry_run:
            return None
        for tries in range(1, _TRIES + 1):
            try:
                return self._decoded(self._call(request, needs, nth=tries), kind, request)
            except UnclearError:
                if done is None or tries == _TRIES:
                    raise
            self._back_off(tries)
            if (found := done()) is not None:
                return found
        raise AssertionError  # the last try returns or raises

    def update(self, path: str, body: Mapping[str, Any], kind: type[T], *, needs: str) -> T | None:
        """Change something. None in a dry run. Raises ApiError, RemoteError."""
        request = self._request(self.forge.updates_by, path, body=body)
        return None if self.dry_run else self._decoded(self._call(request, needs), kind, request)

    def delete(self, path: str, *, needs: str) -> None:
        """Delete something. It may be gone already. Raises ApiError, RemoteError."""
        request = self._request("DELETE", path)
        try:
            if not self.dry_run:
                self._call(request, needs)
        except ApiError as error:
            if error.status not in (404, 410):
                raise

    def download(self, path: str, *, needs: str, limit_bytes: int) -> bytes:
        """Return a file that the API redirects to, without sending the token there.

        Raises RefusedError for a file above the limit, ApiError, RemoteError.
        """
        request = self._request("GET", path)
        for tries in range(1, _TRIES + 1):
            response = self._call(request, needs, limit_bytes=limit_bytes, redirects=True)
            for _ in range(_MOST_HOPS):
                if response.status not in _REDIRECTS:
                    break
                response = self._fetch(_without_token(response, loopback=self._loopback), limit_bytes)
            if response.status not in (*_PASSING, 403, 429):
                break
            # The address is valid for a minute, and storage may be too busy: then ask for another one.
            if tries < _TRIES:
                self._back_off(tries)
        if response.status != 200:
            gave = f"could not be fetched: its storage gave {_outcome(response)}. Run this again."
            raise ApiError(f"The file behind {_shown(request)} {gave}", response.status)
        return response.content

    def _request(self, method: Method, path: str, *, query: Body = None, body: Body = None) -> HttpRequest:
        """Return a request. In a dry run a write request is added to `held`, and the caller does
        not send it.
        """
        headers = {**self.forge.headers, **_AGENT}
        if body is not None:
            headers["Content-Type"] = "application/json; charset=utf-8"
        url = f"{self.root}{path}{f'?{urlencode(query, doseq=True)}' if query else ''}"
        request = HttpRequest(method, url, headers, body)
        if self.dry_run and method != "GET":
            self.held.append(request)
        return request

    def _call(
        self,
        request: HttpRequest,
        needs: str,
        *,
        nth: int = 0,
        redirects: bool = False,
        limit_bytes: int = MAX_ANSWER_BYTES,
    ) -> Response:
        """Return the answer to a request, after as many tries as necessary.

        A rate limit means that nothing was done, so any request is repeated. After a failure the outcome is
        unknown, so a request that must happen once is not repeated; it has the number of its try in `nth`.
        Raises UnclearError.
        """
        tries = limited = 0
        while True:
            response = self._fetch(request, limit_bytes, token=self._token)
            if pause_s := self._limit_s(response, limited):
                limited += 1
                self._wait(pause_s, request)
                continue
            if response.status in range(200, 300) or (redirects and response.status in _REDIRECTS):
                return response
            if response.status not in _PASSING:
                raise self._refused(response, request, needs)
            tries += 1
            if nth or tries == _TRIES:
                often = "1 try" if nth == 1 else f"{nth or tries} tries"
                raise UnclearError(f"{_shown(request)} gave {_outcome(response)} in {often}. {self._later}")
            self._back_off(tries)

    def _fetch(self, request: HttpRequest, limit_bytes: int, *, token: str | None = None) -> Response:
        # The scheme was checked, for the root and for redirects.
        content = None if request.body is None else json.dumps(request.body, ensure_ascii=False).encode()
        sent = urllib.request.Request(  # noqa: S310
            request.url, content, dict(request.headers), method=request.method
        )
        if token is not None:
            sent.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(sent, timeout=_TIMEOUT_S) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Response(response.status, headers, _read(response, limit_bytes, request))
        except (OSError, http.client.HTTPException) as error:
            return Response(_LOST, problem=quoted(str(error) or type(error).__name__))

    def _limit_s(self, response: Response, nth: int) -> float | None:
        """Return the duration of a rate limit in seconds; None for other answers."""
        if response.status not in (403, 429):
            return None
        after, reset = response.headers.get("retry-after"), response.headers.get("x-ratelimit-reset", "")
        if after is not None:
            return max(1.0, float(after)) if _NUMBER.fullmatch(after) else _RATE_LIMIT_PAUSE_S
        if response.headers.get("x-ratelimit-remaining") == "0":
            until = float(reset) - self._waits.now() + 1 if _NUMBER.fullmatch(reset) else _RATE_LIMIT_PAUSE_S
            return max(1.0, until)
        if response.status == 429 or b"secondary rate limit" in response.content.lower():
            return _RATE_LIMIT_PAUSE_S * 2.0**nth
        return None

    def _wait(self, pause_s: float, request: HttpRequest) -> None:
        if self._waited_s + pause_s > _PATIENCE_S:
            until = dt.datetime.fromtimestamp(self._waits.now(), dt.timezone.utc)
            until += dt.timedelta(seconds=min(pause_s, _FARTHEST_S))
            raise RemoteError(
                f"{_shown(request)}: {self.forge.name}'s rate limit for this token is reached until "
                f"{until:%Y-%m-%dT%H:%M:%SZ}, and that is too long to wait. Run this again then."
            )
        self._waited_s += pause_s
        self._waits.sleep(pause_s)

    def _back_off(self, tries: int) -> None:
        self._waits.sleep(min(_LONGEST_PAUSE_S, 2.0**tries) * (0.5 + self._waits.jitter() / 2))

    def _refused(self, response: Response, request: HttpRequest, needs: str) -> ApiError:
        said, status, forge = _message(response), response.status, self.forge
        advice = {
            401: f"The token is wrong or has expired: set {forge.credential} to {forge.credential_is}.",
            403: f"It needs {needs}: {forge.permission}",
            404: f"There is no such thing, or the token cannot see it: that needs {needs}.",
            410: "It is gone: such things expire. Run the measurement again.",
            422: f"{forge.name} rejected the request: please report this.",
            **dict.fromkeys(_REDIRECTS, forge.renamed),
        }.get(status, self._later)
        why = f" ({said})" if said else ""
        return ApiError(f"{_shown(request)} was refused with {status}{why}. {advice}", status)

    def _decoded(self, response: Response, kind: type[T], request: HttpRequest) -> T:
        """Return JSON as a type; bytes unchanged."""
        if kind is bytes:
            return response.content  # type: ignore[return-value]
        try:
            return decode(response.content, kind)
        except UNREADABLE as error:
            raise RemoteError(
                f"{_shown(request)} gave an unexpected answer: {quoted(str(error))}. "
                f"Check that {self.forge.root} is that of {self.forge.name}'s REST API."
            ) from None

    @property
    def _later(self) -> str:
        return f"Run this again, and see {self.forge.status_page} if that does not help."


def check_address(url: str, setting: str) -> str:
    """Return the address, which is https, or http to this machine. Raises ConfigError that names
    the setting.
    """
    if not _is_safe(url, loopback=True) or "?" in url or "#" in url:
        raise ConfigError(f"{quoted(url)!r} is no address such as https://forge.example: set {setting}.")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_safe(url: str, *, loopback: bool) -> bool:
    """Return whether an address is https, or http to this machine if `loopback`."""
    try:
        parts = urlsplit(url)
        host, named = parts.hostname or "", parts.username is None and parts.port != 0
        host.encode("idna")  # the lookup does so too, and raises for an invalid name
    except ValueError:
        return False
    plain = loopback and parts.scheme == "http" and _is_loopback(host)
    return (parts.scheme == "https" or plain) and bool(host) and named and _URL.fullmatch(url) is not None


def _without_token(response: Response, *, loopback: bool) -> HttpRequest:
    """Return the request for a redirect. Its address is signed: a secret that no message may contain."""
    location = response.headers.get("location", "")
    if _is_safe(location, loopback=loopback):
        return HttpRequest("GET", location, _AGENT)
    raise RemoteError(
        "The API redirects a download to an address that is not https: nothing was fetched. Check the API's "
        "address."
    )


def _read(response: Any, limit_bytes: int, request: HttpRequest) -> bytes:
    content: bytes = response.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise RefusedError(
            f"What {request.method} {quoted(urlsplit(request.url).path)} answers has more than {limit_bytes} "
            "bytes: it was not read."
        )
    if response.length:  # http.client reports a short body only if all of it is read
        raise http.client.IncompleteRead(content, response.length)
    return content


def _outcome(response: Response) -> str:
    return f"no answer ({response.problem})" if response.status == _LOST else f"status {response.status}"


class _Error(msgspec.Struct):
    message: Any = ""
    errors: Any = None
    error: str = ""
    """GitLab's error word, instead of a message."""


def _message(response: Response) -> str:
    """Return the forge's error message, escaped."""
    try:
        error = decode(response.content, _Error)
    except UNREADABLE:
        return ""
    parts = (error.message, error.error, error.errors)
    return quoted(" ".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part))


def _shown(request: HttpRequest) -> str:
    return f"{request.method} {quoted(request.url)}"
