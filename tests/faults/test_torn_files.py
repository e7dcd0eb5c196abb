"""Wrong files in the place of records: pipes, endless devices, half a record, remains of a killed run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.errors import ExitCode, HarnessError, StoreError
from harness.history.sources.asv_results import read_benchmarks, read_table
from harness.history.sources.kept_tables import read_cached
from harness.history.sources.our_records import card_records
from harness.judgement.noise import FILE, read_calibration
from harness.records.record_files import newest_rows, read_run
from harness.records.sweep_journal import read_sweep
from harness.system.cache import BinaryCache
from harness.system.files import read_regular, scratch_folder
from tests.support import COMMAND, IMPORT_PATH, Done, programs, records_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Project

pytestmark = pytest.mark.fault


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def _nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


PLANTED: tuple[Callable[[Path], None], ...] = (_pipe, _endless, _to_a_pipe, _nowhere, Path.mkdir)
ASV = {"version": 2, "commit_hash": "1" * 40, "result_columns": ["result"], "results": {}, "params": {}}


@pytest.fixture
def records(harness: Callable[..., Done], project: Project) -> Path:
    """The folder of a project's records, with one good one."""
    assert harness("run", "--device", "null").status == ExitCode.FINE
    (path,) = project.root.glob(".asv/results/null/*.jsonl")
    return path.parent


def beside(records: Path, number: int = 0) -> Path:
    """The name of a record that is newer than the good one."""
    good = min(path.name for path in records.glob("*.jsonl"))
    return records / good.replace(good[:8], f"2999010{number}")


def planted(*names: Path) -> tuple[Path, ...]:
    """Put something that is not a file under each name."""
    for name, plant in zip(names, PLANTED, strict=True):
        plant(name)
    return names


# What is no file


@pytest.mark.parametrize("plant", PLANTED)
def test_whatever_reads_one_file_says_what_it_is(
    tmp_path: Path, plant: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for read, name in (
        (read_run, "run.jsonl"),
        (read_sweep, "sweep.jsonl"),
        (lambda path: read_benchmarks(path.parent), "benchmarks.json"),
    ):
        plant(tmp_path / name)
        with pytest.raises(HarnessError) as raised:
            read(tmp_path / name)
        assert name in raised.value.message or str(tmp_path) in raised.value.message
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


@pytest.mark.parametrize("plant", [each for each in PLANTED if each is not _nowhere])
def test_a_calibration_that_is_no_file_is_an_error(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    plant(tmp_path / FILE)
    with pytest.raises(StoreError, match=FILE):
        read_calibration(tmp_path)


def test_a_ladder_is_told_of_it_and_reads_the_rest(records: Path) -> None:
    names = planted(*[beside(records, number) for number in range(5)])
    rows, problems = newest_rows(records.parent, "toy", ["toy.plain[n=64]"])
    assert [each.row.case for each in rows] == ["toy.plain[n=64]"]
    assert [problem.partition(": ")[0] for problem in problems] == [
        f"Cannot read {name}" for name in reversed(names)
    ]


def test_a_history_is_told_of_it_and_reads_the_rest(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "aaaaaaaa-checkout.json").write_text(json.dumps(ASV), encoding="utf-8")
    tables = planted(*[tmp_path / f"{number}{'b' * 7}-checkout.json" for number in range(5)])
    records = planted(*[tmp_path / "sub" / f"{number}.jsonl" for number in range(5)])
    facts = card_records(tmp_path / "sub").facts
    assert [each.file for each in facts] == [name.name for name in records]
    assert all(each.problem.startswith(f"{each.file} is left out: ") for each in facts)
    table = read_table(tmp_path, {})
    assert table.commits == ("1" * 40,)
    told = [problem.partition(" cannot be read")[0] for problem in table.problems]
    assert {name.name for name in tables} <= {*told}


def test_what_has_no_end_is_read_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 101)
    assert len(read_regular(path, 101)) == 101
    with pytest.raises(OSError, match="more than 100 bytes"):
        read_regular(path, 100)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_cache_that_is_no_file_is_as_good_as_none(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    cache = BinaryCache(tmp_path)
    (tmp_path / "ab").mkdir()
    plant(tmp_path / "ab" / "abcd")
    assert cache.get("abcd") is None
    plant(tmp_path / "kept")
    assert read_cached(tmp_path / "kept", dict) is None


# Of a newer version


def test_a_record_of_a_newer_version_is_told_and_the_rest_is_read(records: Path) -> None:
    (good,) = records.glob("*.jsonl")
    first, _, rest = good.read_bytes().partition(b"\n")
    line = json.loads(first)
    line["run"]["schema_version"] = 999
    beside(records).write_bytes(json.dumps(line).encode() + b"\n" + rest)
    rows, problems = newest_rows(records.parent, "toy", ["toy.plain[n=64]"])
    assert len(rows) == 1
    assert "has schema version 999" in problems[0]
    assert "Upgrade gpu-harness" in problems[0]


def test_a_cache_of_a_newer_version_is_made_anew(records: Path, own_cache: Path) -> None:
    (records / "aaaaaaaa-checkout.json").write_text(json.dumps(ASV), encoding="utf-8")
    before = read_table(records, {}), card_records(records).facts
    for kept in (own_cache / "history").iterdir():
        kept.write_bytes(msgspec.msgpack.encode({"format": 999, "keys": ["new"], "facts": [{"new": 1}]}))
    assert (read_table(records, {}), card_records(records).facts) == before


@pytest.mark.parametrize("cache", ["a file", "read-only"])
def test_a_cache_that_cannot_be_written_is_only_slower(
    harness: Callable[..., Done], project: Project, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    folder = project.root / "cache"
    if cache == "a file":
        folder.touch()
    else:
        folder.mkdir(mode=0o500)
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(folder))
    done = harness("run", "--device", "null")
    assert (done.status, "Traceback" in done.err) == (ExitCode.FINE, False)


# What a killed run leaves


def killed_run(project: Project, null_script: Callable[..., Path]) -> Path:
    """The part file of a run that was killed after its first row."""
    null_script({"toy.tiled": {"fault": "hang"}})
    with programs.popen(
        [sys.executable, "-c", COMMAND, "-1", "run", "--device", "null"],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert any("toy.plain" in line for line in process.stderr)
        process.send_signal(signal.SIGKILL)
    null_script({})
    (part,) = project.root.glob(".asv/results/null/*.part")
    return part


def test_rows_of_a_killed_run_are_read_and_kept_by_the_next(
    harness: Callable[..., Done], project: Project, null_script: Callable[..., Path]
) -> None:
    part = killed_run(project, null_script)
    rows, problems = newest_rows(part.parent.parent, "toy", ["toy.plain[n=64]"])
    assert [each.row.status for each in rows] == ["measured"]
    assert problems == []
    assert [each.file for each in card_records(part.parent).facts] == [part.name]
    assert harness("run", "--device", "null", "plain").status == ExitCode.FINE
    assert not part.exists()
    killed, whole = records_below(part.parent)
    assert [row.kernel for row in killed[1]] == ["plain"]
    assert (killed[2], whole[2]) == (False, True)


def test_the_record_of_a_live_run_is_left_alone(
    harness: Callable[..., Done], project: Project, null_script: Callable[..., Path]
) -> None:
    null_script({"toy.tiled": {"fault": "hang"}})
    with programs.popen(
        [sys.executable, "-c", COMMAND, "-1", "run", "--device", "null", "--timeout", "30"],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as live:
        try:
            assert live.stderr is not None
            assert any("toy.plain" in line for line in live.stderr)
            (part,) = project.root.glob(".asv/results/null/*.part")
            assert harness("run", "--device", "null", "plain").status == ExitCode.FINE
            assert part.exists()
        finally:
            live.kill()


def test_half_a_record_harms_nobody(harness: Callable[..., Done], records: Path) -> None:
    parts = []
    for number, left in enumerate((b"", b'{"run": {"schema', b"words\n")):
        name = beside(records, number)
        parts.append(name.with_name(f"{name.name}.part"))
        parts[-1].write_bytes(left)
    rows, _ = newest_rows(records.parent, "toy", ["toy.plain[n=64]"])
    assert len(rows) == 1
    facts = {each.file: each.problem for each in card_records(records).facts}
    assert all(facts[part.name].startswith(f"{part.name} is left out: ") for part in parts)
    assert harness("run", "--device", "null").status == ExitCode.FINE


@pytest.mark.parametrize("left", [b'{"verdict":{"case":"to', b'{"block":{"case":"' + bytes([120]) * 2**19])
def test_a_comparison_that_was_killed_tells_its_history_what_it_had_said(tmp_path: Path, left: bytes) -> None:
    ends = {"base": {"commit": "1" * 40}, "head": {"commit": "2" * 40, "suite": "toy"}}
    first = {"comparison": {**ends, "command": "compare"}}
    verdict = {"verdict": {"case": "toy.plain[n=64]", "status": "unchanged"}}
    lines = [json.dumps(each, separators=(",", ":")).encode() for each in (first, verdict)]
    (tmp_path / "20260102T030405Z-a..b-toy-1.jsonl").write_bytes(b"\n".join([*lines, left]))
    [facts] = card_records(tmp_path).facts
    assert facts.problem == ""
    assert [(each.case, each.status) for each in facts.judged] == [("toy.plain@64", "unchanged")]


def test_a_part_that_is_no_file_is_left_where_it_is(harness: Callable[..., Done], records: Path) -> None:
    names = [beside(records, number) for number in range(5)]
    parts = planted(*[name.with_name(f"{name.name}.part") for name in names])
    assert harness("run", "--device", "null").status == ExitCode.FINE
    assert all(os.path.lexists(part) for part in parts)


# Temporary folders


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_what_a_killed_run_left_is_removed_by_the_next(
    harness: Callable[..., Done], project: Project, null_script: Callable[..., Path], temporary: Path
) -> None:
    killed_run(project, null_script)
    assert list(temporary.glob("harness-*"))
    assert harness("check", "--device", "null").status == ExitCode.FINE
    assert not list(temporary.glob("harness-*"))


def test_what_may_be_anybodys_stays(temporary: Path, tmp_path: Path) -> None:
    (temporary / "harness-mine").mkdir()
    (temporary / "harness-mine" / "work").touch()
    (temporary / "harness-file").touch()
    (temporary / "harness-pipe").mkdir()
    os.mkfifo(temporary / "harness-pipe" / ".owner")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / ".owner").touch()
    (temporary / "harness-link").symlink_to(tmp_path / "victim")
    before = sorted(temporary.rglob("*"))
    with scratch_folder() as live:
        with scratch_folder():
            assert live.exists(), "a live one"
        assert live.exists()
    assert sorted(temporary.rglob("*")) == before
    assert (tmp_path / "victim" / ".owner").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_stays(temporary: Path) -> None:
    folder = temporary / "harness-theirs"
    folder.mkdir()
    (folder / ".owner").touch()
    os.chown(folder, 12345, 12345)
    with scratch_folder():
        assert folder.exists()
