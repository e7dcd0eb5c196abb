"""Compares the outputs of head's timed function with base's: bit for bit, within a tolerance, or
different.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import MeasureError
from harness.measure.protocol import SideName
from harness.measure.verify import COARSE_SHARE, SELF_DIFFERENCES, SHARES
from harness.records.imports.imported import identifier
from harness.records.types import Outputs
from harness.run.scripts.script_process import Done, RaisedError

TOLERANCES: Mapping[str, float] = {
    **SHARES,
    "complex64": SHARES["float32"],
    "complex128": SHARES["float64"],
}
"""Largest difference by type, as a share of the array's largest magnitude. Integers must be equal."""
_ROLLED = 100.0
"""Multiple of the tolerance for rolled data. The author did not intend these, so only gross differences
count."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a comparison of outputs."""

    difference: str = ""
    """Sentence on the difference between head and base; empty if the outputs agree."""
    error: float | None = None
    """Largest difference in units of the tolerance, 0 for the same bits; None without a comparison."""
    reason: str = ""
    """Code of the reason why nothing was compared."""
    array: str = ""
    """Name of an input that differs, as an identifier."""

    @property
    def outputs(self) -> Outputs:
        """Return the outputs for a verdict. Outputs that differ and are judged anyway have no reference."""
        if self.difference:
            return Outputs(held_to="nothing", reason="differ")
        if self.reason:
            return Outputs(held_to="nothing", reason=self.reason, array=self.array)
        return Outputs(held_to="base", error=self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsOrder:
    """An order to run a function once and return its outputs. Empty paths write nothing."""

    path: str = ""
    """File for the values of outputs."""
    rolled: bool = False
    """True to run on the author's data rolled by one element."""
    inputs_to: str = ""
    """File to write the floats of inputs to."""
    inputs_from: str = ""
    """File of floats that replace the function's own inputs."""


Observe = Callable[[SideName, OutputsOrder], Done | RaisedError]
"""Function that makes one side execute an order, and returns its answer."""


@dataclass(frozen=True, slots=True)
class OutputsCheck:
    """Compares head's outputs at one call with base's."""

    observe: Observe
    scratch: Path
    rtol: float | None
    """Tolerance for every float type, instead of TOLERANCES."""

    def run(self) -> Found:
        """Compare on the author's data, and on these data rolled by one element, which reveals a stale
        buffer.
        """
        found = self._compared(rolled=False)
        if found.difference or found.reason not in ("", "not-seen"):
            return found
        rolled = self._compared(rolled=True)
        if rolled.difference:
            return rolled
        return rolled if found.reason and not rolled.reason else found

    def _compared(self, *, rolled: bool) -> Found:
        asked = OutputsOrder(rolled=rolled)
        seen = self._both(asked)
        if isinstance(seen, Found):
            return seen
        if seen["base"].outputs != seen["head"].outputs and _differing_inputs(seen):
            inputs = self.scratch / "inputs.arrays"
            inputs.unlink(missing_ok=True)
            asked = dataclasses.replace(asked, inputs_to=str(inputs))
            seen = self._both(asked)
            if isinstance(seen, Found):
                return seen
        base, head = seen["base"], seen["head"]
        if not base.outputs and not head.outputs:
            return Found(reason="not-seen")
        if base.outputs == head.outputs:
            return Found(error=0.0)
        changed = {*base.outputs, *head.outputs}
        if other := next((name for name in _differing_inputs(seen) if name not in changed), ""):
            return Found(reason="inputs-differ", array=identifier(other))
        return self._by_values(asked)

    def _both(self, asked: OutputsOrder) -> dict[SideName, Done] | Found:
        """Run both sides. Head uses the inputs that base wrote."""
        seen: dict[SideName, Done] = {}
        of_sides: dict[SideName, OutputsOrder] = {
            "base": asked,
            "head": dataclasses.replace(asked, inputs_to="", inputs_from=asked.inputs_to),
        }
        for side, of_side in of_sides.items():
            path = str(self.scratch / f"{side}.arrays") if asked.path else ""
            done = self.observe(side, dataclasses.replace(of_side, path=path))
            if isinstance(done, RaisedError):
                return Found(reason="raised")
            if path and not done.written:
                return Found(reason="too-large")
            seen[side] = done
        return seen

    def _by_values(self, asked: OutputsOrder) -> Found:
        again = dataclasses.replace(asked, path=str(self.scratch / "again.arrays"))
        seen = self._both(again)
        if isinstance(seen, Found):
            return seen
        base, head = (read_arrays(self.scratch / f"{side}.arrays") for side in ("base", "head"))
        once_more = self.observe("base", again)
        has_values = isinstance(once_more, Done) and once_more.written
        own = read_arrays(Path(again.path)) if has_values else {}
        limit = _ROLLED if asked.rolled else 1.0
        worst = 0.0
        for name in dict.fromkeys((*base, *head)):
            if name not in base or name not in head:
                return _one_sided(name, in_base=name in base)
            one, other = base[name], head[name]
            if one.values.shape != other.values.shape:
                return Found(
                    f"{name} has the shape {_shape(other)}, and {_shape(one)} at base", error=math.inf
                )
            found = _difference(one, other, own.get(name), self.rtol)
            if found.error > limit:
                data = " with its floats moved on by one element" if asked.rolled else ""
                return Found(f"{name}{data} {found.words}", error=found.error)
            worst = max(worst, found.error)
        return Found(error=worst)


def _differing_inputs(seen: Mapping[SideName, Done]) -> list[str]:
    """Return the names of input arrays that differ between the two sides."""
    at_head = seen["head"].inputs
    return [name for name, digest in seen["base"].inputs.items() if at_head.get(name, digest) != digest]


@dataclass(frozen=True, slots=True)
class OutputArray:
    values: NDArray[Any]
    type: str
    """The framework's type, such as bfloat16, which NumPy holds as float32."""


@dataclass(frozen=True, slots=True)
class _Difference:
    error: float
    words: str


def read_arrays(path: Path) -> dict[str, OutputArray]:
    """Return the arrays that a script's process wrote, by name. Raises MeasureError for an invalid file."""
    found = {}
    try:
        with path.open("rb") as file:
            for name, dtype, shape, kind in json.loads(file.readline()):
                size = math.prod(shape) * np.dtype(dtype).itemsize
                found[str(name)] = OutputArray(
                    np.frombuffer(file.read(size), dtype).reshape(shape), str(kind)
                )
    except (OSError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise MeasureError(f"The arrays that the script wrote cannot be read: {error}.") from None
    return found


def _one_sided(name: str, *, in_base: bool) -> Found:
    if name.startswith("returned"):
        who, other = ("base", "head") if in_base else ("head", "base")
        return Found(f"{who} returns {name} and {other} does not", error=math.inf)
    words = "base writes it and head leaves it as it was" if in_base else "head writes it and base does not"
    return Found(f"{name}: {words}", error=math.inf)


def _shape(array: OutputArray) -> str:
    return "x".join(map(str, array.values.shape)) or "scalar"


def _difference(
    base: OutputArray, head: OutputArray, again: OutputArray | None, rtol: float | None
) -> _Difference:
    """Compare two arrays of one shape. NaN equals NaN, and an infinity equals itself."""
    if base.values.dtype.kind not in "fc" or head.values.dtype.kind not in "fc":
        differ = base.values != head.values
        if again is not None and again.values.shape == base.values.shape:
            differ &= base.values == again.values  # base differs from itself there, for example a counter
        wrong = np.flatnonzero(differ.ravel())
        if not wrong.size:
            return _Difference(0.0, "")
        return _Difference(math.inf, f"{_where(base, head, int(wrong[0]))}; {wrong.size} elements differ")
    errors = _errors(base.values, head.values)
    if not errors.size or not (worst := float(errors.max())):
        return _Difference(0.0, "")
    finite = np.abs(base.values[np.isfinite(base.values)])
    scale = float(finite.max()) if finite.size else 0.0
    kinds = [TOLERANCES.get(each.type, COARSE_SHARE) for each in (base, head)]
    bound = (rtol if rtol is not None else max(kinds)) * scale
    if again is not None and again.values.shape == base.values.shape:
        own = _errors(base.values, again.values)
        bound = max(bound, SELF_DIFFERENCES * float(own.max()))
    error = worst / bound if bound > 0 else math.inf
    at = int(errors.argmax())
    wrong_count = int(np.count_nonzero(errors > bound))
    words = (
        f"{_where(base, head, at)}; {wrong_count} of {errors.size} elements differ by more than {bound:.3g}"
    )
    return _Difference(error, words)


def _errors(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    wide = np.complex128 if one.dtype.kind == "c" or other.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = one.astype(wide).ravel(), other.astype(wide).ravel()
        errors: NDArray[Any] = np.abs(a - b)
        errors[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        errors[np.isnan(errors)] = np.inf
    return errors


def _where(base: OutputArray, head: OutputArray, at: int) -> str:
    place = np.unravel_index(at, base.values.shape)
    index = "".join(f"[{int(each)}]" for each in place)
    return f"is {head.values.ravel()[at]} at {index or 'its place'}, and {base.values.ravel()[at]} at base"
