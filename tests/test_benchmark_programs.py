"""`compare --with-command` of any program: its file of results tells the format."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import harness
from harness.errors import ExitCode, StoreError
from harness.records.imports.imported_files import read_imported
from harness.records.imports.pytest_benchmark_files import case_of_test
from harness.records.types import Source
from harness.run.executables.executable_build import Executable, format_of, run_once
from tests.benchmark_json import pytest_content, pytest_entry
from tests.support import ROOT, caller, commit, make_repository, write_files
from tests.test_docs import FENCE


@pytest.fixture
def call(capsys, monkeypatch, own_cache):
    return caller(capsys, monkeypatch)


@pytest.fixture
def compare(call, tmp_path):
    """Compares two commits of which each has its own file of results, by a command that hands it over."""

    def run(base, head, command, *more):
        repository = make_repository(tmp_path / f"project{len(list(tmp_path.iterdir()))}")
        for day, content in enumerate((base, head), 1):
            commit(repository, {"harness.toml": "", "results": content, "day": str(day)}, day)
        asked = ("compare", "HEAD~1", "HEAD", "--with-command", command, "--no-save", "--json", *more)
        return call(*asked, cwd=repository)

    return run


def verdicts_of(done):
    [told] = done.json
    return {verdict["case"]: verdict["status"] for verdict in told["verdicts"]}


def test_tests_of_pytest_benchmark_are_judged_by_their_own_times(compare):
    base, head = (
        json.dumps(
            pytest_content(
                [
                    pytest_entry("b/test_ops.py::test_add[64-f16]", 1e-3, params={"n": 64, "dtype": "f16"}),
                    pytest_entry("b/test_ops.py::test_mul", slow * 1e-3, 1.1e-3 * slow, 1.2e-3 * slow),
                ]
            )
        )
        for slow in (1.0, 1.3)
    )
    done = compare(base, head, "cp results {out} # pytest --benchmark-json={out}")
    assert verdicts_of(done) == {
        "pytest.b_test_ops_test_add_dtype_f16[n=64]": "unchanged",
        "pytest.b_test_ops_test_mul[]": "regression",
    }
    assert done.status == ExitCode.REGRESSION


PROJECT = {
    "mine.py": "def total(n):\n    return sum(range(n))\n",
    "tests/test_mine.py": """
import pytest
from mine import total

@pytest.mark.parametrize("n", [10, 20])
def test_total(benchmark, n):
    benchmark(total, n)
""",
}


def test_pytest_itself_writes_what_is_compared(tmp_path):
    write_files(tmp_path / "files", PROJECT)
    pytest_command = f"{sys.executable} -m pytest -q -p no:cacheprovider tests"
    command = f"{pytest_command} --benchmark-json={{out}} --benchmark-max-time=0.001"
    executable = Executable("head", command, tmp_path / "files", Source(suite="", path=""))
    ran = run_once(executable, "pytest-benchmark", tmp_path, 60, None)
    assert list(ran.cases) == ["tests_test_mine_test_total[n=10]", "tests_test_mine_test_total[n=20]"]
    assert all(len(case.times_ns) >= 5 for case in ran.cases.values())
    assert (ran.executable, ran.device.kind) == ("pytest", "cpu")


@pytest.mark.parametrize(
    ("node_id", "params", "kernel", "sizes"),
    [
        ("a/test_b.py::TestC::test_d", {}, "a_test_b_TestC_test_d", {}),
        ("t.py::test_d[64-f16]", {"n": 64, "dtype": "f16"}, "t_test_d_dtype_f16", {"n": 64}),
        ("t.py::test_d[0-True]", {"n": 0, "fast": True}, "t_test_d_n_0_fast_True", {}),
        ("t.py::test_d[relu]", {"f": "UNSERIALIZABLE[<function f at 0x7f>]"}, "t_test_d_relu", {}),
        ("t.py::test_d[a0]", {"shape": [1, 2]}, "t_test_d_a0", {}),
        ("odd[1].py::test_d[7]", {"n": 7}, "odd_1_test_d", {"n": 7}),
    ],
)
def test_a_test_has_one_name_whatever_its_parameters_are(node_id, params, kernel, sizes):
    assert case_of_test(node_id, params) == (kernel, sizes)


def line(name="copy", times=(10.0,), unit="us", **more):
    return json.dumps({"name": name, "times": list(times), "unit": unit, **more}) + "\n"


WRITES = "cat results >> $HARNESS_OUT"


def test_a_program_may_write_lines_to_the_file_that_the_environment_names(compare):
    base, head = (
        line("copy", [10 * slow, 11 * slow], params={"n": 64, "dtype": "f16"})
        + line("scale", [3.0], "ms")
        + line("copy", [12 * slow], params={"n": 64, "dtype": "f16"})
        for slow in (1.0, 1.2)
    )
    done = compare(base, head, WRITES)
    assert verdicts_of(done) == {
        "cat.copy_dtype_f16[n=64]": "regression",
        "cat.scale[]": "unchanged",
    }
    [told] = done.json
    first, *_ = told["verdicts"]
    assert (first["base"]["time_ns"], first["time"]["effect"]) == pytest.approx((11_000, 0.2))
    assert told["comparison"]["settings"]["format"] == "lines"


def test_a_rate_is_judged_as_the_time_of_one_unit_of_work(compare):
    base, head = (line("copy", [rate], "GB/s", better="higher") for rate in (2000.0, 1600.0))
    [told] = compare(base, head, WRITES).json
    [said] = told["verdicts"]
    assert (said["case"], said["status"]) == ("cat.copy_per_GB[]", "regression")
    assert (said["base"]["time_ns"], said["time"]["effect"]) == pytest.approx((500_000, 0.25))


def read(tmp_path, content):
    path = tmp_path / "results"
    path.write_text(content)
    return read_imported(path)


REFUSED = {
    "half a line": (line() + '{"name": "copy", "times": [1.0', ("line 2", "is no JSON", "run it again")),
    "half of all": ('{"name": "copy", "times": [1.0', ("is damaged", "was ended while it wrote")),
    "nothing": ("", ("is empty", "nothing was measured")),
    "a number as a name": (line(5), ("line 1", "Expected `str`, got `int` - at `$.name`")),
    "no name": (line(" "), ("line 1", "give each result a name")),
    "a unit of nobody's": (line(unit="parsec"), ("line 1", "'parsec'", "expected ns, us, ms, s, or a rate")),
    "a rate of no direction": (line(unit="GB/s"), ("line 1", "a rate, and higher is better", '"higher"')),
    "a time of which more is better": (line(better="higher"), ("line 1", "a time, and lower is better")),
    "a word of another language": (line(lauches=3), ("line 1", "unknown field `lauches`")),
    "no launch": (line(launches=0), ("line 1", "Expected `int` >= 1 - at `$.launches`")),
    "two clocks": (line(clock="device") + line(clock="host"), ("line 2", "line 1", "another name")),
    "a time that is a word": (line(times=["fast"]), ("line 1", "Expected `float`, got `str`")),
    "another format": ('{"hello": []}', ("no file of", "a JSON object a line with name, times and unit")),
}


@pytest.mark.parametrize("content", REFUSED)
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path, content):
    text, words = REFUSED[content]
    with pytest.raises(StoreError) as raised:
        read(tmp_path, text)
    assert all(each in raised.value.message for each in words), raised.value.message


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, 0.0, 1e300])
@pytest.mark.parametrize("unit", ["us", "GB/s"])
def test_no_time_that_nothing_takes_counts(tmp_path, time, unit):
    better = {"better": "higher"} if unit == "GB/s" else {}
    [case] = read(tmp_path, line("copy", [1.0, time], unit, **better)).devices[0].cases
    assert (case.times_ns, bool(case.failed)) == ((), True)


def test_a_case_that_failed_costs_no_other_its_verdict(compare):
    done = compare(line("copy") + line("scale"), line("copy", [0.0]) + line("scale"), WRITES)
    assert verdicts_of(done) == {"cat.copy[]": "failed", "cat.scale[]": "unchanged"}
    assert done.status == ExitCode.REGRESSION
    [told] = done.json
    said = {verdict["case"]: verdict["message"] for verdict in told["verdicts"]}
    assert "must be positive and finite" in said["cat.copy[]"]


def test_names_that_mean_harm_are_names(tmp_path):
    names = ["<script>alert(1)</script>", "\x1b[2Jgone", "../../etc/passwd", "n" * 5000, "n" * 4999]
    found = read(tmp_path, "".join(map(line, names))).devices[0].cases
    kernels = [case.kernel for case in found]
    assert len(set(kernels)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_]{1,100}", kernel) for kernel in kernels)


def test_results_of_two_cards_are_not_mixed(compare):
    both = line(device="NVIDIA H100") + line(device="NVIDIA A100")
    done = compare(both, both, WRITES)
    assert list(verdicts_of(done).values()) == ["failed"]
    [told] = done.json
    assert "It measured on NVIDIA H100 (gpu), NVIDIA A100 (gpu)" in told["verdicts"][0]["message"]
    assert done.status == ExitCode.NOT_MEASURED


PROGRAMS = {
    "exit 1": ("crashed", "exited with status 1, so nothing that it measured counts. Run it by itself"),
    "true": ("no-json", "harness.report(name, times, unit)"),
    "cp results bench.json": ("no-json", "It wrote bench.json where it stands. Put {out}"),
    "cp results {out}; cp results $HARNESS_OUT": ("store", "only one file can count"),
    ": > $HARNESS_OUT": ("store", "$HARNESS_OUT is empty"),
    "echo hello > {out}": ("store", "{out} is damaged, or no JSON at all"),
}


@pytest.mark.parametrize("command", PROGRAMS)
def test_a_program_without_results_could_not_be_measured(compare, command):
    reason, words = PROGRAMS[command]
    done = compare(line(), line(), command)
    [told] = done.json
    [said] = told["verdicts"]
    assert (said["status"], said["reason"], done.status) == ("failed", reason, ExitCode.NOT_MEASURED)
    assert words in said["message"]


def test_limits_of_a_card_are_for_times_of_its_own_clock(compare):
    """A host's clock has no card's precision, whatever the device is."""
    margins = {}
    for clock in ("device", "host"):
        [told] = compare(line(clock=clock), line(clock=clock), WRITES, "--device", "null").json
        margins[clock] = told["comparison"]["settings"]["margin"]
    assert margins == {"device": 0.0025, "host": 0.02}


def test_a_program_reports_by_one_call(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HARNESS_OUT", str(tmp_path / "out"))
    harness.report("copy", [1.5, np.float32(2.5)], "us", n=np.int64(64), dtype=np.float16, clock="device")
    harness.report("copy", 3, "us", n=64, dtype=np.float16, clock="device")
    harness.report("sum", np.array([4.0]), "us", shape=(2, 3), bias=None, fast=True)
    case, other = read_imported(tmp_path / "out").devices[0].cases
    assert (case.sizes, case.times_ns, case.device_clock) == ({"n": 64}, (1500, 2500, 3000), True)
    assert (other.kernel, other.sizes) == ("sum_shape_2_3_bias_None_fast_True", {})
    monkeypatch.delenv("HARNESS_OUT")
    harness.report("copy", [1.5, 2.5, 9], "us", n=64)
    assert capsys.readouterr().out == "copy[n=64]: 2.5 us (1.5 to 9, 3 times)\n"


def test_the_call_is_there_whatever_else_of_the_package_was_imported(tmp_path):
    script = (
        "import harness; {} harness.report('a', 1, 'us'); from harness import report; report('b', 1, 's')"
    )
    for other in ("", "import harness.report.words.of_verdict;"):
        done = subprocess.run(
            [sys.executable, "-c", script.format(other)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "a: 1 us\nb: 1 s\n"


def documented(kind):
    """The writers of a language in docs/benchmark-files.md."""
    text = (ROOT / "docs/benchmark-files.md").read_text("utf-8").partition("## Any program")[2]
    return [code for named, code in FENCE.findall(text.partition("\n## ")[0]) if named == kind]


def written_by(tmp_path, *command):
    out = tmp_path / "out"
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "HARNESS_OUT": str(out)}, check=True)
    [found] = read_imported(out, "lines").devices
    return {case.name: len(case.times_ns) for case in found.cases}


def test_the_documented_writers_of_python_and_of_a_shell_work(tmp_path):
    first, second = documented("python")
    assert written_by(tmp_path, sys.executable, "-c", first + second) == {"sort[n=1000]": 40}
    (tmp_path / "out").unlink()
    [shell] = documented("sh")
    assert written_by(tmp_path, "/bin/sh", "-c", shell) == {"sort": 1}


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_the_documented_writer_of_cpp_works(tmp_path):
    [writer] = documented("cpp")
    main = 'int main() { report("sort", 1.25); report("sort", 1.5); }\n'
    write_files(tmp_path, {"main.cc": f"#include <cstdlib>\n#include <fstream>\n{writer}{main}"})
    subprocess.run(["c++", "main.cc", "-o", "main"], cwd=tmp_path, check=True)
    assert written_by(tmp_path, "./main") == {"sort": 2}


@pytest.mark.parametrize(
    ("command", "format_"),
    [
        ("pytest bench/", "pytest-benchmark"),
        ("FAST=1 .venv/bin/python -m pytest bench.py", "pytest-benchmark"),
        ("python bench.py", "google-benchmark"),
        ("cd . && python bench.py {out}", None),
        ("python bench.py --jsonbin {out}", "nvbench"),
        ("python nothing.py", None),
        ("true", None),
    ],
)
def test_a_command_tells_its_format(tmp_path, command, format_):
    write_files(tmp_path, {"bench.py": "import google_benchmark\n"})
    assert format_of(Executable("head", command, tmp_path, Source(suite="", path=""))) == format_


def test_a_script_is_not_run_to_find_out_what_it_writes(compare, tmp_path):
    """It may ignore --help, and measure while another process has the device."""
    trace = tmp_path / "trace"
    script = f"echo \"ran $*\" >> {trace}\necho '{line().strip()}' > $HARNESS_OUT\n"
    assert compare(script, script, "sh results").status == ExitCode.FINE
    assert set(trace.read_text().splitlines()) == {"ran "}
