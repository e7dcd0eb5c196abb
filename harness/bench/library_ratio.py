"""A vendor's own kernel beside one of ours: both in one process on the same arrays, in turns.

Two figures measured apart differ by the clocks that the card happened to have. Here each quad has both
kernels, so their ratio hardly knows the clock.
"""

from __future__ import annotations

__all__ = ["Held", "check_library", "library_share", "pair_settings", "share_of"]

import dataclasses
import hashlib
import math
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from harness.bench.abba import Pair, PairSettings, measure_pair
from harness.bench.buffers import Arena
from harness.bench.measure import Subject, launches_per_slot
from harness.bench.rotation import Rotation
from harness.bench.verifier import Checker
from harness.device.backends.base import Device
from harness.errors import MeasureError
from harness.records import L2Policy, LibraryShare, Measurement, PairedBlock
from harness.spec.suite import Case
from harness.statistics.moderated import DEFAULT_PRIOR, moderate
from harness.statistics.paired import MIN_QUADS, log_ratios, of_arm, process_effect

MOST_QUADS = 10
TIME_S = 0.3
"""What the quads of a case may take together, unless one alone takes longer."""
_CONFIDENCE = 0.99
_LEAD_IN_S = 0.02
_PRIOR = dataclasses.replace(DEFAULT_PRIOR, proportion=0.0)
"""As for verdicts, the process is one of many that differ a little; but a kernel a tenth as fast as the
library is no doubtful case, so that spread does not grow with how far apart they are."""


@dataclass(frozen=True, slots=True)
class Held:
    """A kernel that was verified and measured, with its arrays still on the device, random data in them."""

    case: Case
    arena: Arena
    subject: Subject
    rotation: Rotation
    measurement: Measurement
    stack: ExitStack
    """Closing it frees the arrays."""


def pair_settings(time_ns: float, tick_ns: float, l2: L2Policy) -> PairSettings:
    """As many quads as fit into TIME_S, where the kernel takes `time_ns` and the library not much more.

    The card has just been busy with the kernel, so there is hardly a warm-up.
    """
    slot_ns = time_ns * launches_per_slot(time_ns, tick_ns, PairSettings().min_slot_ns)
    quads = max(1, min(MOST_QUADS, int(TIME_S * 1e9 / (4 * slot_ns))))
    return PairSettings(
        l2=l2,
        min_quads=quads,
        max_quads=quads,
        max_time_s=TIME_S,
        warmup_min_s=0.0,
        warmup_max_s=0.0,
        lead_in_s=_LEAD_IN_S,
    )


def library_share(device: Device, held: Held, name: str, library: Subject) -> LibraryShare:
    """Measure a library's kernel, `name`, in turns with a kernel that is held."""
    own = held.measurement
    settings = pair_settings(median(own.times_ns), own.tick_ns, own.l2)
    pair, data = Pair(held.subject, library), held.rotation
    return share_of(name, measure_pair(device, pair, settings, data.rng, data))


def share_of(name: str, block: PairedBlock) -> LibraryShare:
    """The library's time over the kernel's, from quads whose A is the kernel and whose B is the library."""
    orders = [quad.order for quad in block.quads]
    ratios = log_ratios(orders, [quad.times_ns for quad in block.quads])
    value, half = float(np.mean(ratios)), None
    if len(ratios) >= MIN_QUADS:
        known = moderate([process_effect(ratios)], _PRIOR)
        value, half = known.mean, known.quantile((1 - _CONFIDENCE) / 2) * known.standard_error
    times = [time_ns for quad in block.quads for time_ns in of_arm(quad.order, quad.times_ns, "B")]
    return LibraryShare(
        kernel=name,
        share=math.exp(value),
        low=None if half is None else math.exp(value - half),
        high=None if half is None else math.exp(value + half),
        quads=len(ratios),
        library_time_ns=median(times),
    )


def check_library(checker: Checker, held: Held, case: Case, library: Subject) -> None:
    """Verify a library's kernel on the arrays of one that is held, once a run in full.

    What it wrote then is known by its digest in the run's scratch folder: in later processes the same bits
    are enough. Raises MeasureError for a wrong result.
    """
    seed = held.rotation.first()
    known = _digest_file(checker.scratch, case, seed)
    held.arena.poison()
    checker.report("verify")
    checker.device.launch(library.built, library.launch, library.arguments)
    checker.device.synchronize()
    with suppress(OSError):
        if known.read_text(encoding="ascii") == held.arena.digest():
            held.rotation.admit(library, case)
            return
    verification = checker.check(case, held.arena, library, seed)
    if not verification.passed:
        told = next(check.message for check in verification.checks if not check.passed)
        raise MeasureError(f"{case.kernel} gave a wrong result: {told}")
    with suppress(OSError):  # a full disk costs time, not the answer
        known.write_text(held.arena.digest(), encoding="ascii")
    held.rotation.admit(library, case)


def _digest_file(scratch: Path, case: Case, seed: int) -> Path:
    identity = repr((case.id, case.dtype, sorted(case.macros.items()), seed))
    return scratch / f"library-{hashlib.sha256(identity.encode()).hexdigest()}"
