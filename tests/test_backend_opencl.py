"""Decisions and messages of the OpenCL backend before it opens a device, on made-up platforms."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.device import lock
from harness.device.backends import opencl
from harness.errors import BuildError, DeviceError
from harness.suite.sources import Program

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


class Odd:
    """An object of a driver that refuses everything in the same way."""

    def __init__(self, error, **known):
        self.__dict__ |= known
        self.error = error

    def __getattr__(self, name):
        raise self.error


NO_UTF_8 = UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte")


def test_a_platform_that_raises_costs_no_other_platform(platforms):
    platforms += [Odd(OSError("stale"), name="Broken"), platform("Vendor", first=GPU)]
    assert names() == ["first"]
    del platforms[1]
    with pytest.raises(DeviceError, match=r"no device \(Broken: OSError: stale\)"):
        opencl._handles()


def test_a_loader_that_raises_is_a_sentence(platforms, monkeypatch):
    def raises():
        raise NO_UTF_8

    monkeypatch.setattr(opencl._pyopencl(), "get_platforms", raises)
    with pytest.raises(DeviceError, match="OpenCL has no platform"):
        opencl._handles()


def test_a_device_whose_name_is_no_utf_8_is_a_device_all_the_same(platforms):
    known = {name: value for name, value in CARD.items() if isinstance(value, int | list)}
    odd = Odd(NO_UTF_8, **known, platform=Odd(NO_UTF_8))
    platforms.append(Odd(NO_UTF_8, get_devices=lambda: [odd]))
    [found] = opencl.devices()
    for told in (found.name, found.vendor, found.driver):
        assert told.startswith("unavailable: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xf8")
    assert found.compute_units == CARD["max_compute_units"]


CARD = {
    "name": "NVIDIA H100 80GB HBM3",
    "type": GPU,
    "driver_version": "580.95.05",
    "version": "OpenCL 3.0 CUDA",
    "max_work_item_sizes": [1024, 1024, 64],
    "max_compute_units": 132,
    "global_mem_size": 80 * 2**30,
    "global_mem_cache_size": 0,
    "max_work_group_size": 1024,
    "local_mem_size": 48 * 2**10,
    "max_clock_frequency": 1980,
}


def test_each_of_several_cards_is_found_by_nvml_and_locked_alone(platforms):
    names = {"platform": SimpleNamespace(name="NVIDIA CUDA", vendor="NVIDIA Corporation")}
    first, second = (
        opencl._describe(
            index,
            SimpleNamespace(**CARD, **names, pci_domain_id_nv=1, pci_bus_id_nv=bus, pci_slot_id_nv=8),
        )
        for index, bus in enumerate((0x65, 0xC4))
    )
    assert (first.pci_bus_id, second.pci_bus_id) == ("00000001:65:01.0", "00000001:c4:01.0")
    assert lock._path(first) != lock._path(second)
    other = opencl._describe(0, SimpleNamespace(**CARD, **names))
    assert (other.pci_bus_id, other.uuid) == (None, None)


def test_the_names_that_are_asked_are_pyopencls():
    cl = pytest.importorskip("pyopencl")
    for name in ("pci_domain_id_nv", "pci_bus_id_nv", "pci_slot_id_nv", "warp_size_nv"):
        assert hasattr(cl.Device, name), name


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


@pytest.mark.parametrize(("text", "there"), [("", "none"), ("__kernel void other(int n) {}", "other")])
def test_a_source_without_the_function_is_told_with_those_that_it_has(text, there):
    with closing(opencl.open_device(0)) as device, pytest.raises(BuildError) as raised:
        device.build(Program("toy.one", "one", text))
    assert f"The source has {there}: name the function by entry." in raised.value.message
