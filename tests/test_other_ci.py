"""docs/other-ci.md: every command of the recipes runs, and leaves what the CI system is told to read."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ET
from typing import Any

import pytest
import yaml

from tests.commits import make_project, takes
from tests.support import ROOT, caller, write_null_script

PAGE = (ROOT / "docs" / "other-ci.md").read_text(encoding="utf-8")
SECTION = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
HARNESS = re.compile(r"harness (?:compare|report) [^'|>\n]*")
BASE = re.compile(r'"\$\(git merge-base [^)]*\)"')
RECIPES = ("Jenkins", "Buildkite", "Any other")
FORMS = {
    "junit": lambda text: ET.fromstring(text).tag == "testsuites",
    "sarif": lambda text: json.loads(text)["version"] == "2.1.0",
    "code-quality": lambda text: isinstance(json.loads(text), list),
    "openmetrics": lambda text: text.endswith("# EOF\n"),
    "markdown": lambda text: "<details>" in text,
    "html": lambda text: text.startswith("<!doctype html>"),
    "json": lambda text: json.loads(text)[0]["verdicts"],
}


def commands_of(recipe: str) -> list[str]:
    blocks = re.findall(r"^```\w+\n(.*?)^```", SECTION[recipe], re.MULTILINE | re.DOTALL)
    return [found.strip() for block in blocks for found in HARNESS.findall(block)]


@pytest.fixture
def repository(tmp_path, capsys, monkeypatch):
    """A project with a slower head, compared by the first command of a recipe."""
    root = make_project(tmp_path / "theirs", {"scale": (takes(1_000_000), takes(1_100_000))})
    script = write_null_script(tmp_path / "script.json", {"noise": {"kind": "quiet", "seed": 1}})
    monkeypatch.setenv("HARNESS_NULL_SCRIPT", script)
    monkeypatch.setenv("HARNESS_DEVICE", "null")
    call = caller(capsys, monkeypatch)

    def run(line: str) -> Any:
        words = shlex.split(BASE.sub("HEAD~1", line))
        return call(*words[1:], cwd=root)

    return run


def test_every_command_of_the_recipes_runs_and_every_form_is_what_it_is_called(repository):
    lines = dict.fromkeys(line for recipe in RECIPES for line in commands_of(recipe))
    compare = [line for line in lines if line.startswith("harness compare")]
    assert compare[0].endswith(" HEAD --results records")
    assert {BASE.sub("BASE", line) for line in compare} == {BASE.sub("BASE", compare[0])}
    assert repository(compare[0]).status == 1
    reports = [line for line in lines if line.startswith("harness report")]
    reports += [f"harness report --results records --format {form}" for form in FORMS]
    for line in dict.fromkeys(reports):
        done = repository(line)
        assert done.status == 1, line  # the comparison's: the build fails by it
        form = line.partition("--format ")[2]
        assert not form or FORMS[form](done.out), line


def test_every_form_is_in_the_table_and_no_other():
    told = re.findall(r"^\| `([a-z-]+)` \|", SECTION["Any other"], re.MULTILINE)
    assert set(told) == set(FORMS)


def test_what_a_recipe_reads_it_has_written():
    for recipe in ("Jenkins", "Buildkite"):
        for name in ("junit.xml", "review.html"):
            assert f"> {name}" in SECTION[recipe]
            assert SECTION[recipe].count(name) >= 2
    [steps] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", SECTION["Buildkite"], re.DOTALL)[0]).values()
    assert steps[0]["agents"] == {"queue": "gpu"}
