"""What the OpenCL backend decides before any device is opened, with platforms that are made up."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.device.backends import opencl
from harness.errors import DeviceError

CPU, GPU = 2, 4


class OpenCLError(Exception):
    """Stands for pyopencl.Error."""


def platform(name, **devices):
    """A platform with devices by name, each of a type."""
    made = SimpleNamespace(name=name)
    handles = [SimpleNamespace(name=each, type=kind, platform=made) for each, kind in devices.items()]
    made.get_devices = lambda: handles
    return made


@pytest.fixture
def platforms(monkeypatch):
    """The platforms that the loader finds: a list to fill."""
    found: list[SimpleNamespace] = []
    library = SimpleNamespace(
        Error=OpenCLError,
        device_type=SimpleNamespace(CPU=CPU, GPU=GPU),
        get_platforms=lambda: found,
    )
    monkeypatch.setattr(opencl, "_pyopencl", lambda: library)
    return found


def names():
    return [handle.name for handle in opencl._handles()]


def test_gpus_come_first_and_simulators_last(platforms):
    platforms += [
        platform("Oclgrind", simulator=CPU | GPU),
        platform("Intel(R) OpenCL", processor=CPU),
        platform("Vendor", first=GPU, second=GPU),
    ]
    assert names() == ["first", "second", "processor", "simulator"]


def test_a_simulator_alone_is_a_device(platforms):
    platforms.append(platform("Oclgrind", simulator=CPU))
    assert names() == ["simulator"]


def test_platforms_without_a_device_are_a_sentence(platforms):
    platforms.append(platform("Vendor"))
    with pytest.raises(DeviceError, match="OpenCL has platforms but no device"):
        opencl._handles()


def test_without_a_cache_intels_runtime_is_found_all_the_same(monkeypatch, tmp_path):
    runtime = tmp_path / "lib" / "libintelocl.so"
    runtime.parent.mkdir()
    runtime.touch()
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("OCL_ICD_VENDORS", "")
    monkeypatch.delenv("OCL_ICD_VENDORS")
    monkeypatch.delenv("OCL_ICD_FILENAMES", raising=False)
    opencl._point_loader_at_runtimes()
    vendors = Path(os.environ["OCL_ICD_VENDORS"])
    assert (vendors / "harness-intel-cpu.icd").read_text(encoding="utf-8") == f"{runtime}\n"
