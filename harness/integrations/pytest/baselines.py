"""What files that pytest-benchmark saved say of benchmarks of ours: the card, and which are gone."""

from __future__ import annotations

__all__ = ["Baseline", "MissingBenchmark", "asked_for", "baseline_of"]

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest


class Baseline(NamedTuple):
    """Of one file."""

    card: Mapping[str, Any]
    """Empty where the file does not say."""
    names: tuple[str, ...]


def baseline_of(content: dict[str, Any]) -> Baseline | None:
    """What a file says of benchmarks of ours; None where it has none.

    The card is taken out of the content: pytest-benchmark, to which any difference is worth a warning,
    compares the rest, at a moment when this session's card is not known yet.
    """
    card = content.get("machine_info", {}).pop("gpu", None)
    names = tuple(
        str(each.get("fullname"))
        for each in content.get("benchmarks", ())
        if "harness_version" in (each.get("extra_info") or {})
    )
    return Baseline(card if isinstance(card, dict) else {}, names) if names else None


def asked_for(config: pytest.Config, name: str) -> bool:
    """Whether a test of this name would lie in what the command line names."""
    file, _, inside = name.partition("::")
    place = (config.rootpath / file).resolve()
    for argument in config.args:
        path, _, wanted = argument.partition("::")
        asked = (config.invocation_params.dir / path).resolve()
        if not wanted and place.is_relative_to(asked):
            return True
        if wanted and place == asked and f"{inside}[".startswith((f"{wanted}[", f"{wanted}::")):
            return True
    return False


class MissingBenchmark(pytest.Item):
    """A benchmark that a baseline has and this session has not. As a test that fails it obeys -k, -m and
    --deselect like any other, and has its line in pytest's summary.
    """

    fixturenames = ("benchmark",)
    """By which pytest-benchmark tells benchmarks from other tests."""
    funcargs: ClassVar[dict[str, Any]] = {}
    """Which its version 5.0.0 takes for granted."""

    @classmethod
    def like(cls, nodeid: str, session: pytest.Session, items: Sequence[pytest.Item]) -> MissingBenchmark:
        """One of that name, where its nearest relative among the items is, and with its markers."""
        relatives = [item for item in items if item.nodeid.partition("[")[0] == nodeid.partition("[")[0]]
        neighbours = [item for item in items if item.nodeid.partition("::")[0] == nodeid.partition("::")[0]]
        near = next(iter([*relatives, *neighbours]), None)
        module = near.getparent(pytest.Module) if near else None
        made: MissingBenchmark = cls.from_parent(
            module or session, name=nodeid.rpartition("::")[2], nodeid=nodeid
        )
        made.own_markers += [mark for item in relatives[:1] for mark in item.own_markers]
        made.extra_keyword_matches.update(Path(nodeid.partition("::")[0]).parts)
        return made

    def runtest(self) -> None:
        pytest.fail(
            "missing: the baseline has this benchmark and this run has not. It was renamed or removed, or is "
            "measured at other sizes now.",
            pytrace=False,
        )

    def reportinfo(self) -> tuple[str, None, str]:
        return self.nodeid.partition("::")[0], None, self.name
