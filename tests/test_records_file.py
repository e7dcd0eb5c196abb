"""Records on disk: what is written is what is read, and nothing measured is lost."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest

import harness
from harness.errors import ExitCode, StoreError
from harness.records import (
    SCHEMA_VERSION,
    Arm,
    CaseBlock,
    Check,
    Comparison,
    CompiledKernel,
    DeviceInfo,
    Effect,
    Host,
    Launch,
    LibraryShare,
    Measurement,
    PairedBlock,
    Quad,
    Resources,
    Row,
    Run,
    Snapshot,
    Source,
    Strays,
    Telemetry,
    Toolchain,
    Verdict,
    Verification,
)
from harness.store import records_file

RUN = Run(
    harness_version="1.2.3",
    run_id="0123456789abcdef",
    started_at="2026-01-02T03:04:05+00:00",
    command="run",
    source=Source(
        suite="toy",
        path="kernels/toy",
        commit="c" * 40,
        committed_at="2026-01-01T00:00:00+02:00",
        dirty=True,
        tree_sha256="d" * 64,
        suite_from="e" * 40,
    ),
    headline="GB/s",
    kernels=("plain", "tiled"),
    device=DeviceInfo(
        spec="cuda:0",
        backend="cuda",
        name="Card é",
        vendor="NVIDIA",
        driver="570.1",
        kind="gpu",
        arch="sm_90",
        uuid="GPU-1234",
        pci_bus_id="00000000:01:00.0",
        compute_capability=(9, 0),
        compute_units=132,
        memory_bytes=150_000_000_000,
        l2_bytes=50_000_000,
        max_threads_per_block=1024,
        max_block=(1024, 1024, 64),
        max_grid=(2**31 - 1, 65535, 65535),
        max_shared_bytes=232_448,
        max_clock_mhz=1980,
        warp_size=32,
        max_threads_per_sm=2048,
        registers_per_sm=65536,
        shared_bytes_per_sm=233472,
    ),
    toolchain=Toolchain(compiler="nvcc 13.0", options=("-std=c++17", "-lineinfo")),
    host=Host(
        os="Linux",
        kernel="6.1",
        cpu="CPU",
        cpu_count=8,
        memory_bytes=2**40,
        python="3.12.1",
        packages={"numpy": "2.0", "pycuda": "2026.1"},
    ),
    settings={"seed": 1, "precision": 0.002, "l2": "cold", "max_time_s": None, "verbose": True},
    peaks={"float32": 66908.16, "memory": 4800.0},
    identity={"vbios": "96.00", "power_limit_w": "700"},
)

SNAPSHOT = Snapshot(
    at_ns=2**62,
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    temperature_c=55.5,
    power_w=612.25,
    energy_j=123456.789,
    p_state=0,
    utilization_percent=100.0,
    clock_event_reasons=("sw_power_cap",),
    throttle_ns={"sw_power_cap": 7, "hw_thermal": 0},
    memory_used_bytes=1,
    processes=(1, 2),
    load_average=0.25,
)

TELEMETRY = Telemetry(
    probe="nvml",
    before=SNAPSHOT,
    during=(SNAPSHOT, Snapshot(at_ns=1)),
    after=Snapshot(at_ns=2),
    unavailable={"load_average": "no host"},
    foreign_processes=(3,),
)

ROW = Row(
    case="toy.plain[n=64]",
    kernel="plain",
    sizes={"n": 64, "m": 2**31 - 1},
    dtype="float32",
    status="measured",
    reason="a-reason",
    message='a "sentence"\r\n with \u2028 and \u0000 and é and 𝄞',
    log="line 1\nline 2\n",
    flop=2 * (2**31) ** 2,
    moved_bytes=2**50,
    source_sha256="e" * 64,
    launch=Launch(
        grid=(2, 1, 1),
        block=(32, 8, 1),
        dynamic_shared_bytes=1024,
        dispatch=(1, 1, 1),
        steps=(Launch(grid=(3, 1, 1), block=(4, 1, 1)),),
    ),
    resources=Resources(
        registers=40,
        arch="sm_90a",
        static_shared_bytes=0,
        local_bytes=16,
        max_threads_per_block=512,
        binary_sha256="f" * 64,
        code_sha256="9" * 64,
        spill_store_bytes=48,
        spill_load_bytes=52,
        constant_bytes=384,
        code_bytes=4624,
        occupancy=0.125,
        instructions={"FFMA": 512, "LDG.128": 2},
        loop_instructions={"FFMA": 256},
        kernels=(
            CompiledKernel(
                name="kernel",
                registers=40,
                spilled_bytes=0,
                shared_bytes=1024,
                code_sha256="8" * 64,
                settings={"num_warps": 8},
            ),
        ),
    ),
    verification=Verification(
        passed=True,
        checks=(
            Check(
                data="integers",
                seed=1,
                passed=True,
                largest_error=0.0,
                largest_ratio=0.0,
                wrong=0,
                elements=64,
            ),
            Check(
                data="random",
                seed=2**63 - 1,
                passed=False,
                largest_error=None,
                largest_ratio=None,
                wrong=64,
                elements=64,
                message="all of them",
            ),
        ),
    ),
    measurement=Measurement(
        times_ns=(1000.0, 0.1 + 0.2, 1e-300, 1e300, 5e-324),
        launches_per_slot=3,
        l2="cold",
        clock="cuda-event",
        tick_ns=32.0,
        warmup_launches=12,
        warmup_s=0.1,
        settled=False,
        stopped_by="precision",
        restored=True,
        started_ns=2**62,
        ended_ns=2**62 + 1,
    ),
    telemetry=TELEMETRY,
    library=LibraryShare(kernel="vendor", share=0.25, low=0.2, high=0.3, quads=10, library_time_ns=0.1 + 0.2),
    library_missing='no "library"',
)

BARE = Row(case="toy.tiled[n=64]", kernel="tiled", sizes={"n": 64}, dtype="float16", status="skipped")

COMPARISON = Comparison(
    harness_version="1.2.3",
    run_id="0123456789abcdef",
    started_at="2026-01-02T03:04:05+00:00",
    command="compare",
    base=dataclasses.replace(RUN.source, commit="b" * 40, dirty=False),
    head=RUN.source,
    kernels=("plain", "tiled"),
    device=RUN.device,
    toolchain=RUN.toolchain,
    host=RUN.host,
    settings={"seed": 1, "margin": 0.0025, "looks": "2,4,8", "budget_s": None, "twins": False},
    toolchains={"base": Toolchain(compiler="nvcc 13.0"), "head": Toolchain(compiler="nvcc 13.5")},
    calibrated_at="2026-01-01T00:00:00+00:00",
    identity={"vbios": "96.00"},
)

EFFECT = Effect(
    effect=0.02, low=-1e-300, high=1e300, processes=2, quads=50, process_effects=(0.1 + 0.2, -5e-324)
)

ARM = Arm(
    time_ns=1000.5,
    sm_clock_mhz=1980.0,
    alone_mhz=1905.0,
    alone_w=612.5,
    source_sha256="e" * 64,
    launch=ROW.launch,
    resources=ROW.resources,
)

VERDICT = Verdict(
    case=ROW.case,
    kernel=ROW.kernel,
    sizes=ROW.sizes,
    dtype=ROW.dtype,
    status="regression",
    reason="slower-in-time",
    message=ROW.message,
    log=ROW.log,
    side="head",
    time=EFFECT,
    cycles=EFFECT,
    energy=EFFECT,
    strays=Strays(base=1, head=7, slots=100, cost=0.1 + 0.2),
    smallest_visible=0.005,
    noise_floor=0.004,
    clock_exponent=0.97,
    power_capped=True,
    attribution="code",
    base=ARM,
    head=ARM,
    temperature_c=55.5,
    power_w=612.25,
    order_p=0.5,
    touched={"sm-clock": 3},
    unavailable={"contention": "nobody knows"},
    gpu_s=1.5,
    complete=False,
)

BARE_VERDICT = Verdict(
    case="toy.tiled[n=64]",
    kernel="tiled",
    sizes={"n": 64},
    dtype="float16",
    status="new",
    reason="only-in-head",
    message="There is no such case at base.",
)

QUAD = Quad(
    order="BAAB",
    times_ns=(1000.0, 0.1 + 0.2, 1e-300, 1e300),
    cycles=(1.0, 2.0, 3.0, 4.5),
    sm_clock_mhz=(1980.0, 1980.5, 1979.5, 1980.0),
    canary_ns=50_000.0,
    canary_cycles=99_000.0,
    started_ns=2**62,
    ended_ns=2**62 + 1,
)

BLOCK = CaseBlock(
    case=ROW.case,
    process=3,
    confirming=True,
    retried=True,
    block=PairedBlock(
        quads=(QUAD, Quad(order="ABBA", times_ns=(1.0, 2.0, 3.0, 4.0), started_ns=1, ended_ns=2)),
        launches_per_slot=7,
        l2="cold",
        clock="cuda-event",
        tick_ns=32.0,
        warmup_s=0.1,
        settled=False,
        gpu_s=0.5,
        clock_noise=0.0001,
        restored=True,
        in_turns=True,
        telemetry=TELEMETRY,
    ),
    touched={"canary": 1},
)


def compared(folder, *items, described=COMPARISON, complete=True):
    with records_file.RecordWriter(folder, described) as writer:
        for item in items:
            writer.add(item)
        return writer.finish(complete=complete)


def written(folder, *rows, run=RUN, complete=True):
    with records_file.RecordWriter(folder, run) as writer:
        for row in rows:
            writer.add(row)
        return writer.finish(complete=complete)


def part_of(folder):
    (part,) = folder.glob("*.part")
    return part


def edited(path, number, line):
    lines = path.read_bytes().splitlines()
    lines[number - 1 : number] = [line]
    path.write_bytes(b"".join(each + b"\n" for each in lines))
    return path


def defaults(record):
    """The fields of a record, and of the records in it, that still have their default."""
    found = {
        f"{type(record).__name__}.{field.name}"
        for field in dataclasses.fields(record)
        if field.default is not dataclasses.MISSING and getattr(record, field.name) == field.default
    }
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            found |= defaults(value)
    return found


def test_the_records_here_are_full():
    """A field added later must be added here, or nobody tests that it is kept."""
    assert defaults(RUN) == {"Run.schema_version"}
    assert not defaults(dataclasses.replace(ROW, telemetry=None)) - {"Row.telemetry"}
    assert not defaults(dataclasses.replace(TELEMETRY, after=SNAPSHOT))
    assert defaults(dataclasses.replace(COMPARISON, base=RUN.source)) == {"Comparison.schema_version"}
    assert not defaults(VERDICT)
    assert not defaults(QUAD)
    assert not defaults(
        dataclasses.replace(BLOCK, block=dataclasses.replace(BLOCK.block, telemetry=None))
    ) - {"PairedBlock.telemetry"}


@pytest.mark.parametrize("complete", [True, False])
def test_every_field_comes_back(tmp_path, complete):
    path = written(tmp_path / "deep" / "er", ROW, BARE, ROW, complete=complete)
    assert records_file.read_run(path) == records_file.StoredRun(RUN, (ROW, BARE, ROW), complete)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_run_without_rows(tmp_path):
    assert records_file.read_run(written(tmp_path)) == records_file.StoredRun(RUN, (), complete=True)


def test_a_line_is_a_record(tmp_path):
    lines = written(tmp_path, ROW, BARE).read_bytes().split(b"\n")
    assert [list(json.loads(line)) for line in lines[:-1]] == [["run"], ["row"], ["row"], ["complete"]]
    assert lines[-1] == b""


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "20260102T030405Z-cccccccc+-toy-01234567.jsonl"),
        (
            {"source": dataclasses.replace(RUN.source, dirty=False)},
            "20260102T030405Z-cccccccc-toy-01234567.jsonl",
        ),
        ({"source": Source(suite="toy", path=".")}, "20260102T030405Z-nocommit-toy-01234567.jsonl"),
        ({"started_at": "2026-01-02T03:04:05.678+00:00"}, "20260102T030405Z-cccccccc+-toy-01234567.jsonl"),
    ],
    ids=["dirty", "clean", "no commit", "parts of a second"],
)
def test_a_records_name(changes, name):
    assert records_file.record_name(dataclasses.replace(RUN, **changes)) == name


def test_two_runs_in_one_second_have_a_record_each(tmp_path):
    other = dataclasses.replace(RUN, run_id="fedcba9876543210")
    with records_file.RecordWriter(tmp_path, RUN) as one, records_file.RecordWriter(tmp_path, other) as two:
        one.add(ROW)
        two.add(BARE)
        paths = [one.finish(complete=True), two.finish(complete=True)]
    assert [records_file.read_run(path).rows for path in paths] == [(ROW,), (BARE,)]


def test_a_run_is_not_written_twice(tmp_path):
    with records_file.RecordWriter(tmp_path, RUN), pytest.raises(StoreError, match="File exists"):
        records_file.RecordWriter(tmp_path, RUN)


def test_rows_can_be_read_before_the_end(tmp_path):
    with records_file.RecordWriter(tmp_path, RUN) as writer:
        assert records_file.read_run(part_of(tmp_path)) == records_file.StoredRun(RUN, (), complete=False)
        writer.add(ROW)
        assert records_file.read_run(part_of(tmp_path)) == records_file.StoredRun(RUN, (ROW,), complete=False)
        assert not list(tmp_path.glob("*.jsonl"))


def test_leaving_early_keeps_the_rows_and_says_so(tmp_path):
    def interrupted():
        with records_file.RecordWriter(tmp_path, RUN) as writer:
            writer.add(ROW)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (path,) = tmp_path.iterdir()
    assert records_file.read_run(path) == records_file.StoredRun(RUN, (ROW,), complete=False)


KILLED = """
import os, sys
from pathlib import Path
from harness.store import records_file as store
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
    assert records_file.read_run(part_of(tmp_path)) == records_file.StoredRun(RUN, (ROW,), complete=False)


FULL = """
import resource, sys
from pathlib import Path
from harness.store import records_file as store
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
    assert records_file.read_run(part) == records_file.StoredRun(RUN, (ROW,), complete=False)


FULL_AT_FIRST = """
import resource, sys, warnings
from pathlib import Path
from harness.store import records_file as store
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
        records_file.RecordWriter(folder, RUN)
    assert raised.value.message.startswith(f"Cannot write results to {folder}: ")
    assert "--results" in raised.value.message
    assert raised.value.exit_code == ExitCode.NOT_MEASURED


def test_a_folder_in_place_of_the_record_is_a_sentence(tmp_path):
    writer = records_file.RecordWriter(tmp_path, RUN)
    (writer.path / "taken").mkdir(parents=True)
    with pytest.raises(StoreError, match="The rows are in"):
        writer.finish(complete=True)
    assert records_file.read_run(part_of(tmp_path)).run == RUN


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
        (b'{"later":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "maximum recursion depth exceeded"),
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
        records_file.read_run(path)
    assert raised.value.message.startswith(f"{path}, line 3 is damaged (")
    assert because in raised.value.message


def test_a_damaged_first_line_is_named(tmp_path):
    path = written(tmp_path, ROW)
    path.write_bytes(path.read_bytes().replace(b"nvcc", b"\xff\xfevc"))
    with pytest.raises(StoreError) as raised:
        records_file.read_run(path)
    assert raised.value.message.startswith(f"{path}, line 1 is damaged ('utf-8' codec can't decode byte 0xff")


def test_half_a_last_line_costs_no_row_before_it(tmp_path):
    # A harness that was killed as it wrote leaves one.
    path = written(tmp_path, ROW, BARE)
    path.write_bytes(path.read_bytes().removesuffix(b'{"complete":true}\n')[:-10])
    assert records_file.read_run(path) == records_file.StoredRun(RUN, (ROW,), complete=False)


def test_a_damaged_line_can_be_deleted(tmp_path):
    path = edited(written(tmp_path, ROW, BARE, ROW), 3, b"{")
    path.write_bytes(b"\n".join(line for line in path.read_bytes().splitlines() if line != b"{"))
    assert records_file.read_run(path) == records_file.StoredRun(RUN, (ROW, ROW), complete=True)


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
        records_file.read_run(path)
    assert raised.value.message.startswith(
        f"{path} is no run record: its first line does not describe a run ("
    )


@pytest.mark.parametrize("content", [b"{}\n", b'{"row":{}}\n', b'{"complete":true}\n'], ids=repr)
@pytest.mark.parametrize("read", [records_file.read_run, records_file.read_comparison])
def test_a_record_of_neither_is_a_sentence(tmp_path, content, read):
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="its first line describes neither a run nor a comparison"):
        read(path)


@pytest.mark.parametrize("read", [records_file.read_run, records_file.read_comparison])
@pytest.mark.parametrize("name", [".", "missing.jsonl"])
def test_what_cannot_be_read_is_a_sentence(tmp_path, name, read):
    with pytest.raises(StoreError, match=r"^Cannot read "):
        read(tmp_path / name)


def test_a_newer_record_is_told_from_a_damaged_one(tmp_path):
    path = written(tmp_path, ROW)
    newer = json.dumps({"run": {"schema_version": SCHEMA_VERSION + 1, "anything": "else"}})
    with pytest.raises(StoreError) as raised:
        records_file.read_run(edited(path, 1, newer.encode()))
    assert raised.value.message == (
        f"{path} has schema version {SCHEMA_VERSION + 1}; this harness reads up to {SCHEMA_VERSION}. "
        "Upgrade gpu-harness to read it."
    )


def test_a_field_of_a_later_harness_is_no_damage(tmp_path):
    """Fields may be added without a new version: an older harness reads what it knows."""
    path = written(tmp_path, ROW)
    line = json.loads(path.read_bytes().splitlines()[1])
    line["row"]["added_later"] = 1
    assert records_file.read_run(edited(path, 2, json.dumps(line).encode())).rows == (ROW,)


# Comparisons


@pytest.mark.parametrize("complete", [True, False])
def test_every_field_of_a_comparison_comes_back(tmp_path, complete):
    items = (BLOCK, BLOCK, VERDICT, BARE_VERDICT)
    path = compared(tmp_path / "deep" / "er", *items, complete=complete)
    assert records_file.read_comparison(path) == records_file.StoredComparison(
        COMPARISON, (BLOCK, BLOCK), (VERDICT, BARE_VERDICT), complete
    )
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_comparisons_lines_are_its_blocks_and_then_its_verdicts(tmp_path):
    lines = compared(tmp_path, BLOCK, VERDICT).read_bytes().split(b"\n")
    assert [list(json.loads(line)) for line in lines[:-1]] == [
        ["comparison"],
        ["block"],
        ["verdict"],
        ["complete"],
    ]
    assert lines[-1] == b""


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "20260102T030405Z-bbbbbbbb..cccccccc+-toy-01234567.jsonl"),
        ({"base": RUN.source}, "20260102T030405Z-cccccccc+..cccccccc+-toy-01234567.jsonl"),
        (
            {"head": Source(suite="other", path=".")},
            "20260102T030405Z-bbbbbbbb..nocommit-other-01234567.jsonl",
        ),
    ],
    ids=["head is dirty", "both are", "no commit"],
)
def test_a_comparisons_name(changes, name):
    assert records_file.record_name(dataclasses.replace(COMPARISON, **changes)) == name


def test_a_run_is_no_comparison_and_the_other_way_round(tmp_path):
    run, comparison = written(tmp_path, ROW), compared(tmp_path, VERDICT)
    with pytest.raises(StoreError, match="is the record of a run; expected that of a comparison"):
        records_file.read_comparison(run)
    with pytest.raises(StoreError, match="is the record of a comparison; expected that of a run"):
        records_file.read_run(comparison)


KILLED_COMPARING = """
import os, sys
from pathlib import Path
from harness.store import records_file as store
from tests.test_records_file import BLOCK, COMPARISON, VERDICT
journal = store.Journal(store.RecordWriter(Path(sys.argv[1]), COMPARISON))
journal.add(BLOCK)
journal.add(BLOCK)
os.kill(os.getpid(), 9)
"""


def test_what_was_compared_outlives_the_harness(tmp_path):
    done = child(KILLED_COMPARING, tmp_path)
    assert done.returncode == -9, done.stderr
    assert records_file.read_comparison(part_of(tmp_path)) == records_file.StoredComparison(
        COMPARISON, (BLOCK, BLOCK), (), complete=False
    )


def test_half_a_last_line_costs_no_block_before_it(tmp_path):
    path = compared(tmp_path, BLOCK, BLOCK, VERDICT)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:-10])
    assert records_file.read_comparison(path) == records_file.StoredComparison(
        COMPARISON, (BLOCK,), (), complete=False
    )


def test_a_damaged_line_of_a_comparison_is_named(tmp_path):
    path = edited(compared(tmp_path, BLOCK, VERDICT), 2, b'{"block":{"case":"x"}}')
    with pytest.raises(StoreError) as raised:
        records_file.read_comparison(path)
    assert raised.value.message.startswith(f"{path}, line 2 is damaged (")


@pytest.mark.parametrize("read", [records_file.read_run, records_file.read_comparison])
def test_a_newer_comparison_is_told_from_a_damaged_one(tmp_path, read):
    newer = json.dumps({"comparison": {"schema_version": SCHEMA_VERSION + 1, "anything": "else"}})
    path = edited(compared(tmp_path, BLOCK), 1, newer.encode())
    with pytest.raises(StoreError) as raised:
        read(path)
    assert raised.value.message == (
        f"{path} has schema version {SCHEMA_VERSION + 1}; this harness reads up to {SCHEMA_VERSION}. "
        "Upgrade gpu-harness to read it."
    )


def test_a_field_of_a_later_harness_is_no_damage_to_a_comparison(tmp_path):
    path = compared(tmp_path, VERDICT)
    line = json.loads(path.read_bytes().splitlines()[1])
    line["verdict"]["added_later"] = 1
    assert records_file.read_comparison(edited(path, 2, json.dumps(line).encode())).verdicts == (VERDICT,)


def test_a_field_that_an_earlier_harness_did_not_know_has_its_default(tmp_path):
    path = compared(tmp_path, BLOCK)
    line = json.loads(path.read_bytes().splitlines()[1])
    del line["block"]["block"]["clock_noise"]
    del line["block"]["confirming"]
    bare = dataclasses.replace(
        BLOCK, confirming=False, block=dataclasses.replace(BLOCK.block, clock_noise=None)
    )
    assert records_file.read_comparison(edited(path, 2, json.dumps(line).encode())).blocks == (bare,)


def test_without_a_writer_a_journal_keeps_nothing():
    with records_file.Journal(None) as journal:
        journal.add(BLOCK)
        journal.finish(complete=True)
    assert (journal.path, journal.problem) == (None, "")


FULL_JOURNAL = """
import resource, sys
from pathlib import Path
from harness.store import records_file as store
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
    stored = records_file.read_comparison(left)
    assert stored == records_file.StoredComparison(COMPARISON, (BLOCK,), (), complete=False)


# The schema


def test_the_schema_is_one_and_describes_every_line(tmp_path):
    schema = records_file.schema()
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
        jsonschema.validate(line, records_file.schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("kind", "field", "value"), [("row", "case", 1), ("row", "status", "slow"), ("verdict", "status", "slow")]
)
def test_the_schema_refuses_one_wrong_value(tmp_path, kind, field, value):
    paths = (written(tmp_path, ROW), compared(tmp_path, VERDICT))
    lines = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    (line,) = (line for line in lines if kind in line)
    line[kind][field] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(line, records_file.schema(), jsonschema.Draft202012Validator)


def test_every_record_of_the_schema_and_every_field_is_described():
    described = records_file.schema()["$defs"]
    of_runs = (Run, Row, Source, DeviceInfo, Toolchain, Host, Measurement, Telemetry, Snapshot, Check)
    of_comparisons = (Comparison, CaseBlock, PairedBlock, Quad, Verdict, Effect, Arm)
    for kind in (*of_runs, *of_comparisons):
        assert set(described[kind.__name__]["properties"]) == {
            field.name for field in dataclasses.fields(kind)
        }


def test_the_shipped_schema_is_the_records():
    """Other tools read records by it; `harness.store.records_file.schema()` makes it."""
    path = Path(harness.__file__).parent / "assets" / "run-record.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(records_file.schema()))
