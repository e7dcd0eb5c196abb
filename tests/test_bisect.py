"""harness bisect: which commit did it, on histories whose culprit is known, on a device that needs none."""

from __future__ import annotations

import contextlib
import math
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.device.backends.null import devices
from harness.errors import ExitCode, HarnessError, Side
from harness.judgement.case_trial import bare_verdict
from harness.judgement.statistics import bisection
from harness.judgement.statistics.bisection import (
    SURE,
    Answer,
    Block,
    beliefs,
    chance_of,
    likeliest,
    questions,
    smallest_range,
    suspected,
)
from harness.records.types import Effect, Toolchain, Verdict, VerdictStatus
from harness.report.terminal.progress import BisectProgress
from harness.run.bisect.commit_pairs import PairResult, Question, is_known
from harness.run.bisect.search import Bisecting, BisectResult
from harness.run.compare_settings import CompareSettings
from harness.run.device_session import find_device
from harness.suite.case_id import CaseId
from harness.suite.problem import Case
from harness.system.git import Commit
from harness.system.process import Failed
from tests import synthetic_history as synthetic
from tests import toy
from tests.support import GPU, Done, caller, device_is_missing, git, make_repository

PLAIN = "kernels/toy/plain.cu"
MS = 100_000_000  # long, so that few launches fill a warm-up


# What to ask, and how sure the answers make it.


def search(count: int, at: int, broken: Sequence[int] = (), devices: int = 1) -> tuple[int, int, Block]:
    """Return the numbers of answers and rounds with clear answers, and the commits found."""
    answers = [Answer(0, count, 1.0, 0.0)]
    asked: Counter[tuple[int, int]] = Counter()
    skipped: set[int] = set()
    for rounds in range(200):
        there = [each for each in range(count + 1) if each not in skipped]
        [step] = beliefs(np.ones(count), answers).steps()
        likely = step.likely
        pairs = questions(likely, there, there, skipped, asked, devices)
        if not pairs:
            return len(answers) - 1, rounds, likeliest(likely, there)
        assert len(pairs) <= devices
        for after, upto in pairs:
            if not_built := {after, upto} & set(broken):
                skipped |= not_built
            else:
                asked[after, upto] += 1
                answers.append(Answer(after, upto, 1.0 if after < at <= upto else 0.0, 0.0))
    raise AssertionError("it asks on and on")


def test_a_hundred_suspects_take_eight_comparisons_and_one_is_with_the_parent():
    found = [search(100, at) for at in range(1, 101)]
    assert max(answers for answers, _, _ in found) == 8
    for at, (_, _, block) in enumerate(found, 1):
        assert (block.after, block.upto) == (at - 1, at)
        assert block.mass >= SURE


def test_several_devices_take_fewer_rounds():
    rounds = [max(search(100, at, devices=devices)[1] for at in range(1, 101, 3)) for devices in (1, 2, 4)]
    assert rounds == [8, 6, 4]


def test_what_cannot_be_measured_leaves_a_range_and_costs_little_elsewhere():
    broken = range(31, 41)
    for at in range(1, 61):
        answers, rounds, block = search(60, at, broken)
        assert (block.after, block.upto) == ((30, 41) if 31 <= at <= 41 else (at - 1, at))
        assert rounds - answers <= (10 if 31 <= at <= 41 else 2)


def test_a_wrong_answer_is_overruled():
    answers = [Answer(0, 100, 1.0, 0.0), Answer(0, 50, 0.0, 0.0)]  # and it is 50 that made the change
    asked = Counter({(0, 50): 1})
    there = list(range(101))
    while pairs := questions(beliefs(np.ones(100), answers).steps()[0].likely, there, there, (), asked):
        for pair in pairs:
            asked[pair] += 1
            answers.append(Answer(*pair, 1.0 if pair[0] < 50 <= pair[1] else 0.0, 0.0))
    found = beliefs(np.ones(100), answers)
    assert found.holds(49, 50) >= SURE
    assert found.holds(0, 49) < 1 - SURE


@pytest.mark.parametrize("creep", [0.0, 1.0])
def test_an_answer_that_does_not_count_is_as_none(creep):
    random = np.random.default_rng(3)
    spans, gaps = random.integers(0, 2, (5, 4)).astype(float), np.array([[0, 1], [2, 3]])
    weights, values, variances = np.full(4, 0.25), random.random(5), random.random(5)

    def weighed(some: Any, right: Any) -> Any:
        measured = bisection._Measured(spans[some], weights, values[some], variances[some])
        return bisection._likelihoods(measured, gaps, creep, right)

    logs, sizes = weighed(slice(None), ~np.eye(5, dtype=bool))
    for without in range(5):
        left = np.arange(5) != without
        log, size = weighed(left, np.ones((1, 4), dtype=bool))
        np.testing.assert_allclose(logs[without], log[0])
        np.testing.assert_allclose(sizes[without], size[0])


def test_an_answer_is_as_sure_as_its_interval():
    whole = 0.02
    assert chance_of(0.02, 0.019, 0.021, whole, 3.3) > 0.999
    assert chance_of(0.0, -0.001, 0.001, whole, 3.3) < 0.001
    assert chance_of(0.01, -0.03, 0.05, whole, 3.3) == pytest.approx(0.5)
    assert chance_of(-0.02, -0.021, -0.019, -whole, 3.3) > 0.999  # of an improvement
    assert chance_of(0.0, -0.001, 0.001, -whole, 3.3) < 0.001
    assert 0.5 < chance_of(0.2, -0.2, 0.6, whole, 3.3) < 0.7  # far off, and so are both: it tells little
    assert chance_of(0.02, 0.02, 0.02, whole, 3.3) == 1


def test_suspects_are_the_fewest_that_will_do():
    likely = np.array([0.001, 0.002, 0.5, 0.493, 0.003, 0.001])
    assert (smallest_range(likely).after, smallest_range(likely).upto) == (2, 4)
    assert suspected(likely) == 2
    assert smallest_range(np.full(4, 0.25)) == Block(0, 4, 1.0)
    assert suspected(np.full(100, 0.01)) == 99


# What is done with the answers, of devices that know them.


class Scripted:
    """Devices that know how long each commit takes; None for one that does not build."""

    devices = tuple(devices())
    toolchain = Toolchain(compiler="none")

    def __init__(self, line: Sequence[Commit], levels: Sequence[float | None], noise: float = 0.0003) -> None:
        self.levels = dict(zip((commit.hash for commit in line), levels, strict=True))
        self.noise, self.random = noise, np.random.default_rng(4)
        self.asked: list[tuple[str, str]] = []
        self.most = 1000

    def ask(self, asked: Sequence[Question]) -> Iterator[PairResult]:
        for question in asked:
            if len(self.asked) == self.most:
                raise KeyboardInterrupt
            self.asked.append((question.base, question.head))
            base, head = self.levels[question.base], self.levels[question.head]
            if base is None or head is None:
                side: Side = "base" if base is None else "head"
                failed = Failed(reason="build-failed", message="", side=side)
                yield PairResult(question=question, failed=failed)
                continue
            found = PairResult(
                question=question, base_code=self._code(question.base), head_code=self._code(question.head)
            )
            if not is_known(found):
                found = replace(found, verdict=self._verdict(question, head / base))
            yield found

    def _code(self, commit: str) -> frozenset[str]:
        return frozenset({f"code {commit}"})

    def _verdict(self, question: Question, ratio: float) -> Verdict:
        margin = question.settings.margin or 0.0025
        noise = self.noise if question.settings.margin else 0.0003  # of the ends, which differ for sure
        value = math.log(ratio) + noise * self.random.standard_normal()
        low, high = (math.expm1(value + sign * 3.29 * noise) for sign in (-1, 1))
        status: VerdictStatus = "inconclusive"
        if low > margin or high < -margin:
            status = "regression" if low > margin else "improvement"
        elif -4 * margin < low and high < 4 * margin:
            status = "unchanged"
        effect = Effect(effect=math.expm1(value), low=low, high=high, processes=4, quads=40)
        return replace(
            VERDICT,
            status=status,
            reason={"unchanged": "within-tolerance", "inconclusive": "too-noisy"}.get(
                status, "slower-in-time"
            ),
            time=effect,
        )


VERDICT = replace(
    bare_verdict("toy.plain[n=64]", Case("toy", "plain", {"n": 64}), "unchanged", ""), gpu_s=0.1
)


def searched(
    levels: Sequence[float | None],
    hidden: Collection[int] = (),
    results: Path | None = None,
    stop: int = 1000,
    margin: float | None = None,
    **script: Any,
) -> tuple[BisectResult, Scripted]:
    """A bisection of commits named by their numbers. `hidden` ones touch nothing, as far as is known."""
    line = [Commit(f"{number:040}", number, "An Author", f"Change {number}") for number in range(len(levels))]
    devices = Scripted(line, levels, **script)
    devices.most = stop
    settings = CompareSettings(results=results, save=results is not None, margin=margin)
    touched = set(range(1, len(line))) - set(hidden)
    with BisectProgress() as observer:
        result = Bisecting(CaseId.parse("toy.plain[n=64]"), line, touched, devices, settings, observer).run()
    return result, devices


def numbers(result: BisectResult) -> list[int]:
    return [int(suspect.hash) for suspect in result.suspects]


def rising(count: int, *steps: tuple[int, float]) -> list[float]:
    return [1 + sum(size for at, size in steps if number >= at) for number in range(count + 1)]


def test_on_a_noisy_device_it_asks_again():
    """A standard error of half of the change: one look at a commit is right five times in six."""
    quiet, noisy = (searched(rising(60, (23, 0.02)), noise=noise) for noise in (0.0003, 0.005))
    assert numbers(quiet[0]) == numbers(noisy[0]) == [23]
    assert quiet[0].outcome == noisy[0].outcome == "found"
    assert len(noisy[1].asked) > len(quiet[1].asked)
    hopeless, devices = searched(rising(60, (23, 0.02)), noise=0.1)
    assert hopeless.outcome == "range"
    assert "Change 23" in {suspect.subject for suspect in hopeless.suspects}
    assert len(devices.asked) < 40


def test_a_hundred_commits_take_eight_comparisons_with_the_ends():
    """On a device that is quiet beside the change, two neighbours' ratios to GOOD decide."""
    for at in (1, 9, 16, 21, 28, 50, 51, 77, 99, 100):
        found, devices = searched(rising(100, (at, 0.02)))
        assert (numbers(found), found.outcome) == ([at], "found")
        assert len(devices.asked) == found.comparisons <= 8
        comparison = found.steps[0].comparison
        assert comparison is not None
        assert (comparison.position, comparison.against.hash) == (at, f"{at - 1:040}")
        assert comparison.effect is not None
        assert comparison.effect.low < 0.02 < comparison.effect.high
        assert comparison.derived == ((f"{at - 1:040}", f"{at:040}") not in devices.asked)
    noisy, devices = searched(rising(100, (9, 0.02)), noise=0.004)
    assert numbers(noisy) == [9]
    assert noisy.steps[0].comparison is not None
    assert not noisy.steps[0].comparison.derived
    assert (f"{8:040}", f"{9:040}") in devices.asked


def test_a_commit_that_seems_to_touch_nothing_is_found_all_the_same():
    hidden = set(range(1, 41)) - {5, 10, 15, 30}
    found, devices = searched(rising(40, (18, 0.02)), hidden)
    assert numbers(found) == [18]
    assert found.outcome == "found"
    assert len(devices.asked) <= 11
    usual, devices = searched(rising(40, (15, 0.02)), hidden)
    assert numbers(usual) == [15]
    assert (f"{14:040}", f"{15:040}") in devices.asked  # its own parent, which touches nothing
    assert len(devices.asked) <= 4


def steps(result: BisectResult) -> list[tuple[int, float]]:
    """Return the commit and the size of each step that was found."""
    assert result.outcome == "found"
    assert result.sure >= SURE
    return [(int(commit.hash), round(step.change, 2)) for step in result.steps for commit in step.suspects]


@pytest.mark.parametrize("noise", [0.0003, 0.008])
def test_both_of_two_steps_are_found(noise):
    result, devices = searched(rising(70, (21, 0.1), (52, 0.1)), noise=noise)
    assert [at for at, _ in steps(result)] == [21, 52]
    assert "part" in {looked.side for looked in result.looked}
    assert len(devices.asked) <= 16
    assert result.notes == ()


def test_a_step_that_is_half_undone_is_found_with_what_undid_it():
    result, _ = searched(rising(60, (20, 0.2), (43, -0.1)))
    assert steps(result) == [(20, 0.2), (43, -0.08)]


def test_a_change_that_went_and_came_again_is_the_last_one():
    result, _ = searched([1.2 if 10 <= number < 20 or number >= 35 else 1 for number in range(41)])
    assert steps(result) == [(35, 0.2)]


@pytest.mark.parametrize("commits", [12, 60, 200])
def test_a_creep_accuses_no_commit(commits):
    result, devices = searched([1.002**number for number in range(commits + 1)])
    assert (result.outcome, result.suspects) == ("creep", ())
    assert result.sure >= SURE
    assert result.largest_share is not None
    assert result.largest_share < 0.4  # four commits or more
    assert len(devices.asked) <= 8


def test_small_steps_beside_a_large_one_are_told_of():
    """A fifth of the change crept in."""
    levels = [1 + 0.0002 * number + 0.04 * (number >= 23) for number in range(51)]
    result, _ = searched(levels)
    assert [at for at, _ in steps(result)] == [23]
    assert "in all: other commits have a part in it" in result.notes[0]


def test_an_interrupted_one_goes_on_where_it_was(tmp_path):
    levels = rising(60, (23, 0.02))
    stopped, _ = searched(levels, results=tmp_path, stop=4)
    assert (stopped.interrupted, stopped.comparisons) == (True, 4)
    [journal] = tmp_path.glob("*/bisects/*.jsonl")
    torn = journal.read_bytes()[:-20]  # killed while it wrote
    journal.write_bytes(b'{"more":' + b"[" * 100_000 + b"\n" + torn)
    done, devices = searched(levels, results=tmp_path)
    assert numbers(done) == [23]
    assert [each.remembered for each in done.looked].count(True) == 2
    again, idle = searched(levels, results=tmp_path)
    assert (numbers(again), idle.asked, again.comparisons, again.gpu_s) == ([23], [], 0, 0)
    assert len(devices.asked) == done.comparisons > 2


def test_what_two_ends_are_called_is_remembered_by_its_limits_alone(tmp_path):
    """With a wider margin, or between ends further apart, the same two commits did not differ."""
    levels = rising(20, (5, 0.03), (15, 0.07))
    assert searched(levels, results=tmp_path, margin=0.2)[0].outcome == "nothing"
    whole, _ = searched(levels, results=tmp_path)
    assert numbers(whole) == [5, 15]
    between = next(looked for looked in whole.looked if looked.position == 10)
    assert between.reason == "within-tolerance"
    part, devices = searched(levels[:11], results=tmp_path)
    assert numbers(part) == [5]
    assert (f"{0:040}", f"{10:040}") in devices.asked
    again, idle = searched(levels[:11], results=tmp_path)
    assert (numbers(again), idle.asked) == ([5], [])


def test_what_is_broken_takes_those_with_it_that_touch_nothing():
    levels = [None if 20 <= number < 30 else 1 + 0.02 * (number >= 25) for number in range(41)]
    found, _ = searched(levels)
    assert numbers(found) == list(range(20, 31))
    found, devices = searched(levels, hidden=range(21, 30))
    assert len(devices.asked) <= 7
    assert found.outcome == "range"
    assert numbers(found) == [20, 30]
    assert sum(looked.side == "skipped" for looked in found.looked) == 1


def test_a_commit_may_fail_as_a_base_alone():
    """Such as one whose results are wrong by its successor's problem: another takes its place."""
    levels: list[float | None] = list(rising(30, (18, 0.02)))
    levels[17] = None
    found, _ = searched(levels, hidden={16, 17})
    assert numbers(found) == [18]
    [step] = found.steps
    assert step.comparison is not None
    assert step.comparison.against.hash == f"{16:040}"


# Histories.


def source(version: object, time_ns: float = MS, said: str = "") -> dict[str, str]:
    """The kernel's file at a commit: other code than any other version's, unless that is None."""
    lines = ([] if version is None else [f"#define VERSION {version}"]) + [
        f"#define NULL_DEVICE_NS {time_ns}",
        said,
    ]
    return {PLAIN: "\n".join(lines) + "\n" + toy.BODY.format(name="plain")}


FILES = {**toy.FILES, **source("first")}


def history(root: Path, changes: Sequence[Mapping[str, str]], first: Mapping[str, str] = FILES) -> Path:
    """A repository with a commit of the smallest project, and then one for each of the changes."""
    make_repository(root)
    stream = []
    for number, files in enumerate([first, *changes]):
        message = f"Change {number}"
        stream.append(
            f"commit refs/heads/main\ncommitter An Author <a@example.org> {1_700_000_000 + number} +0000"
        )
        stream.append(f"data {len(message)}\n{message}")
        for path, text in files.items():
            stream.append(f"M 644 inline {path}\ndata {len(text.encode())}\n{text}")
        stream += ["reset refs/tags/first\nfrom refs/heads/main\n"] if number == 0 else []
    told = ("\n".join(stream) + "\n").encode()
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=told, check=True)
    git(root, "reset", "--quiet", "--hard")
    return root


def step(count: int, at: int, effect: float = 0.02, broken: Sequence[int] = ()) -> list[dict[str, str]]:
    """Commits of other code each, with one step."""
    return [
        source(
            number,
            MS * (1 + effect) if number >= at else MS,
            "#define NULL_DEVICE_FAULT build" if number in broken else "",
        )
        for number in range(1, count + 1)
    ]


class Bisected(Done):
    @property
    def suspects(self) -> list[str]:
        return [suspect["subject"] for step in self.json["steps"] for suspect in step["suspects"]]

    @property
    def sides(self) -> dict[str, str]:
        return {looked["commit"]["subject"]: looked["side"] for looked in self.json["looked"]}


@pytest.fixture
def bisect(capsys, monkeypatch, tmp_path):
    call = caller(capsys, monkeypatch, Bisected)

    def run(repository: Path, *more: str, case: str = "toy.plain@64", text: bool = False) -> Bisected:
        """GOOD is the first commit, unless `more` begins with another."""
        first = () if more and not more[0].startswith("--") else (FIRST,)
        form = () if text else ("--json",)
        done: Bisected = call("bisect", case, *first, *more, "--device", "null", *form, cwd=repository)
        return done

    return run


FIRST = "first"


def test_the_commit_among_a_hundred(bisect, tmp_path):
    repository = history(tmp_path / "long", step(100, 98))
    done = bisect(repository)
    assert done.status == ExitCode.FINE, done.err
    found = done.json
    assert done.suspects == ["Change 98"]
    assert found["sure"] >= SURE
    comparison = found["steps"][0]["comparison"]
    assert comparison["against"]["subject"] == "Change 97"
    assert comparison["effect"]["low"] <= 0.02 <= comparison["effect"]["high"]
    assert found["comparisons"] <= 8
    assert (found["commits"], found["touching"]) == (100, 100)
    assert found["gpu_s"] > 0


def test_what_does_not_build_is_left_as_suspects(bisect, tmp_path):
    done = bisect(history(tmp_path / "broken", step(9, 5, broken=range(4, 7))), text=True)
    assert done.status == ExitCode.INCONCLUSIVE, done.err
    assert "At least one of 4 commits made toy.plain@64 slower, 99." in done.out
    assert "Change 5 (An Author)" in done.out
    assert "right before: 2.00 % slower" in done.out
    assert "build-failed: toy.plain does not compile." in done.out


def test_code_that_is_known_is_not_measured_again(bisect, tmp_path):
    """Two kernels over all commits, and a suite's other files that change with each."""
    changes = [{"kernels/toy/notes.txt": f"{n}\n"} for n in range(1, 16)]
    for number in (4, 5, 11):  # twenty per cent slower, as before, and then for good
        changes[number - 1] |= source(None, MS if number == 5 else 1.2 * MS)
    changes[8] |= source(None, MS, "// a comment")
    repository = history(tmp_path / "known", changes, {**toy.FILES, **source(None)})
    git(repository, "tag", "good", ":/Change 2$")
    done = bisect(repository, "good")
    assert done.status == ExitCode.FINE, done.err
    assert done.suspects == ["Change 11"]
    assert done.json["comparisons"] == 1, done.err
    known = {each["commit"]["subject"] for each in done.json["looked"] if each["same_as"]}
    assert known >= {"Change 9", "Change 11"}
    assert bisect(repository, "good").json["comparisons"] == 0


def test_commits_that_touch_nothing_of_the_suite_are_not_asked_for(bisect, tmp_path):
    changes: list[dict[str, str]] = [{"README": str(number)} for number in range(1, 30)]
    changes[9] = source("faster", 0.9 * MS)
    changes[19] = {"kernels/portable/null.h": "// another\n"}
    done = bisect(history(tmp_path / "aside", changes))
    assert done.status == ExitCode.FINE, done.err
    assert done.suspects == ["Change 10"]  # an improvement
    assert done.json["touching"] == 2
    comparison = done.json["steps"][0]["comparison"]
    assert comparison["effect"]["effect"] == pytest.approx(-0.1, rel=0.01)
    assert comparison["against"]["subject"] == "Change 9"


def test_two_steps_and_a_creep_in_words(bisect, tmp_path):
    levels = [1 + 0.1 * (at >= 4) + 0.1 * (at >= 9) for at in range(1, 13)]
    done = bisect(
        history(tmp_path / "two", [source(at, MS * each) for at, each in enumerate(levels)]), text=True
    )
    assert done.status == ExitCode.FINE, done.err
    assert "At least 2 commits changed toy.plain@64, in all 20.0 % slower" in done.out
    assert "made it 10.0 % slower, 99." in done.out
    crept = [source(at, MS * 1.002**at) for at in range(1, 41)]
    done = bisect(history(tmp_path / "creep", crept), text=True)
    assert done.status == ExitCode.INCONCLUSIVE, done.err
    assert "A creep, no single commit: toy.plain@64 became 8.32 % slower" in done.out
    assert "That is +0.20 % a commit. No commit made more than" in done.out


def test_ends_that_do_not_differ(bisect, tmp_path):
    repository = history(tmp_path / "same", [*step(3, 9), source("first")])
    done = bisect(repository, "HEAD~1")
    assert (done.status, done.json["outcome"]) == (ExitCode.INCONCLUSIVE, "nothing")
    text = bisect(repository, text=True).out
    assert "Nothing to bisect: BAD is no other than GOOD, their code is the same." in text


def test_what_cannot_be_bisected(bisect, tmp_path):
    """Each message says what is wrong and what to do, before anything is measured."""
    repository = history(tmp_path / "odd", step(6, 3, broken=[6]))
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~4")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "aside")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "merged", "side")
    git(repository, "checkout", "--quiet", "-b", "other", "HEAD~4")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "other")
    git(repository, "checkout", "--quiet", "main")
    for arguments, status, words in (
        (("HEAD", "HEAD"), 2, "are one commit"),
        (("HEAD", FIRST), 2, "name the older commit first"),
        (("other", "HEAD"), 2, "is no ancestor of BAD"),
        (("side", "HEAD"), 2, "came into BAD"),
        (("nowhere", "HEAD"), 2, "No commit named 'nowhere'"),
        ((FIRST, "HEAD"), 3, "BAD cannot be compared (build-failed)"),
    ):
        done = bisect(repository, *arguments)
        assert (done.status, words in done.err) == (status, True), (arguments, done.err)
    assert "No kernel matches 'toy.nothing'" in bisect(repository, case="toy.nothing").err
    several = bisect(repository, case="toy.*")
    assert several.status == ExitCode.USAGE
    assert "toy.plain@1024, toy.plain@4096, toy.tiled@1024" in several.err


def test_commits_of_before_the_suite(bisect, tmp_path):
    files = {name: text for name, text in FILES.items() if name != "kernels/toy/suite.py"}
    later = step(3, 2)
    later[2] |= {"kernels/toy/suite.py": toy.SUITE}
    repository = history(tmp_path / "before", later, files)
    done = bisect(repository)
    assert done.status == ExitCode.USAGE
    assert "GOOD cannot be compared (no-suite)" in done.err
    assert "--suite-from" in done.err
    done = bisect(repository, "--suite-from", "HEAD")
    assert done.suspects == ["Change 2"], done.err


def test_a_merge_is_told_with_the_way_into_it(bisect, tmp_path):
    repository = history(tmp_path / "merging", step(1, 9))
    git(repository, "checkout", "--quiet", "-b", "topic")
    for number in range(2):
        (repository / PLAIN).write_text(source(f"topic {number}", 1.2 * MS)[PLAIN])
        git(repository, "commit", "--quiet", "--all", "-m", f"topic {number}")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "merged", "topic")
    base, tip = git(repository, "rev-parse", "HEAD~1"), git(repository, "rev-parse", "topic")
    done = bisect(repository, text=True)
    assert done.status == ExitCode.FINE
    assert f"harness bisect toy.plain@64 {base[:10]} {tip[:10]}" in done.out


def test_devices_share_the_commits_out(bisect, tmp_path, forked_dask_workers):
    """Here on processes of our own; then on a cluster, whose workers need not see the repository."""
    pytest.importorskip("distributed")
    from harness.run.sweep.cluster import local

    repository = history(tmp_path / "shared", step(4, 3, 0.5))
    with contextlib.ExitStack() as stack:
        client = local(stack, ("null:0", "null:0"))
        done = bisect(repository, "--scheduler", client.scheduler.address, "--no-save")
        assert done.suspects == ["Change 3"], done.err
        assert len(done.json["devices"]) == 2
    refused = bisect(repository, "--devices", "null:0,null:1")
    assert refused.status == ExitCode.USAGE
    assert "give one of them" in refused.err


def test_a_change_of_the_history_stands_for_case_and_ends(tmp_path, capsys, monkeypatch):
    shown = synthetic.History(
        commits=40,
        cards=synthetic.CARDS[:1],
        suites=(synthetic.Suite(kernels=("naive",), sizes=(1024,)),),
        events=(synthetic.Step(case="naive", at=20, effect=-0.1),),
        noise=0.001,
    )
    written = synthetic.write(shown, tmp_path / "history")
    call = caller(capsys, monkeypatch)
    [card] = call("history", "--json", cwd=written.conf.parent).json["cards"]
    [change] = card["changes"]
    done = call("bisect", change["id"])
    good, bad = written.commits[19][:10], written.commits[20][:10]
    assert done.err.startswith(f"harness bisect matmul.naive@1024 {good} {bad}\n"), (done.err, change)
    assert "No suite in" in done.err  # that history has no kernels
    written.results.rename(written.conf.parent / "elsewhere")
    none = call("bisect", "matmul.naive@1024")
    assert none.status == ExitCode.USAGE
    assert "Missing argument 'GOOD'" in none.err
    written.conf.write_text(written.conf.read_text().replace(".asv/results", "elsewhere"))
    assert call("bisect", change["id"]).err == done.err  # as harness history finds it there
    unknown = call("bisect", "0123456789")
    assert unknown.status == ExitCode.USAGE
    assert "Missing argument 'GOOD'" in unknown.err


# For real.


REAL = """\
extern "C" __global__ void plain(const float* x, float* y, int n)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = {version} * x[i];
#pragma unroll 1
    for (int k = 0; k < {rounds}; ++k) s = 0.5f * s + x[i];
    y[i] = s;
{broken}}}
"""


def real(rounds: Sequence[int], broken: Collection[int] = ()) -> list[dict[str, str]]:
    """Commits of other code each, whose loops take so many rounds."""
    return [
        {
            PLAIN: REAL.format(
                version=number + 3,  # not 1 and 2, which compilers write as no product and as a sum
                rounds=each,
                broken="#error unfinished\n" if number in broken else "",
            )
        }
        for number, each in enumerate(rounds)
    ]


def real_suite() -> dict[str, str]:
    told = "return None\n\n    def tolerance(self, case, x):\n        return 1e-5 * (1 + abs(x))"
    suite = toy.SUITE.replace("return 100", told)
    return {**FILES, "kernels/toy/suite.py": suite}


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_two_per_cent_among_sixty_commits_on_a_card(tmp_path, capsys, monkeypatch):
    """Ten of them do not build. It prints how many comparisons it took, and how long they held the card."""
    try:
        find_device(GPU)
    except HarnessError as error:
        device_is_missing(GPU, error.message)
    rounds = [2000 if number < 44 else 2040 for number in range(61)]
    repository = history(tmp_path / "real", real(rounds, broken=range(31, 41)), real_suite())
    call = caller(capsys, monkeypatch, Bisected)
    done = call("bisect", "toy.plain@1048576", "HEAD~60", "--device", GPU, "--json", cwd=repository)
    with capsys.disabled():
        told = f"{done.json['comparisons']} comparisons, {done.json['gpu_s']:.1f} s of device time"
        print(f"\n{done.err}{told}")  # noqa: T201
    assert done.suspects == ["Change 45"], done.err
    assert done.json["comparisons"] <= 10
