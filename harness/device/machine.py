"""The name and description of a card as an asv machine: one card is one machine, whatever host it sits in.

asv makes every key of a machine part of a series' identity, so a key that changes would cut a history in two.
What changes with an update or another host is therefore an annotation: shown with the machine, never part of
a series.
"""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata

from harness.records import DeviceInfo, Host

ANNOTATIONS = ("cpu", "driver", "gpu_memory", "kernel", "num_cpu", "ram")


def machine_name(device: DeviceInfo) -> str:
    """``nvidia-h200-3f2a9c1e``: the model, and of which card of the model; for a CPU of which host."""
    model = _slug(device.name)
    identity = (
        _slug(device.uuid or "")[-8:] if device.kind == "gpu" and device.uuid else _slug(platform.node())
    )
    prefix = "" if device.backend in ("cuda", "null") else f"{device.backend}-"
    return f"{prefix}{model}-{identity}".strip("-") if device.backend != "null" else "null"


def machine_entry(device: DeviceInfo, host: Host) -> dict[str, str]:
    """What asv keeps of the machine: its own six keys, then the card's, then the annotations."""
    major_minor = ".".join(map(str, device.compute_capability or ())) or "none"
    return {
        "machine": machine_name(device),
        "os": host.os,
        "arch": platform.machine(),
        "cpu": host.cpu,
        "num_cpu": str(host.cpu_count),
        "ram": f"{round(host.memory_bytes / 2**30)} GiB",
        "gpu": device.name,
        "gpu_uuid": device.uuid or "unknown",
        "gpu_memory": f"{round(device.memory_bytes / 2**30)} GiB",
        "compute_capability": major_minor,
        "driver": device.driver,
        "kernel": host.kernel,
    }


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("(r)", "").replace("(tm)", "")).strip("-")


_PACKAGES = (
    "numpy",
    "pycuda",
    "pyopencl",
    "intel-opencl-rt",
    "moderngl",
    "apache-tvm",
    "nvmath-python",
    "nvidia-cutlass",
    "numba",
    "nvidia-ml-py",
    "asv",
)


def describe_host() -> Host:
    import psutil

    return Host(
        os=platform.system(),
        kernel=platform.release(),
        cpu=cpu_name(),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        python=platform.python_version(),
        packages={name: version for name in _PACKAGES if (version := _version(name))},
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
