"""harness rejudge: stored comparisons, judged by today's rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from harness.cli.options import echo_json, json_option
from harness.cli.verdict_options import Percent, fail_on_option
from harness.errors import StoreError, UsageError
from harness.judgement.case_trial import Noise
from harness.judgement.judge import TWINS, Policy
from harness.judgement.noise import FILE, Calibration, noise_of_card, noise_of_case, read_calibration
from harness.judgement.rejudging import Label, rejudge
from harness.output.rejudgements import RejudgedRecord, exit_status, print_rejudged
from harness.output.rejudgements import as_json as record_as_json
from harness.output.waiting import Waiting
from harness.run.compare import CompareSettings, pair_settings_for, policy_for, with_twins
from harness.spec.suite import Case
from harness.store.records_file import PACKED, StoredComparison, find_comparisons, read_comparison
from harness.system.files import read_regular
from harness.system.texts import harmless

Labels = Mapping[str, Mapping[str, Label]]
"""By record and case."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """How to judge. Shares; None is what the record says, or lies beside it."""

    margin: float | None
    tolerance: float | None
    confidence: float | None
    calibration: Calibration | None
    uncalibrated: bool


@click.command("rejudge")
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RECORD...")
@click.option(
    "--margin",
    type=Percent,
    metavar="PERCENT",
    help="Changes up to this are nobody's business; default: the record's.",
)
@click.option(
    "--tolerance",
    type=Percent,
    metavar="PERCENT",
    help="A case is unchanged once it is within this for sure; default: the record's.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(min=50, max=100, min_open=True, max_open=True),
    metavar="PERCENT",
    help="Of each case's verdict; default: the record's.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help=f"Where the card's {FILE} lies; default: beside each record.",
)
@click.option("--uncalibrated", is_flag=True, help="Judge by an assumption, whatever lies beside a record.")
@click.option(
    "--labels",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What is known of the cases, to count what was found: JSON; repeatable.",
)
@fail_on_option
@json_option
def command(
    records: tuple[Path, ...],
    margin: float | None,
    tolerance: float | None,
    confidence: float | None,
    calibration: Path | None,
    uncalibrated: bool,
    labels: tuple[Path, ...],
    fail_on: tuple[str, ...],
    as_json: bool,
) -> int:
    """Judge stored comparisons by today's rules, from the quads that they hold: no device is needed.

    RECORD is a comparison's file, .jsonl or .jsonl.gz, or a folder of them. As many processes and quads count
    as would be measured now; where more would be, the record ends.

    The exit status is that of compare, by what is said now; 3 where a record cannot be read.
    """
    asked = _Asked(
        margin=margin and margin / 100,
        tolerance=tolerance and tolerance / 100,
        confidence=confidence and confidence / 100,
        calibration=_calibration_in(calibration, uncalibrated=uncalibrated),
        uncalibrated=uncalibrated,
    )
    known = _read_labels(labels)
    found = find_comparisons(records)
    problems, asides = list(found.problems), []
    if found.others:
        asides.append(f"Left out: {_files(found.others)} no comparison's, such as a run's.")
    judged: dict[str, RejudgedRecord] = {}
    with Waiting("judging again") as waiting:
        for path in found.comparisons:
            waiting.tell(path.name)
            try:
                stored = read_comparison(path)
                if twice := judged.get(stored.comparison.run_id):
                    asides.append(f"Left out: {path} is the comparison of {twice.path} again.")
                    continue
                judged[stored.comparison.run_id] = _judged(path, stored, asked, known)
            except StoreError as error:
                problems.append(error.message)
    asides += _unmatched(known, judged.values())
    asides += (f"harness: {problem}" for problem in problems)
    status = exit_status([*judged.values()], problems, fail_on)
    if as_json:
        for aside in asides:
            click.echo(harmless(aside), err=True)
        echo_json([record_as_json(record) for record in judged.values()])
    else:
        print_rejudged([*judged.values()], asides, status)
    return status


def _files(count: int) -> str:
    return "1 file that is" if count == 1 else f"{count} files that are"


def _calibration_in(folder: Path | None, *, uncalibrated: bool) -> Calibration | None:
    if folder is None:
        return None
    if uncalibrated:
        raise UsageError("--calibration and --uncalibrated contradict each other: give one of them.")
    known = read_calibration(folder)
    if known is None:
        raise UsageError(f"There is no {FILE} in {folder}: name the folder of the card's records.")
    return known


def _judged(path: Path, stored: StoredComparison, asked: _Asked, known: Labels) -> RejudgedRecord:
    """Raises StoreError for a record that nothing can be made of, UsageError for limits that contradict each
    other.
    """
    comparison = stored.comparison
    if not stored.blocks and not stored.verdicts:
        raise StoreError(
            f"{path} holds no quads and no verdict: the comparison ended before it measured anything. "
            "Leave the record out."
        )
    policy = _policy(path, stored, asked)
    calibration = asked.calibration
    if calibration is None and not asked.uncalibrated:
        calibration = read_calibration(path.parent)
    again = rejudge(stored, policy, _noise(stored, calibration), pair_settings_for(comparison.device, policy))
    cases = [case for case in again if case.now.case not in TWINS]
    twins = [case for case in again if case.now.case in TWINS]
    stand = with_twins([case.now for case in cases], [twin.now for twin in twins])
    return RejudgedRecord(
        path=path,
        comparison=comparison,
        complete=stored.complete,
        policy=policy,
        calibration=calibration,
        cases=tuple(dataclasses.replace(case, now=now) for case, now in zip(cases, stand, strict=True)),
        twins=tuple(twins),
        labels=known.get(_bare(path.name), {}),
    )


def _policy(path: Path, stored: StoredComparison, asked: _Asked) -> Policy:
    """What was asked for, for the rest what the record was judged by, and without that what suits its
    device.
    """
    settings = CompareSettings(
        margin=asked.margin or _stored(path, stored, "margin"),
        tolerance=asked.tolerance or _stored(path, stored, "tolerance"),
        confidence=asked.confidence or _stored(path, stored, "confidence") or CompareSettings().confidence,
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


def _read_labels(files: Sequence[Path]) -> dict[str, dict[str, Label]]:
    """Raises UsageError for a file that cannot be read or holds something else."""
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
            other = known.setdefault(_bare(label.file), {}).setdefault(label.case, label)
            if other.truth != label.truth:
                raise UsageError(
                    f"{file} says that {label.case} of {label.file} is {label.truth}, and another label that "
                    f"it is {other.truth}: keep the true one."
                )
    return known


def _unmatched(known: Labels, judged: Iterable[RejudgedRecord]) -> Iterator[str]:
    """A sentence where labels are of nothing that was judged."""
    there = {(_bare(record.path.name), case.now.case) for record in judged for case in record.cases}
    labels = [label for of_record in known.values() for label in of_record.values()]
    astray = [label for label in labels if (_bare(label.file), label.case) not in there]
    if astray:
        yield (
            f"{len(astray)} of {len(labels)} labels are of no case that was judged, the first of "
            f"{astray[0].case} in {astray[0].file}."
        )


def _bare(name: str) -> str:
    """A record's name, packed or not."""
    return name.removesuffix(PACKED)
