"""Kernels of 2 to 10 us, eager and by CUDA graph, beside do_bench, do_bench_cudagraph and nvbench.

    python scripts/bench_graphs.py --json graphs.json

scripts/bench_verdicts.py measures all of them in one run. This makes a table in Markdown of it: the time of a
launch, the spread between processes, the smallest visible slowdown, and whether a planted 2 % was found.
`--show graphs.json` measures nothing. Each way of launching has its own plant of 2 %, which the harness finds
before the trials. nvbench has no graphs, so it times eager launches alone. The smallest visible slowdown of
the harness is that of its verdicts. That of the others is the 95 % limit of the ratio of two arms in one
process, by the spread of this ratio between processes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import scipy.special

if __package__ in (None, ""):  # run as a command: the folder above is where `scripts` is found
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.judgement.statistics.paired import of_arm
from scripts import bench_verdicts

Measurement = Mapping[str, Any]

KERNELS = ("copy.copy@1024", "transpose.transpose_tiled@1024", "matmul.shared_tile@256")
PARTS = ("ours", "do_bench", "do_bench_cudagraph", "nvbench")
LEVEL = "2"
"""The planted slowdown, in percent."""
HEADS = ("kernel", "launched", "rule", "processes", "µs", "spread %", "visible %", "seen %", "found", "false")
"""Spread: standard deviation of processes' medians. Seen: the planted slowdown as the rule measured it."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kernel", action="append", metavar="SUITE.KERNEL@SIZE", help=f"default: {' '.join(KERNELS)}"
    )
    parser.add_argument("--json", type=Path, help="write everything there, raw figures too")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: the table of such a file")
    asked, others = parser.parse_known_args(arguments)
    file = asked.show or asked.json or Path("graphs.json")
    if not asked.show:
        kernels = [name for each in asked.kernel or KERNELS for name in (each, f"{each},graph=1")]
        words = [*(f"--kernel={name}" for name in kernels), *(f"--only={part}" for part in PARTS)]
        given = [
            "--trials=5",
            "--our-trials=2",
            "--nvbench-trials=5",
            "--nvbench-timeout=0.25",
            "--budget=102",
        ]
        if status := bench_verdicts.main([*words, f"--levels={LEVEL}", *given, *others, f"--json={file}"]):
            return status
    print("\n".join(["", *table(msgspec.json.decode(file.read_bytes()))]))
    return 0


def table(book: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of a table in Markdown: a line for each kernel, way of launching and rule."""
    by_part: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for each in book["measurements"]:
        by_part[each["case"], each["part"]].append(each)
    yield f"| {' | '.join(HEADS)} |"
    yield f"|{'---|' * 3}{'---:|' * (len(HEADS) - 3)}"
    for case in book["steps"]:
        name, mark, _ = case.partition(",graph=1")
        way = (f"{name}]", "graph") if mark else (name, "eager")
        for part in PARTS:
            found = by_part[case, part]
            figures = medians_of(found)
            if len(figures) < 2:
                continue
            middle = statistics.median(figures)
            spread = 100 * statistics.stdev(figures) / middle
            cells = (str(len(figures)), f"{middle / 1e3:.3f}", f"{spread:.2f}")
            for rule in bench_verdicts.RULES[part]:
                yield f"| {' | '.join((*way, rule, *cells, *of_rule(found, rule)))} |"


def medians_of(found: Sequence[Measurement]) -> list[float]:
    """Return base's median of each process, in ns."""
    if found and found[0]["part"] == "ours":
        return [
            statistics.median(
                ns
                for order, times in zip(block["orders"], block["times_ns"], strict=True)
                for ns in of_arm(order, times, "A")
            )
            for each in found
            for block in each["raw"]["blocks"]
        ]
    return [statistics.median(each["raw"]["base_ns"]) for each in found]


def of_rule(found: Sequence[Measurement], rule: str) -> tuple[str, str, str, str]:
    """Return the smallest visible slowdown, the planted one as measured, and how often the rule was right."""
    verdicts = [
        (each["level"], verdict, each["raw"].get("smallest_visible"))
        for each in found
        for verdict in each["verdicts"]
        if verdict["rule"] == rule and verdict["effect"] is not None
    ]
    by_level = {
        level: [verdict for at, verdict, _ in verdicts if at == level]
        for level in (bench_verdicts.SAME, LEVEL)
    }
    effects = [[verdict["effect"] for verdict in given] for given in by_level.values()]
    told = [smallest for _, _, smallest in verdicts if smallest is not None]
    visible = statistics.median(told) if told else limit_of(effects)
    same, planted = ([verdict["said"] for verdict in given] for given in by_level.values())
    return (
        f"{100 * visible:.2f}",
        f"{100 * statistics.median(effects[1]):+.2f}" if effects[1] else "",
        f"{planted.count('slower')}/{len(planted)}",
        f"{same.count('slower') + same.count('faster')}/{len(same)}",
    )


def limit_of(levels: Sequence[Sequence[float]]) -> float:
    """Return the change that noise alone exceeds in 5 % of processes, by the effects of each level."""
    known = [effects for effects in levels if len(effects) > 1]
    freedom = sum(len(effects) - 1 for effects in known)
    if not freedom:
        return math.nan
    squares = sum(statistics.variance(effects) * (len(effects) - 1) for effects in known)
    return float(-scipy.special.stdtrit(freedom, 0.025)) * math.sqrt(squares / freedom)


if __name__ == "__main__":
    sys.exit(main())
