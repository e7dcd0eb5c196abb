"""The machine around the device, as far as a result depends on it."""

from __future__ import annotations

__all__ = ["cpu_name", "describe_host"]

import os
import platform
from importlib import metadata

from harness.records import Host

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
