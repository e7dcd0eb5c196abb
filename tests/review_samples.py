"""Reviews as pull requests bring them, for tests and to look at.

    python tests/review_samples.py FOLDER

writes every face of every sample. Below FOLDER each has a folder with comment.md and summary.md as GitHub
gets them, review.html, check.json, annotations.txt and the review itself.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.records.record_files import CalibrationSummary
from harness.records.types import (
    Arm,
    Cause,
    CodeLine,
    Diagnosis,
    Effect,
    Extent3,
    Launch,
    LoopDifference,
    Outputs,
    Resources,
    Risk,
    Verdict,
    VerdictStatus,
)
from harness.report.document.document import CardReview, Review, SourceLine
from harness.report.document.outcome import Links, review_outcome
from harness.report.pull_request.faces import faces, write_faces

BASE, HEAD = "3f2a91c0de5b7718c4d1f0a96e2b83d75c60a1f4", "9b1c44de01fa0c35e7728d96b4a1530ce9d8f267"
DRIVER = "580.159.04"
LINKS = Links(
    run="https://github.com/example/kernels/actions/runs/9876543210",
    history="https://example.github.io/kernels/",
    repository="https://github.com/example/kernels",
)
LADDER = (
    "naive",
    "naive_coalesced",
    "shared_tile",
    "thread_tiling",
    "thread_tiling_2d",
    "block_tiling",
    "loop_tiling",
    "outer_product",
)
PLACES = {
    name: SourceLine(path=f"kernels/matmul/{name}.cu", line=7 + 5 * at) for at, name in enumerate(LADDER)
}
REASONS: Mapping[str, str] = {
    "regression": "slower-in-time",
    "improvement": "faster-in-time",
    "unchanged": "within-tolerance",
    "inconclusive": "too-noisy",
    "invalid": "contention",
    "identical": "same-code",
    "new": "only-in-head",
    "missing": "only-in-base",
    "failed": "build-failed",
}
STATUSES: Sequence[VerdictStatus] = tuple(REASONS)  # type: ignore[arg-type]
BUILD_LOG = """\
kernels/matmul/loop_tiling.cu(41): error: identifier "tile_k" is undefined
      acc += a_tile[threadIdx.y][k] * b_tile[tile_k][threadIdx.x];
                                             ^

1 error detected in the compilation of "kernels/matmul/loop_tiling.cu"."""
ATTACKS = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</code></pre></details></table><h1>All is well</h1>",
    "@everyone #1 GH-1 octo/repo#2 https://evil.example www.evil.example a@evil.example",
    "[click](https://evil.example) ![x](https://evil.example/x.png) **bold** _so_ ~~gone~~ `tick` ```",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "one\r\n\r\n# A heading\n\n- a list\n\n<details>",
    "::error file=a,line=1::gotcha\n::set-output name=x::y\n##[error]old\n%0A::warning::z",
    "\u202egnp.exe\u2066 \u200b\x1b[31mred\x00 \u2028next\u2029last",
    "-->\n<!-- marker -->\n:tada: &lt;b&gt; &#64;team",
    "\\\n\\`a\\` $x^2$ <https://evil.example>",
)
"""Hostile texts."""


def change(effect: float, half: float = 0.0007, processes: int = 4) -> Effect:
    """An effect, and half of its interval's width."""
    around = [(-1) ** at * half / 4 * (1 + at // 2) for at in range(processes)] if processes > 1 else [0.0]
    return Effect(
        effect=effect,
        low=effect - half,
        high=effect + half,
        processes=processes,
        quads=25 * processes,
        process_effects=tuple(effect + each for each in around),
    )


def side(
    time_ns: float = 1.204e6,
    *,
    sm_clock_mhz: float | None = 1980.0,
    registers: int = 40,
    shared_bytes: int = 8192,
    local_bytes: int = 0,
    grid: Extent3 = (64, 64, 1),
) -> Arm:
    built = Resources(registers=registers, static_shared_bytes=shared_bytes - 1024, local_bytes=local_bytes)
    launch = Launch(grid=grid, block=(16, 16, 1), dynamic_shared_bytes=1024)
    return Arm(time_ns=time_ns, sm_clock_mhz=sm_clock_mhz, launch=launch, resources=built)


def case(kernel: str, size: int = 1024, status: VerdictStatus = "unchanged", **over: Any) -> Verdict:
    """A case with what its status has as a rule. Unless `source_changed` is False its sources differ."""
    sources = "a" * 64, ("b" if over.pop("source_changed", True) else "a") * 64
    measured: dict[str, Any] = {}
    if status in ("regression", "improvement", "unchanged", "inconclusive", "invalid"):
        effect = {"regression": 0.017, "improvement": -0.052, "inconclusive": 0.0042}.get(status, 0.0003)
        half = 0.009 if status == "inconclusive" else 0.0007
        measured = {
            "time": change(effect, half),
            "cycles": change(effect * 0.99, half),
            "smallest_visible": 0.0031 if status != "inconclusive" else 0.016,
            "noise_floor": 0.0034,
            "base": side(),
            "head": side(1.204e6 * (1 + effect)),
            "temperature_c": 54.0,
            "power_w": 512.0,
        }
    fields = {
        "case": f"{over.pop('suite', 'matmul')}.{kernel}[m={size},n={size},k={size}]",
        "kernel": kernel,
        "sizes": {"m": size, "n": size, "k": size},
        "status": status,
        "reason": REASONS[status],
        "dtype": "float32",
        "message": f"What the harness said of {kernel}.",
        "gpu_s": 0.39,
        **measured,
        **over,
    }
    for name, source in zip(("base", "head"), sources, strict=True):
        if arm := fields.get(name):
            fields[name] = replace(arm, source_sha256=source)
    return Verdict(**fields)


def card(*cases: Verdict, **over: Any) -> CardReview:
    kernels = {each.kernel for each in cases}
    fields: dict[str, Any] = {
        "suite": "matmul",
        "device": "NVIDIA H200",
        "spec": "cuda:0",
        "kind": "gpu",
        "driver": DRIVER,
        "compiler": "nvcc 13.0.88",
        "margin": 0.0025,
        "tolerance": 0.01,
        "confidence": 0.999,
        "calibrated": CalibrationSummary(
            measured_at="2026-07-01T03:12:45+00:00", driver=DRIVER, verdicts=3000, false_alarms=0
        ),
        "twins": twins(cases[0].kernel if cases else "naive"),
        "places": {name: place for name, place in PLACES.items() if name in kernels},
    }
    return CardReview(**{**fields, "cases": cases, **over})


def review(*cards: CardReview, **over: Any) -> Review:
    fields: dict[str, Any] = {
        "harness_version": "0.1.0",
        "created_at": "2026-07-14T09:26:53+00:00",
        "base": BASE,
        "head": HEAD,
    }
    return Review(**{**fields, "cards": cards, **over})


def twins(kernel: str) -> tuple[Verdict, Verdict]:
    """Return the usual verdicts of a comparison's test of itself."""
    sizes = {"m": 1024, "n": 1024, "k": 1024}
    same = Verdict(
        case="twin.same",
        kernel=kernel,
        sizes=sizes,
        dtype="float32",
        status="unchanged",
        reason="within-tolerance",
        message="",
        time=change(0.0001),
    )
    planted = replace(
        same, case="twin.planted", status="regression", reason="slower-in-time", time=change(0.0102)
    )
    return same, planted


def fine(sizes: Sequence[int] = (1024, 2048, 4096), but: Sequence[str] = ()) -> list[Verdict]:
    """The ladder at these sizes, unchanged or identical, but for some kernels."""
    return [
        case(
            kernel,
            size,
            "identical" if kernel.startswith("naive") else "unchanged",
            **({} if kernel.startswith("naive") else {"time": change((at - 3) * 1e-4)}),
        )
        for at, kernel in enumerate(LADDER)
        for size in sizes
        if kernel not in but
    ]


def clean() -> Review:
    return review(
        card(
            *fine(but=("loop_tiling",)),
            *(case("loop_tiling", size, "improvement") for size in (1024, 2048, 4096)),
        )
    )


def regressions() -> Review:
    spilled = {"base": side(), "head": side(1.224e6, registers=64, local_bytes=16)}
    at_limit = {
        "base": side(8.81e6, sm_clock_mhz=1782.0),
        "head": side(8.82e6, sm_clock_mhz=1801.0),
        "time": change(0.0011),
        "cycles": change(0.0119, 0.0006),
        "reason": "slower-in-cycles",
        "energy": change(0.021, 0.008, 1),
    }
    cool = {
        "base": side(2.2e6, sm_clock_mhz=1980.0),
        "head": side(2.29e6, sm_clock_mhz=1905.0),
        "time": change(0.0394, 0.0021),
        "cycles": change(0.0004),
    }
    return review(
        card(
            *fine(but=("shared_tile", "thread_tiling_2d", "block_tiling", "outer_product")),
            case("shared_tile", 1024, "regression", attribution="code", **spilled),
            case(
                "shared_tile",
                2048,
                "regression",
                attribution="code",
                time=change(0.134, 0.004),
                cycles=change(0.131, 0.004),
                **spilled,
            ),
            case("shared_tile", 4096, "unchanged"),
            case("thread_tiling_2d", 4096, "regression", attribution="code", **at_limit),
            case("block_tiling", 4096, "regression", attribution="clocks", **cool),
            case("block_tiling", 1024, "inconclusive"),
            case("outer_product", 1024, "improvement"),
            case("outer_product", 2048, "missing"),
            case("outer_product_2d", 2048, "new"),
        )
    )


def explained() -> Review:
    """A regression with its counters and machine code."""
    spilled = {"base": side(), "head": side(1.224e6, registers=64, local_bytes=888)}
    return review(
        card(case("tiled", 1024, "regression", attribution="code", diagnosis=diagnosis(), **spilled))
    )


def inconclusive() -> Review:
    noisy = [
        case("shared_tile", size, "inconclusive", time=change(0.002 * at, 0.011), smallest_visible=0.019)
        for at, size in enumerate((1024, 2048, 4096))
    ]
    spent = [
        case("block_tiling", size, "inconclusive", reason="budget-spent", time=None) for size in (2048, 4096)
    ]
    rest = fine(but=("shared_tile", "block_tiling"))
    return review(card(*rest, *noisy, *spent, calibrated=None))


def invalid() -> Review:
    busy = [
        case(kernel, size, "invalid", attribution="contention", touched={"contention": 100})
        for kernel in ("shared_tile", "block_tiling")
        for size in (1024, 2048, 4096)
    ]
    hot = [
        case("outer_product", 4096, "invalid", reason="thermal-throttle", touched={"thermal-throttle": 61})
    ]
    return review(card(*fine(but=("shared_tile", "block_tiling", "outer_product")), *busy, *hot))


def failed() -> Review:
    broken = [
        case(
            "loop_tiling",
            size,
            "failed",
            side="head",
            message="At head: nvcc could not compile loop_tiling.",
            log=BUILD_LOG,
        )
        for size in (1024, 2048, 4096)
    ]
    wrong = case(
        "outer_product",
        1024,
        "failed",
        side="head",
        reason="wrong-result",
        message="At head: element [3, 17] is 0.0, expected 12.418 within 0.0002 (integers, seed 1).",
    )
    gone = case(
        "block_tiling", 1024, "failed", side="base", reason="crashed", message="At base: the worker died."
    )
    return review(card(*fine(but=("loop_tiling", "outer_product", "block_tiling")), *broken, wrong, gone))


def renamed() -> Review:
    """Kernels that only one commit has."""
    gone = [case("outer_product", size, "missing") for size in (1024, 2048, 4096)]
    came = [case("outer_product_tiled", size, "new") for size in (1024, 2048, 4096)]
    return review(card(*fine(but=("outer_product",)), *gone, *came))


OUTPUTS: Mapping[str, Outputs] = {
    "to the bit": Outputs(held_to="base", error=0.0),
    "near": Outputs(held_to="base", error=0.3817),
    "by a function": Outputs(held_to="function", function="softmax_ref", error=0.05),
    "verified": Outputs(held_to="reference", error=0.2),
    **{
        reason: Outputs(held_to="nothing", reason=reason)
        for reason in ("inputs-differ", "not-seen", "not-compared", "random")
    },
}


def held_to() -> Review:
    """Outputs that were held to something else than a float64 reference, or to nothing."""
    statuses: Sequence[VerdictStatus] = ("regression", "improvement", "unchanged", "new")
    cases = [
        case(f"k{at}", 1024, statuses[at % 4], outputs=outputs) for at, outputs in enumerate(OUTPUTS.values())
    ]
    other = case(
        "other",
        1024,
        "failed",
        side="head",
        reason="differs-from-base",
        message="3 of 4096 elements of y differ from base's; the first, y[7, 1], is 0.5 where base has 0.25.",
        outputs=Outputs(held_to="base", error=37.2),
    )
    functions = [case("alone", 1024, outputs=OUTPUTS["by a function"])]
    return review(card(*cases, other), card(*functions, device="NVIDIA L4"))


def interrupted() -> Review:
    return review(card(*fine((1024,)), complete=False, twins=()))


def distrusted() -> Review:
    """Return a review whose test of itself failed."""
    same, planted = twins("naive")
    missed = replace(planted, status="inconclusive", reason="too-noisy", time=change(0.004, 0.009))
    found = [
        replace(each, status="invalid", reason="twin-missed") if each.time else each
        for each in fine((1024, 4096))
    ]
    return review(card(*found, twins=(same, missed)))


def empty() -> Review:
    return review()


def many() -> Review:
    """Two hundred cases on each of several cards, much of it bad."""
    rng = random.Random(5)
    cards = []
    for device, suite in (("NVIDIA H200", "matmul"), ("NVIDIA RTX A6000", "matmul"), ("NVIDIA L4", "copy")):
        cases = []
        for at in range(200):
            status = rng.choices(STATUSES, (12, 6, 50, 12, 6, 20, 2, 2, 2))[0]
            over: dict[str, Any] = {"attribution": "code"} if status == "regression" else {}
            if status in ("regression", "improvement"):
                size = rng.lognormvariate(-4, 1)
                over["time"] = change(size if status == "regression" else -size, size / 20)
            if status == "failed":
                over |= {"side": rng.choice(("base", "head")), "log": BUILD_LOG}
            cases.append(case(f"variant_{at // 4}", 512 << at % 4, status, suite=suite, **over))
        places = {
            f"variant_{n}": SourceLine(path=f"kernels/{suite}/variant_{n}.cu", line=12) for n in range(50)
        }
        cards.append(card(*cases, device=device, suite=suite, places=places))
    return review(*cards)


def huge() -> Review:
    """Return a review with more failures than a comment can hold."""
    cases = [
        case(f"k{at}_{'x' * 80}", 1024, "regression")
        if at % 2
        else case(f"k{at}_{'x' * 80}", 1024, "failed", side="head", log=f"{at} " * 1500)
        for at in range(1000)
    ]
    return review(card(*cases[:500]), card(*cases[500:], device="NVIDIA L4"))


def hostile() -> Review:
    """Every text that its writer may choose, chosen badly."""
    cases = [
        case(
            f"k{at}_www",
            1024,
            status,
            message=text,
            log="\n\n".join(ATTACKS),
            side="head" if at % 2 else "",
            settings_changed=ATTACKS[at:],
            diagnosis=diagnosis(ATTACKS[at:]),
            reason="gh-1" if status in ("invalid", "inconclusive") else REASONS[status],
        )
        for at, (text, status) in enumerate(zip(ATTACKS, [*STATUSES, "failed"], strict=True))
    ]
    words = "<b>@team</b> #1 `|` www.evil.example [x](http://evil.example) ::error::x %0A"
    return review(
        card(
            *cases,
            device=words,
            spec=words,
            driver=words,
            compiler=words,
            problem=ATTACKS[1],
            left_out=ATTACKS,
            problem_changes=ATTACKS,
            calibrated=CalibrationSummary(measured_at=words, driver=words, verdicts=3, false_alarms=5),
            places={
                f"k{at}_www": SourceLine(path="@team/www.evil.example/-x-.cu", line=1) for at in range(10)
            },
            margin=-1.0,
            tolerance=0.0,
        ),
        harness_version=words,
        created_at=words,
    )


def absurd() -> Review:
    """Numbers that the schema allows and no card makes."""
    wild = Effect(effect=1e6, low=1e6, high=-1.0, processes=1, quads=0, process_effects=(1e6, -1.0))
    bare = {"time": wild, "cycles": wild, "energy": wild, "smallest_visible": -1.0, "sizes": {}}
    silent = dict.fromkeys(("time", "cycles", "base", "head", "smallest_visible"))
    return review(
        card(*(case("a", 2**53, status, **bare) for status in STATUSES), tolerance=-1.0, margin=1e6),
        card(*(case("b", 1, status, **silent) for status in STATUSES), calibrated=None, places={}),
        card(),
        base=None,
        head=None,
    )


def random_review(seed: int, most_cases: int = 60) -> Review:
    """Anything that the schema allows, with a name of its own for every case."""
    rng = random.Random(seed)
    return review(
        *(
            card(
                *(random_case(rng, f"c{at}_k{n}") for n in range(rng.randrange(most_cases))),
                device=f"Card {at} {'&<' * rng.randrange(40)}",
                complete=rng.random() < 0.9,
                problem=rng.choice(ATTACKS) if rng.random() < 0.1 else "",
                left_out=tuple(rng.sample(ATTACKS, rng.randrange(4))),
                problem_changes=tuple(rng.sample(ATTACKS, rng.randrange(4))),
            )
            for at in range(rng.choice((1, 1, 2, 3, 7)))
        )
    )


def diagnosis(texts: Sequence[str] = ()) -> Diagnosis:
    """Counters and code of a kernel that spills, with these texts where a stranger's can be."""
    said = itertools.cycle(texts or ("x",))
    cause, risk, problem, code, place = (
        (next(said)[:200] for _ in range(5))
        if texts
        else (
            "accesses to local memory rose from 0 to 3,000,000",
            "0 → 888 bytes spilled, and 176 instructions of the hottest loop move them",
            "",
            "LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x10]",
            "tiled.cu:86",
        )
    )
    base = {"cycles": 1e6, "warp_cycles": 3.2e7, "warps": 32.0, "stalled_long_scoreboard": 8e6}
    base |= {"stalled_wait": 1.6e7, "l2_hit_rate": 61.3, "local_load_requests": 0.0, "dram_read_bytes": 4e8}
    head = base | {"cycles": 1.5e6, "stalled_long_scoreboard": 2e7, "l2_hit_rate": 22.0}
    lines = [CodeLine("removed", code, place), CodeLine("alike", count=152)]
    lines += [CodeLine("added", f"STL [R1+{4 * at:#x}], R47"[:200], place, at + 1) for at in range(4)]
    return Diagnosis(
        base_counters=base,
        head_counters=head | {"local_load_requests": 3e6, "no_such_counter": 1.0},
        causes=(Cause("local-memory", 0.8, cause),),
        problem=problem,
        risks=(Risk("spill", risk, place),),
        loop=LoopDifference(
            base_place=f"{place}, 90" if texts else "tiled.cu:76, 80-86",
            head_place=place if texts else "tiled.cu:35-36, 76, 80-86",
            base_count=277,
            head_count=458,
            added=14,
            removed=1,
            moved=3,
            readdressed=9,
            lines=tuple(lines),
        ),
    )


def random_case(rng: random.Random, name: str) -> Verdict:
    status = rng.choices(STATUSES, [rng.random() ** 4 for _ in STATUSES])[0]
    over: dict[str, Any] = {
        "message": rng.choice(ATTACKS),
        "log": rng.choice(ATTACKS) * rng.choice((0, 1, 60)),
        "reason": rng.choice(("gh-1", "too-noisy", "contention", "build-failed", "slower-in-cycles", "")),
    }
    if rng.random() < 0.5:
        over["time"] = rng.choice((None, change(rng.gauss(0, 0.1)), change(rng.lognormvariate(0, 4), 0.5)))
    if rng.random() < 0.2:
        over |= {"base": None, "head": Arm(), "smallest_visible": None}
    if status == "failed":
        over["side"] = rng.choice(("base", "head", ""))
    over["outputs"] = rng.choice((None, *OUTPUTS.values()))
    if rng.random() < 0.3:
        over["diagnosis"] = rng.choice((diagnosis(), diagnosis(ATTACKS)))
    return case(f"{name}_{'y' * rng.choice((0, 0, 60))}", rng.choice((1, 1024)), status, **over)


SAMPLES: Mapping[str, Callable[[], Review]] = {
    made.__name__: made
    for made in (
        clean,
        regressions,
        explained,
        inconclusive,
        invalid,
        failed,
        renamed,
        held_to,
        interrupted,
        distrusted,
        empty,
        many,
        huge,
        hostile,
        absurd,
    )
}


def main(folder: Path) -> None:
    for name, make in SAMPLES.items():
        review = make()
        write_faces(folder / name, faces(review, LINKS))
        found = review_outcome(review)
        sys.stdout.write(f"{name:14} {found.conclusion:8} {found.state:13} {found.headline}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
