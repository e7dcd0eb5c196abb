"""Histories for the pages, published by what publishes real ones, and a browser's view of a page."""

from __future__ import annotations

__all__ = [
    "CASE",
    "FIXED",
    "NEAR",
    "Pages",
    "axe_source",
    "fragment",
    "publish_empty",
    "publish_long",
    "publish_shown",
]

import dataclasses
import datetime as dt
import importlib.util
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from harness import Ladder, Rung, Suite
from harness.history.triage import Decision, acknowledge
from harness.judgement.noise import Calibration, CaseNoise, PlantedRate, write_calibration
from harness.judgement.statistics.paired import ProcessEffect
from harness.report.site.publishing import publish_pages
from harness.suite.loader import load
from tests.browser.chromium import REQUIRED, Site
from tests.support import KERNELS
from tests.synthetic_history import CARDS, Step, scale, show, write

COMMIT_URL = "https://example.invalid/commit/{}"
CASE = "matmul.naive@1024"
"""It became slower at commit 40 on both cards, and the H200 was throttled from 84 to 96."""
FIXED = "matmul.shared_tile@1024"
"""Slower from commit 20 to 60."""
TODAY = dt.date(2026, 1, 1)
NEAR = 25_500.0
"""A published figure of FIXED on an H200, within the range of its chart."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A published history of everything that can happen."""

    folder: Path
    site: dict[str, Any]
    changes: list[dict[str, Any]]

    def card(self, words: str) -> str:
        files: list[str] = [card["file"] for card in self.site["cards"] if words in card["file"]]
        return files[0]

    def title(self, words: str) -> str:
        """Return the name of a card for readers. Here every card is of another kind."""
        names: list[str] = [card["gpu"] for card in self.site["cards"] if words in card["file"]]
        return names[0]

    def series(self, case: str, card: str) -> dict[str, Any]:
        """Return the series of a case on a card from the site's first document."""
        return next(
            one
            for one in self.site["series"]
            if self.site["cases"][one["case"]]["name"] == case
            and self.site["cards"][one["card"]]["file"] == card
        )

    def document(self, name: str) -> Any:
        return json.loads((self.folder / "api" / f"{name}.json").read_text(encoding="utf-8"))


class Pages(Site):
    """The pages in a browser, from a server or straight from a disk."""

    def visit(self, page: str, *, width: int = 1280, **state: object) -> None:
        self.goto(f"{page}.html{fragment(**state)}", width=width)
        self.wait(lambda: self.script("return document.getElementById('main').dataset.ready"), "the page")
        # Charts are drawn a moment after what stands around them.
        self.script("return new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)))")

    def noted(self) -> dict[str, str]:
        """The address once a zoom is in it, which takes a moment so that a wheel does not fill it."""
        self.script("return new Promise(done => setTimeout(done, 300))")
        return self.hash()

    def hash(self) -> dict[str, str]:
        """Return the parameters after the # of the address."""
        return dict(self.script("return [...new URLSearchParams(location.hash.slice(1))]"))

    def click(self, selector: str, index: int = 0) -> None:
        self.script("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, index)

    def focus(self, selector: str) -> None:
        self.script("document.querySelector(arguments[0]).focus()", selector)

    def texts(self, selector: str) -> list[str]:
        """The text of each element."""
        found = "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)"
        return list(self.script(found, selector))

    def hrefs(self, selector: str = "a[href]") -> list[str]:
        """Return the targets of links."""
        found = "return [...document.querySelectorAll(arguments[0])].map(one => one.href)"
        return list(self.script(found, selector))

    def choose(self, label: str, value: str) -> None:
        self.script(
            """const box = document.querySelector(`[name="${arguments[0]}"]`);
            box.focus(); box.value = arguments[1];
            box.dispatchEvent(new Event('input', {bubbles: true}));
            box.dispatchEvent(new Event('change', {bubbles: true}));""",
            label,
            value,
        )
        self.script("return new Promise(done => setTimeout(done, 120))")

    def press(self, key: str, *, times: int = 1) -> None:
        """Keys as the browser gets them from a keyboard, to whatever has the focus."""
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                event = {"type": kind, "key": key, **({"text": key} if len(key) == 1 else {})}
                self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)

    def view(self) -> tuple[float, float]:
        """The part of the x axis that the chart shows, once it is drawn."""
        self.script("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        low, high = self.script("return harness.stack.range")
        return float(low), float(high)

    def column(self, caption: str, index: int) -> list[str]:
        """The texts of a column of the table of that name, from top to bottom."""
        return list(
            self.script(
                """const table = [...document.querySelectorAll('table')]
                    .find(one => one.caption.textContent === arguments[0]);
                return [...table.tBodies[0].rows].map(row => row.cells[arguments[1]].innerText.trim());""",
                caption,
                index,
            )
        )

    def problems(self) -> list[str]:
        return [*self.console_errors(), *self.external_requests()]


def fragment(**state: object) -> str:
    kept = {key: value for key, value in state.items() if value is not None}
    return f"#{urlencode(kept)}" if kept else ""


def axe_source() -> str:
    """axe-core, out of the package that carries it; the test is skipped, or fails on request, without."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None or found.origin is None:
        reason = "axe-core is not installed (pip install axe-core-python)"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, but {reason}")
        pytest.skip(reason)
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def publish_shown(root: Path) -> Shown:
    """Regressions in every state, improvements, clocks, a calibrated card, and names that break pages."""
    fixed = Step(case="shared_tile 1024", at=20, until=60, effect=-0.12)
    decided = Step(case="copy_unrolled 16777216", at=70, effect=-0.08)
    expired = Step(case="copy 16777216", at=75, effect=-0.09)
    history = show()
    events = (*history.events, fixed, decided, expired)
    written = write(dataclasses.replace(history, events=events, hostile=True), root)
    calibrated = next(card for card in CARDS if "H200" in card.name)
    write_calibration(written.results / calibrated.machine, _calibration(calibrated.driver))

    def publish() -> Shown:
        html = root / "html"
        publish_pages(
            written.results,
            root,
            html,
            project="sample",
            commit_url=COMMIT_URL,
            suites=[_published()],
            today=TODAY,
        )
        read = [
            json.loads((html / "harness" / "api" / f"{name}.json").read_text(encoding="utf-8"))
            for name in ("site", "changes")
        ]
        return Shown(folder=html / "harness", site=read[0], changes=read[1])

    before = publish()
    for case, until in (("copy.copy_unrolled@16777216", None), ("copy.copy@16777216", dt.date(2025, 6, 1))):
        for change in before.changes:
            if before.site["cases"][change["case"]]["name"] == case and change["kind"] == "regression":
                acknowledge(root, _decision(change, case, until))
    return publish()


def _published() -> Suite:
    """The suite, and figures that somebody published of kernels in the history, some of them on the H200."""
    suite = load(KERNELS / "matmul").suite
    near = Ladder(
        "near",
        "A ladder of the same card",
        publication="On <i>speed</i>",
        author="Grace",
        url="javascript:alert(1)",
        date="2021",
        card="H200",
        rungs=[
            Rung("tiled", "shared_tile", NEAR, sizes=1024),
            Rung("plain", "naive", 1, sizes=1024),
            Rung("plain", "naive", 2, sizes=4096),
        ],
        decimals=1,
        note="A <b>doubt</b>.",
    )
    return dataclasses.replace(suite, ladders=(*suite.ladders, near))


def _decision(change: dict[str, Any], case: str, until: dt.date | None) -> Decision:
    return Decision(
        id=change["id"],
        case=case,
        commit=change["bad_hash"],
        reason="traded for <b>registers</b>",
        author="Ada",
        expires=until,
    )


def _calibration(driver: str) -> Calibration:
    effects = tuple(
        ProcessEffect(value=value, standard_error=0.001, df=20, quads=30)
        for value in (-0.004, 0.001, 0.0025, 0.006)
    )
    noise = CaseNoise(time=effects, smallest_visible=0.011, clock_exponent=0.97, sm_clock_mhz=1980.0)
    return Calibration(
        measured_at="2022-01-20T10:00:00Z",
        harness_version="0.1.0",
        uuid=None,
        driver=driver,
        cases={"matmul.naive[m=1024,n=1024,k=1024]": noise, "matmul.wmma[m=1024,n=1024,k=1024]": noise},
        verdicts=304,
        false_alarms=1,
        planted={"1": PlantedRate(planted=8, found=3), "0.5": PlantedRate(planted=8, found=1)},
    )


def publish_long(root: Path) -> Path:
    """Publish one card with a case of five thousand points."""
    history = scale(5_000, 1, 1)
    tracks = ("gflops", "sm_clock_mhz", "temperature_c", "power_w")
    written = write(dataclasses.replace(history, tracks=tracks), root)
    publish_pages(written.results, root, root / "html", project="long", commit_url=COMMIT_URL)
    return root / "html" / "harness"


def publish_empty(root: Path) -> Path:
    """A project whose results hold no card."""
    written = write(dataclasses.replace(show(), commits=3, records=False, events=()), root)
    for card in written.history.cards:
        for file in (written.results / card.machine).iterdir():
            file.unlink()
        (written.results / card.machine).rmdir()
    publish_pages(written.results, root, root / "html", project="empty")
    return root / "html" / "harness"
