"""Writes results of a benchmark program as lines of JSON for `harness compare --with-command`.

It imports only the standard library, because it runs inside other benchmarks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, SupportsFloat

VARIABLE = "HARNESS_OUT"
"""Environment variable with the file's name. `harness compare` sets it for each program that it runs."""


def report(
    name: str,
    times: SupportsFloat | Iterable[SupportsFloat],
    unit: str,
    /,
    *,
    launches: int | None = None,
    clock: Literal["device", "host"] | None = None,
    l2: Literal["cold", "hot"] | None = None,
    better: Literal["lower", "higher"] | None = None,
    device: str | None = None,
    **params: Any,
) -> None:
    """Append a result to the file named by HARNESS_OUT; print it if the variable is not set.

    `times` are one or many values in `unit`: ns, us, ms, s, or a rate such as GB/s with better="higher".
    `params` distinguish cases of one name: whole numbers are sizes, other values are words. Each time is the
    mean of `launches` launches, measured by `clock`. `l2` says if the cache was cleared before each launch,
    and `device` names the card.
    """
    values = [float(each) for each in (times if isinstance(times, Iterable) else [times])]
    plain = {key: _plain(value) for key, value in params.items()}
    line: dict[str, Any] = {"name": name, "params": plain, "times": values, "unit": unit}
    told = {"launches": launches, "clock": clock, "l2": l2, "better": better, "device": device}
    line |= {key: value for key, value in told.items() if value is not None}
    path = os.environ.get(VARIABLE)
    if not path:
        sys.stdout.write(_readable(name, values, unit, plain) + "\n")
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _readable(name: str, values: list[float], unit: str, params: dict[str, Any]) -> str:
    sizes = ", ".join(f"{key}={value}" for key, value in params.items())
    label = f"{name}[{sizes}]" if sizes else name
    if not values:
        return f"{label}: no time"
    if len(values) == 1:
        return f"{label}: {values[0]:.4g} {unit}"
    low, *_, high = ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return f"{label}: {middle:.4g} {unit} ({low:.4g} to {high:.4g}, {len(values)} times)"


def _plain(value: Any) -> str | float | bool | None:
    """Return a parameter for JSON: a number, or the name or text of another value."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else getattr(value, "__name__", None) or str(value)
