"""Static facts of kernels that are compiled here: against NVIDIA's own tools, and between two commits."""

from __future__ import annotations

import json
import random
import re
import subprocess
from bisect import bisect_right
from itertools import pairwise

import pytest

from harness.device.backends import nvcc
from harness.device.backends.cubin import content_of, kernel_code, sections
from harness.device.backends.cubin_lines import LineEntry, lines_of
from harness.device.static import disassembly
from harness.device.static.architecture_builds import compiled_for
from harness.device.static.differences import _loop
from harness.device.static.loop_difference import _longest_common, loop_difference
from harness.device.static.sass import LOOP, Instruction, Instructions, instructions_in, summarised
from harness.errors import ExitCode
from harness.records.types import CodeLine
from harness.report.pull_request.static_comment import decode_static
from harness.suite.sources import Program
from tests.support import caller, commit, device_is_missing, make_repository, write_files

TILED = """\
extern "C" __global__ void __launch_bounds__(128) tiled(const float4 *x, float *y, int n)
{
    __shared__ float4 tile[128];
    float sum[8] = {0.0f};
    for (int i = 0; i < n; i += 128) {
        tile[threadIdx.x] = x[i + threadIdx.x];
        __syncthreads();
        #pragma unroll 8
        for (int k = 0; k < 128; ++k)
            for (int j = 0; j < 8; ++j)
                sum[j] += tile[k].x * tile[(threadIdx.x + j) % 128].y;
        __syncthreads();
    }
    for (int j = 0; j < 8; ++j)
        y[8 * (blockIdx.x * 128 + threadIdx.x) + j] = sum[j];
}
"""
SUITE = """\
from harness import Axis, Input, Kernel, Output, Problem, Suite, ceil_div

class Tiles(Problem):
    n = Axis(default=(1024, 4096), quick=(128,))
    x = Input("n")
    y = Output("n")

    def reference(self, case, x):
        raise NotImplementedError

suite = Suite("tiles", Tiles(), headline="GB/s", kernels=[
    Kernel("tiled", "tiled.cu", block=128, grid=lambda c: ceil_div(c.n, 128)),
])
"""


@pytest.fixture(scope="module", autouse=True)
def tools():
    if not nvcc.version():
        device_is_missing("nvcc", "nvcc is not on PATH, and the extra 'static' is not installed")
    if disassembly.path() is None:
        device_is_missing("nvcc", "nvdisasm is not on PATH, and the extra 'static' is not installed")


def compiled(text, arch="sm_86"):
    return compiled_for(Program("tiles.tiled", "tiled", text), arch)


def test_the_code_of_a_kernel_is_the_same_under_another_name_beside_another_kernel_and_a_comment():
    def code(text, name="tiled"):
        return kernel_code(compiled(text).binary, name)

    first = code(TILED)
    other = "__global__ void other(float *x) { x[1] = 2; }"
    same = f"// A comment.\n{other}\n{TILED.replace(' tiled(', ' renamed(')}"
    assert code(same, "renamed") == first
    # A variable that another kernel writes is no instruction of this one, and yet it may read it.
    assert code(f"__device__ float kept = 3; {TILED}".replace("= sum[j]", "= sum[j] + kept")).sha256 != (
        code(f"__device__ float kept = 4; {TILED}".replace("= sum[j]", "= sum[j] + kept")).sha256
    )
    # How many threads a block may have is no instruction either.
    one = 'extern "C" __global__ void __launch_bounds__({}) {}(float *x) {{ *x = 1; }}\n'.format
    both = compiled(one(256, "few") + one(512, "many")).binary
    few, many = kernel_code(both, "few"), kernel_code(both, "many")
    assert few is not None
    assert many is not None
    assert few.instructions == many.instructions
    assert few.sha256 != many.sha256
    assert kernel_code(b"no cubin", "tiled") is None
    assert kernel_code(compiled(TILED).binary, "elsewhere") is None


def test_a_table_of_lines_that_is_damaged_tells_nothing():
    binary = compiled(TILED).binary
    begin = binary.index(content_of(sections(binary), ".debug_line"))
    for at in range(begin, begin + 30):
        lines_of(binary[:at] + b"\0" + binary[at + 1 :], "tiled")
    span = begin + 13
    assert lines_of(binary[:span] + b"\0" + binary[span + 1 :], "tiled") == () != lines_of(binary, "tiled")


@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_figures_are_those_of_nvidias_own_tools(tmp_path, arch):
    """Registers, stack and memory by cuobjdump; instructions and their lines by nvdisasm on the cubin."""
    file = tmp_path / "tiled.cubin"
    made = compiled('#line 1 "tiled.cu"\n' + TILED, arch)
    file.write_bytes(made.binary)
    used, code, lines = made.usage["tiled"], kernel_code(made.binary, "tiled"), lines_of(made.binary, "tiled")
    assert code is not None
    if cuobjdump := nvcc.packaged("nvidia-cuda-cuobjdump", "cuobjdump"):
        said = subprocess.run(
            [cuobjdump, "-res-usage", str(file)], capture_output=True, text=True, check=True
        )
        told = {
            name: int(count) for name, count in re.findall(r"(REG|STACK|SHARED|T\[0\]):(\d+)", said.stdout)
        }
        reserved = 1024 if arch == "sm_120" else 0  # the driver's, from sm_90 on
        assert told == {
            "REG": used.registers,
            "STACK": used.stack_bytes,
            "SHARED": used.shared_bytes + reserved,
            "T[0]": code.constant_bytes,
        }
    whole = subprocess.run(
        [str(disassembly.path()), "-c", "-g", str(file)], capture_output=True, text=True, check=True
    ).stdout
    places, begins, at_line = [], [each.at for each in lines], ""
    for line in whole.splitlines():
        if match := re.search(r'//## File ".*?([^/"]+)", line (\d+)', line):
            at_line = f"{match[1]}:{match[2]}"
        if (match := re.match(r"\s*/\*([0-9a-f]{4,})\*/", line)) and int(match[1], 16) < len(
            code.instructions
        ):
            ours = lines[bisect_right(begins, int(match[1], 16)) - 1]
            places.append((at_line, f"{ours.file}:{ours.line}"))
    assert places
    assert all(theirs == ours for theirs, ours in places)
    found = disassembly.disassembled(arch, [disassembly.Listed(code.instructions, lines)])
    [told_here] = found.values()
    assert isinstance(told_here, Instructions)
    assert told_here.hottest is not None
    assert told_here.count == len(places)
    assert told_here.hottest.kinds["FFMA"] % 64 == 0
    assert told_here.places[LOOP] in ("tiled.cu:9", "tiled.cu:10", "tiled.cu:11")
    assert told_here.kinds["LDG.128"] == 1


def test_the_hottest_loop_is_the_inner_one_with_the_arithmetic_and_counts_no_other():
    lines = ["MOV R1, R2", "FADD R1, R1, R2", "FFMA R1, R1, R2, R3", "LDS.128 R4, [R5]", "@P0 BRA 0x20"]
    lines += [
        "HFMA2.MMA R1, -RZ, RZ, 0, 0",
        "LDG.E.64.CONSTANT R2, desc[UR4][R6.64]",
        "@P1 BRA 0x10",
        "BRA 0x80",
    ]
    text = "\n".join(f"        /*{16 * at:04x}*/    {line} ;" for at, line in enumerate(lines))
    found = summarised(instructions_in(text))
    assert (found.count, found.loops) == (9, 2)
    assert found.hottest is not None
    assert found.hottest.kinds == {"FFMA": 1, "LDS.128": 1, "branch": 1}
    assert found.hottest.depth == 2
    assert found.kinds["MOV"] == 2  # one of them is a multiplier that sets a constant
    assert found.kinds["LDG.64"] == 1


def loop_of(*lines):
    """Return the summary of a kernel that is this loop."""
    text = "\n".join(f"        /*{16 * at:04x}*/    {line} ;" for at, line in enumerate(("NOP", *lines)))
    entries = [LineEntry(16 * at, "k.cu", 4 + at) for at in range(1, 1 + len(lines))]
    return summarised(instructions_in(text), entries)


UNTIL = "ISETP.NE.AND P0, PT, R9, 0x80, PT"
BASE_LOOP = ("LDS R1, [R2]", "MOV R4, RZ", "FFMA R3, R1, R4, R3", UNTIL, "@P0 BRA 0x10")


@pytest.mark.parametrize(
    ("head", "counts", "lines"),
    [
        (  # other registers, and a move by another pipe
            ("LDS R7, [R5]", "IMAD.MOV.U32 R6, RZ, RZ, RZ", "FFMA R8, R7.reuse, R6, R8", *BASE_LOOP[3:]),
            None,
            [],
        ),
        ((BASE_LOOP[1], BASE_LOOP[0], *BASE_LOOP[2:]), None, []),
        (
            ("LDS R1, [R2+0x84]", *BASE_LOOP[1:]),
            (0, 0, 0, 1),
            [("readdressed", "LDS R1, [R2+0x84]", "k.cu:5", 1), ("alike", "", "", 4)],
        ),
        (
            (BASE_LOOP[1], "LDG.E R1, [R2]", *BASE_LOOP[2:4], "LDL R5, [R1]", "LDL R6, [R2]", BASE_LOOP[4]),
            (3, 1, 0, 0),
            [
                ("removed", "LDS R1, [R2]", "k.cu:5", 1),
                ("added", "LDG.E R1, [R2]", "k.cu:6", 1),
                ("added", "LDL R5, [R1]", "k.cu:9", 2),
                ("alike", "", "", 4),
            ],
        ),
    ],
    ids=["renamed", "moved", "other address", "added and removed"],
)  # fmt: skip
def test_a_loop_differs_by_its_instructions_and_not_by_registers_and_order(head, counts, lines):
    found = loop_difference(loop_of(*BASE_LOOP), loop_of(*head))
    told = None if found is None else (found.added, found.removed, found.moved, found.readdressed)
    assert told == counts
    assert [CodeLine(*each) for each in lines] == list(found.lines if found else ())


@pytest.mark.parametrize("seed", range(20))
def test_an_alignment_keeps_as_many_instructions_as_any(seed):
    """By the table of all pairs, which takes too long for a real loop."""
    rng = random.Random(seed)
    base, head = ([rng.choice("abcd") for _ in range(rng.randrange(40))] for _ in range(2))
    table = [[0] * (len(head) + 1) for _ in range(len(base) + 1)]
    for i, one in enumerate(base, 1):
        for j, other in enumerate(head, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if one == other else max(table[i - 1][j], table[i][j - 1])
    found = _longest_common(base, head)
    assert [base[i] for i, _ in found] == [head[j] for _, j in found]
    assert all(one < other for pair in pairwise(found) for one, other in zip(*pair, strict=True))
    assert len(found) == table[-1][-1]


def test_a_loop_where_base_has_none_is_a_lost_unroll():
    unrolled = summarised([Instruction(16 * at, "FFMA") for at in range(8)])
    [risk] = _loop(unrolled, loop_of(*BASE_LOOP))
    assert (risk.kind, risk.message) == (
        "unroll",
        "a loop of 5 instructions where base has none: less is unrolled",
    )
    assert list(_loop(loop_of(*BASE_LOOP), unrolled)) == []


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A repository, and what each of its commits has changed since the first."""
    folder = tmp_path_factory.mktemp("planted")
    texts = {
        "base": TILED,
        "spill": TILED.replace("bounds__(128)", "bounds__(128, 12)")
        .replace("[8] =", "[64] =")
        .replace("j < 8", "j < 64"),
        "unroll": TILED.replace("unroll 8", "unroll 1"),
        "narrower": TILED.replace("= x[i + threadIdx.x]", "= make_float4(p[0], p[1], p[2], p[3])").replace(
            "        tile[threadIdx",
            "        const float *p = (const float *)(x + i + threadIdx.x);\n        tile[threadIdx",
        ),
        "occupancy": TILED.replace("float4 tile[128]", "float4 tile[2048]"),
        "comment": TILED.replace("    __shared__", "    // A tile.\n    __shared__"),
    }
    make_repository(folder)
    commits: dict[str, str] = {}
    for name, text in texts.items():
        files = {"kernels/tiles/tiled.cu": text, "kernels/tiles/suite.py": SUITE, "harness.toml": ""}
        commits[name] = commit(folder, files, day=1 + len(commits))
    return folder, commits


def test_a_spill_a_lost_unroll_and_narrower_loads_are_named_and_a_comment_is_identical(
    planted, capsys, monkeypatch
):
    folder, commits = planted
    harness = caller(capsys, monkeypatch)

    def risks(name, *more, arch="sm_86"):
        given = ("--base", commits["base"], "--commit", commits[name], "--arch", arch, "--json")
        done = harness("static", *given, *more, cwd=folder)
        assert done.out, done.err
        return (
            done.status,
            {(row["arch"], risk["kind"]): risk["place"] for row in done.json for risk in row["risks"]},
            [row["status"] for row in done.json],
        )

    status, found, _ = risks("spill", "--fail-on", "spill", arch="sm_75,sm_86")
    # Twelve blocks of 128 threads are more than a Turing multiprocessor holds: ptxas leaves that wish out.
    assert (status, [key for key in found if key[1] == "spill"]) == (
        ExitCode.REGRESSION,
        [("sm_86", "spill")],
    )
    status, found, _ = risks("unroll", "--fail-on", "spill")
    assert status == ExitCode.FINE
    assert ("sm_86", "unroll") in found
    monkeypatch.setenv("COLUMNS", "80")
    shown = harness(
        "static", "--base", commits["base"], "--commit", commits["unroll"], "--arch", "sm_86", cwd=folder
    )
    assert "Hottest loop of tiled on sm_86, tiled.cu:9-11: 75 → 13 instructions" in shown.out
    assert re.search(r"^- +56  11 +FFMA", shown.out, re.MULTILINE)
    assert max(map(len, shown.out.splitlines())) <= 80
    status, found, _ = risks("narrower", "--fail-on", "none")
    assert found["sm_86", "narrower"] == "tiled.cu:7"
    assert risks("comment") == (ExitCode.FINE, {}, ["identical"])
    # Where no file differs nothing is compiled.
    assert risks("base") == (ExitCode.FINE, {}, [])


def test_a_library_is_compiled_only_where_what_it_is_made_of_differs(tmp_path, capsys, monkeypatch):
    """The first does not compile: as long as it is the same, nobody notices."""
    make_repository(tmp_path)
    before, _, _ = SUITE.replace("Axis,", "Axis, HostLibrary,").partition("    Kernel(")
    suite = f'{before}Kernel("tiled", HostLibrary("tiled.cu"))])'
    whole = 'extern "C" int tiled(void *stream, const float *x, float *y, int n) { return 0; }'
    own = "kernels/tiles/{}".format
    changes = {
        "broken": {own("tiled.cu"): '#include "two.h"', own("two.h"): "#error", own("suite.py"): suite},
        "beside": {own("other.cu"): TILED},
        "header": {own("two.h"): whole},
        "another function": {own("suite.py"): suite.replace('cu")', 'cu"), entry="other"')},
    }
    write_files(tmp_path, {"harness.toml": ""})
    commits = [commit(tmp_path, files, day=day) for day, files in enumerate(changes.values(), 1)]
    harness = caller(capsys, monkeypatch)

    def compared(base, head):
        ends = ("--base", commits[base], "--commit", commits[head])
        done = harness("static", *ends, "--arch", "sm_86", "--json", cwd=tmp_path)
        return done.status, [row["status"] for row in done.json]

    assert compared(0, 1) == (ExitCode.FINE, ["identical"])
    assert compared(1, 2) == (ExitCode.FINE, ["changed"])
    assert compared(2, 3) == (ExitCode.NOT_MEASURED, ["failed"])


@pytest.mark.parametrize(
    ("settings", "base", "head", "status"),
    [
        ('fail_on = ["spill"]', "base", "spill", ExitCode.REGRESSION),
        ('fail_on = ["spill"]', "spill", "base", ExitCode.FINE),
        ('fail_on = ["occupancy"]', "base", "occupancy", ExitCode.REGRESSION),
        ('fail_on = ["occupancy"]', "occupancy", "base", ExitCode.FINE),
        ('fail_on = ["registers"]\nmax_registers = 20', "base", "comment", ExitCode.REGRESSION),
        ('fail_on = ["registers"]\nmax_registers = 200', "base", "comment", ExitCode.FINE),
        ("max_registers = 20", "base", "comment", ExitCode.FINE),
    ],
)
def test_settings_say_which_risks_fail(planted, capsys, monkeypatch, settings, base, head, status):
    folder, commits = planted
    write_files(folder, {"harness.toml": f"[static]\n{settings}\n"})
    ends = ("--base", commits[base], "--commit", commits[head])
    done = caller(capsys, monkeypatch)("static", *ends, "--arch", "sm_86", cwd=folder)
    write_files(folder, {"harness.toml": ""})
    assert done.status == status, done.err


def test_the_report_of_two_commits_tells_risks_by_architecture(planted, tmp_path, capsys, monkeypatch):
    folder, commits = planted
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    ends = ("--base", commits["base"], "--commit", commits["spill"], "--arch", "sm_75,sm_86")
    file = tmp_path / "review.json"
    caller(capsys, monkeypatch)("static", *ends, "--report", str(file), cwd=folder)
    report = decode_static(file.read_bytes())
    assert (report.base, report.head) == (commits["base"], commits["spill"])
    [suite] = report.suites
    assert sum(suite.counts.values()) == 2
    spilled = {row.arch: risk.text for row in suite.rows for risk in row.risks if risk.kind == "spill"}
    assert list(spilled) == ["sm_86"]
    assert f"on sm_86: <code>{spilled['sm_86'].split(',')[0]}" in (tmp_path / "summary.md").read_text()


def test_an_architecture_that_nvcc_lacks_costs_no_other_its_figures(planted, capsys, monkeypatch):
    folder, commits = planted
    harness = caller(capsys, monkeypatch)
    given = (
        "static",
        "--commit",
        commits["base"],
        "--arch",
        "sm_70,sm_86",
        "--results",
        str(folder / "kept"),
    )
    done = harness(*given, "--json", cwd=folder)
    assert done.status == ExitCode.FINE, done.err
    absent, there = done.json
    assert (absent["arch"], absent["status"], absent["reason"]) == ("sm_70", "not-built", "needs-compiler")
    assert absent["registers"] is None
    assert (there["arch"], there["spill_store_bytes"], there["shared_bytes"]) == ("sm_86", 0, 2048)
    assert there["occupancy"] * 48 == 4 * there["blocks_per_sm"]  # warps of a block, and of a multiprocessor
    assert harness("static", "--arch", "sm_1x", cwd=folder).status == ExitCode.USAGE
    assert harness("static", "--markdown", "x.md", cwd=folder).status == ExitCode.USAGE
    write_files(folder, {"harness.toml": '[static]\nfail_on = ["spils"]\n'})
    done = harness("static", "--base", "HEAD", "--arch", "sm_86", cwd=folder)
    assert (done.status, "no risk 'spils'" in done.err) == (ExitCode.USAGE, True)


def test_history_has_spills_of_every_commit_and_the_newest_alone_is_enough(planted, capsys, monkeypatch):
    folder, commits = planted
    write_files(folder, {"harness.toml": ""})
    harness, results = caller(capsys, monkeypatch), str(folder / "over")
    for name in ("base", "spill"):
        given = ("--arch", "sm_86", "--results", results)
        assert harness("static", "--commit", commits[name], *given, cwd=folder).status == ExitCode.FINE
    done = harness("history", "--results", results, "--json", cwd=folder)
    assert done.status == ExitCode.REGRESSION
    [card] = done.json["cards"]
    assert card["name"] == "static-sm_86"
    [change] = [each for each in card["changes"] if each["case"] == "tiles.tiled@1024 spill_bytes"]
    assert (change["before"], change["kind"], change["attribution"]) == (0, "regression", "code")
    assert change["bad"] == commits["spill"]
    assert change["after"] > 0
    shown = harness("history", "--results", results, cwd=folder).out
    assert f"0 → {change['after']:g}  {commits['spill'][:10]}" in shown  # no percentage tells a step from 0
    assert harness("publish", "--without-asv", "--results", results, cwd=folder).status == ExitCode.FINE
    site = json.loads((folder / ".asv/html/harness/api/site.json").read_text(encoding="utf-8"))
    assert [each["unknown"] for each in site["cards"]] == [0]  # registers, of which none is better
