"""The harness's own kernels, which check outputs in device memory. CUDA and OpenCL share their text."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from harness.device.backends.base import Argument, Built, Device
from harness.records.types import Launch
from harness.suite.sources import Program

THREADS = 256
"""Threads of a block. The kernels rely on it."""
_BLOCKS_A_UNIT = 8

_PRELUDES = {
    "cuda": """\
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__
#define GLOBAL
#define SHARED __shared__
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define BARRIER __syncthreads()
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
""",
    "opencl": """\
#define KERNEL __kernel void
#define DEVICE static
#define GLOBAL __global
#define SHARED __local
#define THREAD ((u32)get_local_id(0))
#define BLOCK ((u32)get_group_id(0))
#define BLOCKS ((u32)get_num_groups(0))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
typedef uchar u8;
typedef uint u32;
typedef ulong u64;
""",
}


class DeviceKernels:
    """Builds and launches the harness's own kernels on a device that can compile them."""

    def __init__(self, device: Device, text: str) -> None:
        self.device, self._text = device, text
        self._built = functools.cache(self._build)

    @property
    def available(self) -> bool:
        """True for a GPU that can compile the kernels. On a CPU, NumPy is faster."""
        info = self.device.info
        return info.kind == "gpu" and info.backend in _PRELUDES and info.max_threads_per_block >= THREADS

    def launch(self, function: str, work: int, arguments: Sequence[Argument]) -> None:
        """Enqueue a kernel whose blocks, in any number, share `work` pieces."""
        most = _BLOCKS_A_UNIT * (self.device.info.compute_units or 1)
        launch = Launch(grid=(max(1, min(work, most)), 1, 1), block=(THREADS, 1, 1))
        self.device.launch(self._built(function), launch, arguments)

    def _build(self, function: str) -> Built:
        return self.device.build(program_of(function, self._text, self.device.info.backend))


def program_of(function: str, text: str, backend: str) -> Program:
    """Return one of the kernels in `text` as a backend compiles it."""
    return Program(f"harness.{function}", function, _PRELUDES[backend] + text)
