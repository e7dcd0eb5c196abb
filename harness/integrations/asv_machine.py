"""Cards as asv machines: asv's machine file is written from the device, so asv never has a question to
ask.
"""

from __future__ import annotations

__all__ = ["machine_file", "register"]

import json
from pathlib import Path

from harness.cache import write_atomically
from harness.errors import ConfigError, StoreError
from harness.host import describe_host
from harness.machine import machine_entry
from harness.session import find_device

_API_VERSION = 1


def machine_file() -> Path:
    return Path("~/.asv-machine.json").expanduser()


def register(spec: str | None) -> tuple[Path, dict[str, str]]:
    """Put the device into asv's machine file, leaving every other machine alone, and return the file and the
    entry.

    Raises ConfigError for a file that is no machine file, StoreError where it cannot be written.
    """
    entry = machine_entry(find_device(spec), describe_host())
    path = machine_file()
    machines = _read(path)
    if machines.get(entry["machine"]) != entry:
        machines[entry["machine"]] = entry
        try:
            write_atomically(path, json.dumps(machines, indent=4, sort_keys=True).encode())
        except OSError as error:
            raise StoreError(
                f"Cannot write {path}: {error.strerror or error}. asv reads its machines from there."
            ) from None
    return path, entry


def _read(path: Path) -> dict[str, object]:
    try:
        machines = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"version": _API_VERSION}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no machine file of asv's: {error}. Mend it, or move it away.") from None
    if not isinstance(machines, dict):
        raise ConfigError(
            f"{path} is no machine file of asv's: it holds no JSON object. Mend it, or move it away."
        )
    return machines
