"""Files that appear whole or not at all, and a cache that is never an error."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from harness.system.cache import BinaryCache, Manifest, cache_dir, export_root, write_atomically
from tests.support import write_files


def test_the_cache_lies_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    assert BinaryCache().folder == tmp_path / "mine" / "binaries"
    assert not (tmp_path / "mine").exists()


def test_a_relative_variable_is_below_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE_DIR", "mine")
    # Absolute, because workers run elsewhere.
    assert cache_dir() == tmp_path / "mine"


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_it_is_the_users(monkeypatch, tmp_path, value):
    monkeypatch.delenv("HARNESS_CACHE_DIR")
    if value is not None:
        monkeypatch.setenv("HARNESS_CACHE_DIR", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir().name == "harness"


def test_a_file_is_written_with_its_folders(tmp_path):
    path = tmp_path / "deep" / "er" / "file"
    write_atomically(path, b"\x00one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_others_may_read_what_is_written(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        found = os.umask(before)
    assert found == 0o027
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_writing_leaves_the_umask_alone(tmp_path, monkeypatch):
    # A process has one, and it is read only by setting it: files of other threads would get the wrong one.
    def changed(_):
        raise AssertionError("the umask is every thread's")

    monkeypatch.setattr(os, "umask", changed)
    write_atomically(tmp_path / "file", b"one")
    assert (tmp_path / "file").read_bytes() == b"one"


@pytest.mark.parametrize("what", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, what, error):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def failing(*_):
        raise error

    monkeypatch.setattr(*(("pathlib.Path.replace",) if what == "replace" else ("os.fsync",)), failing)
    with pytest.raises(error):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_the_disk_is_told_to_keep_all_of_a_file(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
    write_atomically(tmp_path / "file", b"four")
    write_atomically(tmp_path / "file", b"three", durable=False)
    assert sizes == [4]


def test_a_folder_in_the_way_leaves_nothing_behind(tmp_path):
    (tmp_path / "file" / "taken").mkdir(parents=True)
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_reader_sees_a_whole_file(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([letter]) * 100_000 for letter in b"abc"]
    write_atomically(path, contents[0])
    over = threading.Event()

    def write():
        for content in contents * 10:
            write_atomically(path, content)
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    while not over.is_set():
        seen.add(path.read_bytes())
    thread.join()
    assert seen <= set(contents)


def test_what_is_put_is_got():
    cache = BinaryCache()
    key = cache.key("text", ("-O3",), "nvcc 13", "sm_90")
    assert cache.get(key) is None
    cache.put(key, b"\x7fELF\n\x00\n")
    assert cache.get(key) == b"\x7fELF\n\x00\n"
    assert BinaryCache().get(key) == b"\x7fELF\n\x00\n"


@pytest.mark.parametrize(
    ("changed", "got"),
    [
        pytest.param({}, True, id="nothing"),
        pytest.param({"first/other.h": ""}, True, id="a new file of a name that is never included"),
        pytest.param({"second/sub/a.h": "2"}, False, id="a header"),
        pytest.param({"second/sub/a.h": None}, False, id="a header that is gone"),
        pytest.param({"first/sub/a.h": "1"}, False, id="a new file that is found before a header"),
        pytest.param({"first/b.h": ""}, False, id="a new file that a header asks for if it is there"),
    ],
)
def test_a_binary_is_got_while_its_headers_are_what_they_were(tmp_path, changed, got):
    write_files(tmp_path, {"first/c.h": "", "second/sub/a.h": "1"})
    folders = [str(tmp_path / name) for name in ("first", "second", "absent")]
    cache = BinaryCache(tmp_path / "cache")
    cache.put("abc", b"binary", Manifest.of([f"{folders[1]}/sub/a.h"], folders, ["b.h"]))
    for name, text in changed.items():
        if text is None:
            (tmp_path / name).unlink()
        else:
            write_files(tmp_path, {name: text})
    assert cache.get("abc") == (b"binary" if got else None)


def test_a_cache_tells_what_all_that_came_from_it_relied_on(tmp_path):
    write_files(tmp_path, {"a.h": "1"})
    manifest = Manifest.of([str(tmp_path / "a.h")], ())
    writing, reading = BinaryCache(tmp_path / "cache"), BinaryCache(tmp_path / "cache")
    assert BinaryCache(tmp_path / "cache").relied_on == ()
    writing.put("abc", b"binary", manifest)
    assert writing.relied_on == (manifest,)
    assert (reading.get("abc"), reading.relied_on) == (b"binary", (manifest,))
    reading.forgo()
    assert reading.relied_on is None


def test_a_binary_in_the_place_of_another_is_none(tmp_path):
    cache = BinaryCache(tmp_path)
    cache.put("abc", b"binary")
    (tmp_path / "ab" / "abc").rename(tmp_path / "ab" / "abd")
    assert cache.get("abd") is None


@pytest.mark.parametrize(
    ("folder", "root"),
    [
        ("commits/COMMIT/kernels/toy", "commits/COMMIT"),
        ("commits/COMMIT-0123456789ab", "commits/COMMIT-0123456789ab"),
        ("commits/main/toy", None),
        ("COMMIT/toy", None),
    ],
)
def test_a_folder_of_an_exported_commit_tells_its_top(tmp_path, folder, root):
    commit = "0123456789abcdef" * 2 + "01234567"
    found = export_root(tmp_path / folder.replace("COMMIT", commit))
    assert found == (root and tmp_path / root.replace("COMMIT", commit))


def test_an_empty_file_is_no_binary(tmp_path):
    cache = BinaryCache(tmp_path)
    cache.put("abc", b"")
    assert cache.get("abc") is None


def test_everything_that_changes_a_binary_changes_its_key():
    keys = [
        BinaryCache.key(text, options, compiler, arch)
        for text in ("text", "text ")
        for options in ((), ("-a",), ("-b",), ("-a", "-b"), ("-a-b",))
        for compiler in ("nvcc 12", "nvcc 13")
        for arch in ("sm_80", "sm_90")
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", ("c",), "d", "e"), ("a", ("bc",), "d", "e")),
        (("a", ("b", "c"), "d", "e"), ("a", ("b",), "cd", "e")),
        (("a", (), "bc", "d"), ("a", (), "b", "cd")),
        (("1:a", (), "", ""), ("1:a1:", (), "", "")),
    ],
)
def test_parts_of_a_key_do_not_run_together(one, other):
    assert BinaryCache.key(*one) != BinaryCache.key(*other)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, below):
    (tmp_path / "file").write_bytes(b"mine")
    cache = BinaryCache(tmp_path / "file" / below)
    cache.put("abc", b"binary")
    assert cache.get("abc") is None
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_full_disk_is_no_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    cache = BinaryCache(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    cache.put("abc", b"binary")
    assert cache.get("abc") is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
