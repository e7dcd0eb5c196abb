"""Makes the model of a review of results of comparisons, fresh or stored, with the lines of the sources."""

from __future__ import annotations

import contextlib
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import msgspec

import harness
from harness.errors import HarnessError, StoreError, UsageError
from harness.judgement.noise import read_calibration
from harness.judgement.saved_runs import FilesResult
from harness.records.record_files import ComparisonResult, read_comparison
from harness.records.types import Arm, Comparison, Effect, Verdict
from harness.report.document.document import (
    LIMITS,
    Calibrated,
    CardReview,
    CaseReview,
    EffectReview,
    Review,
    Side,
    SourceLine,
    StraysReview,
)
from harness.report.words.of_verdict import commit_label, notes_of
from harness.suite.case_id import CaseId
from harness.suite.loader import LoadedSuite
from harness.suite.suite_files import first_line

_SAFE = re.compile(r"[A-Za-z0-9_.+@/-]{1,300}")


def kernel_places(loaded: LoadedSuite) -> dict[str, SourceLine]:
    """The file of each kernel, from the repository's top, and the line on which its function begins.

    A kernel whose file is outside the repository, or cannot be read, is left out.
    """
    found: dict[str, SourceLine] = {}
    if loaded.absent or loaded.repository is None:
        return found
    with contextlib.suppress(HarnessError):
        for kernel in loaded.suite.kernels:
            if not kernel.files:
                continue
            path = posixpath.normpath(posixpath.join(loaded.source.path, kernel.files[0]))
            if not _SAFE.fullmatch(path) or path.startswith(("../", "/")):
                continue
            with contextlib.suppress(OSError):
                line = first_line(loaded.suite.root / kernel.files[0], kernel.function)
                found[kernel.name] = SourceLine(path=path, line=line or 1)
    return found


_NAME = re.compile(r"(?P<stamp>[0-9TZ]+)-(?P<ends>[^-]+\.\.[^-]+)-(?P<suite>\w+)-[0-9a-f]+\.jsonl")


def stored_result(path: Path) -> ComparisonResult:
    """A comparison from its record, with the calibration beside it. Raises StoreError."""
    return replace(read_comparison(path), calibration=read_calibration(path.parent))


def newest_comparisons(results: Path) -> list[ComparisonResult]:
    """The newest comparison below a folder of results, with those of the same two commits of other suites
    and cards: the newest of each. Raises StoreError where there is none.
    """
    found = [(match, path) for path in results.glob("*/*.jsonl") if (match := _NAME.fullmatch(path.name))]
    ends = None
    chosen: dict[tuple[str, str], ComparisonResult] = {}
    for match, path in sorted(found, key=lambda each: each[1].name, reverse=True):
        key = (path.parent.name, match["suite"])
        if (ends and match["ends"] != ends) or key in chosen:
            continue
        result = stored_result(path)
        if result.comparison.command == "compare":  # a calibration's record looks alike
            ends = match["ends"]
            chosen[key] = result
    if not chosen:
        raise StoreError(
            f"No comparison is stored in {results}: run 'harness compare BASE HEAD' first, or name records."
        )
    return list(reversed(chosen.values()))


_TEXT, _LOG, _WORDS, _SENTENCES = 2000, 8000, 200, 64
_FARTHEST = 1e6
"""The largest effect: one wild process can put the bound of an interval anywhere."""

Places = Mapping[str, Mapping[str, SourceLine]]
"""Where kernels begin, by suite and kernel."""


def review_of(results: Sequence[ComparisonResult], places: Places | None = None) -> Review:
    """What these comparisons, all of the same two commits, say in one.

    Raises UsageError for none, for other commits, or for more than a document may hold.
    """
    ends = {(result.comparison.base.commit, result.comparison.head.commit) for result in results}
    if len(ends) != 1:
        pairs = ", ".join(sorted(f"{commit_label(base)}..{commit_label(head)}" for base, head in ends))
        raise UsageError(
            f"A report is of two commits; these comparisons are of {pairs or 'none at all'}: give one pair."
        )
    ((base, head),) = ends
    largest = max(len(result.verdicts) for result in results)
    if len(results) > LIMITS["cards"] or largest > LIMITS["cases"]:
        raise UsageError(
            f"{len(results)} comparisons of up to {largest} cases: a report holds {LIMITS['cards']} of up to "
            f"{LIMITS['cases']}. Name fewer cases."
        )
    return Review(
        harness_version=harness.__version__,
        created_at=_words(max(result.comparison.started_at for result in results)),
        base=base,
        head=head,
        cards=tuple(
            _card(result, (places or {}).get(result.comparison.head.suite, {})) for result in results
        ),
    )


def _card(result: ComparisonResult, places: Mapping[str, SourceLine]) -> CardReview:
    comparison = result.comparison
    device, toolchain = comparison.device, comparison.toolchain
    kernels = {verdict.kernel for verdict in result.verdicts}
    known = result.calibration
    return CardReview(
        suite=comparison.head.suite,
        device=_words(device.name),
        spec=_words(device.spec),
        kind=device.kind,
        driver=_words(device.driver),
        compiler=_words(toolchain.compiler if toolchain else ""),
        executables="processes_a_block" in comparison.settings,
        head_dirty=comparison.head.dirty,
        margin=_setting(comparison, "margin"),
        tolerance=_setting(comparison, "tolerance"),
        confidence=_setting(comparison, "confidence"),
        calibrated=Calibrated(
            measured_at=_words(known.measured_at), verdicts=known.verdicts, false_alarms=known.false_alarms
        )
        if known and known.verdicts
        else None,
        complete=not result.interrupted,
        problem=result.problem[:_TEXT],
        left_out=_texts(result.left_out),
        notes=_texts(notes_of(comparison)),
        problem_changes=_texts(result.problem_changes),
        gpu_s=sum(verdict.gpu_s for verdict in result.every_verdict),
        cases=tuple(map(_case, result.verdicts)),
        twins=tuple(map(_case, result.twins)),
        places={kernel: place for kernel, place in places.items() if kernel in kernels},
    )


def review_of_tests(
    results: Sequence[ComparisonResult], judged: FilesResult | None, ends: tuple[str, str], places: Places
) -> Review:
    """What a pytest session's comparisons say, and beside them the files of its other benchmarks; of one of
    the two at least. Raises UsageError for more than a document may hold.
    """
    review = review_of(results, places) if results else None
    if judged is None:
        assert review is not None
        return review
    card = card_of_files(judged)
    if len(card.cases) > LIMITS["cases"]:
        raise UsageError(f"{len(card.cases)} benchmarks: a report holds {LIMITS['cases']}. Name fewer tests.")
    if review is not None:
        return msgspec.structs.replace(review, cards=(*review.cards, card))
    base, head = ends
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Review(harness_version=harness.__version__, created_at=now, base=base, head=head, cards=(card,))


TESTS = "pytest"
"""What stands for a suite's name where benchmarks are of no suite."""


def card_of_files(result: FilesResult) -> CardReview:
    """What judged files of base and head say. A benchmark's name becomes one that a kernel can have."""
    policy = result.policy
    names = _unique([_identifier(verdict.case) for verdict in result.verdicts])
    return CardReview(
        suite=TESTS,
        device=_words(result.device),
        spec=_words(result.harness),
        kind="cpu",  # by which the usual limits are those of the host's clock
        driver="",
        executables=True,
        margin=policy.margin,
        tolerance=policy.tolerance,
        confidence=policy.confidence,
        notes=_texts((*result.notes, *_numbered(result.verdicts, names))),
        cases=tuple(
            _case(_of_file(verdict, name)) for verdict, name in zip(result.verdicts, names, strict=True)
        ),
    )


def _numbered(verdicts: Sequence[Verdict], names: Sequence[str]) -> Iterator[str]:
    """Say which benchmarks got a number, as another has the same name."""
    for verdict, name in zip(verdicts, names, strict=True):
        if name != _identifier(verdict.case):
            yield f"{verdict.case} is called {name} here: another benchmark has the same name."


def _of_file(verdict: Verdict, name: str) -> Verdict:
    # A pair of processes stands for one round of base and head.
    time = verdict.time and replace(verdict.time, quads=verdict.time.processes)
    return replace(verdict, case=str(CaseId.of(TESTS, name, {})), kernel=name, sizes={}, time=time)


def _identifier(name: str) -> str:
    """``benchmarks/test_sort.py::test_sort[64]`` as ``test_sort_64``."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name.rpartition("::")[2] or name).strip("_")[:90]
    return plain if plain[:1].isalpha() else f"_{plain}"


def _unique(names: Sequence[str]) -> list[str]:
    """Names that differ: where tests of several files share one, all but the first get a number."""
    taken = set(names)
    made: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        own = name if name not in made else next(each for each in numbered if each not in taken)
        taken.add(own)
        made[own] = None
    return list(made)


def _setting(comparison: Comparison, name: str) -> float:
    value = comparison.settings[name]
    assert isinstance(value, (int, float))
    return float(value)


def _case(verdict: Verdict) -> CaseReview:
    sources = [arm.source_sha256 if arm else None for arm in (verdict.base, verdict.head)]
    strays = verdict.strays
    return CaseReview(
        case=verdict.case,
        kernel=verdict.kernel,
        sizes=verdict.sizes,
        status=verdict.status,
        reason=_code(verdict.reason),
        message=verdict.message[:_TEXT],
        log=verdict.log[-_LOG:],
        side=verdict.side,
        time=_change(verdict.time) if verdict.time else None,
        cycles=_change(verdict.cycles) if verdict.cycles else None,
        energy=_change(verdict.energy) if verdict.energy else None,
        strays=StraysReview(base=strays.base, head=strays.head, slots=strays.slots, cost=_within(strays.cost))
        if strays
        else None,
        smallest_visible=verdict.smallest_visible and _within(verdict.smallest_visible),
        noise_floor=verdict.noise_floor and _within(verdict.noise_floor),
        attribution=verdict.attribution,
        base=_side(verdict.base) if verdict.base else None,
        head=_side(verdict.head) if verdict.head else None,
        source_changed=None if None in sources else sources[0] != sources[1],
        temperature_c=verdict.temperature_c,
        power_w=verdict.power_w,
        touched={_code(gate): count for gate, count in verdict.touched.items()},
        settings_changed=_texts(verdict.settings_changed),
    )


def _change(effect: Effect) -> EffectReview:
    return EffectReview(
        effect=_within(effect.effect),
        low=_within(effect.low),
        high=_within(effect.high),
        processes=effect.processes,
        quads=effect.quads,
        each=tuple(map(_within, effect.process_effects[:64])),
    )


def _side(arm: Arm) -> Side:
    resources, launch = arm.resources, arm.launch
    static = resources.static_shared_bytes if resources else None
    dynamic = launch.dynamic_shared_bytes if launch else 0
    return Side(
        time_ns=arm.time_ns,
        sm_clock_mhz=arm.sm_clock_mhz,
        alone_mhz=arm.alone_mhz,
        alone_w=arm.alone_w,
        registers=resources.registers if resources else None,
        shared_bytes=None if static is None else static + dynamic,
        local_bytes=resources.local_bytes if resources else None,
        grid=launch.grid if launch else None,
        block=launch.block if launch else None,
    )


def _texts(sentences: Sequence[str]) -> tuple[str, ...]:
    return tuple(each[:_TEXT] for each in sentences[:_SENTENCES])


def _words(text: str) -> str:
    return re.sub(r"[^ -~]+", "?", text)[:_WORDS]


def _code(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())[:60]


def _within(value: float) -> float:
    return max(-1.0, min(value, _FARTHEST))
