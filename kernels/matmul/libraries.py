"""The vendor's own products, which the ladder is held against: cuBLAS by way of nvmath-python, and CUTLASS.

C = A B with rows one after the other is, to a library that counts columns one after the other, C' = B' A': so
B is passed first, then A, and m and n change places. No matrix is transposed for it.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Case

CUDA_TYPES = {"float32": 0, "tf32": 0, "float16": 2, "bfloat16": 14}
"""cudaDataType of the inputs: CUDA_R_32F, CUDA_R_16F and CUDA_R_16BF."""
CUDA_R_32F = 0

COLLECTIVE = {"BM": 128, "BN": 256, "BK": 64, "CLUSTER_M": 2, "CLUSTER_N": 1, "SWIZZLE": 1}
"""Tile of a block, blocks of a cluster and order of tiles, where CUTLASS 3 computes: as its own examples have
them for large matrices on sm_90."""

CUTLASS_ERRORS = {
    1: "an array does not begin where its loads need it to (kErrorMisalignedOperand)",
    4: "the sizes are not ones that it can compute (kErrorInvalidProblem)",
    5: "the sizes or the card are not ones that it supports (kErrorNotSupported)",
    6: "it wants a workspace, and is given none (kErrorWorkspaceNull)",
    7: "CUDA refused the launch, or a descriptor of an array (kErrorInternal)",
    8: "it was built for another architecture (kErrorArchMismatch)",
    9: "the driver is too old for it (kErrorInsufficientDriver)",
}
"""cutlass::Status."""


@cache
def _handle(stream: int) -> int:
    """One handle a stream, kept until the process ends: its workspace costs time and memory once.

    cuBLAS gives the same bits every time where one handle has one stream.
    """
    from nvmath.bindings import cublas

    handle = cublas.create()
    cublas.set_stream(handle, stream)
    cublas.set_math_mode(handle, cublas.Math.DEFAULT_MATH)
    return int(handle)


def cublas(case: Case, stream: int) -> Callable[..., None]:
    """A call of cublasGemmEx. Sums and C are in single precision whatever the inputs are.

    TF32 only where the case asks for it: by default cuBLAS computes float32 inputs in float32.
    """
    from nvmath.bindings import cublas as bound

    handle = _handle(stream)
    compute = bound.ComputeType.COMPUTE_32F
    if case.dtype == "tf32":
        compute = bound.ComputeType.COMPUTE_32F_FAST_TF32
    inputs = CUDA_TYPES[case.dtype]
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
    plain = bound.Operation.N
    algorithm = bound.GemmAlgo.DEFAULT
    gemm = bound.gemm_ex
    held = (one, zero)

    def call(a: int, b: int, c: int, m: int, n: int, k: int, held: Any = held) -> None:
        gemm(
            handle, plain, plain, n, m, k,
            alpha, b, inputs, n, a, inputs, k,
            beta, c, CUDA_R_32F, n, compute, algorithm,
        )  # fmt: skip

    return call


def cutlass_headers() -> list[str]:
    """The headers that lie in the package, found without importing it: that asks for more packages."""
    found = importlib.util.find_spec("cutlass_library")
    folders = (found.submodule_search_locations if found else None) or []
    return [str(Path(folder) / "source" / "include") for folder in folders]


def alignment(case: Case) -> int:
    """Elements of 16 bits that every load can take at once: 8 where every row of A and B allows it, or 1."""
    return 8 if case.k % 8 == case.n % 8 == 0 else 1
