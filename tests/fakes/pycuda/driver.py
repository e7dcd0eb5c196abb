"""The part of pycuda.driver that inspects and opens a card. It computes nothing."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

TOLD = os.environ["FAKE_CUDA"]
if TOLD == "no driver":
    raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")


class Error(Exception):
    pass


class MemoryError(Error):  # noqa: A001 - PyCUDA's own name
    pass


class LogicError(Error):
    pass


class LaunchError(Error):
    pass


class RuntimeError(Error):  # noqa: A001 - as above
    pass


class CompileError(Error):
    pass


VALUES = {
    "MULTIPROCESSOR_COUNT": 40,
    "L2_CACHE_SIZE": 4 * 2**20,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024,
    "CLOCK_RATE": 1590000,
}
device_attribute = SimpleNamespace(**{name: name for name in VALUES})


def init() -> None:
    if TOLD == "init raises":
        raise OSError("the driver is of another version")
    if TOLD == "init fails":
        raise RuntimeError("cuInit failed: no CUDA-capable device is detected")


def get_driver_version() -> int:
    return 13000


class Context:
    def push(self) -> None:
        pass

    def pop(self) -> None:
        pass

    def detach(self) -> None:
        pass


class Stream:
    def synchronize(self) -> None:
        pass


class Device:
    def __init__(self, index: int) -> None:
        self.index = index

    @staticmethod
    def count() -> int:
        return 1 if TOLD in ("odd name", "odd card") else int(TOLD)

    def name(self) -> str:
        if TOLD == "odd name":
            return b"\xf8\x01".decode()
        return f"Fake Card {self.index}"

    def pci_bus_id(self) -> str:
        return f"0000:0{self.index}:00.0"

    def compute_capability(self) -> tuple[int, int]:
        if TOLD == "odd card":
            raise ValueError("a card from the future")
        return 7, 5

    def total_memory(self) -> int:
        return 16 * 2**30

    def get_attribute(self, name: str) -> int:
        return VALUES[name]

    def retain_primary_context(self) -> Any:
        return Context()
