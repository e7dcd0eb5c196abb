"""Replaces a script's timing calls, and executes the comparing process's orders at each."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import time
import types

from . import arrays, autotuning, frames, timers
from .link import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

SETTINGS = "settings.json"
"""File in a side's folder with the settings of the recording."""
_WITH_DEVICE = ("cupy", "jax")
"""Frameworks that may open the device when they are imported."""
_SEEDED = ("torch", "cupy", "numpy.random")


class Recording:
    """The recording of one process."""

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, SETTINGS), encoding="utf-8") as file:
            settings = json.load(file)
        self.link = Link(folder)
        self._authors: list[str] = [os.path.join(each, "") for each in settings["folders"]]
        self._script: str = settings["script"]
        self._ignored = tuple(settings["ignored"])
        self._seed: int = settings["seed"]
        self.own: list[str] = settings["timers"]
        """The author's own timers: ``function``, or ``module:function``."""
        self._inside = False
        self._observed: arrays.Observed | None = None
        self.by_hand: dict[str, Callable[[Any], None]] = {
            "triton.testing": _plain_reports,
            timers.TORCH_TIMER: self._patch_torch,
            timers.PYTEST_FIXTURE: self._patch_pytest,
            "_pytest.assertion.rewrite": self._watch_pytest,
            "numpy.random": self._seed_generators,
            autotuning.MODULE: autotuning.keep_tuned,
            "torch.cuda": self._wait_before,
        }
        """Changes of modules beyond replacing a timer function."""

    def is_authors(self, path: str) -> bool:
        if path.startswith("<"):
            return False
        real = os.path.realpath(path)
        parts = real.split(os.sep)
        return real == self._script or (
            any(real.startswith(each) for each in self._authors)
            and not {"site-packages", "dist-packages"}.intersection(parts)
        )

    # Calls

    def take(self, make: Callable[[], timers.TimedCall], original: Callable[[], Any]) -> Any:
        """Record a call of a timer; return the result for the author's code."""
        if not self._inside and frames.in_autotuner(self._ignored):
            with self.link.alone():
                return original()
        if self._inside or not self.link.is_open():
            return original()
        self._inside = True
        try:
            call = make()
            message = {
                "at": "call",
                "pid": os.getpid(),
                "timer": call.timer,
                "clock": call.clock,
                "l2": call.l2,
                "test": call.test,
                "params": call.params,
                **frames.describe(call.fn, self.is_authors, call.labels),
            }
            while (order := self.link.ask(message))["do"] != "go":
                message = self._obeyed(order, call)
            self._observed = None
            return call.result()
        finally:
            self._inside = False
            arrays.seed_all(self._seed)

    def _obeyed(self, order: dict[str, Any], call: timers.TimedCall) -> dict[str, Any]:
        try:
            return {"at": "done", **getattr(self, f"_{order['do']}")(order, call)}
        except Exception as error:  # noqa: BLE001 - the author's function may raise anything
            message = " ".join([str(error)[:2000], *getattr(error, "__notes__", ())])
            return {"at": "error", "error": type(error).__name__, "message": message.strip()}

    def _sample(self, order: dict[str, Any], call: timers.TimedCall) -> dict[str, Any]:
        began_ns = time.monotonic_ns()
        times_ns, launches = call.sample(order["budget_ms"])
        arrays.synchronize()
        return {
            "times_ns": times_ns,
            "launches": launches,
            "started_ns": began_ns,
            "ended_ns": time.monotonic_ns(),
        }

    def _outputs(self, order: dict[str, Any], call: timers.TimedCall) -> dict[str, Any]:
        if self._observed is None:
            self._observed = arrays.Observed(call.run, call.fn, call.roots)
        asked = {name: order[name] for name in ("path", "rolled", "inputs_to", "inputs_from")}
        return self._observed.once(self._seed, **asked)

    # Patches

    def patch(self, module: types.ModuleType) -> None:
        """Replace a module's timers by recorded functions, and seed a framework."""
        name = module.__name__
        for function, timer in timers.TIMERS.get(name, {}).items():
            if callable(original := getattr(module, function, None)):
                make = functools.partial(timers.LibraryCall, timer)
                setattr(module, function, self._recorded(original, make))
        if change := self.by_hand.get(name):
            change(module)
        self.patch_own(module)
        if name in _WITH_DEVICE:
            self.link.wait_for_device()
        if name in _SEEDED:
            arrays.seed_all(self._seed)

    def _wait_before(self, cuda: Any) -> None:
        """Make PyTorch open the device only when the script may use it."""
        original = cuda._lazy_init

        def opened() -> None:
            if not cuda.is_initialized():
                self.link.wait_as_original()
            original()

        cuda._lazy_init = opened

    def _seed_generators(self, module: Any) -> None:
        """Seed generators of numpy.random that the author creates without a seed."""
        original = module.default_rng

        @functools.wraps(original)
        def seeded(given: Any = None) -> Any:
            return original(self._seed if given is None else given)

        module.default_rng = seeded

    def patch_own(self, module: types.ModuleType) -> bool:
        """Replace the author's own timers; return True if the module has one."""
        done = False
        for timer in self.own:
            place, _, function = timer.rpartition(":")
            original = vars(module).get(function)
            if not isinstance(original, types.FunctionType) or place not in ("", module.__name__):
                continue
            if place or original.__module__ == module.__name__:
                if not hasattr(original, "_harness_recorded"):
                    make = functools.partial(timers.OwnCall, function)
                    recorded = self._recorded(original, make, timers.is_given_a_function)
                    recorded._harness_recorded = True
                    setattr(module, function, recorded)
                done = True
        return done

    def _recorded(
        self,
        original: Callable[..., Any],
        make: Callable[[Callable[..., Any], Any, Any], timers.TimedCall],
        is_timing: Callable[[Any, Any], bool] = lambda _args, _kwargs: True,
    ) -> Any:
        """Return a replacement for a timer. It records the calls that time something."""

        @functools.wraps(original)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if not is_timing(args, kwargs):
                return original(*args, **kwargs)
            return self.take(lambda: make(original, args, kwargs), lambda: original(*args, **kwargs))

        return recorded

    def _patch_torch(self, module: Any) -> None:
        kind = module.Timer
        kind._harness_timeit = kind.timeit
        for method in timers.TORCH_METHODS:
            if callable(original := getattr(kind, method, None)):
                setattr(kind, method, self._recorded(original, functools.partial(timers.TorchCall, method)))

    def _watch_pytest(self, rewrite: Any) -> None:
        """Patch modules that pytest's own finder loads: plugins and tests, which no other finder sees."""
        kind = rewrite.AssertionRewritingHook
        execute = kind.exec_module

        def executed(loader: Any, module: types.ModuleType) -> None:
            execute(loader, module)
            self.patch(module)

        kind.exec_module = executed

    def _patch_pytest(self, module: Any) -> None:
        kind = module.BenchmarkFixture
        make = functools.partial(timers.PytestCall, kind.pedantic)
        for method in ("__call__", "pedantic"):
            setattr(kind, method, self._recorded(getattr(kind, method), make, timers.times_by_itself))


def _plain_reports(module: Any) -> None:
    if hasattr(module, "Mark"):
        module.Mark.run = functools.partialmethod(_run_report)


def _run_report(
    mark: Any, *_args: Any, return_df: bool = False, print_data: bool = False, **kwargs: Any
) -> Any:
    """Run all rows of a `perf_report` like Triton, but without plots, which need a window."""
    benchmarks = mark.benchmarks if isinstance(mark.benchmarks, (list, tuple)) else [mark.benchmarks]
    options = {
        name: each
        for name, each in kwargs.items()
        if name not in ("show_plots", "save_path", "diff_col", "save_precision")
    }
    tables = []
    for bench in benchmarks:
        rows = []
        for x in bench.x_vals:
            values = x if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            places = dict(zip(bench.x_names, values))
            line = {
                provider: _first(mark.fn(**places, **{bench.line_arg: provider}, **bench.args, **options))
                for provider in bench.line_vals
            }
            rows.append({**places, **line})
        tables.append(rows)
        if print_data:
            sys.stdout.write(f"{bench.plot_name}:\n" + "".join(f"{row}\n" for row in rows))
    return _frames_of(tables, benchmarks) if return_df else None


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, (list, tuple)) else found


def _frames_of(tables: list[Any], benchmarks: Sequence[Any]) -> Any:
    import pandas as pd  # type: ignore[import-untyped]  # whoever asks for a frame has it

    found = [pd.DataFrame(rows) for rows in tables]
    return found if len(benchmarks) > 1 else found[0]


class ImportHook:
    """First finder of a process. It patches a module as soon as it is loaded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._wanted = {*timers.TIMERS, *recording.by_hand, *_SEEDED, *_WITH_DEVICE}
        self._wanted.update(place for each in recording.own if (place := each.rpartition(":")[0]))
        self._anywhere = any(":" not in each for each in recording.own)
        self._asked: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self._asked or not (self._anywhere or name in self._wanted):
            return None
        self._asked.add(name)  # another finder may also ask all others
        try:
            found = next(filter(None, (each.find_spec(name, path, target) for each in self._others())), None)
        finally:
            self._asked.discard(name)
        if found is not None:
            self._watch(found)
        return found

    def _others(self) -> list[Any]:
        return [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]

    def _watch(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def executed(module: types.ModuleType) -> None:
            execute(module)
            self._recording.patch(module)

        try:
            loader.exec_module = executed  # type: ignore[union-attr, method-assign]
        except AttributeError:
            return


def _watch_script(recording: Recording) -> None:
    """Patch a timer that the script itself defines, right after its definition has run."""

    def local(frame: types.FrameType, _event: str, _arg: Any) -> Any:
        main = sys.modules.get("__main__")
        if main is not None and recording.patch_own(main):
            sys.settrace(None)
            frame.f_trace = None
            return None
        return local

    def called(frame: types.FrameType, _event: str, _arg: Any) -> Any:
        is_main = frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__"
        return local if is_main else None

    sys.settrace(called)


def begin(folder: str) -> None:
    """Record this process, with the side's folder `folder`."""
    try:
        recording = Recording(folder)
    except OSError:
        return  # A process that outlives the comparison starts another one.
    sys.meta_path.insert(0, ImportHook(recording))
    if any(each.rpartition(":")[0] in ("", "__main__") for each in recording.own):
        _watch_script(recording)
    atexit.register(lambda: recording.link.ask({"at": "end"}))
