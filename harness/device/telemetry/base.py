"""The interface of a probe, the thread that samples it, and a measurement's telemetry.

A probe may fail at any moment without affecting a measurement: a failure becomes a reason beside the values.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, final

from harness.errors import DeviceError
from harness.records.types import Snapshot, Telemetry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_MOST_FAILURES_IN_A_ROW = 10
_PROBE_ANSWERS_WITHIN_S = 5.0
_at_ns = attrgetter("at_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """Limits of the device, as far as it reports them."""

    max_sm_clock_mhz: float | None = None
    max_memory_clock_mhz: float | None = None
    """Highest memory clock as the driver counts it: two transfers per pin and cycle."""
    memory_bus_bits: int | None = None


class Probe(Protocol):
    """Telemetry of one device. A probe reads values and never changes a setting.

    `snapshot` raises DeviceError if the device is gone. A value that it cannot read is None in the snapshot,
    with a reason in `unavailable` by field. All reasons are there after the first full snapshot.
    throttle_ns.hw_thermal is one counter. A light snapshot (full=False) leaves out expensive values:
    throttle_ns, memory_used_bytes and processes. `identity` returns facts that are constant in a session,
    with units in their names. `close` may be called twice.
    """

    @property
    def name(self) -> str: ...
    @property
    def unavailable(self) -> Mapping[str, str]: ...
    def snapshot(self, *, full: bool = True) -> Snapshot: ...
    def identity(self) -> Mapping[str, str]: ...
    def limits(self) -> DeviceLimits: ...
    def close(self) -> None: ...


@final
class Sampler:
    """Takes a light snapshot every `interval_s`, and a full one, a mark, every `mark_s` and at both ends.

    Enter it before the measuring child process is started: processes that hold a context by then are foreign.
    If children open the device before their turn, `at_rest` is a mark from before the first of them. Use one
    sampler for one child; the probe stays open. A failed sample is dropped, and a failed mark is an empty
    snapshot, with the reason in `unavailable` under the key 'probe'. Sampling stops after a DeviceError or
    ten failures in a row. With interval_s=None there is no thread, and `sample` and `mark` are called
    explicitly.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        interval_s: float | None = 0.02,
        mark_s: float = 0.5,
        at_rest: Snapshot | None = None,
    ) -> None:
        self.probe = probe
        self.stopped = False
        """True after sampling has given up. Marks still ask the probe."""
        self._interval_s = interval_s
        self._mark_ns = int(mark_s * 1e9)
        self._snapshots: list[Snapshot] = []
        self._marks: list[Snapshot] = [at_rest] if at_rest else []
        self._failure = ""
        self._failures = 0
        self._failures_in_a_row = 0
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Sampler:
        self.mark()
        if self._interval_s is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(_PROBE_ANSWERS_WITHIN_S)
        self.mark()

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return all snapshots so far, marks included, oldest first."""
        return tuple(sorted(self._snapshots, key=_at_ns))

    @property
    def marks(self) -> tuple[Snapshot, ...]:
        """Return the full snapshots so far, oldest first. The first precedes the child's start."""
        return tuple(sorted(self._marks, key=_at_ns))

    @property
    def unavailable(self) -> Mapping[str, str]:
        """Return the probe's own reasons, and under 'probe' the first failure of a whole snapshot."""
        if not self._failures:
            return dict(self.probe.unavailable)
        how_often = f"{self._failures} failed, {len(self._snapshots)} kept"
        return {**self.probe.unavailable, "probe": f"{self._failure} ({how_often})"}

    def sample(self) -> None:
        """Take a light snapshot now, if possible."""
        self._take(full=False)

    def mark(self) -> Snapshot:
        """Take a full snapshot now and return it; an empty one if the probe fails."""
        # Keep a failed mark too, so that a window beside it has an edge in time.
        return self._take(full=True) or self._keep(Snapshot(at_ns=time.monotonic_ns()), full=True)

    def _run(self) -> None:
        next_mark_ns = time.monotonic_ns() + self._mark_ns
        while not self.stopped and not self._leaving.wait(self._interval_s):
            now_ns = time.monotonic_ns()
            if now_ns < next_mark_ns:
                self.sample()
            else:
                self.mark()
                next_mark_ns = now_ns + self._mark_ns

    def _take(self, *, full: bool) -> Snapshot | None:
        # If a driver call hangs in the thread, the harness must not hang: never wait without a limit.
        if not self._lock.acquire(timeout=_PROBE_ANSWERS_WITHIN_S):
            self._note(f"the {self.probe.name} probe gave no answer for {_PROBE_ANSWERS_WITHIN_S:g} s")
            return None
        try:
            snapshot = self.probe.snapshot(full=full)
        except Exception as error:  # noqa: BLE001  # telemetry must not end a measurement
            self._note(f"{type(error).__name__}: {error}", lost=isinstance(error, DeviceError))
            return None
        else:
            self._failures_in_a_row = 0
            return self._keep(snapshot, full=full)
        finally:
            self._lock.release()

    def _keep(self, snapshot: Snapshot, *, full: bool) -> Snapshot:
        self._snapshots.append(snapshot)
        if full:
            self._marks.append(snapshot)
        return snapshot

    def _note(self, reason: str, *, lost: bool = False) -> None:
        self._failure = self._failure or reason
        self._failures += 1
        self._failures_in_a_row += 1
        self.stopped = self.stopped or lost or self._failures_in_a_row >= _MOST_FAILURES_IN_A_ROW


def nearest_or_within(snapshots: Sequence[Snapshot], started_ns: int, ended_ns: int) -> tuple[Snapshot, ...]:
    """Return the snapshots (oldest first) in the window, edges included; if there are none, the
    nearest one.
    """
    first = bisect_left(snapshots, started_ns, key=_at_ns)
    last = bisect_right(snapshots, ended_ns, key=_at_ns)
    if first < last:
        return tuple(snapshots[first:last])
    beside = snapshots[max(first - 1, 0) : first + 1]
    return tuple(sorted(beside, key=lambda s: max(started_ns - s.at_ns, s.at_ns - ended_ns))[:1])


def telemetry_of(sampler: Sampler, started_ns: int, ended_ns: int, *, own_pids: Collection[int]) -> Telemetry:
    """Return the samples of one measurement as telemetry.

    Its edges are moments of the host's monotonic clock, which on Linux is also the child's. `before` and
    `after` are the nearest full snapshots outside of the measurement: a throttle counter with equal values
    there did not move during it. Call it right after the measurement, while the child still holds its
    context, to take the `after` mark. `own_pids` are the child and its children.
    """
    if not any(mark.at_ns >= ended_ns for mark in sampler.marks):
        sampler.mark()
    marks = sampler.marks
    earlier = [mark for mark in marks if mark.at_ns <= started_ns]
    later = [mark for mark in marks if mark.at_ns >= ended_ns]
    before = earlier[-1] if earlier else marks[0]
    after = later[0] if later else marks[-1]
    foreign = foreign_processes(
        [mark.processes for mark in marks if mark.at_ns <= before.at_ns],
        [mark.processes for mark in marks if before.at_ns <= mark.at_ns <= after.at_ns],
        own_pids,
    )
    unavailable = dict(sampler.unavailable)
    if foreign is None:
        unavailable.setdefault(
            "foreign_processes",
            unavailable.get("processes", "the driver's list does not even show the harness's own process"),
        )
    return Telemetry(
        probe=sampler.probe.name,
        before=before,
        during=nearest_or_within(sampler.snapshots, started_ns, ended_ns),
        after=after,
        unavailable=unavailable,
        foreign_processes=foreign,
    )


def foreign_processes(
    earlier: Sequence[Iterable[int] | None],
    while_measuring: Sequence[Iterable[int] | None],
    own_pids: Collection[int],
) -> tuple[int, ...] | None:
    """Return the other processes that shared the device with the measurement, sorted; None if unknown.

    The lists are the driver's, oldest first, with None for an unreadable one. The first of `earlier` precedes
    our child's context, and those of `while_measuring` are from its lifetime. In a container the driver lists
    the host's process ids, if any, and ours is not among `own_pids`. So there are three cases:

    - One of `own_pids` is listed, or there are none: every other process is foreign.
    - None is listed, but new processes appeared since the first list. The first new one (or as many as
      `own_pids` has) is taken as ours. New processes between the same two lists cannot be distinguished, so a
      returned id may be ours. But there certainly is a foreign process.
    - None is listed, and no process is new: every listed process is foreign. An empty list does not prove
      that there is none, because our own process has a context and is missing from the list. Then the result
      is None.
    """
    lists = [frozenset(pids) for pids in while_measuring if pids is not None]
    if not lists:
        return None
    listed = frozenset[int]().union(*lists)
    own = listed.intersection(own_pids)
    if own or not own_pids:
        return tuple(sorted(listed - own))
    at_rest = earlier[0] if earlier else None
    if at_rest is None or not listed:
        return None
    history = [frozenset(pids) for pids in earlier if pids is not None] + lists
    newcomers = [pid for pids in history for pid in sorted(pids & listed - frozenset(at_rest))]
    return tuple(sorted(listed - set(newcomers[: len(own_pids)])))
