"""What the authors of the five systems published; `harness report ladder` puts our own figures beside it."""

from __future__ import annotations

__all__ = ["LADDERS"]

from harness import Ladder, Rung

CUDA = Ladder(
    "cuda",
    "From naive to tensor cores",
    publication="CUDA 행렬 곱셈 Kernel 최적화하기: Tiling에서 Tensor Core까지",
    author="the author of cuda-matmul",
    url="https://github.com/vantaa89/cuda-matmul",
    date="23 December 2024",
    source="Written by hand in CUDA; one launch by a host clock.",
    card="RTX 3060",
    sizes=4096,
    rungs=[
        Rung("naive", "naive", 103),
        Rung("block tiling", "block_tiling_as_published", 411, repaired="block_tiling"),
        Rung("thread tiling", "thread_tiling_as_published", 745, repaired="thread_tiling"),
        Rung("2-D thread tiling", "thread_tiling_2d_as_published", 2150, repaired="thread_tiling_2d"),
        Rung("tensor core", "wmma", 3066),
        Rung("tensor core + warp tiling", "wmma_warp_tiling", 6688),
    ],
)

A500_PEAK = 3072
"""As its author has it: half of what 2,048 cores at that card's clock come to."""
TVM_STEP_2 = "TVM 행렬 곱셈 최적화 – Step 2: Tiling + Loop Reordering"  # noqa: RUF001 - as printed
TVM_AUTHOR = "kimm240"
TVM_URL = "https://github.com/kimm240/matrix-multiplication-optimization-with-tvm"
BEST: dict[str, int | str] = {"BM": 32, "BN": 32, "BK": 32, "TM": 8, "TN": 4, "PATTERN": "k_innermost"}

SCHEDULE = Ladder(
    "schedule",
    "Tiling and loop reordering as a compiler's schedule",
    publication=TVM_STEP_2,
    author=TVM_AUTHOR,
    url=TVM_URL,
    source="TVM TensorIR in single precision: the plain binding of threads, and the best configuration, "
    "32x32x32, 8x4, k_innermost.",
    card="RTX A500 laptop",
    peak=A500_PEAK,
    rungs=[
        Rung("plain binding", "schedule_plain", 91, sizes=512),
        Rung("plain binding", "schedule_plain", 95, sizes=1024),
        Rung("best of 138", "schedule", 466, sizes=512, macros=BEST),
        Rung("best of 138", "schedule", 482, sizes=1024, macros=BEST),
        Rung("best of 138", "schedule", 222, sizes=2048, macros=BEST),
    ],
    note="The author's peak, 3,072 GFLOP/s, is half of what the card's 2,048 cores come to.",
)


def _block(bm: int, bn: int, bk: int) -> dict[str, int | str]:
    return {"BM": bm, "BN": bn, "BK": bk}


def _thread(tm: int, tn: int) -> dict[str, int | str]:
    return {"TM": tm, "TN": tn}


SWEEP = Ladder(
    "schedule_sweep",
    "What the sweep of 138 schedules showed",
    publication=TVM_STEP_2,
    author=TVM_AUTHOR,
    url=TVM_URL,
    source="TVM TensorIR in single precision, at 512 and 1024: all configurations that share a value.",
    card="RTX A500 laptop",
    peak=A500_PEAK,
    rungs=[
        Rung("standard", "schedule", 68, 19, macros={"PATTERN": "standard"}),
        Rung("k_after_threads", "schedule", 68, 19, macros={"PATTERN": "k_after_threads"}),
        Rung("k_innermost", "schedule", 482, 171, macros={"PATTERN": "k_innermost"}),
        Rung("block tile 32x32x32", "schedule", 482, 130, macros=_block(32, 32, 32)),
        Rung("block tile 64x64x64", "schedule", 254, 59, macros=_block(64, 64, 64)),
        Rung("thread tile 8x4", "schedule", 482, 109, macros=_thread(8, 4)),
        Rung("thread tile 4x4", "schedule", 324, 77, macros=_thread(4, 4)),
        Rung("thread tile 2x2", "schedule", 164, 37, macros=_thread(2, 2)),
    ],
    note="The author reports 138 of the 150 configurations, and not which; ours are all that a card can "
    "launch. The memory of his tiles is given as 16 KB in one place and as 1 MB in another.",
)

TAUGHT = Ladder(
    "taught",
    "Shared-memory tiling, taught",
    publication="[CUDA Study #5] 행렬 곱셈(Matrix Multiplication) 최적화: Shared Memory와 Tiling 기법",
    source="Written by hand in CUDA, for one launch; no figure was published.",
    sizes=1024,
    rungs=[Rung("32x32 tiles in shared memory", "shared_tile")],
)

ON_THE_CPU = {
    128: (2.35, 3.57),
    256: (19.02, 3.53),
    512: (236.7, 2.27),
    1024: (7967.3, 0.54),
    2048: (86_792, 0.40),
    4096: (763_312, 0.36),
}
"""Milliseconds and GFLOP/s by N."""
BY_SHADER = {
    128: (0.31, 13.53, 4),
    256: (0.72, 46.60, 13),
    512: (4.02, 66.77, 29),
    1024: (29.14, 73.70, 137),
    2048: (230.85, 74.42, 188),
    4096: (1831, 75.05, 208),
}
"""Milliseconds, GFLOP/s and speed-up by N."""
MINUTES = 2048
"""From where on one core takes minutes."""

SHADER = Ladder(
    "shader",
    "A compute shader against one core of the host",
    publication="GPU 기반 행렬 곱셈 병렬처리 알고리즘",
    author="Sangkun Park, Korea National University of Transportation",
    date="accepted 12 November 2019",
    source="GLSL 4.3, the mean of 10 runs; the plain triple loop on one core.",
    card="Quadro 4000",
    against="cpu_loop",
    decimals=2,
    rungs=[
        rung
        for n in ON_THE_CPU
        for rung in (
            Rung(
                "CPU",
                "cpu_loop",
                ON_THE_CPU[n][1],
                time_ms=ON_THE_CPU[n][0],
                sizes=n,
                backend="cpu",
                slow=n >= MINUTES,
            ),
            Rung(
                "compute shader",
                "compute_shader",
                BY_SHADER[n][1],
                time_ms=BY_SHADER[n][0],
                speed_up=BY_SHADER[n][2],
                sizes=n,
            ),
            Rung("BLAS", "cpu_blas", sizes=n, backend="cpu"),
        )
    ],
    note="The author's GFLOP/s of the CPU are twice what 2 N^3 operations in his milliseconds come to; "
    "those of his card are not. By his times the speed-ups would be about twice his own.",
)

TO_CUTLASS = Ladder(
    "to_cutlass",
    "From a hand-written kernel to CUTLASS",
    publication="长文介绍矩阵乘法——从自己手搓到CUTLASS实现",
    author="dingfen",
    url="https://dingfen.github.io/2021/10/20/2021-10-20-cuda-with-matmul/",
    date="20 October 2021",
    source="CUDA, then CUTLASS; what was published is the order and the ideas, not the figures.",
    sizes=1024,
    rungs=[
        Rung("CPU", "cpu_loop", backend="cpu"),
        Rung("naive", "naive_coalesced"),
        Rung("loop tiling", "loop_tiling_as_published", repaired="loop_tiling"),
        Rung("loop tiling + shared memory", "loop_tiling_shared"),
        Rung("outer product", "outer_product_as_published", repaired="outer_product"),
        Rung("outer product + loop tiling", "outer_product_loop_tiling"),
        Rung("CUTLASS", "cutlass"),
    ],
)

LADDERS = (CUDA, SCHEDULE, SWEEP, TAUGHT, SHADER, TO_CUTLASS)
