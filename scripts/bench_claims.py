"""Count commits that claim to make a benchmark faster, and that are suspects of the change that they made.

RESULTS is a folder of asv's public results, REPOSITORY the git folder of the project that was measured:

    git --git-dir SCIPY-BENCH archive HEAD results | tar -x -C FOLDER
    python scripts/bench_claims.py FOLDER/results REPOSITORY

A commit claims a change if its title says so (CLAIM) and the commit is no test, documentation or revert
(ASIDE). The title of a merge is the first line that its author wrote. The claim names the benchmarks that
share a word with the title. A word of more than 3 % of the benchmarks names none. A claimed change is found
if two conditions hold. A case of these benchmarks became at least 20 % faster, at most three measured commits
away. And at least half of the change lies between the last figure before the commit and the first figure with
it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a command: the folder above is where `harness` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.history.changes import Change
from harness.history.events import Event
from harness.history.reading import History, read_history
from harness.history.series import Series
from harness.system import git
from scripts.bench_events import of_events

CLAIM = re.compile(
    r"\bspeed(s|ed|ing)?[- ]?ups?\b|\bfaster\b|^([A-Z]+, ?)*PERF\b|\baccelerat\w+|\bvectori[sz]ed?\b"
    r"|\b(improv|better|increas|enhanc)\w*\b.*\b(performance|speed)\b"
    r"|\b(performance|speed) (improvement|enhancement|boost)s?\b"
    r"|\boptimi[sz](e|es|ed|ing)\b(?![:.])",
    re.IGNORECASE,
)
ASIDE = re.compile(r"\[?(DOC|TST|TEST|CI|REL|TYP|TYPE|STY|BENCH|REV)\b|.*\brevert", re.IGNORECASE)
MERGE = re.compile("Merge (pull request|PR)")
WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
SHORTEST_WORD = 4
MOST_NAMED = 0.03
SMALLEST = math.log(1.25)
"""The least change, in logarithms: a time that is 20 % shorter."""
NEAR = 3
"""Measured commits that the range of a change may be away from the commit that claims it."""
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Found:
    """A change that a commit claims, and its event."""

    change: Change
    event: Event

    def is_in_range(self, at: int) -> bool:
        return self.change.good < at <= self.change.bad

    def is_suspect(self, at: int) -> bool:
        return self.is_in_range(at) and self.event.good < at <= self.event.bad

    def is_first(self, at: int) -> bool:
        return self.is_suspect(at) and at in self.event.narrowest


@dataclass(frozen=True, slots=True)
class Claim:
    at: int
    title: str
    found: Sequence[Found]
    """The largest change first."""


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a folder of asv's results")
    parser.add_argument("repository", type=Path, metavar="REPOSITORY", help="the git folder of the project")
    parser.add_argument("--revision", default="HEAD", help="default: %(default)s")
    asked = parser.parse_args()
    folder, repository = asked.results.parent, asked.repository
    history = read_history(asked.results, folder, repository=repository, revision=asked.revision)
    print("\n".join(report(history, titles(repository, asked.revision))))
    return 0


def titles(repository: Path, revision: str) -> dict[str, str]:
    """Return the titles of the commits on the line of first parents, by their hashes."""
    how = ("--first-parent", "-z", "--format=%H%n%B")
    entries = git.ask(repository, "log", *how, revision, "--").decode(errors="replace").split("\0")
    found = {}
    for commit, _, message in (entry.partition("\n") for entry in entries):
        first, second = ([line for line in message.splitlines() if line.strip()] + ["", ""])[:2]
        found[commit] = second if MERGE.match(first) and second else first
    return found


def report(history: History, named: Mapping[str, str]) -> Iterator[str]:
    made = Counter[str]()
    found = list(claims(history, named, made))
    yield from (f"{name:66s}{count:6}" for name, count in made.items())
    for words, holds in (
        ("the range of the largest of these changes holds the commit", Found.is_in_range),
        ("the commit is a suspect of its event", Found.is_suspect),
        ("the commit is one of those to look at first", Found.is_first),
    ):
        yield f"{words:66s}{sum(holds(claim.found[0], claim.at) for claim in found):6}"
    changes = [(each, claim.at) for claim in found for each in claim.found]
    suspected = sum(each.is_suspect(at) for each, at in changes)
    yield f"{'changes that they claim, and with the commit as a suspect':66s}{len(changes):6}{suspected:6}"
    for name, value in of_events(history).items():
        yield f"{name:66s}{value:>6}"
    for claim in found:
        yield from told(claim, history)


def claims(history: History, named: Mapping[str, str], made: Counter[str]) -> Iterator[Claim]:
    """Yield the commits that claim a change that is found. `made` counts what remains of them."""
    series = {
        (one.series.card, one.series.case.name): one.series for card in history.cards for one in card.analysed
    }
    cases: dict[str, set[str]] = defaultdict(set)
    for _, case in series:
        cases[case.partition("(")[0]].add(case)
    benchmarks: dict[str, set[str]] = defaultdict(set)
    for benchmark in cases:
        for word in words_of(benchmark):
            benchmarks[word].add(benchmark)
    known = {word: names for word, names in benchmarks.items() if len(names) <= MOST_NAMED * len(cases)}
    changes: dict[str, list[Found]] = defaultdict(list)
    for event in history.events:
        for each in event.changes:
            if each.change.kind == "improvement" and each.change.size >= SMALLEST:
                changes[each.change.case].append(Found(each.change, event))
    first = min(int(each.positions[0]) for each in series.values())
    last = max(int(each.positions[-1]) for each in series.values())
    for at in range(first + 1, last + 1):
        title = named.get(history.commits[at].hash, "")
        if not CLAIM.search(title) or ASIDE.match(title):
            continue
        made["measured commits that claim to be faster"] += 1
        asked = {name for word in words_of(title) for name in known.get(word, ())}
        made["whose title names benchmarks"] += bool(asked)
        nearby = (each for name in asked for case in cases[name] for each in changes[case])
        found = [
            each for each in nearby if is_made_at(at, each.change, series[each.change.card, each.change.case])
        ]
        made["whose change is found"] += bool(found)
        if found:
            yield Claim(at, title, sorted(found, key=lambda each: -each.change.size))


def words_of(name: str) -> set[str]:
    return {word.lower() for word in WORD.findall(name) if len(word) >= SHORTEST_WORD}


def is_made_at(at: int, change: Change, series: Series) -> bool:
    """Return True if figures alone say that a change, or half of it, came with a commit."""
    known = np.isfinite(series.values)
    positions, values = series.positions[known], series.values[known]
    place = int(np.searchsorted(positions, at))
    if not 0 < place < positions.size:
        return False
    low, high = positions[max(0, place - NEAR)], positions[min(place + NEAR - 1, positions.size - 1)]
    ratio = math.log(values[place] / values[place - 1]) if min(values[place - 1 : place + 1]) > 0 else 0.0
    return bool(change.good < high and low < change.bad and ratio / math.log1p(change.effect) >= HALF)


def told(claim: Claim, history: History) -> Iterator[str]:
    """Yield what is said of a claim: of the ranges, positions are counted from the commit."""
    at, largest = claim.at, claim.found[0]
    place = next(
        (
            words
            for words, holds in (
                ("first", Found.is_first),
                ("suspect", Found.is_suspect),
                ("in the change's range alone", Found.is_in_range),
            )
            if holds(largest, at)
        ),
        "missed",
    )
    change, event = largest.change, largest.event
    yield f"{place:8s} {history.commits[at].hash[:10]} {claim.title[:90]}"
    if place != "first":
        ranges = (
            f"change {change.good - at + 1}..{change.bad - at}, event {event.good - at + 1}..{event.bad - at}"
        )
        first = f"first {event.narrowest.start - at}..{event.narrowest[-1] - at}"
        yield f"         {change.case} {100 * change.effect:+.0f} %, {change.card}: {ranges}, {first}"


if __name__ == "__main__":
    sys.exit(main())
