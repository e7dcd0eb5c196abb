"""A review for other CI systems: JUnit XML, SARIF, GitLab's code quality, OpenMetrics."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from harness.report.document.document import LIMITS
from harness.report.document.outcome import grouped, total
from harness.report.pull_request.machine_formats import code_quality, junit, openmetrics, sarif
from tests.review_samples import SAMPLES, card, case, review


@pytest.mark.parametrize("name", SAMPLES)
def test_junit_counts_every_case_once_and_passes_only_what_is_fine(name):
    made = SAMPLES[name]()
    groups = grouped(made)
    suites = ET.fromstring(junit(made)).findall("testsuite")
    assert sum(int(suite.get("tests", "")) for suite in suites) == total(made)
    for kind, found in (
        ("failure", groups.failing),
        ("error", groups.invalid),
        ("skipped", (*groups.inconclusive, *groups.by_card)),
    ):
        told = [test for suite in suites for test in suite if test.find(kind) is not None]
        assert sorted(test.get("name", "") for test in told) == sorted(each.label for each in found)
        assert sum(int(suite.get(f"{kind}s", suite.get(kind, ""))) for suite in suites) == len(found)


@pytest.mark.timeout(15)
def test_a_report_of_many_cases_is_written_in_seconds():
    """A job that may write reads what anybody's pull request has written."""
    cases = [case("naive", size, "missing") for size in range(1, LIMITS["cases"] + 1)]
    made = review(*(card(*cases, device=f"NVIDIA {number}") for number in range(4)))
    for told in (junit, sarif, code_quality):
        assert len(told(made)) > 4 * len(cases)


def test_what_a_compiler_wrote_is_text_in_xml():
    log = "<error>]]> & \x00\x1b[31m \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")
    made = review(card(case("a", 64, "failed", side="head", log=log)))
    [failure] = ET.fromstring(junit(made)).iter("failure")
    assert "<error>]]> & " in (failure.text or "")


@pytest.mark.parametrize("name", SAMPLES)
def test_sarif_and_code_quality_tell_what_somebody_has_to_look_at(name):
    made = SAMPLES[name]()
    groups = grouped(made)
    [run] = json.loads(sarif(made))["runs"]
    levels = [each["level"] for each in run["results"]]
    assert levels == ["error"] * len(groups.failing) + ["warning"] * len(groups.unjudged)
    rules = {each["id"] for each in run["tool"]["driver"]["rules"]}
    assert {each["ruleId"] for each in run["results"]} == rules
    issues = json.loads(code_quality(made))
    placed = [each for each in run["results"] if each["locations"]]
    assert [each["fingerprint"] for each in issues] == [
        each["partialFingerprints"]["case/v1"] for each in placed
    ]
    assert len({each["fingerprint"] for each in issues}) == len(issues)


@pytest.mark.parametrize("name", SAMPLES)
def test_openmetrics_has_each_measured_case_twice(name):
    """https://prometheus.io/docs/specs/om/open_metrics_spec: a family's lines stand together, EOF is last."""
    made = SAMPLES[name]()
    measured = [(each, one) for each in made.cards for one in each.cases if one.time]
    first, *lines, last = openmetrics(made).splitlines()
    assert (first, last) == ("# TYPE kernel_time_seconds gauge", "# EOF")
    middle = lines.index("# TYPE kernel_time_change_ratio gauge")
    times, changes = lines[:middle], lines[middle + 1 :]
    assert len(changes) == len(measured)
    assert len(times) == sum(bool(one.head and one.head.time_ns is not None) for _, one in measured)
    for line, (_, one) in zip(changes, measured, strict=True):
        found = re.fullmatch(r'kernel_time_change_ratio\{(\w+="([^"\\\\]|\\\\.)*",?)+\} (\S+)', line)
        assert found
        assert one.time
        assert float(found[3]) == one.time.effect


def test_a_models_name_does_not_end_a_label():
    made = review(card(case("a", 64), device='NVIDIA "X" \\'))
    assert 'device="NVIDIA \\"X\\" \\\\",' in openmetrics(made)
