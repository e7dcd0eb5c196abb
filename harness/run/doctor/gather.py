"""Gathers the doctor's facts from the machine. Nothing is changed; a failed query becomes a fact."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import closing
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import harness
from harness.device.backends import parse_spec
from harness.device.machine import describe_host, machine_name
from harness.device.telemetry import Probe, probe_for
from harness.device.telemetry.host import HostProbe
from harness.errors import DeviceError, ExitCode, GitError, StoreError, UsageError, WorkerError
from harness.judgement.noise import read_calibration
from harness.measure.protocol import Open, Timers
from harness.records.types import DeviceInfo
from harness.run.device_session import identified
from harness.run.doctor.machine_facts import Disk, MachineFacts
from harness.run.worker_process import OPEN_TIMEOUT_S, WorkerProcess
from harness.system import git
from harness.system.cache import cache_dir
from harness.system.files import scratch_folder
from harness.system.process import Failed

TIMERS_TIMEOUT_S = 120.0
"""Time limit for measuring the timers' ticks, in seconds: their kernel may have to be compiled."""
SETTLE_S = 1.5
"""Pause in seconds after our own process left the card, since utilization is averaged over up to a second."""
_DRIVER_OPTIONS = Path("/proc/driver/nvidia/params")
_NVIDIA_DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))

Fields = dict[str, Any]


def gather(spec: str | None, root: Path, results: Path) -> MachineFacts:
    """Return all facts of a device, the machine and the project at `root`.

    Raises UsageError for a spec that names no device.
    """
    if spec is not None:
        parse_spec(spec)
    host = _host()  # first, because the rest causes load
    found = _device(spec)
    device: DeviceInfo | None = found.get("device")
    if device is not None:
        if spec is None and device.backend != "cuda":
            found |= {"cuda_problem": _device("cuda").get("device_problem", "")}
        with closing(probe_for(device)) as probe:
            found |= watch(probe, SETTLE_S if probe.name == "nvml" else 0.0)
        device = identified(device, found["identity"])
        found |= {"device": device, **_calibration(device, results)}
    return MachineFacts(
        **host,
        **found,
        **_repository(root),
        **_counters(),
        nvidia_driver=any(path.exists() for path in _NVIDIA_DRIVER),
        disks=_disks(results),
    )


def _device(spec: str | None) -> Fields:
    """Return the device and its timers, in a process of its own. Raises UsageError."""
    try:
        with scratch_folder() as scratch, closing(WorkerProcess(scratch)) as child:
            opened = child.ask(Open(device=spec, suite=None, scratch=str(scratch)), OPEN_TIMEOUT_S)
            if not isinstance(opened, Failed):
                found = opened.device
                return {
                    "device": found,
                    "compiler": opened.toolchain.compiler,
                    "cuda_version": found.driver if found.backend == "cuda" else "",
                    **_timers(child),
                }
    except WorkerError as error:
        return {"device_problem": _with_first_line(error.message, error.log)}
    except StoreError as error:
        return {"device_problem": error.message}
    if opened.exit_code == ExitCode.USAGE:
        raise UsageError(opened.message, log=opened.log)
    return {"device_problem": opened.message}


def _timers(child: WorkerProcess) -> Fields:
    try:
        reply = child.ask(Timers(), TIMERS_TIMEOUT_S)
    except WorkerError as error:
        return {"timers_problem": _with_first_line(error.message, error.log)}
    if isinstance(reply, Failed):
        return {"timers_problem": reply.message}
    return {
        "tick_ns": reply.tick_ns,
        "globaltimer_tick_ns": reply.globaltimer_tick_ns,
        "kernel_problem": _with_first_line(reply.problem, reply.log),
    }


def _with_first_line(message: str, log: str) -> str:
    line = next(iter(log.strip().splitlines()), "")
    return f"{message} {line}".strip()


def watch(probe: Probe, settle_s: float) -> Fields:
    """Return a device's values at rest, after `settle_s` seconds."""
    time.sleep(settle_s)
    found: Fields = {"probe": probe.name, "identity": {}}
    try:
        found["identity"] = probe.identity()
        found["rest"] = probe.snapshot()
    except DeviceError as error:
        found["rest_problem"] = error.message
    return found | {"unavailable": probe.unavailable}


def _calibration(device: DeviceInfo, results: Path) -> Fields:
    machine = machine_name(device)
    try:
        calibration = read_calibration(results / machine)
    except StoreError as error:
        return {"machine": machine, "calibration_problem": error.message}
    found = {"machine": machine}
    if calibration is not None:
        found |= {"calibrated_at": calibration.measured_at, "calibrated_driver": calibration.driver}
    return found


def _host() -> Fields:
    load = None
    with contextlib.suppress(OSError, AttributeError):  # Windows has no load average
        load = os.getloadavg()[0]
    with closing(HostProbe()) as probe:
        governor = probe.identity().get("governor")
    return {
        "load_average": load,
        "cpu_count": os.cpu_count() or 1,
        "governor": governor,
        "python": platform.python_version(),
        "bytecode_missing_in": _without_bytecode(),
        "packages": {"gpu-harness": harness.__version__, **describe_host().packages},
    }


def _without_bytecode() -> str:
    """Return the harness's folder if Python keeps no bytecode for it; empty if it does."""
    kept = Path(cache_from_source(__file__)).is_file()
    return "" if kept else str(Path(harness.__file__).parent)


def _counters() -> Fields:
    """Return who may read the card's hardware counters, by the options of the driver's module."""
    try:
        alone = re.search(r"^RmProfilingAdminOnly: (\d+)", _DRIVER_OPTIONS.read_text(), re.MULTILINE)
    except OSError:
        return {}
    told = {"counters_for": "all" if alone[1] == "0" else "administrators"} if alone else {}
    return {**told, "is_administrator": os.geteuid() == 0}


def _disks(results: Path) -> dict[str, Disk]:
    try:
        temporary = tempfile.gettempdir()
    except OSError:  # every candidate folder is full or read-only
        temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: S108
    folders = {"results": results, "cache": cache_dir(), "temporary": Path(temporary)}
    return {purpose: _disk(folder.absolute()) for purpose, folder in folders.items()}


def _disk(folder: Path) -> Disk:
    shown = str(folder)
    with contextlib.suppress(ValueError, RuntimeError):
        shown = str("~" / folder.relative_to(Path.home()))
    with contextlib.suppress(ValueError):
        shown = str(folder.relative_to(Path.cwd()))
    try:
        existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        free_bytes = shutil.disk_usage(existing).free
    except OSError as error:
        return Disk(path=shown, free_bytes=None, problem=error.strerror or str(error))
    return Disk(path=shown, free_bytes=free_bytes, writable=os.access(existing, os.W_OK | os.X_OK))


def _repository(root: Path) -> Fields:
    version = _output("git", "--version")
    if version is None:
        return {}
    found: Fields = {"git": version.removeprefix("git version ")}
    try:
        repository = git.repository_of(root)
    except GitError as error:
        return found | {"repository_problem": error.message}
    if repository is not None:
        shallow = _output("git", "-C", str(repository), "rev-parse", "--is-shallow-repository")
        found |= {"repository": str(repository), "shallow": shallow == "true"}
    return found


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip()
