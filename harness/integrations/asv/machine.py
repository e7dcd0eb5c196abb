"""Cards as asv machines: asv's machine file is written from the device, so asv never has a question to
ask.
"""

from __future__ import annotations

__all__ = ["Registration", "machine_file", "register"]

import json
from dataclasses import dataclass
from pathlib import Path

from harness.device.host import describe_host
from harness.device.machine import machine_entry
from harness.errors import ConfigError, StoreError
from harness.records import DeviceInfo
from harness.run.device_session import find_device
from harness.system.cache import write_atomically
from harness.system.files import read_regular

_API_VERSION = 1


def machine_file() -> Path:
    return Path("~/.asv-machine.json").expanduser()


@dataclass(frozen=True, slots=True)
class Registration:
    """A card in asv's machine file."""

    file: Path
    entry: dict[str, str]
    device: DeviceInfo


def register(spec: str | None, *, write: bool = True) -> Registration:
    """Put the device into asv's machine file, leaving every other machine alone; without `write`, tell only
    what would be put there.

    Raises ConfigError for a file that is no machine file, StoreError where it cannot be written.
    """
    device = find_device(spec)
    entry = machine_entry(device, describe_host())
    path = machine_file()
    machines = _read(path)
    if write and machines.get(entry["machine"]) != entry:
        machines[entry["machine"]] = entry
        try:
            write_atomically(path, json.dumps(machines, indent=4, sort_keys=True).encode())
        except OSError as error:
            raise StoreError(
                f"Cannot write {path}: {error.strerror or error}. asv reads its machines from there."
            ) from None
    return Registration(path, entry, device)


def _read(path: Path) -> dict[str, object]:
    try:
        machines = json.loads(read_regular(path))
    except FileNotFoundError:
        return {"version": _API_VERSION}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no machine file of asv's: {error}. Mend it, or move it away.") from None
    if not isinstance(machines, dict):
        raise ConfigError(
            f"{path} is no machine file of asv's: it holds no JSON object. Mend it, or move it away."
        )
    return machines
