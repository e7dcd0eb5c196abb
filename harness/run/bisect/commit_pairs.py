"""Compares pairs of commits, one by one, and remembers the verdicts.

Code is identified by hashes. A journal keeps the verdict on two binaries, so no pair is measured twice, even
after an interrupt or a rebase.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec

from harness.errors import Side, SuiteError, UsageError
from harness.measure.paired_kernels import ArraysError
from harness.records.record_files import JsonLines, writing_results
from harness.records.types import DeviceInfo, Toolchain, Verdict
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.run.device_session import DeviceSession
from harness.run.pair_session import CompareObserver, match
from harness.run.two_workers import SIDES
from harness.suite.case_id import CaseId
from harness.suite.loader import LoadedSuite, begin
from harness.suite.planning import PlannedCase, plan
from harness.system.decoding import decode
from harness.system.files import UNREADABLE, read_regular
from harness.system.process import Failed, failure

WITHOUT: Mapping[Side, str] = {"base": "only-in-head", "head": "only-in-base"}
"""Reason why a case cannot be compared, by the side that lacks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Two commits to compare. A question is complete, so any device can answer it."""

    base: str
    head: str
    case: str
    settings: CompareSettings
    known: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    """Identities of measured code, base's and head's. A pair with these identities needs no new
    measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    question: Question
    base_code: frozenset[str] = frozenset()
    head_code: frozenset[str] = frozenset()
    verdict: Verdict | None = None
    """Verdict of the pair; None if head's code is known, or if a side cannot be compared."""
    failed: Failed | None = None
    """Reason why a side cannot be compared, with the side."""
    interrupted: bool = False


class PairDevices(Protocol):
    """A device, or several of one model, ready to compare."""

    devices: tuple[DeviceInfo, ...]
    toolchain: Toolchain

    def ask(self, asked: Sequence[Question]) -> Iterator[PairResult]:
        """Yield the result of each question as soon as it is known."""


def compare(
    question: Question, base: LoadedSuite, head: LoadedSuite, observer: CompareObserver
) -> PairResult:
    """Compare the case of a question in two loaded suites. Raises the errors of opening a device."""
    sides = [_planned(suite, question.case) for suite in (base, head)]
    for side, planned in zip(SIDES, sides, strict=True):
        if not planned:
            return PairResult(question=question, failed=without_case(question, side))
    with Comparing(base, head, question.settings, observer) as comparing:
        fit, why = comparing.divide(sides[1])
        both, _ = match(comparing.divide(sides[0])[0], fit)
        if not both:
            failed = Failed(reason=ArraysError.reason, message=" ".join(why), side="head")
            return PairResult(question=question, failed=failed)
        entry = comparing.entry(*both[0])
        comparing.inspect([entry])
        found = PairResult(question=question)
        if entry.built is not None:
            base_code, head_code = (entry.built[each].identities() for each in SIDES)
            found = dataclasses.replace(found, base_code=base_code, head_code=head_code)
        if is_known(found):
            return found
        if entry.trial.settled:  # The sides are broken or identical: nothing is measured or recorded.
            return dataclasses.replace(found, verdict=entry.trial.verdict())
        result = comparing.compare([entry])
        return dataclasses.replace(found, verdict=result.verdicts[0], interrupted=result.interrupted)


def without_case(question: Question, side: Side) -> Failed:
    """Return the failure of a side that lacks the question's case."""
    commit = question.base if side == "base" else question.head
    message = f"Commit {commit[:12]} has no {question.case}."
    return Failed(reason=WITHOUT[side], message=message, side=side)


def is_known(found: PairResult) -> bool:
    return any(found.base_code & base and found.head_code & head for base, head in found.question.known)


def _planned(loaded: LoadedSuite, case: str) -> list[PlannedCase]:
    try:
        return plan(loaded.suite, (case,))
    except UsageError:  # the commit's problem has other axes
        return []


Loader = Callable[[str], LoadedSuite]
"""Loads a suite at a commit. Raises SuiteError if the commit has no suite, or a broken one."""


def loader(suite: Path, suite_from: str | None) -> Loader:
    """Return a loader of this repository's suite at a commit. It caches the last few suites."""
    return lru_cache(maxsize=3)(lambda commit: begin(suite, commit, suite_from=suite_from).result())


def answer(question: Question, load: Loader, device: str | None, observer: CompareObserver) -> PairResult:
    """Answer a question on a device. Raises the errors of opening it."""
    side: Side = "base"
    try:
        base = load(question.base)
        side = "head"
        head = load(question.head)
    except SuiteError as error:
        return PairResult(question=question, failed=msgspec.structs.replace(failure(error), side=side))
    settings = dataclasses.replace(question.settings, device=device)
    found = compare(dataclasses.replace(question, settings=settings), base, head, observer)
    return dataclasses.replace(found, question=question)


class OneDevice:
    """Compares pairs on one device, with suites from this repository. Raises UsageError, DeviceError."""

    def __init__(
        self,
        loaded: LoadedSuite,
        device: str | None,
        observer: CompareObserver,
        suite_from: str | None = None,
    ) -> None:
        self._load, self._observer = loader(loaded.path, suite_from), observer
        with DeviceSession(observer, loaded.suite.root, device=device, busy="ignore") as session:
            self.devices: tuple[DeviceInfo, ...] = (session.device,)
            self.toolchain = session.toolchain

    def ask(self, asked: Sequence[Question]) -> Iterator[PairResult]:
        for question in asked:
            yield answer(question, self._load, self.devices[0].spec, self._observer)


# Verdicts that are known already


class _Pair(msgspec.Struct, frozen=True):
    """A line of the journal: the verdict on two pieces of code, each with all of its identities."""

    context: str
    """Everything else that a time depends on: the driver, the compiler, this harness, the state of the L2."""
    base: tuple[str, ...]
    head: tuple[str, ...]
    verdict: Verdict
    limits: str = ""
    """Limits that the pair was judged by. They change the status of an effect, not its size."""


class PairJournal:
    """Verdicts on one case by the code of both sides, in a file of JSON lines; without a folder, in memory.

    Unreadable lines are ignored, and their pairs measured again. Raises StoreError if the folder is not
    writable.
    """

    def __init__(self, folder: Path | None, case: CaseId, context: str, *, fresh: bool = False) -> None:
        self._context = context
        self._pairs: list[_Pair] = []
        self._before = 0
        self._lines: JsonLines | None = None
        if folder is None:
            return
        path = folder / f"{case.suite}.{case.kernel}-{case.size and case.size.label}.jsonl"
        with writing_results(folder):
            content = read_regular(path) if path.exists() else b""
            file = path.open("ab")
            if content and not content.endswith(b"\n"):
                file.write(b"\n")  # the partial last line of a killed harness
        self._lines = JsonLines(path, file, "The bisection goes on without it.")
        for line in () if fresh else content.splitlines():
            try:
                pair = decode(line, _Pair)
            except UNREADABLE:
                continue
            if pair.context == context:
                self._pairs.append(pair)
        self._before = len(self._pairs)

    @property
    def problem(self) -> str:
        """Return a sentence if the file is damaged; else ""."""
        return self._lines.problem if self._lines else ""

    def add(self, base: Collection[str], head: Collection[str], verdict: Verdict, limits: str) -> None:
        sides = tuple(base), tuple(head)
        pair = _Pair(self._context, *sides, verdict, limits)
        self._pairs.append(pair)
        if self._lines:
            self._lines.keep(pair)

    def verdicts(
        self, base: Collection[str], head: Collection[str], limits: str | None = None
    ) -> list[tuple[Verdict, bool]]:
        """Return every verdict on two pieces of code, and whether an earlier bisection made it, oldest first.

        With `limits`, return only verdicts reached by these.
        """
        return [
            (pair.verdict, at < self._before)
            for at, pair in enumerate(self._pairs)
            if limits in (None, pair.limits)
            and not set(base).isdisjoint(pair.base)
            and not set(head).isdisjoint(pair.head)
        ]

    def known(self, limits: str | None = None) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
        """Return the pairs of code with verdicts. With `limits`, return only verdicts reached by these."""
        return tuple(
            (frozenset(pair.base), frozenset(pair.head))
            for pair in self._pairs
            if limits in (None, pair.limits)
        )

    def close(self) -> None:
        if self._lines:
            self._lines.close()
