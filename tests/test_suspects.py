"""Which of several commits did it, by the files that each touches."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from harness.history.events import settling
from harness.history.sources.our_records import Commits
from harness.history.suspects import SourceFolders, with_suspects
from harness.system.git import Commit
from tests.histories import series_case
from tests.support import commit, commit_each, make_repository
from tests.test_events import COMMITS, change, events

SOURCES = SourceFolders(
    folders={"matmul": PurePosixPath("kernels/matmul"), "copy": PurePosixPath("kernels/copy")},
    kernels={"matmul": frozenset({"naive", "tiled"})},
)
NAIVE = series_case()
FOREIGN = series_case("sorting.bench_fast.Sort.time_sort(10)", suite="sorting.bench_fast.Sort", metric="time")


@pytest.mark.parametrize(
    ("path", "case", "role"),
    [
        ("kernels/matmul/naive.cu", NAIVE, "own"),
        ("kernels/matmul/tiled.cu", NAIVE, ""),
        ("kernels/matmul/tile.h", NAIVE, "code"),
        ("kernels/portable/cuda.h", NAIVE, "code"),
        ("kernels/copy/copy.cu", NAIVE, ""),
        ("kernels/matmul/suite.py", NAIVE, "measurement"),
        ("docs/naive.md", NAIVE, ""),
        ("requirements/bench.txt", NAIVE, "dependency"),
        ("requirements.txt", NAIVE, "dependency"),
        ("pyproject.toml", FOREIGN, "dependency"),
        ("uv.lock", FOREIGN, "dependency"),
        ("Project.toml", FOREIGN, "dependency"),
        ("src/sort.py", FOREIGN, "code"),
        ("src/sorting/bench_fast.py", FOREIGN, "code"),
        ("benchmarks/sorting/bench_fast.py", FOREIGN, "measurement"),
        ("benchmarks/sorting/bench_slow.py", FOREIGN, ""),
        ("asv.conf.json", FOREIGN, "measurement"),
        ("tests/test_sort.py", FOREIGN, ""),
        ("ci/asv.yml", FOREIGN, ""),
        ("ci/environment.yml", FOREIGN, "dependency"),
        (".travis.yml", FOREIGN, ""),
        ("circle.yml", FOREIGN, ""),
        ("src/ci/circle.py", FOREIGN, "code"),
        ("README.md", FOREIGN, ""),
        ("perf/array.jl", FOREIGN, ""),
    ],
)
def test_what_a_file_is_to_a_case(path, case, role):
    assert SOURCES.role(path, SOURCES.source_of(case)) == role


def touching(tmp_path, *paths, attribution="code"):
    """Events of one range over commits that each touch one file, and what git makes of them."""
    project = make_repository(tmp_path)
    hashes = [commit(project, {path: path}, day) for day, path in enumerate(("start", *paths), 1)]
    commits = Commits(tuple(Commit(each, number, "Ada", "") for number, each in enumerate(hashes)))
    found = events(change(0, len(paths), attribution=attribution))
    [event] = with_suspects(found, project, commits, {NAIVE.name: NAIVE}, SOURCES)
    return event


def test_the_only_commit_that_touches_the_source_is_accused(tmp_path):
    event = touching(tmp_path, "docs/a.md", "kernels/matmul/naive.cu", "kernels/matmul/tiled.cu")
    assert (event.accused, event.suspects, event.cause) == (2, (2, 1, 3), "code")


def test_of_several_that_touch_it_none_is_accused(tmp_path):
    event = touching(tmp_path, "kernels/portable/cuda.h", "CHANGELOG.md", "kernels/matmul/naive.cu")
    assert (event.accused, event.suspects, event.likely) == (None, (3, 1, 2), 2)


@pytest.mark.parametrize(
    ("paths", "accused", "cause"),
    [
        (["kernels/matmul/suite.py", "docs/a.md"], 1, "measurement"),
        (["docs/a.md", "requirements.txt"], 2, "dependency"),
        (["docs/a.md", "docs/b.md"], None, "not the code"),
        (["README.md"], None, "not the code"),
        ([".github/workflows/ci.yml"], None, "not the code"),
    ],
)
def test_what_else_may_have_done_it(tmp_path, paths, accused, cause):
    event = touching(tmp_path, *paths)
    assert (event.accused, event.cause) == (accused, cause)


def test_what_is_not_the_code_is_settled_by_a_comparison(tmp_path):
    event = touching(tmp_path, "docs/a.md", "docs/b.md")
    assert settling(event, NAIVE, COMMITS).startswith("harness compare ")


def test_a_commit_that_leaves_a_change_over_is_not_accused(tmp_path):
    """It touches the source alone, and yet one of two ranges does not hold it."""
    project = make_repository(tmp_path)
    files = ["start", "kernels/matmul/naive.cu", "docs/a.md", "docs/b.md"]
    hashes = commit_each(project, [{path: path} for path in files])
    commits = Commits(tuple(Commit(each, number, "Ada", "") for number, each in enumerate(hashes)))
    found = events(change(0, 2), change(1, 3, case="copy.copy@64"))
    cases = {"copy.copy@64": series_case("copy.copy@64"), NAIVE.name: NAIVE}
    [event] = with_suspects(found, project, commits, cases, SOURCES)
    assert (event.likely, event.suspects[0], event.accused) == (1, 1, None)


def test_commits_that_touch_no_file_tell_nothing(tmp_path):
    project = make_repository(tmp_path)
    hashes = commit_each(project, [{"start": ""}, {}])
    commits = Commits(tuple(Commit(each, number, "Ada", "") for number, each in enumerate(hashes)))
    [event] = with_suspects(events(change(0, 1)), project, commits, {NAIVE.name: NAIVE}, SOURCES)
    assert (event.accused, event.cause) == (1, "unknown")


@pytest.mark.parametrize(
    ("attribution", "words"), [("code", "code"), ("unknown", "code, by the files it touches")]
)
def test_the_cause_says_if_files_alone_tell_it(tmp_path, attribution, words):
    event = touching(tmp_path, "kernels/matmul/naive.cu", attribution=attribution)
    assert (event.accused, event.cause_in_words) == (1, words)


def test_without_git_nothing_is_told_of_suspects(tmp_path):
    found = events(change(0, 2))
    assert with_suspects(found, tmp_path, COMMITS, {NAIVE.name: NAIVE}, SOURCES) == found
