"""Names a script's timing calls so that the names stay the same from commit to commit. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.records.imports.imported import placed, with_digest
from harness.records.imports.pytest_benchmark_files import case_of_test
from harness.suite.case_id import MAX_AXIS

Value = int | str
_PLAIN_WORD = re.compile(r"[A-Za-z0-9]+")
"""A word whose spelling in a name is unique."""
_PLACE = "call"
"""Axis for the position among calls that nothing else distinguishes."""


class CallFacts(Protocol):
    """The facts that a call's name is made of: part of `Call` in script_process.py."""

    @property
    def functions(self) -> Sequence[str]: ...
    @property
    def calls(self) -> str: ...
    @property
    def variables(self) -> Sequence[Mapping[str, Value]]: ...
    @property
    def test(self) -> str: ...
    @property
    def params(self) -> Mapping[str, int | float | str]: ...


@dataclass(frozen=True, slots=True)
class CallName:
    """A call's kernel and sizes, in the form of a case."""

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    unstable: bool = False
    """True if only its position distinguishes it from other calls: an additional call renames it."""


def names_of(sides: Sequence[Sequence[CallFacts]]) -> list[list[CallName]]:
    """Return a name for each call of each side, in order. The same calls of two sides have the same name.

    A name is the function around the call with the fewest variables that distinguish its calls on every side.
    A variable without a common value on both sides, such as a version, is not used. A call in a pytest test
    has the test's name.
    """
    groups: dict[str, list[list[int]]] = defaultdict(lambda: [[] for _ in sides])
    found: list[list[CallName | None]] = [[None] * len(calls) for calls in sides]
    for side, calls in enumerate(sides):
        for number, call in enumerate(calls):
            if call.test:
                found[side][number] = name_of_test(call.test, call.params)
            else:
                groups[_function(call)][side].append(number)
    for function, places in groups.items():
        members = [[sides[side][number] for number in numbers] for side, numbers in enumerate(places)]
        variables = _telling(members)
        for side, numbers in enumerate(places):
            seen: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
            for number in numbers:
                values = _values(sides[side][number])
                axes = [(name, values[name]) for name in variables if name in values]
                key = _spelt(function, axes)
                seen[key] += 1
                again = seen[key] > 1
                kernel, sizes = _spelt(function, [*axes, (_PLACE, seen[key])]) if again else key
                found[side][number] = CallName(kernel, sizes, unstable=again)
    return [[name for name in names if name is not None] for names in found]


def name_of_test(test: str, params: Mapping[str, int | float | str]) -> CallName:
    """Return the name of a test's call, by the test's id in pytest and its parameters.

    It ends in a digest if a name of letters and digits alone could also be another test's.
    """
    kernel, sizes = case_of_test(test, params)
    words = [each for each in params.values() if isinstance(each, str)]
    if not all(map(_PLAIN_WORD.fullmatch, words)) or (test.endswith("]") and not params):
        kernel = with_digest(kernel, test)
    return CallName(kernel, tuple(sizes.items()))


def _spelt(function: str, axes: Sequence[tuple[str, Value]]) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return kernel and sizes. A word such as a provider appears without its variable's name."""
    words = [str(value) for _, value in axes if _speaks(value)]
    kernel, sizes = placed("_".join([function, *words]), [axis for axis in axes if not _speaks(axis[1])])
    return kernel, tuple(sizes.items())


def _speaks(value: Value) -> bool:
    return isinstance(value, str) and value[:1].isalpha() and value not in ("True", "False", "None")


def _function(call: CallFacts) -> str:
    """Return the function around a call; at the script's top level, the function that it times."""
    inner = next(iter(call.functions), "<module>")
    if inner not in ("<module>", "main", "<lambda>", "benchmark", "bench"):
        return inner
    return call.calls or inner.strip("<>")


def _values(call: CallFacts) -> dict[str, Value]:
    """Return the variables of a call. If two groups share a name, the more reliable group counts."""
    values: dict[str, Value] = {}
    for group in call.variables:
        for name, value in group.items():
            values.setdefault(name, value)
    return values


def _order(calls: Sequence[CallFacts]) -> list[str]:
    """Return the variables' names, the most reliable first."""
    ranks: dict[str, float] = {}
    for call in calls:
        for rank, group in enumerate(call.variables):
            for name, value in group.items():
                # A value that no size can have, such as a count of operations, follows from other variables.
                is_large = isinstance(value, int) and value > MAX_AXIS
                ranks[name] = max(rank + is_large / 2, ranks.get(name, 0))
    return sorted(ranks, key=lambda name: ranks[name])


def _telling(members: Sequence[Sequence[CallFacts]]) -> list[str]:
    """Return the fewest variables, in order of reliability, that distinguish the calls of a side."""
    valued = [[_values(call) for call in calls] for calls in members]
    names = [
        name
        for name in _order([call for calls in members for call in calls])
        if _varies(valued, name) and _in_common(valued, name)
    ]
    chosen: list[str] = []
    for name in names:
        if _classes(valued, [*chosen, name]) > _classes(valued, chosen):
            chosen.append(name)
    for name in reversed(chosen):
        fewer = [each for each in chosen if each != name]
        if _classes(valued, fewer) == _classes(valued, chosen):
            chosen = fewer
    return chosen


def _varies(valued: Sequence[Sequence[Mapping[str, Value]]], name: str) -> bool:
    return any(len({values.get(name) for values in calls}) > 1 for calls in valued)


def _in_common(valued: Sequence[Sequence[Mapping[str, Value]]], name: str) -> bool:
    told = [{values[name] for values in calls if name in values} for calls in valued if calls]
    return len(told) < 2 or bool(set.intersection(*told))


def _classes(valued: Sequence[Sequence[Mapping[str, Value]]], names: Sequence[str]) -> int:
    return sum(len({tuple(values.get(name) for name in names) for values in calls}) for calls in valued)
