"""Files that appear whole or not at all, and a cache that is never an error."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from harness.system.cache import BinaryCache, cache_dir, write_atomically


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
    cache.put(key, b"\x7fELF\x00")
    assert cache.get(key) == b"\x7fELF\x00"
    assert BinaryCache().get(key) == b"\x7fELF\x00"


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
