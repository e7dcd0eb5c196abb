"""Compiles both sides of compared cases for the device's architecture, to tell what differs in their code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.device.static.differences import Difference, differences
from harness.device.static.static_facts import StaticFacts, facts
from harness.run.builds.build_only import build_only
from harness.suite.loader import LoadedSuite
from harness.suite.planning import PlannedCase
from harness.suite.problem import Case


def code_differences(
    base: LoadedSuite, head: LoadedSuite, cases: Sequence[Case], arch: str, timeout_s: float
) -> Mapping[str, Difference]:
    """Return the difference of each case by its id. Raises BuildError, SuiteError."""
    with ThreadPoolExecutor(2) as pool:
        sides = pool.map(lambda side: _facts(side, cases, arch, timeout_s), (base, head))
    found = differences(*sides)
    return {case: each for each in found for case in each.shown.cases}


def _facts(loaded: LoadedSuite, cases: Sequence[Case], arch: str, timeout_s: float) -> list[StaticFacts]:
    suite = loaded.suite
    planned = [
        PlannedCase(kernel, suite.case(kernel, case.sizes))
        for case in cases
        for kernel in [suite.by_name[case.kernel]]
    ]
    result = build_only(loaded, planned, [arch], timeout_s, instructions=True, libraries=False)
    return facts(suite.problem, planned, result.builds, {})
