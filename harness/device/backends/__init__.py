"""Backends by name, and the choice of a device.

Importing this imports no GPU library; a backend's module does so only when it is asked for devices.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from harness.device.backends.base import Backend, Device
from harness.device.plausible_ranges import reason_of
from harness.errors import DeviceError, HarnessError, UsageError
from harness.records.types import DeviceInfo

BACKENDS = ("cuda", "opencl", "opengl", "cpu", "null")
DEFAULT_ORDER = ("cuda", "opencl", "opengl", "cpu")
"""The null backend's times are made up, so it is never chosen for anybody."""


@dataclass(frozen=True)
class Survey:
    """What one backend found."""

    backend: str
    devices: tuple[DeviceInfo, ...]
    problem: str = ""
    """Why there is no device, and what to do; empty where there is one."""


def parse_spec(spec: str) -> tuple[str, int]:
    """``cuda:0``, ``cuda`` (the first) or ``null`` as backend name and index. Raises UsageError."""
    name, _, index = spec.partition(":")
    if name not in BACKENDS or (index and not index.isdecimal()):
        raise UsageError(
            f"Unknown device {spec!r}: expected BACKEND or BACKEND:INDEX, such as cuda:0, with a "
            f"backend of {', '.join(BACKENDS)}. 'harness devices' lists what this machine has."
        )
    return name, int(index or 0)


def _backend(name: str) -> Backend:
    return cast("Backend", importlib.import_module(f"harness.device.backends.{name}"))


@contextlib.contextmanager
def _unavailable(name: str) -> Iterator[None]:
    """Turn whatever the library of a backend raises into DeviceError, which no other backend suffers from."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise DeviceError(
            f"{name} is unavailable: its library raised {reason_of(error)}. See what the vendor's own tool "
            "says of the device, such as nvidia-smi or clinfo."
        ) from error


def _devices(name: str) -> Sequence[DeviceInfo]:
    with _unavailable(name):
        return _backend(name).devices()


def _opened(name: str, index: int) -> Device:
    with _unavailable(name):
        return _backend(name).open_device(index)


def survey(names: tuple[str, ...] = DEFAULT_ORDER) -> list[Survey]:
    """Every backend's devices, or why it has none."""
    found = []
    for name in names:
        try:
            found.append(Survey(name, tuple(_devices(name))))
        except DeviceError as error:
            found.append(Survey(name, (), error.message))
    return found


def open_device(spec: str | None) -> Device:
    """Return the device that `spec` names, or the first that works. Raises UsageError and DeviceError."""
    if spec is not None:
        name, index = parse_spec(spec)
        devices = _devices(name)
        if index >= len(devices):
            listed = ", ".join(f"{device.spec} ({device.name})" for device in devices) or "none"
            raise DeviceError(f"There is no device {name}:{index}. Devices of this backend: {listed}.")
        return _opened(name, index)
    problems = ["No device works on this machine."]
    for name in DEFAULT_ORDER:
        try:
            if _devices(name):
                return _opened(name, 0)
        except DeviceError as error:
            problems.append(f"  {name}: {error.message}")
    raise DeviceError("\n".join(problems))
