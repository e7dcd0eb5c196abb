"""Series: which figures stand in them, in which order, under which name, and where their epochs begin."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise, product

import numpy as np
import pytest

from harness.history.figures import METRICS, direction_of
from harness.history.reading import open_results, read_card
from harness.history.series import series_of
from harness.history.sources.asv_results import AsvBenchmark, CardTable, figures_of, groups_of
from harness.history.sources.our_records import (
    CONTEXT,
    CardRecords,
    Commits,
    RecordLayout,
    RunFacts,
    read_commits,
    suites_of,
)
from harness.system import git
from harness.system.git import Commit
from tests import synthetic_history as synthetic
from tests.synthetic_history import (
    CARDS,
    Absent,
    Card,
    DriverChange,
    Failed,
    History,
    Missing,
    Suite,
    numbers,
    write,
)

RATE = "suites.Matmul.track_gflops"
GRID = (("'naive'", "'tiled'"), ("1024", "2048"))
KEYS = tuple((kernel, size) for kernel in GRID[0] for size in GRID[1])
CARD = CARDS[0]
SMALL = Suite(kernels=("naive", "tiled"), sizes=(1024, 2048))


@pytest.fixture(autouse=True)
def cache(own_cache):
    return own_cache


def line(count):
    """A line of commits, each dated before its parent."""
    return Commits(tuple(Commit(f"c{n}", 1_000_000 - n, "Ada", f"Commit {n}") for n in range(count)))


def benchmark(name=RATE, **changes):
    known = {
        "type": "track",
        "unit": "GFLOP/s",
        "direction": "higher",
        "suite": None,
        "version": "1",
        "param_names": ("kernel", "size"),
        "params": GRID,
    }
    return AsvBenchmark(name=name, **{**known, **changes})


def table(hashes, columns=None, values=None, versions=None, annotations=None, environments=None):
    """A card's table; `values` by benchmark, a row a commit, and inf for what failed."""
    columns = columns or {RATE: KEYS}
    values = values or {RATE: [[float(n + 1)] * len(columns[RATE]) for n in range(len(hashes))]}
    contexts = {}
    for name in values:
        contexts[name] = [
            {key: value for key, value in known.items() if key in CONTEXT}
            for known in annotations or [{} for _ in hashes]
        ]
        for key, told in (("method", (versions or {}).get(name)), ("environment", environments)):
            for known, value in zip(contexts[name], told or [], strict=False):
                known.update({key: value} if value else {})
    return CardTable(
        machine={},
        commits=tuple(hashes),
        columns=columns,
        values={name: np.array(rows, np.float32).reshape(len(hashes), -1) for name, rows in values.items()},
        contexts={name: tuple(each) for name, each in contexts.items()},
        problems=(),
    )


def series(of, benchmarks=None, commits=None, metric=None):
    """The series of asv's files."""
    listed = {each.name: each for each in ([benchmark()] if benchmarks is None else benchmarks)}
    commits = commits or line(len(of.commits))
    figures = chain.from_iterable(figures_of(of, listed))
    return list(series_of("card", figures, groups_of(listed), commits, metric))


def the_card(results, commits):
    found = open_results(results, commits)
    [card] = found.cards
    return read_card(card, found, commits)


def one(of, **others):
    return series(of, **others)[0]


CELLS = tuple((kernel, size, float(size)) for kernel in ("naive", "tiled") for size in ("1024", "2048"))


def facts(*contexts, suite="matmul"):
    """A record a commit, in order; None where there is none."""
    return [
        RunFacts(file=f"{n}.jsonl", size=1, suite=suite, commit=f"c{n}", context=context, layouts=(0,))
        for n, context in enumerate(contexts)
        if context is not None
    ]


def recorded(records, rates=()):
    """The series of records that have the four rates of each, else all 1."""
    values = np.full((len(records), len(CELLS), len(METRICS)), np.nan, np.float32)
    values[:, :, 0] = rates or 1.0
    of = CardRecords(tuple(records), (RecordLayout("GFLOP/s", ("naive", "tiled"), CELLS),), values.ravel())
    commits = line(1 + max(int(each.commit[1:]) for each in records))
    return list(series_of("card", of.figures.values(), suites_of([of], commits), commits))


def epochs_of(*contexts):
    """Return the epoch of each record with one of these contexts, and the cause of each epoch."""
    found, *_ = recorded(facts(*contexts))
    return found.epoch.tolist(), [each.changed for each in found.epochs]


# Order and commits


def test_points_are_in_the_order_of_first_parents_whatever_rows_and_dates_say():
    found = one(
        table(["c3", "c0", "c4", "c1"], values={RATE: [[3] * 4, [0.5] * 4, [4] * 4, [1] * 4]}),
        commits=line(6),
    )
    assert found.positions.tolist() == [0, 1, 3, 4]
    assert found.values.tolist() == [0.5, 1, 3, 4]


def test_results_of_commits_that_are_not_in_the_history_are_left_out():
    found = one(table(["c1", "stranger", "c0"], values={RATE: [[2] * 4, [9] * 4, [1] * 4]}), commits=line(5))
    assert found.positions.tolist() == [0, 1]
    assert found.values.tolist() == [1, 2]


def test_of_two_results_of_a_commit_the_later_one_by_name_counts():
    found = one(table(["c0", "c0", "c1"], values={RATE: [[1] * 4, [2] * 4, [3] * 4]}))
    assert found.positions.tolist() == [0, 1]
    assert found.values.tolist() == [2, 3]


def test_a_commit_without_a_figure_is_no_point_and_one_that_failed_is():
    rows = [[1, 1, 1, 1], [np.nan, 2, 2, 2], [np.inf, 3, 3, 3], [4, 4, 4, np.nan]]
    found = series(table(["c0", "c1", "c2", "c3"], values={RATE: rows}))
    assert found[0].positions.tolist() == [0, 2, 3]
    assert found[0].failed.tolist() == [False, True, False]
    assert np.isnan(found[0].values).tolist() == [False, True, False]
    assert found[3].positions.tolist() == [0, 1, 2]


def test_a_case_that_never_had_anything_to_say_is_no_series():
    rows = [[np.nan, 1, np.inf, 1], [np.nan, 1, np.inf, 1]]
    names = [each.case.name for each in series(table(["c0", "c1"], values={RATE: rows}))]
    assert names == ["matmul.naive@2048", "matmul.tiled@1024", "matmul.tiled@2048"]


def test_a_whole_history_with_skewed_clocks_and_merges_is_what_was_measured(tmp_path):
    history = History(
        commits=30,
        suites=(SMALL,),
        tracks=("gflops", "sm_clock_mhz", "time_ms"),
        skewed_clocks=True,
        merge_every=4,
        events=(
            Missing(card=None, start=5, stop=8),
            Failed(case="naive 1024", start=10, stop=12),
            Absent(case="tiled 2048", stop=20),
        ),
    )
    written = write(history, tmp_path / "skewed")
    truth, commits = numbers(history, CARD), read_commits(written.repository)
    assert tuple(commit.hash for commit in commits.line) == written.commits
    assert any(later.time_s < earlier.time_s for earlier, later in pairwise(commits.line))
    card = the_card(written.results, commits)
    assert card.problems == ()
    found = {each.series.case.name: each.series for each in card.analysed}
    for column, (_, kernel, size) in enumerate(history.cases):
        own = found[f"matmul.{kernel}@{size}"]
        there = np.flatnonzero(truth.measured & (truth.status[:, column] != synthetic.ABSENT))
        assert own.positions.tolist() == there.tolist()
        good = truth.status[there, column] == synthetic.OK
        assert (own.failed == ~good).all()
        np.testing.assert_allclose(own.values[good], truth.rate[there[good], column], rtol=1e-6)
        clock = own.beside["sm_clock_mhz"]
        assert (np.isfinite(clock) == good).all()
        np.testing.assert_allclose(clock[good], truth.sm_clock_mhz[there[good], column], rtol=1e-6)


def test_results_of_commits_that_were_rebased_away_are_counted(tmp_path):
    written = write(History(commits=12, suites=(SMALL,), tracks=("gflops",)), tmp_path / "rebased")
    synthetic.rebase_away(written, 4, 7)
    commits = read_commits(written.repository)
    card = the_card(written.results, commits)
    [problem] = card.problems
    assert problem.startswith("3 of 12 results are of commits that are not in the history at hand")
    for each in card.analysed:
        assert each.series.positions.tolist() == [0, 1, 2, 3, *range(7, 12)]


def test_an_older_revision_sees_the_commits_up_to_it(tmp_path):
    written = write(History(commits=10, suites=(SMALL,), tracks=("gflops",)), tmp_path / "older")
    commits = read_commits(written.repository, "HEAD~4")
    assert len(commits) == 6
    card = the_card(written.results, commits)
    assert {len(each.series.positions) for each in card.analysed} == {6}
    assert card.problems[0].startswith("4 of 10 results are of commits that are not in the history")


def test_a_machine_split_over_two_folders_is_two_cards_with_half_the_points_each(tmp_path):
    written = write(History(commits=10, suites=(SMALL,), tracks=("gflops",)), tmp_path / "split")
    synthetic.split_machine(written, CARD)
    commits = read_commits(written.repository)
    results = open_results(written.results, commits)
    cards = [read_card(card, results, commits) for card in results.cards]
    points = [set(card.analysed[0].series.positions.tolist()) for card in cards]
    assert cards[0].machine == cards[1].machine
    assert [len(each) for each in points] == [5, 5]
    assert not points[0] & points[1]


def test_kernels_that_came_and_went_keep_each_series_its_own_values(tmp_path):
    history = History(commits=10, suites=(SMALL,), tracks=("gflops",))
    written = write(history, tmp_path / "kernels")
    synthetic.change_kernels_before(written, 5, without=("tiled",), extra=("ancient",))
    commits = read_commits(written.repository)
    truth = numbers(history, CARD).rate
    for cached in (False, True):
        card = the_card(written.results, commits)
        found = {each.series.case.name: each.series for each in card.analysed}
        assert list(found) == [f"matmul.{kernel}@{size}" for _, kernel, size in history.cases], cached
        np.testing.assert_allclose(found["matmul.naive@2048"].values, truth[:, 1], rtol=1e-6)
        assert found["matmul.tiled@1024"].positions.tolist() == list(range(5, 10))
        np.testing.assert_allclose(found["matmul.tiled@1024"].values, truth[5:, 2], rtol=1e-6)


def test_what_had_another_name_once_is_told_and_not_shown(tmp_path):
    written = write(History(commits=10, suites=(SMALL,), tracks=("gflops",)), tmp_path / "renamed")
    synthetic.rename_before(written, 4, {RATE: "suites.Matrix.track_gflops"})
    commits = read_commits(written.repository)
    card = the_card(written.results, commits)
    assert {tuple(each.series.positions.tolist()) for each in card.analysed} == {tuple(range(4, 10))}
    [problem] = card.problems
    assert "suites.Matrix.track_gflops" in problem


# Names and directions


@pytest.mark.parametrize(
    ("kind", "unit", "told", "direction"),
    [
        ("track", "GFLOP/s", None, "higher"),
        ("track", "GB/s", None, "higher"),
        ("track", "items/second", None, "higher"),
        ("track", "MFLOPS", None, "higher"),
        ("track", "ms", None, "lower"),
        ("track", "MHz", None, "unknown"),
        ("track", "", None, "unknown"),
        ("track", "bytes", None, "lower"),
        ("time", "seconds", None, "lower"),
        ("memory", "bytes", None, "lower"),
        ("peakmemory", "bytes", None, "lower"),
        ("time", "GFLOP/s", None, "lower"),
        ("track", "GFLOP/s", "lower", "lower"),
        ("track", "ms", "higher", "higher"),
        ("track", "MHz", "none", "none"),
        ("track", "GFLOP/s", "up", "higher"),
        ("track", "ms", ["higher"], "lower"),
    ],
)
def test_which_way_is_better(kind, unit, told, direction):
    assert direction_of({"type": kind, "unit": unit, "direction": told}) == direction


def test_names_of_a_suites_cases():
    found = series(table(["c0"]))
    assert [each.case.name for each in found] == [
        "matmul.naive@1024",
        "matmul.naive@2048",
        "matmul.tiled@1024",
        "matmul.tiled@2048",
    ]
    case = found[1].case
    assert (case.suite, case.kernel, case.size) == ("matmul", "naive", "2048")
    assert (case.metric, case.unit, case.direction) == ("gflops", "GFLOP/s", "higher")
    assert [each.case.order for each in found] == sorted(each.case.order for each in found)


@pytest.mark.parametrize(
    ("written", "kernel"),
    [
        ("'it''s'", "its"),
        ('"it\'s"', "it's"),
        ("'gr\\u00fcn'", "grün"),
        ("naive", "naive"),
        ("None", "None"),
        ("{[]: 1}", "{[]: 1}"),
        ("'a\x00b'", "'a\x00b'"),
        ("(", "("),
    ],
)
def test_a_kernel_is_called_as_its_author_wrote_it(written, kernel):
    key = ((written, "1024"),)
    found = one(table(["c0"], columns={RATE: key}), benchmarks=[benchmark(params=((written,), ("1024",)))])
    assert found.case.kernel == kernel


def test_a_suites_name_may_be_told():
    found = one(table(["c0"]), benchmarks=[benchmark(suite="mat_mul")])
    assert found.case.name == "mat_mul.naive@1024"


TIMED = "bench.Sorting.time_sort"


@pytest.mark.parametrize(
    ("params", "names", "name", "size"),
    [
        ((), (), "bench.Sorting.time_sort", ""),
        ((("10", "20"),), ("n",), "bench.Sorting.time_sort(10)", "10"),
        ((("10",), ("'quick'", "'merge'")), ("n", "how"), "bench.Sorting.time_sort(10, quick)", "10, quick"),
    ],
)
def test_benchmarks_of_no_suite_go_by_their_own_names(params, names, name, size):
    timed = benchmark(TIMED, type="time", unit="seconds", direction=None, param_names=names, params=params)
    keys = tuple(product(*params))
    rows = {TIMED: [[0.25] * len(keys), [0.5] * len(keys)]}
    found = series(table(["c0", "c1"], columns={TIMED: keys}, values=rows), benchmarks=[timed])
    assert len(found) == len(keys)
    case = found[0].case
    assert (case.name, case.suite, case.kernel, case.size) == (name, "bench.Sorting", "time_sort", size)
    assert (case.metric, case.unit, case.direction) == ("time", "seconds", "lower")
    assert found[0].values.tolist() == [0.25, 0.5]


def test_a_function_outside_any_class_is_a_case_too():
    plain = benchmark("track_size", param_names=(), params=(), unit="bytes", direction=None)
    found = one(
        table(["c0"], columns={"track_size": ((),)}, values={"track_size": [[7]]}), benchmarks=[plain]
    )
    assert (found.case.name, found.case.suite, found.case.kernel) == ("track_size", "", "track_size")


CLOCK, TIME = "suites.Matmul.track_sm_clock_mhz", "suites.Matmul.track_time_ms"


def tracks():
    columns = {RATE: KEYS, CLOCK: KEYS[::-1], TIME: KEYS[:2]}
    values = {
        RATE: [[1, 2, 3, 4], [5, 6, 7, 8]],
        CLOCK: [[40, 30, 20, 10], [80, 70, 60, np.nan]],
        TIME: [[0.1, 0.2], [0.3, 0.4]],
    }
    listed = [
        benchmark(),
        benchmark(CLOCK, unit="MHz", direction="none"),
        benchmark(TIME, unit="ms", direction="lower"),
    ]
    return table(["c0", "c1"], columns=columns, values=values), listed


def test_other_tracks_stand_beside_the_headline_figure_of_their_own_case():
    of, listed = tracks()
    found = {each.case.name: each for each in series(of, benchmarks=listed)}
    assert len(found) == 4
    assert found["matmul.naive@1024"].beside["sm_clock_mhz"][0] == 10
    assert np.isnan(found["matmul.naive@1024"].beside["sm_clock_mhz"][1])
    assert found["matmul.tiled@2048"].beside["sm_clock_mhz"].tolist() == [40, 80]
    np.testing.assert_allclose(found["matmul.naive@2048"].beside["time_ms"], [0.2, 0.4])
    assert "time_ms" not in found["matmul.tiled@1024"].beside


def test_another_metric_takes_the_place_of_the_headline_and_of_what_is_no_suites():
    of, listed = tracks()
    timed = benchmark(TIMED, type="time", unit="seconds", param_names=(), params=())
    found = series(of, benchmarks=[*listed, timed], metric="time_ms")
    assert [each.case.metric for each in found] == ["time_ms", "time_ms"]
    assert found[0].case.direction == "lower"
    assert series(of, benchmarks=listed, metric="no_such") == []


# Epochs

OLD, NEW = {"driver": "570"}, {"driver": "580"}


def test_a_change_of_driver_begins_an_epoch():
    assert epochs_of(OLD, OLD, NEW, NEW) == ([0, 0, 1, 1], [(), ("driver 570 → 580",)])


def test_a_missing_record_begins_none_and_is_no_point():
    assert epochs_of(OLD, None, OLD, {}, NEW, None, NEW)[0] == [0, 0, 0, 1, 1]
    assert epochs_of(None, None, OLD, OLD)[0] == [0, 0]
    assert epochs_of({}, {})[1] == [()]


def test_what_is_told_later_begins_none_and_is_heeded_from_then_on():
    told = {**OLD, "compiler": "nvcc 13"}
    assert epochs_of(OLD, told, OLD)[0] == [0, 0, 0]
    assert epochs_of(OLD, told, {**OLD, "compiler": "nvcc 14"}) == (
        [0, 0, 1],
        [(), ("compiler nvcc 13 → nvcc 14",)],
    )


def test_a_context_that_comes_back_goes_on_with_its_epoch():
    assert epochs_of(OLD, NEW, OLD, NEW, NEW, OLD)[0] == [0, 1, 0, 1, 1, 0]
    third = {"driver": "590"}
    assert epochs_of(OLD, NEW, third, OLD) == (
        [0, 1, 2, 0],
        [(), ("driver 570 → 580",), ("driver 580 → 590",)],
    )


def test_what_differs_is_told_in_words():
    before = {"driver": "570", "compiler": "nvcc 13", "power_limit_w": "700", "gpu_uuid": "GPU-1"}
    after = {"driver": "580", "compiler": "nvcc 13", "power_limit_w": "500", "gpu_uuid": "GPU-2"}
    _, changed = epochs_of(before, after)
    assert changed[1] == ("driver 570 → 580", "power limit, W 700 → 500", "card GPU-1 → GPU-2")


def test_an_epoch_is_labelled_by_what_began_it_and_the_first_by_what_there_was():
    found, *_ = recorded(facts({"driver": "570", "compiler": "nvcc 13"}, {"driver": "580"}))
    assert [each.label for each in found.epochs] == ["driver 570, compiler nvcc 13", "driver 570 → 580"]
    assert [each.start for each in found.epochs] == [0, 1]


def test_another_method_of_measuring_begins_an_epoch_of_its_benchmark_alone():
    other = "suites.Copy.track_gbytes_per_s"
    of = table(
        ["c0", "c1", "c2"],
        columns={RATE: KEYS, other: KEYS},
        values={RATE: [[1] * 4] * 3, other: [[1] * 4] * 3},
        versions={RATE: ["1", "2", "2"], other: ["1", "1", "1"]},
    )
    found = {each.case.suite: each for each in series(of, benchmarks=[benchmark(), benchmark(other)])}
    assert found["matmul"].epoch.tolist() == [0, 1, 1]
    assert found["matmul"].epochs[1].changed == ("method of measuring 1 → 2",)
    assert found["copy"].epoch.tolist() == [0, 0, 0]


def test_figures_of_another_environment_are_of_another_epoch():
    found = one(table(["c0", "c1", "c2"], environments=["checkout", "virtualenv", "checkout"]))
    assert found.epoch.tolist() == [0, 1, 0]
    assert found.epochs[1].changed == ("asv's environment checkout → virtualenv",)


def test_the_record_of_another_suite_tells_nothing_of_this_one():
    found = recorded([*facts(OLD, OLD), *facts(OLD, NEW, suite="copy")])
    assert {each.case.suite: each.epoch.tolist() for each in found} == {"copy": [0, 1], "matmul": [0, 0]}


def test_of_two_records_of_a_commit_the_newer_one_counts():
    found, *_ = recorded([*facts(OLD, OLD), *facts(None, NEW)], [[1] * 4, [2] * 4, [3] * 4])
    assert (found.epoch.tolist(), found.values.tolist()) == ([0, 1], [1, 3])


def test_without_records_what_asv_kept_of_the_machine_tells_the_driver():
    told = [{"driver": "570", "os": "Linux"}, {"driver": "570", "os": "BSD"}, {"driver": "580"}]
    found = one(table(["c0", "c1", "c2"], annotations=told))
    assert found.epoch.tolist() == [0, 0, 1]
    assert found.epochs[1].changed == ("driver 570 → 580",)


def test_where_there_are_records_what_asv_kept_tells_no_epoch(tmp_path):
    changed = DriverChange(card=None, at=3, driver="590.44.01")
    history = History(commits=6, suites=(SMALL,), tracks=("gflops",), records=True, events=(changed,))
    written = write(replace(history, driver_in_params=True), tmp_path / "driver")
    for path in written.results.glob("*/*-checkout-pyany.json"):
        path.write_text(path.read_text("utf-8").replace(changed.driver, CARD.driver), "utf-8")

    def epochs():
        card = the_card(written.results, read_commits(written.repository))
        return {tuple(one.series.epoch.tolist()) for one in card.analysed}

    assert epochs() == {(0, 0, 0, 1, 1, 1)}
    for path in written.records(CARD):
        path.unlink()
    assert epochs() == {(0,) * 6}


def test_a_series_has_only_the_epochs_that_it_has_points_in():
    nan = np.nan
    rates = [[1, nan, 1, nan], [1, 1, nan, nan], [1, 1, 1, 1]]
    all_, later, around, last = recorded(facts(OLD, NEW, {"driver": "590"}), rates)
    assert all_.epoch.tolist() == [0, 1, 2]
    assert later.epoch.tolist() == [0, 1]
    assert [each.changed for each in later.epochs] == [(), ("driver 580 → 590",)]
    assert [each.changed for each in around.epochs] == [(), ("driver 570 → 590",)]
    assert [each.start for each in around.epochs] == [0, 1]
    assert [each.changed for each in last.epochs] == [()]


def test_a_series_that_begins_in_a_later_epoch_has_that_one_first():
    nan = np.nan
    rates = [[1, nan, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    _, later, *_ = recorded(facts(OLD, NEW, OLD), rates)
    assert later.epoch.tolist() == [0, 1]
    assert [each.start for each in later.epochs] == [0, 1]
    assert later.epochs[1].changed == ("driver 580 → 570",)


@pytest.mark.parametrize("told_by", ["records", "asv"])
def test_a_change_of_driver_in_a_whole_history_is_an_epoch_of_that_card(tmp_path, told_by):
    cards = (CARD, replace(CARD, serial=2))
    history = History(
        commits=12,
        cards=cards,
        suites=(SMALL,),
        tracks=("gflops",),
        events=(DriverChange(card=cards[0].machine, at=7, driver="590.44.01"),),
        records=told_by == "records",
        driver_in_params=told_by == "asv",
    )
    written = write(history, tmp_path / "driver")
    commits = read_commits(written.repository)
    results = open_results(written.results, commits)
    by_name = {card.name: read_card(card, results, commits) for card in results.cards}
    changed, same = (by_name[card.machine] for card in cards)
    for each in changed.analysed:
        assert each.series.epoch.tolist() == [0] * 7 + [1] * 5
        assert each.series.epochs[1].changed == ("driver 580.159.04 → 590.44.01",)
    assert {len(each.series.epochs) for each in same.analysed} == {1}


def test_a_new_version_of_the_method_in_a_whole_history_is_an_epoch(tmp_path):
    written = write(History(commits=12, suites=(SMALL,), tracks=("gflops",)), tmp_path / "method")
    synthetic.change_version_at(written, 5)
    card = the_card(written.results, read_commits(written.repository))
    assert {tuple(each.series.epoch.tolist()) for each in card.analysed} == {(0,) * 5 + (1,) * 7}


def test_a_card_without_a_record_or_a_driver_has_one_epoch(tmp_path):
    history = History(
        commits=6,
        cards=(Card(),),
        suites=(SMALL,),
        tracks=("gflops",),
        events=(DriverChange(card=None, at=3, driver="590"),),
    )
    written = write(history, tmp_path / "bare")
    commits = read_commits(written.repository)
    card = the_card(written.results, commits)
    assert {len(each.series.epochs) for each in card.analysed} == {1}
    assert git.resolve(written.repository, "HEAD") == commits[-1].hash
