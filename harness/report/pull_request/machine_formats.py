"""A review in formats of other forges and CI systems: JUnit XML, SARIF, GitLab's code quality,
OpenMetrics.
"""

from __future__ import annotations

import hashlib
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

import harness
from harness.records.types import Verdict
from harness.report.document.document import Review
from harness.report.document.outcome import CaseOnCard, every_case, group_of, grouped, units_of
from harness.report.words.of_launches import launches
from harness.report.words.of_verdict import reason, sentence, settings, why
from harness.system.texts import harmless, plain_log

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_KINDS = {
    **dict.fromkeys(("slower", "broken", "missing"), "failure"),
    "invalid": "error",
    **dict.fromkeys(("inconclusive", "by_card"), "skipped"),
}
"""JUnit's element for a case by its group. A case of another group is fine and has none."""


def junit(review: Review) -> str:
    """Return a test suite for each card and suite, with a test for each case.

    Slower, missing and failing cases are failures, and invalid cases are errors. Undecided cases are skipped,
    with the reason.
    """
    root = ET.Element("testsuites", name="harness compare")
    for card in review.cards:
        found = [CaseOnCard(card, case) for case in card.cases]
        kinds = [_kind(case) for case in card.cases]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=f"{card.suite} on {card.device} ({card.spec})",
            tests=str(len(found)),
            failures=str(kinds.count("failure")),
            errors=str(kinds.count("error")),
            skipped=str(kinds.count("skipped")),
            timestamp=review.created_at[:19],
        )
        for each, kind in zip(found, kinds, strict=True):
            time_s = (each.case.head.time_ns or 0.0) * 1e-9 if each.case.head else 0.0
            named = {"classname": f"{card.suite}.{each.case.kernel}", "name": each.label}
            test = ET.SubElement(suite, "testcase", {**named, "time": f"{time_s:.9f}"})
            if kind:
                said = ET.SubElement(test, kind, message=_said(each), type=each.case.status)
                said.text = plain_log("\n".join(filter(None, (each.case.message, each.case.log))))
        if card.problem:
            ET.SubElement(suite, "system-err").text = plain_log(card.problem)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _kind(case: Verdict) -> str:
    return _KINDS.get(group_of(case), "")


def _said(found: CaseOnCard) -> str:
    case = found.case
    said = sentence(case, units_of(found.card)), why(case.diagnosis), launches(case), settings(case)
    told = " ".join(filter(None, said)) or reason(case) or case.reason
    return harmless(f"{found.label} on {found.card.device}: {told}")


def sarif(review: Review) -> str:
    """Return SARIF: slower, missing and failed cases are errors, unjudged ones warnings, at their kernels."""
    results = [
        {
            "ruleId": found.case.status,
            "level": "error" if _kind(found.case) == "failure" else "warning",
            "message": {"text": _said(found)},
            "locations": [_location(found)] if found.case.kernel in found.card.places else [],
            "partialFingerprints": {"case/v1": _fingerprint(found)},
        }
        for found in _told(review)
    ]
    statuses = sorted({str(each["ruleId"]) for each in results})
    driver = {
        "name": "gpu-harness",
        "version": harness.__version__,
        "rules": [{"id": each} for each in statuses],
    }
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def code_quality(review: Review) -> str:
    """Return GitLab's report of the findings that have a line of source."""
    found = [each for each in _told(review) if each.case.kernel in each.card.places]
    issues = [
        {
            "description": _said(each),
            "check_name": f"gpu-harness/{each.case.status}",
            "fingerprint": _fingerprint(each),
            "severity": "major" if _kind(each.case) == "failure" else "info",
            "location": {"path": place.path, "lines": {"begin": place.line}},
        }
        for each in found
        for place in [each.card.places[each.case.kernel]]
    ]
    return json.dumps(issues, indent=2) + "\n"


def openmetrics(review: Review) -> str:
    """Return head's time of each case in seconds, and its change.

    GitLab shows them beside the target branch's values, which come from another run. The change comes from a
    single run.
    """
    cases = every_case(review)
    heads = [(each, each.case.head) for each in cases if each.case.time and each.case.head]
    families = {
        "kernel_time_seconds": [
            (each, head.time_ns * 1e-9) for each, head in heads if head.time_ns is not None
        ],
        "kernel_time_change_ratio": [(each, each.case.time.effect) for each in cases if each.case.time],
    }
    lines: list[str] = []
    for name, values in families.items():
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{{{_labels(each)}}} {value!r}" for each, value in values]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(found: CaseOnCard) -> str:
    card = found.card
    named = {"suite": card.suite, "case": found.label, "device": card.device, "spec": card.spec}
    # A model's name is printable ASCII. The format escapes these two characters.
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in named.items()}
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def _told(review: Review) -> Iterator[CaseOnCard]:
    groups = grouped(review)
    yield from groups.failing
    yield from groups.unjudged


def _location(found: CaseOnCard) -> dict[str, Any]:
    place = found.card.places[found.case.kernel]
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": place.path},
            "region": {"startLine": place.line},
        }
    }


def _fingerprint(found: CaseOnCard) -> str:
    """Return an id of a case on a card that is the same in every run. A forge uses it to recognize old
    findings.
    """
    parts = [found.card.device, found.card.spec, found.case.case, found.case.status]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
