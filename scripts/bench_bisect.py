"""Measure how often a bisection that is 99 % sure is wrong, and how many comparisons it takes.

    python scripts/bench_bisect.py --histories 200 --commands 4

Histories are of five kinds: one step, two steps, a creep, a step beside one that is undone, and no change.
Comparisons are made up: they measure a ratio of times in processes, until the limits of a comparison decide.
One comparison in five hundred is wrong by any amount. With --commands, `harness bisect` itself also searches
a few histories of each kind, on the null device.

An answer names commits, or a creep, and is at least 99 % sure. It is wrong in four cases: the suspects of a
step made no step; it names a commit in a creep; it calls steps a creep although one commit made a third of
it; or its steps are not the whole change and it does not say so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

if __package__ in (None, ""):  # run as a command: the folder above is where `tests` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import cli
from harness.device.backends.null import devices
from harness.judgement.case_trial import bare_verdict
from harness.judgement.statistics.bisection import SURE
from harness.records.types import Effect, Toolchain, Verdict
from harness.report.terminal import bisections
from harness.run.bisect.commit_pairs import PairResult, Question
from harness.run.bisect.search import Bisecting
from harness.run.compare_settings import CompareSettings
from harness.run.sweep.executors import Silent
from harness.suite.case_id import CaseId
from harness.suite.problem import Case
from harness.system import process, ready
from harness.system.git import Commit
from tests import toy
from tests.fork_server import WORKERS, ForkServer
from tests.support import git, make_repository

Levels = list[float]
"""Logarithm of each commit's time over GOOD's, GOOD first."""

CASE = Case("toy", "plain", {"n": 64})
COMMITS = (10, 200)
CHANGES = (0.01, 0.4)
NOISE = (0.02, 0.4)
"""Deviation of one process, in changes of the ends."""
PROCESSES = range(2, 17)
WRONG = 1 / 500
NULL_NS = 100_000_000
REAL = 1 / 6
"""Smallest share of the largest step at which a commit made a step."""


# Histories


def one_step(random: np.random.Generator, commits: int, change: float) -> Levels:
    return stepped(commits, {int(random.integers(1, commits + 1)): change})


def two_steps(random: np.random.Generator, commits: int, change: float) -> Levels:
    share = random.uniform(0.25, 0.75)
    first, second = places(random, commits, 2)
    return stepped(commits, {first: share * change, second: (1 - share) * change})


def creep(random: np.random.Generator, commits: int, change: float) -> Levels:
    """Every commit adds to the change, by half to one and a half times as much as all do on average."""
    parts = random.uniform(0.5, 1.5, size=commits)
    return [0.0, *np.cumsum(parts * change / parts.sum()).tolist()]


def undone_step(random: np.random.Generator, commits: int, change: float) -> Levels:
    """A step that stays, and beside it one that is undone; or a step of which a part is undone."""
    if random.random() < 0.5:
        first, second = places(random, commits, 2)
        return stepped(commits, {first: change, second: -random.uniform(0.3, 0.6) * change})
    undone = int(random.integers(1, 3))
    steps = enumerate(places(random, commits, 3))
    return stepped(commits, {at: -change if number == undone else change for number, at in steps})


def nothing(_: np.random.Generator, commits: int, __: float) -> Levels:
    return [0.0] * (commits + 1)


KINDS: Mapping[str, Callable[[np.random.Generator, int, float], Levels]] = {
    "one step": one_step,
    "two steps": two_steps,
    "creep": creep,
    "step and undone step": undone_step,
    "nothing": nothing,
}


def places(random: np.random.Generator, commits: int, count: int) -> list[int]:
    return sorted(random.choice(np.arange(1, commits + 1), size=count, replace=False).tolist())


def stepped(commits: int, steps: Mapping[int, float]) -> Levels:
    return [sum(size for at, size in steps.items() if at <= commit) for commit in range(commits + 1)]


# Searches


class Devices:
    """Devices that measure the levels of commits with noise."""

    devices = tuple(devices())
    toolchain = Toolchain(compiler="none")

    def __init__(self, levels: Mapping[str, float], random: np.random.Generator, noise: float) -> None:
        self.levels, self.random, self.noise = levels, random, noise

    def ask(self, asked: Sequence[Question]) -> Iterator[PairResult]:
        for question in asked:
            value = self.levels[question.head] - self.levels[question.base]
            if self.random.random() < WRONG and question.settings.margin:
                value += self.random.uniform(-1.5, 1.5) * max(map(abs, self.levels.values()))
            codes = [frozenset({f"code {commit}"}) for commit in (question.base, question.head)]
            verdict = self._verdict(value, question.settings)
            yield PairResult(question=question, base_code=codes[0], head_code=codes[1], verdict=verdict)

    def _verdict(self, value: float, settings: CompareSettings) -> Verdict:
        """Measure one process after another, until the limits decide."""
        margin, tolerance = settings.margin or 0.0025, settings.tolerance or 0.01
        verdict = bare_verdict("toy.plain[n=64]", CASE, "inconclusive", "too-noisy")
        measured = value + self.noise * self.random.standard_normal(PROCESSES[-1])
        for processes in PROCESSES:
            mean, half = measured[:processes].mean(), 3.29 * self.noise / math.sqrt(processes)
            effect, low, high = (math.expm1(mean + sign * half) for sign in (0, -1, 1))
            time = Effect(effect=effect, low=low, high=high, processes=processes, quads=6 * processes)
            verdict = replace(verdict, time=time)
            if low > margin:
                return replace(verdict, status="regression", reason="slower-in-time")
            if high < -margin:
                return replace(verdict, status="improvement", reason="faster-in-time")
            if -tolerance < low and high < tolerance:
                return replace(verdict, status="unchanged", reason="within-tolerance")
        return verdict


def searched(levels: Levels, random: np.random.Generator, noise: float) -> dict[str, Any]:
    line = [Commit(f"{at:040}", at, "An Author", f"Change {at}") for at in range(len(levels))]
    known = dict(zip((commit.hash for commit in line), levels, strict=True))
    settings = CompareSettings(save=False)
    touching = range(1, len(line))
    made_up = Devices(known, random, noise)
    search = Bisecting(CaseId.parse("toy.plain[n=64]"), line, touching, made_up, settings, Observer())
    return bisections.as_json(search.run())


class Observer(Silent):
    def asking(self, against: Commit, commit: Commit) -> None: ...
    def looked(self, looked: Any, suspects: int) -> None: ...


@contextlib.contextmanager
def forked_workers(folder: Path) -> Iterator[None]:
    """Workers are forked, as in tests, and what commands keep lies in a folder that nobody else has."""
    own = {"HARNESS_CACHE_DIR": str(folder / "cache"), "HARNESS_LOCK_DIR": str(folder), ready.FRESH: "1"}
    constants = {"PIPE": subprocess.PIPE, "DEVNULL": subprocess.DEVNULL}
    with contextlib.closing(ForkServer(WORKERS)) as workers, contextlib.ExitStack() as stack:
        forked = SimpleNamespace(Popen=workers.popen, **constants)
        stack.enter_context(mock.patch.object(process, "subprocess", forked))
        stack.enter_context(mock.patch.dict(os.environ, own))
        yield


def bisected(levels: Levels, folder: Path) -> dict[str, Any]:
    """Search with `harness bisect`, in a repository whose kernel takes as long as the levels say."""
    make_repository(folder)
    stream = []
    for at, level in enumerate(levels):
        told = f"#define CHANGE {at}\n#define NULL_DEVICE_NS {round(NULL_NS * math.exp(level))}\n"
        kernel = {"kernels/toy/plain.cu": told + toy.BODY.format(name="plain")}
        message = f"Change {at}"
        stream += [f"commit refs/heads/main\ncommitter A <a@example.org> {at} +0000"]
        stream += [f"data {len(message)}\n{message}"]
        for name, text in (kernel if at else {**toy.FILES, **kernel}).items():
            stream += [f"M 644 inline {name}\ndata {len(text.encode())}\n{text}"]
    commits = "\n".join([*stream, ""]).encode()
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=commits, check=True)
    git(folder, "reset", "--quiet", "--hard")
    first = f"HEAD~{len(levels) - 1}"
    command = ("bisect", "toy.plain@64", first, "--device", "null", "--no-save", "--json")
    before = Path.cwd()
    os.chdir(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(os.chdir, before)
        written = stack.enter_context(io.TextIOWrapper(io.BytesIO()))
        stack.enter_context(mock.patch.object(sys, "argv", ["harness", *command]))
        stack.enter_context(contextlib.redirect_stdout(written))
        progress = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        with contextlib.suppress(SystemExit):
            cli.main()
        if answer := written.buffer.getvalue():
            return dict(json.loads(answer))
        raise RuntimeError(progress.getvalue())


# Judgement


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: str
    says: str
    """Outcome, and the number of steps, of an answer that is sure; empty without one."""
    wrong: str
    """Reason why the answer is wrong."""
    limited: bool
    """True if the answer says that other commits have a part in the change, or may have."""
    comparisons: int


def judged(kind: str, levels: Levels, found: Mapping[str, Any]) -> Outcome:
    comparisons = found["comparisons"]
    if found["outcome"] not in ("found", "range", "creep") or found["sure"] < SURE:
        return Outcome(kind, "", "", limited=False, comparisons=comparisons)
    steps = found["steps"]
    says = found["outcome"] if found["outcome"] == "creep" else f"{found['outcome']} {len(steps)}"
    wrong = _mistake(kind, np.diff(levels), levels[-1], found)
    return Outcome(kind, says, wrong, bool(found["notes"]), comparisons)


def _mistake(kind: str, made: np.ndarray[Any, Any], whole: float, found: Mapping[str, Any]) -> str:
    if kind == "nothing":
        return "nothing changed"
    if found["outcome"] == "creep":
        return "a commit made a third" if np.abs(made).max() > abs(whole) / 3 else ""
    if kind == "creep":
        return "it is a creep"
    largest = np.abs(made).max()
    explained = 0.0
    for step in found["steps"]:
        sizes = [made[int(suspect["subject"].split()[-1]) - 1] for suspect in step["suspects"]]
        explained += sum(sizes)
        if max(map(abs, sizes)) < REAL * largest:
            return "the suspects made no step"
    if abs(explained - whole) > abs(whole) / 3 and not found["notes"]:
        return "there is another step"
    return ""


def table(outcomes: Sequence[Outcome]) -> str:
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        by_kind[each.kind].append(each)
        by_kind["all"].append(each)
    columns = f"{'histories':>10}{'answers':>9}{'wrong':>7}{'limited':>9}{'comparisons: mean':>19}{'most':>6}"
    lines = [f"{'kind':20}{columns}"]
    for kind in (*KINDS, "all"):
        some = by_kind[kind]
        answers = Counter(each.says for each in some if each.says)
        counts = [each.comparisons for each in some]
        lines.append(
            f"{kind:20}{len(some):10}{answers.total():9}{sum(bool(each.wrong) for each in some):7}"
            f"{sum(each.limited for each in some):9}{fmean(counts):19.2f}{max(counts):6}  "
            + ", ".join(f"{number} {says}" for says, number in answers.most_common())
        )
    mistakes = Counter(f"{each.kind}: {each.says}: {each.wrong}" for each in outcomes if each.wrong)
    return "\n".join([*lines, *(f"wrong: {number} {mistake}" for mistake, number in mistakes.most_common())])


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--histories", type=int, default=200, help="of each kind (default: %(default)s)")
    parser.add_argument("--commands", type=int, default=0, help="histories of each kind for harness bisect")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    given = parser.parse_args()
    outcomes = []
    for kind, history in KINDS.items():
        for number in range(given.histories):
            random = np.random.default_rng((given.seed, list(KINDS).index(kind), number))
            commits = round(math.exp(random.uniform(*np.log(COMMITS))))
            change = math.exp(random.uniform(*np.log(CHANGES))) * random.choice((-1, 1))
            noise = abs(change) * math.exp(random.uniform(*np.log(NOISE)))
            levels = history(random, commits, change)
            outcomes.append(judged(kind, levels, searched(levels, random, noise)))
    print("Made-up comparisons\n" + table(outcomes))
    if given.commands:
        outcomes, random = [], np.random.default_rng(given.seed)
        with tempfile.TemporaryDirectory() as folder, forked_workers(Path(folder)):
            for kind, history in KINDS.items():
                for _ in range(given.commands):
                    levels = history(random, int(random.integers(10, 40)), random.uniform(0.05, 0.3))
                    repository = Path(folder) / "repository"
                    outcomes.append(judged(kind, levels, bisected(levels, repository)))
                    shutil.rmtree(repository)
        print("\nharness bisect on the null device\n" + table(outcomes))


if __name__ == "__main__":
    main()
