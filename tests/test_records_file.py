"""Records on disk: what is written is what is read, and nothing measured is lost."""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import datetime as dt
import itertools
import json
import os
import subprocess
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import harness
from harness.errors import ExitCode, StoreError
from harness.records import record_files
from harness.records.types import (
    SCHEMA_VERSION,
    TWINS,
    Arm,
    CaseBlock,
    Check,
    Comparison,
    DeviceInfo,
    Effect,
    Host,
    Measurement,
    PairedBlock,
    Quad,
    Row,
    Run,
    Snapshot,
    Source,
    Telemetry,
    Toolchain,
    Verdict,
)
from harness.run import device_session

TEXT = 'a "sentence"\r\n with \u2028 and \u0000 and é and 𝄞'
FLOATS = itertools.cycle((0.1 + 0.2, -1e-300, 1e300, 5e-324, 1000.0))


def full(kind: Any, inside: tuple[Any, ...] = ()) -> Any:
    """Return a value of a type. Every field of a record has another value than its default, because such
    values are hard to keep in JSON. A record inside a record of its own kind has only its required fields.
    """
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case types.UnionType | typing.Union:
            return full(arguments[0], inside)
        case typing.Literal:
            return next(filter(None, arguments))
        case builtins.tuple:
            return tuple(full(each, inside) for each in arguments if each is not ...)
        case collections.abc.Mapping:
            values = typing.get_args(arguments[1]) or arguments[1:]
            return {f"{number} {TEXT}": full(each, inside) for number, each in enumerate(values)}
    if not dataclasses.is_dataclass(kind):
        return {str: TEXT, int: 2**62, bool: True, types.NoneType: None}.get(kind, next(FLOATS))
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if isinstance(field.default, bool):
            given[field.name] = not field.default
        elif field.name == "schema_version":
            given[field.name] = SCHEMA_VERSION
        elif kind not in inside or field.default is field.default_factory is dataclasses.MISSING:
            given[field.name] = full(hints[field.name], (*inside, kind))
    make: Any = kind
    return make(**given)


def full_but(kind: Any, **changes: Any) -> Any:
    return dataclasses.replace(full(kind), **changes)


IDENTITY = {
    "harness_version": "1.2.3",
    "run_id": "0123456789abcdef",
    "started_at": "2026-01-02T03:04:05+00:00",
}
DEVICE = full_but(
    DeviceInfo,
    spec="cuda:0",
    backend="cuda",
    compute_units=132,
    memory_bytes=150_000_000_000,
    l2_bytes=50_000_000,
    max_threads_per_block=1024,
    max_shared_bytes=232_448,
    max_clock_mhz=1980,
    warp_size=32,
    max_threads_per_sm=2048,
    registers_per_sm=65536,
    shared_bytes_per_sm=233472,
)
RUN = full_but(
    Run, **IDENTITY, command="run", source=full_but(Source, suite="toy", commit="c" * 40), device=DEVICE
)
ROW = full_but(Row, case="toy.plain[n=64]", kernel="plain", sizes={"n": 64, "m": 2**31 - 1}, dtype="float32")
BARE = Row(case="toy.tiled[n=64]", kernel="tiled", sizes={"n": 64}, dtype="float16", status="skipped")
COMPARISON = full_but(
    Comparison,
    **IDENTITY,
    base=dataclasses.replace(RUN.source, commit="b" * 40, dirty=False),
    head=RUN.source,
    device=DEVICE,
)
VERDICT = full(Verdict)
BARE_VERDICT = Verdict(
    case="toy.tiled[n=64]",
    kernel="tiled",
    sizes={"n": 64},
    dtype="float16",
    status="new",
    reason="only-in-head",
    message="There is no such case at base.",
)
TWIN = full_but(Verdict, case=TWINS[0])
BARE_QUAD = Quad(order="ABBA", times_ns=(1.0, 2.0, 3.0, 4.0), started_ns=1, ended_ns=2)
BLOCK = full_but(CaseBlock, block=full_but(PairedBlock, quads=(full(Quad), BARE_QUAD)))


def written(folder, *items, described=RUN, complete=True):
    with record_files.RecordWriter(folder, described) as writer:
        for item in items:
            writer.add(item)
        return writer.finish(complete=complete)


def compared(folder, *items, described=COMPARISON, complete=True):
    return written(folder, *items, described=described, complete=complete)


def part_of(folder):
    (part,) = folder.glob("*.part")
    return part


def unfinished(path, *rows):
    return record_files.RunResult(RUN, rows, path, interrupted=True)


def edited(path, number, line):
    lines = path.read_bytes().splitlines()
    lines[number - 1 : number] = [line]
    path.write_bytes(b"".join(each + b"\n" for each in lines))
    return path


@pytest.mark.parametrize("complete", [True, False])
def test_every_field_comes_back(tmp_path, complete):
    path = written(tmp_path / "deep" / "er", ROW, BARE, ROW, complete=complete)
    assert record_files.read_run(path) == record_files.RunResult(
        RUN, (ROW, BARE, ROW), path, interrupted=not complete
    )
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path = compared(tmp_path, BLOCK, BLOCK, VERDICT, BARE_VERDICT, complete=complete)
    assert record_files.read_comparison(path) == record_files.ComparisonResult(
        comparison=COMPARISON,
        verdicts=(VERDICT, BARE_VERDICT),
        blocks=(BLOCK, BLOCK),
        interrupted=not complete,
        path=path,
    )


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
@pytest.mark.parametrize(("described", "items"), [(RUN, (ROW, BARE)), (COMPARISON, (BLOCK, VERDICT, TWIN))])
def test_a_record_of_each_schema_is_written_again_as_it_was_read(tmp_path, version, described, items):
    """Its keys may stand in any order, as an earlier harness had them in another."""
    described = dataclasses.replace(described, schema_version=version)
    path = written(tmp_path / "old", *items, described=described)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    path.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
    if isinstance(described, Run):
        run = record_files.read_run(path)
        again = written(tmp_path / "new", *run.rows, described=run.run)
    else:
        found = record_files.read_comparison(path)
        assert (found.verdicts, found.twins) == ((VERDICT,), (TWIN,))
        kept = (*found.blocks, *found.every_verdict)
        again = written(tmp_path / "new", *kept, described=found.comparison)
    assert [json.loads(line) for line in again.read_bytes().splitlines()] == lines


def test_the_disk_is_told_to_keep_a_record_that_is_finished(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr("os.fsync", lambda file: sizes.append(os.fstat(file).st_size))
    path = written(tmp_path, ROW)
    assert sizes == [path.stat().st_size]


def test_a_run_without_rows(tmp_path):
    path = written(tmp_path)
    assert record_files.read_run(path) == record_files.RunResult(RUN, (), path)


@pytest.mark.parametrize(
    ("items", "described", "kinds"),
    [
        ((ROW, BARE), RUN, ["run", "row", "row", "complete"]),
        ((BLOCK, VERDICT), COMPARISON, ["comparison", "block", "verdict", "complete"]),
    ],
    ids=["run", "comparison"],
)
def test_a_line_is_a_record(tmp_path, items, described, kinds):
    *lines, rest = written(tmp_path, *items, described=described).read_bytes().split(b"\n")
    assert [list(json.loads(line)) for line in lines] == [[kind] for kind in kinds]
    assert rest == b""


@pytest.mark.parametrize(
    ("described", "changes", "name"),
    [
        (RUN, {}, "20260102T030405Z-cccccccc+-toy-01234567.jsonl"),
        (
            RUN,
            {"source": dataclasses.replace(RUN.source, dirty=False)},
            "20260102T030405Z-cccccccc-toy-01234567.jsonl",
        ),
        (RUN, {"source": Source(suite="toy", path=".")}, "20260102T030405Z-nocommit-toy-01234567.jsonl"),
        (
            RUN,
            {"started_at": "2026-01-02T03:04:05.678+00:00"},
            "20260102T030405Z-cccccccc+-toy-01234567.jsonl",
        ),
        (COMPARISON, {}, "20260102T030405Z-bbbbbbbb..cccccccc+-toy-01234567.jsonl"),
        (COMPARISON, {"base": RUN.source}, "20260102T030405Z-cccccccc+..cccccccc+-toy-01234567.jsonl"),
        (
            COMPARISON,
            {"head": Source(suite="other", path=".")},
            "20260102T030405Z-bbbbbbbb..nocommit-other-01234567.jsonl",
        ),
    ],
)
def test_a_records_name(described, changes, name):
    assert record_files.record_name(dataclasses.replace(described, **changes)) == name


def test_the_newest_row_of_a_case_counts_and_one_that_was_skipped_where_there_is_no_other(tmp_path):
    def row(case, status, message):
        return dataclasses.replace(BARE, case=case, status=status, message=message)

    def stored(second, *rows, suite="toy", **changes):
        source = dataclasses.replace(RUN.source, suite=suite)
        started = f"2026-01-02T03:04:{second:02}+00:00"
        run = dataclasses.replace(RUN, run_id=f"{second:08}", started_at=started, source=source, **changes)
        written(tmp_path / "card", *rows, described=run)

    stored(1, row("a", "measured", "first"), row("b", "measured", "first"))
    stored(2, row("a", "measured", "second"), row("c", "skipped", "second"), row("d", "measured", "other"))
    stored(3, row("a", "skipped", "third"), row("b", "failed", "third"), row("c", "skipped", "third"))
    stored(4, row("a", "verified", "fourth"), row("b", "not-built", "fourth"))
    stored(5, row("a", "measured", "fifth"), command="check")
    stored(6, row("a", "measured", "sixth"), suite="other")
    found, problems = record_files.newest_rows(tmp_path, "toy", ["a", "b", "c"])
    assert {each.row.case: each.row.message for each in found} == {"a": "second", "b": "third", "c": "third"}
    assert ({each.machine for each in found}, problems) == ({"card"}, [])


def test_two_runs_in_one_second_have_a_record_each(tmp_path):
    other = dataclasses.replace(RUN, run_id="fedcba9876543210")
    with record_files.RecordWriter(tmp_path, RUN) as one, record_files.RecordWriter(tmp_path, other) as two:
        one.add(ROW)
        two.add(BARE)
        paths = [one.finish(complete=True), two.finish(complete=True)]
    assert [record_files.read_run(path).rows for path in paths] == [(ROW,), (BARE,)]


def test_names_of_runs_that_begin_in_one_second_sort_by_time(monkeypatch):
    class Clock(dt.datetime):
        fractions = iter((0, 15_999, 16_000, 499_999, 999_999))

        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 2, 3, 4, 5, next(cls.fractions), tz)

    monkeypatch.setattr(dt, "datetime", Clock)
    names = [record_files.record_name(dataclasses.replace(RUN, **device_session.begun())) for _ in range(5)]
    assert names == sorted(set(names))
    assert all(name.startswith("20260102T030405Z-") for name in names)


def test_a_run_is_not_written_twice(tmp_path):
    with record_files.RecordWriter(tmp_path, RUN), pytest.raises(StoreError, match="File exists"):
        record_files.RecordWriter(tmp_path, RUN)


def test_rows_can_be_read_before_the_end(tmp_path):
    with record_files.RecordWriter(tmp_path, RUN) as writer:
        assert record_files.read_run(part_of(tmp_path)) == unfinished(part_of(tmp_path))
        writer.add(ROW)
        assert record_files.read_run(part_of(tmp_path)) == unfinished(part_of(tmp_path), ROW)
        assert not list(tmp_path.glob("*.jsonl"))


def test_leaving_early_keeps_the_rows_and_says_so(tmp_path):
    def interrupted():
        with record_files.RecordWriter(tmp_path, RUN) as writer:
            writer.add(ROW)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (path,) = tmp_path.iterdir()
    assert record_files.read_run(path) == unfinished(path, ROW)


KILLED = """
import os, sys
from pathlib import Path
from harness.records import record_files as store
from tests.test_records_file import ROW, RUN
writer = store.RecordWriter(Path(sys.argv[1]), RUN)
writer.add(ROW)
{last}
"""


def child(code, *arguments):
    root = Path(harness.__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=root,
        # Of our modules nothing torn is to stay behind where files cannot grow.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_was_measured_outlives_the_harness(tmp_path):
    done = child(KILLED.format(last="os.kill(os.getpid(), 9)"), tmp_path)
    assert done.returncode == -9, done.stderr
    assert record_files.read_run(part_of(tmp_path)) == unfinished(part_of(tmp_path), ROW)


FULL = """
import resource, sys
from pathlib import Path
from harness.records import record_files as store
from harness.errors import StoreError
from tests.test_records_file import BARE, ROW, RUN
limit = int(sys.argv[2])
with store.RecordWriter(Path(sys.argv[1]), RUN) as writer:
    writer.add(ROW)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        writer.add(ROW)
    except StoreError as error:
        print(error.message)
"""


def test_a_full_disk_is_a_sentence_and_keeps_the_rows_before(tmp_path):
    pytest.importorskip("resource")
    whole = written(tmp_path / "whole", ROW).read_bytes()
    limit = len(whole) - len(b'{"complete":true}\n')
    done = child(FULL, tmp_path / "full", limit)
    part = part_of(tmp_path / "full")
    assert done.stdout == (
        f"Cannot write to {part}: File too large. Rows written before are kept there.\n"
    ), done.stderr
    assert done.stderr == ""
    assert record_files.read_run(part) == unfinished(part, ROW)


FULL_AT_FIRST = """
import resource, sys, warnings
from pathlib import Path
from harness.records import record_files as store
from harness.errors import StoreError
from tests.test_records_file import RUN
warnings.simplefilter("error")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    store.RecordWriter(Path(sys.argv[1]), RUN)
except StoreError as error:
    print(error.message)
"""


def test_a_disk_that_is_full_at_first_is_a_sentence_and_leaves_nothing(tmp_path):
    pytest.importorskip("resource")
    done = child(FULL_AT_FIRST, tmp_path)
    assert done.stdout.startswith(f"Cannot write to {tmp_path}"), done.stderr
    # A file left open would be a warning there.
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_place_of_the_folder_is_a_sentence(tmp_path, below):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / below
    with pytest.raises(StoreError) as raised:
        record_files.RecordWriter(folder, RUN)
    assert raised.value.message.startswith(f"Cannot write results to {folder}: ")
    assert "--results" in raised.value.message
    assert raised.value.exit_code == ExitCode.NOT_MEASURED


def test_a_folder_in_place_of_the_record_is_a_sentence(tmp_path):
    writer = record_files.RecordWriter(tmp_path, RUN)
    (writer.path / "taken").mkdir(parents=True)
    with pytest.raises(StoreError, match="The rows are in"):
        writer.finish(complete=True)
    assert record_files.read_run(part_of(tmp_path)).run == RUN


@pytest.mark.parametrize(
    ("line", "because"),
    [
        (b"", "Input data was truncated"),
        (b"not json", "malformed"),
        (b'{"row":', "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"row":{"case":"x"}}', "missing required field"),
        (b'{"complete":"yes"}', "Expected `bool | null`, got `str`"),
        (b"\x00\xff\xfe", "malformed"),
        (b'{"row":{"case":"toy.\xff"}}', "'utf-8' codec can't decode byte 0xff"),
        (b'{"later":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "while deserializing an object"),
    ],
    ids=[
        "empty",
        "not json",
        "cut",
        "another type",
        "a field missing",
        "a wrong value",
        "no text",
        "a word that is no text",
        "nested too deep",
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, because):
    path = edited(written(tmp_path, ROW, BARE, ROW), 3, line)
    with pytest.raises(StoreError) as raised:
        record_files.read_run(path)
    assert raised.value.message.startswith(f"{path}, line 3 is damaged (")
    assert because in raised.value.message


def test_a_damaged_first_line_is_named(tmp_path):
    path = written(tmp_path, ROW)
    path.write_bytes(path.read_bytes().replace(b"1.2.3", b"\xff\xfe.3"))
    with pytest.raises(StoreError) as raised:
        record_files.read_run(path)
    assert raised.value.message.startswith(f"{path}, line 1 is damaged ('utf-8' codec can't decode byte 0xff")


def test_half_a_last_line_costs_no_row_before_it(tmp_path):
    # A harness that was killed as it wrote leaves one.
    path = written(tmp_path, ROW, BARE)
    path.write_bytes(path.read_bytes().removesuffix(b'{"complete":true}\n')[:-10])
    assert record_files.read_run(path) == unfinished(path, ROW)


def test_a_damaged_line_can_be_deleted(tmp_path):
    path = edited(written(tmp_path, ROW, BARE, ROW), 3, b"{")
    path.write_bytes(b"\n".join(line for line in path.read_bytes().splitlines() if line != b"{"))
    assert record_files.read_run(path) == record_files.RunResult(RUN, (ROW, ROW), path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"words\n",
        b'{"run":{}}\n',
        b'{"run":3}\n',
        b'{"comparison":{}}\n',
        b'{"comparison":[]}\n',
        b"\x7fELF\n",
        b"[1]\n",
    ],
    ids=repr,
)
def test_what_is_no_record_is_a_sentence(tmp_path, content):
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    with pytest.raises(StoreError) as raised:
        record_files.read_run(path)
    why = "its first line does not describe a run (" if content.strip() else "it has no whole line."
    assert raised.value.message.startswith(f"{path} is no run record: {why}")


@pytest.mark.parametrize("content", [b"{}\n", b'{"row":{}}\n', b'{"complete":true}\n'], ids=repr)
@pytest.mark.parametrize("read", [record_files.read_run, record_files.read_comparison])
def test_a_record_of_neither_is_a_sentence(tmp_path, content, read):
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="its first line describes neither a run nor a comparison"):
        read(path)


@pytest.mark.parametrize("read", [record_files.read_run, record_files.read_comparison])
@pytest.mark.parametrize("name", [".", "missing.jsonl"])
def test_what_cannot_be_read_is_a_sentence(tmp_path, name, read):
    with pytest.raises(StoreError, match=r"^Cannot read "):
        read(tmp_path / name)


@pytest.mark.parametrize("kind", ["run", "comparison"])
@pytest.mark.parametrize("read", [record_files.read_run, record_files.read_comparison])
def test_a_newer_record_is_told_from_a_damaged_one(tmp_path, kind, read):
    newer = json.dumps({kind: {"schema_version": SCHEMA_VERSION + 1, "anything": "else"}})
    path = edited(written(tmp_path, ROW), 1, newer.encode())
    with pytest.raises(StoreError) as raised:
        read(path)
    assert raised.value.message == (
        f"{path} has schema version {SCHEMA_VERSION + 1}; this harness reads up to {SCHEMA_VERSION}. "
        "Upgrade gpu-harness to read it."
    )


def test_a_field_of_a_later_harness_is_no_damage(tmp_path):
    """Fields may be added without a new version: an older harness reads what it knows."""
    path = written(tmp_path, ROW)
    line = json.loads(path.read_bytes().splitlines()[1])
    line["row"]["added_later"] = 1
    assert record_files.read_run(edited(path, 2, json.dumps(line).encode())).rows == (ROW,)


def test_a_run_is_no_comparison_and_the_other_way_round(tmp_path):
    run, comparison = written(tmp_path, ROW), compared(tmp_path, VERDICT)
    with pytest.raises(StoreError, match="is the record of a run; expected that of a comparison"):
        record_files.read_comparison(run)
    with pytest.raises(StoreError, match="is the record of a comparison; expected that of a run"):
        record_files.read_run(comparison)


def test_a_field_that_an_earlier_harness_did_not_know_has_its_default(tmp_path):
    path = compared(tmp_path, BLOCK)
    line = json.loads(path.read_bytes().splitlines()[1])
    del line["block"]["block"]["clock_noise"]
    del line["block"]["confirming"]
    bare = dataclasses.replace(
        BLOCK, confirming=False, block=dataclasses.replace(BLOCK.block, clock_noise=None)
    )
    assert record_files.read_comparison(edited(path, 2, json.dumps(line).encode())).blocks == (bare,)


def test_without_a_writer_a_journal_keeps_nothing():
    with record_files.Journal(None) as journal:
        journal.add(BLOCK)
        journal.finish(complete=True)
    assert (journal.path, journal.problem) == (None, "")


FULL_JOURNAL = """
import resource, sys
from pathlib import Path
from harness.records import record_files as store
from tests.test_records_file import BLOCK, COMPARISON, VERDICT
with store.Journal(store.RecordWriter(Path(sys.argv[1]), COMPARISON)) as journal:
    journal.add(BLOCK)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    journal.add(VERDICT)
    print(journal.problem)
    journal.add(VERDICT)
    journal.finish(complete=True)
print(journal.path)
"""


def test_a_journal_on_a_full_disk_goes_on_and_says_so_once(tmp_path):
    pytest.importorskip("resource")
    whole = compared(tmp_path / "whole", BLOCK).read_bytes()
    limit = len(whole) - len(b'{"complete":true}\n')
    done = child(FULL_JOURNAL, tmp_path / "full", limit)
    problem, path = done.stdout.splitlines()
    assert problem.endswith("File too large. Rows written before are kept there."), done.stderr
    assert path == "None"
    (left,) = (tmp_path / "full").iterdir()
    stored = record_files.read_comparison(left)
    assert stored == record_files.ComparisonResult(
        comparison=COMPARISON, verdicts=(), blocks=(BLOCK,), interrupted=True, path=left
    )


# The schema


def test_the_schema_is_one_and_describes_every_line(tmp_path):
    schema = record_files.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for complete in (True, False):
        folder = tmp_path / str(complete)
        for path in (
            written(folder, ROW, BARE, complete=complete),
            compared(folder, BLOCK, VERDICT, BARE_VERDICT, complete=complete),
        ):
            for line in path.read_bytes().splitlines():
                validator.validate(json.loads(line))


@pytest.mark.parametrize(
    "line",
    [
        [],
        {"run": {"run_id": "x"}},
        {"complete": "yes"},
        {"comparison": {"run_id": "x"}},
        {"block": {"case": "x"}},
    ],
    ids=["a list", "a short run", "a wrong word", "a short comparison", "no block"],
)
def test_the_schema_refuses(line):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(line, record_files.schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("kind", "field", "value"), [("row", "case", 1), ("row", "status", "slow"), ("verdict", "status", "slow")]
)
def test_the_schema_refuses_one_wrong_value(tmp_path, kind, field, value):
    paths = (written(tmp_path, ROW), compared(tmp_path, VERDICT))
    lines = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    (line,) = (line for line in lines if kind in line)
    line[kind][field] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(line, record_files.schema(), jsonschema.Draft202012Validator)


def test_every_record_of_the_schema_and_every_field_is_described():
    described = record_files.schema()["$defs"]
    of_runs = (Run, Row, Source, DeviceInfo, Toolchain, Host, Measurement, Telemetry, Snapshot, Check)
    of_comparisons = (Comparison, CaseBlock, PairedBlock, Quad, Verdict, Effect, Arm)
    for kind in (*of_runs, *of_comparisons):
        assert set(described[kind.__name__]["properties"]) == {
            field.name for field in dataclasses.fields(kind)
        }


def test_the_shipped_schema_is_the_records():
    """Other tools read records by it; `harness.records.record_files.schema()` makes it."""
    path = Path(harness.__file__).parent / "records" / "run-record.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(record_files.schema()))
