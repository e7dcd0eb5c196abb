"""The CUDA backend where no card is: in what order it asks the driver for what."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.backends import cuda
from harness.device.backends.cuda import CudaBuilt, CudaDevice
from harness.errors import LaunchError
from harness.records import Launch


@pytest.fixture
def told(monkeypatch):
    """A device that enqueues nothing, and what it would have."""
    told: list[str] = []
    monkeypatch.setattr(cuda, "_forget_persisting", lambda stream: told.append("forget"))
    device: Any = object.__new__(CudaDevice)
    device.info = SimpleNamespace(l2_bytes=1, compute_units=1)
    device.stream = SimpleNamespace(handle=0, synchronize=lambda: told.append("wait"))
    device._idle, device._held, device._flush = True, 0, ("flush", 0, 0, 1)
    device.__dict__ |= {"_gate": ("hold", [0], 0), "_helpers_occupy": "occupy"}
    device._enqueue = lambda function, launch, arguments: told.append(function)
    return device, told


@pytest.mark.parametrize("how", ["hold", "occupy"])
def test_what_waits_for_the_card_comes_before_what_keeps_it(monkeypatch, told, how):
    """Else the host would wait for a card that waits for the host."""
    monkeypatch.setattr(cuda, "_translated", lambda what: nullcontext())
    device, said = told
    for _ in range(2):
        device.hold() if how == "hold" else device.occupy(1)
        device.flush_l2()
        device.flush_l2()
        device.synchronize()
    assert said == ["forget", how, "flush", "flush", "wait"] * 2


class Driver:
    """The driver's library as far as it tells how many blocks stay resident."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.asked = failing, dict[str, list[Any]]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.asked[name] = [getattr(each, "value", each) for each in arguments]
            if name == "cuOccupancyMaxActiveBlocksPerMultiprocessor":
                arguments[0]._obj.value = 6
            return 218 if name == self.failing else 0

        return call


def resident(monkeypatch, driver, *, shared=0, image=(b"cubin", "wave")):
    monkeypatch.setattr(cuda, "_libcuda", lambda: driver)
    device: Any = object.__new__(CudaDevice)
    launch = Launch(grid=(1, 1, 1), block=(32, 4, 2), dynamic_shared_bytes=shared)
    return device.resident_blocks(CudaBuilt(image=image), launch)


@pytest.mark.parametrize(("shared", "raised"), [(48 * 1024, False), (48 * 1024 + 4, True)])
def test_the_driver_is_asked_how_many_blocks_stay_resident(monkeypatch, shared, raised):
    """Beyond 48 KiB of dynamic shared memory it says 0 unless the function was allowed it."""
    driver = Driver()
    assert resident(monkeypatch, driver, shared=shared) == 6
    assert driver.asked["cuModuleLoadData"][1] == b"cubin"
    assert driver.asked["cuModuleGetFunction"][2] == b"wave"
    assert driver.asked["cuOccupancyMaxActiveBlocksPerMultiprocessor"][2:] == [256, shared]
    assert driver.asked.get("cuFuncSetAttribute", [0, 8, shared])[1:] == [8, shared]
    assert ("cuFuncSetAttribute" in driver.asked) == raised
    assert "cuModuleUnload" in driver.asked


def test_a_driver_that_does_not_answer_is_an_error_with_its_number(monkeypatch):
    driver = Driver(failing="cuModuleGetFunction")
    with pytest.raises(LaunchError, match=r"how many blocks of wave stay resident: cuModuleGetFunction gave"):
        resident(monkeypatch, driver)
    assert "cuModuleUnload" in driver.asked


def test_of_host_code_nobody_knows_how_many_blocks_stay_resident(monkeypatch):
    assert resident(monkeypatch, Driver(), image=None) is None
    assert resident(monkeypatch, None) is None
