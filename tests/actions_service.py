"""A loopback fake of what the artifact actions talk to: the service with a run's artifacts, and its storage.

The calls are those of @actions/artifact 6 (Twirp in JSON), the storage is as much of Azure's as it uses. A
call that is not known, or an artifact that is there already, is an error, as there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests import http_servers

SERVICE = "/twirp/github.actions.results.api.v1.ArtifactService/"


@dataclass
class Kept:
    id: int
    name: str
    blocks: dict[str, bytes] = field(default_factory=dict)
    content: bytes = b""
    whole: bool = False


@dataclass
class Artifacts:
    """The artifacts of one run."""

    url: str = ""
    kept: dict[str, Kept] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    """Requests that this stand-in does not know."""

    @property
    def environ(self) -> dict[str, str]:
        """Variables that a runner gives an action. The token names its run and job; here it is not signed."""
        claims = {"scp": "Actions.Results:run-backend:job-backend", "exp": 2**31}
        encoded = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        return {
            "ACTIONS_RESULTS_URL": f"{self.url}/",
            "ACTIONS_RUNTIME_TOKEN": f"e30.{encoded}.c2ln",
            "GITHUB_SERVER_URL": "https://github.com",
        }

    def keep(self, name: str, content: bytes) -> None:
        """Keep an artifact as if an earlier job had left it."""
        self.kept[name] = Kept(len(self.kept) + 1, name, content=content, whole=True)

    def call(self, method: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a call; None if the call is unknown or refused."""
        name = body.get("name", "")
        if method == "CreateArtifact" and name not in self.kept:
            self.kept[name] = Kept(len(self.kept) + 1, name)
            return {"ok": True, "signed_upload_url": f"{self.url}/blob/{name}?sig=x"}
        if method == "FinalizeArtifact" and int(body["size"]) == len(self.kept[name].content):
            self.kept[name].whole = True
            return {"ok": True, "artifact_id": str(self.kept[name].id)}
        if method == "ListArtifacts":
            # Like GitHub's, it knows the filters and is not asked by pattern: that is the action's own.
            wanted = body.get("id_filter", body.get("idFilter"))
            return {
                "artifacts": [
                    {
                        "workflow_run_backend_id": "run-backend",
                        "workflow_job_run_backend_id": "job-backend",
                        "database_id": str(each.id),
                        "name": each.name,
                        "size": str(len(each.content)),
                        "created_at": "2026-11-23T00:00:00Z",
                        "digest": f"sha256:{hashlib.sha256(each.content).hexdigest()}",
                    }
                    for each in self.kept.values()
                    if each.whole and wanted in (None, str(each.id), each.id)
                ]
            }
        if method == "GetSignedArtifactURL":
            return {"signed_url": f"{self.url}/blob/{name}?sig=x"}
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    artifacts: Artifacts

    def do_POST(self) -> None:
        body = json.loads(self._body())
        found = self.artifacts.call(self.path.removeprefix(SERVICE), body)
        if found is None:
            self.artifacts.unknown.append(f"{self.path} {body}")
            self._answer(400, json.dumps({"code": "invalid_argument", "msg": self.path}).encode())
        else:
            self._answer(200, json.dumps(found).encode())

    def do_PUT(self) -> None:
        body, query = self._body(), parse_qs(urlsplit(self.path).query)
        kept = self.artifacts.kept[urlsplit(self.path).path.rpartition("/")[2]]
        if query.get("comp") == ["block"]:
            kept.blocks[query["blockid"][0]] = body
        elif query.get("comp") == ["blocklist"]:
            kept.content = b"".join(kept.blocks[each.text or ""] for each in ET.fromstring(body))
        else:
            kept.content = body
        self._answer(201, b"")

    def do_GET(self) -> None:
        kept = self.artifacts.kept[urlsplit(self.path).path.rpartition("/")[2]]
        self._answer(200, kept.content, "application/zip")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Artifacts]:
    artifacts = Artifacts()
    with http_servers.serving(_Handler, artifacts=artifacts) as artifacts.url:
        yield artifacts
