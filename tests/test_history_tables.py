"""Tables of a card's folder: asv's results and our records, read with and without the cache."""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from harness.errors import ExitCode, StoreError
from harness.history.sources.asv_results import AsvBenchmark, read_benchmarks, read_table
from harness.history.sources.cards import card_folders
from harness.history.sources.kept_tables import cache_file
from harness.history.sources.our_records import card_records
from tests.synthetic_history import CARDS, DriverChange, History, Suite, make_newer, truncate, write

RATE, CLOCK = "suites.Toy.track_gflops", "suites.Toy.track_sm_clock_mhz"
ALL = [["'naive'", "'tiled'"], ["1024", "2048"]]
VALUES = [1.0, 2.0, 3.0, 4.0]
COLUMNS = ("result", "params", "version", "started_at")
BENCHMARKS = {
    name: AsvBenchmark(
        name=name,
        type="track",
        unit="GFLOP/s",
        direction="higher",
        suite=None,
        version="1",
        param_names=("kernel", "size"),
        params=tuple(map(tuple, ALL)),
    )
    for name in (RATE, CLOCK)
}


@pytest.fixture(autouse=True)
def cache(own_cache):
    return own_cache


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "results" / "card"
    made.mkdir(parents=True)
    (made / "machine.json").write_text('{"machine": "card", "gpu": "A card", "version": 1}')
    return made


def commit(number):
    return f"{number:040x}"


def described(number, results=None, **changes):
    return {
        "commit_hash": commit(number),
        "params": {"driver": "570.1", "python": "any", "nothing": None},
        "result_columns": COLUMNS,
        "results": {RATE: [VALUES, ALL, "1", 7]} if results is None else results,
        "version": 2,
        **changes,
    }


def put(folder, number, results=None, **changes):
    """A file of asv's for a commit, as Python's json writes it."""
    path = folder / f"{commit(number)[-8:]}-any.json"
    path.write_text(json.dumps(described(number, results, **changes)), encoding="utf-8")
    return path


def told(value):
    return "failed" if math.isinf(value) else None if math.isnan(value) else float(value)


def figures(table, name=RATE):
    """Return, for each commit, the figure of each set of parameters, "failed", or None."""
    return {
        commit_hash: {
            parameters: told(table.values[name][row, column])
            for column, parameters in enumerate(table.columns[name])
        }
        for row, commit_hash in enumerate(table.commits)
    }


def without_nothing(found):
    return {
        commit_hash: {key: value for key, value in row.items() if value is not None}
        for commit_hash, row in found.items()
    }


def everything(table):
    """Return the content of a table, independent of the order of its columns."""
    return (
        table.commits,
        {name: without_nothing(figures(table, name)) for name in table.values},
        table.contexts,
        table.problems,
        table.machine,
    )


def anew(read, *arguments):
    """Read with an empty cache."""
    with tempfile.TemporaryDirectory() as cache, pytest.MonkeyPatch.context() as patched:
        patched.setenv("HARNESS_CACHE_DIR", cache)
        return read(*arguments)


def both(folder):
    """A table through the cache, which is what a fresh read gives."""
    cached, fresh = read_table(folder, BENCHMARKS), anew(read_table, folder, BENCHMARKS)
    assert everything(cached) == everything(fresh)
    return cached


def only(table, name=RATE):
    [row] = figures(table, name).values()
    return row


def same_in_disguise(path, text):
    """Another content of the same size and time: who sees it has read the file."""
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_figures_stand_beside_their_commit_and_parameters(folder):
    put(folder, 1)
    put(folder, 2, {RATE: [[5, 6, 7, 8], ALL, "1", 7], CLOCK: [[1980] * 4, ALL, "2", 7]})
    table = both(folder)
    assert table.machine == {"machine": "card", "gpu": "A card"}
    assert table.problems == ()
    assert table.contexts[RATE] == ({"driver": "570.1", "method": "1"},) * 2
    assert table.contexts[CLOCK] == ({"driver": "570.1"}, {"driver": "570.1", "method": "2"})
    assert figures(table) == {
        commit(1): {
            ("'naive'", "1024"): 1,
            ("'naive'", "2048"): 2,
            ("'tiled'", "1024"): 3,
            ("'tiled'", "2048"): 4,
        },
        commit(2): {
            ("'naive'", "1024"): 5,
            ("'naive'", "2048"): 6,
            ("'tiled'", "1024"): 7,
            ("'tiled'", "2048"): 8,
        },
    }
    assert without_nothing(figures(table, CLOCK)) == {
        commit(1): {},
        commit(2): dict.fromkeys(table.columns[CLOCK], 1980.0),
    }


def test_many_files_are_read_once_only(folder):
    for number in range(1, 31):
        put(folder, number)
    first = read_table(folder, BENCHMARKS)
    for path in folder.glob("*-any.json"):
        same_in_disguise(path, path.read_text().replace("1.0, 2.0", "9.0, 9.0"))
    assert everything(read_table(folder, BENCHMARKS)) == everything(first)
    fresh = figures(anew(read_table, folder, BENCHMARKS))
    assert [row["'naive'", "1024"] for row in fresh.values()] == [9.0] * 30


def test_a_damaged_file_costs_the_others_no_second_look(folder):
    whole = put(folder, 1)
    put(folder, 2, {"suites.Toy.time_other": [[1.0], 5, "1", 7]})
    first = read_table(folder, BENCHMARKS)
    assert "is left out" in " ".join(first.problems)
    same_in_disguise(whole, whole.read_text().replace("1.0, 2.0", "9.0, 9.0"))
    assert everything(read_table(folder, BENCHMARKS)) == everything(first)


@pytest.mark.parametrize("number", [0, 2, 9], ids=["before the others", "between", "after them"])
def test_a_new_file_is_all_that_is_read_beside_the_cache(folder, number):
    others = [put(folder, 1), put(folder, 3)]
    read_table(folder, BENCHMARKS)
    put(folder, number, {RATE: [[5, 6, 7, 8], ALL, "2", 7]})
    table = both(folder)
    assert table.commits == tuple(sorted(map(commit, (1, 3, number))))
    assert figures(table)[commit(number)]["'tiled'", "2048"] == 8
    for path in others:
        same_in_disguise(path, path.read_text().replace("1.0, 2.0", "9.0, 9.0"))
    put(folder, 12)
    assert figures(read_table(folder, BENCHMARKS))[commit(1)]["'naive'", "1024"] == 1


@pytest.mark.parametrize("size", ["another size", "the same size"])
def test_a_changed_file_is_read_again(folder, size):
    put(folder, 1)
    path = put(folder, 2)
    before = read_table(folder, BENCHMARKS)
    put(folder, 2, {RATE: [[5.0, 6.0, 7.0, 8.0 if size == "the same size" else 8.125], ALL, "1", 7]})
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    after = both(folder)
    assert figures(after)[commit(2)]["'naive'", "1024"] == 5
    assert figures(after)[commit(1)] == figures(before)[commit(1)]


def test_a_removed_file_is_gone_from_the_table(folder):
    paths = [put(folder, number, {RATE: [[number] * 4, ALL, "1", 7]}) for number in (1, 2, 3)]
    read_table(folder, BENCHMARKS)
    paths[1].unlink()
    after = both(folder)
    assert after.commits == (commit(1), commit(3))
    assert {row["'tiled'", "1024"] for row in figures(after).values()} == {1, 3}


def test_when_every_file_is_gone_the_cache_is_no_obstacle(folder):
    paths = [put(folder, number) for number in (1, 2)]
    read_table(folder, BENCHMARKS)
    for path in paths:
        path.unlink()
    assert read_table(folder, BENCHMARKS).commits == ()
    assert read_table(folder, BENCHMARKS).commits == ()
    put(folder, 3)
    assert both(folder).commits == (commit(3),)


@pytest.mark.parametrize("cached", [True, False])
def test_values_stay_with_their_parameters_when_kernels_come_and_go(folder, cached):
    put(folder, 1, {RATE: [[10, 20], [["'gone'", "'naive'"], ["1024"]], "1", 7]})
    if cached:
        read_table(folder, BENCHMARKS)
    put(folder, 2, {RATE: [[21, 30], [["'naive'", "'tiled'"], ["1024"]], "1", 7]})
    if cached:
        read_table(folder, BENCHMARKS)
    put(folder, 3, {RATE: [[31, 32, 22, 23], [["'tiled'", "'naive'"], ["1024", "2048"]], "1", 7]})
    assert without_nothing(figures(both(folder))) == {
        commit(1): {("'gone'", "1024"): 10, ("'naive'", "1024"): 20},
        commit(2): {("'naive'", "1024"): 21, ("'tiled'", "1024"): 30},
        commit(3): {
            ("'tiled'", "1024"): 31,
            ("'tiled'", "2048"): 32,
            ("'naive'", "1024"): 22,
            ("'naive'", "2048"): 23,
        },
    }


def test_nothing_to_measure_is_not_a_failure(folder):
    put(folder, 1, {RATE: [[None, math.nan, 3, math.inf], ALL, "1", 7]})
    table = both(folder)
    assert list(only(table).values()) == ["failed", None, 3, "failed"]
    assert np.isinf(table.values[RATE]).tolist() == [[True, False, False, True]]


def test_pythons_tokens_beyond_json_are_read(folder):
    path = put(folder, 1, {RATE: [[math.nan, math.inf, -math.inf, 4], ALL, "1", 7]})
    text = path.read_text()
    assert "NaN" in text
    assert "Infinity" in text
    table = both(folder)
    assert table.problems == ()
    assert list(only(table).values()) == [None, "failed", "failed", 4]


@pytest.mark.parametrize("result", [None, [], [1, 2, 3], [1, 2, 3, 4, 5], 7, "1234", {"a": 1}], ids=repr)
def test_a_result_that_is_not_one_figure_for_each_parameters_is_a_failure_of_all(folder, result):
    put(folder, 1, {RATE: [result, ALL, "1", 7]})
    assert list(only(both(folder)).values()) == ["failed"] * 4


@pytest.mark.parametrize("strange", ["fast", [1, 2], {"mean": 3}, 1e300, -1e300], ids=repr)
def test_a_strange_figure_is_none_and_its_neighbours_are_as_they_were(folder, strange):
    put(folder, 1, {RATE: [[1, 2, strange, 4], ALL, "1", 7]})
    put(folder, 2)
    table = both(folder)
    found, is_number = figures(table), isinstance(strange, float)
    assert list(found[commit(2)].values()) == VALUES
    assert list(found[commit(1)].values()) == [1, 2, "failed" if is_number else None, 4]
    assert table.problems == (() if is_number else (f"Results that are no numbers are left out: {RATE}.",))


def test_columns_are_found_by_their_names_and_missing_ones_at_the_end_are_none(folder):
    put(folder, 1, {RATE: [ALL, VALUES]}, result_columns=["params", "result", "version"])
    table = both(folder)
    assert list(only(table).values()) == VALUES
    assert table.contexts == {RATE: ({"driver": "570.1"},)}


def test_a_benchmark_without_parameters_has_one_column(folder):
    put(folder, 1, {RATE: [[5.5], [], "1", 7]})
    table = both(folder)
    assert table.columns[RATE] == ((),)
    assert only(table) == {(): 5.5}


def rewritten(content):
    return lambda path: path.write_bytes(content)


def edited(**changes):
    return lambda path: path.write_text(json.dumps({**described(2), **changes}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(truncate, "", id="half of it"),
        pytest.param(make_newer, "the format is 3, and this harness reads 2", id="a newer format"),
        pytest.param(edited(version=1), "this harness reads 2: 'asv update' brings", id="an older format"),
        pytest.param(
            edited(version="2"), "the format is '2', and this harness reads 2", id="a format in words"
        ),
        pytest.param(
            rewritten(b'{"version": 9, "new_layout": [NaN]}'), "the format is 9", id="another layout, newer"
        ),
        pytest.param(rewritten(b""), "", id="empty"),
        pytest.param(rewritten(b"[]"), "", id="a list"),
        pytest.param(rewritten(b"null"), "", id="null"),
        pytest.param(rewritten(b"\xff\xfe\x00"), "", id="no text"),
        pytest.param(rewritten(b'{"NaN": ' + b"[" * 200_000), "", id="deep"),
        pytest.param(edited(results=[1, 2]), "", id="results are a list"),
        pytest.param(edited(results={RATE: [VALUES, 5, "1"]}), "", id="parameters are a number"),
        pytest.param(edited(results={RATE: [[10**400] * 4, ALL, "1"]}), "", id="beyond all numbers"),
        pytest.param(edited(results={RATE: [VALUES, ALL, "1", 10**400]}), "", id="a time beyond all numbers"),
        pytest.param(edited(commit_hash=7), "", id="the commit is a number"),
        pytest.param(edited(result_columns=None), "", id="no columns"),
    ],
)
def test_a_damaged_file_is_named_and_the_others_are_read(folder, damage, words):
    put(folder, 1)
    path = put(folder, 2)
    put(folder, 3)
    damage(path)
    table = both(folder)
    assert table.commits == (commit(1), commit(3))
    assert [list(row.values()) for row in figures(table).values()] == [VALUES, VALUES]
    [problem] = table.problems
    assert problem.startswith(f"{path.name} is left out: ")
    assert words in problem
    put(folder, 2)
    assert both(folder).problems == ()


def test_a_file_that_cannot_be_opened_is_a_problem(folder):
    put(folder, 1)
    target = put(folder, 2)
    target.unlink()
    target.mkdir()
    table = both(folder)
    assert table.commits == (commit(1),)
    assert table.problems == (f"{target.name} cannot be read: Is a directory.",)


@pytest.mark.parametrize("damage", ["missing", "half of it", "a list"])
def test_without_machine_json_the_card_goes_by_its_folder(folder, damage):
    put(folder, 1)
    path = folder / "machine.json"
    if damage == "missing":
        path.unlink()
    else:
        path.write_text('{"machine": "ca' if damage == "half of it" else "[1]")
    table = both(folder)
    assert table.machine == {}
    assert len(figures(table)) == 1
    assert table.problems == ()
    problem = table.machine_problem
    assert problem.startswith("machine.json is missing or damaged (")
    assert problem.endswith("the card is called card.")


def test_benchmarks_that_are_listed_no_more_are_named_and_left_out(folder):
    put(folder, 1, {RATE: [VALUES, ALL, "1", 7], "suites.Old.track_gflops": [[1], [], "1", 7]})
    table = both(folder)
    assert set(table.values) == {RATE}
    [problem] = table.problems
    assert "1 benchmark has results but no place in benchmarks.json any more" in problem
    assert problem.endswith("suites.Old.track_gflops.")


def test_of_many_benchmarks_that_are_gone_some_are_named(folder):
    put(folder, 1, {f"suites.Old.track_{number}": [[1], [], "1", 7] for number in range(9)})
    [problem] = both(folder).problems
    assert problem.startswith("9 benchmarks have results but no place in benchmarks.json")
    assert problem.endswith("track_4 ....")


def kept_and_changed(file, **changes):
    content = msgspec.msgpack.decode(file.read_bytes())
    return msgspec.msgpack.encode({**content, **changes})


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _file: b"", id="empty"),
        pytest.param(lambda _file: os.urandom(64), id="noise"),
        pytest.param(lambda file: file.read_bytes()[:-9], id="cut"),
        pytest.param(lambda file: kept_and_changed(file, version="0"), id="another version"),
        pytest.param(lambda file: kept_and_changed(file, values=b""), id="no values"),
        pytest.param(lambda file: kept_and_changed(file, values=b"1234" * 5), id="too few values"),
        pytest.param(lambda file: kept_and_changed(file, values=b"123"), id="halves of values"),
        pytest.param(lambda file: kept_and_changed(file, layouts=[]), id="no layouts"),
        pytest.param(lambda file: kept_and_changed(file, facts=[]), id="no files"),
    ],
)
def test_a_damaged_cache_is_made_anew(folder, damage):
    for number in (1, 2):
        put(folder, number)
    first = read_table(folder, BENCHMARKS)
    file = cache_file(folder, "table")
    whole = file.read_bytes()
    file.write_bytes(damage(file))
    assert everything(read_table(folder, BENCHMARKS)) == everything(first)
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_only_costs_time(folder, monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "a file"))
    put(folder, 1)
    assert list(only(read_table(folder, BENCHMARKS)).values()) == VALUES


def test_folders_of_one_name_do_not_share_a_cache(folder, tmp_path):
    other = tmp_path / "elsewhere" / "card"
    other.mkdir(parents=True)
    path, stranger = put(folder, 1), put(other, 1, {RATE: [[9.0, 9.0, 9.0, 9.0], ALL, "1", 7]})
    os.utime(stranger, ns=(0, path.stat().st_mtime_ns))
    read_table(folder, BENCHMARKS)
    assert list(only(read_table(other, BENCHMARKS)).values()) == [9] * 4


@pytest.mark.parametrize("last", ["a", "b"])
def test_which_of_two_files_of_one_commit_comes_first_does_not_depend_on_the_cache(folder, last):
    names = {name: folder / f"{commit(1)[-8:]}-{name}.json" for name in "ab"}
    for name in sorted(names, key=lambda name: name == last):
        values = [float(ord(name))] * 4
        names[name].write_text(json.dumps(described(1, {RATE: [values, ALL, "1", 7]})))
        table = read_table(folder, BENCHMARKS)
    assert table.commits == (commit(1),)
    assert table.values[RATE][:, 0].tolist() == [98]


def in_environment(folder, name, rate, *, started_at, version="1", params=ALL):
    path = folder / f"{commit(1)[-8:]}-{name}.json"
    results = {RATE: [rate, params, version, started_at]}
    path.write_text(json.dumps(described(1, results, env_name=name)), encoding="utf-8")


def test_of_two_environments_the_newest_figure_of_each_case_counts(folder):
    in_environment(folder, "z", [1.0, 2.0, None, math.nan], started_at=7)
    in_environment(folder, "a", [None, 20.0, None, 40.0], started_at=8)
    table = read_table(folder, BENCHMARKS)
    assert list(only(table).values()) == [1, 20, "failed", 40]
    assert table.contexts[RATE][0]["environment"] == "a"
    in_environment(folder, "a", [None, 20.0, None, math.nan], started_at=6)
    table = read_table(folder, BENCHMARKS)
    assert list(only(table).values()) == [1, 2, "failed", None]
    assert table.contexts[RATE][0]["environment"] == "z"


def test_an_environment_where_nothing_ran_hides_none_that_did(folder):
    in_environment(folder, "a", VALUES, started_at=7)
    in_environment(folder, "b", None, started_at=9)
    table = read_table(folder, BENCHMARKS)
    assert list(only(table).values()) == VALUES
    assert table.contexts[RATE][0]["environment"] == "a"


@pytest.mark.parametrize("changes", [{"env_name": "\ud800"}, {"params": {"gpu": "\ud800"}}])
def test_what_the_cache_cannot_hold_is_read_all_the_same(folder, changes):
    # Where JSON has NaN, it is read by Python's own reader, which takes half a character.
    put(folder, 1, {RATE: [[math.nan, 2.0, 3.0, 4.0], ALL, "1"]}, **changes)
    for _ in range(2):
        assert list(only(read_table(folder, BENCHMARKS)).values()) == [None, 2, 3, 4]


def test_figures_of_another_method_do_not_fill_a_gap(folder):
    in_environment(folder, "a", VALUES, started_at=9, version="0")
    in_environment(folder, "b", [5.0, math.nan, math.nan, math.nan], started_at=7)
    assert list(only(read_table(folder, BENCHMARKS)).values()) == [5, None, None, None]


def test_where_all_is_of_one_environment_none_is_told(folder):
    in_environment(folder, "a", VALUES, started_at=7)
    assert "environment" not in read_table(folder, BENCHMARKS).contexts[RATE][0]


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path):
    with pytest.raises(StoreError, match=r"Cannot read .*none: No such file"):
        read_table(tmp_path / "none", BENCHMARKS)


def listed(**changes):
    known = {
        "type": "track",
        "unit": "GFLOP/s",
        "direction": "higher",
        "params": ALL,
        "param_names": ["kernel", "size"],
        "version": "1",
        "code": "...",
    }
    return {**known, **changes}


def test_benchmarks_are_as_asv_lists_them(tmp_path):
    content = {
        "version": 2,
        RATE: listed(),
        "time_x": {"type": "time", "unit": "seconds", "params": [], "version": "abc"},
        "note": "no benchmark",
        "time_odd": {"type": "time", "unit": "seconds", "params": 5, "param_names": True, "suite": [1]},
    }
    (tmp_path / "benchmarks.json").write_text(json.dumps(content))
    found = read_benchmarks(tmp_path)
    assert list(found) == [RATE, "time_x", "time_odd"]
    assert (found["time_odd"].params, found["time_odd"].param_names) == ((), ())
    assert found[RATE] == replace(BENCHMARKS[RATE], name=RATE)
    assert (found["time_x"].direction, found["time_x"].suite, found["time_x"].params) == (None, None, ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            None,
            r"There is no history in {folder}: .* Run 'harness run --commit COMMIT' or 'asv run' first",
        ),
        ('{"version": 2, "a', "is no list of benchmarks (.*). 'asv run' writes it anew."),
        ("[]", "is no list of benchmarks"),
        ('{"version": 3}', "not of the format that this harness reads, which is 2"),
        ("{}", "not of the format that this harness reads, which is 2"),
    ],
)
def test_without_a_list_of_benchmarks_there_is_nothing_to_read(tmp_path, content, words):
    if content is not None:
        (tmp_path / "benchmarks.json").write_text(content)
    with pytest.raises(StoreError, match=words.format(folder=tmp_path)) as raised:
        read_benchmarks(tmp_path)
    assert raised.value.exit_code == ExitCode.NOT_MEASURED


def test_cards_are_folders_with_results(tmp_path):
    for name in ("b-card", "a-card", "empty"):
        (tmp_path / name).mkdir()
    put(tmp_path / "b-card", 1)
    (tmp_path / "a-card" / "run.jsonl").write_text("")
    (tmp_path / "benchmarks.json").write_text("{}")
    assert [path.name for path in card_folders(tmp_path)] == ["a-card", "b-card"]
    with pytest.raises(StoreError, match="Cannot read"):
        card_folders(tmp_path / "none")


# Records

SMALL = Suite(kernels=("naive",), sizes=(1024,))


@pytest.fixture
def recorded(tmp_path):
    events = (DriverChange(card=None, at=3, driver="590.44.01"),)
    history = History(commits=4, suites=(SMALL,), tracks=("gflops",), records=True, events=events)
    return write(history, tmp_path / "recorded")


def folder_of(written):
    return written.results / CARDS[0].machine


def test_records_tell_the_context_of_each_commit(recorded):
    facts = card_records(folder_of(recorded)).facts
    assert [each.commit for each in facts] == list(recorded.commits)
    assert {each.suite for each in facts} == {"matmul"}
    assert [each.context["driver"] for each in facts] == ["580.159.04"] * 3 + ["590.44.01"]
    assert facts[0].context["compiler"] == "nvcc 13.0, V13.0.88"
    assert facts[0].context["power_limit_w"] == "700"
    assert [each.started_at for each in facts] == sorted(each.started_at for each in facts)
    assert not any(each.problem for each in facts)


def first_line(path, change):
    lines = path.read_bytes().splitlines(keepends=True)
    told = json.loads(lines[0])
    change(told["run"])
    path.write_bytes(b"".join([json.dumps(told).encode() + b"\n", *lines[1:]]))


def test_a_record_that_changed_is_read_again_and_a_removed_one_is_gone(recorded):
    folder = folder_of(recorded)
    card_records(folder)
    one, two, *_ = recorded.records(CARDS[0])
    first_line(one, lambda run: run["device"].update(driver="a longer one than before"))
    two.unlink()
    facts = card_records(folder).facts
    assert facts == anew(card_records, folder).facts
    assert len(facts) == 3
    assert facts[0].context["driver"] == "a longer one than before"


def test_a_comparison_that_unpacks_to_more_than_can_be_held_is_left_out(tmp_path, monkeypatch):
    ends = {"base": {"commit": commit(1)}, "head": {"commit": commit(2)}}
    first = json.dumps({"comparison": {**ends, "command": "compare"}}).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(first + b"\n" + bytes(10_000)))
    monkeypatch.setattr("harness.records.record_files.MOST_BYTES", 5000)
    [facts] = card_records(tmp_path).facts
    assert "unpacked it has more than 5000 bytes" in facts.problem


def test_what_was_read_of_records_is_kept(recorded):
    folder = folder_of(recorded)
    facts = card_records(folder).facts
    for path in recorded.records(CARDS[0]):
        same_in_disguise(path, " " * path.stat().st_size)
    assert card_records(folder).facts == facts
    assert all(each.problem for each in anew(card_records, folder).facts)


@pytest.mark.parametrize("content", [b"", b"\x93\x00", os.urandom(50)], ids=["empty", "cut", "noise"])
def test_a_damaged_cache_of_records_is_made_anew(recorded, content):
    folder = folder_of(recorded)
    facts = card_records(folder).facts
    cache_file(folder, "records").write_bytes(content)
    assert card_records(folder).facts == facts
    assert len(cache_file(folder, "records").read_bytes()) > 100


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda run: run["source"].update(dirty=True), ""),
        (lambda run: run["source"].update(commit=None), ""),
        (lambda run: run.update(command="compare"), ""),
        (lambda run: run.update(schema_version=99), "its schema is 99, and this harness reads up to"),
    ],
    ids=["dirty", "no commit", "a comparison", "a newer schema"],
)
def test_a_record_that_is_no_run_of_a_commit_tells_nothing_of_one(recorded, change, problem):
    [path, *_] = recorded.records(CARDS[0])
    first_line(path, change)
    facts = card_records(folder_of(recorded)).facts
    assert facts[0].commit == ""
    assert facts[0].context == {}
    assert problem in facts[0].problem
    assert bool(facts[0].problem) == bool(problem)
    assert facts[1].commit == recorded.commits[1]


@pytest.mark.parametrize("content", [b"", b'{"run": {"schema', b"[]\n", b"\xff\xff\n"])
def test_a_damaged_record_is_named(recorded, content):
    [path, *_] = recorded.records(CARDS[0])
    path.write_bytes(content)
    facts = card_records(folder_of(recorded)).facts
    assert facts[0].problem.startswith(f"{path.name} is left out: ")
    assert not any(each.problem for each in facts[1:])


def test_what_a_device_does_not_tell_is_not_known(recorded):
    [path, *_] = recorded.records(CARDS[0])
    first_line(path, lambda run: run["identity"].update(ecc="unavailable: no permission", vbios=""))
    [facts, *_] = card_records(folder_of(recorded)).facts
    assert "ecc" not in facts.context
    assert "vbios" not in facts.context
    assert facts.context["mig"] == "off"


def test_single_precision_is_enough_for_a_figure(folder):
    put(folder, 1, {RATE: [[1234.56789, 1e-9, 3.0e12, 4], ALL, "1", 7]})
    table = both(folder)
    assert np.allclose(table.values[RATE][0], [1234.56789, 1e-9, 3.0e12, 4], rtol=1e-6)
