"""What kernels are timed on: two sets of data in turns, outputs poisoned in between and looked at afterwards.

A check before timing says that a kernel can be right. Here it is seen to that it is right when timed: on data
that change under it, with no result in place that it could leave as it is, and by what it leaves behind.
"""

from __future__ import annotations

__all__ = ["NotAsVerifiedError", "Rotation"]

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.bench.buffers import POISON, Arena, Kept, same_bits
from harness.bench.measure import ENQUEUE_NS, Data, Subject
from harness.bench.verifier import UNSEEN, Checker
from harness.device.backends.base import Timing
from harness.errors import MeasureError
from harness.spec.suite import Case

SKIPS = 4.0
"""How many times longer a launch may take that finds nothing done. It should take as long: poison lies in the
caches where the kernel's output would, and memory is hardly so many times slower than the L2 before it."""
_SINGLES, _SINGLES_NS = 7, 50e6
"""How many launches are timed to tell, and about how long they may take."""
_LONG_NS = 1e6
_LAST_LOOKS, _LAST_LOOKS_BYTES = 16, 2**24
"""Launches that are looked at one by one in the end, and the most that is read for it unless one has more:
work may be left out of some launches only."""
_TRIES = 5
"""How many sets of data that nobody has seen, at most."""
_SPOTS, _SPOT_BYTES = 16, 256
"""How many places of an output are looked at while nothing may have run yet, and how much of each."""


class NotAsVerifiedError(MeasureError):
    """A kernel that does not do when timed what it did when verified."""

    def __init__(self, subject: Subject, message: str) -> None:
        super().__init__(message)
        self.subject = subject


class WrongWhenTimedError(NotAsVerifiedError):
    reason = "wrong-when-timed"


class SkippedWorkError(NotAsVerifiedError):
    reason = "skips-work"


class ForeignStreamError(NotAsVerifiedError):
    reason = "foreign-stream"


@dataclass(slots=True)
class _DataSet:
    seed: int
    kept: Kept | None = None
    """The inputs on the device; None where they have to come from the host."""
    unseen: Mapping[str, NDArray[Any]] | None = None
    """The inputs on the host, of a set that is used once."""
    digests: dict[Subject, str] = field(default_factory=dict)
    """Of each kernel's outputs."""


class Rotation(Data):
    """The arena of one case as harness.bench.measure.Data, for kernels that were verified on it.

    `seed` is that of the data that the arena holds: the first set. A second is made from the next seed. With
    three `sets`, kernels get data at the end that nobody has seen. With one there is the arena's, as for
    a problem whose data() gives the same for every seed.
    """

    def __init__(
        self,
        checker: Checker,
        arena: Arena,
        case: Case,
        seed: int,
        rng: random.Random,
        *,
        sets: Literal[1, 2, 3] = 3,
    ) -> None:
        self.checker, self.arena, self.case, self.rng = checker, arena, case, rng
        self._with_unseen = sets == 3
        self.device = arena.device
        self._sets = [_DataSet(seed + number) for number in range(min(sets, 2))]
        self._in_force = self._sets[0]
        self._slots = self._offers = 0
        self._room: Kept | None = None
        """For a sample of outputs, on the device: one that waited for the host to look would run cooler."""
        self._sampled: tuple[Subject, _DataSet] | None = None
        self._launch_ns = 1.0
        self._poisoned = False
        self._surprised: set[Subject] = set()
        """Those that have had data that nobody had seen."""

    def admit(self, subject: Subject, case: Case) -> str:
        """Take in a kernel that was verified on the first set, inputs and outputs of which lie in the arena;
        gives these outputs' digest.

        Records what it computes on the second set. Of a kernel that could keep something, it is compared with
        the reference: a sample of it where it is large. All of it is where it is no other than for the first.
        Raises ForeignStreamError for work that did not wait for its turn.
        """
        first = self._in_force = self._sets[0]
        if not first.digests:
            self._keep()
        first.digests[subject] = self.arena.digest()
        self._use(self._sets[-1])
        self._launch_held(subject)
        digest = self.arena.digest()
        if digest == first.digests[subject]:
            if self._in_force is not first:
                self._compare(subject, case, in_full=True)
        elif self._in_force is first or not subject.built.stateless:
            self._compare(subject, case, in_full=False)
        self._in_force.digests[subject] = digest
        return first.digests[subject]

    def _keep(self) -> None:
        """Both sets on the device, where it has room; one only, where the problem gives the same again."""
        first, *others = map(self._inputs, self._sets)
        if all(same_bits(first[name], other[name]) for other in others for name in first):
            del self._sets[1:]
            return
        for data_set, inputs in zip(self._sets, (first, *others), strict=True):
            data_set.kept = self.arena.keep(inputs)
        self._room = self.arena.room(self.arena.problem.outputs)

    def first(self) -> int:
        """Put the first set back in place, and tell its seed."""
        self._use(self._sets[0])
        return self._sets[0].seed

    def _launch_held(self, subject: Subject) -> None:
        self.poison()
        self.device.synchronize()
        looks = list(self._spots())
        told = self.device.launch_held(subject.built, subject.launch, subject.arguments, looks)
        if told and any((out != POISON).any() for _, _, out in looks):
            raise ForeignStreamError(
                subject,
                "The kernel's outputs changed while the stream that it was given was still held: it works on "
                "a stream or thread of its own, whose time nobody takes. Put all work on the stream that the "
                "function is given, or have the two wait for each other with events.",
            )

    def _spots(self) -> Iterator[tuple[Any, int, NDArray[np.uint8]]]:
        for memory, begin, size_bytes in self.arena.outputs():
            for place in np.linspace(0, max(0, size_bytes - _SPOT_BYTES), _SPOTS, dtype=np.int64):
                out = np.full(min(size_bytes, _SPOT_BYTES), POISON, np.uint8)
                yield memory, begin + int(place), out

    def _use(self, data_set: _DataSet) -> None:
        if data_set is not self._in_force:
            self._put(data_set)

    def _put(self, data_set: _DataSet) -> None:
        if data_set.kept is not None:
            self.arena.restore(data_set.kept)
        else:
            self.arena.write(self._inputs(data_set))
        self._in_force = data_set

    def _inputs(self, data_set: _DataSet) -> Mapping[str, NDArray[Any]]:
        return data_set.unseen or self.checker.inputs(self.case, data_set.seed)

    # What harness.bench.measure asks for.

    def poison(self) -> None:
        self.arena.poison()
        self._poisoned = True

    def change(self) -> None:
        # Half the time; but from the host once at most, as the device would wait for it.
        self._offers += 1
        on_device = all(data_set.kept for data_set in self._sets)
        if (on_device or self._offers == 1) and self.rng.random() < 0.5:
            self._other()

    def _other(self) -> None:
        self._use(self._sets[0 if self._in_force is self._sets[-1] else 1])

    def sample(self, subject: Subject) -> None:
        """The n-th slot takes the place of the sample with probability 1 / n: each is as likely to be it."""
        self._slots += 1
        if self._room and self.rng.random() * self._slots < 1:
            self.arena.save(self._room)
            self._sampled = subject, self._in_force

    def _check_sample(self) -> None:
        if self._sampled is None:
            return
        (subject, self._in_force), in_force = self._sampled, self._in_force
        if self.arena.digest(self._room) != self._in_force.digests[subject]:
            self._compare(subject, self.case, in_full=True, kept=self._room)
        self._in_force, self._sampled = in_force, None

    def _check(self, subject: Subject) -> None:
        """Raises WrongWhenTimedError for outputs that are neither what was verified nor as right."""
        if self._poisoned and self.arena.digest() != self._in_force.digests[subject]:
            self._compare(subject, self.case, in_full=True)
        self._poisoned = False

    def begin(self, subject: Subject, time_ns: float) -> None:
        """Raises SkippedWorkError, lest slots be planned by the time of a kernel that finds its work done.

        A launch that is long enough for a slot by itself is poisoned each time, so its time is of its work.
        """
        self._launch_ns = time_ns
        if time_ns < _LONG_NS:
            self._check_work(subject)

    def finish(self, subjects: Sequence[Subject], launches: int) -> None:
        """Raises WrongWhenTimedError for a wrong result of the last slot, of one of the others, on the data
        that were not in force last, or on data that nobody has seen; and SkippedWorkError.
        """
        self._check(subjects[-1])
        self._check_sample()
        for subject in subjects:
            self._finish(subject, launches)

    def _finish(self, subject: Subject, launches: int) -> None:
        if launches > 1:
            self._check_work(subject)
        size_bytes = sum(size_bytes for _, _, size_bytes in self.arena.outputs())
        for number in range(max(1, min(_LAST_LOOKS, _LAST_LOOKS_BYTES // size_bytes, self._affordable()))):
            self._other()
            if number:
                self.poison()
                self.device.launch(subject.built, subject.launch, subject.arguments)
            else:  # what waited for its turn when it was verified may not any more
                self._launch_held(subject)
            self._check(subject)
        unseen = self._with_unseen and len(self._sets) > 1 and subject not in self._surprised
        if unseen and not subject.built.stateless:
            self._surprised.add(subject)
            self._check_unseen(subject)

    def _check_unseen(self, subject: Subject) -> None:
        """On data of a seed that nobody can know: what it has learnt of the other sets is of no use there.

        Data that it has seen are put in place anew for each launch that is held against it: what was just
        written is in another cache than what was just read. One launch may be slow by chance, and then it is
        tried again.
        """
        kept = None
        for _ in range(_TRIES):
            seed = random.SystemRandom().getrandbits(63)
            inputs = self.checker.new_inputs(self.case, seed)
            kept = self.arena.keep(inputs, kept)
            count = max(1, min(_SINGLES, self._affordable()))
            self.device.occupy(4 * (count + 2) * ENQUEUE_NS)
            again = [self._timed_on(self._sets[0], subject) for _ in range(count)]
            first = self._timed_on(_DataSet(seed, kept, inputs), subject)
            self._compare(subject, self.case, in_full=False)
            first_ns, again_ns = first(), median(each() for each in again)
            if first_ns <= SKIPS * max(again_ns, self.device.tick_ns()):
                return
        raise SkippedWorkError(
            subject,
            f"A launch takes {again_ns / 1e6:.4g} ms on data that it has seen before, the first on others "
            f"{first_ns / 1e6:.4g} ms: the kernel keeps what it has computed.",
        )

    def _check_work(self, subject: Subject) -> None:
        for _ in range(2):  # what is an accident does not happen twice
            fresh_ns, again_ns = self._singles(subject)
            if fresh_ns <= SKIPS * max(again_ns, self.device.tick_ns()):
                return
        raise SkippedWorkError(
            subject,
            f"A launch takes {again_ns / 1e6:.4g} ms with its result in place, and without it "
            f"{fresh_ns / 1e6:.4g} ms or more: the kernel leaves out work that it finds done.",
        )

    def _singles(self, subject: Subject) -> tuple[float, float]:
        """Time of single launches in ns, in turns: the least that found outputs poisoned, the median of those
        that found them in place.

        The least, as what else the machine does makes times longer and never shorter.
        """
        count = max(1, min(_SINGLES, self._affordable()))
        self.device.occupy(3 * count * ENQUEUE_NS)
        fresh, again = [], []
        for _ in range(count):
            self.poison()
            fresh.append(self._timed(subject))
            again.append(self._timed(subject))
        self.device.synchronize()
        return min(each() for each in fresh), median(each() for each in again)

    def _affordable(self) -> int:
        """How many launches take no longer than single ones may."""
        return int(_SINGLES_NS / max(self._launch_ns, 1.0))

    def _timed_on(self, data_set: _DataSet, subject: Subject) -> Timing:
        self._put(data_set)
        self.poison()
        return self._timed(subject)

    def _timed(self, subject: Subject) -> Timing:
        return self.device.timed(subject.built, subject.launch, subject.arguments, 1)

    def _compare(self, subject: Subject, case: Case, *, in_full: bool, kept: Kept | None = None) -> None:
        """Hold the outputs in place, or the copies of them, to the reference for the data in force."""
        outputs = {name: self.arena.read(name, kept) for name in self.arena.problem.outputs}
        data_set = self._in_force
        key = UNSEEN if data_set.unseen else "random", data_set.seed
        if told := self.checker.wrong(case, key, self._inputs(data_set), outputs, in_full=in_full):
            raise WrongWhenTimedError(
                subject,
                f"Right before timing and wrong when timed: {told} The kernel keeps something between "
                "launches, works where nobody waits for it, or has a race.",
            )
