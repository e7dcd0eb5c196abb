"""Ranges of plausible values of a device. A value outside of its range was never measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Range:
    """The lowest and the highest plausible value, inclusive."""

    lowest: float
    highest: float
    unit: str = ""


_CLOCK = Range(1, 10_000, "MHz")
_MAX_CLOCK = Range(100, 10_000, "MHz")
"""No card or processor has a lower highest clock, though many idle at lower clocks."""
_MEMORY_CLOCK = Range(1, 50_000, "MHz")
_POWER = Range(0.1, 3_000, "W")
_LANES = Range(1, 32, "lanes")

RANGES: Mapping[str, Range] = {
    "sm_clock_mhz": _CLOCK,
    "memory_clock_mhz": _MEMORY_CLOCK,
    "temperature_c": Range(1, 150, "°C"),
    "power_w": _POWER,
    # A responding card has used some energy, and this is ten years at 3 kW.
    "energy_j": Range(1e-3, 1e12, "J"),
    "p_state": Range(0, 15),
    "utilization_percent": Range(0, 100, "%"),
    "clock_event_mask": Range(0, 2**24 - 1),
    "throttle_ns": Range(0, 1e18, "ns"),
    "memory_used_bytes": Range(0, 2**48, "bytes"),
    "processes": Range(1, 2**30),
    "load_average": Range(0, 1e6),
    "max_sm_clock_mhz": _MAX_CLOCK,
    "max_memory_clock_mhz": Range(100, 50_000, "MHz"),
    "memory_bus_bits": Range(8, 32_768, "bits"),
    "application_sm_clock_mhz": _CLOCK,
    "application_memory_clock_mhz": _MEMORY_CLOCK,
    "power_limit_w": _POWER,
    "power_limit_default_w": _POWER,
    "pcie_generation": Range(1, 15),
    "pcie_width": _LANES,
    "pcie_width_now": _LANES,
}
"""Ranges by the name of a snapshot's field, a limit or a fact of identity. Names without a range are text."""


class ImplausibleError(Exception):
    """A value that cannot be true. The message contains it."""


def plausible(name: str, value: Any) -> Any:
    """Return the value, or each of several, of this name. Raises ImplausibleError."""
    limits = RANGES[name]
    for each in value if isinstance(value, Iterable) else (value,):
        if not limits.lowest <= each <= limits.highest:
            unit = f" {limits.unit}" if limits.unit else ""
            said = each if isinstance(each, int) else f"{each:.10g}"
            likely = f"{limits.lowest:.16g} to {limits.highest:.16g}{unit}"
            raise ImplausibleError(f"the driver says {said}{unit}, and {likely} are plausible")
    return value


def plausible_or_none(name: str, value: float | None) -> float | None:
    """Return a plausible value; None for another."""
    limits = RANGES[name]
    return value if value is not None and limits.lowest <= value <= limits.highest else None


def reason_of(error: Exception) -> str:
    """Return the message of another library's exception; its type if there is no message."""
    kind = type(error).__name__
    try:
        words = " ".join(str(error).split()).rstrip(".")
    except Exception:  # noqa: BLE001 - of a library that nobody knows
        words = ""
    return f"{kind}: {words}" if words else kind


def text_of(read: Callable[[], str]) -> str:
    """Return a driver's text in one line; 'unavailable: why' if its library raises."""
    try:
        return " ".join(read().split())
    except Exception as error:  # noqa: BLE001 - such as a card's name that is no UTF-8
        return f"unavailable: {reason_of(error)}"


def or_none(read: Callable[[], T]) -> T | None:
    """Return a driver's value; None if it refuses, fails or lacks the name."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - of a library that nobody knows
        return None
