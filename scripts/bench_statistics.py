"""`make bench`: how long the statistics of a large comparison take, apart from measuring anything.

Raw quads of a thousand cases in eight processes become effects, and these are judged by time and by cycles at
every look, as `harness compare` does.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from harness.judge import Leg, Policy, judge
from harness.statistics.moderated import fit_prior
from harness.statistics.paired import log_ratios, process_effect

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
    times = rng.normal(1e6, 3e3, shape).tolist()  # lists, as they come out of a record
    orders = [["ABBA", "BAAB"][bit] for bit in rng.integers(0, 2, asked.quads)]

    began = time.perf_counter()
    effects = [[process_effect(log_ratios(orders, quads)) for quads in case] for case in times]
    made = time.perf_counter()
    prior = fit_prior(effects)
    fitted = time.perf_counter()
    for case in effects:
        for look, count in enumerate(policy.looks):
            seen = tuple(case[:count])
            judge([Leg("time", seen, prior), Leg("cycles", seen, prior)], policy, look)
    judged = time.perf_counter()

    print(f"{asked.cases} cases x {processes} processes x {asked.quads} quads:")
    print(f"  effects of processes  {made - began:6.2f} s")
    print(f"  the card's prior      {fitted - made:6.2f} s")
    print(f"  {len(policy.looks)} looks, 2 quantities {judged - fitted:6.2f} s")
    print(f"  in all                {judged - began:6.2f} s  (at most {MOST_S:g} s for 1000 cases)")
    return int(judged - began > MOST_S * max(1.0, asked.cases / 1000))


if __name__ == "__main__":
    sys.exit(main())
