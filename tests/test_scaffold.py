"""The workflows written into another repository: the same as here, all or none, over nobody's work."""

from __future__ import annotations

import errno
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.ci.requirements import composed
from harness.ci.scaffold import (
    COPIED,
    HARNESS_FILE,
    MEASURE_FILE,
    STATIC,
    check_requirement,
    own_requirement,
    read_fleet,
    scaffold,
)
from harness.errors import StoreError, UsageError
from tests.support import ROOT, commit, git, make_repository
from tests.workflow_policy import load, violations

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HASH = "ab" * 32
PINNED = f"gpu-harness @ git+https://example.org/o/r@{COMMIT}"
OURS = {f".github/{HARNESS_FILE}", f".github/{MEASURE_FILE}", ".github/fleet.json"}
WRITTEN = {*(f".github/{name}" for name in COPIED), *OURS}


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "theirs")


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything below a folder but git's own, folders included."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if ".git" not in path.relative_to(folder).parts
    }


def test_every_file_is_written_and_is_ours_byte_for_byte(repository):
    done = scaffold(repository, PINNED)
    assert set(done.written) == WRITTEN
    for name in COPIED:
        assert (repository / ".github" / name).read_bytes() == (ROOT / ".github" / name).read_bytes()
    lines = (repository / ".github" / HARNESS_FILE).read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [PINNED]
    assert not [path for path in files_of(repository) if "harness-init" in path]


def test_what_is_written_keeps_the_policy_and_is_a_file_of_cards(repository):
    scaffold(repository, PINNED, static=True)
    for path in (repository / ".github" / "workflows").iterdir():
        assert violations(load(path.read_text(encoding="utf-8"))) == []
    assert read_fleet(repository / ".github" / "fleet.json").cards


def test_every_workflow_is_written_but_our_own_tests():
    ours = {path.name for path in (ROOT / ".github" / "workflows").iterdir()}
    names = (*COPIED, *STATIC)
    assert {Path(name).name for name in names if name.startswith("workflows/")} == ours - {
        "ci.yml",
        "asv-main.yml",
    }


@pytest.mark.parametrize("static", [False, True])
def test_every_file_that_a_workflow_installs_from_is_written(repository, static):
    scaffold(repository, PINNED, static=static)
    text = "".join(path.read_text() for path in (repository / ".github" / "workflows").iterdir())
    assert ("harness static" in text) == static
    used = set(re.findall(r"(?:\$REQUIREMENTS|\.github/requirements)/([\w.]+)", text))
    assert used == {path.name for path in (repository / ".github" / "requirements").iterdir()}


def test_a_wheel_has_what_is_copied():
    if sys.version_info < (3, 11):
        import tomli as tomllib
    else:
        import tomllib
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    included = targets["wheel"]["force-include"]
    for name in COPIED:
        folder, _, file = name.partition("/")
        assert included.get(f".github/{folder}") == f"harness/ci/github/{folder}", file
    assert ".github" in targets["sdist"]["include"]


def test_an_installed_harness_copies_its_own(repository, tmp_path):
    for name in COPIED:
        path = tmp_path / "installed" / "ci" / "github" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"packed {name}")
    scaffold(repository, PINNED, package=tmp_path / "installed")
    assert (repository / ".github" / COPIED[0]).read_text() == f"packed {COPIED[0]}"


def test_a_harness_that_lacks_them_says_so_and_writes_nothing(repository, tmp_path):
    with pytest.raises(StoreError, match="Install gpu-harness again"):
        scaffold(repository, PINNED, package=tmp_path / "installed")
    assert files_of(repository) == {}


def test_a_second_time_there_is_nothing_to_do(repository):
    scaffold(repository, PINNED)
    before = files_of(repository)
    done = scaffold(repository, PINNED)
    assert (done.written, set(done.unchanged)) == ((), WRITTEN - {".github/fleet.json"})
    assert done.kept == (".github/fleet.json",)
    assert files_of(repository) == before


@pytest.mark.parametrize("name", [COPIED[0], COPIED[-1], HARNESS_FILE])
def test_what_is_in_the_way_is_left_and_nothing_else_is_written(repository, name):
    path = repository / ".github" / name
    path.parent.mkdir(parents=True)
    path.write_text("theirs")
    before = files_of(repository)
    with pytest.raises(UsageError, match=rf"{name}.*--force"):
        scaffold(repository, PINNED)
    assert files_of(repository) == before


def test_a_link_in_the_way_counts_though_it_leads_nowhere(repository, tmp_path):
    path = repository / ".github" / COPIED[0]
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="--force"):
        scaffold(repository, PINNED)
    scaffold(repository, PINNED, force=True)
    assert not path.is_symlink()
    assert not (tmp_path / "outside").exists()


def test_force_overwrites_workflows_and_never_the_cards(repository):
    scaffold(repository, PINNED)
    (repository / ".github" / COPIED[0]).write_text("older")
    cards = repository / ".github" / "fleet.json"
    cards.write_text('{"cards": [{"name": "theirs", "labels": ["x"]}]}')
    done = scaffold(repository, PINNED, force=True)
    assert done.written == (f".github/{COPIED[0]}",)
    assert (repository / ".github" / COPIED[0]).read_bytes() == (ROOT / ".github" / COPIED[0]).read_bytes()
    assert [card.name for card in read_fleet(cards).cards] == ["theirs"]


def test_a_broken_file_of_cards_is_said_before_anything_is_written(repository, harness):
    (repository / ".github").mkdir()
    (repository / ".github" / "fleet.json").write_text("{}")
    assert harness("ci", "init", str(repository), "--harness", PINNED).status == 2
    assert set(files_of(repository)) == {".github", ".github/fleet.json"}


@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "older ones there"])
@pytest.mark.parametrize("last", range(len(WRITTEN) + 1))
def test_a_failure_half_way_leaves_things_as_they_were(repository, monkeypatch, there, last):
    if there:
        scaffold(repository, PINNED)
        for name in COPIED:
            (repository / ".github" / name).write_text("older")
    before = files_of(repository)
    write = Path.write_bytes
    written: list[Path] = []

    def full(path, content):
        if len(written) == last:
            write(path, content[:10])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    changes = len(COPIED) if there else len(WRITTEN)
    if last < changes:
        with pytest.raises(StoreError, match="No space left on device"):
            scaffold(repository, PINNED, force=there)
        assert files_of(repository) == before
    else:
        assert len(scaffold(repository, PINNED, force=there).written) == changes


def test_a_folder_that_cannot_be_made_leaves_things_as_they_were(repository):
    (repository / ".github").write_text("a file")
    with pytest.raises(StoreError):
        scaffold(repository, PINNED)
    assert files_of(repository) == {".github": b"a file"}


def test_only_a_repository_s_top_will_do(repository, tmp_path):
    (repository / "sub").mkdir()
    with pytest.raises(UsageError, match="the top of this one is"):
        scaffold(repository / "sub", PINNED)
    (tmp_path / "plain").mkdir()
    with pytest.raises(UsageError, match="in no git repository"):
        scaffold(tmp_path / "plain", PINNED)
    with pytest.raises(UsageError, match="is no folder"):
        scaffold(tmp_path / "none", PINNED)
    assert files_of(repository) == {"sub": b""}


@pytest.mark.parametrize(
    "requirement",
    [
        ".",
        PINNED,
        f"gpu-harness==1.2.3 --hash=sha256:{HASH}",
        f"gpu-harness==1.2.3 --hash=sha256:{HASH} --hash=sha256:{HASH}",
        f"gpu-harness @ https://example.org/gpu_harness-1.2.3-py3-none-any.whl#sha256={HASH}",
    ],
)
def test_one_commit_or_one_file_is_a_requirement(requirement):
    check_requirement(requirement)


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "gpu-harness",
        "gpu-harness>=1",
        "gpu-harness==1.2.3",
        "gpu-harness==1.*",
        f"gpu-harness==1.2.3 --hash=md5:{HASH}",
        f"gpu-harness==1.2.3 --hash=sha256:{HASH[:-1]}",
        "gpu-harness @ git+https://example.org/o/r",
        "gpu-harness @ git+https://example.org/o/r@main",
        f"gpu-harness @ git+https://example.org/o/r@{COMMIT[:12]}",
        f"gpu-harness @ git+https://token@example.org/o/r@{COMMIT}",
        f"gpu-harness @ git+http://example.org/o/r@{COMMIT}",
        f"gpu-harness @ git+file:///o/r@{COMMIT}",
        "gpu-harness @ https://example.org/gpu_harness-1.2.3-py3-none-any.whl",
        f"other @ git+https://example.org/o/r@{COMMIT}",
        f"{PINNED}\n--index-url=https://example.org",
        f"{PINNED}\n",
        "..",
        "-r other.txt",
    ],
)
def test_what_may_come_to_mean_other_code_is_refused(repository, requirement):
    with pytest.raises(UsageError, match="may come to mean other code"):
        scaffold(repository, requirement)
    assert files_of(repository) == {}


def came_from(place: Path, monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    """Let pip have noted this of where the harness was installed from; None for nothing."""
    installed = place / "gpu_harness-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-harness\nVersion: 1\n")
    if told is not None:
        (installed / "direct_url.json").write_text(json.dumps(told))
    monkeypatch.syspath_prepend(place)


@pytest.mark.parametrize(
    ("told", "own"),
    [
        (
            {"url": "https://example.org/o/r", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            PINNED,
        ),
        (
            {"url": "https://example.org/g.whl", "archive_info": {"hashes": {"sha256": HASH}}},
            f"gpu-harness @ https://example.org/g.whl#sha256={HASH}",
        ),
        ({"url": "https://user@example.org/o/r", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}, None),
        ({"url": "file:///home/me/r", "dir_info": {"editable": True}}, None),
        ({"url": "https://example.org/g.whl", "archive_info": {}}, None),
        ([], None),
        (None, None),
    ],
)
def test_what_this_harness_came_from_is_told_where_it_is_one_thing(tmp_path, monkeypatch, told, own):
    came_from(tmp_path, monkeypatch, told)
    assert own_requirement() == own


@pytest.mark.parametrize(
    ("origin", "own"),
    [
        ("https://example.org/o/r", "https://example.org/o/r"),
        ("git@example.org:o/r.git", "https://example.org/o/r.git"),
        ("/srv/r.git", None),
    ],
)
def test_of_an_editable_installation_it_is_the_commit_that_its_clone_has_pushed(
    tmp_path, monkeypatch, origin, own
):
    clone = make_repository(tmp_path / "our clone")
    head = commit(clone, {"a": "b"}, 1)
    git(clone, "remote", "add", "origin", origin)
    came_from(tmp_path, monkeypatch, {"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert own_requirement() is None  # nobody else has the commit yet
    git(clone, "update-ref", "refs/remotes/origin/main", head)
    assert own_requirement() == (own and f"gpu-harness @ git+{own}@{head}")


def test_the_command_writes_and_says_what_is_next(repository, harness):
    done = harness("ci", "init", str(repository), "--harness", PINNED)
    assert done.status == 0
    assert {line.split()[1] for line in done.out.splitlines() if line.startswith("written")} == WRITTEN
    for settings in ("gpu-history", "require approval for all external contributors", "docs/runners.md"):
        assert settings in done.out


def test_a_dry_run_shows_the_files_and_writes_none(repository, harness):
    done = harness("ci", "init", str(repository), "--harness", PINNED, "--dry-run")
    assert done.status == 0
    assert {line.removeprefix("would write").strip() for line in done.out.splitlines()} == WRITTEN
    assert files_of(repository) == {}


def test_a_dry_run_needs_no_requirement(repository, harness, tmp_path, monkeypatch):
    came_from(tmp_path, monkeypatch, None)
    assert "--harness" in harness("ci", "init", str(repository)).failed_with(2)
    done = harness("ci", "init", str(repository), "--dry-run")
    assert done.status == 0
    assert {line.removeprefix("would write").strip() for line in done.out.splitlines()} == WRITTEN
    assert "To write them, add --harness REQUIREMENT." in done.err
    assert files_of(repository) == {}


def test_a_wrong_folder_is_told_before_anything_else_is_asked(harness, tmp_path):
    assert "nosuch is no folder" in harness("ci", "init", str(tmp_path / "nosuch")).failed_with(2)


def test_the_command_tells_programs_too(repository, harness):
    done = harness("ci", "init", str(repository), "--harness", PINNED, "--json")
    assert set(done.json["written"]) == WRITTEN
    assert done.json["harness"] == PINNED


def test_the_command_asks_where_it_cannot_know(repository, harness, tmp_path, monkeypatch):
    came_from(tmp_path, monkeypatch, None)
    assert "--harness" in harness("ci", "init", cwd=repository).failed_with(2)
    assert files_of(repository) == {}


def test_chosen_extras_are_installed_and_their_devices_measured_on(repository, harness):
    done = harness("ci", "init", str(repository), "--harness", PINNED, "--with", "tvm,opengl")
    assert done.status == 0
    assert (repository / ".github" / MEASURE_FILE).read_bytes() == composed(("opengl", "tvm"))
    [card] = read_fleet(repository / ".github" / "fleet.json").cards
    assert card.devices == ("cuda:0", "opengl:0")
    assert '"also"' not in done.out


def test_pytest_in_pull_requests_is_said_in_a_new_file_of_cards_and_installed(repository, harness):
    done = harness("ci", "init", "--harness", ".", "--pytest", "benchmarks", cwd=repository)
    assert done.status == 0, done.err
    assert read_fleet(repository / ".github" / "fleet.json").pytest == ("benchmarks",)
    assert "pytest-benchmark==" in (repository / ".github" / "requirements" / "measure.txt").read_text()
    more = harness("ci", "init", "--harness", ".", "--pytest", "more", cwd=repository)
    assert 'for pytest in pull requests write "pytest": ["more"]' in more.out


def test_a_light_comparison_is_said_in_a_new_file_of_cards(repository, harness):
    assert harness("ci", "init", "--harness", ".", "--light", cwd=repository).status == 0
    fleet = repository / ".github" / "fleet.json"
    assert read_fleet(fleet).light
    assert harness("ci", "init", "--harness", ".", "--light", "--pytest", "x", cwd=repository).status == 2
    fleet.write_text(fleet.read_text().replace('"light": true', '"light": false'))
    assert 'write "light": true' in harness("ci", "init", "--harness", ".", "--light", cwd=repository).out


def test_a_later_call_keeps_the_extras_unless_it_names_others(repository):
    scaffold(repository, PINNED, extras=("libraries", "opengl"))
    (repository / ".github" / COPIED[0]).write_text("older")
    done = scaffold(repository, PINNED, force=True)
    assert (done.written, done.extras) == ((f".github/{COPIED[0]}",), ("libraries", "opengl"))
    with pytest.raises(UsageError, match=r"measure\.txt.*--force"):
        scaffold(repository, PINNED, extras=("tvm",))
    assert scaffold(repository, PINNED, extras=(), force=True).written == (f".github/{MEASURE_FILE}",)
    assert (repository / ".github" / MEASURE_FILE).read_bytes() == composed(())


def test_cards_that_lack_an_extra_s_device_are_left_and_told_of(repository, harness):
    scaffold(repository, PINNED)
    before = (repository / ".github" / "fleet.json").read_bytes()
    done = harness("ci", "init", str(repository), "--harness", PINNED, "--with", "cpu,opengl,tvm", "--force")
    assert (repository / ".github" / "fleet.json").read_bytes() == before
    for device in ("cpu:0", "opengl:0"):
        assert (
            f'has the device {device}, so its kernels are not measured: where a runner has it, write "also"'
            in done.out
        )


@pytest.mark.parametrize("names", ["nonsense", "tvm,cuda", "tvm nonsense"])
def test_an_extra_that_there_is_not_writes_nothing(repository, harness, names):
    done = harness("ci", "init", str(repository), "--harness", PINNED, "--with", names)
    assert done.status == 2
    assert re.search("no extra for kernels called|'cuda' cannot be installed", done.err)
    assert files_of(repository) == {}


def test_this_repository_installs_itself(repository):
    scaffold(repository, ".")
    name = f".github/{HARNESS_FILE}"
    assert (repository / name).read_text() == (ROOT / name).read_text()
