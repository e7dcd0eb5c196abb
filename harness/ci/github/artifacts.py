"""Archives from the job with the card, which a pull request's code may have written.

Nothing is unpacked to disk. Only archives called ``perf-review-CARD`` are used. Each must hold one file,
review.json. Every size is checked before reading.
"""

from __future__ import annotations

import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from harness.ci.forge import Api, ApiError, quoted
from harness.ci.github.github_api import path_of
from harness.ci.posts import read_report, read_reviews
from harness.errors import RefusedError
from harness.report.document.document import LIMITS, Review
from harness.report.pull_request.static_comment import StaticReport, decode_static

MEMBER = "review.json"
MAX_ARTIFACTS = LIMITS["cards"]
STATIC_ARTIFACT = "perf-static"
_PREFIX = "perf-review-"
_NAME = re.compile(rf"{_PREFIX}[A-Za-z0-9][A-Za-z0-9._-]{{0,59}}|{STATIC_ARTIFACT}")
_MAX_LISTED = 1000
_MAX_ARCHIVE_BYTES = LIMITS["bytes"] + 2**16
"""Size of an incompressible file with its archive."""
_MAX_DIRECTORY_BYTES = 4096
_END = struct.Struct("<4s4H2LH")
"""End of an archive (APPNOTE.TXT 4.3.16).

Signature, disk, disk of the directory, entries here, entries, the directory's bytes and offset, bytes of the
comment.
"""
_LOCAL = struct.Struct("<4s22xHH")
"""Header of a file: signature, and at the end the lengths of its name and of its extra field (4.3.7)."""
_DESCRIPTOR_BYTES = (0, 12, 16, 20, 24)
"""Possible lengths of a record after a file with its size and checksum, if its header lacks them (4.3.9)."""
_ENCRYPTED, _PATCHED, _MASKED = 0x1, 0x20, 0x2000


class _Artifact(msgspec.Struct):
    id: int
    name: str
    size_in_bytes: int
    expired: bool


class _Listing(msgspec.Struct):
    total_count: int
    artifacts: list[_Artifact]


def fetch_reviews(api: Api, repository: str, run: int) -> dict[str, Review]:
    """Return the reports of a run, by artifact. Raises RefusedError, ApiError, RemoteError."""
    return read_reviews(_contents(api, repository, run, _PREFIX), "run")


def fetch_static(api: Api, repository: str, run: int) -> StaticReport | None:
    """Return the static facts of a run; None if it left none. Raises as `fetch_reviews` does."""
    for name, content in _contents(api, repository, run, STATIC_ARTIFACT):
        return read_report(content, name, decode_static)
    return None


def _contents(api: Api, repository: str, run: int, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield the file in each artifact with this name prefix, one at a time, with the artifact's name."""
    for artifact in _listed(api, repository, run, prefix):
        yield artifact.name, unpacked(_downloaded(api, repository, artifact), artifact.name)


def _listed(api: Api, repository: str, run: int, prefix: str) -> list[_Artifact]:
    """Return the artifacts with reports, the newest of each name: every attempt of a run leaves its own."""
    newest: dict[str, _Artifact] = {}
    path = path_of(repository, "actions", "runs", run, "artifacts")
    for page in api.pages(path, _Listing, needs="actions: read"):
        if (count := page.total_count) > _MAX_LISTED:
            raise RefusedError(f"The run has {count} artifacts; at most {_MAX_LISTED} are looked at.")
        for artifact in page.artifacts:
            if artifact.name.startswith(prefix):
                _check(artifact)
                other = newest.get(artifact.name, artifact)
                newest[artifact.name] = max(other, artifact, key=lambda each: each.id)
    if len(newest) > MAX_ARTIFACTS:
        raise RefusedError(f"The run has {len(newest)} reports; at most {MAX_ARTIFACTS} are read.")
    return [newest[name] for name in sorted(newest)]


def _check(artifact: _Artifact) -> None:
    if not _NAME.fullmatch(artifact.name):
        raise RefusedError(
            f"An artifact is called {quoted(artifact.name)!r}; expected {_PREFIX} and up to 60 letters, "
            "digits, dots, underscores and dashes."
        )
    if not 0 < artifact.size_in_bytes <= _MAX_ARCHIVE_BYTES:
        raise RefusedError(
            f"Artifact {artifact.name} has {quoted(str(artifact.size_in_bytes))} bytes; expected 1 to "
            f"{_MAX_ARCHIVE_BYTES}."
        )


def _downloaded(api: Api, repository: str, artifact: _Artifact) -> bytes:
    expired = RefusedError(f"Artifact {artifact.name} has expired: run the measurement again.")
    if artifact.expired:
        raise expired
    path = path_of(repository, "actions", "artifacts", artifact.id, "zip")
    try:
        return api.download(path, needs="actions: read", limit_bytes=_MAX_ARCHIVE_BYTES)
    except ApiError as error:
        if error.status == 410:
            raise expired from None
        raise


def unpacked(archive: bytes, name: str) -> bytes:
    """Return the single file of an archive. Raises RefusedError for any other content."""
    try:
        directory = _directory(archive)
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return _content(archive[:directory], _only_member(opened.infolist()))
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, NotImplementedError) as error:
        why = quoted(str(error) or type(error).__name__)
    raise RefusedError(
        f"Artifact {quoted(name)} is not an archive that holds {MEMBER} and nothing else: {why}."
    )


def _directory(archive: bytes) -> int:
    """Return the directory's offset without parsing it. It must end the archive, so that all
    readers agree.
    """
    if len(archive) > _MAX_ARCHIVE_BYTES:
        raise ValueError(f"it has {len(archive)} bytes, more than {_MAX_ARCHIVE_BYTES}")
    if len(archive) < _END.size or archive[-_END.size :][:4] != b"PK\x05\x06":
        raise ValueError("it does not end as one")
    offset: int
    _, disk, start, here, entries, directory_bytes, offset, comment = _END.unpack(archive[-_END.size :])
    if comment or disk or start or here != entries:
        raise ValueError("it has a comment, or several parts")
    if entries != 1 or directory_bytes > _MAX_DIRECTORY_BYTES:
        raise ValueError(f"its directory has {entries} entries in {directory_bytes} bytes")
    if offset + directory_bytes + _END.size != len(archive):
        raise ValueError("there is something between its directory and its end")
    return offset


def _only_member(members: Sequence[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    if len(members) != 1:
        raise ValueError(f"it holds {len(members)} files")
    [member] = members
    if member.orig_filename != MEMBER or member.filename != MEMBER:
        raise ValueError(f"the file is called {quoted(member.orig_filename)!r}")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise ValueError("the file is a link or another special file")
    if member.flag_bits & (_ENCRYPTED | _PATCHED | _MASKED):
        raise ValueError("the file is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"the file is compressed by method {member.compress_type}")
    if member.file_size > LIMITS["bytes"]:
        raise ValueError(f"the file has {member.file_size} bytes, more than {LIMITS['bytes']}")
    if member.header_offset != 0:
        raise ValueError("there is something before the file")
    return member


def _content(before_directory: bytes, member: zipfile.ZipInfo) -> bytes:
    """Return the file's bytes. zipfile would trust the sizes in the directory."""
    signature, name_bytes, extra_bytes = _LOCAL.unpack_from(before_directory)
    begin = _LOCAL.size + name_bytes + extra_bytes
    end = begin + member.compress_size
    if signature != b"PK\x03\x04" or before_directory[_LOCAL.size :][:name_bytes] != MEMBER.encode():
        raise ValueError("its directory and its file disagree")
    if len(before_directory) - end not in _DESCRIPTOR_BYTES:
        raise ValueError("there is something between its file and its directory, or it is truncated")
    packed = before_directory[begin:end]
    content = packed if member.compress_type == zipfile.ZIP_STORED else _inflated(packed)
    if len(content) != member.file_size:
        promised = f"{member.file_size} as its directory says"
        raise ValueError(f"the file has {len(content)} bytes or more, not {promised}")
    if zlib.crc32(content) != member.CRC:
        raise ValueError("the file is damaged")
    return content


def _inflated(packed: bytes) -> bytes:
    """Return the decompressed bytes, up to the limit of a report."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    content = stream.decompress(packed, LIMITS["bytes"] + 1)
    if len(content) > LIMITS["bytes"]:
        raise ValueError(f"the file has more than {LIMITS['bytes']} bytes")
    if not stream.eof or stream.unused_data:
        raise ValueError("the file is truncated, or something follows it")
    return content
