"""asv's limits of regressions: the regressions that a project's configuration hides from asv's reports.

``regressions_thresholds`` maps patterns of benchmarks to the smallest growth that asv reports.
``regressions_first_commits`` maps patterns to the commit after which asv looks for regressions, or to null to
switch the search off. A pattern is a regular expression for the beginning of a name; asv appends ``@`` and
the branch to the name. If several patterns match, the highest threshold and the newest commit apply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, GitError
from harness.history.sources.our_records import Commits
from harness.numbers import exact
from harness.system import git

_THRESHOLDS, _FIRST_COMMITS = "regressions_thresholds", "regressions_first_commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Limits of asv's configuration for the regressions of one case."""

    file: str
    """Name of the configuration file."""
    threshold: float | None = None
    """Smallest relative growth of its time, or of another cost, that counts; None without a threshold."""
    threshold_pattern: str = ""
    first: int = -1
    """Position of the commit after which regressions count; -1 if all count."""
    first_commit: str = ""
    """The first commit, as the configuration names it."""
    first_pattern: str = ""
    off_pattern: str = ""
    """Pattern that turns the search off; empty if the search is on."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the limits of the case as sentences, in the configuration's words."""
        return tuple(filter(None, (self.of_threshold, self.of_first, self.of_off)))

    @property
    def of_threshold(self) -> str:
        if self.threshold is None:
            return ""
        return f'{_THRESHOLDS} has {exact(self.threshold)} for "{self.threshold_pattern}"'

    @property
    def of_first(self) -> str:
        if not self.first_commit:
            return ""
        return f'{_FIRST_COMMITS} has {self.first_commit[:12]} for "{self.first_pattern}"'

    @property
    def of_off(self) -> str:
        return f'{_FIRST_COMMITS} has null for "{self.off_pattern}"' if self.off_pattern else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsvLimits:
    """The limits of every benchmark in a configuration."""

    file: str = ""
    branch: str = ""
    """Branch that follows the name of each benchmark."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    first_commits: Mapping[str, str | None] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)
    """Positions of the first commits in this history, from `placed`."""
    problems: tuple[str, ...] = ()
    """Sentences on first commits that this history does not have."""

    def placed(self, repository: Path, commits: Commits) -> AsvLimits:
        """Return the same limits with the positions of their commits."""
        positions: dict[str, int] = {}
        problems = []
        for name in sorted({each for each in self.first_commits.values() if each}):
            try:
                positions[name] = commits.positions[git.resolve(repository, name)]
            except (GitError, LookupError):
                problems.append(
                    f"{self.file}: {_FIRST_COMMITS} names {name}, which is not in the history at hand. It is "
                    "not heeded."
                )
        return replace(self, positions=positions, problems=tuple(problems))

    def of(self, name: str) -> Limit | None:
        """Return the limit of a benchmark by asv's name of it; None if no pattern matches."""
        full = f"{name}@{self.branch}" if self.branch else name
        thresholds = {each: self.thresholds[each] for each in _fitting(self.thresholds, full)}
        commits = {each: self.first_commits[each] for each in _fitting(self.first_commits, full)}
        if not thresholds and not commits:
            return None
        highest = max(thresholds, key=lambda each: thresholds[each], default="")
        places = {
            each: self.positions[name] for each, name in commits.items() if name and name in self.positions
        }
        newest = max(places, key=lambda each: places[each], default="")
        return Limit(
            file=self.file,
            threshold=thresholds.get(highest),
            threshold_pattern=highest,
            first=places.get(newest, -1),
            first_commit=commits.get(newest) or "",
            first_pattern=newest,
            off_pattern=next((each for each, commit in commits.items() if commit is None), ""),
        )


def _fitting(patterns: Mapping[str, object], name: str) -> Iterator[str]:
    return (each for each in patterns if re.match(each, name))


def limits_of(conf: Any, file: str, branch: str) -> AsvLimits:
    """Return the limits of a configuration, whose attributes are those of asv's Config.

    Raises ConfigError for an invalid regular expression, and for a threshold that is no number.
    """
    thresholds, first_commits = (
        _patterns(getattr(conf, name), f"{file}: {name}") for name in (_THRESHOLDS, _FIRST_COMMITS)
    )
    for pattern, commit in first_commits.items():
        if not isinstance(commit, str | None):
            raise ConfigError(
                f"{file}: {_FIRST_COMMITS} has {commit!r} for {pattern!r}; expected a commit, or null."
            )
    if not thresholds and not first_commits:
        return AsvLimits()
    return AsvLimits(
        file=file,
        branch=branch,
        thresholds={
            pattern: _number(value, f"{file}: {_THRESHOLDS} has {value!r} for {pattern!r}")
            for pattern, value in thresholds.items()
        },
        first_commits=first_commits,
    )


def _patterns(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{where} is {given!r}; expected an object of patterns.")
    for pattern in given:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                f"{where} has the pattern {pattern!r}, which is no regular expression: {error}. Mend it."
            ) from None
    return given


def _number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ConfigError(f"{what}; expected a number, such as 0.05 for 5 %.")
    return number
