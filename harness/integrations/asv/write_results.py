"""Writes our tracks in asv's result files from the records.

So a full disk, a crash or a mistake loses no measurement. In a readable file everything else stays unchanged:
other benchmarks, unrecorded cases, and tracks that agree with the records.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from asv import util
from asv.environment import get_environments
from asv.repo import get_repo
from asv.results import Results, get_filename
from asv.runner import BenchmarkResult

from harness.device.machine import ANNOTATIONS, machine_entry
from harness.errors import ConfigError, HarnessError, StoreError
from harness.history.sources.asv_results import AsvBenchmark, read_benchmarks, read_contents
from harness.history.sources.cards import card_folders
from harness.history.sources.our_records import RunFacts, card_records
from harness.integrations.asv import checkout
from harness.integrations.asv.tracks import TRACKS, Answer, Parameters, answers_of, label_of
from harness.records.record_files import read_run
from harness.records.types import METHOD_VERSION, Row, Run
from harness.system.cache import write_file

_ = checkout  # asv finds types of environments by subclass: importing is enough

_COMMANDS = ("asv", "static")
"""Commands whose records asv has results of."""
_MACHINE_VERSION = 1

Tracks: TypeAlias = Mapping[str, Sequence[AsvBenchmark]]
"""asv's benchmarks of each suite."""
Rows: TypeAlias = dict[Parameters, tuple[Row, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenResults:
    written: tuple[Path, ...]
    unchanged: int
    """Number of files that agree with the records."""
    problems: tuple[str, ...]
    """Sentences on files that could not be written."""


class _UnknownError(StoreError):
    """A fact that a result file needs and no source has."""


def write_results(conf: Any, root: Path, results: Path, *, every: bool = True) -> WrittenResults:
    """Write the results of every card and commit from the newest complete record of each case.

    `conf` is asv's Config, with paths relative to `root`. Without `every`, a file newer than its records is
    assumed to be right. Raises StoreError if results or the list of benchmarks cannot be read, or nothing can
    be written; ConfigError if asv.conf.json names no environment.
    """
    writer = _Writer(conf, root, _tracks(read_benchmarks(results)))
    for folder in card_folders(results):
        writer.write_card(folder, every=every)
    return WrittenResults(
        written=tuple(writer.written), unchanged=writer.unchanged, problems=tuple(writer.problems)
    )


def _tracks(benchmarks: Mapping[str, AsvBenchmark]) -> Tracks:
    found: defaultdict[str, list[AsvBenchmark]] = defaultdict(list)
    for benchmark in benchmarks.values():
        if benchmark.suite and benchmark.name.rpartition(".")[2] in TRACKS:
            found[benchmark.suite].append(benchmark)
    return found


def _readable(folder: Path) -> set[Path]:
    """Return the paths of results that a history has read."""
    commits = read_contents(folder).commits
    return {_path(folder, each, environment) for environment, hashes in commits.items() for each in hashes}


def _path(folder: Path, commit: str, environment: str) -> Path:
    return folder / Path(get_filename(folder.name, commit, environment)).name


def loaded(path: Path) -> Any:
    """Return asv's Results; None if the file is missing or damaged."""
    try:
        return Results.load(str(path), machine_name=path.parent.name)
    except (OSError, util.UserError, LookupError, TypeError, ValueError, AttributeError):
        return None


class _Writer:
    """Writes files, and collects counts and problems."""

    def __init__(self, conf: Any, root: Path, tracks: Tracks) -> None:
        self._conf, self._root, self._tracks = conf, root, tracks
        self.written: list[Path] = []
        self.unchanged = 0
        self.problems: list[str] = []

    def write_card(self, folder: Path, *, every: bool) -> None:
        """Write the results of one card."""
        facts = card_records(folder).facts
        self.problems += [f"{folder.name}: {each.problem}" for each in facts if each.problem]
        # asv keeps no results of the working tree as it is, which "existing" measures.
        exported = [
            each
            for each in facts
            if each.command in _COMMANDS and not each.environment.startswith("existing-")
        ]
        recorded: dict[tuple[str, str], list[RunFacts]] = defaultdict(list)
        for each in exported:
            recorded[each.commit, each.environment or self._default].append(each)
        if exported and _machine(folder) is None:
            self._mend_machine(folder, exported[-1])
        sound = _readable(folder)
        for key, records in recorded.items():
            path = _path(folder, *key)
            newest = max(each.mtime_ns for each in records)
            if every or path not in sound or path.stat().st_mtime_ns < newest:
                self._write(path, *key, records)
            else:
                self.unchanged += 1
            sound.add(path)
        self.problems += [
            f"{path} is damaged, and no record holds its commit. Delete it, and run asv again."
            for path in sorted(folder.glob("*.json"))
            if path.name != "machine.json" and path not in sound and loaded(path) is None
        ]

    def _write(self, path: Path, commit: str, environment: str, records: Iterable[RunFacts]) -> None:
        """Write the rows of records, oldest first, into the file of their commit if they differ."""
        suites = self._suites(path.with_name(each.file) for each in records)
        try:
            results = self._results(path, commit, environment, suites) if suites else None
        except _UnknownError as error:
            self.problems.append(error.message)
            return
        tracks = [(track, rows) for suite, rows in suites.items() for track in self._tracks.get(suite, ())]
        if sum(_put(results, track, rows) for track, rows in tracks):
            write_file(path, _content(results))
            self.written.append(path)
        elif suites:
            self.unchanged += 1

    def _suites(self, records: Iterable[Path]) -> Mapping[str, Rows]:
        """Return the newest row of each case, by suite, from complete records."""
        found: dict[str, Rows] = defaultdict(dict)
        for path in records:
            try:
                stored = read_run(path)
            except HarnessError as error:
                self.problems.append(error.message)
                continue
            if stored.interrupted or not stored.rows:  # asv never had the results of an interrupted run
                continue
            rows = found[stored.run.source.suite]
            if rows and _method(stored.run) != _method(next(iter(rows.values()))[1]):
                rows.clear()  # asv must not show values of two methods as one series
            rows |= {(row.kernel, label_of(row.sizes)): (row, stored.run) for row in stored.rows}
        return found

    def _results(self, path: Path, commit: str, environment: str, suites: Iterable[str]) -> Any:
        """Return asv's results in a file, or new ones."""
        old = loaded(path)
        if old and old.commit_hash != commit:
            raise _UnknownError(f"{path} is of commit {old.commit_hash}: {commit} has no place of its own.")
        if old:
            return old
        if unknown := next((suite for suite in suites if suite not in self._tracks), None):
            raise _UnknownError(
                f"A record in {path.parent} of commit {commit[:12]} is of suite {unknown!r}, of which "
                f"benchmarks.json has no tracks: was it renamed? {path.name} cannot be rebuilt."
            )
        return self._empty(path.parent, commit, environment)

    def _empty(self, folder: Path, commit: str, environment: str) -> Any:
        env = self._environments.get(environment)
        if env is None:
            raise _UnknownError(
                f"A record in {folder} is of asv's environment {environment!r}, which asv.conf.json does not "
                f"have: {', '.join(self._environments)}."
            )
        machine = {key: value for key, value in (_machine(folder) or {}).items() if key not in ANNOTATIONS}
        params = {**machine, "python": env.python, **env.requirements}
        try:
            date = int(self._repository.get_date(commit))  # milliseconds since 1970
        except (util.UserError, util.ProcessError) as error:
            raise _UnknownError(
                f"Commit {commit[:12]} has a record, and asv's repository does not have it: {error}"
            ) from None
        return Results(params, env.requirements, commit, date, env.python, env.name, env.env_vars)

    @property
    def _default(self) -> str:
        """Return the environment of records that name none."""
        return next(iter(self._environments))

    @cached_property
    def _environments(self) -> dict[str, Any]:
        try:
            found = {each.name: each for each in get_environments(self._conf, None)}
        except util.UserError as error:
            raise ConfigError(f"asv.conf.json: {error}") from None
        if not found:
            raise ConfigError("asv.conf.json names no environment that there is.")
        return found

    @cached_property
    def _repository(self) -> Any:
        conf = self._conf
        if (self._root / conf.repo).exists():
            conf.repo = str(self._root / conf.repo)
        conf.project = str(self._root / conf.project)  # the folder of asv's mirror of a remote repository
        return get_repo(conf)

    def _mend_machine(self, folder: Path, newest: RunFacts) -> None:
        """Write a new machine.json from a record: asv ignores results beside a damaged one."""
        run = read_run(folder / newest.file).run
        entry = {**machine_entry(run.device, run.host), "machine": folder.name, "version": _MACHINE_VERSION}
        write_file(folder / "machine.json", json.dumps(entry, indent=4, sort_keys=True).encode())
        self.written.append(folder / "machine.json")


def _machine(folder: Path) -> dict[str, Any] | None:
    """Return the card's machine.json from asv; None if it is missing or damaged."""
    try:
        found = util.load_json(str(folder / "machine.json"), _MACHINE_VERSION)
    except (OSError, util.UserError, TypeError):
        return None
    return found if isinstance(found, dict) and found.get("machine") == folder.name else None


def _put(results: Any, benchmark: AsvBenchmark, rows: Rows) -> bool:
    """Put a suite's rows into one track of asv's results, with samples if there were some.

    Returns False without a change if the track has the same values already.
    """
    name, params = benchmark.name, [list(values) for values in benchmark.params]
    parameters = [(ast.literal_eval(kernel), ast.literal_eval(size)) for kernel, size in product(*params)]
    found = {key: row for key, (row, _) in rows.items()}
    [answers] = answers_of(found, parameters, [name.rpartition(".")[2]]).values()
    places = [place for place, key in enumerate(parameters) if key in rows]
    has_results = name in results.get_all_result_keys()
    if has_results:
        known = results.get_result_value(name, params)
        if all(_is_same(_figure(answers[place]), known[place]) for place in places):
            return False
    newest = max((run for _, run in rows.values()), key=lambda run: run.started_at)
    results.add_result(
        {"name": name, "version": _method(newest), "params": params},
        _result(answers),
        started_at=dt.datetime.fromisoformat(newest.started_at),
        record_samples=has_results and any(results.get_result_samples(name, params)),
        selected_idx=places,
    )
    return True


def _figure(answer: Answer) -> float | None:
    """Return the value that asv computes from an answer; None for a failure."""
    value = answer.get("value")
    return median(value["samples"]) if isinstance(value, dict) else value


def _is_same(ours: float | None, theirs: Any) -> bool:
    if ours is None or not isinstance(theirs, int | float):
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=1e-9) or (math.isnan(ours) and math.isnan(theirs))


def _method(run: Run) -> str:
    """Return the version of a run's measuring method; older records have none.

    It does not matter for results of a compilation.
    """
    return str(run.settings.get("method", METHOD_VERSION if run.command == "static" else "1"))


def _result(answers: Sequence[Answer]) -> Any:
    """Return the result that asv computes from a benchmark's answers."""
    values = [answer.get("value") for answer in answers]
    sampled = [value if isinstance(value, dict) else {} for value in values]
    return BenchmarkResult(
        result=[True if samples else value for value, samples in zip(values, sampled, strict=True)],
        samples=[samples.get("samples") for samples in sampled],
        number=[samples.get("number") for samples in sampled],
        errcode=0,
        stderr="",
        profile=None,
    )


def _content(results: Any) -> bytes:
    """Return a result file in asv's form."""
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        results.save(folder)
        [path] = Path(folder).rglob("*.json")
        return path.read_bytes()
