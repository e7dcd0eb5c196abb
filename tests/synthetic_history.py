"""Synthetic histories: a git repository, asv's results as our plugin writes them, and records.

A `History` says what happened. The same `History` gives the same bytes again. As a command::

    python tests/synthetic_history.py FOLDER --preset show
    python tests/synthetic_history.py FOLDER --commits 10000 --cases 200 --cards 4

FOLDER becomes the repository, with asv.conf.json in it and results in .asv/results. Every time has lognormal
noise. A change of a card's clock does not change the cycles of its cases.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from harness import __version__
from harness.device.machine import ANNOTATIONS, machine_entry, machine_name
from harness.device.peaks import peaks
from harness.integrations.asv.tracks import TRACKS
from harness.judgement.statistics import summarize
from harness.records.record_files import RecordWriter
from harness.records.types import (
    METHOD_VERSION,
    Check,
    DeviceInfo,
    Host,
    Launch,
    Measurement,
    Resources,
    Row,
    Run,
    Snapshot,
    Source,
    Telemetry,
    Toolchain,
    Verification,
)
from harness.suite.case_id import CaseId

Floats: TypeAlias = npt.NDArray[np.float64]

ENVIRONMENT = "checkout-pyany"
RESULT_VERSION = 2
COLUMNS = (
    *("result", "params", "version", "started_at", "duration"),
    *("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat"),
    *("samples", "profile"),
)
"""Fields of a row of asv's results, in asv's order."""

EPOCH = datetime(2022, 1, 3, 9, tzinfo=timezone.utc)
MEAN_GAP_H = 4.0
"""Between commits: ten thousand of them end in summer 2026."""

SLOTS = 21
"""Odd, so that one of them is the median, and its rate the median rate; quartiles fall on slots as well."""
SPREAD = 0.002
"""Relative standard deviation of a measurement's slots."""
_SLOT = [NormalDist().inv_cdf((index + 0.5) / SLOTS) for index in range(SLOTS)]

OK, ABSENT, FAILED, WRONG = range(4)
"""Outcomes of a case in `Numbers.status`."""

HOSTILE_TEXTS = (
    "<script>alert(1)</script>",
    "</script><!-- <img src=x onerror=alert(1)>",
    "\u202egnp.exe\u202c from right to left",
    "quotes \" and ' and ` and &amp; and & and \\",
    "emoji 🚀👩\u200d🔬 and combining z\u0351\u0343\u0353a\u0321",
    "controls \x01\x02\x1b[31mred\x1b[0m \x7f tab\tend",
    "a line of ten kilobytes " + "x" * 10_000,
    "line separators \u2028 and \u2029 and \x85",
    "{{ 7 * 7 }} ${7*7} %s %(name)s {0}",
    "javascript:alert(1)//",
    "=HYPERLINK(1) -- ; DROP TABLE commits",
)
"""Subjects that break pages, terminals and formats. Of authors, without what git keeps out of them."""


# What happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A commit changed some kernels' rate, until another one took it back."""

    case: str | None
    """Words out of a case's suite, kernel and size, such as "naive 1024"; None for every case."""
    at: int
    """Index of the first commit that has it."""
    effect: float
    """On the rate: -0.10 is a rate 10 % lower."""
    until: int | None = None
    """Index of the first commit that no longer has it."""
    card: str | None = None
    """Name or machine of the only card that shows it."""
    registers: int = 0
    """Additional registers of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A card ran at a lower clock for a while; rates of what the clock limits fell with it."""

    card: str | None
    start: int
    stop: int
    clock: float = -0.08
    cause: Literal["thermal", "power"] = "thermal"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverChange:
    """From a commit on, a card was measured under another driver."""

    card: str | None
    at: int
    driver: str
    effect: float = 0.0
    """On every rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Commits that were not measured on a card: no file of asv's, and no record."""

    card: str | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A case that a card skipped: NaN to asv."""

    case: str | None
    start: int = 0
    stop: int | None = None
    card: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A case that failed: null to asv. With a wrong result, 0 on the track of verified ones."""

    case: str | None
    start: int
    stop: int
    card: str | None = None
    reason: Literal["build-failed", "wrong-result"] = "build-failed"


Event: TypeAlias = Step | Throttle | DriverChange | Missing | Absent | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card as its results tell of it."""

    name: str = "NVIDIA H200"
    serial: int = 1
    """Tells cards of one model apart: its UUID is made of it."""
    arch: str = "sm_90"
    compute_units: int = 132
    memory_gib: int = 141
    driver: str = "580.159.04"
    clock_mhz: float = 1980.0
    memory_clock_mhz: float = 3201.0
    memory_bus_bits: int = 6016
    temperature_c: float = 48.0
    power_limit_w: float = 700.0

    @property
    def machine(self) -> str:
        """Return asv's name of the machine, which is also the name of its folder."""
        return machine_name(self.device())

    def device(self, driver: str | None = None) -> DeviceInfo:
        digits = hashlib.sha256(f"{self.name}/{self.serial}".encode()).hexdigest()
        major, minor = int(self.arch[3:-1]), int(self.arch[-1])
        return DeviceInfo(
            spec="cuda:0",
            backend="cuda",
            name=self.name,
            vendor="NVIDIA",
            driver=driver or self.driver,
            kind="gpu",
            arch=self.arch,
            uuid=f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}",
            pci_bus_id="0000:00:06.0",
            compute_capability=(major, minor),
            compute_units=self.compute_units,
            memory_bytes=self.memory_gib * 2**30,
            l2_bytes=50 * 2**20,
            max_threads_per_block=1024,
            max_block=(1024, 1024, 64),
            max_grid=(2**31 - 1, 65535, 65535),
            max_shared_bytes=227 * 1024,
            max_clock_mhz=round(self.clock_mhz),
        )

    @property
    def peaks(self) -> dict[str, float]:
        return peaks(self.device(), self.clock_mhz, self.memory_clock_mhz, self.memory_bus_bits)


CARDS = (
    Card(),
    Card(
        name="NVIDIA A100-SXM4-80GB",
        arch="sm_80",
        compute_units=108,
        memory_gib=80,
        clock_mhz=1410.0,
        memory_clock_mhz=1593.0,
        memory_bus_bits=5120,
        temperature_c=44.0,
        power_limit_w=400.0,
    ),
    Card(
        name="NVIDIA GeForce RTX 4090",
        arch="sm_89",
        compute_units=128,
        memory_gib=24,
        driver="575.64.03",
        clock_mhz=2520.0,
        memory_clock_mhz=10501.0,
        memory_bus_bits=384,
        temperature_c=58.0,
        power_limit_w=450.0,
    ),
    Card(
        name="NVIDIA L40S",
        arch="sm_89",
        compute_units=142,
        memory_gib=48,
        clock_mhz=2520.0,
        memory_clock_mhz=9001.0,
        memory_bus_bits=384,
        temperature_c=52.0,
        power_limit_w=350.0,
    ),
)
"""A card of each model. `scale` takes more cards of the same models, with other serial numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite of kernels. With GFLOP/s a case of size n is a product of two n by n matrices, with GB/s a copy
    of n numbers.
    """

    name: str = "matmul"
    headline: Literal["GFLOP/s", "GB/s"] = "GFLOP/s"
    kernels: tuple[str, ...] = ("naive", "naive_coalesced", "shared_tile", "thread_tiling", "wmma")
    sizes: tuple[int, ...] = (1024, 2048, 4096)

    @property
    def benchmark(self) -> str:
        """Return asv's name of the benchmark, without the track."""
        return f"suites.{self.name.title().replace('_', '')}"

    @property
    def params(self) -> list[list[str]]:
        """Return the parameters as asv stores them: texts in Python's notation."""
        return [[repr(kernel) for kernel in self.kernels], [repr(size) for size in self.sizes]]

    @property
    def cases(self) -> list[tuple[str, int]]:
        """Kernel and size, in asv's order."""
        return list(itertools.product(self.kernels, self.sizes))

    def axes(self, size: int) -> dict[str, int]:
        return dict.fromkeys("mnk", size) if self.headline == "GFLOP/s" else {"n": size}

    def work(self, size: int) -> int:
        """FLOP of one launch, or bytes."""
        return 2 * size**3 if self.headline == "GFLOP/s" else 8 * size

    def source(self, kernel: str) -> str:
        """Path of a kernel's source in the repository."""
        return f"kernels/{self.name}/{re.sub(r'[^a-z0-9_]', '_', kernel.lower())}.cu"


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that the generator is told."""

    commits: int = 200
    cards: tuple[Card, ...] = CARDS[:1]
    suites: tuple[Suite, ...] = (Suite(),)
    tracks: tuple[str, ...] = tuple(name.removeprefix("track_") for name in TRACKS)
    """Without "track_"; a suite has those that suit its headline."""
    events: tuple[Event, ...] = ()
    noise: float = 0.01
    """Relative standard deviation between one commit's time of a case and the next one's."""
    seed: int = 1
    records: bool = False
    """True to write our records too, one for each commit, card and suite."""
    hostile: bool = False
    """True for hostile subjects and authors."""
    skewed_clocks: bool = False
    """True if some commits are dated before their parents."""
    merge_every: int = 0
    """Every so many commits there is a merge of one that was not measured; 0 for a straight line."""
    tag_every: int = 0
    """Every so many commits there is a tag; 0 for none."""
    driver_in_params: bool = False
    """True if asv's files have the driver among their parameters, as machines with their own keys do."""

    @cached_property
    def cases(self) -> tuple[tuple[Suite, str, int], ...]:
        """Suite, kernel and size of every column of `Numbers`."""
        return tuple((suite, *case) for suite in self.suites for case in suite.cases)

    def columns(self, suite: Suite) -> slice:
        """Return the columns of a suite."""
        start = sum(len(other.cases) for other in self.suites[: self.suites.index(suite)])
        return slice(start, start + len(suite.cases))

    def chosen(self, case: str | None) -> npt.NDArray[np.bool_]:
        """(cases,): which ones an event is about. Raises ValueError where there are none."""
        words = set((case or "").split())
        chosen = np.array([words <= {suite.name, kernel, str(size)} for suite, kernel, size in self.cases])
        if not chosen.any():
            raise ValueError(f"No case is named {case!r}.")
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The truth of one card. Arrays are (commits, cases) unless said otherwise, columns as in
    `History.cases`.
    """

    time_ns: Floats
    rate: Floats
    """In the unit of the suite's headline."""
    sm_clock_mhz: Floats
    memory_clock_mhz: Floats
    temperature_c: Floats
    power_w: Floats
    registers: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]
    """OK, ABSENT, FAILED or WRONG."""
    measured: npt.NDArray[np.bool_]
    """(commits,)"""
    throttled: tuple[str, ...]
    """(commits,): "thermal", "power" or nothing."""
    drivers: tuple[str, ...]
    """(commits,)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files that `write` made."""

    history: History
    repository: Path
    results: Path
    conf: Path
    commits: tuple[str, ...]
    """Full hashes, the oldest first."""

    def result(self, commit: int, card: Card | None = None) -> Path:
        """The file of asv's of a commit, by index, and card; without one, the first card's."""
        machine = (card or self.history.cards[0]).machine
        return self.results / machine / f"{self.commits[commit][:8]}-{ENVIRONMENT}.json"

    def records(self, card: Card) -> list[Path]:
        return sorted((self.results / card.machine).glob("*.jsonl"))


# Histories ready made


def show(seed: int = 1) -> History:
    """A history to look at: one of everything that can happen, on two cards."""
    h200, a100 = CARDS[:2]
    matmul = Suite()
    copy = Suite(name="copy", headline="GB/s", kernels=("copy", "copy_unrolled"), sizes=(2**20, 2**24, 2**28))
    return History(
        commits=120,
        cards=(h200, a100),
        suites=(matmul, copy),
        events=(
            Step(case="naive 1024", at=40, effect=-0.10, registers=6),
            Step(case="thread_tiling", at=70, effect=0.10, registers=-4),
            Step(case="copy_unrolled 268435456", at=100, effect=-0.06, card=a100.name),
            Throttle(card=h200.name, start=84, stop=96),
            DriverChange(card=a100.name, at=60, driver="590.44.01", effect=0.03),
            Failed(case="wmma 4096", start=30, stop=33),
            Failed(case="shared_tile 2048", start=50, stop=51, reason="wrong-result"),
            Absent(case="naive 4096", card=a100.name),
            Missing(card=a100.name, start=20, stop=24),
        ),
        tag_every=40,
        records=True,
        seed=seed,
    )


def scale(commits: int, cases: int, cards: int, *, seed: int = 1) -> History:
    """A long history of one track: a case in ten takes a step of 3 to 15 % either way, and each card has a
    throttled stretch and a change of driver.
    """
    sizes = max(count for count in range(1, 11) if cases % count == 0)
    suite = Suite(
        kernels=tuple(f"kernel_{index:03}" for index in range(cases // sizes)),
        sizes=tuple(512 * (index + 1) for index in range(sizes)),
    )
    chosen = tuple(replace(CARDS[index % 4], serial=1 + index // 4) for index in range(cards))
    draw = random.Random(f"scale/{seed}")
    events: list[Event] = [
        Step(
            case=f"{kernel} {size}",
            at=draw.randrange(1, max(2, commits)),
            effect=draw.choice((-1, 1)) * draw.uniform(0.03, 0.15),
        )
        for kernel, size in draw.sample(suite.cases, cases // 10)
    ]
    for card in chosen:
        start = draw.randrange(max(1, commits))
        events.append(Throttle(card=card.machine, start=start, stop=start + 1 + commits // 50))
        events.append(DriverChange(card=card.machine, at=draw.randrange(max(1, commits)), driver="590.44.01"))
    return History(
        commits=commits,
        cards=chosen,
        suites=(suite,),
        tracks=("gflops",),
        events=tuple(events),
        seed=seed,
    )


# Numbers


def numbers(history: History, card: Card) -> Numbers:
    """Return the figures of a card at every commit, stored or not. A longer history begins with the figures
    of a shorter one.
    """
    commits, shape = history.commits, (history.commits, len(history.cases))
    own = [
        event for event in history.events if getattr(event, "card", None) in (None, card.name, card.machine)
    ]
    clock, throttled = _clock(own, commits)
    clock = card.clock_mhz * clock[:, None] * np.exp(0.0005 * _normal(history, card, "clock", shape))
    factor, registers = _code(history, own, shape)
    bound = np.array([float(suite.headline == "GFLOP/s") for suite, _, _ in history.cases])
    best_ns, least_registers, load = _bases(history, card)
    # A case that memory limits takes as long at any clock of the multiprocessors.
    slowdown = (card.clock_mhz / clock) ** bound / factor
    time_ns = best_ns * slowdown * np.exp(history.noise * _normal(history, card, "time", shape))
    work = np.array([suite.work(size) for suite, _, size in history.cases], dtype=np.float64)
    hot = np.array([cause == "thermal" for cause in throttled], dtype=np.float64)[:, None]
    capped = np.array([cause == "power" for cause in throttled])[:, None]
    drawn = card.power_limit_w * load * (clock / card.clock_mhz) ** 2
    warmth = card.temperature_c + 18 * load + 16 * hot + 0.8 * _normal(history, card, "temperature", shape)
    power: Floats = drawn * np.exp(0.01 * _normal(history, card, "power", shape))
    status, measured = _status(history, own)
    return Numbers(
        time_ns=time_ns,
        rate=work / time_ns,
        sm_clock_mhz=clock.round(),
        memory_clock_mhz=np.full(shape, card.memory_clock_mhz),
        temperature_c=warmth.round(),
        power_w=np.where(capped, 0.995 * card.power_limit_w, power).round(1),
        registers=least_registers + registers,
        status=status,
        measured=measured,
        throttled=throttled,
        drivers=_drivers(own, card, commits),
    )


def _normal(history: History, card: Card, what: str, shape: tuple[int, int]) -> Floats:
    """Rows do not depend on how many follow."""
    digest = hashlib.sha256(f"{history.seed}/{card.machine}/{what}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(shape)


def _clock(events: Iterable[Event], commits: int) -> tuple[Floats, tuple[str, ...]]:
    """(commits,): the clock as a share of the card's own, and what held it down."""
    clock, causes = np.ones(commits), [""] * commits
    for event in events:
        if isinstance(event, Throttle):
            clock[event.start : event.stop] *= 1 + event.clock
            held = range(commits)[event.start : event.stop]
            causes[event.start : event.stop] = [event.cause] * len(held)
    return clock, tuple(causes)


def _code(
    history: History, events: Iterable[Event], shape: tuple[int, int]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Two arrays (commits, cases): the factor on the rate, and the registers on top."""
    factor, registers = np.ones(shape), np.zeros(shape, dtype=np.int64)
    for event in events:
        if isinstance(event, Step):
            columns = history.chosen(event.case)
            factor[event.at : event.until, columns] *= 1 + event.effect
            registers[event.at : event.until, columns] += event.registers
        elif isinstance(event, DriverChange):
            factor[event.at :] *= 1 + event.effect
    return factor, registers


def _bases(history: History, card: Card) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Return time in ns at the card's clock, registers, and share of the power limit, each by case."""
    limits = card.peaks
    times, registers, loads = [], [], []
    for suite, kernel, size in history.cases:
        rung = (suite.kernels.index(kernel) + 1) / len(suite.kernels)
        filled = 1 - 0.4 * min(suite.sizes) / (size + min(suite.sizes))
        best = limits["float32"] * (0.05 + 0.75 * rung) if suite.headline == "GFLOP/s" else limits["memory"]
        times.append(suite.work(size) / (best * filled))
        registers.append(24 + 8 * round(20 * rung))
        loads.append(0.35 + 0.55 * rung * filled)
    return np.array(times), np.array(registers), np.array(loads)


def _status(history: History, events: Iterable[Event]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """(commits, cases): what became of each case; (commits,): whether the commit was measured."""
    status = np.full((history.commits, len(history.cases)), OK, dtype=np.int8)
    measured = np.ones(history.commits, dtype=np.bool_)
    for event in events:
        if isinstance(event, Absent):
            status[event.start : event.stop, history.chosen(event.case)] = ABSENT
        elif isinstance(event, Failed):
            code = WRONG if event.reason == "wrong-result" else FAILED
            status[event.start : event.stop, history.chosen(event.case)] = code
        elif isinstance(event, Missing):
            measured[event.start : event.stop] = False
    return status, measured


def _drivers(events: Iterable[Event], card: Card, commits: int) -> tuple[str, ...]:
    drivers = [card.driver] * commits
    for event in events:
        if isinstance(event, DriverChange):
            drivers[event.at :] = [event.driver] * len(drivers[event.at :])
    return tuple(drivers)


# The repository

_PEOPLE = (
    ("Ada Jansen", "ada@example.invalid"),
    ("Bo Lindqvist", "bo@example.invalid"),
    ("Chidi Okafor", "chidi@example.invalid"),
    ("Dora Szabó", "dora@example.invalid"),
    ("build robot", "robot@example.invalid"),
)
_EDITS = (
    "{}: hoist the index arithmetic out of the loop",
    "{}: load four numbers at a time",
    "{}: pad the shared tile against bank conflicts",
    "{}: unroll the inner loop",
    "{}: say what the macro means",
)
_CHORES = (
    "Mend a link in the notes",
    "Raise the oldest Python",
    "Tests: name the seed that failed",
    "Notes on how tiles are chosen",
    "Tidy up imports",
    "Changelog",
    "CI: keep the log of a failed build",
)
_IGNORED = ".asv/\n.harness/\n__pycache__/\n"
_SETTINGS = '[tool.harness]\nsuites = ["kernels/*"]\nresults = ".asv/results"\n'
_CONF = {
    "version": 1,
    "project": "synthetic",
    "repo": ".",
    "branches": ["HEAD"],
    "show_commit_url": "https://example.invalid/commit/",
    "plugins": [".harness.integrations.asv_plugin"],
    "environment_type": "checkout",
    "pythons": ["any"],
    "benchmark_dir": "benchmarks",
    "env_dir": ".asv/env",
    "results_dir": ".asv/results",
    "html_dir": ".asv/html",
}
_SIDE = "refs/side/branch"
_SIDE_MARK = 10_000_000


@dataclass(frozen=True, slots=True)
class _Commit:
    """A future commit, with the revisions of all sources after it, by path."""

    index: int
    message: bytes
    author: tuple[str, str]
    at: datetime
    changed: tuple[str, ...]
    revisions: Mapping[str, int]

    def source_sha256(self, path: str) -> str:
        return hashlib.sha256(_source(path, self.revisions[path])).hexdigest()

    def tree_sha256(self, suite: Suite) -> str:
        paths = (suite.source(kernel) for kernel in suite.kernels)
        return hashlib.sha256("".join(map(self.source_sha256, paths)).encode()).hexdigest()


def _plan(history: History) -> Iterator[_Commit]:
    """Commits, oldest first. What one is does not depend on how many follow."""
    revisions = {suite.source(kernel): 0 for suite, kernel, _ in history.cases}
    at = EPOCH
    for index in range(history.commits):
        draw = random.Random(f"{history.seed}/commit/{index}")
        at += timedelta(seconds=60 + round(draw.expovariate(1 / (3600 * MEAN_GAP_H))))
        changed = _changed(history, index, draw)
        revisions = {**revisions, **{path: revisions[path] + 1 for path in changed}} if changed else revisions
        back = (
            timedelta(days=draw.randrange(1, 9)) if history.skewed_clocks and index % 3 == 2 else timedelta(0)
        )
        yield _Commit(
            index=index,
            message=_message(history, index, changed, draw),
            author=_author(history, index, draw),
            at=at - back,
            changed=changed,
            revisions=revisions,
        )


def _changed(history: History, index: int, draw: random.Random) -> tuple[str, ...]:
    """Sources that a commit changes: what steps are about, and now and then one that nobody will notice."""
    paths = []
    for event in history.events:
        if isinstance(event, Step) and index in (event.at, event.until):
            columns = np.flatnonzero(history.chosen(event.case))
            paths += [history.cases[column][0].source(history.cases[column][1]) for column in columns]
    if history.cases and draw.random() < 0.15:
        suite, kernel, _ = draw.choice(history.cases)
        paths.append(suite.source(kernel))
    return tuple(dict.fromkeys(paths))


def _message(history: History, index: int, changed: Sequence[str], draw: random.Random) -> bytes:
    if history.hostile and index % 2:
        strange = index // 2 % (len(HOSTILE_TEXTS) + 3)
        if strange < len(HOSTILE_TEXTS):
            return HOSTILE_TEXTS[strange].encode()
        return (b"", b"\xff\xfe no UTF-8: caf\xe9", b"\n\n  blank lines first\r\nand another kind of line")[
            strange - len(HOSTILE_TEXTS)
        ]
    if not changed:
        return draw.choice(_CHORES).encode()
    return draw.choice(_EDITS).format(Path(changed[0]).stem).encode() + b"\n\nMeasured on one card.\n"


def _author(history: History, index: int, draw: random.Random) -> tuple[str, str]:
    if history.hostile and index % 3 == 0:
        text = HOSTILE_TEXTS[index // 3 % len(HOSTILE_TEXTS)]
        return re.sub(r"[<>\n\0]", "", text).strip(), 'x" onmouseover="alert(1)@example.invalid'
    return draw.choice(_PEOPLE)


def _source(path: str, revision: int) -> bytes:
    name = Path(path).stem
    body = "\n".join(f"    // step {step} of {revision}" for step in range(revision % 7))
    return f'extern "C" __global__ void {name}(float* x) {{\n{body}\n    x[0] = {revision}.0f;\n}}\n'.encode()


def _stream(history: History, known: Sequence[str]) -> Iterator[bytes]:
    """Yield the input of `git fast-import`: every commit that is not known yet."""

    def name(index: int) -> bytes:
        return known[index].encode() if index < len(known) else b":%d" % (index + 1)

    for commit in _plan(history):
        if commit.index < len(known):
            continue
        parent = name(commit.index - 1) if commit.index else b""
        merged = b""
        if parent and history.merge_every and commit.index % history.merge_every == history.merge_every - 1:
            merged = b":%d" % (_SIDE_MARK + commit.index)
            side = replace(commit, message=b"On a side branch")
            yield _commit(_SIDE, merged[1:], side, parent, b"", {f"notes/{commit.index}.md": b"aside\n"})
        yield _commit("refs/heads/main", name(commit.index)[1:], commit, parent, merged, _files(commit))
        if history.tag_every and commit.index % history.tag_every == history.tag_every - 1:
            version = (commit.index + 1) // history.tag_every
            yield b"reset refs/tags/v0.%d\nfrom %s\n\n" % (version, name(commit.index))


def _files(commit: _Commit) -> dict[str, bytes]:
    files = {path: _source(path, commit.revisions[path]) for path in commit.changed}
    if commit.index:
        return files or {"CHANGELOG.md": b"Commit %d\n" % commit.index}
    return {
        ".gitignore": _IGNORED.encode(),
        "pyproject.toml": _SETTINGS.encode(),
        "asv.conf.json": json.dumps(_CONF, indent=4).encode() + b"\n",
        **{path: _source(path, revision) for path, revision in commit.revisions.items()},
    }


def _commit(
    branch: str, mark: bytes, commit: _Commit, parent: bytes, merged: bytes, files: Mapping[str, bytes]
) -> bytes:
    name, mail = commit.author
    lines = [
        b"commit %s\nmark :%s\n" % (branch.encode(), mark),
        *(
            b"%s %s <%s> %d +0100\n" % (role, name.encode(), mail.encode(), commit.at.timestamp())
            for role in (b"author", b"committer")
        ),
        b"data %d\n%s\n" % (len(commit.message), commit.message),
        b"from %s\n" % parent if parent else b"",
        b"merge %s\n" % merged if merged else b"",
    ]
    lines += [
        b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(content), content)
        for path, content in files.items()
    ]
    return b"".join(lines) + b"\n"


def _git(repository: Path, *arguments: str, text: bytes = b"") -> bytes:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *arguments],
        cwd=repository,
        env={**kept, **own},
        input=text,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout


def _import_commits(history: History, repository: Path, known: Sequence[str]) -> tuple[str, ...]:
    """Full hashes of all commits, the oldest first."""
    marks = repository / ".git" / "synthetic-marks"
    _git(
        repository,
        *("fast-import", "--quiet", "--date-format=raw", f"--export-marks={marks}"),
        text=b"".join(_stream(history, known)),
    )
    made = {}
    for line in marks.read_text(encoding="ascii").splitlines():
        mark, _, commit = line[1:].partition(" ")
        if int(mark) < _SIDE_MARK:
            made[int(mark)] = commit
    marks.unlink()
    if history.merge_every:
        _git(repository, "update-ref", "-d", _SIDE)
    if history.commits:
        _git(repository, "reset", "--hard", "--quiet", "main")
    return (*known, *(made[mark] for mark in sorted(made)))


# Results


def write(history: History, folder: Path) -> Written:
    """Make the repository and its results in a folder that is new or empty."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    written = Written(
        history=history,
        repository=folder,
        results=folder / ".asv" / "results",
        conf=folder / "asv.conf.json",
        commits=_import_commits(history, folder, ()),
    )
    if not history.commits:  # nothing is checked out that could bring these
        for name, text in ((".gitignore", _IGNORED), ("pyproject.toml", _SETTINGS)):
            (folder / name).write_text(text, encoding="utf-8")
        _write_json(written.conf, _CONF)
    written.results.mkdir(parents=True)
    _write_json(written.results / "benchmarks.json", _benchmarks(history), indent=4)
    for card in history.cards:
        _write_card(written, card, range(history.commits))
    return written


def extend(written: Written, cards: Sequence[Card] | None = None, commits: int = 1) -> Written:
    """Add commits, measured on these cards, or on all. The result equals a longer history without the results
    of the other cards.
    """
    history = replace(written.history, commits=written.history.commits + commits)
    known = written.commits
    longer = replace(written, history=history, commits=_import_commits(history, written.repository, known))
    for card in history.cards if cards is None else cards:
        _write_card(longer, card, range(len(known), history.commits))
    return longer


def _write_card(written: Written, card: Card, indices: range) -> None:
    """Write a card's machine.json, and its files and records of some commits."""
    history = written.history
    folder = written.results / card.machine
    folder.mkdir(exist_ok=True)
    seen = numbers(history, card)
    newest = max(np.flatnonzero(seen.measured), default=None)
    entry = _entry(card, card.driver if newest is None else seen.drivers[newest])
    _write_json(folder / "machine.json", {**entry, "version": 1}, indent=4)
    for commit in _plan(history):
        if commit.index in indices and seen.measured[commit.index]:
            _write_json(written.result(commit.index, card), _result(written, card, commit, seen))
            if history.records:
                _write_records(written, card, commit, seen)


def _write_json(path: Path, content: object, indent: int | None = None) -> None:
    # Python's own encoder, as in asv: NaN is no JSON, and yet what asv writes.
    path.write_text(json.dumps(content, indent=indent, sort_keys=indent is not None), encoding="utf-8")


def _entry(card: Card, driver: str) -> dict[str, str]:
    return {**machine_entry(card.device(driver), _HOST), "arch": "x86_64"}


def _tracks(history: History, suite: Suite) -> list[str]:
    asked = sorted(f"track_{name}" for name in history.tracks)
    return [name for name in asked if TRACKS[name].headline in (None, suite.headline)]


def _benchmarks(history: History) -> dict[str, object]:
    found: dict[str, object] = {"version": RESULT_VERSION}
    for line, suite in enumerate(history.suites, 1):
        for track in _tracks(history, suite):
            name = f"{suite.benchmark}.{track}"
            found[name] = {
                "code": f"class {suite.name}:\n    def setup_cache(self):\n        return self.measure()",
                "direction": TRACKS[track].direction,
                "name": name,
                "param_names": ["kernel", "size"],
                "params": suite.params,
                "setup_cache_key": f"suites:{6 * line + 4}",
                "setup_cache_timeout": 21600.0,
                "timeout": 60.0,
                "type": "track",
                "unit": TRACKS[track].unit,
                "version": METHOD_VERSION,
            }
    return found


def _measured_at(commit: _Commit) -> datetime:
    return commit.at + timedelta(minutes=40)


def _result(written: Written, card: Card, commit: _Commit, seen: Numbers) -> dict[str, object]:
    """The content of asv's result file of a commit."""
    history = written.history
    entry = _entry(card, seen.drivers[commit.index])
    hidden = set(ANNOTATIONS) - ({"driver"} if history.driver_in_params else set())
    params = {key: value for key, value in entry.items() if key not in hidden} | {"python": "any"}
    started = round(_measured_at(commit).timestamp() * 1000)
    rows: dict[str, list[object]] = {}
    for suite in history.suites:
        columns = history.columns(suite)
        for track in _tracks(history, suite):
            value, factors = _values(commit.index, seen, columns, track)
            row = _asv_row(value, factors, seen.status[commit.index, columns], track)
            row[1:1] = [suite.params, METHOD_VERSION, started + 5 * len(rows)]
            rows[f"{suite.benchmark}.{track}"] = row
    lines = range(10, 10 + 6 * len(history.suites), 6)
    return {
        "commit_hash": written.commits[commit.index],
        "env_name": ENVIRONMENT,
        "date": round(commit.at.timestamp()) * 1000,
        "params": dict(sorted(params.items())),
        "python": "any",
        "requirements": {},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": rows,
        "durations": {"<build>": 4e-05, **{f"<setup_cache suites:{line}>": 2.2 for line in lines}},
        "version": RESULT_VERSION,
    }


def _asv_row(
    value: npt.NDArray[Any], factors: tuple[float, ...] | None, status: npt.NDArray[np.int8], track: str
) -> list[object]:
    """A row without what describes it, and without the nulls that asv leaves off at the end."""
    result = _marked(value, status, track)
    if result is None:
        return [result]
    if factors is None or not (status == OK).any():
        return [result, 0.003]
    statistics = [*(_five_digits(value * factor) for factor in factors)]
    counts = [np.full(len(value), 1), np.full(len(value), SLOTS)]
    return [result, 0.003, *(_with_none(column, status != OK) for column in (*statistics, *counts))]


def _values(
    index: int, seen: Numbers, columns: slice, track: str
) -> tuple[npt.NDArray[Any], tuple[float, ...] | None]:
    """A commit's values of a track, and the factors from these to asv's statistics; None without samples."""
    if track in _CONSTANT:
        return np.full(columns.stop - columns.start, _CONSTANT[track]), None
    stored, per_unit, factors = _STORED[track]
    values = getattr(seen, stored)[index, columns]
    return values if per_unit == 1 else values / per_unit, factors


def _factors(samples: Sequence[float]) -> tuple[float, ...]:
    """The interval and quartiles that asv finds for samples with a median of 1."""
    summary = summarize(samples, 0.99)
    ordered = sorted(samples)
    return summary.low_ns, summary.high_ns, ordered[SLOTS // 4], ordered[-1 - SLOTS // 4]


_TIME_FACTORS = _factors([1 + SPREAD * slot for slot in _SLOT])
_RATE_FACTORS = _factors([1 / (1 + SPREAD * slot) for slot in _SLOT])
_ERROR_RATIO = 0.03125
_STORED: dict[str, tuple[str, float, tuple[float, ...] | None]] = {
    "track_gflops": ("rate", 1, _RATE_FACTORS),
    "track_gbytes_per_s": ("rate", 1, _RATE_FACTORS),
    "track_time_ms": ("time_ns", 1e6, _TIME_FACTORS),
    "track_sm_clock_mhz": ("sm_clock_mhz", 1, None),
    "track_memory_clock_mhz": ("memory_clock_mhz", 1, None),
    "track_temperature_c": ("temperature_c", 1, None),
    "track_power_w": ("power_w", 1, None),
    "track_registers": ("registers", 1, None),
}
"""Field of `Numbers`, divisor of its value, and factors of its samples, by track."""
_CONSTANT = {
    "track_verified": 1,
    "track_error_ratio": _ERROR_RATIO,
    "track_local_bytes": 0,
    "track_spill_bytes": 0,
    "track_shared_bytes": 8192,
    "track_occupancy_percent": 50,
    "track_loop_instructions": 64,
}


def _marked(value: npt.NDArray[Any], status: npt.NDArray[np.int8], track: str) -> list[Any] | None:
    """Return values as asv stores them: NaN for a skipped case, null for a failed case, null alone if all
    failed.
    """
    listed: list[Any] = value.tolist()
    for column in np.flatnonzero(status):
        listed[column] = float("nan") if status[column] == ABSENT else None
        if status[column] == WRONG and TRACKS[track].wrong is not None:
            listed[column] = TRACKS[track].wrong
    return None if listed and all(item is None for item in listed) else listed


def _with_none(values: npt.NDArray[Any], none: npt.NDArray[np.bool_]) -> list[Any]:
    return [None if missing else value for value, missing in zip(values.tolist(), none, strict=True)]


def _five_digits(values: Floats) -> Floats:
    """Round to five digits, as asv does with statistics."""
    exponent = 4 - np.floor(np.log10(values))
    up, down = 10.0 ** np.maximum(exponent, 0), 10.0 ** np.maximum(-exponent, 0)
    rounded: Floats = np.round(values * up / down) / up * down
    return rounded


# Records

_HOST = Host(
    os="Linux",
    kernel="6.8.0-71-generic",
    cpu="AMD EPYC 9354 32-Core Processor",
    cpu_count=64,
    memory_bytes=512 * 2**30,
    python="3.12.3",
    packages={"numpy": "2.3.2", "pycuda": "2026.1", "asv": "0.6.6"},
)
_TOOLS = Toolchain(compiler="nvcc 13.0, V13.0.88", options=("-std=c++17",))
_SETTINGS_OF_RUN: dict[str, str | int | float | bool | None] = {
    "seed": 1,
    "timeout_s": 120.0,
    "l2": "cold",
    "precision": 0.002,
    "min_slots": 20,
    "max_slots": 2000,
    "min_time_s": 0.2,
    "max_time_s": None,
    "warmup_min_s": 0.1,
    "warmup_max_s": 1.0,
    "settled": 0.01,
    "min_slot_ns": 100000.0,
}
_SNAPSHOTS = 5
_CAUSES = {"thermal": "sw_thermal", "power": "sw_power_cap", "": ""}


def _write_records(written: Written, card: Card, commit: _Commit, seen: Numbers) -> None:
    history = written.history
    driver = seen.drivers[commit.index]
    for suite in history.suites:
        key = f"{history.seed}/{card.machine}/{commit.index}/{suite.name}"
        run = Run(
            harness_version=__version__,
            run_id=hashlib.sha256(key.encode()).hexdigest()[:16],
            started_at=_measured_at(commit).isoformat(timespec="seconds"),
            command="asv",
            source=Source(
                suite=suite.name,
                path=f"kernels/{suite.name}",
                commit=written.commits[commit.index],
                committed_at=commit.at.isoformat(timespec="seconds"),
                tree_sha256=commit.tree_sha256(suite),
            ),
            headline=suite.headline,
            kernels=suite.kernels,
            device=card.device(driver),
            toolchain=_TOOLS,
            host=_HOST,
            settings=_SETTINGS_OF_RUN,
            peaks=card.peaks,
            identity=_identity(card, driver),
        )
        with RecordWriter(written.results / card.machine, run) as writer:
            start = history.columns(suite).start
            for column, (kernel, size) in enumerate(suite.cases, start):
                writer.add(_row(suite, kernel, size, card, commit, seen, column))
            writer.finish(complete=True)


def _identity(card: Card, driver: str) -> dict[str, str]:
    return {
        "driver": driver,
        "name": card.name,
        "uuid": card.device().uuid or "",
        "vbios": "96.00.A5.00.1A",
        "power_limit_w": f"{card.power_limit_w:g}",
        "max_sm_clock_mhz": f"{card.clock_mhz:g}",
        "persistence": "on",
        "ecc": "on",
        "mig": "off",
    }


def _row(
    suite: Suite, kernel: str, size: int, card: Card, commit: _Commit, seen: Numbers, column: int
) -> Row:
    """A case's row, of which asv's numbers could be made."""
    index = commit.index
    status = int(seen.status[index, column])
    axes = suite.axes(size)
    case = CaseId.of(suite.name, kernel, axes)
    blank = Row(case=str(case), kernel=kernel, sizes=axes, dtype="float32", status="measured")
    if status == ABSENT:
        return replace(
            blank, status="skipped", reason="launch-refused", message="The grid is beyond the device's."
        )
    path = suite.source(kernel)
    if status == FAILED:
        log = f"{path}(3): error: identifier undefined"
        return replace(
            blank, status="failed", reason="build-failed", message="The source does not compile.", log=log
        )
    registers = int(seen.registers[index, column])
    built = replace(
        blank,
        flop=suite.work(size) if suite.headline == "GFLOP/s" else None,
        moved_bytes=suite.work(size) if suite.headline == "GB/s" else 12 * size**2,
        source_sha256=commit.source_sha256(path),
        launch=Launch(grid=(max(1, size // 32), 1, 1), block=(256, 1, 1)),
        resources=Resources(
            registers=registers,
            static_shared_bytes=0,
            local_bytes=0,
            max_threads_per_block=1024,
            binary_sha256=hashlib.sha256(f"{commit.source_sha256(path)}/{card.arch}".encode()).hexdigest(),
        ),
        verification=_verification(right=status == OK),
    )
    if status == WRONG:
        return replace(built, status="failed", reason="wrong-result", message="Element [0, 0] is 2, not 1.")
    times = [float(seen.time_ns[index, column]) * (1 + SPREAD * slot) for slot in _SLOT]
    random.Random(f"{index}/{column}").shuffle(times)
    return replace(built, measurement=_measurement(times), telemetry=_telemetry(card, index, seen, column))


def _verification(*, right: bool) -> Verification:
    ratio = _ERROR_RATIO if right else 8.0

    def check(data: Literal["integers", "random"], share: float) -> Check:
        return Check(
            data=data,
            seed=1,
            passed=right,
            largest_error=1e-6 * share,
            largest_ratio=share,
            wrong=0 if right else 1,
            elements=1024,
        )

    return Verification(
        passed=right, checks=(check("integers", 0.0 if right else ratio), check("random", ratio))
    )


def _measurement(times_ns: Sequence[float]) -> Measurement:
    return Measurement(
        times_ns=tuple(times_ns),
        launches_per_slot=1,
        l2="cold",
        clock="cuda-event",
        tick_ns=32.0,
        warmup_launches=50,
        warmup_s=0.2,
        settled=True,
        stopped_by="precision",
        started_ns=_STARTED_NS,
        ended_ns=_STARTED_NS + _LASTED_NS,
    )


_STARTED_NS = 1_000_000_000_000
_LASTED_NS = 500_000_000


def _telemetry(card: Card, index: int, seen: Numbers, column: int) -> Telemetry:
    """Snapshots around and during, the ones during it alike: their median is asv's number."""
    cause = _CAUSES[seen.throttled[index]]
    power = float(seen.power_w[index, column])

    def snapshot(share: float) -> Snapshot:
        after_s = share * _LASTED_NS / 1e9
        counters = dict.fromkeys(
            ("sw_power_cap", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake"), 0
        )
        if cause:
            counters[cause] = round(max(0.0, share) * _LASTED_NS)
        return Snapshot(
            at_ns=_STARTED_NS + round(share * _LASTED_NS),
            sm_clock_mhz=float(seen.sm_clock_mhz[index, column]),
            memory_clock_mhz=card.memory_clock_mhz,
            temperature_c=float(seen.temperature_c[index, column]),
            power_w=power,
            energy_j=round(1e6 + 3600.0 * index + power * after_s, 3),
            p_state=0,
            utilization_percent=100.0,
            clock_event_reasons=(cause,) if cause else (),
            throttle_ns=counters,
            memory_used_bytes=2**30,
            processes=(4242,),
        )

    return Telemetry(
        probe="nvml",
        before=snapshot(-0.1),
        during=tuple(snapshot((step + 0.5) / _SNAPSHOTS) for step in range(_SNAPSHOTS)),
        after=snapshot(1.1),
        unavailable={"load_average": "a matter of the host"},
        foreign_processes=(),
    )


# What goes wrong with results


def truncate(path: Path) -> None:
    """Half a file, as a full disk leaves it."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def make_newer(path: Path) -> None:
    """A file in the format of an asv that is yet to come."""
    _edit(path, lambda content: content.update(version=content["version"] + 1))


def rename_before(written: Written, commit: int, former: Mapping[str, str]) -> None:
    """Benchmarks that had another name before a commit: `former` has it by the present one."""

    def rename(content: dict[str, Any]) -> None:
        content["results"] = {former.get(name, name): row for name, row in content["results"].items()}

    _edit_before(written, commit, rename)


def change_kernels_before(
    written: Written, commit: int, *, without: Sequence[str] = (), extra: Sequence[str] = ()
) -> None:
    """Results before a commit that lack some kernels, as of a time before these were written, or that have
    some more of the value 1, which are gone now.
    """

    def change(content: dict[str, Any]) -> None:
        for row in content["results"].values():
            kernels, *others = row[1]
            names = [name for name in kernels if name not in map(repr, without)]
            old = list(itertools.product(kernels, *others))
            row[1] = [[*map(repr, extra), *names], *others]
            for place, column in enumerate(row):
                if place != 1 and isinstance(column, list):
                    values = dict(zip(old, column, strict=True))
                    row[place] = [values.get(key, 1) for key in itertools.product(*row[1])]

    _edit_before(written, commit, change)


def change_version_at(written: Written, commit: int, version: str = "2") -> None:
    """From a commit on, measured by another method: asv drops what was measured before."""

    def describe(content: dict[str, Any]) -> None:
        for benchmark in content.values():
            if isinstance(benchmark, dict):
                benchmark["version"] = version

    def renew(content: dict[str, Any]) -> None:
        for row in content["results"].values():
            row[2] = version

    _edit(written.results / "benchmarks.json", describe)
    for path in _files_of(written, range(commit, len(written.commits))):
        _edit(path, renew)


def split_machine(written: Written, card: Card) -> Path:
    """Move every second file of a card to another folder, whose machine.json says the same machine."""
    folder = written.results / card.machine
    other = written.results / f"{card.machine}-again"
    other.mkdir()
    (other / "machine.json").write_bytes((folder / "machine.json").read_bytes())
    for path in sorted(folder.glob(f"*-{ENVIRONMENT}.json"))[::2]:
        path.rename(other / path.name)
    return other


def rebase_away(written: Written, start: int, stop: int) -> tuple[str, ...]:
    """Make results of some commits those of commits that git does not know; return these hashes."""
    strangers = []
    for index in range(start, stop):
        stranger = hashlib.sha1(f"gone {index}".encode(), usedforsecurity=False).hexdigest()
        strangers.append(stranger)
        for path in _files_of(written, [index]):
            _edit(path, lambda content, name=stranger: content.update(commit_hash=name))  # type: ignore[misc]
            path.rename(path.with_name(f"{stranger[:8]}-{ENVIRONMENT}.json"))
    return tuple(strangers)


def _edit_before(written: Written, commit: int, change: Callable[[dict[str, Any]], None]) -> None:
    for path in _files_of(written, range(commit)):
        _edit(path, change)


def _files_of(written: Written, indices: Iterable[int]) -> list[Path]:
    paths = (written.result(index, card) for index in indices for card in written.history.cards)
    return [path for path in paths if path.exists()]


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    _write_json(path, content, indent=4 if path.name == "benchmarks.json" else None)


# As a command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="becomes the repository; must be new or empty")
    parser.add_argument("--preset", choices=("show",), help="one of everything that can happen")
    parser.add_argument("--commits", type=int, default=200, help="(default: 200)")
    parser.add_argument("--cases", type=int, default=20, help="a card (default: 20)")
    parser.add_argument("--cards", type=int, default=1, help="(default: 1)")
    parser.add_argument("--records", action="store_true", help="write our own records too")
    parser.add_argument("--hostile", action="store_true", help="subjects and authors that break things")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    asked = parser.parse_args(arguments)
    if asked.folder.exists() and any(asked.folder.iterdir()):
        parser.error(f"{asked.folder} is not empty")
    if min(asked.commits, asked.cards) < 0 or asked.cases < 1:
        parser.error("--commits and --cards cannot be negative, and there is at least one case")
    history = (
        show(asked.seed) if asked.preset else scale(asked.commits, asked.cases, asked.cards, seed=asked.seed)
    )
    history = replace(history, hostile=asked.hostile, records=history.records or asked.records)
    began = time.perf_counter()
    written = write(history, asked.folder)
    files = [path for path in written.results.rglob("*") if path.is_file()]
    sys.stdout.write(
        f"{len(written.commits)} commits, {len(history.cases)} cases, {len(history.cards)} cards, with\n"
        f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB,\n"
        f"in {written.results} after {time.perf_counter() - began:.1f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
