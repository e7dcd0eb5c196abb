"""asv plugin that measures kernels over commits.

To use it, add this module's name, with a dot in front, to "plugins" in asv.conf.json.

- An environment type, ``checkout``: the current interpreter. Nothing is built or installed per commit.
  Kernels come from git's object store, so a working tree cannot affect an older commit's results.
- One measurement for many tracks: a class measures once, in setup_cache, and its values are read in this
  process. asv would start a process for each track, kernel and size.
- Machines: the card is registered automatically, and an update of its driver does not split a history.
- Pages that need no network (`publish`), and changes to asv's commands (`commands`).

An asv.conf.json that names ``checkout`` cannot run without this module, because asv does not know the type
then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log
from asv.machine import Machine, MachineCollection

from harness.config import load_config
from harness.device.machine import ANNOTATIONS
from harness.errors import HarnessError
from harness.integrations.asv import checkout, commands, publish
from harness.integrations.asv.conf import register
from harness.integrations.asv.tracks import AsvRequest

_ = checkout, publish  # asv finds environments and publishers by subclass: importing is enough


def setup() -> None:
    """Set up the plugin. asv calls this after the import; a second call does nothing."""
    if getattr(Machine.load, "registers", False):
        return
    commands.setup()
    original_load, original_save = Machine.load, Machine.save

    def load(
        interactive: bool = False,
        force_interactive: bool = False,
        machine_name: str | None = None,
        **kwargs: Any,
    ) -> Any:
        machine = None
        if interactive and not force_interactive and kwargs.get("_path") is None:
            entry = _register(machine_name)
            machine_name = entry["machine"]
            if AsvRequest.given().dry_run:
                machine = Machine()
                vars(machine).update(entry)
        machine = machine or original_load(
            interactive=interactive, force_interactive=force_interactive, machine_name=machine_name, **kwargs
        )
        os.environ.update(AsvRequest.given(machine=machine.machine).variables)
        for key in ANNOTATIONS:
            machine.__dict__.pop(key, None)
        return machine

    def save(self: Any, results_dir: str) -> None:
        if AsvRequest.given().dry_run:
            return
        original_save(self, results_dir)
        try:
            registered = MachineCollection.load(self.machine)
        except util.UserError:
            return
        notes = {key: registered[key] for key in ANNOTATIONS if key in registered}
        path = Path(results_dir) / self.machine / "machine.json"
        util.write_json(str(path), {**self.__dict__, **notes}, self.api_version)

    load.registers = True  # type: ignore[attr-defined]
    Machine.load = staticmethod(load)
    Machine.save = save


def _register(asked: str | None) -> dict[str, str]:
    """Register the measured card, so that its results are not added to another card's history."""
    try:
        registered = register(load_config().device, write=not AsvRequest.given().dry_run)
    except HarnessError as error:
        raise util.UserError(error.message) from error
    entry = registered.entry
    if asked not in (None, entry["machine"]):
        raise util.UserError(
            f"--machine is {asked!r}, but the device to measure on is {entry['machine']!r}. "
            "Leave --machine out, or choose another device with HARNESS_DEVICE."
        )
    os.environ.update(AsvRequest.given(device_kind=registered.device.kind).variables)
    log.info(f"Machine: {entry['machine']} ({entry['gpu']})")
    return entry
