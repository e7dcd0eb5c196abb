"""A suite as data that one process can send to another: all of suite.py, with a number for each function."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import msgspec

from harness.errors import NotToldError, NotYetKnownError, SuiteError
from harness.suite.kernel import (
    Generated,
    HostFunction,
    HostLibrary,
    Kernel,
    KernelSource,
    PythonFunction,
    Step,
)
from harness.suite.layout import Order, numpy_dtype
from harness.suite.problem import (
    Array,
    Axis,
    Case,
    InOut,
    Input,
    Output,
    Problem,
    Scalar,
    number,
    rounded,
)
from harness.suite.reference_function import ReferenceFunction
from harness.suite.suite import Ladder, Suite
from harness.suite.suite_files import definition_sha256, origin_sha256
from harness.suite.tuning import Tuning
from harness.system.array_files import read_arrays, write_arrays
from harness.system.cache import cache_dir
from harness.system.decoding import convert
from harness.system.process import CAN_START, NOT_HERE, Failed, LostError, Process, Request
from harness.system.texts import harmless

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Function(msgspec.Struct, frozen=True, tag="function"):
    number: int
    name: str


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """A value that no suite may have here. Its user reports it by its text."""

    text: str

    def __repr__(self) -> str:
        return self.text


Plain = bool | int | float | str | None | Unknown
CaseValue = Plain | tuple[Any, ...] | Function
"""A value that may depend on the case: the value itself, a function to call for it, or an invalid value."""


class ArrayData(msgspec.Struct, frozen=True):
    kind: Literal["input", "output", "inout"]
    shape: tuple[str, ...]
    dtype: str | None
    init: str | None = None
    """Text of a number, since JSON has no infinity."""
    order: Order = "C"
    ld: CaseValue = None


class ScalarData(msgspec.Struct, frozen=True):
    value: CaseValue
    dtype: str


class ProblemData(msgspec.Struct, frozen=True):
    name: str
    about: str | None
    axes: tuple[Axis, ...]
    axis_of: dict[str, int]
    """Number of each axis. Axes that share an Axis object have the same number."""
    arrays: dict[str, ArrayData]
    scalars: dict[str, ScalarData]
    independent: str | None
    counts: dict[Literal["flop", "moved_bytes", "integer_bound"], Function]
    own: tuple[Literal["data", "reference", "tolerance"], ...]
    """The methods for arrays that the suite overrides."""
    by_base: bool = False
    """True if outputs are compared with base's instead of a reference."""
    reference_function: tuple[str, str] | None = None
    """File and name of the repository's function that is the reference."""


class SourceData(msgspec.Struct, frozen=True):
    kind: Literal["generated", "function", "library", "triton", "torch", "cupy", "numba"]
    """A key of _SOURCE_KINDS. An untrusted process can use no other kind."""
    file: str = ""
    name: str = ""
    needs: tuple[str, ...] = ()
    errors: dict[int, str] = {}
    function: Function | None = None
    """Function that generates the text of a `generated` source."""


class TuningData(msgspec.Struct, frozen=True):
    parameters: dict[str, tuple[Plain, ...]]
    configurations: tuple[dict[str, Plain], ...]
    rules: tuple[str | Function, ...]
    sizes: tuple[int | dict[str, int], ...]
    groups: dict[str, tuple[str, ...]]


class KernelData(msgspec.Struct, frozen=True):
    name: str
    sources: dict[str, str | SourceData]
    """The source for each backend; for a file, its path."""
    block: CaseValue
    grid: CaseValue
    macros: dict[str, CaseValue]
    entry: str
    instantiate: str
    dtype: str
    requires: str | None
    arch: str
    include: tuple[str, ...]
    dynamic_shared_bytes: CaseValue
    args: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    dispatch: CaseValue
    cooperative: bool
    cluster: CaseValue
    graph: bool
    cards: int
    tune: TuningData | None
    library: bool
    about: str
    steps: tuple[dict[str, CaseValue], ...]
    workspace: dict[str, CaseValue]
    setup: Function | None


class SuiteData(msgspec.Struct, frozen=True):
    name: str
    headline: str
    prelude: dict[str, str]
    problem: ProblemData
    kernels: tuple[KernelData, ...]
    include: tuple[str, ...]
    ladders: tuple[Ladder, ...]
    variables: dict[str, str | None] = {}
    """Environment variables that the suite's code has set, with their values; None for removed ones."""


class Load(Request[SuiteData], frozen=True):
    """Load the suite in a folder. This is the first message, sent once."""

    folder: str
    work_tree: str | None = None
    """The working tree of a commit's repository. A file that the suite opens there does not belong to its
    commit."""


class ReturnValue(msgspec.Struct, frozen=True):
    value: Plain | tuple[Any, ...]
    asked_device: bool = False
    """True if it was computed from the device, and differs on another."""


class FunctionCall(Request[ReturnValue], frozen=True):
    """Call a function of the suite at a case."""

    function: int
    case: Case
    arch: str | None = None
    """Second argument of a generator, such as sm_90; None for other functions."""


class DataCall(Request[None], frozen=True):
    """Write the result of the problem's data() for a seed into a folder: each input by its name."""

    case: Case
    seed: int
    folder: str


class JudgeCall(Request[None], frozen=True):
    """Write reference and tolerance for the inputs in a folder to it, as REFERENCE + output and TOLERANCE."""

    case: Case
    folder: str
    reference: bool
    """True to compute the reference as well as the tolerance."""


class DefinitionCall(Request[ReturnValue], frozen=True):
    """Return the hash of the files that define the suite's problem: `definition_sha256`."""


class OriginCall(Request[ReturnValue], frozen=True):
    """Return the hash of everything that the suite's data and references depend on: `origin_sha256`."""


SuiteCall = FunctionCall | DataCall | JudgeCall | DefinitionCall | OriginCall
REFERENCE, TOLERANCE = "reference-", "-tolerance"
"""File names that no output can have, because outputs are Python identifiers."""


_PLAIN = (type(None), bool, int, float, str)


class Functions:
    """The functions of a suite by number, in the process that loaded it."""

    def __init__(self) -> None:
        self.all: list[Callable[..., Any]] = []
        self.suite: Suite | None = None

    @property
    def problem(self) -> Problem:
        assert self.suite is not None, "Load comes first"
        return self.suite.problem

    def plain(self, value: Any) -> Any:
        """Return a value for JSON: functions by number, unsupported values by their text."""
        if isinstance(value, Mapping):
            return {key: self.plain(each) for key, each in value.items()}
        if isinstance(value, (tuple, list)):
            return [self.plain(each) for each in value]
        if callable(value):
            return self.number(value)
        return value if type(value) in _PLAIN else msgspec.to_builtins(Unknown(repr(value)))

    def fields(self, owner: object, names: Iterable[str]) -> dict[str, Any]:
        """Return an object's fields of these names for JSON."""
        return {name: self.plain(getattr(owner, name)) for name in names if hasattr(owner, name)}

    def number(
        self,
        function: Callable[..., Any],
        convert: Callable[[Any], Any] = lambda value: value,
        name: str = "",
    ) -> Any:
        """Return a function's number. Its result is converted before it is sent."""
        self.all.append(lambda case, *more: convert(function(case, *more)))
        name = name or str(getattr(function, "__name__", "<lambda>"))
        return msgspec.to_builtins(Function(len(self.all) - 1, name))

    def answer(self, call: SuiteCall) -> ReturnValue | None:
        match call:
            case FunctionCall():
                return self.call(call)
            case DefinitionCall():
                assert self.suite is not None, "Load comes first"
                return ReturnValue(definition_sha256(self.suite))
            case OriginCall():
                assert self.suite is not None, "Load comes first"
                return ReturnValue(origin_sha256(self.suite))
            case DataCall():
                self._write(call.folder, self.problem.seeded(call.case, call.seed), "data()")
            case JudgeCall():
                self._judge(call)
        return None

    def call(self, call: FunctionCall) -> ReturnValue:
        case = _NotingCase(**{each.name: getattr(call.case, each.name) for each in dataclasses.fields(Case)})
        more = () if call.arch is None else (call.arch,)
        value = self.plain(self.all[call.function](case, *more))
        asked = "noted" in vars(case)
        return convert({"value": value, "asked_device": asked}, ReturnValue)

    def _judge(self, call: JudgeCall) -> None:
        found = read_arrays(Path(call.folder))
        inputs = as_declared(self.problem, call.case, found)
        named, tolerance = self.problem.judged(call.case, inputs, reference=call.reference)
        outputs = {name: named[name] for name in self.problem.outputs if name in named}
        if self.problem.held_to == "reference" and not self.problem.has_tolerance:
            outputs = {name: self._rounded(name, call.case, values) for name, values in outputs.items()}
        self._write(call.folder, {TOLERANCE: tolerance}, "tolerance()")
        self._write(call.folder, {REFERENCE + n: each for n, each in outputs.items()}, "reference()")

    def _rounded(self, name: str, case: Case, values: Any) -> Any:
        """Return an exact reference in the type of its output: its file is smaller."""
        import numpy as np

        is_wide = isinstance(values, np.ndarray) and values.dtype == np.float64
        return rounded(values, self.problem.arrays[name].dtype_at(case)) if is_wide else values

    def _write(self, folder: str, found: Mapping[str, Any], by: str) -> None:
        import numpy as np

        try:
            write_arrays(Path(folder), {name: np.asarray(each) for name, each in found.items()})
        except ValueError:  # an array of Python objects
            told = ", ".join(f"{each!r:.80}" for each in found.values())
            raise SuiteError(
                f"{by} of {type(self.problem).__name__} gave {told}; expected numbers."
            ) from None


def as_declared(problem: Problem, case: Case, found: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the inputs read from files, converted back to types that NumPy lacks."""
    return {name: of_type(found[name], array.dtype_at(case)) for name, array in problem.inputs.items()}


def of_type(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return an array read from a file, converted back if its type is one that NumPy lacks."""
    declared = numpy_dtype(dtype)
    return array if declared.isbuiltin == 1 else array.view(declared)


class _NotingCase(Case):
    """A case that records whether its device was used."""

    def __getattr__(self, name: str) -> int:
        if name in ("device", "resident_blocks"):
            vars(self)["noted"] = True
        return super().__getattr__(name)


def describe(suite: Suite, functions: Functions) -> SuiteData:
    """Return the suite as data. Raises msgspec.ValidationError for an invalid suite."""
    functions.suite, problem = suite, suite.problem
    function = problem.reference_function
    axes = list({id(axis): axis for axis in problem.axes.values()}.values())
    document = {
        "name": suite.name,
        "headline": suite.headline,
        "prelude": functions.plain(suite.prelude),
        "problem": {
            "name": type(problem).__name__,
            "about": type(problem).__doc__,
            "axes": [{"default": axis.default, "quick": axis.quick} for axis in axes],
            "axis_of": {
                name: next(place for place, each in enumerate(axes) if each is axis)
                for name, axis in problem.axes.items()
            },
            "arrays": {
                name: {
                    **functions.fields(array, ("kind", "shape", "dtype", "order", "ld")),
                    "init": None if array.init is None else repr(array.init),
                }
                for name, array in problem.arrays.items()
            },
            "scalars": {name: _scalar(scalar, functions) for name, scalar in problem.scalars.items()},
            "independent": problem.independent,
            "counts": {name: functions.number(getattr(problem, name), name=name) for name in _COUNTS},
            "own": [
                name for name in _OF_ARRAYS if getattr(type(problem), name) is not getattr(Problem, name)
            ],
            "by_base": problem.held_to == "base",
            "reference_function": (function.file, function.name) if function else None,
        },
        "kernels": [_kernel(kernel, functions) for kernel in suite.kernels],
        "include": suite.include,
        "ladders": msgspec.to_builtins(tuple(suite.ladders)),
    }
    return convert(document, SuiteData)


def _scalar(scalar: Scalar, functions: Functions) -> dict[str, Any]:
    value = scalar.value
    data = functions.number(value, number) if callable(value) else functions.plain(number(value))
    return {"value": data, "dtype": scalar.dtype}


_COUNTS = ("flop", "moved_bytes", "integer_bound")
_OF_ARRAYS = ("data", "reference", "tolerance")
_SAME_IN_KERNEL = tuple(
    name for name in KernelData.__struct_fields__ if name not in ("sources", "tune", "steps", "setup")
)
"""Fields with the same name in a kernel and in its data."""
_STEP_FIELDS = tuple(field.name for field in dataclasses.fields(Step))


def _kernel(kernel: Kernel, functions: Functions) -> dict[str, Any]:
    tune = kernel.tune
    return {
        **functions.fields(kernel, _SAME_IN_KERNEL),
        "sources": {backend: _source(source, functions) for backend, source in kernel.sources.items()},
        "tune": tune
        and {
            **functions.fields(tune, ("parameters", "configurations", "sizes", "groups")),
            # The rule is evaluated here, because its result may not fit into JSON.
            "rules": [functions.number(rule, bool) if callable(rule) else rule for rule in tune.rules],
        },
        "steps": [functions.fields(step, _STEP_FIELDS) for step in kernel.steps],
        "setup": None if kernel.setup is None else functions.number(_elsewhere, name="setup"),
    }


_SOURCE_KINDS: Mapping[str, type[Any]] = {
    "generated": Generated,
    "function": HostFunction,
    "library": HostLibrary,
    **{kind.framework: kind for kind in PythonFunction.__subclasses__()},
}


def _source(source: KernelSource, functions: Functions) -> Any:
    if isinstance(source, str):
        return source
    kind = next((name for name, kind in _SOURCE_KINDS.items() if isinstance(source, kind)), None)
    function = functions.number(source.function) if isinstance(source, Generated) else None
    return {
        **functions.fields(source, ("file", "name", "needs", "errors")),
        "kind": kind,
        "function": function,
    }


CallerOf = Callable[[Function], Callable[..., Any]]
"""Turns a function's number into a function that asks the suite's process for its value."""


class ArrayCaller(Protocol):
    """Asks the suite's process for arrays."""

    def data(self, case: Case, seed: int) -> dict[str, NDArray[Any]]: ...
    def judged(
        self, case: Case, inputs: Mapping[str, NDArray[Any]], *, reference: bool
    ) -> tuple[dict[str, NDArray[Any]], Any]: ...


def rebuild(data: SuiteData, caller_of: CallerOf, arrays: ArrayCaller | None = None) -> Suite:
    """Return the suite that `data` describes. It plans and describes itself like the original.

    With `arrays` it also verifies like the original, and builds kernels compiled from text. Functions that
    run in the host's process are built where their suite was loaded.
    """
    return Suite(
        data.name,
        _problem(data.problem, caller_of, arrays),
        kernels=[_rebuilt_kernel(kernel, caller_of) for kernel in data.kernels],
        headline=data.headline,
        prelude=data.prelude,
        ladders=data.ladders,
        include=data.include,
    )


def _problem(data: ProblemData, caller_of: CallerOf, arrays: ArrayCaller | None) -> Problem:
    members = {
        "__doc__": data.about,
        **{str(name): _elsewhere for name in data.own},
        **({"reference": "base"} if data.by_base else {}),
        "reference_function": ReferenceFunction(*data.reference_function)
        if data.reference_function
        else None,
        "independent": data.independent,
        **{name: data.axes[place] for name, place in data.axis_of.items()},
        **{name: _rebuilt_array(array, caller_of) for name, array in data.arrays.items()},
        **{name: Scalar(_rebuilt(each.value, caller_of), each.dtype) for name, each in data.scalars.items()},
    }
    made: Problem = type(data.name, (Problem,), members)()
    # Set on the problem, not on its class: a class lives until garbage collection, and would keep the process
    # alive.
    vars(made).update({name: caller_of(data.counts[name]) for name in data.counts})
    if arrays is not None:
        vars(made).update(judged=arrays.judged, **({"seeded": arrays.data} if "data" in data.own else {}))
    return made


def _rebuilt_array(data: ArrayData, caller_of: CallerOf) -> Array:
    given: Any = {"dtype": data.dtype, "order": data.order, "ld": _rebuilt(data.ld, caller_of)}
    if data.kind == "output":
        return Output(*data.shape, **given, init=None if data.init is None else float(data.init))
    return {"input": Input, "inout": InOut}[data.kind](*data.shape, **given)


def _rebuilt_kernel(data: KernelData, caller_of: CallerOf) -> Kernel:
    tune = msgspec.structs.asdict(data.tune) if data.tune else None
    same = {name: getattr(data, name) for name in _SAME_IN_KERNEL}
    return Kernel(
        source={backend: _rebuilt_source(source, caller_of) for backend, source in data.sources.items()},
        tune=Tuning(**_rebuilt(tune, caller_of)) if tune else None,
        steps=[Step(**_rebuilt(step, caller_of)) for step in data.steps],
        setup=_elsewhere if data.setup else None,
        **_rebuilt(same, caller_of),
    )


def _rebuilt(value: Any, caller_of: CallerOf) -> Any:
    """Return a value with functions instead of numbers. It makes no cycle, which would keep the process
    alive.
    """
    if isinstance(value, dict):
        return {key: _rebuilt(each, caller_of) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_rebuilt(each, caller_of) for each in value)
    return caller_of(value) if isinstance(value, Function) else value


def _rebuilt_source(data: str | SourceData, caller_of: CallerOf) -> KernelSource:
    if isinstance(data, str):
        return data
    kind = _SOURCE_KINDS[data.kind]
    given = msgspec.structs.asdict(data) | {
        "function": caller_of(data.function) if data.function else _elsewhere
    }
    names = {field.name for field in dataclasses.fields(kind)}
    made: KernelSource = kind(**{name: value for name, value in given.items() if name in names})
    return made


def _elsewhere(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a function that makes a kernel runs in the process that builds it")


LOAD_TIMEOUT_S = 60.0
"""Time in seconds for a suite.py to run, and for each of its functions to return."""


_KNOWN = {error.__name__: error for error in (SuiteError, NotYetKnownError, NotToldError)}
"""Errors with a message that functions of a suite raise."""


Answer = Callable[[SuiteCall], "ReturnValue | Failed | None"]
"""Sends a call to a suite's process, wherever it runs."""


def calling(answer: Answer, function: Function) -> Callable[..., Any]:
    """Return a function that asks the suite's process for a function's value, or raises its error."""

    def ask(case: Case, arch: str | None = None) -> Any:
        reply = answer(FunctionCall(function.number, case, arch))
        check_answered(reply)
        assert isinstance(reply, ReturnValue)
        return reply.value

    ask.__name__ = function.name
    return ask


def check_answered(reply: ReturnValue | Failed | None) -> None:
    """Raise the error of a function that failed in the suite's process."""
    if isinstance(reply, Failed):
        kind = _KNOWN.get(reply.reason) or type(reply.reason, (Exception,), {})
        raise kind(reply.message)


def _without_device(reply: ReturnValue | Failed | None) -> bool:
    """Return whether it is a value for which the suite's function did not ask for the device."""
    return isinstance(reply, ReturnValue) and not reply.asked_device


class Loading:
    """A suite.py that another process has started to run. Several run in parallel until their results are
    needed.
    """

    def __init__(
        self, folder: Path, timeout_s: float | None = None, *, work_tree: Path | None = None
    ) -> None:
        self.folder, self.file = folder, folder / "suite.py"
        if not CAN_START:
            raise SuiteError(f"{self.file} was not run. {NOT_HERE}")
        self.timeout_s = timeout_s or LOAD_TIMEOUT_S
        self._lock = threading.Lock()
        self._answers: dict[bytes, ReturnValue | Failed | None] = {}
        self.data: SuiteData | None = None
        """The suite as data, once `suite` has returned it."""
        self._deadline = time.monotonic() + self.timeout_s
        # The process has another working folder, where a relative path would be resolved.
        cache = {"HARNESS_CACHE_DIR": str(cache_dir().absolute())}
        self._process = Process("harness.suite.suite_server", env=cache)
        self._end = weakref.finalize(self, self._process.close)
        self._load = Load(str(folder), str(work_tree) if work_tree else None)
        with contextlib.suppress(LostError):  # reported with the answer
            self._process.send(self._load, self._deadline)

    def suite(self) -> Suite:
        """Return the suite. Raises SuiteError with the output as its log, if there is none."""
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
        self.data = reply
        return dataclasses.replace(rebuild(reply, partial(calling, self.answer)), root=self.folder)

    def answer(self, call: SuiteCall, timeout_s: float | None = None) -> ReturnValue | Failed | None:
        """Return the answer of the suite's process. Raises SuiteError if there is none."""
        with self._lock:
            if not isinstance(call, FunctionCall):
                return self._call(call, timeout_s)
            without = msgspec.structs.replace(call, case=dataclasses.replace(call.case, device_facts=None))
            plain, whole = msgspec.json.encode(without), msgspec.json.encode(call)
            found = self._answers.get(plain)
            if not _without_device(found):
                found = self._answers.get(whole) or self._call(call, timeout_s)
                self._answers[plain if _without_device(found) else whole] = found
            return found

    def _call(self, call: SuiteCall, timeout_s: float | None) -> ReturnValue | Failed | None:
        self._process.wake()
        request: Request[Any] = call
        try:
            reply: ReturnValue | Failed | None = self._process.ask(request, timeout_s or self.timeout_s)
        except LostError as lost:
            raise self._lost(lost, f"answering {type(call).__name__}") from None
        self._process.rest()
        return reply

    def _lost(self, lost: LostError, doing: str) -> SuiteError:
        """Return the error for a lost process."""
        messages = {
            "timed-out": f"{self.file} was ended: {doing} took longer than {self.timeout_s:g} s. Does it "
            "loop, or wait for something? Give it more with --timeout.",
            "garbled": f"{self.file} sent no valid answer ({lost.how}) while {doing}: something in it "
            "wrote where only the harness does.",
            "ended": f"The process that runs {self.file} {lost.how} while {doing}: a suite must not end its "
            "process.",
        }
        error = SuiteError(messages[lost.why], log=self._process.log())
        self._end()
        return error
