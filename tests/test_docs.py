"""The documents say what there is: examples run, tables match the code, links lead somewhere."""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import unquote

import click
import msgspec
import numpy as np
import pytest

from harness import Kernel, Ladder, Rung
from harness.cli import COMMANDS, cli
from harness.cli.ci_command import command as ci
from harness.cli.report_command import COMMANDS as REPORT_COMMANDS
from harness.config import VARIABLES, Config
from harness.device import backends
from harness.errors import DeviceError, ExitCode
from harness.history import changes, export, triage
from harness.history.reading import read_history
from harness.history.row_summary import RowSummary
from harness.history.sources import our_records
from harness.integrations.asv.tracks import TRACKS
from harness.judgement.gates import GATES, GatePolicy
from harness.judgement.judge import Direction, MetricName
from harness.judgement.noise import Calibration, CaseNoise, PlantedRate, write_calibration
from harness.judgement.statistics import changepoints, exact, windows
from harness.judgement.statistics.drift import find_drift
from harness.judgement.statistics.paired import ProcessEffect
from harness.records import types
from harness.records.record_files import RecordWriter, RunResult
from harness.report.site import card_documents as site_cards
from harness.report.site import documents, overview, publishing
from harness.report.terminal.history_tables import as_json as history_json
from harness.run.run import Session, SessionSettings
from harness.suite.loader import load
from tests import synthetic_history as synthetic
from tests.support import KERNELS, ROOT, Recorder, device_is_missing, run_command

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / ".github").rglob("*.md")])

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?:#|//) (\S+/\S+)\n")
"""The first line of a code block that is a file."""
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
HARNESS_LINE = re.compile(r"\bharness (report (?:ladder|bounds)|(?:ci )?[a-z]+)\b([^|`\n]*)")


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """A page's text below a heading, up to the next one that is not deeper."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text_of(page), re.MULTILINE)
    assert found, f"{page} has no section {heading!r}"
    rest = text_of(page)[found.end() :]
    ended = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: ended.start()] if ended else rest


def own_part(text: str) -> str:
    """A section without its subsections."""
    deeper = re.search(r"^#+ ", text, re.MULTILINE)
    return text[: deeper.start()] if deeper else text


def rows(text: str) -> list[list[str]]:
    """The cells of every table in a text, row by row, headings and rulers left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rulers = [number for number, row in enumerate(cells) if all(set(cell) <= set("-: ") for cell in row)]
    skipped = {number for ruler in rulers for number in (ruler - 1, ruler)}
    return [row for number, row in enumerate(cells) if number not in skipped]


def words(cell: str) -> list[str]:
    """Return the texts in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def first_words(text: str) -> list[str]:
    return [word for row in rows(text) for word in words(row[0])]


# Examples


def write_example(root: Path) -> Path:
    """The files that suites.md shows, and the headers that it says to copy."""
    for _, code in FENCE.findall(text_of("suites.md")):
        if named := NAMED.match(code):
            path = root / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code[named.end() :], encoding="utf-8")
    for header in (KERNELS / "portable").iterdir():
        (root / "kernels" / "portable").mkdir(parents=True, exist_ok=True)
        (root / "kernels" / "portable" / header.name).write_bytes(header.read_bytes())
    return root


@pytest.mark.parametrize(
    "device",
    ["null:0", "opencl:0", pytest.param("cuda:0", marks=pytest.mark.gpu)],
    ids=lambda spec: spec[:-2],
)
def test_the_smallest_suite_works(tmp_path, device):
    try:
        backends.open_device(device).close()
    except DeviceError as error:
        device_is_missing(device, error.message)
    root = write_example(tmp_path / "project")
    sizes = ("--size", "1", "--size", "100003")
    done = run_command("check", "--device", device, *sizes, "--json", "axpy", cwd=root)
    assert done.returncode == ExitCode.FINE, done.stderr
    found = [entry["row"]["status"] for result in json.loads(done.stdout) for entry in result["rows"]]
    assert found == ["not-built" if device.startswith("null") else "verified"] * 2


def test_the_smallest_suite_is_what_asv_is_given(tmp_path, monkeypatch):
    root = write_example(tmp_path / "project")
    monkeypatch.syspath_prepend(str(root))
    spec = importlib.util.spec_from_file_location("documented_suites", root / "benchmarks" / "suites.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert module.Axpy.params == [["axpy"], [2**24, 2**26, 2**16]]


def test_the_python_that_reads_a_record_works(tmp_path, project, capsys, monkeypatch):
    from harness.measure.timing import MeasureSettings
    from harness.suite.loader import load
    from harness.suite.planning import plan

    loaded = load(project.suite)
    quick = MeasureSettings(max_time_s=0.01, warmup_min_s=0.001, min_time_s=0.001)
    settings = SessionSettings(device="null", measure=quick)
    with Session(loaded, settings, Recorder()) as session:
        result: RunResult = session.run(plan(loaded.suite, quick=True))
    with RecordWriter(tmp_path, result.run) as writer:
        for row in result.rows:
            writer.add(row)
        path = writer.finish(complete=True)
    path.rename(tmp_path / "record.jsonl")
    monkeypatch.chdir(tmp_path)
    code = next(code for kind, code in FENCE.findall(section("records.md", "Reading it")) if kind == "python")
    exec(compile(code, "records.md", "exec"), {})
    assert "toy.plain[n=64] measured" in capsys.readouterr().out


def test_the_python_that_shows_the_schema_of_a_report_works(capsys):
    found = FENCE.findall(section("pull-requests.md", "What is handed over"))
    exec(compile(next(code for kind, code in found if kind == "python"), "pull-requests.md", "exec"), {})
    assert "schema_version" in capsys.readouterr().out


def test_the_python_that_replays_a_comparison_works(tmp_path, project, capsys, monkeypatch):
    source = (project.suite / "plain.cu").read_text(encoding="utf-8")
    for time_ns in (1_000_000, 1_100_000):
        project.commit({"kernels/toy/plain.cu": f"#define NULL_DEVICE_NS {time_ns}\n{source}"})
    done = run_command("compare", "HEAD~1..HEAD", "plain", "--device", "null", cwd=project.root)
    assert done.returncode == ExitCode.REGRESSION, done.stderr
    (record,) = project.root.rglob("*.jsonl")
    record.rename(tmp_path / "comparison.jsonl")
    monkeypatch.chdir(tmp_path)
    found = FENCE.findall(section("comparison.md", "Reading the record"))
    exec(compile(next(code for kind, code in found if kind == "python"), "comparison.md", "exec"), {})
    out = capsys.readouterr().out
    assert "toy.plain[n=64]: regression then, regression now, by 4 processes" in out
    assert out.count("  +10.000 %") == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_well_formed(page):
    for kind, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "python" and "\nKernel(" not in f"\n{code}":
            ast.parse(code)
        if kind == "json":
            json.loads(code if code.lstrip().startswith("{") else f"{{{code}}}")


# Links


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[str, str]]:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield unquote(path), anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


def test_the_site_has_no_warning(tmp_path):
    """Sphinx reads each page, and finds the target of each link and every command."""
    read = [sys.executable, "-m", "sphinx", "-b", "dummy", "-q", "-W", "--keep-going", "-c", "docs/site"]
    done = subprocess.run(
        [*read, "-d", str(tmp_path / "read"), ".", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_site_has_a_page_for_each_command(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    reference_pages = importlib.import_module("reference_pages")
    pages = reference_pages.pages(ROOT)
    for name in ALL_COMMANDS:
        page = pages[f"{reference_pages.FOLDER}/harness-{name.replace(' ', '-')}.md"]
        assert page.startswith(f"# harness {name}\n")
        assert f"```{{options}} harness {name}\n" in page
        assert reference_pages.command(f"harness {name}") is command_named(name)
        assert "| 130 | `INTERRUPTED` |" in page
    codes = "| 1 | `X` | a kernel fails. `run`, `ci`: a case does. `sweep`: no case does |\n"
    told = reference_pages._exit_codes(codes, "ci compare")
    assert told == "| 1 | `X` | a kernel fails. a case does |\n"
    link = "[x](commands.md#bounds), [y](commands.md#exit-codes), [z](records.md)"
    turned = re.findall(r"\(([^)]+)", reference_pages.linked(ROOT, "docs/history", link))
    folder = f"../{reference_pages.FOLDER}"
    assert turned == [f"{folder}/harness-static.md#bounds", f"{folder}/exit-codes.md", "records.md"]


def test_every_page_is_linked_from_the_index():
    linked = {(DOCS / path).resolve() for path, _ in links(DOCS / "index.md")}
    assert linked >= {page for page in DOCS.glob("*.md") if page.name != "index.md"}


# Commands


ALL_COMMANDS = [
    *(name for name in COMMANDS if name != "ci"),
    *(f"ci {name}" for name in ci.commands),
    *(f"report {name}" for name in REPORT_COMMANDS),
]


def command_named(name: str) -> click.Command:
    found: click.Command | None = cli
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found
    return found


def options_of(command: click.Command) -> set[str]:
    context = click.Context(command, help_option_names=["-h", "--help"])
    return {
        option
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_help_says_what_every_option_does_and_the_page_does_not_repeat_it(name):
    command = command_named(name)
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    assert [each.name for each in options if not (each.help or each.show_default)] == []
    # It shows what other commands print, to people.
    assert any("--json" in each.opts for each in options) == (name != "demo")
    repeated = [row for row in rows(section("commands.md", f"harness {name}")) if row[0].startswith("`--")]
    assert repeated == []


def test_the_first_table_has_every_command():
    first = first_words(own_part(section("commands.md", "Commands")))
    assert sorted(first) == sorted(f"harness {name}" for name in ALL_COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_shown_exist(page):
    for line in re.split(r"\n| [|;&]+ ", page.read_text(encoding="utf-8")):
        for name, rest in HARNESS_LINE.findall(line):
            if name in ALL_COMMANDS:
                own = re.sub(r"'[^']*'", "", rest)  # what is quoted is another command
                unknown = set(OPTION.findall(own)) - options_of(command_named(name))
                assert not unknown, f"{page.name}: harness {name}{rest}"
            elif line.lstrip().startswith("$ harness"):
                pytest.fail(f"{page.name}: there is no command {name}")


def test_exit_codes_are_those_of_the_code():
    table = {int(row[0]): words(row[1])[0] for row in rows(section("commands.md", "Exit codes"))}
    assert table == {int(code): code.name for code in ExitCode}


def test_settings_are_those_of_the_code():
    table = {
        words(row[0])[0]: words(row[1]) for row in rows(section("commands.md", "Configuration")) if row[2:]
    }
    names = [field.name for field in fields(Config) if field.name not in ("root", "static")]
    variables = {name: f"HARNESS_{name.upper()}" for name in names}
    assert table == {name: [each] if each in VARIABLES else [] for name, each in variables.items()}


def test_json_keys_are_those_of_the_code():
    result, summary = (
        {word for row in table for word in words(row[0])}
        for table in (
            [row for row in rows(section("commands.md", "JSON")) if len(row) == width] for width in (2, 3)
        )
    )
    assert summary == {field.name for field in fields(RowSummary)}
    assert result == {"run", "complete", "record", "problem", "wall_s", "rows"}


@pytest.mark.parametrize(
    ("command", "module", "function"),
    [
        ("compare", "comparison_tables", "as_json"),
        ("calibrate", "calibrations", "as_json"),
        ("rejudge", "comparison_tables", "rejudged_as_json"),
    ],
    ids=lambda name: name,
)
def test_json_keys_of_comparisons_are_those_of_the_code(command, module, function):
    tree = ast.parse((ROOT / "harness" / "report" / "terminal" / f"{module}.py").read_text(encoding="utf-8"))
    as_json = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    (given,) = [n.value for n in as_json.body if isinstance(n, ast.Return) and isinstance(n.value, ast.Dict)]
    keys = [
        each.value
        for key, value in zip(given.keys, given.values, strict=True)
        for each in ([key] if key else cast("ast.Call", value).args[1:])  # ** of fields_of(record, *names)
        if isinstance(each, ast.Constant)
    ]
    section_of = section("commands.md", f"harness {command}")
    assert first_words(section_of[section_of.index("With `--json` the output is") :]) == keys


def test_the_faults_of_the_null_device_are_those_of_the_code():
    source = (ROOT / "harness" / "device" / "backends" / "null.py").read_text(encoding="utf-8")
    listed = re.search(r"^Faults: (.*?)\.", source, re.MULTILINE | re.DOTALL)
    assert listed
    assert first_words(section("commands.md", "The null device")) == re.split(r",\s+", listed[1])


# Tables of other pages


def test_tracks_are_those_of_the_code():
    table = {
        words(row[0])[0]: (row[1], row[2]) for row in rows(section("asv.md", "One measurement, many tracks"))
    }
    assert table == {name: (track.unit, track.direction) for name, track in TRACKS.items()}


def constants(node: ast.AST) -> list[str]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def reasons_in(tree: ast.Module) -> Iterator[str]:
    """Codes given to a class of errors, a Refusal, or anything by the keyword `reason`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                if any(isinstance(target, ast.Name) and target.id == "reason" for target in targets):
                    yield from constants(getattr(statement, "value", None) or ast.Pass())
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = node.args[:1] if called == "Refusal" else node.args[2:3] if called == "_row" else []
            given += [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            for value in given:
                branches = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                yield from (text for b in branches if isinstance(b, ast.Constant) for text in constants(b))


def test_every_reason_of_the_code_is_documented():
    files = (ROOT / "harness").rglob("*.py")
    reasons = {
        code for file in files for code in reasons_in(ast.parse(file.read_text(encoding="utf-8"))) if code
    }
    assert {"wrong-result", "needs-cuda", "timed-out", "error"} <= reasons
    of_rows, of_verdicts, of_outputs = (
        set(first_words(section("errors.md", f"Reasons of {what}")))
        for what in ("rows", "verdicts", "outputs")
    )
    assert of_rows | (of_verdicts & reasons) | of_outputs == reasons
    assert of_verdicts - reasons == reasons_of_verdicts() - reasons


def reasons_of_verdicts() -> set[str]:
    """Codes that a trial or comparison gives to a verdict, those of failed sides apart."""
    sources = [
        (ROOT / "harness" / f"{name}.py").read_text("utf-8")
        for name in (
            "judgement/case_trial",
            "judgement/limits",
            "run/compare",
            "run/inspect_pairs",
            "run/pair_session",
        )
    ]
    codes = {
        text
        for source in sources
        for text in constants(ast.parse(source))
        if re.fullmatch(r"[a-z]+(-[a-z]+)+", text)
    }
    # A code of one word looks like any other: it stands right behind its status.
    status = "|".join(get_args(types.VerdictStatus))
    for source in sources:
        codes |= {code for code in re.findall(rf'"(?:{status})", "([a-z]+)"', source) if code not in status}
    judged = {
        f"{direction}-in-{metric}" for direction in get_args(Direction) for metric in get_args(MetricName)
    }
    return codes | judged | {*GATES, "interrupted", "record-ends"}


def test_the_exception_tree_is_that_of_the_code():
    tree = section("errors.md", "The exception tree")
    documented = dict(re.findall(r"\b(\w+Error) +([a-z-]+)", tree))
    found = {}
    for file in (ROOT / "harness").rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                for code in reasons_in(ast.Module([node], [])):
                    found[node.name] = code
    found = {name: code for name, code in found.items() if name.endswith("Error")}
    assert documented == found


RECORDS = [
    value
    for value in vars(types).values()
    if is_dataclass(value)
    and isinstance(value, type)
    and value.__module__ == types.__name__
    and not value.__subclasses__()  # a base is described with each record that it is of
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_record_is_documented(record):
    documented = first_words(own_part(section("records.md", record.__name__)))
    assert sorted(documented) == sorted(field.name for field in fields(record))


def test_the_version_of_records_is_documented():
    assert rows(section("records.md", "Versions"))[-1][0] == str(types.SCHEMA_VERSION)


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("comparison.md", "Statuses", get_args(types.VerdictStatus)),
        ("comparison.md", "Gates", (*GATES, "power-cap")),
        ("comparison.md", "Attribution", get_args(types.Attribution)),
        ("records.md", "Calibrations", [f.name for kind in (Calibration, CaseNoise) for f in fields(kind)]),
        ("history.md", "What a change is", get_args(changes.Kind)),
        ("history.md", "Epochs", our_records.CONTEXT),
        ("history.md", "Exports", export.COLUMNS),
    ],
)
def test_a_table_has_the_names_of_the_code_in_their_order(page, heading, names):
    assert first_words(section(page, heading)) == list(names)


LIMITS = {
    "memory-clock": ("memory_clock_apart",),
    "sm-clock": ("sm_clock_spread", "sm_clock_spread_capped", "sm_clock_step"),
    "clocks-apart": ("arms_apart",),
    "canary": ("canary_above_usual", "canary_apart"),
    "power-cap": ("power_cap_share",),
}
"""Limits of each gate that are shares."""


def test_limits_of_the_gates_are_those_of_the_code():
    told = {words(row[0])[0]: row[2] for row in rows(section("comparison.md", "Gates"))}
    for gate, names in LIMITS.items():
        limits = {f"{100 * getattr(GatePolicy(), name):g}" for name in names}
        assert set(re.findall(r"([\d.]+) %", told[gate])) == limits, gate


def test_gates_stand_for_what_the_code_says():
    from harness.judgement.attribution import _OF_GATE

    table = {
        gate: words(row[0])[0]
        for row in rows(section("comparison.md", "Attribution"))
        for gate in words(row[2])
    }
    assert table == _OF_GATE


def test_snapshots_are_documented_where_measuring_is():
    names = {field.name for field in fields(types.Snapshot)} - {"at_ns"}
    own = own_part(section("measurement.md", "Telemetry"))
    assert {row_word for row in rows(own) for row_word in words(row[0])} == names


@pytest.mark.parametrize("header", sorted((KERNELS / "portable").glob("*.h")), ids=lambda path: path.stem)
def test_the_dialect_is_that_of_the_headers(header):
    defined = re.findall(r"^#define (\w+(?:\([^)]*\))?)", header.read_text(encoding="utf-8"), re.MULTILINE)
    assert first_words(section("suites.md", "The portable dialect")) == defined


def test_fields_of_a_kernel_are_documented():
    documented = [words(row[0])[0] for row in rows(section("suites.md", "Kernels"))]
    assert sorted(documented) == sorted(field.name for field in fields(Kernel))


def test_the_layers_are_those_that_are_tested():
    from tests.test_architecture import LAYERS

    block = FENCE.findall(section("layout.md", "Layers"))[0][1]
    drawn = [tuple(re.sub(r"\(.*?\)", "", line).replace(" ", "").split(",")) for line in block.splitlines()]
    assert [set(line) for line in drawn] == [set(layer) for layer in reversed(LAYERS)]


def test_every_room_and_place_of_the_layout_is_there():
    rooms = [row[0].strip("`/") for row in rows(section("layout.md", "Rooms"))]
    assert {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")} == set(rooms)
    named = [word for row in rows(section("layout.md", "Where is")) for word in words(row[1]) if "/" in word]
    assert len(named) > 20
    assert [place for place in named if not (ROOT / "harness" / place).exists()] == []


def test_the_functions_of_the_four_paths_are_there():
    steps = re.findall(r"^\| `(.+?\.py): (\w+)` \|", section("layout.md", "Four paths"), re.MULTILINE)
    assert len(steps) > 30
    for file, name in steps:
        assert f"def {name}(" in (ROOT / "harness" / file).read_text(encoding="utf-8"), (file, name)


def test_what_others_ask_for_is_held_by_tests_that_exist():
    asked, languages = (rows(section("repositories.md", name)) for name in ("What they ask", "Languages"))
    assert min(len(asked), len(languages)) > 9
    for *cells, held in [*asked, *languages]:
        files: list[str] = []
        named = re.findall(r"`(test_\w+)(\.py)?`", held)
        assert named or ([*cells, held] in languages and not any(cell.startswith("yes") for cell in cells))
        for before, (name, is_file) in zip([("", ""), *named], named, strict=False):
            if is_file:
                files = [*files, name] if before[1] else [name]
            for file in () if is_file else files:
                assert f"def {name}(" in (ROOT / f"tests/{file}.py").read_text(encoding="utf-8"), (file, name)


def test_words_of_the_glossary_are_in_order():
    terms = glossary()
    assert terms == sorted(set(terms), key=str.lower)


def test_the_glossary_holds_words_that_users_meet_and_few_of_them():
    """A word that only the source uses is explained by its docstring."""
    shown = [path for path in (ROOT / "tests" / "golden" / "expected").rglob("*") if path.is_file()]
    pages = [path for path in PAGES if path.name != "GLOSSARY.md"]
    met = "\n".join(path.read_text(encoding="utf-8") for path in [*pages, *shown]).lower()
    words_met = re.sub(r"[\s_-]+", " ", met)
    terms = [each for term in glossary() for each in term.lower().replace("-", " ").split(", ")]
    assert [term for term in terms if not re.search(rf"\b{term}s?\b", words_met)] == []
    assert len(glossary()) < 60


def glossary() -> list[str]:
    return [row[0].strip("*") for row in rows((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))]


def test_the_exploits_are_those_that_are_tried():
    from tests.exploits import EXPLOITS

    documented = [[cell.strip("`") for cell in row] for row in rows(section("verification.md", "Exploits"))]
    assert documented == [[name, each.does, each.end] for name, each in EXPLOITS.items()]
    tried = sum(bool(each.on) for each in EXPLOITS.values())
    assert f"first {tried} is a test" in text_of("verification.md").replace("\n", " ")


# Histories


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A synthetic history with one of everything that a document may have: its documents, by their names."""
    folder, html = tmp_path_factory.mktemp("history"), tmp_path_factory.mktemp("html")
    card, suite = synthetic.CARDS[0], synthetic.Suite(kernels=("naive",), sizes=(1024, 2048))
    failing = synthetic.Failed(case="naive 2048", start=55, stop=60)
    step = synthetic.Step(case="naive 1024", at=30, effect=-0.1, registers=6)
    given = synthetic.History(
        commits=60, cards=(card,), suites=(suite,), events=(step, failing), records=True
    )
    written = synthetic.write(given, folder)
    effect = ProcessEffect(value=0.001, standard_error=0.001, df=20, quads=25)
    calibration = Calibration(
        measured_at="2026-01-01T00:00:00+00:00",
        harness_version="1",
        uuid=None,
        driver="580",
        cases={"matmul.naive[m=1024,n=1024,k=1024]": CaseNoise(time=(effect,), smallest_visible=0.02)},
        verdicts=10,
        planted={"1": PlantedRate(planted=2, found=1)},
    )
    write_calibration(written.results / card.machine, calibration)
    ends = {side: {"commit": written.commits[at]} for side, at in (("base", 1), ("head", 2))}
    lines = [{"comparison": {"command": "compare", **ends}}, {"problem_changes": ["a looser bound"]}]
    compared = "".join(f"{json.dumps(line)}\n" for line in lines)
    (written.results / card.machine / "20260101T000000Z-a..b-c-d.jsonl").write_text(compared)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HARNESS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        (found,) = read_history(written.results, folder).conclusion.open
        change, commit = found.change, written.commits[found.change.bad][:12]
        accepted = triage.Decision(
            id=change.id, case=change.case, commit=commit, reason="a trade", author="A"
        )
        triage.acknowledge(folder, accepted)
        matmul = load(KERNELS / "matmul").suite
        rungs = [Rung("plain", "naive", 1, sizes=size) for size in (1024, 2048)]
        ladders = (*matmul.ladders, Ladder("measured", "What this history measures", rungs=rungs))
        suites = [dataclasses.replace(matmul, ladders=ladders)]
        publishing.publish_pages(written.results, folder, html, project="p", suites=suites)
        history = read_history(written.results, folder)
    api = html / publishing.FOLDER / "api"
    documents = {path.relative_to(api): json.loads(path.read_text("utf-8")) for path in api.rglob("*.json")}
    return {
        "history": msgspec.to_builtins(history_json(history)),
        **{name.parts[0].removesuffix(".json"): document for name, document in documents.items()},
    }


MAPS = ("annotations", "peaks", "settings", "machine", "decision", "macros", "contexts[]", "sources")
"""Objects with keys of their own."""


def leaves(document: Any, above: str = "") -> Iterator[str]:
    """Dotted paths to everything in a document that is no object; [] stands for each of a list."""
    if isinstance(document, Mapping) and above.rpartition(".")[2] not in MAPS:
        for key, value in document.items():
            yield from leaves(value, f"{above}.{key}" if above else key)
    elif isinstance(document, list) and document and isinstance(document[0], Mapping):
        for each in document:
            yield from leaves(each, f"{above}[]")
    else:
        yield above


def documented_leaves(text: str) -> set[str]:
    """Keys of a table, without those of objects whose own keys are there too."""
    named = first_words(text)
    assert len(named) == len(set(named)), "a key stands there twice"
    return {key for key in named if not any(other.startswith((f"{key}.", f"{key}[")) for other in named)}


@pytest.mark.parametrize("name", ["site", "events", "series", "cards", "runs", "suites"])
def test_keys_of_the_api_are_documented(published, name):
    heading = f"{name}.json" if name in ("site", "events") else f"{name}/*.json"
    documented = documented_leaves(section("history.md", heading))
    found = set(leaves(published[name][0] if name == "events" else published[name]))
    if name == "events":
        found = {"worst", *(key for key in found if not key.startswith("worst."))}
    # A null of an object, an empty one of lists.
    found -= {key for key in found if any(other.startswith((f"{key}.", f"{key}[")) for other in found)}
    if name == "series":
        found -= {f"changes[].{key}" for key in leaves(published["changes"][0])}
    assert found == documented


def test_keys_of_a_change_are_documented(published):
    (change,) = published["changes"]
    documented = documented_leaves(section("history.md", "Change"))
    assert set(leaves(change)) == documented
    placed = {"at", "diagnosis", "first", "last"}
    assert {field.name for field in fields(changes.Change)} - placed <= documented
    assert {
        key
        for key in published["series"]["changes"][0]
        if f"changes[].{key}" in first_words(section("history.md", "series/*.json"))
    } == placed


def test_rows_of_commits_are_documented(published):
    (told,) = (
        row[1] for row in rows(section("history.md", "JSON API")) if words(row[0]) == ["commits/<k>.json"]
    )
    assert len(published["commits"][0]) == len(told.rpartition("lists of ")[2].split(", "))
    assert f"{documents.COMMITS_A_FILE} k" in told


def test_every_document_of_the_api_is_listed(published):
    listed = {
        re.split(r"[./]", word)[0]
        for row in rows(own_part(section("history.md", "JSON API")))
        for word in words(row[0])
    }
    assert listed == published.keys() - {"history"}


def test_json_keys_of_a_history_are_documented(published):
    text = section("commands.md", "harness history")
    assert set(leaves(published["history"])) == documented_leaves(
        text[text.index("With `--json` the output is") :]
    )


def test_json_keys_of_publishing_are_documented():
    text = section("commands.md", "harness publish")
    documented = first_words(text[text.index("With `--json` the output is") :])
    assert sorted(documented) == sorted(field.name for field in fields(publishing.Published))


def test_json_keys_of_rebuilding_are_documented():
    module = pytest.importorskip("harness.integrations.asv.write_results")
    told = section("commands.md", "harness rebuild")
    assert first_words(told[told.index("With `--json` the output is") :]) == [
        field.name for field in fields(module.WrittenResults)
    ]


def test_states_of_changes_are_documented():
    table = {words(row[0])[0]: row[2] for row in rows(section("history.md", "States"))}
    assert list(table) == [state for state in get_args(triage.State) if state]
    opened = {state: change_in(state).is_open for state in table}
    assert {state: told == "yes" for state, told in table.items()} == opened


def change_in(state: str) -> triage.Stated:
    return triage.Stated(change=cast("changes.Change", None), state=cast("triage.State", state))


def test_attributions_of_changes_are_documented_with_their_kinds():
    table = {words(row[0])[0]: words(row[2]) for row in rows(section("history.md", "Code or card"))}
    attributions = get_args(changes.Attribution)
    assert list(table) == list(attributions)
    for each in attributions:
        assert {changes._kind(each, way, "lower") for way in (-0.1, 0.1)} == set(table[each])


def test_keys_of_the_triage_file_are_documented():
    table = {words(row[0])[0]: row[1] for row in rows(section("history.md", "The triage file"))}
    assert list(table) == list(triage._KINDS)
    assert [key for key, needed in table.items() if needed == "no"] == list(triage._OPTIONAL)


def test_the_triage_file_that_is_shown_works(tmp_path):
    ((_, code),) = (
        each for each in FENCE.findall(section("history.md", "The triage file")) if each[0] == "toml"
    )
    (tmp_path / triage.FILE).write_text(code, encoding="utf-8")
    (decision,) = triage.read_triage(tmp_path)
    assert all(getattr(decision, key) is not None for key in triage._KINDS)
    assert decision.expires == dt.date(2027, 3, 31)


def test_the_pages_are_documented():
    table = {words(row[0])[0]: words(row[1]) for row in rows(own_part(section("history.md", "The pages")))}
    assets = ROOT / "harness" / "report" / "site" / "assets"
    assert set(table) == {f"{page}.html" for page in publishing.PAGES}
    policy = FENCE.findall(section("history.md", "Publishing"))
    (policy,) = (code.strip() for kind, code in policy if kind == "text")
    for page, parameters in table.items():
        assert f'content="{policy}"' in publishing.page_html(Path(page).stem), page
        script = (assets / "static" / f"page-{Path(page).stem}.js").read_text("utf-8")
        for parameter in parameters:
            assert f'"{parameter}"' in script, f"{page} takes no {parameter}"


def test_figures_of_a_history_are_those_of_the_code():
    def told(heading: str, *figures: str) -> None:
        for figure in figures:
            assert figure in " ".join(section("history.md", heading).split()), (heading, figure)

    shares = (f"{100 * share:g} %" for share in (changes._CLOCK_APART, changes._AT_LIMIT))
    told("Code or card", *shares, f"{changes._WARMER_C:g} °C", f"{changes._WINDOW} points")
    assert changes._SHARE == 1 / 3
    told("Code or card", "less than a third", "at least a third")
    told("The smallest change", f"3. {100 * changes.SMALLEST:g} %.")
    assert triage._BACK == 1 / 4
    told("States", "a quarter of the regression")
    told(
        "The pages",
        f"newest {site_cards.RUNS} runs",
        f"{100 * changes._CLOCKED:g} %",
        f"{overview._EVENTS} events",
    )
    told(
        "JSON API",
        f"{overview._EVENTS} [events]",
        f"{overview._CHANGES} [changes]",
        f"is {documents.SCHEMA_VERSION};",
        f": {documents.EVERY} |",
    )
    told("How a change is found", f"{windows.LOOK_AHEAD} points back")


def test_sources_of_the_search_are_those_of_the_code():
    text = section("history.md", "How a change is found")
    pages = re.findall(r"\(\d{4}\) (\d+)\N{EN DASH}(\d+)", text)
    assert len(pages) == 5
    docs = f"{exact.__doc__} {windows.__doc__}"
    for first, last in pages:
        assert f"{first}-{last}" in docs


def test_what_the_search_sees_and_what_it_does_not_is_as_documented():
    noise = 1 + 0.005 * np.random.default_rng(1).standard_normal(120)

    def stepped(start: int, stop: int) -> list[int]:
        values = noise[: max(stop, 60)].copy()
        values[start:stop] *= 1.1
        return [change.at for change in changepoints.find_changes(values).changes]

    assert stepped(60, 62) == []
    assert stepped(60, 63) == [60]
    values = noise.copy()
    values[60:66] *= 1.1
    found = changepoints.find_changes(values)
    assert found.changes == ()
    assert [(brief.start, brief.stop) for brief in found.brief] == [(60, 66)]
    flat = np.concatenate((np.ones(30), np.full(2, 1.1)))
    assert [change.at for change in changepoints.find_changes(flat).changes] == [30]


@pytest.mark.parametrize(("share", "commits"), [(0.10, 400), (0.05, 120)])
def test_slow_decay_is_told_as_drift(share, commits):
    text = section("history.md", "How a change is found").replace("\n ", "")
    assert f"{100 * share:g} % over {commits}" in text
    noise = 0.005 * np.random.default_rng(1).standard_normal(commits)
    drift = find_drift(np.exp(noise - share * np.arange(commits) / commits))
    assert drift is not None
    assert drift.effect < -share / 2
