"""A suite as its author writes it: one problem, its kernels, and published results.

Nothing here touches a device. Problems are in problem.py, kernels in kernel.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from harness.errors import NotYetKnownError, SuiteError
from harness.numbers import Value
from harness.suite.case_id import GRAPH, without_graph
from harness.suite.device_facts import DeviceFacts
from harness.suite.kernel import Kernel, argument_names, check_folders, with_macros, workspaces
from harness.suite.layout import Layout, Parameter
from harness.suite.problem import Case, Problem, check_identifier, computed, point_of, twice_in


@dataclass(frozen=True)
class Rung:
    """A line of a ladder: the author's name, our kernel for it, and the author's values.

    Rates have the unit of the suite's headline. An unpublished value is None.
    """

    label: str
    kernel: str
    rate: float | None = None
    average: float | None = None
    """Average over all configurations of a sweep with these `macros`. Then `rate` is the best of them."""
    time_ms: float | None = None
    speed_up: float | None = None
    """The published speed-up; None to compute it from the rates."""
    sizes: int | Mapping[str, int] | None = None
    """A point of the axes, or a number for all axes; None for the ladder's own."""
    macros: Mapping[str, Value] = field(default_factory=dict)
    """Parameters of one configuration of a sweep, or of all configurations with these values."""
    backend: str = ""
    """Backend for our kernel, such as cpu; if empty, the reported device's."""
    slow: bool = False
    """True if it takes minutes. It is then measured only on request."""
    repaired: str = ""
    """A kernel with the same idea and without the author's mistakes. Its gain is shown beside it."""

    @property
    def swept(self) -> bool:
        """Return True if the rung is the average of many configurations, which needs a sweep."""
        return self.average is not None


@dataclass(frozen=True)
class Ladder:
    """Published results of kernels that the suite has too, in the published order.

    Speed-ups are relative to the first rung or, with `against`, to that kernel at the same sizes.
    """

    name: str
    title: str
    rungs: Sequence[Rung]
    source: str = ""
    """A sentence on how the values were measured."""
    publication: str = ""
    """Title of the publication."""
    author: str = ""
    url: str = ""
    date: str = ""
    """Date of the publication, as precisely as known."""
    card: str = ""
    """Card of the published values, such as RTX 3060."""
    peak: float | None = None
    """Peak of that card, in the unit of the suite's headline."""
    decimals: int = 0
    """Decimal places of the published rates: 46.60 stays 46.60."""
    sizes: int | Mapping[str, int] | None = None
    """Sizes of rungs without their own."""
    against: str = ""
    """Kernel that the others are compared with at every size: a line for each size, not for each rung."""
    note: str = ""

    def __post_init__(self) -> None:
        check_identifier("Ladder", self.name)
        if not self.rungs:
            raise SuiteError(f"Ladder {self.name!r} has no rungs.")
        unsized = [rung.label for rung in self.rungs if rung.sizes is None and not rung.swept]
        if self.sizes is None and unsized:
            raise SuiteError(
                f"Ladder {self.name!r}: {unsized[0]!r} has no sizes, and neither has the ladder."
            )
        if self.against and self.against not in {rung.kernel for rung in self.rungs}:
            raise SuiteError(f"Ladder {self.name!r} is against {self.against!r}, which none of its rungs is.")


@dataclass(frozen=True)
class Suite:
    """A problem and its kernels, in ladder order. Speed-ups are relative to the first kernel."""

    name: str
    problem: Problem
    kernels: Sequence[Kernel]
    headline: str = "GFLOP/s"
    """Unit of rates: GFLOP/s or GB/s."""
    prelude: Mapping[str, str] = field(default_factory=dict)
    """A header per backend that precedes every kernel's source, relative to the suite's folder."""
    root: Path = Path()
    """The suite's folder, set by the loader."""
    ladders: Sequence[Ladder] = ()
    include: tuple[str, ...] = ()
    """Folders in which compilers look for headers, relative to the project, for every kernel."""

    def __post_init__(self) -> None:
        check_identifier("Suite", self.name)
        check_folders(f"Suite {self.name!r}", self.include)
        if self.headline not in ("GFLOP/s", "GB/s"):
            raise SuiteError(
                f"Suite {self.name!r} has headline {self.headline!r}; expected 'GFLOP/s' or 'GB/s'."
            )
        if not isinstance(self.problem, Problem):
            wrong = f"The problem of suite {self.name!r} is {self.problem!r}"
            raise SuiteError(f"{wrong}; expected an instance, such as Matmul().")
        if not self.kernels:
            raise SuiteError(f"Suite {self.name!r} has no kernels.")
        if twice := twice_in([kernel.name for kernel in self.kernels]):
            raise SuiteError(f"Suite {self.name!r} has two kernels named {twice!r}.")
        if not self.problem.outputs:
            raise SuiteError(
                f"The problem of suite {self.name!r} declares no Output: there is nothing to verify."
            )
        self._check_methods()
        for kernel in self.kernels:
            for name in kernel.workspace:
                if name in (*self.problem.arrays, *self.problem.scalars, *self.problem.axes):
                    raise kernel.error(f"has the workspace {name!r}, which is also of its problem.")
        self._check_ladders()

    def _check_methods(self) -> None:
        """Raise SuiteError unless reference() and tolerance() accept the case and every input."""
        inputs = tuple(self.problem.inputs)
        for method in (self.problem.reference, self.problem.tolerance):
            if not inspect.ismethod(method):
                continue
            # A decorator may add arguments, so the signature of the wrapped function is no evidence.
            name, signature = method.__name__, inspect.signature(method, follow_wrapped=False)
            try:
                signature.bind(None, **dict.fromkeys(inputs))
            except TypeError as error:
                raise SuiteError(
                    f"{name}{signature} of {type(self.problem).__name__} cannot be called with the problem's "
                    f"inputs: {error}. Write: def {name}({', '.join(('self', 'case', *inputs))})."
                ) from None

    def _check_ladders(self) -> None:
        if twice := twice_in([ladder.name for ladder in self.ladders]):
            raise SuiteError(f"Suite {self.name!r} has two ladders named {twice!r}.")
        for ladder, rung in ((each, rung) for each in self.ladders for rung in each.rungs):
            for name in filter(None, (rung.kernel, rung.repaired)):
                if name not in self.by_name:
                    raise SuiteError(
                        f"Ladder {ladder.name!r}: {rung.label!r} names kernel {name!r}, "
                        f"which suite {self.name!r} does not have."
                    )
            if not rung.swept:
                self.rung_sizes(ladder, rung)

    def rung_sizes(self, ladder: Ladder, rung: Rung) -> dict[str, int]:
        """Return the point of the axes of a rung. Raises SuiteError if it is invalid."""
        given = ladder.sizes if rung.sizes is None else rung.sizes
        point = point_of(self.problem, given)
        if point is None:
            raise SuiteError(
                f"Ladder {ladder.name!r}: {rung.label!r} has sizes {given!r}; "
                f"expected a number, or one for each of {', '.join(self.problem.axes)}."
            )
        return point

    @cached_property
    def by_name(self) -> dict[str, Kernel]:
        return {kernel.name: kernel for kernel in self.kernels}

    def library_for(self, kernel: Kernel) -> Kernel | None:
        """Return the vendor's kernel for comparison with a kernel: the first one of the same dtype."""
        return next((each for each in self.kernels if each.library and each.dtype == kernel.dtype), None)

    def case(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int],
        chosen: Mapping[str, Value] | None = None,
        device: DeviceFacts | None = None,
    ) -> Case:
        """Return a kernel at a point, with `chosen` values of macros.

        Without a device, macros and scalars that need one are left out: see `on_device`.
        """
        marked = len(without_graph(sizes)) < len(sizes) and GRAPH not in self.problem.axes
        plain = Case(self.name, kernel.name, dict(sizes), kernel.dtype, dict(chosen or {}), device)
        plain = replace(plain, by_graph=kernel.graph or marked)
        return self.own(with_macros(kernel, plain, {**kernel.macros, **(chosen or {})}))

    def own(self, case: Case) -> Case:
        """Return a case with this suite's name and scalars."""
        of_this = replace(case, suite=self.name, scalars={})
        scalars = {}
        for name, scalar in self.problem.scalars.items():
            try:
                value = computed(case.kernel, f"scalar {name}", scalar.value, of_this)
            except NotYetKnownError:
                if case.device_facts is not None:
                    raise
                continue
            scalars[name] = scalar.passed(name, value)
        return replace(of_this, scalars=scalars)

    def parameters(self, kernel: Kernel, case: Case) -> tuple[Parameter, ...]:
        """Return the kernel's arguments in order. Raises SuiteError for an unknown name."""
        problem, rooms = self.problem, workspaces(kernel, case)
        found = []
        for name in argument_names(problem, kernel):
            if name in problem.arrays:
                layout = problem.layout(name, case)
                found.append(Parameter(name, layout.dtype, layout))
            elif name in problem.scalars:
                found.append(Parameter(name, problem.scalars[name].dtype))
            elif name in problem.axes:
                found.append(Parameter(name, "int32"))
            elif name in rooms:
                found.append(Parameter(name, "uint8", Layout((rooms[name],), "uint8")))
            elif kernel.setup is not None:
                found.append(Parameter(name, "setup"))
            else:
                what = f"argument {name!r}, which is no array, scalar or axis of its problem"
                raise kernel.error(f"has {what}.")
        return tuple(found)
