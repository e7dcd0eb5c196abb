"""`make bench`: the time of the statistics of a large comparison, without any measurement.

Raw quads of a thousand cases in eight processes become effects in time and cycles. Both are judged at every
look, with outliers and the effect of the order of slots, as `harness compare` does.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import numpy as np

from harness.judgement.judge import MetricEffects, Policy, judge
from harness.judgement.statistics.moderated import fit_prior
from harness.judgement.statistics.paired import log_ratios, losses, order_bias, process_effect, tail_of

MOST_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--quads", type=int, default=50)
    asked = parser.parse_args()
    policy = Policy()
    processes = policy.looks[-1]
    rng = np.random.default_rng(1)
    shape = (asked.cases, processes, asked.quads, 4)
    # Lists, as they come out of a record.
    times_of = {metric: rng.normal(1e6, 3e3, shape).tolist() for metric in ("time", "cycles")}
    orders = [["ABBA", "BAAB"][bit] for bit in rng.integers(0, 2, asked.quads)]

    importlib.import_module("scipy.special")  # else it would load, and be timed, when it is first used
    began = time.perf_counter()
    effects = {
        metric: [[process_effect(log_ratios(orders, quads)) for quads in case] for case in cases]
        for metric, cases in times_of.items()
    }
    made = time.perf_counter()
    priors = {metric: fit_prior(cases) for metric, cases in effects.items()}
    fitted = time.perf_counter()
    for times, cycles in zip(effects["time"], effects["cycles"], strict=True):
        for look, count in enumerate(policy.looks):
            metrics = [
                MetricEffects("time", tuple(times[:count]), priors["time"]),
                MetricEffects("cycles", tuple(cycles[:count]), priors["cycles"]),
            ]
            judge(metrics, policy, look)
    judged = time.perf_counter()
    for case in times_of["time"]:
        processed = [(orders, quads) for quads in case]
        tail_of([losses(*each) for each in processed])
        order_bias(processed)
    ended = time.perf_counter()

    print(f"{asked.cases} cases x {processes} processes x {asked.quads} quads, times and cycles:")
    print(f"  effects of processes  {made - began:6.2f} s")
    print(f"  the card's priors     {fitted - made:6.2f} s")
    print(f"  {len(policy.looks)} looks, by both      {judged - fitted:6.2f} s")
    print(f"  strays and orders     {ended - judged:6.2f} s")
    print(f"  in all                {ended - began:6.2f} s  (at most {MOST_S:g} s for 1000 cases)")
    return int(ended - began > MOST_S * max(1.0, asked.cases / 1000))


if __name__ == "__main__":
    sys.exit(main())
