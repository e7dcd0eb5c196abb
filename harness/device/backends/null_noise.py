"""Made-up noise for the null device, of five kinds that occur on real cards.

Shares are of the time itself. The card's state affects everything that runs on it, so both sides of a
comparison have the same drift, modes and clocks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

KINDS = ("quiet", "drifting", "bimodal", "throttled", "heavy-tailed")

FULL_CLOCK_MHZ = 1980.0
_SHARE = 0.003
"""Standard deviation of one launch on a quiet card."""
_DRIFT_PER_S = 0.01
_MODE = 0.03
_SWITCH = 0.05
"""Probability per launch that the mode changes."""
_THROTTLED_NS = 5e6
_PAUSE_NS = 80e6
_LOW_CLOCK = 0.85
_STRAY = 0.02
"""Share of launches that take five times as long."""


@dataclass
class SimulatedNoise:
    """Draws the times of launches, and advances the device's clocks by them."""

    kind: str
    seed: int
    offset: float = 0.0003
    """Standard deviation between processes for each program, as from addresses of its code and data."""
    now_ns: float = 0.0
    cycles: float = 0.0
    clock_mhz: float = FULL_CLOCK_MHZ
    _rng: random.Random = field(init=False)
    _slow_mode: bool = False
    _until_ns: float = 0.0
    _offsets: dict[object, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"noise {self.kind!r}; expected one of {', '.join(KINDS)}")
        self._rng = random.Random(self.seed)  # noqa: S311 - noise, not a secret
        self._until_ns = self._rng.uniform(0, _PAUSE_NS)

    def spend(self, time_ns: float, launches: int, program: object) -> float:
        """Return the time of `launches` launches of `time_ns` each, and advance the device's clocks."""
        if program not in self._offsets:
            self._offsets[program] = self._rng.gauss(0, self.offset)
        share = 1 + self._offsets[program] + self._rng.gauss(0, _SHARE / math.sqrt(launches))
        total_ns = time_ns * launches * share * self._state()
        self.pass_time(total_ns)
        return total_ns

    def pass_time(self, duration_ns: float) -> None:
        self.now_ns += duration_ns
        self.cycles += duration_ns * self.clock_mhz / 1e3

    def _state(self) -> float:
        """Return the factor of the card's state on a time, and change the clock's rate."""
        if self.kind == "drifting":
            self.clock_mhz = FULL_CLOCK_MHZ / (1 + _DRIFT_PER_S * self.now_ns / 1e9)
        elif self.kind == "bimodal":
            self._slow_mode ^= self._rng.random() < _SWITCH
            return 1 + _MODE * self._slow_mode
        elif self.kind == "throttled":
            self._throttle()
        elif self.kind == "heavy-tailed":
            if self._rng.random() < _STRAY:
                return 5.0
            # Student's t with two degrees of freedom has infinite variance.
            stray = _SHARE * self._rng.gauss(0, 1) / math.sqrt(self._rng.expovariate(1.0))
            return max(0.5, 1 + stray)  # a time cannot be negative
        return FULL_CLOCK_MHZ / self.clock_mhz

    def _throttle(self) -> None:
        if self.now_ns < self._until_ns:
            return
        low = self.clock_mhz == FULL_CLOCK_MHZ
        self.clock_mhz = FULL_CLOCK_MHZ * (_LOW_CLOCK if low else 1.0)
        self._until_ns = self.now_ns + self._rng.expovariate(1 / (_THROTTLED_NS if low else _PAUSE_NS))
