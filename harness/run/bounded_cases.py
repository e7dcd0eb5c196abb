"""Compares measured cases with their lower time bounds on the same card."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from harness.device.plausible_ranges import plausible_or_none
from harness.device.static.bounds import By
from harness.device.static.occupancy import CARDS, CardModel
from harness.device.static.static_facts import facts
from harness.errors import StoreError, SuiteError, UsageError
from harness.judgement.statistics.paired import of_arm
from harness.records.record_files import ComparisonResult, RunResult, read_comparison, read_run
from harness.records.types import DeviceInfo, L2Policy, Source
from harness.run.builds.build_only import build_only
from harness.suite.case_id import CaseId
from harness.suite.loader import LoadedSuite, load
from harness.suite.planning import plan


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedCase:
    """A case that was measured on a card with a known bound."""

    case: str
    card: str
    time_ns: float
    """Median of its slots."""
    bound_ns: float
    by: By

    @property
    def reached(self) -> float:
        """Return the bound's share of the time. 1 is as fast as possible; above 1 the bound is wrong."""
        return self.bound_ns / self.time_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The measurements of one device at one commit. For a comparison, those of its base."""

    source: Source
    device: DeviceInfo
    memory_gbytes_per_s: float | None
    l2: L2Policy
    times_ns: Mapping[str, float]
    """Median time of each case."""


def read_record(path: Path) -> Record:
    """Read the record of a run or of a comparison.

    Raises StoreError for an unreadable record, for other devices than CUDA cards, and if no case was
    measured.
    """
    try:
        run = read_run(path)
    except StoreError:
        record = _of_comparison(read_comparison(path))
    else:
        record = _of_run(run)
    if record.device.backend != "cuda" or record.device.compute_capability is None:
        name = record.device.name
        raise StoreError(f"{path} was measured on {name}, which is no CUDA card: it has no bounds.")
    if not record.times_ns:
        raise StoreError(f"{path} has no case that was measured, such as where all code is identical.")
    return record


def _of_run(stored: RunResult) -> Record:
    run = stored.run
    rows = {row.case: row.measurement for row in stored.rows if row.measurement and row.status == "measured"}
    return Record(
        source=run.source,
        device=run.device,
        memory_gbytes_per_s=run.peaks.get("memory"),
        l2=next((each.l2 for each in rows.values()), "cold"),
        times_ns={case: median(each.times_ns) for case, each in rows.items()},
    )


def _of_comparison(stored: ComparisonResult) -> Record:
    slots: dict[str, list[float]] = defaultdict(list)
    for each in stored.blocks:
        case = CaseId.parse(each.case)
        if case.size is None or case.planted:  # a twin: base against itself
            continue
        for quad in each.block.quads:
            slots[each.case] += of_arm(quad.order, quad.times_ns, "A")
    return Record(
        source=stored.comparison.base,
        device=stored.comparison.device,
        memory_gbytes_per_s=None,
        l2=next((each.block.l2 for each in stored.blocks), "cold"),
        times_ns={case: median(each) for case, each in slots.items()},
    )


def card_of(record: Record) -> CardModel:
    """Return the model of the record's card from the card file, which also tests the file.

    A card that is not in the file is described by its own driver.
    """
    device, name = record.device, record.device.name.replace(" ", "").lower()
    built = device.compute_capability, device.compute_units
    for words, card in CARDS.items():
        if words in name and (card.capability, card.multiprocessors) == built:
            return card
    assert device.compute_capability is not None, "read_record has asked for it"
    return CardModel(
        device.name,
        device.compute_capability,
        device.compute_units or 1,
        plausible_or_none("max_sm_clock_mhz", device.max_clock_mhz),
        record.memory_gbytes_per_s,
        device.l2_bytes or 0,
    )


def suite_of(record: Record, root: Path) -> LoadedSuite:
    """Return the suite that was measured: from the working tree if its files are the same, else from the
    commit.

    Raises UsageError if neither has these files, SuiteError, GitError.
    """
    source = record.source
    folder = root / source.path
    with suppress(SuiteError):  # It may be broken now.
        loaded = load(folder)
        if loaded.source.tree_sha256 == source.tree_sha256:
            return loaded
    if source.commit is None or source.dirty:
        raise UsageError(
            f"What was measured are files of {source.path} that are neither the working tree's now nor those "
            "of a commit: measure again, or check the tree out that was measured."
        )
    return load(folder, source.commit)


def bounded_cases(
    record: Record, root: Path, timeout_s: float, tell: Callable[[str], object]
) -> tuple[list[BoundedCase], list[str]]:
    """Return every case of a record that has a bound, and a sentence for each case that has none."""
    loaded, card = suite_of(record, root), card_of(record)
    planned = plan(loaded.suite, [*record.times_ns])
    result = build_only(loaded, planned, [record.device.arch], timeout_s, instructions=True, tell=tell)
    all_facts = facts(loaded.suite.problem, planned, result.builds, {card.name: card}, record.l2)
    found: dict[str, BoundedCase] = {}
    for each in all_facts:
        for case, bound in each.bounds.get(card.name, {}).items():
            time_ns = record.times_ns[case]
            found[case] = BoundedCase(
                case=case, card=card.name, time_ns=time_ns, bound_ns=bound.time_ns, by=bound.by
            )
    why = {case: each.build.message or each.problem for each in all_facts for case in each.cases}
    none = [
        f"{case} has no bound: {why.get(case) or 'the suite has it no more, or its clocks are not known'}"
        for case in record.times_ns
        if case not in found
    ]
    return list(found.values()), none
