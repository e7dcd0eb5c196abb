"""Stored comparisons judged by today's rules, and what is known of their cases."""

from __future__ import annotations

__all__ = ["Labels", "Limits", "RejudgedRecord", "read_labels", "rejudge_record", "unmatched"]

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import StoreError, UsageError
from harness.judgement.case_trial import Noise
from harness.judgement.judge import Policy
from harness.judgement.limits import TWINS
from harness.judgement.noise import Calibration, noise_of_card, noise_of_case, read_calibration
from harness.records import Comparison, Verdict
from harness.run.compare import CompareSettings, pair_settings_for, policy_for, with_twins
from harness.run.rejudge import Label, Rejudged, rejudge
from harness.spec.case_id import in_short
from harness.spec.suite import Case
from harness.store.records_file import PACKED, StoredComparison
from harness.system.files import read_regular

Labels = Mapping[str, Mapping[str, Label]]
"""By record and case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How to judge. Shares; None is what the record says, or lies beside it."""

    margin: float | None = None
    tolerance: float | None = None
    confidence: float | None = None
    calibration: Calibration | None = None
    uncalibrated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgedRecord:
    """A stored comparison, judged again."""

    path: Path
    comparison: Comparison
    complete: bool
    """False for a comparison that was interrupted then."""
    policy: Policy
    calibration: Calibration | None
    """What the verdicts rest on now; None for an assumption."""
    cases: tuple[Rejudged, ...]
    twins: tuple[Rejudged, ...] = ()
    labels: Mapping[str, Label] = dataclasses.field(default_factory=dict)
    """By case, what is known of it."""
    interrupted: bool = False
    problem: str = ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(case.now for case in self.cases)

    def said(self, case: Rejudged) -> str | None:
        """The status of then; the label's where the record has none."""
        label = self.labels.get(case.now.case)
        return case.then.status if case.then else (label and label.said) or None


def rejudge_record(path: Path, stored: StoredComparison, limits: Limits, known: Labels) -> RejudgedRecord:
    """A stored comparison by today's rules. Raises StoreError for a record that nothing can be made of,
    UsageError for limits that contradict each other.
    """
    comparison = stored.comparison
    if not stored.blocks and not stored.verdicts:
        raise StoreError(
            f"{path} holds no quads and no verdict: the comparison ended before it measured anything. "
            "Leave the record out."
        )
    policy = _policy(path, stored, limits)
    calibration = limits.calibration
    if calibration is None and not limits.uncalibrated:
        calibration = read_calibration(path.parent)
    again = rejudge(stored, policy, _noise(stored, calibration), pair_settings_for(comparison.device, policy))
    twins = [case for case in again if case.now.case in TWINS]
    labels = known.get(_bare(path.name), {})
    cases = [case for case in again if case not in twins]
    stand = with_twins([case.now for case in cases], [twin.now for twin in twins])
    return RejudgedRecord(
        path=path,
        comparison=comparison,
        complete=stored.complete,
        policy=policy,
        calibration=calibration,
        cases=tuple(dataclasses.replace(case, now=now) for case, now in zip(cases, stand, strict=True)),
        twins=tuple(twins),
        labels={
            case.now.case: labels[in_short(case.now.case)]
            for case in cases
            if in_short(case.now.case) in labels
        },
    )


def _policy(path: Path, stored: StoredComparison, limits: Limits) -> Policy:
    """What was asked for, for the rest what the record was judged by, and without that what suits its
    device.
    """
    settings = CompareSettings(
        margin=limits.margin or _stored(path, stored, "margin"),
        tolerance=limits.tolerance or _stored(path, stored, "tolerance"),
        confidence=limits.confidence or _stored(path, stored, "confidence") or CompareSettings().confidence,
    )
    return policy_for(stored.comparison.device, settings)


def _stored(path: Path, stored: StoredComparison, name: str) -> float | None:
    """A limit that the record was judged by; None where it does not say."""
    value = stored.comparison.settings.get(name)
    if value is None or (isinstance(value, float) and 0 < value < 1):
        return value
    raise StoreError(
        f"{path} was judged by a {name} of {value!r}; expected a share between 0 and 1. "
        f"Give another with --{name}."
    )


def _noise(stored: StoredComparison, calibration: Calibration | None) -> dict[str, Noise]:
    """Of each case; of a twin, or a case with a slowdown planted, that of the case that it was made from."""
    device, suite = stored.comparison.device, stored.comparison.head.suite
    card = noise_of_card(calibration, device)
    cases = {block.case: block.case for block in stored.blocks}
    for verdict in stored.verdicts:
        cases[verdict.case] = Case(suite, verdict.kernel, verdict.sizes, verdict.dtype).id
    return {name: noise_of_case(card, calibration, case) for name, case in cases.items()}


def read_labels(files: Sequence[Path]) -> dict[str, dict[str, Label]]:
    """What files say of cases. Raises UsageError for one that cannot be read or holds something else."""
    known: dict[str, dict[str, Label]] = {}
    for file in files:
        try:
            labels = msgspec.json.decode(read_regular(file), type=list[Label])
        except OSError as error:
            raise UsageError(f"Cannot read the labels in {file}: {error.strerror or error}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"{file} holds no labels ({error}); expected a list of objects with file, case, and as truth "
                "slower, same or faster."
            ) from None
        for label in labels:
            other = known.setdefault(_bare(label.file), {}).setdefault(in_short(label.case), label)
            if other.truth != label.truth:
                raise UsageError(
                    f"{file} says that {label.case} of {label.file} is {label.truth}, and another label that "
                    f"it is {other.truth}: keep the true one."
                )
    return known


def unmatched(known: Labels, judged: Iterable[RejudgedRecord]) -> str:
    """A sentence where labels are of nothing that was judged, else empty."""
    there = {(_bare(record.path.name), in_short(case.now.case)) for record in judged for case in record.cases}
    labels = [label for of_record in known.values() for label in of_record.values()]
    astray = [label for label in labels if (_bare(label.file), in_short(label.case)) not in there]
    if not astray:
        return ""
    return (
        f"{len(astray)} of {len(labels)} labels are of no case that was judged, the first of "
        f"{astray[0].case} in {astray[0].file}."
    )


def _bare(name: str) -> str:
    """A record's name, packed or not."""
    return name.removesuffix(PACKED)
