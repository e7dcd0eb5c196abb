"""docs/runners.md: what it says of files, settings, limits and names is so, and each section says what its
claims rest on: tests that there are, or why there can be none.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

import pytest
import yaml

from harness.ci.github.workflow_events import DISPATCH_BRANCH
from harness.ci.requirements import measuring_extras
from harness.ci.scaffold import extras_there
from harness.run.doctor.checks import LINES, WARM_AT_REST_C
from tests.support import ROOT
from tests.test_docs import section
from tests.test_runner_files import FILES, options_of
from tests.workflow_policy import workflows_below

PAGE = (ROOT / "docs" / "runners.md").read_text(encoding="utf-8")
CLAIMS = "What each claim rests on"


def said(heading: str, pattern: str) -> list[Any]:
    found: list[Any] = re.findall(pattern, section("runners.md", heading))
    assert found, pattern
    return found


def rows(heading: str) -> list[list[str]]:
    """The tables of a section, without their headings and rules."""
    lines = [line for line in section("runners.md", heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_section_has_its_claims_and_every_claim_a_test_or_the_reason_why_there_is_none():
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    told = rows(CLAIMS)[1:]
    assert list(dict.fromkeys(row[0] for row in told)) == [each for each in headings if each != CLAIMS]
    for where, claim, rests_on in told:
        names = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", rests_on)
        assert names or rests_on.startswith("none: "), (where, claim)
        for file, test in names:
            assert not test or test in names_in(file), (where, file, test)


def test_the_defaults_of_the_page_are_those_of_the_configuration():
    text = (FILES / "gpu-harness-runner.conf").read_text(encoding="utf-8")
    kept = dict(re.findall(r"(?m)^# ([a-z_]+) = (.*)$", text))
    told = {row[0].strip("`"): row[1].strip("`") for row in rows("The files") if row[0].startswith("`")}
    for name, value in kept.items():
        if name not in ("workflows", "job_path"):  # any, and in words
            assert told[name] == value, name


def test_the_limits_of_the_page_are_those_of_the_units():
    job, suite = (options_of(name, "Service") for name in ("runner@.service", "suite-user@.service"))
    together = options_of("suite.slice", "Slice")
    assert said("Isolation", r"no more than (\d+) % of the memory") == [job["MemoryMax"][0].strip("%")]
    assert said("The second user", r"of all of them together (\d+) %") == [
        together["MemoryMax"][0].strip("%")
    ]
    [(hours, tasks)] = said("The second user", r"of each (\d+) hours, (\d+);")
    assert (f"{hours}h", tasks) == (suite["RuntimeMaxSec"][0], suite["TasksMax"][0])


def test_root_ends_a_job_only_after_every_workflow_would_have():
    """``job_minutes``: more than any job's ``timeout-minutes``."""
    [minutes] = said("The files", r"\| `job_minutes` \| `(\d+)` \|")
    texts = [path.read_text(encoding="utf-8") for path in workflows_below(ROOT / ".github" / "workflows")]
    longest = max(job["timeout-minutes"] for text in texts for job in yaml.safe_load(text)["jobs"].values())
    assert int(minutes) > longest


def test_the_errors_that_are_a_programs_doing_are_those_of_the_script():
    pattern = r"Xids\s+([\d,\s]+)\s+and\s+(\d+)\s+are\s+caused\s+by"
    [(several, last)] = said("Refusals and quarantine", pattern)
    script = (FILES / "start-ephemeral.sh").read_text(encoding="utf-8")
    [known] = re.findall(r"OF_PROGRAMS=' ([\d ]+) '", script)
    assert [*several.split(", "), last] == known.split()


def test_the_request_of_the_page_is_the_scripts():
    script = (FILES / "start-ephemeral.sh").read_text(encoding="utf-8")
    sent = re.findall(r'\\"(\w+)\\":', script[script.index('body="{') :].partition("\n")[0])
    assert re.findall(r'"(\w+)":', said("Registration", r'(\{"name": [^}]*\})')[0]) == sent


def test_the_lines_of_the_acceptance_test_are_doctors():
    known = {name for _, name, _ in LINES}
    for _, names in rows("Acceptance test")[1:]:
        assert names == "all" or set(names.split(", ")) <= known, names
    [warm] = said("Cooling, and a quiet host", r"warns above (\d+) °C")
    assert float(warm) == WARM_AT_REST_C


def test_the_extras_of_the_page_are_those_that_there_are():
    extras = [row[0].strip("`") for row in rows("Packages of kernels")[1:]]
    assert sorted(extras) == list(measuring_extras())
    [own] = said("Packages of kernels", r"This repository measures with\s+`([a-z,]+)`")
    assert tuple(own.split(",")) == extras_there(ROOT)


def test_the_branches_of_the_settings_are_those_that_the_code_knows():
    settings = section("runners.md", "Settings of the repository")
    for name in (DISPATCH_BRANCH, "pull-request/*", "perf-data"):
        assert f"Settings, Rules, for `{name}`" in settings
    assert f"deployment branches: `{DISPATCH_BRANCH}`" in settings


@pytest.mark.parametrize("word", ["nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear"])
def test_the_harness_sets_nothing_of_a_card(word):
    """It records clocks, and never sets them: no setter of NVML's is called."""
    for path in (ROOT / "harness").rglob("*.py"):
        assert word not in path.read_text(encoding="utf-8"), path
