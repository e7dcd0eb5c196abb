"""A team's decisions about changes, in a small file in the repository that is reviewed like code."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.errors import ConfigError, StoreError
from harness.history.changes import BUILT, Analysed, Change, unreported
from harness.history.sources.cards import machine_of
from harness.history.sources.our_records import Commits
from harness.judgement.statistics.changepoints import Level
from harness.suite.case_id import in_short
from harness.system.cache import write_file
from harness.system.files import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "harness-triage.toml"

State = Literal["new", "acknowledged", "expired", "fixed", "unjudged", "stale", ""]
"""State of a regression or a drift; other changes have none.

- `new`: nobody has decided about it.
- `acknowledged`: somebody has accepted it.
- `expired`: the acceptance has expired.
- `fixed`: the level has come back.
- `unjudged`: the newest points are off their level.
- `stale`: the card has not measured the case for so long that its state is unknown.
"""
WORSE = ("regression", "drift")
"""Kinds of changes that need a decision."""

_BACK = 0.25
"""Share of a regression that may remain when it counts as fixed, if that is more than the smallest visible
change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    id: str
    """Id of a change or of an event."""
    commit: str
    reason: str
    author: str
    case: str | None = None
    """The case; None for all effects of the commit."""
    card: str | None = None
    expires: dt.date | None = None
    largest_percent: float | None = None

    def is_of(self, card: str) -> bool:
        """Return whether the decision applies to a card. A decision that names a machine applies to all its
        cards.
        """
        return self.card in (None, card, machine_of(card))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A change with its state."""

    change: Change
    state: State
    decision: Decision | None = None
    fixed_by: str | None = None
    """Id of the change that reverted it; None also if it ended with an epoch."""

    @property
    def as_stale(self) -> Stated:
        """Return the same change as stale."""
        return replace(self, state="stale") if self.is_open or self.state == "unjudged" else self

    @property
    def is_open(self) -> bool:
        return self.state in ("new", "expired")


def read_triage(root: Path) -> tuple[Decision, ...]:
    """Return the project's decisions; none without a file. Raises ConfigError for an invalid file."""
    path = root / FILE
    try:
        content = tomllib.loads(read_regular(path).decode())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    entries = content.pop("change", [])
    if content or not isinstance(entries, list):
        raise ConfigError(
            f"{path} holds {', '.join(content) or 'no list'}; expected tables named [[change]]."
        )
    return tuple(_decision(path, number, entry) for number, entry in enumerate(entries, 1))


_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "case", "commit", "reason", "author", "card"), (str,)),
    "expires": (dt.date,),
    "largest_percent": (int, float),
}
_OPTIONAL = ("case", "card", "expires", "largest_percent")


def _decision(path: Path, number: int, entry: Any) -> Decision:
    where = f"{path}, change {number}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {entry!r}; expected a table.")
    if unknown := set(entry) - set(_KINDS):
        raise ConfigError(f"{where}: no such key: {', '.join(sorted(unknown))}. Keys: {', '.join(_KINDS)}.")
    for key, kinds in _KINDS.items():
        value = entry.get(key)
        if value is None and key in _OPTIONAL:
            continue
        unfit = isinstance(value, (bool, dt.datetime)) or value == ""
        if unfit or not isinstance(value, kinds) or (isinstance(value, (int, float)) and not value > 0):
            expected = {"expires": "a date, such as 2027-03-31", "largest_percent": "a number above 0"}
            raise ConfigError(f"{where}: {key} is {value!r}; expected {expected.get(key, 'a text')}.")
    if not re.fullmatch("[0-9a-fA-F]{7,40}", entry["commit"]):
        raise ConfigError(f"{where}: commit is {entry['commit']!r}; expected a hash of 7 to 40 digits.")
    return Decision(**entry)


def acknowledge(root: Path, decision: Decision) -> Path:
    """Add a decision to the project's file. Raises ConfigError for a damaged file, StoreError."""
    path = root / FILE
    if any(known.id == decision.id for known in read_triage(root)):
        raise ConfigError(f"{path} has an entry for {decision.id} already: edit it there.")
    try:
        before = path.read_bytes() if path.exists() else _HEADING.encode()
        # An argument may contain half of a character (a surrogate), which UTF-8 cannot encode.
        after = before.rstrip(b"\n") + b"\n\n" + _entry(decision).encode(errors="replace")
        tomllib.loads(after.decode())
    except ValueError as error:
        raise ConfigError(f"Cannot add to {path} ({error}); expected tables named [[change]].") from None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    write_file(path, after)
    return path


_HEADING = """\
# Changes of speed that this project has accepted: one entry a change. 'harness history' reads it, and
# 'harness history --acknowledge ID' adds to it.
"""


def _entry(decision: Decision) -> str:
    lines = ["[[change]]"]
    for key in _KINDS:
        value = getattr(decision, key)
        if isinstance(value, str):
            # A JSON string is a TOML string, except DEL, which JSON does not escape, and characters in
            # surrogate pairs.
            value = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        if value is not None:
            lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def stated(
    analysed: Analysed, decisions: Iterable[Decision], commits: Commits, today: dt.date
) -> tuple[Stated, ...]:
    name = analysed.series.case.name
    known = [each for each in decisions if each.case and name in (each.case, in_short(each.case))]
    found = tuple(_stated(change, analysed, known, commits, today) for change in analysed.changes)
    if analysed.unjudged is None:
        return found
    accepted = _by_asv(analysed.unjudged, analysed, commits)
    state: State = "acknowledged" if accepted else "unjudged"
    return (*found, Stated(change=analysed.unjudged, state=state, decision=accepted))


def _stated(
    change: Change, analysed: Analysed, decisions: Sequence[Decision], commits: Commits, today: dt.date
) -> Stated:
    if change.kind not in WORSE:
        return Stated(change=change, state="")
    fixed, fixed_by = _fixed(change, analysed)
    if fixed:
        return Stated(change=change, state="fixed", fixed_by=fixed_by)
    if accepted := _by_asv(change, analysed, commits):
        return Stated(change=change, state="acknowledged", decision=accepted)
    return decided(change, [each for each in decisions if _concerns(each, change, commits)], today)


def _by_asv(change: Change, analysed: Analysed, commits: Commits) -> Decision | None:
    """Return the decision in asv's configuration about a change for the worse; None if there is none."""
    why = unreported(analysed, change) if change.kind in WORSE else ""
    if not why or analysed.limit is None:
        return None
    commit = commits[change.bad].hash[:12]
    author = analysed.limit.file
    return Decision(id=change.id, case=change.case, commit=commit, reason=why, author=author)


def decided(change: Change, decisions: Sequence[Decision], today: dt.date) -> Stated:
    """Return the change with the state that decisions give it."""
    for decision in decisions:
        if _holds(decision, change, today):
            return Stated(change=change, state="acknowledged", decision=decision)
    first = decisions[0] if decisions else None
    return Stated(change=change, state="expired" if first else "new", decision=first)


def _holds(decision: Decision, change: Change, today: dt.date) -> bool:
    slower = 100 * math.expm1(change.size)  # a rate that falls by 10 % means 11 % more time
    grown = decision.largest_percent is not None and slower > decision.largest_percent
    late = decision.expires is not None and today > decision.expires
    return not grown and not late


def _fixed(change: Change, analysed: Analysed) -> tuple[bool, str | None]:
    """Return True if a later level is back at the level before the change, apart from the card's part."""
    later = (level for level in analysed.levels if level.start > change.at)
    back = next((level for level in later if _is_back(level, change, analysed)), None)
    if back is None:
        return False, None
    return True, next((each.id for each in analysed.changes if each.at == back.start), None)


def _is_back(level: Level, change: Change, analysed: Analysed) -> bool:
    sign = math.copysign(1, change.after - change.before)
    if analysed.series.case.metric in BUILT:  # without noise, and possibly 0
        return sign * (level.level - change.before) <= 0
    left = max(analysed.floor, _BACK * abs(math.log(change.after / change.before)))
    by_the_card = sum(
        math.log1p(each.effect)
        for each in analysed.changes
        if each.kind == "environment"
        and change.at < each.at <= level.start
        and each.epoch == analysed.series.epoch[level.start]
    )
    return sign * (math.log(level.level / change.before) - by_the_card) <= left


def _concerns(decision: Decision, change: Change, commits: Commits) -> bool:
    """Return True if the decision names the change, or its commit if more data have moved the change."""
    if not decision.is_of(change.card):
        return False
    if decision.id == change.id or change.kind == "drift":  # a drift has no commit
        return decision.id == change.id
    between = range(change.good + 1, change.bad + 1)
    return any(commits[position].hash.startswith(decision.commit.lower()) for position in between)
