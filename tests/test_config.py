"""Settings: their files, their precedence, and the messages on wrong values."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import fields

import pytest

from harness.config import DIRECTIONS, Config, StaticConfig, load_config
from harness.errors import ConfigError, ExitCode
from tests.sampling import JSON, PLAIN, given, replaced, st

SCORE = '{ track_score = "higher" }'
EVERY = """
suites = ["a", "b/*"]
scripts = ["python bench.py"]
timers = ["bench:timeit"]
device = "opencl:0"
l2 = "hot"
timeout_s = 7
results = "elsewhere"
directions = { track_score = "higher" }
static = { archs = ["sm_86"], fail_on = ["spill"], max_registers = 128 }
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "project"
    made.mkdir()
    return made


def put(folder, text, name="harness.toml"):
    (folder / name).write_text(text, encoding="utf-8")


def test_without_a_file_there_are_defaults(folder):
    assert load_config(folder) == Config(root=folder)


def test_every_setting_can_be_set(folder):
    put(folder, EVERY)
    assert load_config(folder) == Config(
        root=folder,
        suites=("a", "b/*"),
        scripts=("python bench.py",),
        timers=("bench:timeit",),
        device="opencl:0",
        l2="hot",
        timeout_s=7.0,
        results="elsewhere",
        directions={"track_score": "higher"},
        static=StaticConfig(archs=("sm_86",), fail_on=("spill",), max_registers=128),
    )
    # A setting added later must be added here.
    assert not [
        f.name
        for f in fields(Config)
        if f.name != "root" and getattr(load_config(folder), f.name) == f.default
    ]


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "suites": st.lists(PLAIN[str], max_size=2),
        "device": PLAIN[str],
        "l2": st.sampled_from(["cold", "hot"]),
        "timeout_s": st.floats(0, exclude_min=True, allow_infinity=False) | st.integers(1, 2**53),
        "results": PLAIN[str],
        "directions": st.dictionaries(PLAIN[str], st.sampled_from(DIRECTIONS), max_size=2),
        "static": st.fixed_dictionaries(
            {}, optional={"archs": st.lists(PLAIN[str], max_size=2), "max_registers": st.integers(1, 255)}
        ),
    },
)


def toml(value):
    """A value of JSON as TOML has it in one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
    text = json.dumps(value, ensure_ascii=value == "\ud800")
    return text.replace("\x7f", "\\u007f")


@given(settings=SETTINGS)
def test_settings_are_read_as_they_are_written(folder, settings):
    put(folder, "".join(f"{key} = {toml(value)}\n" for key, value in settings.items()))
    found = dataclasses.asdict(load_config(folder))
    expected = dataclasses.asdict(Config(root=folder)) | settings
    expected["static"] = dataclasses.asdict(StaticConfig()) | settings.get("static", {})
    assert json.loads(json.dumps(found, default=str)) == json.loads(json.dumps(expected, default=str))


@given(value=JSON)
def test_any_value_is_a_setting_or_refused_with_a_sentence(folder, value):
    directions, static = {"a": "none"}, {"archs": ["b"], "fail_on": ["spill"], "max_registers": 1}
    settings = {"suites": ["a"], "l2": "hot", "timeout_s": 7, "directions": directions, "static": static}
    for each in replaced(settings, value):
        put(folder, "".join(f"{key} = {toml(setting)}\n" for key, setting in each.items()))
        with contextlib.suppress(ConfigError):
            load_config(folder)


def test_pyproject_has_a_table(folder):
    put(folder, f"[project]\nname = 'x'\n[tool.harness]\n{EVERY}", "pyproject.toml")
    expected = load_config(folder)
    (folder / "pyproject.toml").unlink()
    put(folder, EVERY)
    assert load_config(folder) == expected


def test_harness_toml_comes_before_pyproject(folder):
    put(folder, "[tool.harness]\ndevice = 'cuda:0'\nresults = 'x'\n", "pyproject.toml")
    put(folder, "device = 'null'\n")
    assert load_config(folder) == Config(root=folder, device="null")


def test_the_nearest_file_upwards_is_the_one(folder):
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    put(folder, "device = 'cuda:1'\n")
    put(inner, "[project]\nname = 'says nothing of the harness'\n", "pyproject.toml")
    assert load_config(inner) == Config(root=folder, device="cuda:1")
    put(folder / "a", "[tool.harness]\n", "pyproject.toml")
    assert load_config(inner) == Config(root=folder / "a")


def test_the_current_folder_is_the_start(folder, monkeypatch):
    monkeypatch.chdir(folder)
    put(folder, "device = 'null'\n")
    assert load_config() == Config(root=folder, device="null")


VARIABLES = [
    ("HARNESS_SUITES", os.pathsep.join(("x", "y/*")), "suites", ("x", "y/*")),
    ("HARNESS_DEVICE", "null", "device", "null"),
    ("HARNESS_L2", "cold", "l2", "cold"),
    ("HARNESS_TIMEOUT_S", "1.5", "timeout_s", 1.5),
    ("HARNESS_RESULTS", "/results", "results", "/results"),
]


@pytest.mark.parametrize(("variable", "text", "name", "value"), VARIABLES, ids=[row[0] for row in VARIABLES])
@pytest.mark.parametrize("file", ["", EVERY], ids=["over nothing", "over the file"])
def test_the_environment_beats_the_file(folder, monkeypatch, file, variable, text, name, value):
    put(folder, file)
    before = load_config(folder)
    monkeypatch.setenv(variable, text)
    after = load_config(folder)
    assert getattr(after, name) == value
    assert [f.name for f in fields(Config) if getattr(before, f.name) != getattr(after, f.name)] == [name]


@pytest.mark.parametrize("variable", [row[0] for row in VARIABLES])
def test_an_empty_variable_is_none(folder, monkeypatch, variable):
    put(folder, EVERY)
    before = load_config(folder)
    monkeypatch.setenv(variable, "")
    assert load_config(folder) == before


@pytest.mark.parametrize(
    ("key", "near"), [("devise", "device"), ("timeout", "timeout_s"), ("root", ""), ("Device", "device")]
)
@pytest.mark.parametrize("name", ["harness.toml", "pyproject.toml"])
def test_an_unknown_key_is_named_with_its_file(folder, name, key, near):
    put(folder, f"{'[tool.harness]' if name == 'pyproject.toml' else ''}\n{key} = 'x'\n", name)
    with pytest.raises(ConfigError) as raised:
        load_config(folder)
    assert raised.value.message == (
        f"{folder / name}, key {key!r}: no such setting. {near and f'Did you mean {near}? '}"
        "Known settings: device, directions, l2, results, scripts, static, suites, timeout_s, timers."
    )
    assert raised.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("l2 = 'lukewarm'", "is 'lukewarm'; expected cold or hot."),
        ("l2 = true", "is True; expected cold or hot."),
        ("device = 0", "is 0; expected a text."),
        ("results = ['a']", "is ['a']; expected a text."),
        ("suites = 'kernels/*'", "is 'kernels/*'; expected a list of folders, such as ['kernels/*']."),
        ("suites = ['a', 1]", "is ['a', 1]; expected a list of folders, such as ['kernels/*']."),
        ("timeout_s = 0", "is 0; expected a number of seconds above 0."),
        ("timeout_s = -1.5", "is -1.5; expected a number of seconds above 0."),
        ("timeout_s = inf", "is inf; expected a number of seconds above 0."),
        ("timeout_s = nan", "is nan; expected a number of seconds above 0."),
        ("timeout_s = true", "is True; expected a number of seconds above 0."),
        ("timeout_s = 'soon'", "is 'soon'; expected a number of seconds above 0."),
        ("timeout_s = [1]", "is [1]; expected a number of seconds above 0."),
        (f"timeout_s = {10**400}", f"is {10**400}; expected a number of seconds above 0."),
        *(
            (
                f"directions = {value}",
                f"is {read!r}; expected a table of names and higher, lower, none, such as {SCORE}.",
            )
            for value, read in (
                ("'higher'", "higher"),
                ("{ x = 'up' }", {"x": "up"}),
                ("{ x = [1] }", {"x": [1]}),
            )
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_file(folder, line, expected):
    put(folder, line)
    with pytest.raises(ConfigError) as raised:
        load_config(folder)
    assert raised.value.message == f"{folder / 'harness.toml'}, key {line.split()[0]!r} {expected}"


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("HARNESS_TIMEOUT_S", "abc", "expected a number of seconds above 0."),
        ("HARNESS_TIMEOUT_S", "-1", "expected a number of seconds above 0."),
        ("HARNESS_TIMEOUT_S", "nan", "expected a number of seconds above 0."),
        ("HARNESS_L2", "COLD", "expected cold or hot."),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(folder, monkeypatch, variable, text, expected):
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError) as raised:
        load_config(folder)
    assert raised.value.message == f"{variable} is {text!r}; {expected}"


@pytest.mark.parametrize("name", ["harness.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    "content",
    [b"device = \n", b"[tool\n", b"a = 1\na = 2\n", b"\xff\xfe", b"words", b"deep = " + b"[" * 100_000],
    ids=lambda content: repr(content[:20]),
)
def test_a_file_that_is_no_toml_is_named(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_config(folder)
    assert raised.value.message.startswith(f"Cannot read {folder / name}: ")


def test_a_table_must_be_a_table(folder):
    put(folder, "[tool]\nharness = 3\n", "pyproject.toml")
    with pytest.raises(ConfigError, match=r"pyproject\.toml: \[tool\.harness\] is 3; expected a table\."):
        load_config(folder)


def test_a_folder_in_place_of_the_file_is_a_sentence(folder):
    (folder / "harness.toml").mkdir()
    with pytest.raises(ConfigError, match=r"Cannot read .*harness\.toml"):
        load_config(folder)


def test_a_folder_whose_name_is_no_utf_8_is_a_sentence(tmp_path):
    folder = tmp_path / os.fsdecode(b"lat\xe9")
    folder.mkdir()
    with pytest.raises(ConfigError, match="in UTF-8, and in this locale this one has none"):
        load_config(folder)
