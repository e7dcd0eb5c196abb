"""Simulate how often `harness judge` is right about files of pytest-benchmark.

    python scripts/bench_stock.py [--trials 20000] [--margin 0.005] [--noise quiet] [--json rates.json]

It counts false alarms and slowdowns found, also by other rules on the same processes. Noise between processes
is made up:

- quiet: 0.3 % for each process;
- drift: an autoregressive noise of 0.8 % (0.9 from one process to the next), and 0.1 % for each;
- two states: 12 % apart, with a third of the time in the slower state, and quiet noise;
- bursts: quiet, but 6 % of the processes are 10 to 70 % slower;
- loud: 3 % for each process;
- warming: quiet, and every process is 1.5 % slower than the one before.

The order is base head, head base. "warming, base first" always has base head.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.judgement.judge import MetricEffects, judge
from harness.judgement.saved_runs import judge_files, judge_pairs, policy_for
from harness.judgement.statistics.moderated import DEFAULT_PRIOR, Prior
from harness.judgement.statistics.paired import ProcessEffect
from harness.records.imports.identity import Identity
from harness.records.imports.pytest_benchmark_files import Benchmark, BenchmarkFile

Floats = NDArray[np.float64]
EFFECTS = (0.0, 0.02, 0.05, 0.1)
PAIRS = (4, 8, 16)
AT_ONCE = 200
"""Benchmarks of one simulated comparison: they share its files, not its noise."""
THRESHOLD = 0.05
"""Threshold of pytest-benchmark's --benchmark-compare-fail=median:5%, on one process of each side."""
PRIORS: Mapping[str, Prior | None] = {
    "harness judge": None,
    "1 %, 4 df": Prior(variance=0.01**2, df=4.0),
    "0.1 %, 5 df": DEFAULT_PRIOR,
}


def quiet(rng: np.random.Generator, trials: int, processes: int) -> Floats:
    return rng.normal(0, 0.003, (trials, processes))


def loud(rng: np.random.Generator, trials: int, processes: int) -> Floats:
    return rng.normal(0, 0.03, (trials, processes))


def drift(rng: np.random.Generator, trials: int, processes: int) -> Floats:
    noise = rng.normal(0, 0.001, (trials, processes))
    level = rng.normal(0, 0.008, trials)
    for process in range(processes):
        noise[:, process] += level
        level = 0.9 * level + rng.normal(0, 0.008 * np.sqrt(1 - 0.9**2), trials)
    return noise


def two_states(rng: np.random.Generator, trials: int, processes: int) -> Floats:
    slow = rng.random((trials, processes)) < 0.35
    noise: Floats = quiet(rng, trials, processes) + slow * np.log(1.12)
    return noise


def bursts(rng: np.random.Generator, trials: int, processes: int) -> Floats:
    met = rng.random((trials, processes)) < 0.06
    slower = np.log1p(rng.uniform(0.1, 0.7, (trials, processes)))
    noise: Floats = quiet(rng, trials, processes) + met * slower
    return noise


def warming(rng: np.random.Generator, trials: int, processes: int) -> Floats:
    noise: Floats = quiet(rng, trials, processes) + np.log1p(0.015) * np.arange(processes)
    return noise


Noise = Callable[[np.random.Generator, int, int], Floats]
NOISES: Mapping[str, tuple[Noise, bool]] = {
    "quiet": (quiet, True),
    "drift": (drift, True),
    "two states": (two_states, True),
    "bursts": (bursts, True),
    "loud": (loud, True),
    "warming": (warming, True),
    "warming, base first": (warming, False),
}
"""By name, and whether the order is swapped every other time."""


def in_turns(noise: Floats, *, swapped: bool) -> tuple[Floats, Floats]:
    """Noise of base's processes and of head's, a column a pair."""
    by_pair = noise.reshape(noise.shape[0], -1, 2).copy()
    if swapped:
        by_pair[:, 1::2] = by_pair[:, 1::2, ::-1]
    return by_pair[:, :, 0], by_pair[:, :, 1]


def saved(times_ns: Floats, place: int) -> BenchmarkFile:
    """Return the file that a process would have saved, with a benchmark for each time."""
    return BenchmarkFile(
        path=f"{place}.json",
        saved_at=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=place),
        identity=Identity(of=f"{place}.json", written_by="made up", machine={"node": "simulated"}),
        device="simulated",
        on_gpu=False,
        benchmarks={
            str(number): Benchmark(
                name=str(number), fullname=str(number), timer="made up", median_ns=float(time)
            )
            for number, time in enumerate(times_ns)
        },
    )


def statuses(
    rng: np.random.Generator, name: str, pairs: int, effect: float, trials: int, margin: float | None = None
) -> Counter[str]:
    """Count verdicts on a slowdown of `effect`, and under "threshold" those of the other rule."""
    noise, swapped = NOISES[name]
    found: Counter[str] = Counter()
    for _ in range(-(-trials // AT_ONCE)):
        base, head = in_turns(noise(rng, AT_ONCE, 2 * pairs), swapped=swapped)
        head = head + np.log1p(effect)
        first = [2 * pair + (swapped and pair % 2) for pair in range(pairs)]
        result = judge_files(
            [saved(1e6 * np.exp(base[:, pair]), first[pair]) for pair in range(pairs)],
            [saved(1e6 * np.exp(head[:, pair]), 4 * pair + 1 - first[pair]) for pair in range(pairs)],
            margin=margin,
        )
        found.update(verdict.status for verdict in result.verdicts)
        found["threshold"] += int((head[:, -1] - base[:, -1] > np.log1p(THRESHOLD)).sum())
    return found


def at_the_margin(
    rng: np.random.Generator, prior: Prior | None, spread: float, pairs: int, trials: int
) -> float:
    """How often code that is slower by the margin itself is called slower: 0.001 is promised. With a prior by
    the plain t, without one as `harness judge` does it.
    """
    policy = policy_for(None, None, 0.999, on_gpu=False, pairs=pairs)
    ratios = rng.normal(np.log1p(policy.margin), np.sqrt(2) * spread, (trials, pairs)).tolist()
    if prior is None:
        judged = (judge_pairs(row, policy) for row in ratios)
    else:
        judged = (judge([MetricEffects("time", effects, prior)], policy, 0) for effects in map(plain, ratios))
    return sum(each.status == "slower" for each in judged) / trials


def plain(log_ratios: list[float]) -> tuple[ProcessEffect, ...]:
    return tuple(ProcessEffect(ratio, 0.0, 1, 0) for ratio in log_ratios)


def of_files(rng: np.random.Generator, asked: argparse.Namespace) -> list[dict[str, object]]:
    print("Called slower, of code that is slower by this; of code that is the same: slower or faster.")
    print(f"{'noise':<20} {'pairs':>5}  " + "".join(f"{100 * e:>7g} %" for e in EFFECTS), end="")
    print(f"{'unchanged':>11}{'invalid':>9}   median:5% at 0 and 10 %")
    total = -(-asked.trials // AT_ONCE) * AT_ONCE
    rates: list[dict[str, object]] = []
    for name, pairs in itertools.product(asked.noise or NOISES, PAIRS):
        found = {e: statuses(rng, name, pairs, e, asked.trials, asked.margin) for e in EFFECTS}
        alarms = found[0.0]["regression"] + found[0.0]["improvement"]
        slower = [alarms / total, *(found[effect]["regression"] / total for effect in EFFECTS[1:])]
        same, invalid = (found[0.0][status] / total for status in ("unchanged", "invalid"))
        other = [found[effect]["threshold"] / total for effect in (EFFECTS[0], EFFECTS[-1])]
        print(f"{name:<20} {pairs:>5}  " + "".join(f"{rate:>9.4f}" for rate in slower), end="")
        print(f"{same:>11.3f}{invalid:>9.3f}   {other[0]:.3f} {other[1]:.3f}", flush=True)
        rates.append({"noise": name, "pairs": pairs, "slower": slower, "unchanged": same, "other": other})
    return rates


def of_priors(rng: np.random.Generator, trials: int) -> list[dict[str, object]]:
    print("\nCalled slower, of code that is slower by the margin, 2 %, by priors; 0.001 is promised.")
    print(f"{'a process':<12} {'pairs':>5}  " + "".join(f"{name:>15}" for name in PRIORS))
    rates: list[dict[str, object]] = []
    for spread, pairs in itertools.product((0.003, 0.01, 0.03), (3, 4, 7, 8, 12)):
        each = [at_the_margin(rng, prior, spread, pairs, trials) for prior in PRIORS.values()]
        print(f"{f'{100 * spread:g} %':<12} {pairs:>5}  " + "".join(f"{rate:>15.4f}" for rate in each))
        rates.append({"spread": spread, "pairs": pairs, "at_the_margin": each})
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--margin", type=float, help="as a share; default: that of harness judge")
    parser.add_argument("--noise", action="append", choices=NOISES, help="default: all, and priors")
    parser.add_argument("--json", type=Path, help="where to write the rates, too")
    asked = parser.parse_args()
    rng = np.random.default_rng(1)
    rates = of_files(rng, asked)
    if not asked.noise:
        rates += of_priors(rng, asked.trials)
    if asked.json:
        asked.json.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
