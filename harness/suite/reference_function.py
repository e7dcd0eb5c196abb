"""A function of the repository as a problem's reference, such as a `softmax_ref` beside a kernel."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.errors import SuiteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.suite.layout import Layout

Framework = Literal["torch", "numpy", "cupy"]


class _Problem(Protocol):
    """The part of `Problem` (problem.py) that this module needs."""

    @property
    def outputs(self) -> Mapping[str, Any]: ...
    def layout(self, name: str, case: Any) -> Layout: ...


@dataclass(frozen=True)
class ReferenceFunction:
    """A function in a Python file that computes the reference.

    It is called with the inputs in float64, as tensors on the host (CuPy's on the device). Its parameters are
    inputs, scalars and axes by name, or the inputs in order. It returns the outputs in order.
    """

    file: str
    """Path relative to the suite's folder."""
    name: str
    framework: Framework = "torch"
    folder: Path = Path()
    """The suite's folder; set where the problem is defined."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise SuiteError(f"ReferenceFunction name {self.name!r} is not the name of a function.")

    def named_in(self, module: str) -> ReferenceFunction:
        """Return the function under the name that a suite loaded as this module uses."""
        file = getattr(sys.modules.get(module), "__file__", None)
        return dataclasses.replace(self, folder=Path(file).parent) if file else self

    @property
    def path(self) -> Path:
        return (self.folder / self.file).resolve()

    def __call__(self, problem: _Problem, case: Any, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Return the outputs by name. Raises SuiteError for a function that cannot be called."""
        from harness.suite.import_path import importing_from
        from harness.suite.layout import Parameter
        from harness.suite.python_functions import PythonCall

        arrays = (Parameter(name, "float64", problem.layout(name, case)) for name in inputs)
        numbers = {**case.scalars, **case.sizes}
        parameters = (*arrays, *(Parameter(name, "") for name in numbers))
        call = PythonCall(self.framework, self.path, self.name, parameters, (), {}, self.folder, "")
        to_framework, to_numpy = _conversions(self.framework)
        values = {**{name: to_framework(array) for name, array in inputs.items()}, **numbers}
        with importing_from(self.folder):
            function = call.load()
            bound = call.bind(function)
            named = {name: values[given] for name, given in bound.keywords.items()}
            found = function(*(values[given] for given in bound.positional), **named)
        results = found if isinstance(found, (tuple, list)) else (found,)
        if len(results) != len(problem.outputs):
            raise SuiteError(
                f"{self.name} of {self.file} returns {len(results)} arrays; expected one for each of "
                f"{', '.join(problem.outputs)}. Write a function that returns these in this order."
            )
        return dict(zip(problem.outputs, map(to_numpy, results), strict=True))


def _conversions(framework: Framework) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions that convert NumPy arrays to a framework's, and back."""
    if framework == "numpy":
        return (lambda array: array), (lambda array: array)
    module = importlib.import_module(framework)
    if framework == "cupy":
        return module.asarray, module.asnumpy
    return module.from_numpy, lambda tensor: tensor.detach().double().cpu().numpy()
