"""Matrix multiplication as schedules of a compiler: TVM's TensorIR tiles and reorders three plain loops.

The loops over i, j and k are split into block tiles of BM x BN x BK and thread tiles of TM x TN. The patterns
differ in where the two loops over k stand. C is updated in memory at each step, as in the author's
second step; only k_innermost lets nvcc keep it in a register while k_inner runs. Where a tile does not divide
its axis, TVM adds a guard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Case

BLOCK_TILES = ((32, 32, 32), (32, 64, 32), (64, 32, 32), (64, 64, 32), (64, 64, 64))
THREAD_TILES = ((2, 2), (4, 4), (4, 8), (8, 4), (8, 8))
"""BM, BN, BK and TM, TN, as the author lists them."""

_ORDERS = {
    "standard": ("k_outer", "k_inner", "i_thread", "j_thread", "i_elem", "j_elem"),
    "k_after_threads": ("i_thread", "j_thread", "k_outer", "k_inner", "i_elem", "j_elem"),
    "k_innermost": ("i_thread", "j_thread", "k_outer", "i_elem", "j_elem", "k_inner"),
}
"""What stands inside i_block and j_block, outermost first. The first two become the same CUDA, since a loop
that is bound to threads stands nowhere among the others: the author measured the same average and the same
best for both. On a CPU, where nothing is bound, they are different loops."""

SIZES = (512, 1024)
"""Of the square matrices of the author's sweep."""

CONFIGURATIONS = tuple(
    {"BM": bm, "BN": bn, "BK": bk, "TM": tm, "TN": tn, "PATTERN": pattern}
    for (bm, bn, bk), (tm, tn), pattern in itertools.product(BLOCK_TILES, THREAD_TILES, _ORDERS)
)
"""Every pair of tiles in every pattern: 150 at the two sizes. The author reports 138 of them and does not say
which; without the two pairs that need 1,024 threads there would be as many."""

RULES = (
    "m % BM == 0",
    "n % BN == 0",
    "k % BK == 0",
    "BM % TM == 0",
    "BN % TN == 0",
    "(BM // TM) * (BN // TN) <= 1024",
)
"""What a sweep leaves out. The first three would be right with a guard, but are none of the author's: behind
one, nvcc does not keep C in a register."""

_SYMBOL = "schedule"
"""TVM adds _kernel to what runs on a card."""

_WIDE_ELEMENTS = 2**31
"""From there on an array needs 64-bit offsets, which TVM makes of 64-bit extents."""


def cuda(case: Case, arch: str) -> str:
    """CUDA C++ exactly as TVM writes it. Its function is schedule_kernel, whatever the kernel is called."""
    return _source(*_tiled(case), arch)


def cpu(case: Case, stream: int) -> Callable[..., object]:
    """The same schedule compiled for this machine. What is returned is called with a, b and c: NumPy arrays,
    aligned to 64 bytes, of which none is copied.

    Blocks are divided among TVM's threads: one for two logical processors, or as TVM_NUM_THREADS says.
    """
    return _compiled(*_tiled(case))


def cuda_plain(case: Case, arch: str) -> str:
    """The author's first step: a block for each row of C, a thread for each of its elements."""
    return _source(*_plain(case), arch)


def cpu_plain(case: Case, stream: int) -> Callable[..., object]:
    """As `cpu`, with the rows of C divided among the threads."""
    return _compiled(*_plain(case))


def _unscheduled(case: Case) -> tuple[Any, Any, Any, Any]:
    """A schedule in which nothing is done yet, and its loops over i, j and k."""
    import tvm
    from tvm import te

    m, n, k = case.m, case.n, case.k
    index = "int64" if max(m * k, k * n, m * n) >= _WIDE_ELEMENTS else "int32"
    rows, columns, depth = (tvm.tirx.IntImm(index, extent) for extent in (m, n, k))
    a = te.placeholder((rows, depth), "float32", name="a")
    b = te.placeholder((depth, columns), "float32", name="b")
    p = te.reduce_axis((tvm.tirx.IntImm(index, 0), depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, p] * b[p, j], axis=p), name="c")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", _SYMBOL)
    schedule = tvm.s_tir.Schedule(tvm.IRModule({_SYMBOL: function}))
    schedule.work_on(_SYMBOL)
    return schedule, *schedule.get_loops(schedule.get_sblock("c"))


def _tiled(case: Case) -> tuple[Any, list[Any], list[Any]]:
    """The schedule of a case, its loops over blocks and its loops over the threads of one."""
    pattern = str(case.PATTERN)
    if pattern not in _ORDERS:
        raise ValueError(f"PATTERN is {pattern}; expected one of {', '.join(_ORDERS)}.")
    if case.BM % case.TM or case.BN % case.TN:
        raise ValueError(
            f"A thread tile of {case.TM}x{case.TN} does not divide a block tile of {case.BM}x{case.BN}."
        )
    schedule, i, j, k = _unscheduled(case)
    i_block, i_thread, i_elem = schedule.split(i, [None, case.BM // case.TM, case.TM])
    j_block, j_thread, j_elem = schedule.split(j, [None, case.BN // case.TN, case.TN])
    k_outer, k_inner = schedule.split(k, [None, case.BK])
    loops = {
        "i_thread": i_thread, "j_thread": j_thread, "i_elem": i_elem, "j_elem": j_elem,
        "k_outer": k_outer, "k_inner": k_inner,
    }  # fmt: skip
    schedule.reorder(i_block, j_block, *(loops[name] for name in _ORDERS[pattern]))
    return schedule, [i_block, j_block], [i_thread, j_thread]


def _plain(case: Case) -> tuple[Any, list[Any], list[Any]]:
    schedule, i, j, _ = _unscheduled(case)
    j_block, j_thread = schedule.split(j, [None, case.THREADS])
    return schedule, [i, j_block], [j_thread]


def _source(schedule: Any, blocks: list[Any], threads: list[Any], arch: str) -> str:
    import tvm
    from tvm.target import Target

    for loops, axes in ((blocks, ("blockIdx.x", "blockIdx.y")), (threads, ("threadIdx.x", "threadIdx.y"))):
        for loop, axis in zip(loops, axes):  # noqa: B905 - one dimension of threads is enough for a row
            schedule.bind(loop, axis)
    # Where there is a card TVM would compile the text too, for a second that nobody has a use for.
    tvm.register_global_func("tvm_callback_cuda_compile", lambda _code: b"//", override=True)
    target = Target(Target({"kind": "cuda", "arch": arch}), host="llvm")
    return str(tvm.compile(schedule.mod, target=target).mod.imports[0].inspect_source())


def _compiled(schedule: Any, blocks: list[Any], threads: list[Any]) -> Callable[..., object]:
    import tvm

    schedule.parallel(schedule.fuse(*blocks))
    return tvm.compile(schedule.mod, target=_this_machine())[_SYMBOL]  # type: ignore[no-any-return]


def _this_machine() -> Any:
    """LLVM's name of the processor, less what a virtual machine hides of it."""
    import tvm
    from tvm.target import Target, codegen

    features = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")() or {}
    hidden = [f"-{name}" for name, there in features.items() if not there]
    return Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "mattr": hidden})
