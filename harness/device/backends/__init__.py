"""Backends by name, and the choice of a device.

Importing this imports no GPU library. A backend's module does that only when it is asked for devices.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from harness.device.backends.base import Backend, Device
from harness.device.plausible_ranges import reason_of
from harness.errors import DeviceError, HarnessError, UsageError
from harness.records.types import DeviceInfo

BACKENDS = ("cuda", "opencl", "opengl", "cpu", "null")
DEFAULT_ORDER = ("cuda", "opencl", "opengl", "cpu")
"""Order of backends for the default device. The null backend's times are made up, so it is never
a default."""


@dataclass(frozen=True)
class Survey:
    """Devices of a backend."""

    backend: str
    devices: tuple[DeviceInfo, ...]
    problem: str = ""
    """Reason why there is no device, and what to do; empty if there is one."""


def parse_spec(spec: str) -> tuple[str, int]:
    """Return backend name and index of ``cuda:0``, ``cuda`` (the first) or ``null``. Raises UsageError."""
    name, _, index = spec.partition(":")
    if name not in BACKENDS or not re.fullmatch(r"[0-9]{0,4}", index):
        raise UsageError(
            f"Unknown device {spec!r}: expected BACKEND or BACKEND:INDEX, such as cuda:0, with a "
            f"backend of {', '.join(BACKENDS)}. 'harness devices' lists what this machine has."
        )
    return name, int(index or 0)


@contextlib.contextmanager
def _backend(name: str) -> Iterator[Backend]:
    """Yield a backend, and turn its library's errors into DeviceError, so that other backends still work."""
    try:
        yield cast("Backend", importlib.import_module(f"harness.device.backends.{name}"))
    except HarnessError:
        raise
    except Exception as error:
        raise DeviceError(
            f"{name} is unavailable: its library raised {reason_of(error)}. See what the vendor's own tool "
            "says of the device, such as nvidia-smi or clinfo."
        ) from error


def devices_of(name: str) -> list[DeviceInfo]:
    """Return the devices of a backend, without opening one. Raises DeviceError with a remedy."""
    with _backend(name) as backend:
        return backend.devices()


def survey(names: tuple[str, ...] = DEFAULT_ORDER) -> list[Survey]:
    """Return every backend's devices, or why it has none."""
    found = []
    for name in names:
        try:
            found.append(Survey(name, tuple(devices_of(name))))
        except DeviceError as error:
            found.append(Survey(name, (), error.message))
    return found


def described(spec: str) -> DeviceInfo:
    """Return the device that `spec` names, without opening it. Raises UsageError and DeviceError."""
    name, index = parse_spec(spec)
    devices = devices_of(name)
    if index >= len(devices):
        listed = ", ".join(f"{device.spec} ({device.name})" for device in devices) or "none"
        raise DeviceError(f"There is no device {name}:{index}. Devices of this backend: {listed}.")
    return devices[index]


def open_device(spec: str | None) -> Device:
    """Return the device that `spec` names, or the first that works. Raises UsageError and DeviceError."""
    if spec is not None:
        name, index = parse_spec(described(spec).spec)
        with _backend(name) as backend:
            return backend.open_device(index)
    problems = ["No device works on this machine."]
    for name in DEFAULT_ORDER:
        try:
            with _backend(name) as backend:
                if backend.devices():
                    return backend.open_device(0)
        except DeviceError as error:
            problems.append(f"  {name}: {error.message}")
    raise DeviceError("\n".join(problems))
