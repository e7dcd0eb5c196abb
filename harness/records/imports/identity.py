"""The identity of a benchmark file: machine, card and build behind its times, in one form for all formats.

A fact is in `machine` if it can change a time and is not code: card, driver, ECC, limits, CPU, build. Two
files that differ in such a fact come from two machines. Every other fact is in `others`: a difference between
base and head is reported beside the verdicts. A project's own facts, such as the keys of
``--benchmark_context``, are classified by the words in their names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_DEPTH = 4
"""Number of levels of nested facts that are kept separate. Deeper facts are joined."""


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_CARD = _set_of(
    "accelerator accelerators amd card cards cuda device devices gpu gpus graphics hip nvidia rocm"
)
_NAMING = _set_of("model name names product")
_MACHINE = _CARD | _set_of(
    "affinity aslr boost clang clock clocks compile compiler cores cpu cpus cxxflags cflags debug "
    "driver drivers ecc freq frequency gcc ghz governor host hostname hz lto mhz mig mps ndebug node "
    "numa nvcc optimization os persistence processor sanitizer sanitizers smt tdp thread threads "
    "toolkit turbo"
)
_LIMIT = _set_of("application base cap default limit lock locked max maximum peak")
_CLOCK = _set_of("clock clocks freq frequency ghz hz mhz")
_READING = _set_of(
    "current draw energy fan free id job load number power pstate run temp temperature url usage used "
    "user util utilisation utilization"
)
"""Words of facts that change from one process to the next, unless a word of `_LIMIT` is beside them."""
_CARD_NUMBER = frozenset(("id", "number", "uuid"))
_WHEN = _set_of("date datetime pid time timestamp uptime")
_REVISION = _set_of("commit git githash gitsha rev revision sha")
_HASH = re.compile(r"([0-9a-f]{7,64})(-dirty|\+)?")
_OF_BUILD = _set_of("config configuration flags mode options profile type variant")
_BUILD_TYPE = re.compile(r"(?i)debug|release|relwithdebinfo|minsizerel")
_MODEL = re.compile(
    r"\b(NVIDIA|GeForce|Quadro|Tesla|TITAN|RTX|GTX|Radeon|Instinct|MI\d{3}[AX]?|G[BH]200|[ABH][123]00|[PV]100"
    r"|A10G?|A[346]0|L40?S?|T4)\b"
)
"""Names of cards, which identify a card under any key."""
_NO_NAME = re.compile(
    r"(?i)(cuda|gpu|hip|rocm|opencl|device)?[:_ ]*[0-9., ]*|cpu(:\d+)?|true|false|yes|no|on|off|none|null|n/a"
    r"|unknown|GPU-[0-9a-f-]+"
)
_APART = 0.02
"""Share by which every clock of one side must exceed those of the other side."""
_FEWEST_READ = 4
_MOST_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Everything in a file about itself, apart from its benchmarks."""

    of: str
    """The file, or the side of a comparison, that it describes."""
    written_by: str
    """Library that wrote it, with its version: ``nvbench 1.0.0``."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Facts that can change a time and are not code, as texts by dotted names."""
    clocks: Mapping[str, float] = field(default_factory=dict)
    """Clocks read at some moment, by dotted names, in the file's units."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Facts whose differences are reported: versions, settings, and a project's own facts."""
    cards: tuple[str, ...] = ()
    """Names of the cards in the file."""
    commit: str | None = None
    dirty: bool = False

    def fact(self, *words: str) -> str | None:
        """Return the first fact of a card with one of these words in its name, or None."""
        for name, value in self.machine.items():
            found = _words(name)
            if found & _CARD and found & set(words) and value not in ("", "null"):
                return value
        return None


def identity_of(
    of: str,
    written_by: str,
    *,
    machine: Mapping[str, Any],
    others: Mapping[str, Any],
    given: Mapping[str, Any],
    clocks: Mapping[str, float] | None = None,
) -> Identity:
    """Make an identity from facts of known meaning, and from the `given` ones of a project."""
    known, beside, read = texts_of(machine), texts_of(others), dict(clocks or {})
    commit, dirty = None, False
    cards: dict[str, None] = {}
    for name, value in texts_of(given).items():
        words = _words(name)
        if words & _REVISION and (found := _HASH.fullmatch(value)):
            commit, dirty = found[1], bool(found[2])
        elif words & _WHEN:
            continue
        elif _is_read_clock(words, value):
            read[name] = float(value)
        elif _is_machine(words, value):
            known[name] = value
            if _names_card(words, value):
                cards[value] = None
        else:
            beside[name] = value
    return Identity(
        of=of,
        written_by=written_by,
        machine=known,
        clocks=read,
        others={"written by": written_by, **beside},
        cards=tuple(cards),
        commit=commit,
        dirty=dirty,
    )


def names_model(text: str) -> bool:
    """Return True for a text that contains the name of a known card."""
    return _MODEL.search(text) is not None


def texts_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return nested facts as texts by dotted names. A list of one element counts as that element."""
    return dict(_texts("", given, _DEPTH))


def _texts(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, list) and len(value) == 1:
        yield from _texts(name, value[0], depth - 1) if depth else [(name, json.dumps(value))]
    elif depth and value and isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in items:
            yield from _texts(f"{name}.{key}" if name else str(key), each, depth - 1)
    elif not isinstance(value, Mapping) or name:
        yield name, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def machine_difference(base: Sequence[Identity], head: Sequence[Identity]) -> str:
    """Return a sentence on the machine facts in which two of these files differ; empty for one machine.

    A fact that only one file has counts if the same version wrote both: other versions may report less.
    """
    first, *rest = (*base, *head)
    for other in rest:
        names = dict.fromkeys([*first.machine, *other.machine])
        found = [
            f"{name} is {_shown(first.machine.get(name))} in {first.of} and "
            f"{_shown(other.machine.get(name))} in {other.of}"
            for name in names
            if _differs(name, first, other)
        ]
        if found:
            return "; ".join(found)
    return _clocks_difference(base, head)


def _differs(name: str, one: Identity, other: Identity) -> bool:
    values = one.machine.get(name), other.machine.get(name)
    return values[0] != values[1] and (None not in values or one.written_by == other.written_by)


def _clocks_difference(base: Sequence[Identity], head: Sequence[Identity]) -> str:
    """Return which clock differed between the sides. Readings scatter, so several must agree."""
    for name in base[0].clocks if base and head else ():
        sides = [[each.clocks[name] for each in side if name in each.clocks] for side in (base, head)]
        if min(map(len, sides)) < _FEWEST_READ:
            continue
        low, high = sorted(sides, key=min)
        gap = min(high) - max(low)
        if gap > _APART * max(low) and gap > max(max(side) - min(side) for side in sides):
            return f"{name} is {sides[0][0]:g} in {base[0].of} and {sides[1][0]:g} in {head[0].of}"
    return ""


def reported_differences(base: Sequence[Identity], head: Sequence[Identity]) -> tuple[str, ...]:
    """Return other facts in which the sides differ, as ``library_version: v1.9.1 → v1.9.2``.

    A fact that varies within a side is a momentary reading and is left out. A fact of the machine is reported
    if one side lacks it.
    """
    return (
        *_reported([each.machine for each in base], [each.machine for each in head], lacking=True),
        *_reported([each.others for each in base], [each.others for each in head]),
    )


def _reported(
    base: Sequence[Mapping[str, str]], head: Sequence[Mapping[str, str]], *, lacking: bool = False
) -> Iterator[str]:
    for name in dict.fromkeys(name for facts in (*base, *head) for name in facts):
        before, after = ({facts.get(name) for facts in side} for side in (base, head))
        if len(before) == len(after) == 1 and before != after and (not lacking or None in before | after):
            yield f"{name}: {_shown(before.pop())} → {_shown(after.pop())}"


def _shown(value: str | None) -> str:
    text = "nothing" if value is None else value
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def _is_read_clock(words: frozenset[str], value: str) -> bool:
    if not words & _CLOCK or words & _LIMIT:
        return False
    return re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", value) is not None and float(value) > 0


def _is_machine(words: frozenset[str], value: str) -> bool:
    if _BUILD_TYPE.fullmatch(value) or names_model(value):
        return True
    readings = words & _READING
    if words & _CARD and not words & {"build", "job", "run"}:
        readings -= _CARD_NUMBER  # the number of a card identifies it
    if readings and not words & _LIMIT:
        return False
    pairs = ("power" in words and words & _LIMIT) or ("build" in words and words & _OF_BUILD)
    return bool(words & _MACHINE or pairs)


def _names_card(words: frozenset[str], value: str) -> bool:
    if words & {"compiler", "driver", "flags", "os", "version"} or _NO_NAME.fullmatch(value):
        return False
    named = {word for word in words if not word.isdigit()}
    return names_model(value) or bool(named & _CARD and named <= _CARD | _NAMING)
