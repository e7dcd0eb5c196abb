"""Options of asv's that reach into a measurement: `--dry-run` and `--skip-save` write nothing, a part of the
cases is measured by itself, and an asv that is told to end cleans up as after Ctrl-C.

asv measures by way of `run_benchmarks`, which alone knows which parameters were asked for; setup_cache, which
measures, is told by variables.
"""

from __future__ import annotations

__all__ = ["replaced", "setup"]

import functools
import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from asv import util
from asv.benchmarks import Benchmarks
from asv.commands import find, run

from harness.integrations.asv.tracks import DRY_RUN, ENVIRONMENT, SELECTED


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


def _measuring(command: Callable[..., Any], dry: str) -> Callable[..., Any]:
    """A command that measures: with the option `dry` it writes nothing at all, where asv by itself would
    still write the machine and the list of benchmarks.
    """

    @functools.wraps(command)
    def commanded(cls: Any, *args: Any, **options: Any) -> Any:
        with _cleaned_up():
            if not options.get(dry):
                return command(cls, *args, **options)
            with _variables({DRY_RUN: "1"}), replaced(Benchmarks, save=lambda _: None):
                return command(cls, *args, **options)

    return commanded


def _selecting(run_benchmarks: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_benchmarks)
    def selecting(benchmarks: Any, env: Any, *args: Any, **options: Any) -> Any:
        with _variables({SELECTED: json.dumps(_selected(benchmarks)), ENVIRONMENT: env.name}):
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
def _variables(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
