"""A suite as data, which one process can tell another: all that suite.py says, with a number in place of each
function.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from harness.errors import NotToldError, NotYetKnownError, SuiteError
from harness.spec.kernel import (
    Generated,
    HostFunction,
    HostLibrary,
    Kernel,
    KernelSource,
    PythonFunction,
    Step,
)
from harness.spec.layout import Order
from harness.spec.problem import Array, Axis, Case, InOut, Input, Output, Problem, Scalar, number
from harness.spec.suite import Ladder, Suite
from harness.spec.tuning import Tuning
from harness.system.process import Failed, LostError, Process, Request
from harness.system.texts import harmless


class Function(msgspec.Struct, frozen=True, tag="function"):
    number: int
    name: str


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """A value that no suite should have here. Whoever uses it says so, by its text."""

    text: str

    def __repr__(self) -> str:
        return self.text


Plain = bool | int | float | str | None | Unknown
Asked = Plain | tuple[Any, ...] | Function
"""What a spec may be at a case: a value, a function to ask for one, or what is to be refused."""


class ArrayData(msgspec.Struct, frozen=True):
    kind: Literal["input", "output", "inout"]
    shape: tuple[str, ...]
    dtype: str | None
    init: str | None = None
    """A number's text: JSON has no infinity."""
    order: Order = "C"
    ld: Asked = None


class ScalarData(msgspec.Struct, frozen=True):
    value: Asked
    dtype: str


class ProblemData(msgspec.Struct, frozen=True):
    name: str
    about: str | None
    axes: tuple[Axis, ...]
    axis_of: dict[str, int]
    """Names of axes that share one are of one number."""
    arrays: dict[str, ArrayData]
    scalars: dict[str, ScalarData]
    independent: str | None
    flop: Function
    moved_bytes: Function
    has_reference: bool


class SourceData(msgspec.Struct, frozen=True):
    kind: Literal["file", "generated", "function", "library", "python"]
    file: str = ""
    name: str = ""
    framework: str = ""
    needs: tuple[str, ...] = ()
    errors: dict[int, str] = {}


class TuningData(msgspec.Struct, frozen=True):
    parameters: dict[str, tuple[Plain, ...]]
    configurations: tuple[dict[str, Plain], ...]
    rules: tuple[str | Function, ...]
    sizes: tuple[int | dict[str, int], ...]
    groups: dict[str, tuple[str, ...]]


class KernelData(msgspec.Struct, frozen=True):
    name: str
    sources: dict[str, SourceData]
    block: Asked
    grid: Asked
    macros: dict[str, Asked]
    entry: str
    instantiate: str
    dtype: str
    requires: str | None
    arch: str
    include: tuple[str, ...]
    dynamic_shared_bytes: Asked
    args: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    dispatch: Asked
    tune: TuningData | None
    library: bool
    about: str
    steps: tuple[dict[str, Asked], ...]
    workspace: dict[str, Asked]
    setup: Function | None


class SuiteData(msgspec.Struct, frozen=True, tag=True):
    name: str
    headline: str
    prelude: dict[str, str]
    problem: ProblemData
    kernels: tuple[KernelData, ...]
    include: tuple[str, ...]
    ladders: tuple[Ladder, ...]


class Load(Request[SuiteData], frozen=True):
    """Load the suite in a folder; the first message, once."""

    folder: str


class ReturnValue(msgspec.Struct, frozen=True, tag=True):
    value: Plain | tuple[Any, ...]
    asked_device: bool = False
    """Whether it was computed from the device, and is another on another."""


class FunctionCall(Request[ReturnValue], frozen=True):
    """Call a function of the suite at a case."""

    function: int
    case: Case


_PLAIN = (type(None), bool, int, float, str)


class Functions:
    """The functions of a suite by number, where it is loaded."""

    def __init__(self) -> None:
        self.all: list[Callable[..., Any]] = []

    def plain(self, value: Any) -> Any:
        """A value as JSON has it: functions by number, what JSON does not have by its text."""
        if isinstance(value, Mapping):
            return {key: self.plain(each) for key, each in value.items()}
        if isinstance(value, (tuple, list)):
            return [self.plain(each) for each in value]
        if callable(value):
            return self.number(value, str(getattr(value, "__name__", "<lambda>")))
        return value if type(value) in _PLAIN else msgspec.to_builtins(Unknown(repr(value)))

    def number(self, function: Callable[..., Any], name: str) -> Any:
        self.all.append(function)
        return msgspec.to_builtins(Function(len(self.all) - 1, name))

    def call(self, call: FunctionCall) -> ReturnValue:
        case = _Noting(**{each.name: getattr(call.case, each.name) for each in dataclasses.fields(Case)})
        value = self.plain(self.all[call.function](case))
        asked = "noted" in vars(case)
        return msgspec.convert({"type": "ReturnValue", "value": value, "asked_device": asked}, ReturnValue)


class _Noting(Case):
    """A case that notes whether its device was asked for."""

    def __getattr__(self, name: str) -> int:
        if name in ("device", "resident_blocks"):
            vars(self)["noted"] = True
        return super().__getattr__(name)


def describe(suite: Suite, functions: Functions) -> SuiteData:
    """The suite as data. Raises msgspec.ValidationError for what a suite cannot be."""
    plain = functions.plain
    problem = suite.problem
    axes = list({id(axis): axis for axis in problem.axes.values()}.values())
    document = {
        "type": "SuiteData",
        "name": suite.name,
        "headline": suite.headline,
        "prelude": plain(suite.prelude),
        "problem": {
            "name": type(problem).__name__,
            "about": type(problem).__doc__,
            "axes": [{"default": axis.default, "quick": axis.quick} for axis in axes],
            "axis_of": {
                name: next(place for place, each in enumerate(axes) if each is axis)
                for name, axis in problem.axes.items()
            },
            "arrays": {name: _array(array, functions) for name, array in problem.arrays.items()},
            "scalars": {name: _scalar(scalar, functions) for name, scalar in problem.scalars.items()},
            "independent": problem.independent,
            "flop": functions.number(lambda case: _count(problem.flop(case)), "flop"),
            "has_reference": problem.has_reference,
            "moved_bytes": functions.number(lambda case: _count(problem.moved_bytes(case)), "moved_bytes"),
        },
        "kernels": [_kernel(kernel, functions) for kernel in suite.kernels],
        "include": suite.include,
        "ladders": msgspec.to_builtins(tuple(suite.ladders)),
    }
    return msgspec.convert(document, SuiteData)


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _array(array: Array, functions: Functions) -> dict[str, Any]:
    return {
        "kind": array.kind,
        "shape": list(array.shape),
        "dtype": array.dtype,
        "init": None if array.init is None else repr(array.init),
        "order": array.order,
        "ld": functions.plain(array.ld),
    }


def _scalar(scalar: Scalar, functions: Functions) -> dict[str, Any]:
    value = scalar.value
    if callable(value):
        ask, name = value, getattr(value, "__name__", "<lambda>")
        return {"value": functions.number(lambda case: number(ask(case)), name), "dtype": scalar.dtype}
    return {"value": functions.plain(number(value)), "dtype": scalar.dtype}


def _rebuilt_array(data: ArrayData, answering: Answering) -> Array:
    lying: Any = {"dtype": data.dtype, "order": data.order, "ld": _asked(data.ld, answering)}
    if data.kind == "output":
        return Output(*data.shape, **lying, init=None if data.init is None else float(data.init))
    return {"input": Input, "inout": InOut}[data.kind](*data.shape, **lying)


_SAME_IN_KERNEL = tuple(
    name for name in KernelData.__struct_fields__ if name not in ("sources", "tune", "steps", "setup")
)
"""What a kernel and its data have by the same name."""
_OF_STEP = tuple(each.name for each in dataclasses.fields(Step))


def _kernel(kernel: Kernel, functions: Functions) -> dict[str, Any]:
    return {
        **{name: functions.plain(getattr(kernel, name)) for name in _SAME_IN_KERNEL},
        "sources": {backend: _source(source) for backend, source in kernel.sources.items()},
        "tune": kernel.tune and _tuning(kernel.tune, functions),
        "steps": [{name: functions.plain(getattr(step, name)) for name in _OF_STEP} for step in kernel.steps],
        "setup": None if kernel.setup is None else functions.number(_elsewhere, "setup"),
    }


def _tuning(tune: Tuning, functions: Functions) -> dict[str, Any]:
    def number(rule: Callable[[Case], bool]) -> Any:
        # Whether it holds is told here: what it returned may not be what JSON has.
        return functions.number(lambda case: bool(rule(case)), getattr(rule, "__name__", "<lambda>"))

    same = ("parameters", "configurations", "sizes", "groups")
    return {
        **{name: functions.plain(getattr(tune, name)) for name in same},
        "rules": [number(rule) if callable(rule) else rule for rule in tune.rules],
    }


def _source(source: KernelSource) -> dict[str, Any]:
    match source:
        case str():
            return {"kind": "file", "file": source}
        case Generated():
            return {"kind": "generated", "needs": source.needs}
        case HostFunction():
            return {"kind": "function", "needs": source.needs}
        case HostLibrary(file, needs, errors=errors):
            return {"kind": "library", "file": file, "needs": needs, "errors": dict(errors)}
        case PythonFunction(file, name, needs):
            told = {"kind": "python", "file": file, "name": name, "needs": needs}
            return {**told, "framework": source.framework}


Answering = Callable[[Function], Callable[[Case], Any]]


def rebuild(data: SuiteData, answering: Answering) -> Suite:
    """The suite that `data` describes: it plans and tells like the original, and cannot build or verify."""
    return Suite(
        data.name,
        _problem(data.problem, answering),
        kernels=[_rebuilt_kernel(kernel, answering) for kernel in data.kernels],
        headline=data.headline,
        prelude=data.prelude,
        ladders=data.ladders,
        include=data.include,
    )


def _problem(data: ProblemData, answering: Answering) -> Problem:
    arrays = {name: _rebuilt_array(array, answering) for name, array in data.arrays.items()}
    scalars: dict[str, Any] = {
        name: Scalar(_asked(scalar.value, answering), scalar.dtype) for name, scalar in data.scalars.items()
    }
    members = {
        "__doc__": data.about,
        **({"reference": _elsewhere} if data.has_reference else {}),
        "independent": data.independent,
        **{name: data.axes[number] for name, number in data.axis_of.items()},
        **arrays,
        **scalars,
    }
    made: Problem = type(data.name, (Problem,), members)()
    # Of the problem, not of its class, which lives until garbage is collected: a process goes with its suite.
    vars(made).update(flop=answering(data.flop), moved_bytes=answering(data.moved_bytes))
    return made


def _rebuilt_kernel(data: KernelData, answering: Answering) -> Kernel:
    return Kernel(
        source={backend: _rebuilt_source(source) for backend, source in data.sources.items()},
        tune=Tuning(**_asked_all(data.tune, TuningData.__struct_fields__, answering)) if data.tune else None,
        steps=[Step(**{name: _asked(each, answering) for name, each in step.items()}) for step in data.steps],
        setup=_elsewhere if data.setup else None,
        **_asked_all(data, _SAME_IN_KERNEL, answering),
    )


def _asked_all(data: object, names: Iterable[str], answering: Answering) -> dict[str, Any]:
    return {name: _asked(getattr(data, name), answering) for name in names}


def _asked(value: Any, answering: Answering) -> Any:
    """Not a function inside another that calls itself: that is a cycle, which keeps the suite's process."""
    if isinstance(value, dict):
        return {key: _asked(each, answering) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_asked(each, answering) for each in value)
    return answering(value) if isinstance(value, Function) else value


def _rebuilt_source(data: SourceData) -> KernelSource:
    match data.kind:
        case "file":
            return data.file
        case "generated":
            return Generated(_elsewhere, data.needs)
        case "function":
            return HostFunction(_elsewhere, data.needs)
        case "library":
            return HostLibrary(data.file, data.needs, errors=data.errors)
        case "python":
            made = next(each for each in PythonFunction.__subclasses__() if each.framework == data.framework)
            return made(data.file, data.name, data.needs)


def _elsewhere(*_: object) -> NoReturn:
    raise AssertionError("a function that makes a kernel runs in the process that builds it")


LOAD_TIMEOUT_S = 60.0
"""For running a suite.py, and for each of its functions."""


_KNOWN = {error.__name__: error for error in (NotYetKnownError, NotToldError)}
"""What functions raise that is more than a failure of theirs."""


class Loading:
    """A suite.py that another process has begun to run. Several run side by side until they are asked for."""

    def __init__(self, folder: Path, timeout_s: float | None = None) -> None:
        self.folder, self.file = folder, folder / "suite.py"
        self.timeout_s = timeout_s or LOAD_TIMEOUT_S
        self._lock = threading.Lock()
        self._answers: dict[tuple[int, bytes], ReturnValue | Failed] = {}
        self._deadline = time.monotonic() + self.timeout_s
        self._process = Process("harness.spec.suite_server", cwd=Path("/"))
        self._end = weakref.finalize(self, self._process.close)
        self._load = Load(str(folder))
        with contextlib.suppress(LostError):  # told when the answer is asked for
            self._process.send(self._load, self._deadline)

    def suite(self) -> Suite:
        """Raises SuiteError, with what it printed as its log, where there is none."""
        try:
            reply = self._process.answer(self._load, self._deadline)
        except LostError as lost:
            raise self._lost(lost, "loading it") from None
        if isinstance(reply, Failed):
            self._end()
            raise SuiteError(reply.message, log=reply.log)
        if printed := self._process.log():
            sys.stderr.write(harmless(printed, keep="\n") + "\n")
        self._process.rest()
        return dataclasses.replace(rebuild(reply, self._function), root=self.folder)

    def _function(self, function: Function) -> Callable[[Case], Any]:
        def ask(case: Case) -> Any:
            plain = function.number, msgspec.json.encode(dataclasses.replace(case, device_facts=None))
            whole = function.number, msgspec.json.encode(case)
            with self._lock:
                known = next((each for each in (plain, whole) if each in self._answers), None)
                if known is None:
                    reply = self._call(function, case)
                    known = plain if isinstance(reply, ReturnValue) and not reply.asked_device else whole
                    self._answers[known] = reply
                reply = self._answers[known]
            if isinstance(reply, Failed):
                kind = _KNOWN.get(reply.reason) or type(reply.reason, (Exception,), {})
                raise kind(reply.message)
            return reply.value

        ask.__name__ = function.name
        return ask

    def _call(self, function: Function, case: Case) -> ReturnValue | Failed:
        self._process.wake()
        try:
            reply = self._process.ask(FunctionCall(function.number, case), self.timeout_s)
        except LostError as lost:
            raise self._lost(lost, f"calling its function {function.name}") from None
        self._process.rest()
        return reply

    def _lost(self, lost: LostError, doing: str) -> SuiteError:
        """The error, once the process is gone."""
        messages = {
            "timed-out": f"{self.file} was ended: {doing} took longer than {self.timeout_s:g} s. Does it "
            "loop, or wait for something? Give it more with --timeout.",
            "garbled": f"{self.file} gave what is no answer ({lost.how}) while {doing}: something in it "
            "wrote where only the harness does.",
            "ended": f"The process that runs {self.file} {lost.how} while {doing}: a suite must not end its "
            "process.",
        }
        error = SuiteError(messages[lost.why], log=self._process.log())
        self._end()
        return error
