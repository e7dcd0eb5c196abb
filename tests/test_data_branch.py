"""`harness ci store`: appending to a branch that others append to, against bare repositories as remotes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.ci.data_branch.data_files import ATTEMPTS, MAX_FILE_BYTES, store_results
from harness.ci.data_branch.data_git import BRANCH
from harness.errors import ExitCode, GitError, RefusedError, RemoteError, StoreError, UsageError
from harness.history.reading import read_history
from harness.judgement.noise import Calibration, write_calibration
from harness.records.types import SCHEMA_VERSION
from tests.http_servers import listening
from tests.support import COMMAND, IMPORT_PATH, caller, git, make_repository, programs
from tests.synthetic_history import CARDS, History, Suite, write

CARD = "nvidia-h200-1a2b3c4d"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
RESULT = f"{CARD}/{COMMIT[:8]}-checkout-pyany.json"
COLUMNS = ["result", "params", "version", "started_at", "duration"]
REAL_GIT = shutil.which("git") or "git"
COMMITS = 12
SUITE = Suite(kernels=("naive", "tiled"), sizes=(1024,))
SECRET = "ghs_not-a-real-token"
BASIC = base64.b64encode(f"x-access-token:{SECRET}".encode()).decode()


# What is stored


def row(value, started_at=None, version="1"):
    return [[value], [], version, *([] if started_at is None else [started_at])]


def result(rows, **changes):
    """A result file of asv's."""
    told = {
        "commit_hash": COMMIT,
        "env_name": "checkout-pyany",
        "date": 1000,
        "params": {"machine": CARD, "driver": "580"},
        "python": "any",
        "requirements": {},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": rows,
        "durations": {},
        "version": 2,
    }
    return json.dumps({**told, **changes})


def benchmarks(*names, **changes):
    return json.dumps({**{name: {"name": name, **changes} for name in names}, "version": 2})


def machine(**changes):
    return json.dumps({"machine": CARD, "version": 1, **changes})


def calibration(measured_at, folder, **changes):
    """The text of a calibration."""
    found = Calibration(measured_at=measured_at, harness_version="1", uuid=None, driver="580", **changes)
    folder.mkdir(exist_ok=True)
    return write_calibration(folder, found).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A history of two cards, with records."""
    history = History(commits=COMMITS, cards=CARDS[:2], suites=(SUITE,), noise=0.003, records=True)
    return write(history, tmp_path_factory.mktemp("history"))


@pytest.fixture(scope="module")
def records(template):
    """Content of records by name."""
    return {path.name: path.read_text("utf-8") for path in template.records(CARDS[0])}


class Place:
    """A project with a folder of results, and a bare repository for its remote."""

    def __init__(self, folder):
        self.remote = folder / "remote.git"
        self.root = make_repository(folder / "project")
        self.results = self.root / ".asv" / "results"
        self.results.mkdir(parents=True)
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.remote))
        git(self.remote, "config", "core.logAllRefUpdates", "true")
        git(self.root, "remote", "add", "origin", "../remote.git")
        self.pauses = []

    def put(self, files, root=None):
        for name, text in files.items():
            path = (root or self.results) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")

    def store(self, files=None, **options):
        """Store these files alone, without really waiting between attempts."""
        if files is not None:
            shutil.rmtree(self.results)
            self.results.mkdir()
            self.put(files)
        options = {"sleep": self.pauses.append, **options}
        return store_results(options.pop("folder", self.results), self.root, **options)

    def commit_there(self, files, branch=BRANCH):
        """Commit to the branch as somebody else: texts, and targets of links as Paths."""
        checkout = self.root.parent / "elsewhere"
        if not checkout.exists():
            git(self.root.parent, "clone", "--quiet", str(self.remote), str(checkout))
        if self.has(branch):
            git(checkout, "fetch", "--quiet", "origin")
            git(checkout, "checkout", "--quiet", "-B", branch, f"origin/{branch}")
        else:
            git(checkout, "checkout", "--quiet", "--orphan", branch)
        for name, content in files.items():
            path = checkout / name
            if isinstance(content, Path):
                if path.is_dir():
                    shutil.rmtree(path)
                path.parent.mkdir(exist_ok=True)
                path.unlink(missing_ok=True)
                path.symlink_to(content)
            else:
                self.put({name: content}, checkout)
        git(checkout, "add", "--all")
        git(checkout, "commit", "--quiet", "--message", "by hand")
        git(checkout, "push", "--quiet", "origin", branch)

    def has(self, branch=BRANCH):
        return bool(git(self.remote, "for-each-ref", f"refs/heads/{branch}"))

    def commits(self, branch=BRANCH):
        """Newest first."""
        return git(self.remote, "rev-list", branch).split() if self.has(branch) else []

    def names(self, branch=BRANCH):
        return set(git(self.remote, "ls-tree", "-r", "--name-only", branch).splitlines())

    def bytes(self, name, branch=BRANCH):
        shown = subprocess.run(
            ["git", "show", f"{branch}:{name}"], cwd=self.remote, check=True, capture_output=True
        )
        return shown.stdout

    def json(self, name):
        return json.loads(self.bytes(name))

    def hook(self, name, script):
        path = self.remote / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def check_linear(self):
        """Check that each commit has one parent, and that every update continued the branch."""
        assert not git(self.remote, "rev-list", "--min-parents=2", BRANCH)
        assert len(git(self.remote, "rev-list", "--max-parents=0", BRANCH).split()) == 1
        log = (self.remote / "logs" / "refs" / "heads" / BRANCH).read_text("utf-8").splitlines()
        updates = [line.split()[:2] for line in log]
        for old, new in updates:
            if set(old) != {"0"}:
                git(self.remote, "merge-base", "--is-ancestor", old, new)
        assert [new for _, new in updates] == self.commits()[::-1]
        git(self.remote, "fsck", "--strict")


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


GIT_WRAPPER = """\
#!/bin/sh
command= skip=
for word in "$@"; do
    if [ -n "$skip" ]; then skip=; continue; fi
    case $word in
    -c | --git-dir | -C) skip=1 ;;
    *) command=$word; break ;;
    esac
done
"""


@pytest.fixture
def wrapped_git(tmp_path, monkeypatch):
    """Puts a script before git: it knows the subcommand as $command, and the real one as $git."""

    def wrap(script):
        folder = tmp_path / "wrapped"
        folder.mkdir(exist_ok=True)
        path = folder / "git"
        path.write_text(f'{GIT_WRAPPER}git={REAL_GIT}\n{script}\nexec $git "$@"\n', encoding="utf-8")
        path.chmod(0o755)
        if str(folder) not in os.environ["PATH"]:
            monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return wrap


# Appending


def test_the_first_write_makes_a_branch_of_its_own(place, records):
    name, record = next(iter(records.items()))
    files = {
        "benchmarks.json": benchmarks("a"),
        f"{CARD}/machine.json": machine(),
        RESULT: result({"a": row(1)}),
        f"{CARD}/{name}": record,
    }
    stored = place.store(files)
    assert stored.added == tuple(sorted(files))
    assert (stored.merged, stored.unchanged, stored.left_out, stored.attempts) == ((), 0, (), 1)
    assert place.commits() == [stored.commit]
    assert {name: place.bytes(name).decode() for name in place.names()} == files
    modes = git(place.remote, "ls-tree", "-r", "--format=%(objectmode)", BRANCH).split()
    assert set(modes) == {"100644"}
    assert git(place.remote, "for-each-ref", "--format=%(refname)") == f"refs/heads/{BRANCH}"


def test_a_later_write_appends_and_keeps_what_is_there(place, records):
    (first, one), (second, two) = list(records.items())[:2]
    before = place.store({f"{CARD}/machine.json": machine(), f"{CARD}/{first}": one})
    after = place.store({f"{CARD}/machine.json": machine(), f"{CARD}/{second}": two})
    assert (after.added, after.merged, after.unchanged) == ((f"{CARD}/{second}",), (), 1)
    assert place.commits() == [after.commit, before.commit]
    assert place.names() == {f"{CARD}/{name}" for name in ("machine.json", first, second)}


def test_what_is_there_already_makes_no_commit(place):
    files = {"benchmarks.json": benchmarks("a"), RESULT: result({"a": row(1)})}
    before = place.store(files)
    again = place.store(files)
    assert (again.added, again.merged, again.unchanged) == ((), (), 2)
    assert place.commits() == [before.commit] == [again.commit]


def test_an_empty_folder_is_nothing_to_store(place):
    shutil.rmtree(place.remote)
    (place.results / CARD).mkdir()
    stored = place.store()
    assert (stored.added, stored.commit, stored.attempts) == ((), None, 0)


def test_a_folder_that_is_not_there_is_no_empty_one(place):
    with pytest.raises(UsageError, match=r"There is no folder .*nowhere"):
        place.store(folder=place.root / "nowhere")
    (place.root / "file").touch()
    with pytest.raises(UsageError, match="There is no folder"):
        place.store(folder=place.root / "file")
    # From Python 3.14 on, a path that is too long is no folder.
    with pytest.raises((StoreError, UsageError), match=r"Cannot read .*too long|There is no folder"):
        place.store(folder=place.root / ("n" * 300))


def test_the_project_stays_as_it_is(place):
    git(place.root, "commit", "--quiet", "--allow-empty", "--message", "one")
    place.put({"work": "uncommitted", "staged": "also"}, place.root)
    git(place.root, "add", "staged")

    def everything():
        index = (place.root / ".git" / "index").read_bytes()
        told = (
            "for-each-ref",
            "status --porcelain",
            "count-objects -v",
            "config --list --local",
            "stash list",
        )
        return [index, *(git(place.root, *each.split()) for each in told)]

    place.put({RESULT: result({"a": row(1)})})
    before = everything()
    place.store()
    assert everything() == before
    assert not (place.root / ".git" / "FETCH_HEAD").exists()


def test_nothing_is_left_in_the_temporary_folder(place, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    place.store({RESULT: result({"a": row(1)})})
    with pytest.raises(RefusedError):
        place.store({"strange": ""})
    assert list(scratch.iterdir()) == []


def test_a_temporary_folder_in_a_repository_is_in_none(place, monkeypatch):
    (place.root / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place.root / "scratch"))
    git(place.root, "config", "url./nowhere/.insteadOf", str(place.remote))
    place.store({RESULT: result({"a": row(1)})}, remote=str(place.remote))
    assert place.names() == {RESULT}


def test_a_temporary_folder_that_cannot_be_written_is_an_error(place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(place.root / "missing"))
    with pytest.raises(StoreError, match="Choose another folder for temporary files with TMPDIR"):
        place.store({RESULT: result({"a": row(1)})})


def test_the_commit_says_whose_results_it_has(place):
    place.store({RESULT: result({"a": row(1)}), "other-card/machine.json": machine()})
    assert (
        git(place.remote, "log", "--format=%B", BRANCH) == f"Results of {CARD}, other-card: 2 added, 0 merged"
    )
    place.store({RESULT: result({"b": row(1)})}, message="By\0 hand\n\nbecause of ä\n")
    assert git(place.remote, "log", "-1", "--format=%B", BRANCH) == "By hand\n\nbecause of ä"


def test_a_dry_run_says_what_would_be_done_and_does_nothing(place):
    stored = place.store({RESULT: result({"a": row(1)})}, dry_run=True)
    assert (stored.added, stored.commit, stored.dry_run) == ((RESULT,), None, True)
    assert not place.has()
    first = place.store({RESULT: result({"a": row(1)})})
    stored = place.store({RESULT: result({"b": row(1)}), "benchmarks.json": benchmarks("a")}, dry_run=True)
    assert (stored.added, stored.merged) == (("benchmarks.json", renamed(stored)), ())
    assert place.commits() == [first.commit] == [stored.commit]


def test_unfinished_files_are_left_out_and_named(place):
    unfinished = {
        f"{CARD}/20260101T000000Z-1a2b3c4d-toy-1a2b3c4d.jsonl.part": '{"run"',
        f"{CARD}/.calibration.harness-0123456789abcdef": "{",
    }
    stored = place.store({RESULT: result({"a": row(1)}), **unfinished})
    assert set(stored.left_out) == set(unfinished)
    assert place.names() == {RESULT}
    assert place.store(unfinished).left_out == stored.left_out


def test_a_checkout_of_the_branch_can_be_the_folder(place):
    place.store({RESULT: result({"a": row(1)})})
    place.commit_there(
        {"README.md": "What this branch is.\n", "docs/page": "more", ".gitattributes": "* text"}
    )
    shutil.rmtree(place.results)
    git(place.root, "clone", "--quiet", "--branch", BRANCH, str(place.remote), str(place.results))
    shutil.rmtree(place.results / "docs")
    place.put({"benchmarks.json": benchmarks("a")})
    stored = place.store()
    assert (stored.added, stored.unchanged) == (("benchmarks.json",), 3)
    assert place.names() == {"README.md", "docs/page", ".gitattributes", "benchmarks.json", RESULT}


def test_another_branch_and_remote_may_be_named(place, tmp_path, monkeypatch):
    second = tmp_path / "second.git"
    git(tmp_path, "init", "--quiet", "--bare", str(second))
    files = {RESULT: result({"a": row(1)})}
    monkeypatch.chdir(tmp_path)
    for number, remote in enumerate([str(second), "second.git", "./second.git", f"file://{second}"]):
        stored = place.store(files, remote=remote, branch=f"shards/{number}")
        assert git(second, "rev-parse", f"shards/{number}") == stored.commit
    assert not place.commits()


def test_where_it_pushes_is_where_it_reads(place, tmp_path):
    second = tmp_path / "second.git"
    git(tmp_path, "init", "--quiet", "--bare", str(second))
    git(place.root, "remote", "set-url", "--push", "origin", str(second))
    for value in (1, 2):
        place.store({RESULT: result({f"b{value}": row(value)})})
    assert len(git(second, "rev-list", BRANCH).split()) == 2
    assert not place.has()


@pytest.mark.parametrize("remote", ["nothing", "", "-x", "--upload-pack=touch"])
def test_a_remote_that_is_none_is_an_error(place, remote):
    with pytest.raises(GitError, match="No remote named"):
        place.store({RESULT: result({"a": row(1)})}, remote=remote)


@pytest.mark.parametrize("branch", ["", "-x", "a..b", "a b", "x*", "a.lock", "a:b", "a/"])
def test_a_branch_that_cannot_be_is_an_error(place, branch):
    with pytest.raises(UsageError, match="is no name for a branch"):
        place.store({RESULT: result({"a": row(1)})}, branch=branch)


def test_a_branch_whose_name_begins_with_a_plus_is_not_forced(place):
    place.store({RESULT: result({"a": row(1)})}, branch="+a")
    place.store({RESULT: result({"b": row(1)})}, branch="+a")
    assert len(place.commits("+a")) == 2


def test_a_branch_of_something_else_is_refused(place):
    place.commit_there({"pyproject.toml": "", "README.md": ""}, branch="main")
    before = place.commits("main")
    with pytest.raises(
        RefusedError, match=r"branch main .* is no branch of results: it holds pyproject\.toml"
    ):
        place.store({RESULT: result({"a": row(1)})}, branch="main")
    assert place.commits("main") == before


def test_a_branch_that_somebody_prepared_is_taken(place):
    place.commit_there({"README.md": "", ".github/CODEOWNERS": "", "LICENSE": ""})
    place.store({RESULT: result({"a": row(1)})})
    assert place.names() == {"README.md", ".github/CODEOWNERS", "LICENSE", RESULT}


def test_a_repository_with_other_hashes_is_taken(place, tmp_path):
    remote = tmp_path / "sha256.git"
    git(tmp_path, "init", "--quiet", "--bare", "--object-format=sha256", str(remote))
    git(remote, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    empty = git(remote, "mktree", "--missing")
    git(remote, "update-ref", "HEAD", git(remote, "commit-tree", "-m", "empty", empty))
    files = {RESULT: result({"a": row(1)}), "benchmarks.json": benchmarks("a")}
    assert place.store(files, remote=str(remote)).added == ("benchmarks.json", RESULT)
    assert place.store(files, remote=str(remote)).unchanged == 2


# What both sides have


def renamed(stored):
    """The name by which a result was appended that differs from the branch's."""
    [name] = [each for each in stored.added if re.fullmatch(rf"{RESULT[:-5]}-[0-9a-f]{{8}}\.json", each)]
    return name


def test_a_result_that_differs_is_appended_beside_the_one_that_is_there(place):
    first, second = result({"a": row(1)}), result({"a": row(2), "b": row(2)})
    place.store({RESULT: first})
    stored = place.store({RESULT: second})
    assert (stored.merged, stored.unchanged) == ((), 0)
    assert place.names() == {RESULT, renamed(stored)}
    assert place.bytes(RESULT).decode() == first
    assert place.bytes(renamed(stored)).decode() == second
    for text in (first, second):
        again = place.store({RESULT: text})
        assert (again.added, again.unchanged, again.commit) == ((), 1, stored.commit)


def test_of_results_that_were_appended_the_later_figure_of_each_counts(place, template, tmp_path):
    commit = template.commits[3]
    name = f"{CARD}/{commit[:8]}-any.json"
    listed = {"name": "a", "type": "time", "unit": "s", "params": [], "param_names": [], "version": "1"}
    benchmark = json.dumps({"version": 2, "a": listed, "b": {**listed, "name": "b"}})
    for rows in ({"a": row(1, 200), "b": row(3, 200)}, {"a": row(2, 100)}, {"b": row(4, 300)}):
        files = {name: result(rows, commit_hash=commit), f"{CARD}/machine.json": machine()}
        place.store({**files, "benchmarks.json": benchmark})
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--branch", BRANCH, str(place.remote), str(checkout))
    [card] = read_history(checkout, template.repository).cards
    figures = {one.series.case.name: one.series.values.tolist() for one in card.analysed}
    assert figures == {"a": [1], "b": [4]}


def test_results_that_records_hold_are_left_out(place, template):
    shutil.rmtree(place.results)
    shutil.copytree(template.results, place.results)
    derived = {
        str(template.result(n, card).relative_to(template.results))
        for card in CARDS[:2]
        for n in range(COMMITS)
    }
    alone = str(template.result(7).relative_to(template.results))
    [record] = template.results.glob(f"{CARDS[0].machine}/*-{template.commits[7][:8]}-*.jsonl")
    (place.results / record.relative_to(template.results)).unlink()
    stored = place.store()
    assert set(stored.derived) == derived - {alone}
    assert alone in stored.added
    again = place.store()
    assert (again.added, set(again.derived)) == ((), derived - {alone})


@pytest.mark.parametrize(
    "without",
    [
        lambda text: text.replace('"command":"asv"', '"command":"check"'),
        lambda text: text.partition("\n")[0] + "\n",
    ],
    ids=["a check", "a run that was killed"],
)
def test_a_record_without_results_holds_none_of_asvs(place, template, without):
    """The name of such a record tells the same commit and suite."""
    shutil.rmtree(place.results)
    shutil.copytree(template.results, place.results)
    alone = str(template.result(7).relative_to(template.results))
    [record] = (place.results / CARDS[0].machine).glob(f"*-{template.commits[7][:8]}-*.jsonl")
    record.write_text(without(record.read_text("utf-8")), "utf-8")
    stored = place.store()
    assert alone in stored.added
    assert len(stored.derived) == 2 * COMMITS - 1


def test_a_result_with_anything_beside_the_tracks_is_kept(place, template):
    shutil.rmtree(place.results)
    shutil.copytree(template.results, place.results)
    path = place.results / template.result(3).relative_to(template.results)
    told = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**told, "results": {**told["results"], "time_x": row(1)}}), "utf-8")
    assert str(path.relative_to(place.results)) in place.store().added


def test_the_list_of_benchmarks_grows_and_ours_is_the_newer_code(place):
    place.store({"benchmarks.json": benchmarks("a", "b", version="1")})
    place.store({"benchmarks.json": benchmarks("b", "c", version="2")})
    found = place.json("benchmarks.json")
    assert {name: each["version"] for name, each in found.items() if name != "version"} == {
        "a": "1",
        "b": "2",
        "c": "2",
    }
    assert found["version"] == 2
    assert place.bytes("benchmarks.json").decode() == json.dumps(found, indent=4, sort_keys=True)


def test_the_machine_is_as_it_is_now(place):
    name = f"{CARD}/machine.json"
    place.store({name: machine(driver="580", note="x")})
    stored = place.store({name: machine(driver="590")})
    assert (stored.merged, place.bytes(name).decode()) == ((name,), machine(driver="590"))


@pytest.mark.parametrize(
    ("ours", "theirs", "is_ours"),
    [
        ("2026-01-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00", True),
        ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00", False),
        ("2026-01-01T12:00:00+05:00", "2026-01-01T08:00:00Z", False),
        ("2026-01-01T08:00:00.500000Z", "2026-01-01T08:00:00", True),
    ],
)
def test_of_two_calibrations_the_newer_one_counts(place, tmp_path, ours, theirs, is_ours):
    name = f"{CARD}/calibration.harness"
    texts = [calibration(at, tmp_path / "made", verdicts=n) for n, at in enumerate((theirs, ours))]
    place.store({name: texts[0]})
    stored = place.store({name: texts[1]})
    assert place.bytes(name).decode() == texts[is_ours]
    assert (stored.merged, stored.unchanged) == (((name,), 0) if is_ours else ((), 1))


# What is refused


def refusal(place, files, prepare=lambda: None):
    """Return the reason why these files are refused. A good file beside them must not be stored either."""
    good = {f"{CARD}/fedcba98-checkout-pyany.json": result({"a": row(1)}, commit_hash="fedcba98" + "0" * 32)}
    before = place.commits()
    shutil.rmtree(place.results)
    place.put({**good, **files})
    prepare()
    with pytest.raises(RefusedError) as caught:
        place.store()
    assert place.commits() == before
    assert place.pauses == []
    assert str(place.results) in caught.value.message
    return caught.value


NO_RESULTS = (
    "results.json",
    "machine.json",
    "notes.txt",
    f"{CARD}/notes.txt",
    f"{CARD}/benchmarks.json",
    f"{CARD}/0123456-short.json",
    f"{CARD}/01234567.json",
    f"{CARD}/01234567-a.json.bak",
    f"{CARD}/.jsonl",
    f"{CARD}/-option.jsonl",
    f"{CARD}/20260101T000000Z-a.jsonl.gz",
    f"{CARD}/record.jsonl",
    f"{CARD}/01234567-tab\there.json",
    f"{CARD}/01234567-line\nM 100644 inline x.json",
    f"{CARD}/01234567-ünï.json",
    f"{CARD}/20260101T000000Z-\udce4.jsonl",
    ".hidden/machine.json",
    "-option/machine.json",
    "a b/machine.json",
    '"quoted"/machine.json',
    "..x/machine.json",
    f"{'x' * 129}/machine.json",
    ".GIT/config",
)


def test_names_of_no_result_are_refused(place):
    error = refusal(place, dict.fromkeys(NO_RESULTS, "{}"))
    for name in NO_RESULTS:
        shown = "".join(each if each.isprintable() else "\ufffd" for each in name)
        assert f"{shown} is no result; expected benchmarks.json," in error.log


def test_links_are_refused_and_not_followed(place, tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")

    def link():
        (place.results / "benchmarks.json").symlink_to(tmp_path / "secret")
        (place.results / "card").symlink_to(tmp_path)
        (place.results / CARD / "machine.json").symlink_to("nowhere")

    error = refusal(place, {}, link)
    assert error.message.startswith(f"Nothing of {place.results} was stored: 3 entries cannot be.")
    assert error.log.splitlines() == [
        f"{name} is a symbolic link, and those are not followed."
        for name in ("benchmarks.json", "card", f"{CARD}/machine.json")
    ]


def test_what_is_no_file_is_refused_and_not_opened(place):
    def make():
        os.mkfifo(place.results / CARD / "machine.json")

    assert f"{CARD}/machine.json is no regular file." in refusal(place, {}, make).message


def test_a_deeper_folder_is_refused(place):
    error = refusal(place, {f"{CARD}/deep/machine.json": machine()})
    assert f"{CARD}/deep is a folder, and results lie one folder deep." in error.message


def test_a_large_file_is_refused(place):
    def make():
        with (place.results / CARD / "machine.json").open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)

    assert "machine.json has 52428801 bytes, more than 50 MiB." in refusal(place, {}, make).message


def test_a_record_is_never_changed(place, records):
    name, record = next(iter(records.items()))
    place.store({f"{CARD}/{name}": record})
    error = refusal(place, {f"{CARD}/{name}": record.replace("580", "590")})
    assert (
        f"{CARD}/{name} differs from the one on the branch, and a record is never changed." in error.message
    )


def test_what_is_no_record_is_refused(place, records):
    record, name = next(iter(records.values())), f"{CARD}/20260101T000000Z-x.jsonl"
    damaged = record.replace('{"row"', "{row", 1)
    for text in (
        "",
        "{}\n",
        "[]\n",
        '{"run": 1}\n',
        damaged,
        record.replace(f'"schema_version":{SCHEMA_VERSION}', '"schema_version":99'),
    ):
        error = refusal(place, {name: text})
        assert f"{name} is no record: " in error.message


DAMAGED = {
    "half": '{"version": 2, "resu',
    "empty": "",
    "list": "[]",
    "number": "1",
    "null": "null",
    "deep": "[" * 100_000,
    "deep-objects": '{"a":' * 20_000,
    "digits": '{"version": ' + "9" * 10_000 + "}",
    "no-utf8": "\udcff",
    "mark": "\ufeff{}",
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("benchmarks.json", kind) for kind in DAMAGED),
        *((f"{CARD}/calibration.harness", kind) for kind in DAMAGED),
        (f"{CARD}/machine.json", "half"),  # read as benchmarks.json is
    ],
)
def test_damaged_files_are_refused(place, name, kind):
    def write_bytes():
        path = place.results / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(DAMAGED[kind].encode("utf-8", "surrogateescape"))

    error = refusal(place, {}, write_bytes)
    assert re.search(rf"{re.escape(name)} is (damaged|no calibration) \(", error.message)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("benchmarks.json", '{"version": 1}', "has the format 1, not 2"),
        ("benchmarks.json", "{}", "has the format None, not 2"),
        ("benchmarks.json", '{"version": 2, "a": []}', "benchmark 'a' is no object"),
        (f"{CARD}/machine.json", '{"version": 2, "machine": "x"}', "has the format 2, not 1"),
        (f"{CARD}/machine.json", '{"version": 1}', "it names no machine"),
        (RESULT, result({}, version=3), "has the format 3, not 2"),
        (RESULT, result({}, commit_hash="f" * 40), "is of commit 'ffff"),
        (RESULT, result({}, commit_hash=None), "is of commit 'None'"),
        (RESULT, result({}, result_columns="result"), "its result_columns are no list of names"),
        (RESULT, result({}, result_columns=[1]), "its result_columns are no list of names"),
        (RESULT, result([]), "its results or durations are no object"),
        (RESULT, result({}, durations=[]), "its results or durations are no object"),
        (RESULT, result({"a": {}}), "the row of 'a' does not have its columns"),
        (RESULT, result({"a": [1] * 6}), "the row of 'a' does not have its columns"),
    ],
)
def test_files_of_another_shape_are_refused(place, name, text, why):
    assert why in refusal(place, {name: text}).message


def test_a_calibration_of_another_time_is_refused(place, tmp_path):
    name = f"{CARD}/calibration.harness"
    newer = calibration("2026-01-01T00:00:00+00:00", tmp_path / "made", schema_version=99)
    assert "has schema version 99" in refusal(place, {name: newer}).message
    timeless = calibration("yesterday", tmp_path / "made")
    assert "is no calibration (Invalid isoformat" in refusal(place, {name: timeless}).message


@pytest.mark.parametrize("name", ["benchmarks.json", f"{CARD}/machine.json", f"{CARD}/calibration.harness"])
def test_damage_on_the_branch_is_told(place, tmp_path, name):
    good = {
        "benchmarks.json": benchmarks("a"),
        f"{CARD}/machine.json": machine(),
        f"{CARD}/calibration.harness": calibration("2026-01-01T00:00:00Z", tmp_path / "made"),
    }
    place.store(good)
    place.commit_there({name: "{"})
    error = refusal(place, {name: good[name]})
    assert re.search(
        rf"{re.escape(name)} on the branch is (damaged|no calibration) .*: mend it there\.", error.message
    )


@pytest.mark.parametrize("depth", [980, 1500, 12000])
def test_what_nests_deeply_is_merged_or_refused(place, depth):
    """Which of the two depends on Python: reading and writing have limits of their own."""
    place.store({"benchmarks.json": benchmarks("a")})
    deep = '{"version": 2, "b": ' + '{"x": ' * depth + "1" + "}" * (depth + 1)
    place.commit_there({"benchmarks.json": deep})
    try:
        place.store({"benchmarks.json": benchmarks("c")})
    except RefusedError as error:
        assert "is damaged (" in error.message  # noqa: PT017
        assert place.bytes("benchmarks.json").decode() == deep
    else:
        assert place.bytes("benchmarks.json").count(b'"x": ') == depth


@pytest.mark.parametrize("name", [CARD, RESULT, "benchmarks.json"])
def test_links_on_the_branch_are_not_followed(place, tmp_path, name):
    files = {"benchmarks.json": benchmarks("a"), RESULT: result({"a": row(1)}), "x/machine.json": machine()}
    place.store(files)
    target = tmp_path / "target"
    target.mkdir()
    place.commit_there({name: target if name == CARD else target / "file"})
    error = refusal(place, {**files, "benchmarks.json": benchmarks("b"), RESULT: result({"b": row(1)})})
    assert ("file or a link" if name == CARD else "a folder or a link on the branch") in (
        error.log or error.message
    )
    assert list(target.iterdir()) == []


def test_a_folder_on_the_branch_is_no_file(place):
    place.store({RESULT: result({"a": row(1)}), "benchmarks.json": benchmarks("a")})
    place.commit_there({"card/machine.json/inside": "x", "other": "a file"})
    error = refusal(place, {"card/machine.json": machine(), "other/machine.json": machine()})
    assert error.log.splitlines() == [
        "card/machine.json is a folder or a link on the branch.",
        "other/machine.json lies in a folder which on the branch is a file or a link.",
    ]


def test_a_file_on_the_branch_that_is_too_large_to_merge_is_not_read(place, monkeypatch):
    monkeypatch.setattr("harness.ci.data_branch.data_files.MAX_FILE_BYTES", 1000)
    place.store({"benchmarks.json": benchmarks("a")})
    place.commit_there({"benchmarks.json": " " * 1001})
    error = refusal(place, {"benchmarks.json": benchmarks("a")})
    assert "is beyond 50 MiB on the branch" in error.message


def test_everything_that_is_refused_is_listed(place):
    error = refusal(place, {"a.txt": "", "b.txt": "", RESULT: "{"})
    assert error.message.count("a.txt") == 1
    assert [line.split()[0] for line in error.log.splitlines()] == ["a.txt", "b.txt", RESULT]
    assert error.exit_code == ExitCode.USAGE


def test_a_file_that_cannot_be_read_is_an_error(place):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    place.put({RESULT: result({"a": row(1)})})
    (place.results / RESULT).chmod(0)
    with pytest.raises(StoreError, match=f"Cannot read .*{RESULT}"):
        place.store()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("echo {} > $changed", r"machine\.json changed meanwhile\. Nothing was stored"),
        ("rm $changed; ln -s $same $changed", r"Cannot read .*machine\.json"),
        ("rm $changed; mkfifo $changed", r"machine\.json changed meanwhile"),
        ("rm $changed", r"Cannot read .*machine\.json"),
    ],
)
def test_a_file_that_changes_meanwhile_is_not_stored(place, wrapped_git, tmp_path, change, why):
    place.store({"benchmarks.json": benchmarks("a")})
    files = {"benchmarks.json": benchmarks("b"), "a-card/machine.json": machine()}
    changed = place.results / "a-card" / "machine.json"
    shutil.rmtree(place.results)
    place.put(files)
    # The list of benchmarks is merged after the machine was read and before it is written.
    wrapped_git(
        f"""changed={changed} same={tmp_path}/same
        [ "$command" != cat-file ] || {{ cp $changed $same; {change}; }}"""
    )
    with pytest.raises(StoreError, match=why):
        place.store()
    assert len(place.commits()) == 1


# Many writers


WRITERS, ROUNDS = 3, 2


@pytest.mark.slow
def test_writers_at_once_lose_nothing(place, tmp_path, wrapped_git):
    """Everybody has fetched before anybody pushes, in each round: all but one have to do it again."""
    gate = tmp_path / "gate"
    wrapped_git(
        f"""
        if [ "$command" = push ] && [ ! -e "$GATE/mine-$WRITER" ]; then
            : > "$GATE/mine-$WRITER"
            while [ "$(ls "$GATE" | wc -l)" -lt {WRITERS} ]; do sleep 0.02; done
        fi"""
    )
    wanted: dict[str, str] = {}
    rows: dict[str, list[object]] = {}
    attempts: Counter[int] = Counter()
    for turn in range(ROUNDS):
        shutil.rmtree(gate, ignore_errors=True)
        gate.mkdir()
        processes = []
        for writer in range(WRITERS):
            files, shared = load_of(writer, turn, tmp_path)
            wanted |= files
            rows |= shared["results"]
            folder = tmp_path / f"results-{writer}"
            shutil.rmtree(folder, ignore_errors=True)
            place.put({**files, RESULT: json.dumps(shared), "benchmarks.json": benchmarks(*rows)}, folder)
            environment = {"WRITER": str(writer), "GATE": str(gate), "PYTHONPATH": IMPORT_PATH}
            arguments = ["ci", "store", "--json", "--from", str(folder)]
            process = programs.popen(
                [sys.executable, "-c", COMMAND, "-1", *arguments],
                cwd=place.root,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(process)
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == ExitCode.FINE, err
            attempts[turn] += json.loads(out)["attempts"]
    assert all(attempts[turn] >= 2 * WRITERS - 1 for turn in range(ROUNDS))
    place.check_linear()
    assert len(place.commits()) == WRITERS * ROUNDS
    assert {name: place.bytes(name).decode() for name in wanted} == wanted
    appended = [place.json(name)["results"] for name in place.names() - {*wanted, "benchmarks.json"}]
    assert len(appended) == WRITERS * ROUNDS
    assert {name: found for each in appended for name, found in each.items()} == rows
    assert set(place.json("benchmarks.json")) == {*rows, "version"}


def load_of(writer, turn, tmp_path):
    """Return the files of a writer: its own card's record and result, and its share of the common result
    file.
    """
    card = replace(CARDS[0], serial=100 + writer)
    made = write(
        History(commits=1, cards=(card,), suites=(SUITE,), records=True, seed=turn + 1),
        tmp_path / f"made-{writer}-{turn}",
    )
    found = (path for path in made.results.rglob("*") if path.is_file() and path.name != "benchmarks.json")
    files = {str(path.relative_to(made.results)): path.read_text("utf-8") for path in found}
    files = {name: text for name, text in files.items() if not re.search(r"/[0-9a-f]{8}-", name)}
    assert len(files) == 2  # the machine and the record, which the result is derived from
    return files, json.loads(result({f"by-{writer}.{turn}": row(writer + turn / 10, turn)}))


def test_two_that_make_the_branch_at_once_both_get_in(place, wrapped_git, tmp_path):
    other, once = tmp_path / "other", tmp_path / "once"
    place.put({"other-card/machine.json": machine()}, other)
    code = "import sys; from harness.cli import main; sys.argv[1:1] = ['ci', 'store', '--from']; main()"
    unwrapped = f"PATH={os.environ['PATH']} PYTHONPATH={IMPORT_PATH}"
    store = f'cd {place.root} && {unwrapped} {sys.executable} -c "{code}" {other} >&2'
    # Somebody makes the branch just before our first push.
    wrapped_git(f'if [ "$command" = push ] && [ ! -e {once} ]; then : > {once}; ({store}) || exit 99; fi')
    told: list[str] = []
    stored = place.store({RESULT: result({"a": row(1)})}, tell=told.append)
    assert stored.attempts == 2
    assert len(place.pauses) == 1
    assert re.fullmatch(
        r"Attempt 1: \[rejected\] \((fetch first|non-fast-forward)\)\. Again in \d\.\d s\.", told[0]
    )
    assert place.names() == {RESULT, "other-card/machine.json"}
    place.check_linear()


def test_a_record_that_somebody_else_brings_meanwhile_is_not_overwritten(
    place, records, tmp_path, wrapped_git
):
    (name, record), changed = next(iter(records.items())), tmp_path / "theirs"
    place.store({RESULT: result({"a": row(1)})})
    changed.write_text(record.replace("580", "590"), encoding="utf-8")
    # The branch moves on under our push, to one that has another record of this name.
    wrapped_git(
        f"""
        if [ "$command" = push ] && [ ! -e {tmp_path}/once ]; then
            : > {tmp_path}/once
            export GIT_DIR={place.remote} GIT_INDEX_FILE={tmp_path}/index
            $git read-tree {BRANCH}
            $git update-index --add --cacheinfo 100644,$($git hash-object -w {changed}),{CARD}/{name}
            $git update-ref refs/heads/{BRANCH} $($git commit-tree -m x -p {BRANCH} $($git write-tree))
            unset GIT_DIR GIT_INDEX_FILE
        fi"""
    )
    with pytest.raises(RefusedError, match="a record is never changed"):
        place.store({f"{CARD}/{name}": record})
    assert place.bytes(f"{CARD}/{name}") == changed.read_bytes()


@pytest.mark.parametrize(
    ("command", "when"),
    [
        ("fetch", "before"),
        ("fast-import", "during"),
        ("push", "before"),
        ("push", "during"),
        ("push", "after"),
    ],
)
def test_a_writer_that_is_killed_leaves_the_branch_whole(place, wrapped_git, command, when):
    first = place.store({"benchmarks.json": benchmarks("a")})
    place.put({RESULT: result({"a": row(1)})})
    kill = 'kill -9 "$PPID"'
    if when == "before":
        kill = f"{kill}; exit"
    elif when == "during":
        kill = f'$git "$@" & {kill}; wait; exit'
        place.hook("pre-receive", f"kill -9 $(cat {place.root}/writer) 2>/dev/null; exit 0")
    elif when == "after":
        kill = f'$git "$@"; {kill}; exit'
    wrapped_git(f'if [ "$command" = {command} ]; then {kill}; fi')
    command_line = f"import os, pathlib\npathlib.Path('writer').write_text(str(os.getpid()))\n{COMMAND}"
    process = programs.popen(
        [sys.executable, "-c", command_line, "-1", "ci", "store"],
        cwd=place.root,
        # What a killed one leaves behind is left with the test's own files.
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, "TMPDIR": str(place.root.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    wrapped_git("")
    git(place.remote, "fsck", "--strict")
    assert place.commits()[-1] == first.commit
    assert len(place.commits()) <= 2
    place.store()
    assert place.names() == {"benchmarks.json", RESULT}
    assert len(place.commits()) == 2
    place.check_linear()


# Remotes that do not take it


def test_a_push_that_is_declined_is_tried_again(place, tmp_path):
    count = tmp_path / "count"
    place.hook("pre-receive", f"echo x >> {count}; [ $(wc -l < {count}) -gt 3 ] || exit 1")
    stored = place.store({RESULT: result({"a": row(1)})})
    assert (stored.attempts, len(place.pauses)) == (4, 3)
    assert place.commits() == [stored.commit]


def test_a_push_that_is_always_declined_ends_in_an_error(place):
    place.hook("update", "echo 'Not today.' >&2; exit 1")
    told: list[str] = []
    with pytest.raises(RemoteError) as caught:
        place.store({RESULT: result({"a": row(1)})}, tell=told.append)
    assert caught.value.message == (
        f"Nothing was stored on the branch {BRANCH} of {place.remote} in {ATTEMPTS} attempts: "
        f"[remote rejected] (hook declined). Everything is still in {place.results} (1 file): mend the cause "
        "and run 'harness ci store' again."
    )
    assert "remote: Not today." in caught.value.log
    assert caught.value.exit_code == ExitCode.NOT_MEASURED
    assert len(place.pauses) == len(told) == ATTEMPTS - 1
    assert all(0 <= pause <= 15 for pause in place.pauses)
    assert len(set(place.pauses)) == len(place.pauses)
    assert not place.has()


def test_a_lock_on_the_branch_is_waited_for(place):
    place.store({RESULT: result({"a": row(1)})})
    lock = place.remote / "refs" / "heads" / f"{BRANCH}.lock"
    lock.touch()
    told: list[str] = []
    stored = place.store({RESULT: result({"b": row(1)})}, sleep=lambda _: lock.unlink(), tell=told.append)
    assert stored.attempts == 2
    assert "[remote rejected]" in told[0]


def test_an_answer_that_is_lost_is_not_stored_twice(place, wrapped_git):
    lost = '$git "$@" >/dev/null 2>&1; echo "fatal: the remote end hung up unexpectedly" >&2; exit 128'
    wrapped_git(f'if [ "$command" = push ]; then {lost}; fi')
    stored = place.store({RESULT: result({"a": row(1)})})
    assert place.commits() == [stored.commit]
    assert (stored.added, stored.attempts, len(place.pauses)) == ((RESULT,), 1, 1)
    stored = place.store({RESULT: result({"b": row(1)})}, attempts=1)
    assert place.commits()[0] == stored.commit
    assert renamed(stored) in place.names()


def test_a_branch_that_is_made_anew_meanwhile_is_begun_anew(place, wrapped_git, tmp_path):
    place.store({RESULT: result({"a": row(1)})})
    once = f"[ ! -e {tmp_path}/once ] && : > {tmp_path}/once"
    delete = f"$git --git-dir={place.remote} update-ref -d refs/heads/{BRANCH}"
    wrapped_git(f'if [ "$command" = fetch ] && {once}; then {delete}; fi')
    stored = place.store({"benchmarks.json": benchmarks("a")})
    assert stored.attempts == 2
    assert place.names() == {"benchmarks.json"}


def failure(place, **options):
    with pytest.raises(RemoteError) as caught:
        place.store({RESULT: result({"a": row(1)})}, **options)
    return caught.value


def test_a_protected_branch_is_not_tried_again(place):
    place.hook("pre-receive", "echo 'error: GH006: Protected branch update failed for x.' >&2; exit 1")
    error = failure(place)
    assert (
        "in 1 attempt: [remote rejected] (pre-receive hook declined) (the branch is protected"
        in error.message
    )
    assert place.pauses == []


def test_a_repository_that_is_not_there_is_not_tried_again(place, tmp_path):
    error = failure(place, remote=str(tmp_path / "gone.git"))
    assert (
        f"of {tmp_path}/gone.git in 1 attempt: fatal: '{tmp_path}/gone.git' does not appear to be"
        in error.message
    )
    assert place.pauses == []


def test_a_host_that_does_not_answer_is_tried_again(place):
    error = failure(place, remote="http://127.0.0.1:1/x.git", attempts=3)
    assert "in 3 attempts: fatal: unable to access 'http://127.0.0.1:1/x.git/': " in error.message
    assert len(place.pauses) == 2


def test_a_remote_that_may_not_be_written_is_an_error(place):
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    objects = place.remote / "objects"
    objects.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert "in 1 attempt: " in failure(place).message
    finally:
        objects.chmod(0o755)


def test_without_git_it_says_so(place, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="install git"):
        place.store({RESULT: result({"a": row(1)})}, remote=str(place.remote))


# Whose settings


def test_settings_of_the_users_do_not_interfere(place, tmp_path, monkeypatch):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("pre-push", "pre-commit", "commit-msg", "reference-transaction", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\n: > {tmp_path}/ran\nexit 1\n", encoding="utf-8")
        (hooks / name).chmod(0o755)
    template = tmp_path / "template"
    shutil.copytree(hooks, template / "hooks")
    aside = f'[url "/nowhere/"]\n\tinsteadOf = {place.remote}\n'
    (template / "config").write_text(aside, encoding="utf-8")
    (tmp_path / "attributes").write_text("* text eol=crlf filter=spoil ident\n", encoding="utf-8")
    settings = tmp_path / "settings"
    settings.write_text(
        f"""
        [core]
            hooksPath = {hooks}
            autocrlf = true
            attributesFile = {tmp_path}/attributes
            fsmonitor = /bin/false
        [filter "spoil"]
            clean = tr a b
            smudge = tr a b
            required = true
        [init]
            templateDir = {template}
            defaultObjectFormat = sha256
        [commit]
            gpgSign = true
        [gpg]
            program = /bin/false
        [push]
            gpgSign = true
            followTags = true
            pushOption = one
            recurseSubmodules = check
        [fetch]
            recurseSubmodules = true
        [i18n]
            commitEncoding = ISO-8859-1
        [trace2]
            eventTarget = {tmp_path}/trace
            configParams = *
        """,
        encoding="utf-8",
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    # What a server does is its own affair, and here it has the same settings for the rest.
    git(place.remote, "config", "core.hooksPath", "hooks")
    elsewhere = make_repository(tmp_path / "somebody")
    before = sorted(elsewhere.rglob("*"))
    for name, value in {
        "GIT_DIR": str(elsewhere / ".git"),
        "GIT_WORK_TREE": str(elsewhere),
        "GIT_INDEX_FILE": str(elsewhere / "index"),
        "GIT_OBJECT_DIRECTORY": str(elsewhere / "objects"),
        "GIT_TEMPLATE_DIR": str(template),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_NAMESPACE": "other",
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_AUTHOR_DATE": "nonsense",
        "GIT_CONFIG_PARAMETERS": "'core.bare'='false'",
    }.items():
        monkeypatch.setenv(name, value)
    files = {"benchmarks.json": benchmarks("a").replace(", ", ",\r\n"), RESULT: result({"a": row(1)})}
    place.put(files)
    assert place.store(message="ä").attempts == 1
    assert place.store(dry_run=True).unchanged == 2
    for name in [each for each in os.environ if each.startswith("GIT_") and "CONFIG" not in each]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.delenv("GIT_CONFIG_PARAMETERS")
    assert {name: place.bytes(name).decode() for name in place.names()} == files
    assert git(place.remote, "log", "--format=%B %e", BRANCH) == "ä"
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "trace").exists()
    assert sorted(elsewhere.rglob("*")) == before


def identity(place):
    place.store({RESULT: result({"a": row(1)})})
    return git(place.remote, "log", "--format=%an <%ae>, %cn <%ce>", BRANCH)


def test_nobody_in_particular_commits_where_nobody_is_set_up(place, monkeypatch):
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}")
    monkeypatch.setenv("EMAIL", "user@host.example.org")  # with which git would make somebody up
    assert identity(place) == ", ".join(["gpu-harness <gpu-harness@noreply.invalid>"] * 2)


def test_whoever_is_set_up_in_the_project_commits(place, monkeypatch):
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "A\nrobot <x>")
    git(place.root, "config", "user.name", "Zoë > x")
    git(place.root, "config", "user.email", "zoe@example.org")
    assert identity(place) == "Zoë  x <zoe@example.org>, Arobot x <zoe@example.org>"


# The token


@pytest.fixture
def spied_git(wrapped_git, tmp_path, monkeypatch):
    """Tells what git was called with: arguments, and settings from the environment. Nothing is reached: it
    says on the way out what a careless git would.
    """
    monkeypatch.setenv("GITHUB_TOKEN", f"{SECRET}\n")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.org")
    wrapped_git(
        f"""
        if [ "$command" = ls-remote ]; then
            printf '%s\\n' "$@" > {tmp_path}/arguments
            env > {tmp_path}/environment
            echo "fatal: Authentication failed: sent $GIT_CONFIG_VALUE_1" \
                "and {SECRET} to https://me:pw@git.example.org" >&2
            exit 128
        fi"""
    )

    def seen(place, remote):
        error = failure(place, remote=remote)
        arguments = (tmp_path / "arguments").read_text("utf-8")
        environment = dict(
            line.partition("=")[::2] for line in (tmp_path / "environment").read_text("utf-8").splitlines()
        )
        for text in (arguments, error.message, error.log, str(error)):
            assert SECRET not in text
            assert BASIC not in text
        assert "pw@" not in error.message + error.log
        return {key: value for key, value in environment.items() if key.startswith("GIT_CONFIG_")}, error

    return seen


def test_the_token_goes_to_its_host_through_the_environment(place, spied_git):
    settings, error = spied_git(place, "https://git.example.org/owner/repository.git")
    key = "http.https://git.example.org/.extraheader"
    assert settings["GIT_CONFIG_COUNT"] == "3"
    assert [settings[f"GIT_CONFIG_{part}_{n}"] for n in range(2) for part in ("KEY", "VALUE")] == [
        *(key, ""),
        *(key, f"AUTHORIZATION: basic {BASIC}"),
    ]
    assert settings["GIT_CONFIG_KEY_2"] == "http.followRedirects"
    assert "'contents: write'" in error.message
    assert "sent AUTHORIZATION: basic *** and *** to https://git.example.org" in error.log


def test_settings_in_the_environment_are_kept_beside_it(place, spied_git, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "http.proxy")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "http://proxy.example.org")
    settings, _ = spied_git(place, "https://GIT.example.org:443/owner/repository")
    assert settings["GIT_CONFIG_COUNT"] == "4"
    assert settings["GIT_CONFIG_KEY_0"] == "http.proxy"
    assert settings["GIT_CONFIG_VALUE_2"].endswith(BASIC)


@pytest.mark.parametrize(
    "remote",
    [
        "http://git.example.org/owner/repository",
        "https://git.example.org.evil.example/owner/repository",
        "https://git.example.org:8443/owner/repository",
        "https://evil.example/https://git.example.org/",
        "https://git.example.org@evil.example/owner/repository",
        "https://me:pw@git.example.org/owner/repository",
        "https://[broken/owner/repository",
        "https://git.example.org:port/owner/repository",
        "ssh://git@git.example.org/owner/repository",
        "git@git.example.org:owner/repository",
        "ftp://git.example.org/x",
    ],
)
def test_the_token_goes_nowhere_else(place, spied_git, remote):
    settings, _ = spied_git(place, remote)
    assert not [key for key in settings if key.startswith(("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY"))]


@pytest.mark.parametrize("server", ["", "http://git.example.org", "git.example.org"])
def test_without_a_server_it_goes_nowhere(place, spied_git, monkeypatch, server):
    monkeypatch.setenv("GITHUB_SERVER_URL", server)
    settings, _ = spied_git(place, "https://git.example.org/owner/repository")
    assert "GIT_CONFIG_COUNT" not in settings


class GitServer(ThreadingHTTPServer):
    """Git over HTTPS, for whoever shows the token once."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), GitHandler)
        self.folder = folder
        self.seen = []
        subprocess.run(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
            "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem",
            shell=True,
            cwd=folder,
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.address = f"https://127.0.0.1:{self.server_address[1]}"

    def shutdown_request(self, request):
        with contextlib.suppress(OSError):
            request.unwrap()  # git takes an end without a farewell for an attack
        super().shutdown_request(request)


class GitHandler(BaseHTTPRequestHandler):
    server: GitServer

    def log_message(self, *_):
        pass

    def do_GET(self):
        shown = self.headers.get_all("Authorization") or []
        self.server.seen.append(shown)
        if self.path.startswith("/moved"):
            self.send_response(301)
            self.send_header("Location", self.path.replace("moved", "remote.git"))
            self.end_headers()
            return
        if shown != [f"basic {BASIC}"]:
            self.send_response(403)
            self.end_headers()
            return
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "runner",
        }
        done = subprocess.run(
            [REAL_GIT, "http-backend"], env=environment, input=body, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815


@pytest.fixture
def git_server(place, monkeypatch):
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl to make a certificate with")
    server = GitServer(place.remote.parent)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(place.remote.parent / "cert.pem"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    monkeypatch.setenv("GITHUB_SERVER_URL", server.address)
    with listening(server):
        yield server


def test_the_token_is_enough_to_store_over_https(place, git_server, monkeypatch, tmp_path):
    settings = tmp_path / "settings"
    # Another header for the same host, as a checkout with kept credentials leaves it.
    settings.write_text(
        f'[http "{git_server.address}/"]\n\textraheader = AUTHORIZATION: basic eDp5\n', "utf-8"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    for name in ("a", "b"):
        place.store({RESULT: result({name: row(1)})}, remote=f"{git_server.address}/remote.git")
    assert len(place.commits()) == 2
    assert git_server.seen
    assert all(shown == [f"basic {BASIC}"] for shown in git_server.seen)


def test_a_token_that_is_not_let_in_is_told_and_not_shown(place, git_server, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_another-token")
    error = failure(place, remote=f"{git_server.address}/remote.git")
    assert "returned error: 403 (who stores must be allowed to push" in error.message
    assert "ghs_another" not in error.message + error.log
    assert place.pauses == []


def test_the_token_follows_no_redirection(place, git_server):
    error = failure(place, remote=f"{git_server.address}/moved")
    assert "in 1 attempt: fatal: unable to access" in error.message
    assert len(git_server.seen) == 1


# Reading it back


def test_what_is_stored_is_read_as_the_results_were(place, template, tmp_path):
    """Two runners with a card each, and a third that has newer commits of both."""
    shares = [tmp_path / f"share-{number}" for number in range(3)]
    newest = {commit[:8] for commit in template.commits[-5:]}
    machines = [card.machine for card in CARDS[:2]]
    for path in (each for each in template.results.rglob("*") if each.is_file()):
        name = path.relative_to(template.results)
        if name.name == "benchmarks.json":
            owners = [0, 1, 2]
        elif name.name == "machine.json":
            owners = [machines.index(name.parts[0]), 2]
        else:
            is_new = any(commit in name.name for commit in newest)
            owners = [2 if is_new else machines.index(name.parts[0])]
        for owner in owners:
            (shares[owner] / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, shares[owner] / name)
    for share in shares:
        assert store_results(share, template.repository, remote=str(place.remote)).added
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--branch", BRANCH, str(place.remote), str(checkout))
    shutil.rmtree(checkout / ".git")

    def everything(results):
        return {
            str(path.relative_to(results)): path.read_bytes() for path in results.rglob("*") if path.is_file()
        }

    derived = {str(path.relative_to(template.results)) for path in template.results.glob("*/*-*.json")}
    wanted = everything(template.results)
    assert everything(checkout) == {name: wanted[name] for name in wanted if name not in derived}
    told = read_history(checkout, template.repository)
    wanted = read_history(template.results, template.repository)
    assert [card.name for card in told.cards] == [card.name for card in wanted.cards]
    for ours, theirs in zip(told.cards, wanted.cards, strict=True):
        assert ours.changes == theirs.changes
        assert not ours.problems
        for one, other in zip(ours.analysed, theirs.analysed, strict=True):
            assert one.series.values.tolist() == other.series.values.tolist()
            assert len(one.series.values) == COMMITS


# The command


@pytest.fixture
def harness(capsys, monkeypatch, place):
    monkeypatch.chdir(place.root)
    (place.root / "pyproject.toml").write_text("[tool.harness]\n", encoding="utf-8")
    call = caller(capsys, monkeypatch)
    return lambda *arguments: call("ci", "store", *arguments)


def test_the_command_stores_the_projects_results(place, harness):
    place.put({RESULT: result({"a": row(1)}), f"{CARD}/x.jsonl.part": ""})
    done = harness()
    assert done.status == ExitCode.FINE
    stored = f"Stored on {BRANCH} of {place.remote}:"
    assert done.out.splitlines() == [
        f"left out, not finished: {CARD}/x.jsonl.part",
        f"{stored} 1 added, 0 merged, 0 unchanged (commit {place.commits()[0]}, attempt 1).",
    ]
    assert done.err == ""
    assert harness().out.splitlines()[1] == f"Nothing to store on {BRANCH} of {place.remote} (1 unchanged)."


def test_the_command_tells_what_it_would_do(place, harness):
    place.put({RESULT: result({"a": row(1)}), **{f"card-{n:02}/machine.json": machine() for n in range(25)}})
    done = harness("--dry-run", "--branch", "other")
    assert done.status == ExitCode.FINE
    *listed, rest, total = done.out.splitlines()
    assert listed == [f"would be added: card-{n:02}/machine.json" for n in range(20)]
    assert rest == "would be added: 6 more"
    assert (
        total
        == f"Nothing was stored on other of {place.remote}; there would be 26 added, 0 merged, 0 unchanged."
    )
    assert not place.has("other")


def test_the_command_tells_machines_everything(place, harness, tmp_path):
    place.put({RESULT: result({"a": row(1)})}, tmp_path / "else")
    done = harness("--json", "--from", str(tmp_path / "else"), "--message", "mine")
    assert done.json == {
        "remote": str(place.remote),
        "branch": BRANCH,
        "commit": place.commits()[0],
        "attempts": 1,
        "added": [RESULT],
        "merged": [],
        "unchanged": 0,
        "left_out": [],
        "derived": [],
        "dry_run": False,
    }
    assert git(place.remote, "log", "--format=%s", BRANCH) == "mine"


def test_the_command_says_that_there_is_nothing(place, harness):
    done = harness()
    assert (done.status, done.out) == (ExitCode.FINE, f"Nothing to store on {BRANCH} of {place.remote}.\n")


def test_the_command_refuses_with_every_reason(place, harness):
    place.put({"a\x1b[31m.txt": "", RESULT: "{"})
    done = harness()
    assert (done.status, done.out) == (ExitCode.USAGE, "")
    assert "\x1b" not in done.err
    assert len(done.err.splitlines()) == 3
    place.hook("pre-receive", "echo 'GH006'; exit 1")
    (place.results / RESULT).write_text(result({"a": row(1)}), encoding="utf-8")
    (place.results / "a\x1b[31m.txt").unlink()
    assert harness().status == ExitCode.NOT_MEASURED
