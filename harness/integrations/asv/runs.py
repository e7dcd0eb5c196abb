"""Options of asv's that reach into a measurement: `--dry-run` and `--skip-save` write nothing, a part of the
cases is measured by itself, and an asv that is told to end cleans up as after Ctrl-C.

asv measures by way of `run_benchmarks`, which alone knows which parameters were asked for; setup_cache, which
measures, is told by a Request.
"""

from __future__ import annotations

__all__ = ["replaced", "setup", "when_called"]

import functools
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from asv import util
from asv.benchmarks import Benchmarks
from asv.commands import find, run

from harness.integrations.asv.tracks import Request


def setup() -> None:
    """Change what asv's commands do; to be called once."""
    for module in (run, find):
        module.run_benchmarks = _selecting(module.run_benchmarks)
    run.Run.run = classmethod(_measuring(run.Run.run.__func__, "dry_run"))
    find.Find.run = classmethod(_measuring(find.Find.run.__func__, "skip_save"))


@contextmanager
def replaced(owner: Any, **names: Any) -> Iterator[None]:
    """Names of a module or class exchanged for as long as one of asv's commands runs."""
    before = {name: vars(owner)[name] for name in names}
    for name, value in names.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def when_called(commands: Sequence[Any], change: Callable[[], None]) -> None:
    """Make a change to asv once one of these commands is called: the others do not depend on it."""
    before = {command: vars(command)["run"] for command in commands}

    def changed(cls: Any, *args: Any, **options: Any) -> Any:
        for command, own in before.items():
            command.run = own
        change()
        return cls.run(*args, **options)

    for command in commands:
        command.run = classmethod(changed)


def _measuring(command: Callable[..., Any], dry: str) -> Callable[..., Any]:
    """A command that measures: with the option `dry` it writes nothing at all, where asv by itself would
    still write the machine and the list of benchmarks.
    """

    @functools.wraps(command)
    def commanded(cls: Any, *args: Any, **options: Any) -> Any:
        with _cleaned_up():
            if not options.get(dry):
                return command(cls, *args, **options)
            with _requesting(dry_run=True), replaced(Benchmarks, save=lambda _: None):
                return command(cls, *args, **options)

    return commanded


def _selecting(run_benchmarks: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_benchmarks)
    def selecting(benchmarks: Any, env: Any, *args: Any, **options: Any) -> Any:
        with _requesting(selected=_selected(benchmarks), environment=env.name):
            return run_benchmarks(benchmarks, env, *args, **options)

    return selecting


def _selected(benchmarks: Any) -> dict[str, list[int]]:
    """Of each class of which only some parameters were asked for, by any of its tracks: their places."""
    asked: dict[str, set[int]] = defaultdict(set)
    combinations: dict[str, int] = {}
    for name, benchmark in benchmarks.items():
        group = name.rpartition(".")[0]
        combinations[group] = prod(map(len, benchmark["params"]))
        asked[group].update(benchmarks.benchmark_selection.get(name) or ())
    return {group: sorted(places) for group, places in asked.items() if len(places) < combinations[group]}


@contextmanager
def _requesting(**facts: Any) -> Iterator[None]:
    """While it lasts, these facts are part of what asv's processes are asked."""
    given = Request.given()
    before = {name: getattr(given, name) for name in facts}
    os.environ.update(Request.given(**facts).variables)
    try:
        yield
    finally:
        os.environ.update(Request.given(**before).variables)


@contextmanager
def _cleaned_up() -> Iterator[None]:
    """While it lasts, TERM and HUP end asv by way of its own cleaning up; by themselves they would end it on
    the spot and leave its temporary folders. What is ignored, as HUP under nohup, stays so.
    """
    both = (signal.SIGTERM, signal.SIGHUP) if util.is_main_thread() else ()
    numbers = [number for number in both if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
