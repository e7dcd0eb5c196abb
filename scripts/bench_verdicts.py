"""Compare our verdicts with those of other tools, on the same kernels in the same run.

    python scripts/bench_verdicts.py --json verdicts.json

Code is compared with itself, and with itself and a slowdown planted in SM cycles. One build serves both arms,
with 0 and with n steps of a planted chain. The other rules are those of nvbench, triton's do_bench, the
median of 100 launches between events, pytest-benchmark's 5 % and asv's factor. Their tools time arm A before
arm B, in their own processes (scripts/bench_peers.py). nvbench needs cuda-bench 0.3, do_bench needs torch and
triton, and asv's rule needs asv. A kernel named with `,graph=1` is timed by CUDA graph; of the others only
do_bench_cudagraph times it. Parts take turns, in random order, until the trials or the budget are used up.

The table shows for each rule: how often it called code slower or faster than itself, how many planted
slowdowns it called slower, and how many of all verdicts it left undecided. It also shows the seconds of a
verdict: those for which it held the card, those of its warm-up, and the wall time with its share of the
processes' start.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

import harness
from harness.config import load_config
from harness.device.telemetry import probe_for
from harness.errors import HarnessError, MeasureError, UsageError, WorkerError
from harness.measure import protocol
from harness.records.types import DeviceInfo, Verdict
from harness.run.compare import Comparing
from harness.run.compare_settings import CompareSettings
from harness.run.device_session import find_device, unfit
from harness.run.pair_session import CaseEntry
from harness.run.sweep.executors import Silent
from harness.suite.case_id import CaseId
from harness.suite.loader import LoadedSuite, discover, load
from harness.suite.planning import PlannedCase
from harness.system.process import Failed

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "scripts" / "bench_peers.py"

KERNELS = ("matmul.thread_tiling_2d@2048", "matmul.wmma_warp_tiling@4096", "power.tensor")
RULES = {
    "ours": ("harness compare",),
    "nvbench": ("nvbench-compare-robust", "nvbench-compare-legacy"),
    "do_bench": ("triton do_bench, mean > 1 %",),
    "do_bench_cudagraph": ("do_bench_cudagraph, > 1 %",),
    "events": ("median of 100 events, > 1 %", "pytest-benchmark, mean:5%"),
    "asv": ("asv continuous, factor 1.1", "asv continuous, factor 1.01"),
}
"""Rules by the part that times for them, in the order of the table's lines."""
TOGETHER = (("ours",), ("nvbench",), ("do_bench", "do_bench_cudagraph"), ("events", "asv"))
"""Parts that take their turn together: those of others in one process, ours in as many as it needs."""
CUDA_ONLY = ("nvbench", "do_bench", "do_bench_cudagraph")
SAID = {
    "regression": "slower",
    "improvement": "faster",
    "unchanged": "same",
    "inconclusive": "undecided",
    "invalid": "undecided",
}
SAME = "0"
"""The level of code against itself, among levels in percent."""
WIDTH = 100
LEAST_S, MOST_S = 60.0, 120.0
"""Limits of the time of a process of the others, in seconds, whatever is left of the budget."""


@dataclass(frozen=True, slots=True)
class Chosen:
    loaded: LoadedSuite
    planned: PlannedCase

    @property
    def id(self) -> str:
        return self.planned.case.id


@dataclass(slots=True)
class Book:
    """The content of the JSON file."""

    device: DeviceInfo
    settings: dict[str, Any]
    started_at: str
    """UTC, ISO 8601."""
    harness_version: str = harness.__version__
    identity: dict[str, str] = field(default_factory=dict)
    calibrated_at: dict[str, str | None] = field(default_factory=dict)
    """By suite."""
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of the planted chain, by case and level."""
    about: dict[str, str] = field(default_factory=dict)
    """Versions of the others."""
    absent: dict[str, str] = field(default_factory=dict)
    """Parts that could not be had, and why."""
    notes: list[str] = field(default_factory=list)
    measurements: list[dict[str, Any]] = field(default_factory=list)
    """One for each part, case, level and trial, with the verdicts of the part's rules."""
    wall_s: float = 0.0


def pair_of(planned: PlannedCase, name: str, steps: int) -> protocol.PairOf:
    """One build against itself, the head's chain so many steps long."""
    kernel = planned.kernel.name
    base = protocol.PairSide(suite="head", kernel=kernel, planted=True)
    head = protocol.PairSide(suite="head", kernel=kernel, planted=True, steps=steps)
    return protocol.PairOf(id=name, sizes=planned.case.sizes, base=base, head=head)


class Ours:
    """Comparisons of one suite's cases: one a trial, in fresh processes, as `harness compare` makes them."""

    def __init__(self, comparing: Comparing, cases: Sequence[Chosen]) -> None:
        self.comparing = comparing
        self.cases = list(cases)
        self.steps: dict[str, dict[str, int]] = {}
        self._digests: dict[str, dict[str, str]] = {}

    def prepare(self, levels: Sequence[str]) -> Iterator[str]:
        """Build everything and find the steps for each level; tells why of each case that has none."""
        pairs = tuple(pair_of(chosen.planned, chosen.id, 0) for chosen in self.cases)
        timeout_s = self.comparing.settings.timeout_s
        try:
            self.comparing.builder.ask(protocol.Inspect(pairs=pairs), len(pairs) * timeout_s)
        except WorkerError:
            pass  # told of the case that needs what does not build
        finally:
            # It holds a context on the card, which would count as somebody else's while others are timed.
            self.comparing.builder.kill()
        for chosen, pair in zip(list(self.cases), pairs, strict=True):
            try:
                self.steps[chosen.id] = self._steps(pair, levels, timeout_s)
            except HarnessError as error:
                self.cases.remove(chosen)
                yield f"{chosen.id} is left out: {error.message}"

    def _steps(self, pair: protocol.PairOf, levels: Sequence[str], timeout_s: float) -> dict[str, int]:
        """Measured for the smallest and the largest level, and in proportion between them: the first steps
        may cost less than the later ones.
        """
        percents = sorted(map(float, levels))
        ends: dict[float, int] = {}
        try:
            for percent in {percents[0], percents[-1]}:
                request = protocol.FindSteps(
                    pair=pair, seed=self.comparing.settings.seed, target=percent / 100
                )
                reply = self.comparing.ask(request, timeout_s)
                if isinstance(reply, Failed):
                    raise MeasureError(reply.message, log=reply.log)
                ends[percent] = reply
        finally:
            self.comparing.leave()
        (low, first), (high, last) = min(ends.items()), max(ends.items())
        slope = (last - first) / (high - low) if high > low else 0.0
        return {SAME: 0} | {level: max(1, round(first + slope * (float(level) - low))) for level in levels}

    def trial(self) -> Iterator[dict[str, Any]]:
        told = [(chosen, level) for chosen in self.cases for level in self.steps[chosen.id]]
        entries = [self._entry(chosen, level) for chosen, level in told]
        began = time.perf_counter()
        result = self.comparing.compare(entries)
        wall_s = (time.perf_counter() - began) / max(1, len(entries))
        for (chosen, level), entry, verdict in zip(told, entries, result.verdicts, strict=True):
            self._digests[chosen.id] = entry.digests or self._digests.get(chosen.id, {})
            yield ours_as_told(chosen.id, level, entry, verdict, wall_s)
        if result.interrupted:
            raise KeyboardInterrupt

    def _entry(self, chosen: Chosen, level: str) -> CaseEntry:
        pair = pair_of(chosen.planned, f"{chosen.id} +{level} %", self.steps[chosen.id][level])
        entry = self.comparing.entry(pair, chosen.planned.case)
        # Verified in full once; afterwards outputs only have to be what they were, as in a comparison.
        entry.digests = dict(self._digests.get(chosen.id, {}))
        return entry


def ours_as_told(case: str, level: str, entry: CaseEntry, verdict: Verdict, wall_s: float) -> dict[str, Any]:
    rounds = [*entry.trial.rounds, *entry.trial.again]
    effect = verdict.time.effect if verdict.time else None
    return {
        "part": "ours",
        "case": case,
        "level": level,
        "verdicts": [
            {
                "rule": RULES["ours"][0],
                "said": SAID.get(verdict.status, "failed"),
                "effect": effect,
                "why": verdict.message,
            }
        ],
        "gpu_s": verdict.gpu_s,
        "warmup_s": sum(each.block.warmup_s for each in rounds),
        "wall_s": wall_s,
        "raw": {
            "status": verdict.status,
            "reason": verdict.reason,
            "processes": len(entry.trial.rounds),
            "confirming": len(entry.trial.again),
            "time": msgspec.to_builtins(verdict.time),
            "cycles": msgspec.to_builtins(verdict.cycles),
            "smallest_visible": verdict.smallest_visible,
            "power_capped": verdict.power_capped,
            "clocks_mhz": [arm.sm_clock_mhz if arm else None for arm in (verdict.base, verdict.head)],
            "touched": dict(verdict.touched),
            "blocks": [
                {
                    "orders": [quad.order for quad in each.block.quads],
                    "times_ns": [quad.times_ns for quad in each.block.quads],
                    "cycles": [quad.cycles for quad in each.block.quads],
                }
                for each in rounds
            ],
        },
    }


class Run:
    """Everything measured, part after part."""

    def __init__(self, arguments: argparse.Namespace, device: DeviceInfo) -> None:
        self.arguments = arguments
        settings = {name: _plain(value) for name, value in vars(arguments).items()}
        self.book = Book(device, settings, dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"))
        self.began = time.monotonic()
        self.ours: list[Ours] = []
        self._rng = random.Random(arguments.seed)  # noqa: S311 - an order, not a secret
        for part in CUDA_ONLY:
            if device.backend != "cuda":
                self.book.absent[part] = f"needs a CUDA device; {device.spec} is none"

    @property
    def left_s(self) -> float:
        return float(self.arguments.budget) - (time.monotonic() - self.began)

    def measure(self, chosen: Sequence[Chosen]) -> None:
        with ExitStack() as stack:
            self._prepare(chosen, stack)
            if not any(ours.cases for ours in self.ours):
                raise MeasureError("Nothing to measure.\n" + "\n".join(self.book.notes))
            self._trials()

    def _prepare(self, chosen: Sequence[Chosen], stack: ExitStack) -> None:
        config = load_config()
        settings = CompareSettings(
            command="calibrate",
            device=self.book.device.spec,
            solo_s=0.0,
            measure_identical=True,
            seed=self.arguments.seed,
            results=self.arguments.results or config.root / config.results,
            save=False,
        )
        with closing(probe_for(self.book.device)) as probe:
            self.book.identity = dict(probe.identity())
        by_suite: dict[str, list[Chosen]] = defaultdict(list)
        for each in chosen:
            if refused := unfit(each.planned, self.book.device):
                self.book.notes.append(f"{each.id} is left out: {refused.message}")
            else:
                by_suite[each.loaded.suite.name].append(each)
        for name, cases in by_suite.items():
            loaded = cases[0].loaded
            comparing = stack.enter_context(Comparing(loaded, loaded, settings, Silent()))
            ours = Ours(comparing, cases)
            self.book.notes += ours.prepare(self.arguments.levels)
            self.book.steps |= ours.steps
            known = comparing.calibration
            self.book.calibrated_at[name] = known.measured_at if known else None
            self.ours.append(ours)
        told(f"prepared in {time.monotonic() - self.began:.1f} s")

    def _trials(self) -> None:
        """Round and round, so that no part has the card in a state of its own."""
        parts = [part for part in RULES if part in (self.arguments.only or RULES)]
        chosen = (tuple(part for part in group if part in parts) for group in TOGETHER)
        groups = [group for group in chosen if group]
        took: dict[tuple[str, ...], float] = {}
        short: set[tuple[str, ...]] = set()
        trials = self.arguments.trials
        most_of = {"nvbench": self.arguments.nvbench_trials, "ours": self.arguments.our_trials or trials}
        for trial in range(max(trials, *most_of.values())):
            for group in self._rng.sample(groups, len(groups)):
                now = tuple(part for part in group if part not in self.book.absent)
                most = most_of.get(group[0], trials)
                if not now or trial >= most or group in short:
                    continue
                if self.left_s < took.get(group, 0.0):
                    short.add(group)
                    self.book.notes.append(
                        f"{', '.join(now)}: {trial} of {most} trials, for the budget of "
                        f"{self.arguments.budget:g} s was used up."
                    )
                    continue
                began = time.monotonic()
                self._part(now, trial)
                took[group] = time.monotonic() - began
                told(f"trial {trial + 1}: {', '.join(now)} in {took[group]:.1f} s")

    def _part(self, parts: tuple[str, ...], trial: int) -> None:
        found = self._ours() if parts == ("ours",) else self._peers(parts)
        try:
            for measurement in found:
                self.book.measurements.append({**measurement, "trial": trial})
        finally:
            self.save()

    def save(self) -> None:
        """After every part, so that a run that is cut short leaves what it had."""
        self.book.wall_s = time.monotonic() - self.began
        if self.arguments.json:
            self.arguments.json.write_bytes(msgspec.json.encode(self.book))

    def _ours(self) -> Iterator[dict[str, Any]]:
        for ours in self.ours:
            if ours.cases:
                yield from ours.trial()

    def _peers(self, parts: tuple[str, ...]) -> list[dict[str, Any]]:
        """Measurements of parts that share a process. What the process costs beside them they share too."""
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="bench-verdicts-") as folder:
            problem = self._child(Path(folder), parts)
            answers = Path(folder) / "answers.jsonl"
            lines = answers.read_bytes().splitlines() if answers.exists() else []
        wall_s = time.perf_counter() - began
        measurements = [each for answer in lines if (each := self._answer(msgspec.json.decode(answer)))]
        if problem:
            self.book.absent |= dict.fromkeys(parts, problem)
        if measurements:
            share_s = (wall_s - sum(each["wall_s"] for each in measurements)) / len(measurements)
            for each in measurements:
                each["wall_s"] += share_s
        return measurements

    def _answer(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """A measurement; None for anything else, which is noted."""
        if "verdicts" in answer:
            return answer
        self.book.about |= answer.get("about", {})
        if "missed" in answer:
            self.book.notes.append(answer["missed"])
        elif "part" in answer:
            self.book.absent[answer["part"]] = answer.get("absent") or answer["failed"]
        return None

    def _child(self, folder: Path, parts: tuple[str, ...]) -> str:
        """Run the peers' process; what went wrong, or nothing."""
        spec = {
            "parts": parts,
            "device": self.book.device.spec,
            "seed": self.arguments.seed,
            "order_seed": self._rng.getrandbits(32),
            "cases": [
                {
                    "id": chosen.id,
                    "folder": str(chosen.loaded.suite.root),
                    "scratch": str(ours.comparing.scratch),
                    "kernel": chosen.planned.kernel.name,
                    "sizes": dict(chosen.planned.case.sizes),
                    "steps": ours.steps[chosen.id],
                }
                for ours in self.ours
                for chosen in ours.cases
            ],
            "answers": str(folder / "answers.jsonl"),
            "nvbench_timeout_s": self.arguments.nvbench_timeout,
        }
        (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        log = folder / "log"
        timeout_s = min(MOST_S, max(LEAST_S, self.left_s))
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    [sys.executable, str(PEERS), str(folder / "spec.json")],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"no end within {timeout_s:.0f} s"
        text = log.read_text(encoding="utf-8", errors="replace").strip()
        if done.returncode or "Traceback" in text:
            told(text[-4000:])
        return f"exit status {done.returncode}: {text[-200:]}" if done.returncode else ""


def told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def choose(names: Sequence[str], folders: Sequence[Path], *, quick: bool) -> list[Chosen]:
    """Kernels as ``suite.kernel`` or ``suite.kernel@SIZE``. Raises UsageError, SuiteError."""
    suites: dict[str, LoadedSuite] = {}
    for folder in (*folders, *discover(ROOT, ["kernels/*", "benchmarks/*"])):
        loaded = load(folder)
        suites.setdefault(loaded.suite.name, loaded)
    chosen = []
    for name in names:
        wanted = CaseId.parse(name)
        if wanted.suite not in suites or wanted.kernel not in suites[wanted.suite].suite.by_name:
            raise UsageError(
                f"There is no kernel {name!r}. Suites here: {', '.join(suites)}; --suite names another one."
            )
        found = suites[wanted.suite].suite
        problem = found.problem
        sizes = wanted.size.at(problem.axes) if wanted.size else next(problem.points(quick=quick))
        spec = found.by_name[wanted.kernel]
        chosen.append(Chosen(suites[wanted.suite], PlannedCase(spec, found.case(spec, sizes))))
    return chosen


def report(book: Mapping[str, Any]) -> list[str]:
    """Lines of at most WIDTH columns: a table a kernel, one of all, what else is to know, and the card."""
    settings, measurements = book["settings"], book["measurements"]
    cases = list(book["steps"])
    lines: list[str] = []
    for case in [*cases, *([""] if len(cases) > 1 else [])]:
        of_case = [each for each in measurements if case in ("", each["case"])]
        lines += [*_title(case, cases, of_case), *_table(of_case, settings, book["absent"]), ""]
    for note in [*_notes(measurements, book["absent"]), *book["notes"]]:
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="  ")
    return [*lines, *textwrap.wrap(_closing(book), WIDTH)]


def _title(case: str, cases: Sequence[str], measurements: Sequence[Mapping[str, Any]]) -> list[str]:
    if not case:
        return [f"All {len(cases)} kernels"]
    told_by_quads = []
    for level in sorted({each["level"] for each in measurements} - {SAME}, key=float):
        found = [
            effect["effect"]
            for each in measurements
            if each["level"] == level and each["part"] == "ours"
            for effect in [each["raw"]["cycles"] or each["raw"]["time"]]
            if effect
        ]
        if found:
            told_by_quads.append(f"+{level} % is {100 * fmean(found):+.2f} %")
    seen = f"As our quads see what was planted: {', '.join(told_by_quads)}."
    return [case, *(textwrap.wrap(seen, WIDTH) if told_by_quads else [])]


def _table(
    measurements: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], absent: Mapping[str, str]
) -> list[str]:
    levels = settings["levels"]
    heads = ["A/A false", *(f"+{level} %" for level in levels), "undecided", "GPU s", "warm-up", "wall s"]
    widths = [10, *(8 for _ in levels), 10, 8, 8, 7]

    def row(rule: str, cells: Sequence[str]) -> str:
        return f"{rule:28}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    lines = [row("rule", heads)]
    for part, rules in RULES.items():
        of_part = [each for each in measurements if each["part"] == part]
        for rule in rules:
            if of_part:
                lines.append(row(rule, _cells(rule, of_part, levels)))
            elif part in (settings["only"] or RULES):
                why = " ".join(absent.get(part, "no trial").split())
                lines.append(_cut(f"{rule:28} absent: {why}"))
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def _cells(rule: str, measurements: Sequence[Mapping[str, Any]], levels: Sequence[str]) -> list[str]:
    by_level = defaultdict(list)
    for each in measurements:
        for verdict in each["verdicts"]:
            if verdict["rule"] == rule and verdict["said"] != "failed":
                by_level[each["level"]].append(verdict["said"])

    def share(said: Sequence[str], *wanted: str) -> str:
        return f"{sum(each in wanted for each in said)}/{len(said)}" if said else "-"

    every = [said for told_at in by_level.values() for said in told_at]
    return [
        share(by_level[SAME], "slower", "faster"),
        *(share(by_level[level], "slower") for level in levels),
        share(every, "undecided"),
        *(f"{fmean(each[name] for each in measurements):.2f}" for name in ("gpu_s", "warmup_s", "wall_s")),
    ]


def _notes(measurements: Sequence[Mapping[str, Any]], absent: Mapping[str, str]) -> Iterator[str]:
    """Yield notes beside the tables: slowdowns called faster, failed cases, parts that stopped midway."""
    faster: dict[str, int] = defaultdict(int)
    for each in measurements:
        for verdict in each["verdicts"]:
            if verdict["said"] == "faster" and each["level"] != SAME:
                faster[verdict["rule"]] += 1
            if verdict["said"] == "failed":
                yield f"{each['case']} +{each['level']} %: failed: {verdict['why']}"
    for rule, count in faster.items():
        yield f"{rule} called {count} planted slowdown{'s' if count > 1 else ''} faster."
    for part in {each["part"] for each in measurements} & set(absent):
        yield f"{part} stopped midway: {absent[part]}"


def _closing(book: Mapping[str, Any]) -> str:
    device, identity = book["device"], book["identity"]
    seen = [
        clock
        for each in book["measurements"]
        if each["part"] == "ours"
        for clock in each["raw"]["clocks_mhz"]
        if clock
    ]
    clocks = f"SM clocks {min(seen):.0f} to {max(seen):.0f} MHz in our quads" if seen else "SM clocks unknown"
    most = identity.get("max_sm_clock_mhz") or device["max_clock_mhz"]
    calibrated = [f"{name} {when}" for name, when in book["calibrated_at"].items() if when]
    parts = [
        f"{device['name']}, driver {device['driver']}",
        clocks + (f", at most {most}" if most else ""),
        f"power limit {identity['power_limit_w']} W" if "power_limit_w" in identity else "",
        f"calibrated: {', '.join(calibrated)}" if calibrated else "not calibrated",
        ", ".join(f"{name} {version}" for name, version in book["about"].items()),
        f"{book['wall_s']:.0f} s in all",
    ]
    return "; ".join(filter(None, parts)) + "."


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="default: cuda, the first card")
    parser.add_argument(
        "--kernel", action="append", metavar="SUITE.KERNEL[@SIZE]", help=f"default: {' '.join(KERNELS)}"
    )
    parser.add_argument("--suite", action="append", type=Path, default=[], help="another suite's folder")
    parser.add_argument(
        "--levels", default="0.5,1,2", help="slowdowns to plant, in percent (default: %(default)s)"
    )
    parser.add_argument("--trials", type=int, default=3, help="verdicts of each rule, kernel and level")
    parser.add_argument("--nvbench-trials", type=int, default=3, help="the same of nvbench, which is slow")
    parser.add_argument("--our-trials", type=int, help="the same of ours, each of several processes")
    parser.add_argument(
        "--nvbench-timeout", type=float, default=5.0, help="seconds for each of its measurements"
    )
    parser.add_argument("--only", action="append", choices=list(RULES), help="parts to run (default: all)")
    parser.add_argument("--budget", type=float, default=235.0, help="seconds after which no part is begun")
    parser.add_argument("--results", type=Path, help="where calibrations lie (default: the project's)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there, raw figures too")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: tables of such a file")
    found = parser.parse_args(arguments)
    try:
        found.levels = [f"{float(level):g}" for level in found.levels.split(",")]
    except ValueError:
        parser.error(f"--levels {found.levels}: expected percents, such as 0.5,1,2")
    if any(not 0 < float(level) < 100 for level in found.levels):
        parser.error(f"--levels {','.join(found.levels)}: expected percents between 0 and 100")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    if asked.show:
        print("\n".join(report(msgspec.json.decode(asked.show.read_bytes()))))
        return 0
    interrupted = False
    try:
        device = find_device(asked.device)
        run = Run(asked, device)
        try:
            run.measure(choose(asked.kernel or KERNELS, asked.suite, quick=device.kind != "gpu"))
        except KeyboardInterrupt:
            interrupted = True
        run.save()
    except HarnessError as error:
        told(error.message)
        return int(error.exit_code)
    print("\n".join(report(msgspec.to_builtins(run.book))))
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
