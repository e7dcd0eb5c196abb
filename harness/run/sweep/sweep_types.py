"""What a sweep asks and what it finds: frozen records, stored as JSON Lines and reported from there."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.device.backends.base import check_launch
from harness.errors import LaunchError, SuiteError
from harness.records.types import Described, DeviceInfo, Effect, Outcome, Source
from harness.suite.case_id import Size
from harness.suite.device_facts import facts_of
from harness.suite.kernel import Kernel
from harness.suite.planning import at_least_one, launch_of
from harness.suite.problem import Case, Value, point_of
from harness.suite.suite import Suite
from harness.suite.tuning import Tuning

SCHEMA_VERSION = 1

SweepStatus = Literal["measured", "rejected", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    number: int
    """Counts from 1, in the suite's own order: size by size, and within a size as the suite lists them."""
    case: str
    sizes: Mapping[str, int]
    parameters: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """How a sweep is carried out. Part of its identity: a sweep under others is another sweep."""

    seed: int = 1
    """Seed of the data, and of the order in which configurations are screened."""
    keep: float = 0.25
    """Share of a size's configurations that a round of halving keeps, by time."""
    near: float = 0.05
    """Whatever is this near the best is kept too: screening cannot tell them apart."""
    most_finalists: int = 8
    final_processes: int = 3
    """Fresh processes in which the winner is measured again: it was chosen for being lucky too."""
    timeout_s: float = 60.0
    rules: tuple[str, ...] = ()
    """Rules beside the tuning's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Described):
    """Everything known of one sweep apart from its rows: the first line of its file."""

    schema_version: int = SCHEMA_VERSION
    sweep_id: str
    """A hash of what was asked: source, compiler, device model, driver, configurations, settings. Two sweeps
    with one id would find the same, so the second continues or repeats the first."""
    source: Source
    kernel: str
    parameters: tuple[str, ...]
    total: int
    """Number of configurations, rejected ones included."""
    devices: tuple[str, ...]
    """Every device by its UUID, or by its spec where it has none. All are of the model of `device`, which is
    the first."""
    settings: SweepSettings
    peaks: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameters that are one thing together, by what tables call it, as the suite's Tuning has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow(Outcome):
    """The outcome of one configuration."""

    configuration: Configuration
    status: SweepStatus
    same_as: int | None = None
    """The configuration with the same compiled code and launch, whose figures these are."""
    place: int = 0
    """Its place in the random order of screening, from 1; 0 for what was not screened itself."""
    round: int = 0
    """How far it came: 0 screened, 1 and more rounds of halving, in pairs against the best of its size."""
    time_ns: float | None = None
    """Median device time of one launch, when screened."""
    time_low_ns: float | None = None
    time_high_ns: float | None = None
    behind: Effect | None = None
    """Its time over its size's best in pairs, in the last round that it came to; positive is slower."""
    flop: int | None = None
    moved_bytes: int | None = None
    dtype: str = "float32"
    device: str = ""
    """UUID or spec of what measured it."""
    gpu_s: float = 0.0
    """Time on the device of warm-up and measuring, pairs included; what verifying took is not in it."""
    host_s: float = 0.0
    """Wall-clock time of building, verifying and measuring it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedConfiguration(Outcome):
    """The outcome of compiling and loading one configuration."""

    number: int
    code: str = ""
    """What configurations of one size share that are the same in compiled code, launch and arguments."""
    device: str = ""
    host_s: float = 0.0
    """Its share of the time that the job took which prepared it with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two configurations of one size against each other, in pairs, in one process."""

    round: int
    number: int
    """The configuration that is head, and the one that it was held `against`, which is base."""
    against: int
    effect: Effect
    device: str = ""
    gpu_s: float = 0.0
    host_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """The best configuration of one size, measured once more in a fresh process."""

    number: int
    process: int
    time_ns: float
    """Median time of one launch."""
    device: str = ""
    gpu_s: float = 0.0
    host_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The best configuration of one size, measured again in fresh processes."""

    sizes: Mapping[str, int]
    number: int
    """The number of the winner's configuration."""
    time_ns: float
    """Median over the processes of their medians, of one launch."""
    process_times_ns: tuple[float, ...]
    tied: tuple[int, ...] = ()
    """Configurations that cannot be told from it: their interval in pairs holds zero."""
    gpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    sweep: Sweep
    rows: tuple[SweepRow, ...]
    finals: tuple[Final, ...]
    """The best of each size, once it is decided."""
    path: str = ""
    complete: bool = False
    reused: int = 0
    """Rows that an earlier run of the same sweep had stored."""
    compile_s: float = 0.0
    """Wall-clock time of generating and compiling, in this run."""
    measure_s: float = 0.0
    """Wall-clock time of screening, halving and finals, in this run."""
    problem: str = ""
    """Why its file is not whole, such as a full disk, where the rows here are; or why it could not go on."""
    interrupted: bool = False


def points(
    suite: Suite, tuning: Tuning, sizes: Sequence[str] = (), *, quick: bool = False
) -> tuple[dict[str, int], ...]:
    """The sizes to sweep: those asked for, else the tuning's, else the problem's own.

    Raises UsageError for a size that is none, SuiteError for one of the tuning's.
    """
    if sizes:
        found = [Size.parse(size).at(suite.problem.axes) for size in sizes]
    else:
        found = [_point(suite, size) for size in tuning.sizes] or list(suite.problem.points(quick=quick))
    return tuple(point for place, point in enumerate(found) if point not in found[:place])


def _point(suite: Suite, size: int | Mapping[str, int]) -> dict[str, int]:
    point = point_of(suite.problem, size)
    if point is None:
        raise SuiteError(
            f"Suite {suite.name!r} has a tuning with the size {size!r}; "
            f"expected a number, or one above 0 for each of {', '.join(suite.problem.axes)}."
        )
    return point


def configurations(
    suite: Suite, kernel: Kernel, tuning: Tuning, sizes: Sequence[Mapping[str, int]]
) -> tuple[Configuration, ...]:
    """Every configuration at every size, numbered from 1, size by size.

    Raises SuiteError where there is none, or a value is neither an integer nor a word.
    """
    values = itertools.product(*tuning.parameters.values())
    chosen = tuning.configurations or [dict(zip(tuning.names, each, strict=True)) for each in values]
    if not chosen:
        raise SuiteError(
            f"Kernel {kernel.name!r} has a tuning without a configuration: a parameter without a value?"
        )
    numbers = itertools.count(1)
    return tuple(
        Configuration(
            number=next(numbers),
            case=suite.case(kernel, point, each).id,
            sizes=dict(point),
            parameters=dict(each),
        )
        for point in sizes
        for each in chosen
    )


_METHODS = {*dir(int), *dir(str)} - {"format", "format_map"}
"""Attributes that a rule may ask for, unless they begin with an underscore. Others lead from any value to all
of Python, and rules are evaluated in the process that runs no code of a suite's."""


@dataclass(frozen=True, slots=True)
class _ParsedRule:
    name: str
    holds: Callable[[Case], Any]
    names: tuple[str, ...]
    """What it looks at, where it is an expression."""


class Rules:
    """The rules of a kernel's tuning, and those that every kernel on a device has to keep.

    Raises SuiteError for a rule that is no expression.
    """

    def __init__(self, suite: Suite, kernel: Kernel, tuning: Tuning, device: DeviceInfo) -> None:
        self.suite, self.kernel, self.device = suite, kernel, device
        self.rules = [self._rule(number, rule) for number, rule in enumerate(tuning.rules, 1)]

    def _rule(self, number: int, rule: str | Callable[[Case], bool]) -> _ParsedRule:
        if callable(rule):
            name = getattr(rule, "__name__", "<lambda>")
            return _ParsedRule(f"rule {number}" if name == "<lambda>" else name, rule, ())
        try:
            tree = ast.parse(rule.strip(), "<rule>", "eval")
            code = compile(tree, "<rule>", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SuiteError(
                f"Kernel {self.kernel.name!r} has the rule {rule!r}, which is no expression: {error}."
            ) from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (node.attr[:1] == "_" or node.attr not in _METHODS):
                raise SuiteError(
                    f"Kernel {self.kernel.name!r} has the rule {rule!r}, which asks for {node.attr!r}; "
                    "expected an expression of parameters and axes: a function may do more."
                )

        def holds(case: Case) -> Any:
            # Over parameters and axes, in Kernel Tuner's form. Nothing of Python's own is at hand.
            known: dict[str, Any] = {**case.sizes, **case.macros, "__builtins__": {}}
            return eval(code, known)  # noqa: S307 - without attributes it reaches no more than these

        return _ParsedRule(rule.strip(), holds, code.co_names)

    def rejected(self, configuration: Configuration) -> SweepRow | None:
        """The row of a configuration that breaks a rule; None for one that may be tried.

        Raises SuiteError for a rule that cannot be evaluated.
        """
        device = facts_of(self.device)
        case = self.suite.case(self.kernel, configuration.sizes, configuration.parameters, device)
        rejected = functools.partial(SweepRow, configuration=configuration, status="rejected")
        for rule in self.rules:
            if not self._holds(rule, case):
                known = {**case.sizes, **case.macros}
                named = {name: known[name] for name in rule.names if name in known}
                values = _listed(named or {**configuration.sizes, **configuration.parameters})
                return rejected(reason="rule", message=f"{rule.name} does not hold: {values}.")
        try:
            check_launch(launch_of(self.kernel, case, at_least_one), self.device)
        except LaunchError as error:
            return rejected(reason=error.reason, message=error.message)
        return None

    def _holds(self, rule: _ParsedRule, case: Case) -> bool:
        try:
            return bool(rule.holds(case))
        except NameError as error:
            known = ", ".join({**case.sizes, **case.macros})
            raise SuiteError(
                f"Kernel {self.kernel.name!r}: rule {rule.name!r}: {error}. It may use {known}."
            ) from None
        except Exception as error:
            raise SuiteError(
                f"Kernel {self.kernel.name!r}: rule {rule.name!r} at {case.size_label} with "
                f"{_listed(case.macros)} raised {type(error).__name__}: {error}"
            ) from error


def _listed(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
