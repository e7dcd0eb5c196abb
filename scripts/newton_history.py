"""The public asv history of NVIDIA's Newton as a repository with results, for `harness history` to be run on.

The data are series: a value for each machine, case and position of a commit on the line of first parents::

    python scripts/newton_history.py FOLDER --data DATA
    cd FOLDER && harness history

DATA holds series.json.gz and commits.json.gz. FOLDER becomes a repository with a commit at each position, so
that positions are the data's own; measured ones have their date and, in the message, their hash. asv's
results lie in .asv/results, a file for each machine, environment and commit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

KINDS = {"time": ("time", "seconds"), "peakmem": ("peakmemory", "bytes"), "track": ("track", "unit")}
"""What asv makes of a method whose name begins so: type and unit. The data do not have a track's own unit."""
UNITS = {
    **dict.fromkeys(("track_mean_loop_ms", "track_p95_loop_ms", "track_p95_step_time"), "ms/frame"),
    **dict.fromkeys(("track_mean_step_ms", "track_p95_step_ms"), "ms/step"),
    **dict.fromkeys(("track_mean_world_step_time", "track_simulate"), "ms/world-step"),
    "track_simulation_steps_per_second": "world-steps/s",
    "track_steady_state_gpu_memory": "MiB",
    "track_real_time_factor": "x",
    "track_sim_dt": "s",
}
"""Of tracks by their methods, as Newton's benchmarks.json has them."""
SYSTEMS = {"lin": "Linux", "win": "Windows"}
COLUMNS = ("result", "params", "version", "started_at")

Rows: TypeAlias = dict[str, dict[str, float]]
"""By benchmark and parameters; no parameters are an empty text."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to be made."""

    time: int
    """In seconds since 1970."""
    message: str


@dataclass(frozen=True, slots=True)
class Place:
    """The machine and Python that results come from, which have a folder and an environment of asv's."""

    machine: str
    system: str
    python: str

    @classmethod
    def of(cls, text: str) -> Place:
        machine, system, python = text.split(" | ")
        return cls(machine, system, python)

    @property
    def environment(self) -> str:
        return f"virtualenv-{self.python}"

    @property
    def params(self) -> dict[str, str]:
        gpu = self.machine.partition(" (")[2].removesuffix(")")
        return {
            "machine": self.machine,
            "os": SYSTEMS.get(self.system, self.system),
            **({"gpu": gpu} if gpu else {}),
        }


def write(data: Path, folder: Path, wanted: Iterable[str] = ()) -> None:
    """Make the repository and its results in a folder that is new or empty; of the machines whose names hold
    one of `wanted`, or of all.
    """
    words = tuple(wanted)
    series = [
        each
        for each in _read(data / "series.json.gz")
        if not words or any(word in each["machine"] for word in words)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    line = _line(_read(data / "commits.json.gz"))
    hashes = _repository(folder, line)
    results = folder / ".asv" / "results"
    tables: dict[Place, dict[int, Rows]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    parameters: dict[str, dict[str, None]] = defaultdict(dict)
    for each in series:
        benchmark, parameter = _split(each["case"])
        parameters[benchmark][parameter] = None
        table = tables[Place.of(each["machine"])]
        for position, value in zip(each["position"], each["value"], strict=True):
            table[position][benchmark][parameter] = value
    for place, table in tables.items():
        for position, rows in table.items():
            _write_result(results, place, hashes[position], line[position].time * 1000, rows)
        _write_json(results / place.machine / "machine.json", {**place.params, "version": 1})
    listed = {name: _benchmark(name, known) for name, known in sorted(parameters.items())}
    _write_json(results / "benchmarks.json", {**listed, "version": 2})
    conf = {
        "version": 1,
        "project": "newton",
        "repo": ".",
        "branches": ["main"],
        "results_dir": ".asv/results",
    }
    _write_json(folder / "asv.conf.json", conf)


def _read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def _line(measured: Mapping[str, Mapping[str, Any]]) -> list[Commit]:
    """A commit for each position from 0 on. What was not measured has a date between those beside it."""
    known = {int(position): found for position, found in measured.items()}
    first = min(known)
    line = [Commit(known[first]["date"] // 1000, f"position {at}, not measured") for at in range(first)]
    for before, after in pairwise([*sorted(known), max(known) + 1]):
        found = known[before]
        start = found["date"] // 1000
        gap_s = (known.get(after, found)["date"] // 1000 - start) / (after - before)
        line.append(Commit(start, f"newton {found['commit']}, position {before}"))
        line += [
            Commit(int(start + (at - before) * gap_s), f"position {at}, not measured")
            for at in range(before + 1, after)
        ]
    return line


def _repository(folder: Path, line: Sequence[Commit]) -> list[str]:
    """Make a repository with these commits on one branch; return their hashes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments: str, text: str = "") -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            input=text,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    stream = [
        f"commit refs/heads/main\ncommitter Newton <newton@example.org> {commit.time} +0000\n"
        f"data {len(commit.message)}\n{commit.message}\n\n"
        for commit in line
    ]
    git("init", "--quiet", "--initial-branch=main")
    git("fast-import", "--quiet", "--date-format=raw", text="".join(stream))
    return git("rev-list", "--reverse", "main").split()


def _split(case: str) -> tuple[str, str]:
    benchmark, _, parameters = case.partition("(")
    return benchmark, parameters.removesuffix(")")


def _params(parameters: Iterable[str]) -> list[list[str]]:
    """As asv writes them. All are one: the data do not have every combination of theirs."""
    known = list(map(repr, parameters))
    return [known] if known != [repr("")] else []


def _benchmark(name: str, parameters: Iterable[str]) -> dict[str, Any]:
    method = name.rpartition(".")[2]
    kind, unit = KINDS[method.partition("_")[0]]
    unit = "%" if "Overhead" in name and kind == "track" else UNITS.get(method, unit)
    params = _params(parameters)
    names = ["parameters"] if params else []
    return {"name": name, "type": kind, "unit": unit, "version": "1", "param_names": names, "params": params}


def _write_result(results: Path, place: Place, commit: str, time_ms: int, rows: Rows) -> None:
    python = place.python.removeprefix("py")
    _write_json(
        results / place.machine / f"{commit[:8]}-{place.environment}.json",
        {
            "commit_hash": commit,
            "env_name": place.environment,
            "date": time_ms,
            "params": {**place.params, "python": python},
            "python": python,
            "requirements": {},
            "env_vars": {},
            "result_columns": COLUMNS,
            "results": {
                name: [list(values.values()), _params(values), "1", time_ms] for name, values in rows.items()
            },
            "durations": {},
            "version": 2,
        },
    )


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="new or empty")
    parser.add_argument("--data", type=Path, required=True, help="where the series and commits lie")
    parser.add_argument(
        "--machine", action="append", default=[], help="words of the machines wanted; repeatable"
    )
    given = parser.parse_args()
    write(given.data, given.folder, given.machine)


if __name__ == "__main__":
    main()
