"""The command line as a user meets it: what it prints where, and its exit status."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from harness import cli
from harness.errors import ExitCode
from harness.records.record_files import read_run
from harness.report.terminal.run_tables import print_end
from harness.run.wall_time import STAGES
from tests import toy
from tests.support import KERNELS, ROOT, Done, records_below, run_command, statuses, write_files

FAKES = Path(__file__).parent / "fakes"
SHORT = ("--device", "null", "--size", "64", "--max-time", "0.05")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_and_the_exit_statuses(harness, flag):
    done = harness(flag)
    assert done.status == 0
    assert done.err == ""
    for command in cli.COMMANDS:
        assert command in done.out
    assert "3 could not measure" in done.out


def test_the_installed_command_is_this_one():
    done = run_command("--version", cwd=ROOT)
    assert done.returncode == 0
    assert done.stdout.startswith("harness, version ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "No such command"),
        (["lst"], "Did you mean list"),
        (["run", "--nosuch"], "No such option"),
        (["run", "--l2", "warm"], "'warm' is not one of"),
        (["run", "--timeout", "0"], "not in the range"),
        (["run", "--timeout", "soon"], "not a valid float"),
        (["run", "--max-time", "-1"], "not in the range"),
        (["run", "--seed", "-1"], "not in the range"),
        (["run", "--seed", "x"], "not a valid integer"),
        (["run", "--script", "bench.py -n 1"], "write 'python bench.py -n 1'"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2_and_one_message(harness, project, arguments, words):
    done = harness(*arguments)
    assert words in done.failed_with(ExitCode.USAGE)
    assert done.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["toy.plan"], "No kernel matches 'toy.plan'. Did you mean toy.plain"),
        (["nothing*like*it"], "'harness list' shows every kernel"),
        (["--device", "foo"], "Unknown device 'foo': expected BACKEND or BACKEND:INDEX"),
        (["--device", "cuda:x"], "Unknown device 'cuda:x'"),
        (["--device", "null", "--size", "0"], "0 is out of range. Expected sizes from 1 to 2147483647"),
        (["--device", "null", "--size", "-1"], "-1 is out of range"),
        (["--device", "null", "--size", "1.5"], "'1.5' is not an integer"),
        (["--device", "null", "--size", "1e3"], "'1e3' is not an integer"),
        (["--device", "null", "--size", ""], "'' is not an integer"),
        (["--device", "null", "--size", "2147483648"], "2147483648 is out of range"),
        (["--device", "null", "--size", "8,8"], "has 2 numbers; expected one"),
        (["--device", "null", "--commit", "HEAD~9"], "No commit named 'HEAD~9'"),
        (["--device", "null", "--commit", "--oneline"], "No commit named '--oneline'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_status_2_before_anything_is_measured(harness, project, arguments, words):
    for command in ("run", "check"):
        done = harness(command, *arguments)
        assert words in done.failed_with(ExitCode.USAGE)
        assert "harness: " in done.err
        assert done.out == ""
    assert not (project.root / ".asv").exists()


def test_a_device_that_is_not_there_is_status_3(harness, project):
    assert "There is no device null:3. Devices of this backend: null:0 (null)." in harness(
        "run", "--device", "null:3"
    ).failed_with(ExitCode.NOT_MEASURED)


@pytest.mark.parametrize("command", ["run", "check", "list"])
def test_a_folder_without_suites_is_status_2(harness, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    told = harness(command).failed_with(ExitCode.USAGE)
    assert "no folder with a suite.py matches kernels/*" in told
    assert "'harness init' writes" in told


def test_no_name_that_is_told_at_the_end_turns_a_terminal_around(capsys):
    cli.tell_lines(["Left out: \x1b]0;owned\x07.cu is no file"])
    print_end("\x1b]0;owned\x07 broke\nin two lines", "a\x07.jsonl", "")
    told = capsys.readouterr().err
    assert not {"\x1b", "\x07"} & set(told)
    assert [line.split()[-1] for line in told.splitlines()] == ["file", "broke", "lines", "a\ufffd.jsonl"]


@pytest.mark.parametrize("command", ["run", "check", "list"])
def test_a_broken_suite_is_status_2_with_its_traceback(harness, project, command):
    project.write({"kernels/toy/suite.py": "suite = 1 / 0  # \x1b[2J\x1b]0;title\x07\n"})
    done = harness(command)
    assert "suite.py:1 raised ZeroDivisionError" in done.failed_with(ExitCode.USAGE)
    assert "Traceback" in done.err
    assert not {"\x1b", "\x07"} & {*done.err}
    assert done.out == ""


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("list", "--card", "a100"), ("check", *SHORT[:4]), ("run", *SHORT, "--no-save")],
    ids=["list", "list-card", "check", "run"],
)
def test_a_broken_suite_costs_no_other_suite(harness, project, arguments):
    """The others are shown; the broken one is told behind them, and its exit status is the command's."""
    project.write({"kernels/a_bad/suite.py": "suite = 1 / 0\n"})
    done = harness(*arguments)
    told = done.failed_with(ExitCode.USAGE)
    assert "toy" in done.out
    assert told.count("a_bad/suite.py:1 raised ZeroDivisionError") == 1
    assert "Traceback" in told


@pytest.mark.parametrize("command", ["list", "check"])
def test_every_suite_is_told_where_none_loads(harness, project, command):
    project.write({"kernels/toy/suite.py": "suite = 1 / 0\n", "kernels/bad/suite.py": "nothing = 1\n"})
    told = harness(command).failed_with(ExitCode.USAGE)
    assert "Nothing of it runs on this device" not in told
    assert told.count("toy/suite.py:1 raised ZeroDivisionError") == 1
    assert told.count("bad/suite.py defines no `suite`") == 1


def test_a_kernel_that_no_suite_has_may_be_in_the_one_that_is_broken(harness, project):
    project.write({"kernels/bad/suite.py": "suite = 1 / 0\n"})
    told = harness("list", "bad.kernel").failed_with(ExitCode.USAGE)
    assert "No kernel matches 'bad.kernel'" in told
    assert "bad/suite.py:1 raised ZeroDivisionError" in told


def test_a_failed_check_has_its_own_status_beside_a_broken_suite(harness, project):
    project.write({"kernels/bad/suite.py": "suite = 1 / 0\n"})
    project.write({"kernels/toy/plain.cu": "#define NULL_DEVICE_FAULT wrong\n"})
    done = harness("check", *SHORT[:4])
    assert "bad/suite.py:1 raised ZeroDivisionError" in done.failed_with(ExitCode.REGRESSION)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devices = 'null'\n", "no such setting"),
        ("timeout_s = -1\n", "expected a number of seconds above 0"),
        ("l2 = 'warm'\n", "expected cold or hot"),
        ("suites = 'kernels'\n", "expected a list of folders"),
        ("device =\n", "Cannot read"),
    ],
)
def test_a_wrong_configuration_is_status_2_and_names_the_file(harness, project, text, words):
    project.write({"harness.toml": text})
    done = harness("run", *SHORT)
    assert words in done.failed_with(ExitCode.USAGE)
    assert "harness.toml" in done.err


def test_devices_as_json(harness):
    done = harness("devices", "--json")
    assert done.json.keys() == {"default", "devices", "problems"}
    assert done.status == (ExitCode.FINE if done.json["devices"] else ExitCode.NOT_MEASURED)
    for device in done.json["devices"]:
        assert device.keys() >= {"spec", "backend", "name", "driver", "kind", "memory_bytes", "uuid"}
        assert device["backend"] != "null"
    assert done.json["default"] == next((device["spec"] for device in done.json["devices"]), None)


def test_list_takes_cases_and_commits(harness, project):
    first = project.git("rev-parse", "HEAD")
    project.commit({"kernels/toy/suite.py": toy.SUITE.replace('"tiled"', '"renamed"')})
    [now], [then] = harness("list", "--json").json, harness("list", "--json", "--commit", first).json
    assert [kernel["name"] for kernel in now["kernels"]] == ["plain", "renamed"]
    assert [kernel["name"] for kernel in then["kernels"]] == ["plain", "tiled"]
    [selected] = harness("list", "--json", "*ren*").json
    assert [kernel["name"] for kernel in selected["kernels"]] == ["renamed"]


def test_a_run_stores_a_record(harness, project):
    done = harness("run", *SHORT)
    assert done.status == ExitCode.FINE
    [(run, rows, complete)] = records_below(project.root / ".asv" / "results" / "null")
    assert complete
    assert statuses(rows) == [("plain", "measured", ""), ("tiled", "measured", "")]
    assert run.command == "run"
    assert f"Record: {project.root}" in done.err


def test_a_run_as_json_is_nothing_but_json(harness, project):
    done = harness("run", "--json", *SHORT)
    assert done.status == ExitCode.FINE
    [result] = done.json
    assert result["complete"] is True
    assert [entry["row"]["status"] for entry in result["rows"]] == ["measured", "measured"]
    assert result["rows"][0]["summary"]["rate"] > 0
    stored = read_run(Path(result["record"]))
    assert stored.run.run_id == result["run"]["run_id"]
    assert tuple(result["wall_s"]) == STAGES
    in_a_worker = ("open", "build", "inputs", "reference", "verify", "measure")
    assert all(result["wall_s"][stage] > 0 for stage in in_a_worker)


@pytest.mark.parametrize("command", ["run", "check", "list"])
def test_json_is_nothing_but_json_when_the_suite_prints(project, command):
    project.write({"kernels/toy/suite.py": "print('hello')\n" + toy.SUITE})
    options = () if command == "list" else ("--device", "null", "--size", "64")
    done = run_command(command, "--json", *options, cwd=project.root)
    assert done.returncode == 0
    json.loads(done.stdout)


@pytest.mark.parametrize("columns", [80, 100])
def test_tables_fit_the_terminal(harness, tmp_path, monkeypatch, columns):
    write_files(tmp_path, {"harness.toml": f"suites = ['{KERNELS / 'matmul'}']\n"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    kernels = ("naive", "outer_product_loop_tiling", "wmma")
    done = harness("run", *kernels, "--size", "16", "--device", "null", "--max-time", "0.05", "--no-save")
    assert max(len(line.rstrip()) for line in done.out.splitlines()) <= columns
    for name in ("GFLOP/s", "speed-up", "SM MHz", "°C", "result", "outer_product_loop_tiling"):
        assert name in done.out
    assert done.status == ExitCode.FINE


def test_a_run_without_a_record(harness, project):
    assert harness("run", "--no-save", *SHORT).status == ExitCode.FINE
    assert not (project.root / ".asv").exists()


def test_a_check_stores_nothing_and_times_nothing(harness, project):
    done = harness("check", "--json", "--device", "null")
    assert done.status == ExitCode.FINE
    [result] = done.json
    assert {entry["row"]["status"] for entry in result["rows"]} == {"not-built"}
    assert result["record"] is None
    assert not (project.root / ".asv").exists()


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("wrong", ExitCode.REGRESSION, "wrong-result"),
        ("overrun", ExitCode.REGRESSION, "wrong-result"),
        ("build", ExitCode.NOT_MEASURED, "build-failed"),
        ("crash", ExitCode.NOT_MEASURED, "crashed"),
        ("memory", ExitCode.NOT_MEASURED, "out-of-memory"),
    ],
)
def test_a_failure_is_in_the_exit_status_the_table_and_the_words(
    harness, project, null_script, command, fault, status, reason
):
    null_script({"toy.plain": {"fault": fault}})
    options = SHORT if command == "run" else SHORT[:4]
    done = harness(command, *options)
    assert done.status == status
    assert reason in done.out
    assert ("verified" if command == "run" else "not-built") in done.out
    assert f"toy.plain[n=64] failed ({reason}): " in done.err
    assert ("\n    toy.plain: error: scripted fault\n" in done.err) is (fault == "build")


def test_a_suite_that_no_size_fits_is_left_out_and_told(harness, project):
    wider = toy.SUITE.replace('"toy"', '"wide"').replace("    x =", "    m = Axis(default=(8,))\n    x =")
    sources = {f"kernels/wide/{name}.cu": toy.BODY.format(name=name) for name in ("plain", "tiled")}
    project.write({"kernels/wide/suite.py": wider, **sources})
    done = harness("check", "--device", "null", "--size", "64x8", "--json")
    assert done.err.startswith("toy is left out: no --size gives numbers for n.\n")
    assert [each["run"]["source"]["suite"] for each in done.json] == ["wide"]


def test_a_run_that_reads_no_counters_says_why(harness, project):
    done = harness("run", "--device", "null", "--quick", "--counters", "--no-save")
    assert done.err.count("No counters: The harness reads no hardware counters with the backend null.") == 1


@pytest.mark.parametrize("option", [("--markdown", "x.md"), ("--report", "x.json"), ("--fail-on", "spill")])
def test_static_facts_of_one_commit_are_no_comparison(harness, project, option):
    assert f"{option[0]} is for a comparison: say with what, by --base COMMIT." in harness(
        "static", *option
    ).failed_with(ExitCode.USAGE)


@pytest.mark.parametrize("option", ["--markdown", "--report"])
def test_an_answer_that_cannot_be_written_is_an_error_of_its_own(harness, project, option):
    project.write({"notes": "a file"})
    done = harness("static", "--base", "HEAD", option, "notes/answer")
    assert "\nharness: Cannot write notes/answer: " in done.failed_with(ExitCode.NOT_MEASURED)
    assert done.err.endswith("Name a file in a folder with room.\n")


def test_only_skipped_kernels_are_not_a_success(harness, project):
    project.write({"kernels/toy/suite.py": toy.SUITE.replace("block=32", "requires='sm_70', block=32")})
    done = harness("check", "toy.plain", "--device", "null")
    assert done.status == ExitCode.NOT_MEASURED
    assert "needs-cuda" in done.out
    assert "needs CUDA (sm_70)" in done.err
    assert "Nothing of it runs on this device. 'harness devices' says" in done.err


def test_a_suite_for_other_devices_is_told_without_an_empty_table(harness, project):
    done = harness("check", "--device", "cpu:0")
    assert (done.status, done.out) == (ExitCode.NOT_MEASURED, "")
    assert "Not for cpu:0: plain, tiled (cuda or opencl)." in done.err
    assert done.err.splitlines()[-1].startswith("Nothing of it runs on this device.")


def test_a_size_that_cannot_fit_is_refused_before_it_is_allocated(harness, project):
    done = harness("run", "toy.plain", "--size", "2000000000", "--device", "null", "--json")
    assert done.status == ExitCode.NOT_MEASURED
    [entry] = done.json[0]["rows"]
    assert (entry["row"]["status"], entry["row"]["reason"]) == ("failed", "out-of-memory")
    assert "needs 14.9 GiB on the device" in entry["row"]["message"]


def test_a_grid_that_no_device_has_is_refused(harness, tmp_path, monkeypatch):
    write_files(tmp_path, {"harness.toml": f"suites = ['{KERNELS / 'matmul'}']\n"})
    monkeypatch.chdir(tmp_path)
    done = harness("run", "naive", "--size", "2000000000", "--device", "null", "--json", "--no-save")
    assert done.status == ExitCode.NOT_MEASURED
    [entry] = done.json[0]["rows"]
    assert entry["row"]["reason"] == "launch-refused"
    assert "exceeds null's largest grid" in entry["row"]["message"]


@pytest.mark.parametrize("device", ["null", "opencl:0"])
def test_a_cold_cache_on_a_device_that_has_none_to_flush(harness, project, device):
    done = harness(
        "run", "toy.plain", "--size", "64", "--l2", "cold", "--max-time", "0.05", "--device", device
    )
    if device == "null":
        assert done.status == ExitCode.FINE
        [(_, rows, _)] = records_below(project.root)
        assert [row.measurement and row.measurement.l2 for row in rows] == ["cold"]
    elif "no cache that can be flushed" in done.err:
        assert "measure with --l2 hot" in done.failed_with(ExitCode.USAGE)


def test_a_results_folder_that_is_a_file_is_found_out_before_measuring(harness, project, tmp_path):
    (tmp_path / "results").write_text("", encoding="utf-8")
    done = harness("run", "--results", str(tmp_path / "results"), *SHORT)
    assert "Cannot write results to" in done.failed_with(ExitCode.NOT_MEASURED)
    assert "--results" in done.err
    assert "measured" not in done.err
    assert done.out == ""


def test_a_device_in_place_of_the_results_folder(harness, project):
    done = harness("run", "--results", "/dev/full", *SHORT)
    assert "Cannot write results to /dev/full" in done.failed_with(ExitCode.NOT_MEASURED)
    assert "measured" not in done.err


@pytest.mark.parametrize(
    ("free_bytes", "words"),
    [(512, "Cannot write to"), (0, "No temporary folder can be made")],
    ids=["results", "temporary folder"],
)
def test_a_full_disk_is_found_out_before_measuring(project, free_bytes, words):
    done = run_command("run", *SHORT, cwd=project.root, file_limit_bytes=free_bytes)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert words in done.stderr
    assert "measured" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_fills_up_on_the_way_costs_no_row(project):
    done = run_command("run", *SHORT, cwd=project.root, file_limit_bytes=4096)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert "Cannot write to" in done.stderr
    assert "Traceback" not in done.stderr
    assert "toy.tiled@64: measured" in done.stderr
    assert "plain" in done.stdout


ASCII = {"PYTHONIOENCODING": "ascii"}


def test_an_encoding_without_a_sign_costs_that_sign_alone(project):
    done = run_command("run", *SHORT, cwd=project.root, env=ASCII)
    assert (done.returncode, "Traceback" in done.stderr) == (ExitCode.FINE, False)
    assert "?%" in done.stdout
    project.write({"kernels/toy/suite.py": toy.SUITE.replace('"tiled.cu"', '"tiled.cu", about="Łódź 🜂"')})
    listed = run_command("list", "toy.tiled", "--json", cwd=project.root, env=ASCII)
    assert json.loads(listed.stdout)[0]["kernels"][0]["about"] == "Łódź 🜂"


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]], ids=" ".join)
def test_standard_output_on_a_full_disk_is_a_sentence(project, arguments):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = run_command(*arguments, cwd=project.root, stdout=full)
    assert done.returncode == ExitCode.NOT_MEASURED
    assert done.stderr == "harness: Cannot write to standard output: No space left on device.\n"


@pytest.mark.parametrize(("case", "status"), [("toy", ExitCode.FINE), ("nosuch", ExitCode.USAGE)])
def test_who_reads_both_outputs_may_go_away(project, case, status):
    read, write = os.pipe()
    os.close(read)
    try:
        done = run_command("list", case, cwd=project.root, stdout=write, stderr=write)
    finally:
        os.close(write)
    assert done.returncode == status


def test_an_older_commit_is_run_as_it_was(harness, project):
    first = project.git("rev-parse", "HEAD")
    project.commit({"kernels/toy/plain.cu": toy.BODY.format(name="plain") + "// newer\n"})
    now, then = (
        harness("run", "toy.plain", "--json", *commit, *SHORT).json[0]
        for commit in ((), ("--commit", first[:10]))
    )
    assert then["run"]["source"]["commit"] == first
    assert now["run"]["source"]["commit"] == project.git("rev-parse", "HEAD")
    sums = [result["rows"][0]["row"]["source_sha256"] for result in (now, then)]
    assert sums[0] != sums[1]


def test_uncommitted_changes_are_said(harness, project):
    project.write({"kernels/toy/plain.cu": toy.BODY.format(name="plain") + "// not committed\n"})
    done = harness("run", *SHORT)
    assert "+ changes" in done.out
    [record] = (project.root / ".asv" / "results" / "null").iterdir()
    assert f"-{project.git('rev-parse', 'HEAD')[:8]}+-toy-" in record.name


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_macro_that_raises_is_no_traceback(harness, project, command):
    project.write({"kernels/toy/suite.py": toy.SUITE.replace('{"TILE": 64}', '{"TILE": lambda c: 1 // 0}')})
    done = harness(command, *SHORT[:4])
    assert done.status in (ExitCode.USAGE, ExitCode.NOT_MEASURED)
    assert "tiled" in done.err
    assert "ZeroDivisionError" in done.err


def test_an_error_of_the_harness_itself_is_no_regression(harness, monkeypatch):
    def broken(*arguments: object) -> None:
        raise RuntimeError("a mistake in the harness")

    monkeypatch.setattr("harness.device.backends.survey", broken)
    done = harness("devices")
    assert "a mistake in the harness" in done.failed_with(ExitCode.NOT_MEASURED)
    assert "Traceback" in done.err


# asv's machine file


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_machine_registers_the_device_and_keeps_the_others(harness, home):
    other = {
        "machine": "other",
        "os": "Linux",
        "arch": "x",
        "cpu": "y",
        "num_cpu": "1",
        "ram": "2",
        "own": "3",
    }
    machines = home / ".asv-machine.json"
    machines.write_text(json.dumps({"other": other, "version": 1}), encoding="utf-8")
    done = harness("machine", "--device", "null")
    assert done.status == ExitCode.FINE
    assert str(machines) in done.out
    written = json.loads(machines.read_text(encoding="utf-8"))
    assert written["other"] == other
    assert written["version"] == 1
    assert written["null"].keys() >= {"machine", "os", "arch", "cpu", "num_cpu", "ram", "gpu", "driver"}
    assert all(isinstance(value, str) for value in written["null"].values())


def test_machine_makes_the_file_where_there_is_none(harness, home):
    done = harness("machine", "--device", "null", "--json")
    written = json.loads((home / ".asv-machine.json").read_text(encoding="utf-8"))
    assert written == {"null": done.json["machine"], "version": 1}
    assert done.json["path"] == str(home / ".asv-machine.json")


@pytest.mark.parametrize("content", ["{", "[]", ""], ids=["cut off", "a list", "empty"])
def test_machine_refuses_a_file_that_it_cannot_read(harness, home, content):
    machines = home / ".asv-machine.json"
    machines.write_text(content, encoding="utf-8")
    assert f"{machines} is no machine file of asv's" in harness("machine", "--device", "null").failed_with(
        ExitCode.USAGE
    )
    assert machines.read_text(encoding="utf-8") == content


# CUDA's troubles, played by a pycuda that is none


@pytest.fixture
def fake_cuda(project):
    """`harness` with tests/fakes/pycuda before what is installed, on a PATH that has git and no nvcc."""
    path = project.root.parent / "bin"
    path.mkdir()
    git = shutil.which("git")
    assert git
    (path / "git").symlink_to(git)

    def call(*arguments: str, **env: str) -> Done:
        python_path = f"{ROOT}{os.pathsep}{FAKES}"
        environment = {"PATH": str(path), "PYTHONPATH": python_path, **env}
        done = run_command(*arguments, cwd=project.root, env=environment)
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"FAKE_CUDA": "no driver"}, "There is no NVIDIA driver (libcuda.so.1"),
        ({"FAKE_CUDA": "no pycuda"}, "PyCUDA cannot be imported"),
        ({"FAKE_CUDA": "init fails"}, "'nvidia-smi' shows whether the driver and a card are there"),
        (
            {"FAKE_CUDA": "init fails", "CUDA_VISIBLE_DEVICES": ""},
            "CUDA_VISIBLE_DEVICES is '', which hides every card: unset it",
        ),
        ({"FAKE_CUDA": "init raises"}, "CUDA does not start (OSError: the driver is of another version)"),
        ({"FAKE_CUDA": "odd card"}, "cuda is unavailable: its library raised ValueError: a card from the"),
        ({"FAKE_CUDA": "0"}, "CUDA sees no card"),
    ],
    ids=["no driver", "no PyCUDA", "init fails", "hidden", "init raises", "odd card", "no card"],
)
def test_a_missing_card_is_a_sentence(fake_cuda, env, words):
    done = fake_cuda("run", "--device", "cuda:0", **env)
    assert words in done.failed_with(ExitCode.NOT_MEASURED)
    assert "Traceback" not in done.err
    survey = fake_cuda("devices", "--json", **env)
    assert words in survey.json["problems"]["cuda"]


def test_a_card_whose_name_is_no_utf_8_is_a_card_all_the_same(fake_cuda):
    done = fake_cuda("devices", "--json", FAKE_CUDA="odd name")
    assert done.status == ExitCode.FINE
    card = done.json["devices"][0]
    assert card["spec"] == done.json["default"] == "cuda:0"
    assert card["name"].startswith("unavailable: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xf8")


def test_two_cards_are_both_shown_and_the_second_can_be_chosen(fake_cuda):
    done = fake_cuda("devices", "--json", FAKE_CUDA="2")
    assert done.status == ExitCode.FINE
    cards = [device for device in done.json["devices"] if device["backend"] == "cuda"]
    assert [card["spec"] for card in cards] == ["cuda:0", "cuda:1"]
    assert done.json["default"] == "cuda:0"
    assert cards[0]["pci_bus_id"] != cards[1]["pci_bus_id"]
    told = {
        "arch": "sm_75",
        "compute_units": 40,
        "driver": "13.0",
        "l2_bytes": 4 * 2**20,
        "max_block": [1024, 1024, 64],
        "max_clock_mhz": 1590,
        "max_grid": [2**31 - 1, 65535, 65535],
        "max_shared_bytes": 48 * 1024,
        "max_threads_per_block": 1024,
        "memory_bytes": 16 * 2**30,
        "warp_size": None,  # a PyCUDA that has no name for it
    }
    assert {name: cards[1][name] for name in told} == told
    table = fake_cuda("devices", FAKE_CUDA="2").out
    assert "cuda:0 (default)" in table
    assert "cuda:1" in table
    machine = fake_cuda("machine", "--device", "cuda:1", "--json", FAKE_CUDA="2").json["machine"]
    assert machine["gpu"] == "Fake Card 1"
    assert machine["compute_capability"] == "7.5"


def test_a_card_number_too_high_names_the_cards(fake_cuda):
    done = fake_cuda("run", "--device", "cuda:9", FAKE_CUDA="2")
    assert "There is no device cuda:9" in done.failed_with(ExitCode.NOT_MEASURED)
    assert "cuda:0 (Fake Card 0), cuda:1 (Fake Card 1)" in done.err


def test_no_compiler_is_said_in_the_row(fake_cuda):
    done = fake_cuda("run", "toy.plain", "--device", "cuda:1", "--size", "64", "--json", FAKE_CUDA="2")
    assert done.status == ExitCode.NOT_MEASURED
    [entry] = done.json[0]["rows"]
    assert entry["row"]["reason"] == "build-failed"
    assert "nvcc is not on PATH" in entry["row"]["message"]
    assert "Traceback" not in done.err


def test_a_kernel_that_needs_a_newer_card_is_skipped(fake_cuda, project):
    project.write({"kernels/toy/suite.py": toy.SUITE.replace("block=32", "requires='sm_80', block=32")})
    done = fake_cuda("check", "toy.plain", "--device", "cuda:1", "--size", "64", FAKE_CUDA="2")
    assert done.status == ExitCode.NOT_MEASURED
    assert "needs-capability" in done.out
    assert "needs sm_80; Fake Card 1 is sm_75" in done.err
