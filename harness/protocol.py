"""What a session and its worker process say to each other: one JSON line per message."""

from __future__ import annotations

__all__ = [
    "BuildAll",
    "Done",
    "Failed",
    "Measure",
    "Open",
    "Opened",
    "Progress",
    "Reply",
    "Request",
    "decode_reply",
    "decode_request",
    "encode",
]

from collections.abc import Mapping

import msgspec

from harness.measure import MeasureSettings
from harness.records import DeviceInfo, Row, Toolchain


class Open(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Open a device; the first message, once. Answered by Opened or Failed."""

    device: str | None
    suite: str | None
    """The suite's folder, already at the right commit; None to learn only what the device is."""
    scratch: str
    """A folder that every worker of a run shares, for references that several kernels need."""


class Measure(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Verify one case and, where `settings` is given, time it. Answered by Progress, then Done or Failed."""

    kernel: str
    sizes: Mapping[str, int]
    seed: int
    settings: MeasureSettings | None


class BuildAll(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Compile kernels side by side into the cache. Errors are left for the case that needs the kernel to
    report.
    """

    cases: tuple[tuple[str, Mapping[str, int]], ...]


class Opened(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    device: DeviceInfo
    toolchain: Toolchain
    pid: int


class Progress(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What the worker is about to do: build, reference, verify or measure."""

    stage: str


class Done(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    row: Row | None = None


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An error of the harness's own; the worker is not to be trusted with another case."""

    reason: str
    message: str
    log: str = ""
    exit_code: int = 3


Request = Open | Measure | BuildAll
Reply = Opened | Progress | Done | Failed

_request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_reply_decoder: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    return _request_decoder.decode(line)


def decode_reply(line: bytes) -> Reply:
    return _reply_decoder.decode(line)
