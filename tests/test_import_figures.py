"""`harness import` of figures: pytest-benchmark, hyperfine, lines, CSV, github-action-benchmark, Bencher."""

from __future__ import annotations

import json

import pytest

from harness.errors import ExitCode
from harness.history.reading import read_history
from harness.records.record_files import read_run
from tests.benchmark_json import pytest_content, pytest_entry
from tests.support import caller, commit, git, make_repository


@pytest.fixture
def call(capsys, monkeypatch, own_cache):
    return caller(capsys, monkeypatch)


@pytest.fixture
def project(tmp_path):
    """A repository of twelve commits."""
    repository = make_repository(tmp_path / "project")
    for day in range(1, 13):
        commit(repository, {"a.cu": str(day), "harness.toml": ""}, day)
    return repository


def hashes(project):
    return git(project, "log", "--format=%H", "--reverse").split()


def import_file(call, project, harness, content, *more):
    path = project.parent / "file"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return call("import", harness, str(path), *more, cwd=project)


def series_of(project):
    """The figures of each case, with their unit, by card."""
    history = read_history(project / ".asv/results", project)
    return {
        (card.name, one.series.case.name): (one.series.case.unit, one.series.values.tolist())
        for card in history.cards
        for one in card.analysed
    }


def bench(name="copy", value=10.0, unit="us", **more):
    return {"name": name, "value": value, "unit": unit, **more}


def data_js(entries):
    """A file data.js with these entries by suite: commit, tool and benches, oldest first."""
    content = {
        suite: [
            {"commit": {"id": at, "message": "m"}, "date": 1.7e12 + day, "tool": tool, "benches": benches}
            for day, (at, tool, benches) in enumerate(found)
        ]
        for suite, found in entries.items()
    }
    head = {"lastUpdate": 1, "repoUrl": "https://example.org/a/b"}
    return "window.BENCHMARK_DATA = " + json.dumps({**head, "entries": content}, indent=2)


def history_of(project, tool, benches):
    """A history with a result at each commit."""
    return data_js(
        {"My suite": [(at, tool, [each]) for at, each in zip(hashes(project), benches, strict=True)]}
    )


HERE = ("--suite", "mine", "--machine", "runner 7")


def test_a_history_of_github_action_benchmark_is_a_record_for_each_commit(call, project):
    times = [10.0] * 6 + [12.0] * 6
    content = history_of(project, "customSmallerIsBetter", [bench(value=each) for each in times])
    done = import_file(call, project, "github-action-benchmark", content, "--machine", "ci")
    assert done.status == ExitCode.FINE, done.err
    assert "12 records of" in done.out
    unit, values = series_of(project)["github-action-benchmark-ci", "My_suite.copy"]
    assert (unit, values) == ("ms", pytest.approx([each / 1e3 for each in times]))
    told = call("history", "--json", cwd=project)
    assert (told.status, [each["command"] for each in told.json["events"]]) == (ExitCode.REGRESSION, [""])
    assert call("publish", "--without-asv", cwd=project).status == ExitCode.FINE
    pages = project / ".asv/html/harness"
    assert any("My_suite" in path.read_text("utf-8") for path in pages.rglob("*.json"))


def test_a_history_of_rates_is_shown_as_rates(call, project):
    rates = [2000.0] * 6 + [1500.0] * 6
    content = history_of(project, "customBiggerIsBetter", [bench(value=each, unit="GB/s") for each in rates])
    import_file(call, project, "github-action-benchmark", content, "--machine", "ci")
    [(_, (unit, values))] = series_of(project).items()
    assert (unit, values) == ("GB/s", pytest.approx(rates))
    assert call("history", cwd=project).status == ExitCode.REGRESSION


def test_commits_that_the_repository_lacks_are_left_out_and_told(call, project):
    found = [(at, "pytest", [bench(unit="iter/sec")]) for at in (hashes(project)[0], "f" * 40)]
    done = import_file(call, project, "github-action-benchmark", data_js({"S": found}), "--machine", "ci")
    assert done.status == ExitCode.FINE
    assert "Results of 1 commit are left out" in done.err
    nothing = data_js({"S": [("e" * 40, "pytest", [bench(unit="iter/sec")])] * 2})
    done = import_file(call, project, "github-action-benchmark", nothing, "--machine", "ci")
    assert (done.status, "Nothing is left to import" in done.err) == (ExitCode.USAGE, True)


def test_suites_that_hold_no_time_are_told(call, project):
    [at, *_] = hashes(project)
    sizes = [(at, "customSmallerIsBetter", [bench("wheel", 3.0, "MB")])]
    content = data_js({"Sizes": sizes, "Times": [(at, "customSmallerIsBetter", [bench()])]})
    done = import_file(call, project, "github-action-benchmark", content, "--machine", "ci")
    assert (done.status, "wheel is left out: 'MB' is no unit that is known" in done.err) == (
        ExitCode.FINE,
        True,
    )
    assert list(series_of(project)) == [("github-action-benchmark-ci", "Times.copy")]


def test_a_result_without_repetitions_has_no_interval(call, project):
    done = import_file(
        call, project, "github-action-benchmark", [bench(range="± 3%")], *HERE, "--better", "lower", "--json"
    )
    [told] = done.json
    [entry] = told["rows"]
    assert told["machine"] == "github-action-benchmark-runner-7"
    assert (entry["summary"]["time_ms"], entry["summary"]["slots"]) == (0.01, 1)
    [row] = read_run(project / told["record"]).rows
    assert row.measurement is not None
    assert row.measurement.times_ns == (10_000,)
    text = import_file(call, project, "github-action-benchmark", [bench()], *HERE, "--better", "lower").out
    assert "±%" not in text


def test_metrics_of_bencher_are_times_and_times_of_an_operation(call, project):
    content = {
        "copy": {"latency": {"value": 88.0, "lower_value": 87.0}, "throughput": {"value": 5e6}},
        "binary": {"file-size": {"value": 42.0}},
    }
    done = import_file(call, project, "bencher", content, *HERE)
    assert done.status == ExitCode.FINE
    for words in ("measure file-size is left out", "lower_value and upper_value are left out"):
        assert words in done.err
    found = {name: values for (_, name), (_, values) in series_of(project).items()}
    assert found == {"mine.copy": [pytest.approx(88e-6)], "mine.copy_per_op": [pytest.approx(200e-6)]}


def test_files_of_pytest_benchmark_know_their_commit_machine_and_rounds(call, project):
    at = hashes(project)[1]
    content = pytest_content([pytest_entry("t.py::test_add", 1e-3, 2e-3, 3e-3)], at)
    done = import_file(call, project, "pytest-benchmark", content, "--json")
    [told] = done.json
    stored = read_run(project / told["record"])
    assert (stored.run.source.commit, stored.run.source.suite) == (at, "pytest")
    assert told["machine"] == "pytest-benchmark-amd-epyc"
    assert stored.run.settings["host_name"] == "myhost"
    [row] = stored.rows
    assert row.measurement is not None
    assert row.measurement.times_ns == pytest.approx((1e6, 2e6, 3e6))


def test_lines_are_imported_by_the_card_that_they_name(call, project):
    lines = [
        {"name": "copy", "times": [1, 2], "unit": "ms", "device": f"NVIDIA {each}"} for each in ("A", "B")
    ]
    done = import_file(call, project, "lines", "\n".join(map(json.dumps, lines)), "--suite", "mine")
    assert done.status == ExitCode.FINE, done.err
    assert {card for card, _ in series_of(project)} == {"lines-nvidia-a-gpu", "lines-nvidia-b-gpu"}


TWO = data_js({each: [("a" * 40, "pytest", [bench(unit="iter/sec")])] for each in ("A", "B")})
UNIT = [bench(unit="points")]
LOWER, HIGHER = ("--better", "lower"), ("--better", "higher")
SUITE, MACHINE = ("--suite", "a"), ("--machine", "a")
REFUSED = [
    ("github-action-benchmark", [bench()], HERE, ExitCode.USAGE, "say --better higher for a tool"),
    ("github-action-benchmark", data_js({"S": []}), (*HERE, *LOWER), ExitCode.USAGE, "leave out --better"),
    ("github-action-benchmark", [bench()], (*SUITE, *LOWER), ExitCode.USAGE, "such as --machine"),
    (
        "github-action-benchmark",
        [bench()],
        (*MACHINE, *LOWER),
        ExitCode.USAGE,
        "give one with --suite",
    ),
    (
        "github-action-benchmark",
        [bench()],
        (*HERE, *HIGHER),
        ExitCode.NOT_MEASURED,
        "and lower is better",
    ),
    ("github-action-benchmark", UNIT, (*HERE, *LOWER), ExitCode.NOT_MEASURED, "'points' is no unit that"),
    ("github-action-benchmark", [bench(name=3)], (*HERE, *LOWER), ExitCode.NOT_MEASURED, "Expected `str`"),
    ("github-action-benchmark", data_js({"S": []}), HERE, ExitCode.NOT_MEASURED, "holds no benchmark"),
    ("github-action-benchmark", "window.BENCHMARK_DATA = {", HERE, ExitCode.NOT_MEASURED, "is damaged"),
    (
        "github-action-benchmark",
        TWO,
        HERE,
        ExitCode.USAGE,
        "has 2 suites, and their results cannot",
    ),
    ("github-action-benchmark", "", HERE, ExitCode.NOT_MEASURED, "is empty"),
    ("bencher", {"a": {"size": {"value": 1}}}, HERE, ExitCode.NOT_MEASURED, "measure size is left out"),
    ("bencher", [bench()], HERE, ExitCode.NOT_MEASURED, "'harness import github-action-benchmark' reads it"),
    ("bencher", {"a": {"latency": {"value": 1}}}, (*HERE, *LOWER), ExitCode.USAGE, "leave out --better"),
    ("lines", {"a": 1}, HERE, ExitCode.NOT_MEASURED, "is no file of lines, nor of any other"),
]


@pytest.mark.parametrize(("harness", "content", "more", "status", "words"), REFUSED)
def test_what_cannot_be_imported_says_why(call, project, harness, content, more, status, words):
    done = import_file(call, project, harness, content, *more)
    assert (done.status, words in done.err.replace("\n", " ")) == (status, True), done.err
    assert not (project / ".asv").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_figure_that_nothing_takes_is_a_row_without_a_time(call, project, value):
    benches = [bench(value=value), bench("good")]
    done = import_file(call, project, "github-action-benchmark", benches, *HERE, "--better", "lower")
    assert done.status == ExitCode.FINE
    assert "must be positive and finite" in done.err.replace("\n", " ")
    assert "mine.good" in {name for _, name in series_of(project)}


def test_a_name_that_means_harm_reaches_no_terminal_and_no_page(call, project):
    name = "<img src=x onerror=alert(1)>\x1b[2J"
    benches = [bench(name), bench(name), bench("other", unit=name)]
    done = import_file(call, project, "github-action-benchmark", benches, *HERE, "--better", "lower")
    assert done.status == ExitCode.FINE
    assert "\x1b" not in done.out + done.err


def hyperfine(*results):
    return {"results": [{"mean": 1.0, "stddev": 0.0, "exit_codes": [0] * 3, **each} for each in results]}


def test_commands_of_hyperfine_are_cases_with_all_their_times(call, project):
    content = hyperfine(
        {"command": "sort a", "times": [1.0, 1.1, 1.2]},
        {"command": "make", "times": [2.0], "parameters": {"jobs": "1"}},
        {"command": "make", "times": [3.0], "parameters": {"jobs": "2"}},
    )
    done = import_file(call, project, "hyperfine", content, *HERE, "--json")
    assert done.status == ExitCode.FINE, done.err
    [record] = done.json
    rows = {each["row"]["kernel"]: each["row"]["measurement"]["times_ns"] for each in record["rows"]}
    assert rows == {"sort_a": [1e9, 1.1e9, 1.2e9], "make_jobs_1": [2e9], "make_jobs_2": [3e9]}


def test_a_command_that_failed_under_hyperfine_has_no_time(call, project):
    failed = {"command": "false", "times": [1.0, 1.0], "exit_codes": [0, 3]}
    done = import_file(call, project, "hyperfine", hyperfine(failed), *HERE)
    assert (done.status, "ended with exit status 3 in 1 of its runs" in done.err) == (
        ExitCode.NOT_MEASURED,
        True,
    )


def test_a_table_is_a_record_for_each_commit(call, project):
    first, second, *_ = hashes(project)
    content = f"""name,value,unit,direction,commit
sort,10,us,lower,{first}
sort,12,us,,{first}
copy,2000,GB/s,higher,{second}
sort,14,us,lower,{second}
wheel,3,MB,lower,{second}
"""
    done = import_file(call, project, "csv", content, *HERE)
    assert (done.status, "wheel is left out: 'MB' is no unit" in done.err) == (ExitCode.FINE, True)
    found = {name: values for (_, name), (_, values) in series_of(project).items()}
    assert found == {"mine.copy_per_GB": pytest.approx([0.5]), "mine.sort": pytest.approx([0.011, 0.014])}


def test_a_table_without_commits_is_of_the_given_one(call, project):
    content = 'name,value,unit\n"sort, twice",10,us\nsort,11,us\nsort,13,us\n'
    done = import_file(call, project, "csv", content, *HERE, "--commit", hashes(project)[2])
    assert done.status == ExitCode.FINE, done.err
    found = {name: values for (_, name), (_, values) in series_of(project).items()}
    assert found == {"mine.sort_twice": pytest.approx([0.01]), "mine.sort": pytest.approx([0.012])}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("name,value,unit,speed\na,1,us,2\n", "has a column 'speed'"),
        ("name,value,unit\na,1,us\nb,2\n", "line 3 has 2 cells; expected 3"),
        ("name,value,unit\na,fast,us\n", "line 2 is no figure"),
        ("name,value,unit,direction\na,1,us,up\n", "line 2 is no figure"),
        ("name,value,unit\n,1,us\n", "line 2 has no name"),
        ("name,value,unit,commit\na,1,us,main\n", "has the commit 'main'"),
        ("name,value,unit\na,1,us\na,1,ms\n", "two units or directions"),
        ("name,value,unit\n", "holds no benchmark"),
    ],
)
def test_tables_that_are_refused(call, project, table, said):
    done = import_file(call, project, "csv", table, *HERE)
    assert (done.status, said in done.err) == (ExitCode.NOT_MEASURED, True), done.err


def saved(at, us, python, load):
    """A file of pytest-benchmark from a runner with some Python and load."""
    entry = pytest_entry("test_sort", us / 1e6)
    return pytest_content([entry], at, python_version=python, load=load)


def test_what_was_installed_otherwise_is_a_suspect_of_its_own(call, project):
    for day, at in enumerate(hashes(project)):
        late = day >= 6
        us, python = (12.0, "3.13.1") if late else (10.0, "3.12.4")
        content = saved(at, us * (1 + 1e-3 * (day % 2)), python, f"{day}.5")
        assert import_file(call, project, "pytest-benchmark", content, "--suite", "mine").status == 0
    [event] = call("history", "--json", cwd=project).json["events"]
    assert (event["cause"], event["bad"], event["accused"]) == ("dependency", hashes(project)[6], None)
    assert event["surroundings"] == ["python_version 3.12.4 → 3.13.1"]
