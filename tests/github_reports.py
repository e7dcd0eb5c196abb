"""Reports as a job with a card leaves them, and archives made byte by byte."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.ci import forge as forge_api
from harness.records.types import Verdict
from harness.report.document.document import CardReview, Review, encode
from tests.github_server import BASE, HEAD, REPOSITORY, RUN, TOKEN, Artifact, GitHub
from tests.support import Done, caller


def honest(review: Review, head: str = HEAD, base: str = BASE) -> Review:
    """A sample's verdicts as one comparison could really have left them."""
    return replace(review, base=base, head=head, cards=tuple(_honest(card) for card in review.cards))


def _honest(card: CardReview) -> CardReview:
    kernels = {case.kernel for case in card.cases}
    places = {kernel: place for kernel, place in card.places.items() if kernel in kernels}
    cases, twins = (tuple(map(_without_processes, found)) for found in (card.cases, card.twins))
    return replace(card, cases=cases, twins=twins, places=places)


def _without_processes(case: Verdict) -> Verdict:
    """The samples' effects of processes are drawn about the effect, which is not their mean."""
    changes = {name: getattr(case, name) for name in ("time", "cycles", "energy")}
    return replace(
        case, **{name: each and replace(each, process_effects=()) for name, each in changes.items()}
    )


def zipped(content: bytes, name: str = "review.json", *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive as it is written to a pipe, sizes after the file, like that of actions/upload-artifact."""
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", method) as made:
        made.writestr(name, content)
    return bytes(pipe.content)


class _Pipe(io.RawIOBase):
    """It knows no way back."""

    def __init__(self) -> None:
        self.content = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.content += data
        return len(data)


def deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(content) + stream.flush()


@dataclass(frozen=True, kw_only=True)
class Member:
    """A file of an archive, with every field of its header."""

    name: bytes = b"review.json"
    packed: bytes
    size: int
    crc: int
    method: int = zipfile.ZIP_DEFLATED
    flags: int = 0
    attributes: int = 0
    local_name: bytes | None = None
    packed_size: int | None = None
    offset: int | None = None

    @classmethod
    def of(cls, content: bytes, **over: Any) -> Member:
        fields = {"packed": deflated(content), "size": len(content), "crc": zlib.crc32(content)}
        return cls(**{**fields, **over})

    def local(self) -> bytes:
        name = self.name if self.local_name is None else self.local_name
        head = struct.pack(
            "<4s5H3L2H",
            *(b"PK\x03\x04", 20, self.flags, self.method, 0, 33, self.crc),
            *(len(self.packed), self.size, len(name), 0),
        )
        return head + name + self.packed

    def central(self, offset: int) -> bytes:
        packed_size = len(self.packed) if self.packed_size is None else self.packed_size
        head = struct.pack(
            "<4s6H3L5H2L",
            *(b"PK\x01\x02", 0x0314, 20, self.flags, self.method, 0, 33, self.crc),
            *(packed_size, self.size, len(self.name), 0, 0, 0, 0),
            *(self.attributes << 16, offset if self.offset is None else self.offset),
        )
        return head + self.name


def archive(
    *members: Member, before: bytes = b"", between: bytes = b"", end: bytes = b"", comment: bytes = b""
) -> bytes:
    """`before` all of it, `between` files and directory, `end` between directory and end, and a comment."""
    files, directory = before, b""
    for member in members:
        directory += member.central(len(files))
        files += member.local()
    files += between
    last = struct.pack(
        "<4s4H2LH",
        *(b"PK\x05\x06", 0, 0, len(members), len(members), len(directory), len(files), len(comment)),
    )
    return files + directory + end + last + comment


def zeros(gigabytes: int) -> bytes:
    """Return zeros of so many GiB, deflated: the same independent block, repeated."""
    stream = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = stream.compress(bytes(2**20)) + stream.flush(zlib.Z_FULL_FLUSH)
    return block * (1024 * gigabytes) + zlib.compressobj(wbits=-zlib.MAX_WBITS).flush()


Post = Callable[..., Done]
WAITS = forge_api.Waits(sleep=lambda _seconds: None, now=lambda: 1_800_000_000.0, jitter=lambda: 0.5)


def posting(
    github: GitHub, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, command: str = "post"
) -> Post:
    """Return a function that runs `harness ci post` for an event, as a workflow does, without waiting."""
    call = caller(capsys, monkeypatch)
    monkeypatch.setattr(forge_api, "Waits", lambda: WAITS)
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": github.url,
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_TOKEN": TOKEN,
    }.items():
        monkeypatch.setenv(name, value)

    def run(event: Any, *arguments: str) -> Done:
        (tmp_path / "event.json").write_text(json.dumps(event), encoding="utf-8")
        done: Done = call("ci", command, *arguments, cwd=tmp_path)
        assert TOKEN not in done.out + done.err
        assert "an internal error" not in done.err
        return done

    return run


def left(github: GitHub, *reviews: Review | bytes, run: int = RUN) -> None:
    """Reports, or archives, as the artifacts of a run."""
    github.artifacts[run] = [
        Artifact(
            github.next_id(),
            f"perf-review-card{number}",
            review if isinstance(review, bytes) else zipped(encode(review)),
        )
        for number, review in enumerate(reviews)
    ]
