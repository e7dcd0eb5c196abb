"""scripts/newton_history.py: series become a repository and results that hold the very same figures."""

from __future__ import annotations

import gzip
import json
from typing import Any

from harness.history.reading import read_history
from scripts.newton_history import write

COMMITS = {
    "1": {"date": 1_770_000_000_000, "commit": "aaaa"},
    "4": {"date": 1_770_003_000_000, "commit": "bbbb"},
}
SERIES: list[dict[str, Any]] = [
    {
        "machine": "A (NVIDIA Z) | lin | py3.12",
        "case": "b.C.time_x('g1',2)",
        "position": [1, 4],
        "value": [2.5, 3],
    },
    {
        "machine": "A (NVIDIA Z) | lin | py3.12",
        "case": "b.C.time_x('ant',2)",
        "position": [4],
        "value": [0.5],
    },
    {"machine": "B | lin | py3.11", "case": "b.C.track_y", "position": [1], "value": [7]},
]


def test_positions_dates_and_figures_are_those_of_the_data(tmp_path):
    for name, content in (("commits", COMMITS), ("series", SERIES)):
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    write(tmp_path, tmp_path / "made")

    history = read_history(tmp_path / "made/.asv/results", tmp_path / "made")
    assert [commit.time_s for commit in history.commits.line] == [
        *(1_770_000_000, 1_770_000_000, 1_770_001_000, 1_770_002_000, 1_770_003_000)
    ]
    assert "bbbb" in history.commits[4].subject
    found = {
        (card.name, one.series.case.name): (one.series.positions.tolist(), one.series.values.tolist())
        for card in history.cards
        for one in card.analysed
    }
    assert found == {
        (each["machine"].partition(" |")[0], each["case"]): (each["position"], each["value"])
        for each in SERIES
    }
