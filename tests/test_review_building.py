"""From comparisons to the model of a review, and from stored ones."""

from __future__ import annotations

import dataclasses
import random

import pytest

from harness.errors import StoreError, UsageError
from harness.records.types import Effect
from harness.report.document.document import SourceLine, decode_review, encode
from harness.report.document.from_results import MOST_EVIDENCE, kernel_places, review_of
from harness.report.document.outcome import Links, facts
from harness.report.pull_request.comment_markdown import comment
from harness.run.stored_comparisons import newest_comparisons, stored_result
from harness.suite.loader import load
from tests.commits import make_project, only
from tests.review_samples import diagnosis
from tests.support import caller, commit, git, run_command, write_files, write_null_script

KERNELS = ("slower", "faster", "changed", "untouched", "gone", "fresh", "build_head", "wrong_base", "unfit")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("building") / "project", only(*KERNELS))


@pytest.fixture(scope="module")
def compared(tmp_path_factory, repository):
    """The folder of results of one comparison, with its twins."""
    folder = tmp_path_factory.mktemp("compared")
    script = write_null_script(folder / "script.json", {"noise": {"kind": "quiet", "seed": 1}})
    done = run_command(
        *("compare", "HEAD~1", "HEAD", "--device", "null", "--twins", "--results", str(folder / "results")),
        cwd=repository,
        env={"HARNESS_NULL_SCRIPT": script, "HARNESS_CACHE_DIR": str(folder / "cache")},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return folder / "results"


@pytest.fixture(scope="module")
def result(compared):
    [result] = newest_comparisons(compared)
    return result


def test_a_review_says_what_the_verdicts_say(result, repository):
    review = review_of([result], {"toy": kernel_places(load(repository / "kernels" / "toy", "HEAD"))})
    assert (review.base, review.head) == (
        git(repository, "rev-parse", "HEAD~1"),
        git(repository, "rev-parse", "HEAD"),
    )
    [card] = review.cards
    told = {case.kernel: (case.status, case.reason) for case in card.cases}
    assert told == {verdict.kernel: (verdict.status, verdict.reason) for verdict in result.verdicts}
    assert told["slower"] == ("regression", "slower-in-time")
    assert told["gone"][0] == "missing"
    slower = next(case for case in card.cases if case.kernel == "slower")
    assert slower.time is not None
    assert slower.time.effect == pytest.approx(0.03, abs=2e-3)
    assert len(slower.time.process_effects) == slower.time.processes
    assert "source changed" in facts(slower)
    assert slower.base is not None
    assert slower.base.time_ns == pytest.approx(1e6, rel=2e-2)
    assert [twin.status for twin in card.twins] == ["unchanged", "regression"]
    assert any("unfit" in reason for reason in card.left_out)
    assert card.places["slower"] == SourceLine(path="kernels/toy/slower.cu", line=2)
    assert "gone" not in card.places


def test_the_document_comes_back_as_it_went(result):
    review = review_of([result])
    assert decode_review(encode(review)) == review


def test_whatever_words_a_device_uses_make_a_document(result):
    rng = random.Random(1)
    comparison, verdict = result.comparison, result.verdicts[0]
    for _ in range(30):
        hostile = "".join(
            chr(rng.choice([rng.randrange(1, 128), rng.randrange(0x80, 0xD800)]))
            for _ in range(rng.randrange(9000))
        )
        other = dataclasses.replace(
            result,
            comparison=dataclasses.replace(
                comparison, device=dataclasses.replace(comparison.device, name=hostile, driver=hostile)
            ),
            verdicts=(
                dataclasses.replace(
                    verdict, message=hostile, log=hostile, reason=hostile, touched={hostile: 3}
                ),
            ),
            left_out=(hostile,) * 100,
            problem_changes=(hostile,) * 100,
            problem=hostile,
        )
        assert decode_review(encode(review_of([other]))).cards


def test_an_interval_without_bounds_makes_a_document(result):
    wild = Effect(effect=1e300, low=-1.5, high=1e304, processes=1, quads=4, process_effects=(1e300,) * 99)
    verdict = dataclasses.replace(result.verdicts[0], time=wild, smallest_visible=1e305)
    review = review_of([dataclasses.replace(result, verdicts=(verdict,))])
    assert decode_review(encode(review)) == review


def test_comparisons_of_other_commits_are_not_mixed(result):
    other = dataclasses.replace(
        result.comparison, head=dataclasses.replace(result.comparison.head, commit="b" * 40)
    )
    with pytest.raises(UsageError, match="two commits"):
        review_of([result, dataclasses.replace(result, comparison=other)])
    with pytest.raises(UsageError, match="none at all"):
        review_of([])


def test_more_cases_than_a_document_holds_are_refused(result):
    with pytest.raises(UsageError, match="4096"):
        review_of([dataclasses.replace(result, verdicts=result.verdicts[:1] * 4097)])


def test_the_first_regressions_have_counters_and_code_and_all_have_causes(result):
    slower = dataclasses.replace(result.verdicts[0], diagnosis=diagnosis())
    many = tuple(dataclasses.replace(slower) for _ in range(MOST_EVIDENCE + 6))
    [card] = review_of([dataclasses.replace(result, verdicts=many)]).cards
    found = [case.diagnosis for case in card.cases if case.diagnosis]
    assert [bool(each.loop and each.base_counters) for each in found] == [True] * MOST_EVIDENCE + [False] * 6
    assert all(each.causes and each.risks for each in found)


def test_the_newest_comparison_is_found_beside_runs_and_older_ones(compared, tmp_path):
    [path] = compared.glob("*/*.jsonl")
    older = path.with_name("20200101T000000Z-aaaaaaaa..bbbbbbbb-toy-00000000.jsonl")
    older.write_bytes(path.read_bytes())
    (path.parent / "20300101T000000Z-aaaaaaaa-toy-00000000.jsonl").write_text("a run's\n")
    assert [result.path for result in newest_comparisons(compared)] == [path]
    with pytest.raises(StoreError, match="harness compare"):
        newest_comparisons(tmp_path)


def test_a_killed_comparison_is_reported_as_incomplete(compared, tmp_path):
    lines = (
        min(compared.glob("*/2*.jsonl"), key=lambda each: each.name).read_bytes().splitlines(keepends=True)
    )
    part = tmp_path / "killed.jsonl.part"
    part.write_bytes(b"".join(lines[:3]))
    killed = stored_result(part)
    assert killed.interrupted
    [card] = review_of([killed]).cards
    assert not card.complete
    assert not card.cases


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('// mine\nextern "C" __global__ void mine(float* x)\n', 2),
        ("KERNEL\nLAUNCH_BOUNDS(32, 1)\nmine\n(float* x)", 1),
        ("// mine(x) is called\n__kernel void mine (int n)", 2),
        ("#define KERNEL __global__\nvoid other(); int f() {}\nKERNEL mine(int n)", 3),
        ("def other(x):\n    return mine(x)\n\n\n@triton.jit\ndef mine(x):\n", 6),
        ("nothing of the kind", 1),
    ],
)
def test_a_kernel_is_found_where_it_begins(tmp_path, text, line):
    repository = make_project(tmp_path / "project", only("changed"))
    suite = (
        (repository / "kernels/toy/suite.py").read_text().replace("'changed', ", "'changed', entry='mine', ")
    )
    commit(repository, {"kernels/toy/changed.cu": text, "kernels/toy/suite.py": suite}, 3)
    assert kernel_places(load(repository / "kernels" / "toy", "HEAD"))["changed"].line == line


def test_a_kernel_outside_the_repository_has_no_place(tmp_path):
    repository = make_project(tmp_path / "project", only("changed"))
    write_files(tmp_path, {"outside.cu": "__kernel void changed()"})
    suite = (repository / "kernels/toy/suite.py").read_text().replace('f"{name}.cu"', "'../../../outside.cu'")
    write_files(repository, {"kernels/toy/suite.py": suite})
    assert kernel_places(load(repository / "kernels" / "toy")) == {}


def test_report_shows_what_compare_showed(compared, repository, capsys, monkeypatch):
    call = caller(capsys, monkeypatch)
    done = call("report", "--results", str(compared), cwd=repository)
    assert done.status == 1
    assert "regression toy.slower" in done.out
    assert "Left out" in done.err


DIFFERS = "Differs between base and head: tool: 1 → 2."


def test_what_files_of_executables_tell_beside_times_reaches_the_comment(result):
    settings = {**result.comparison.settings, "differences": "tool: 1 → 2", "notes": "It has another name."}
    told = dataclasses.replace(result, comparison=dataclasses.replace(result.comparison, settings=settings))
    review = review_of([told])
    assert review.cards[0].notes == (DIFFERS, "It has another name.")
    assert DIFFERS in comment(decode_review(encode(review)), Links())
