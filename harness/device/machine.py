"""Name and description of a card as an asv machine: one card is one machine, on any host.

asv makes every key of a machine part of a series' identity, so a changed key would split a history. Facts
that change with an update or another host are therefore annotations: displayed, and never part of a series.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path

from harness.records.types import DeviceInfo, Host

ANNOTATIONS = ("cpu", "driver", "gpu_memory", "kernel", "num_cpu", "ram")


def machine_name(device: DeviceInfo) -> str:
    """Return a name such as ``nvidia-h200-3f2a9c1e``: the model and the card's identity; for a CPU, the
    host's.
    """
    if device.backend == "null":
        return _slug(f"{device.name} {device.uuid or ''}")
    of_card = device.kind == "gpu" and device.uuid
    identity = _slug(of_card)[-8:] if of_card else _slug(platform.node())
    prefix = "" if device.backend == "cuda" else f"{device.backend}-"
    return f"{prefix}{_slug(device.name)}-{identity}".strip("-")


def machine_entry(device: DeviceInfo, host: Host) -> dict[str, str]:
    """Return an asv machine: asv's own six keys, then the card's keys, then the annotations."""
    return {
        "machine": machine_name(device),
        "os": host.os,
        "arch": platform.machine(),
        "cpu": host.cpu,
        "num_cpu": str(host.cpu_count or ""),
        "ram": _gib(host.memory_bytes),
        "gpu": device.name,
        "gpu_uuid": device.uuid or "unknown",
        "gpu_memory": _gib(device.memory_bytes),
        "compute_capability": ".".join(map(str, device.compute_capability or ())) or "none",
        "driver": device.driver,
        "kernel": host.kernel,
    }


def _gib(size_bytes: int | None) -> str:
    return f"{round(size_bytes / 2**30)} GiB" if size_bytes else ""


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("(r)", "").replace("(tm)", "")).strip("-")


_PACKAGES = (
    *("numpy", "pycuda", "pyopencl", "intel-opencl-rt", "moderngl", "apache-tvm", "nvmath-python"),
    *("nvidia-cutlass", "numba", "nvidia-ml-py", "asv"),
    *("torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "numba-cuda", "jax"),
)


def describe_host() -> Host:
    """Return this machine, with versions of the packages that measure or compute on it."""
    from importlib import metadata

    import psutil

    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return Host(
        os=platform.system(),
        kernel=platform.release(),
        cpu=cpu_name(),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        python=platform.python_version(),
        packages=packages,
    )


def cpu_name() -> str:
    """Return the CPU model from Linux, else from Python."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
