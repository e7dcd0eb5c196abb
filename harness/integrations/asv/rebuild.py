"""asv's result files made anew from the records that they are derived from: a disk that was full, a crash or
a hand that slipped costs no measurement.

A file that can be read keeps what no record has: benchmarks that are not ours, cases that were never
recorded, and asv's stamps of what comes out as it was.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from asv import util
from asv.environment import get_environments
from asv.repo import get_repo
from asv.results import Results, get_filename
from asv.runner import BenchmarkResult

from harness.device.machine import ANNOTATIONS, machine_entry
from harness.errors import ConfigError, HarnessError, StoreError
from harness.history.sources.asv_results import AsvBenchmark, read_benchmarks
from harness.history.sources.cards import card_folders
from harness.history.sources.our_records import card_records
from harness.integrations.asv import plugin
from harness.integrations.asv.tracks import TRACKS, Answer, Parameters, answers_of, label_of
from harness.records.record_files import read_run
from harness.records.types import METHOD_VERSION, Row, Run
from harness.system.cache import write_file

_ = plugin  # asv finds types of environments by subclass: importing is using

_STAMPS = ("started_at", "duration")
"""Columns of asv's that say when it ran something, and no figure."""
_MACHINE_VERSION = 1

Rows = dict[Parameters, tuple[Row, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    written: tuple[Path, ...]
    unchanged: int
    """Files that hold what the records say."""
    problems: tuple[str, ...]
    """What could not be rebuilt, and why, a sentence each."""


class _UnknownError(StoreError):
    """Something that a result file needs and nothing tells."""


def rebuild(conf: Any, root: Path, results: Path) -> Rebuilt:
    """Make the results of every card and commit anew from the newest complete record of each case.

    `conf` is asv's Config, its paths relative to `root`. Raises StoreError where results or the list of
    benchmarks cannot be read, or nothing be written; ConfigError where asv.conf.json names no environment.
    """
    making = _Making(conf, root, read_benchmarks(results))
    written: list[Path] = []
    sound: set[Path] = set()
    problems: list[str] = []
    for folder in card_folders(results):
        for commit, records in _recorded(folder, problems).items():
            if _machine(folder) is None:
                written += _mended_machine(folder, records)
            for environment, suites in _rows(records, making.environment, problems).items():
                try:
                    path, content = making.file(folder, commit, environment, suites)
                except _UnknownError as error:
                    problems.append(error.message)
                    continue
                sound.add(path)
                if content is not None:
                    write_file(path, content)
                    written.append(path)
        problems += [
            f"{path} is damaged, and no record holds its commit. Delete it, and run asv again."
            for path in sorted(folder.glob("*.json"))
            if path.name != "machine.json" and path not in sound and _loaded(path, folder.name) is None
        ]
    return Rebuilt(written=tuple(written), unchanged=len(sound.difference(written)), problems=tuple(problems))


def _recorded(folder: Path, problems: list[str]) -> Mapping[str, Sequence[Path]]:
    """The records that asv made and those of builds without a card, by commit, oldest first."""
    found: dict[str, list[Path]] = defaultdict(list)
    for facts in card_records(folder).facts:
        if facts.problem:
            problems.append(f"{folder.name}: {facts.problem}")
        if facts.command in ("asv", "static"):
            found[facts.commit].append(folder / facts.file)
    return found


def _rows(records: Iterable[Path], environment: str, problems: list[str]) -> Mapping[str, Mapping[str, Rows]]:
    """The newest row of each case, by asv's environment and by suite; `environment` is the default."""
    found: dict[str, dict[str, Rows]] = defaultdict(lambda: defaultdict(dict))
    for path in records:
        try:
            stored = read_run(path)
        except HarnessError as error:
            problems.append(error.message)
            continue
        name = str(stored.run.settings.get("environment") or environment)
        # asv never had the figures of an interrupted run, and keeps none of the working tree as it is.
        if not stored.interrupted and stored.rows and not name.startswith("existing-"):
            rows = found[name][stored.run.source.suite]
            if rows and _method(stored.run) != _method(next(iter(rows.values()))[1]):
                rows.clear()  # asv shows no figures of two methods as one
            rows |= {(row.kernel, label_of(row.sizes)): (row, stored.run) for row in stored.rows}
    return found


def _loaded(path: Path, machine: str) -> Any:
    """The Results of asv; None where there is no file, or it is damaged."""
    try:
        return Results.load(str(path), machine_name=machine)
    except (OSError, util.UserError, LookupError, TypeError, ValueError, AttributeError):
        return None


class _Making:
    def __init__(self, conf: Any, root: Path, benchmarks: Mapping[str, AsvBenchmark]) -> None:
        self._conf, self._root = conf, root
        self._tracks: defaultdict[str, list[AsvBenchmark]] = defaultdict(list)
        for benchmark in benchmarks.values():
            if benchmark.suite and benchmark.name.rpartition(".")[2] in TRACKS:
                self._tracks[benchmark.suite].append(benchmark)

    @property
    def environment(self) -> str:
        return next(iter(self._environments))

    def file(
        self, folder: Path, commit: str, environment: str, suites: Mapping[str, Rows]
    ) -> tuple[Path, bytes | None]:
        """A result file's path and content; None where the file that is there has the same to say."""
        path = folder / Path(get_filename(folder.name, commit, environment)).name
        old = _loaded(path, folder.name)
        if old and old.commit_hash != commit:
            raise _UnknownError(f"{path} is of commit {old.commit_hash}: {commit} has no place of its own.")
        results = old or self._empty(folder, commit, environment)
        for suite, rows in suites.items():
            if suite not in self._tracks and old is None:
                raise _UnknownError(
                    f"A record in {folder} of commit {commit[:12]} is of suite {suite!r}, of which "
                    f"benchmarks.json has no tracks: was it renamed? {path.name} cannot be rebuilt."
                )
            for benchmark in self._tracks.get(suite, ()):
                _put(results, benchmark, rows)
        return path, _content(results, path if old else None)

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
        conf.project = str(self._root / conf.project)  # where asv mirrors what is no folder
        return get_repo(conf)


def _put(results: Any, benchmark: AsvBenchmark, rows: Rows) -> None:
    """Put what a suite's rows say into one track of asv's results; samples where there were some."""
    name, params = benchmark.name, [list(values) for values in benchmark.params]
    parameters = [(ast.literal_eval(kernel), ast.literal_eval(size)) for kernel, size in product(*params)]
    found = {key: row for key, (row, _) in rows.items()}
    [answers] = answers_of(found, parameters, [name.rpartition(".")[2]]).values()
    has_results = name in results.get_all_result_keys()
    newest = max((run for _, run in rows.values()), key=lambda run: run.started_at)
    results.add_result(
        {"name": name, "version": _method(newest), "params": params},
        _result(answers),
        started_at=dt.datetime.fromisoformat(newest.started_at),
        record_samples=has_results and any(results.get_result_samples(name, params)),
        selected_idx=[place for place, key in enumerate(parameters) if key in rows],
    )


def _method(run: Run) -> str:
    """The version of the method by which a run was measured; there was one before records told it. What was
    only compiled is of any.
    """
    return str(run.settings.get("method", METHOD_VERSION if run.command == "static" else "1"))


def _result(answers: Sequence[Answer]) -> Any:
    """The result that asv makes of a benchmark's answers."""
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


def _content(results: Any, old: Path | None) -> bytes | None:
    """A result file as asv writes it, rows that stay with their stamps; None where nothing changes."""
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        results.save(folder)
        [path] = Path(folder).rglob("*.json")
        made = json.loads(path.read_bytes())
    before = json.loads(old.read_bytes()) if old else {}
    columns = made["result_columns"]
    if before.get("result_columns") == columns:
        for name, row in before["results"].items():
            if _unstamped(columns, row) == _unstamped(columns, made["results"].get(name, ())):
                made["results"][name] = row
    if old and json.dumps(made, sort_keys=True) == json.dumps(before, sort_keys=True):
        return None
    return json.dumps(made).encode()


def _unstamped(columns: Sequence[str], row: Sequence[Any]) -> str:
    """A row without when it was run, as text: NaN is no number that equals itself."""
    pairs = zip(columns, row, strict=False)
    return json.dumps({name: value for name, value in pairs if name not in _STAMPS and value is not None})


def _machine(folder: Path) -> dict[str, Any] | None:
    """The card's machine.json of asv's; None where it is missing or damaged."""
    try:
        found = util.load_json(str(folder / "machine.json"), _MACHINE_VERSION)
    except (OSError, util.UserError, TypeError):
        return None
    return found if isinstance(found, dict) and found.get("machine") == folder.name else None


def _mended_machine(folder: Path, records: Sequence[Path]) -> list[Path]:
    """Write machine.json anew from the newest record: asv heeds no result beside a damaged one."""
    for record in reversed(records):
        try:
            run = read_run(record).run
        except HarnessError:
            continue
        entry = {**machine_entry(run.device, run.host), "machine": folder.name, "version": _MACHINE_VERSION}
        write_file(folder / "machine.json", json.dumps(entry, indent=4, sort_keys=True).encode())
        return [folder / "machine.json"]
    return []
