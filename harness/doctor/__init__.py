"""Is this machine fit to judge performance? Facts are gathered, findings come out; nothing is changed.

`gather` looks at the machine, `diagnose` judges, `verdict` says it in a sentence.
"""

from __future__ import annotations

__all__ = ["Disk", "Facts", "Finding", "diagnose", "gather", "is_fit", "verdict"]

from harness.doctor.card import Disk, Facts
from harness.doctor.checks import Finding, diagnose, is_fit, verdict
from harness.doctor.gather import gather
