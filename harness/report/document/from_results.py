"""Makes a review from results of comparisons, fresh or stored, with the lines of the sources."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import harness
from harness.errors import HarnessError, UsageError
from harness.records.record_files import CalibrationSummary, ComparisonResult
from harness.records.types import Comparison, Verdict
from harness.report.document.document import LIMITS, CardReview, Review, SourceLine
from harness.report.document.field_limits import clipped
from harness.report.words.of_launches import launches
from harness.report.words.of_verdict import commit_label, notes_of
from harness.suite.loader import LoadedSuite
from harness.suite.suite_files import first_line
from harness.system.decoding import convert

MOST_EVIDENCE = 64
"""Most cases of a report that have counters, machine code and launches; the others have their causes in
words."""
_SAFE = re.compile(r"[A-Za-z0-9_.+@/-]{1,300}")


def kernel_places(loaded: LoadedSuite) -> dict[str, SourceLine]:
    """Return the file of each kernel, from the repository's top, and the line on which its function begins.

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
            if not is_safe_path(path):
                continue
            with contextlib.suppress(OSError):
                line = first_line(loaded.suite.root / kernel.files[0], kernel.function)
                found[kernel.name] = SourceLine(path=path, line=line or 1)
    return found


def is_safe_path(path: str) -> bool:
    """Return whether a document can hold a path from the repository's top."""
    return _SAFE.fullmatch(path) is not None and not path.startswith(("../", "/"))


Places = Mapping[str, Mapping[str, SourceLine]]
"""The first line of each kernel, by suite and kernel."""


def review_of(results: Sequence[ComparisonResult], places: Places | None = None) -> Review:
    """Return the review of comparisons, all of the same two commits.

    Raises UsageError for no comparison, for different commits, or for more than a document may hold.
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
    return clipped(
        Review(
            harness_version=harness.__version__,
            created_at=max(result.comparison.started_at for result in results),
            base=base,
            head=head,
            cards=tuple(
                _card(result, (places or {}).get(result.comparison.head.suite, {}))
                for result in _with_evidence_of_some(results)
            ),
        )
    )


def _with_evidence_of_some(results: Sequence[ComparisonResult]) -> list[ComparisonResult]:
    """Return the results with counters, machine code and launches of the first cases that differ in them:
    of each case they take kilobytes.
    """
    every = (verdict for result in results for verdict in result.verdicts)
    explained = (verdict for verdict in every if verdict.diagnosis or launches(verdict))
    kept = {id(verdict) for verdict in islice(explained, MOST_EVIDENCE)}
    return [
        replace(
            result,
            verdicts=tuple(each if id(each) in kept else _without_evidence(each) for each in result.verdicts),
        )
        for result in results
    ]


def _without_evidence(verdict: Verdict) -> Verdict:
    base, head = (side and replace(side, launches=()) for side in (verdict.base, verdict.head))
    verdict = replace(verdict, base=base, head=head)
    if verdict.diagnosis is None:
        return verdict
    return replace(
        verdict,
        diagnosis=replace(verdict.diagnosis, base_counters={}, head_counters={}, launched=(), loop=None),
    )


def _card(result: ComparisonResult, places: Mapping[str, SourceLine]) -> CardReview:
    comparison = result.comparison
    device, toolchain = comparison.device, comparison.toolchain
    kernels = {verdict.kernel for verdict in result.verdicts}
    known = result.calibration
    return CardReview(
        suite=comparison.head.suite,
        device=device.name,
        spec=device.spec,
        kind=device.kind,
        driver=device.driver,
        compiler=toolchain.compiler if toolchain else "",
        executables="processes_a_block" in comparison.settings,
        scripts="script" in comparison.settings,
        head_dirty=comparison.head.dirty,
        margin=_setting(comparison, "margin"),
        tolerance=_setting(comparison, "tolerance"),
        confidence=_setting(comparison, "confidence"),
        calibrated=convert(known, CalibrationSummary, from_attributes=True)
        if known and known.verdicts
        else None,
        complete=not result.interrupted,
        problem=result.problem,
        left_out=result.left_out,
        notes=notes_of(comparison),
        problem_changes=result.problem_changes,
        cases=result.verdicts,
        twins=result.twins,
        places={kernel: place for kernel, place in places.items() if kernel in kernels},
    )


def _setting(comparison: Comparison, name: str) -> float:
    value = comparison.settings[name]
    assert isinstance(value, (int, float))
    return float(value)
