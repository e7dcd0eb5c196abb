#!/usr/bin/env bash
# Other people's repositories, made ready to be measured: their files, what 'harness init' writes and a person adds, and
# a commit that makes one kernel slower. docs/repositories.md tells what came of it; measure.py measures them.
#
#   prepare.sh CLONES FOLDER
#
# CLONES has clones by these names: SGEMM_CUDA, sgemm.cu, llm.c, cuda-examples, triton, cupy, extension-cpp, fast.cu; and,
# for nvbench, nvbench and in nvbench-builds the executables base, head and same that nvbench.cu was built to, head
# with -DSTEPS=4120. FOLDER must not exist. 'harness' is on PATH.
set -euo pipefail
CLONES=$(realpath "$1") FOLDER=$2
export GIT_AUTHOR_NAME=somebody GIT_AUTHOR_EMAIL=somebody@example.invalid
export GIT_COMMITTER_NAME=somebody GIT_COMMITTER_EMAIL=somebody@example.invalid
HERE=$(dirname "$(realpath "$0")")
mkdir "$FOLDER"
FOLDER=$(realpath "$FOLDER")
before=$(mktemp --directory)
trap 'rm --recursive --force "$before"' EXIT
cd "$FOLDER"
printf 'repository\tlines by hand\n' > lines.tsv

take() { # folder, clone, paths...: the newest commit's files
    n=$1 clone=$2
    mkdir "$n"
    cd "$n"
    git init --quiet --initial-branch main
    git -C "$CLONES/$clone" archive HEAD "${@:3}" | tar x
    find . -name '*.png' -delete
    git add --all
    git commit --quiet --message Theirs
}
init() { # what 'harness init' writes; lines by hand are counted from here
    harness init --yes "$@" > "../$n.init.txt" 2>&1
    start_counting
}
start_counting() {
    rm --recursive --force "$before"
    cp --recursive . "$before"
}
hand() { # counts the lines that a person adds, and commits the suites
    local lines
    lines=$(diff --recursive --new-file --unified=0 --exclude=.git "$before" . | grep --count '^+[^+]' || true)
    printf '%s\t%s\n' "$n" "$lines" >> ../lines.tsv
    git add --all
    git commit --quiet --message "Measure these kernels"
    cd ..
}
slower() { # folder, message
    if git -C "$1" diff --quiet; then
        echo "No edit in $1." >&2
        exit 1
    fi
    git -C "$1" commit --quiet --all --message "$2"
}
axis() { sed --in-place --regexp-extended "s/$1/$2/" perf/*/suite.py; }
replace() { # file, old, new: exactly one place
    python3 - "$@" << 'P'
import sys
from pathlib import Path

file, old, new = sys.argv[1:]
text = Path(file).read_text()
if text.count(old) != 1:
    sys.exit(f"{file} has {text.count(old)} places of: {old}")
Path(file).write_text(text.replace(old, new))
P
}

take sgemm_cuda SGEMM_CUDA
init --only matmul
axis 'default=\(1024, 2048, 4096\)' 'default=(1024,)'
hand
sed --in-place 's|threadIdx.x / BLOCKSIZE|threadIdx.x @ BLOCKSIZE|; s|threadIdx.x % BLOCKSIZE|threadIdx.x / BLOCKSIZE|; s|threadIdx.x @ BLOCKSIZE|threadIdx.x % BLOCKSIZE|' \
    sgemm_cuda/src/kernels/2_kernel_global_mem_coalesce.cuh
slower sgemm_cuda "Rows first"

take sgemm_cu sgemm.cu
init
axis 'default=\(1024, 2048, 4096\)' 'default=(2048,)'
hand
python3 - << 'P'
from pathlib import Path

file = Path("sgemm_cu/src/kernels/128x256x8.cuh")
lines = file.read_text().split("\n")
at = next(at for at, line in enumerate(lines) if "int warp_k = 0; warp_k < 7" in line) - 1
assert "#pragma unroll" in lines[at]
lines[at] = "#pragma unroll 1"
file.write_text("\n".join(lines))
P
slower sgemm_cu "Keep the inner loop small"

take llm_c llm.c dev/cuda llmc README.md LICENSE Makefile
init --only softmax_forward_online
hand
replace llm_c/dev/cuda/softmax_forward.cu '    for (int i = laneId; i < C; i += warpSize) {
        // when updating' '    #pragma unroll 1
    for (int i = laneId; i < C; i += warpSize) {
        // when updating'
slower llm_c "Keep the loop over a row small"

take cuda_examples cuda-examples
init --only block
sed --in-place --regexp-extended 's/grid=2048 \* 250000 \/\/ \(1024 \* ([24])\)/grid=lambda c: c.n \/\/ (1024 * \1)/; s/default=\(2\*\*24, 2\*\*26\)/default=(2**24,)/' perf/*/suite.py
hand
replace cuda_examples/src/reduce/block_reduce.cu '        if ( thread_id % (2 * stride) == 0 ) {' '        __syncthreads();
        if ( thread_id % (2 * stride) == 0 ) {'
slower cuda_examples "A barrier more, to be safe"

take triton_tutorial triton python/tutorials/02-fused-softmax.py
mv python/tutorials/02-fused-softmax.py fused_softmax.py
python3 - << 'P'
from pathlib import Path

file = Path("fused_softmax.py")
text = file.read_text()
at = text.index("torch.manual_seed(0)")
rest = "".join("    " + line if line.strip() else line for line in text[at:].splitlines(True))
file.write_text(text[:at] + 'if __name__ == "__main__":\n' + rest)
P
git add --all
git commit --quiet --message "Benchmark as a script alone"
init
hand
replace triton_tutorial/fused_softmax.py 'num_stages = 4 if SIZE_SMEM > 200000 else 2' 'num_stages = 1'
replace triton_tutorial/fused_softmax.py 'num_programs = NUM_SM * occupancy' 'num_programs = NUM_SM'
slower triton_tutorial "One program a multiprocessor, and one stage"

take cupy_gemm cupy examples/gemm
init --only sgemm_2
axis 'default=\(1024, 2048, 4096\)' 'default=(2048,)'
sed --in-place 's/^    return C$/    return cp.ascontiguousarray(C)/' examples/gemm/sgemm.py
hand
replace cupy_gemm/examples/gemm/sgemm.cu '        // multiply
        #pragma unroll
' '        // multiply
        #pragma unroll 1
'
slower cupy_gemm "Keep the inner loop small"

take torch_extension extension-cpp
init --only mymuladd
cat > perf/mymuladd/ops.py << 'P'
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

sources = Path(__file__).resolve().parents[2] / "extension_cpp" / "csrc"
load("extension_cpp", [str(sources / "muladd.cpp"), str(sources / "cuda/muladd.cu")], is_python_module=False)


def mymuladd(a, b, c):
    return torch.ops.extension_cpp.mymuladd.default(a, b, c)
P
python3 - << 'P'
from pathlib import Path

file = Path("perf/mymuladd/suite.py")
text = file.read_text()
start, end = text.index("    # What the kernels compute"), text.index("suite = Suite(")
text = text[:start] + '''    def reference(self, case, a, b):
        return a * b + case.c

    def tolerance(self, case, a, b):
        return 2 * 2.0**-24 * (abs(a * b) + abs(case.c))


''' + text[end:]
text = text.replace('TorchFunction("../../extension_cpp/ops.py", "mymuladd")', 'TorchFunction("ops.py", "mymuladd")')
file.write_text(text.replace("default=(2**24, 2**26)", "default=(2**24,)"))
P
hand
sed --in-place 's|muladd_kernel<<<(numel+255)/256, 256, 0, stream>>>|muladd_kernel<<<(numel+31)/32, 32, 0, stream>>>|' \
    torch_extension/extension_cpp/csrc/cuda/muladd.cu
slower torch_extension "Blocks of one warp"

take fast_cu fast.cu
harness init --yes --only sum_kernel > "../$n.init.txt"
rm --recursive perf/sum_kernel
sed --in-place '/^class SumKernel/,$d' benchmarks/suites.py
cat >> benchmarks/suites.py << 'P'
class Hopper(tracks.SuiteTracks):
    folder = "perf/hopper"

    def setup_cache(self):
        return self.measure()
P
start_counting
mkdir perf/hopper
cat > perf/hopper/matmul.cu << 'P'
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda/barrier>
#include <cassert>
typedef __nv_bfloat16 bf16;
#define cudaCheck(call) (call)
#include "../../examples/matmul/matmul_6.cuh"
P
cat > perf/hopper/suite.py << 'P'
import ctypes

import numpy as np
from harness import Axis, Input, Kernel, Output, Problem, Suite


class Matmul(Problem):
    """C = A @ B; A by rows, B and C by columns."""

    M = N = K = Axis(default=(4096,), quick=(2048,))
    A = Input("M", "K")
    B = Input("K", "N", order="F")
    C = Output("M", "N", order="F")

    def reference(self, case, A, B):
        return A @ B

    def tolerance(self, case, A, B):
        products = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=0))
        return 2.0**-8 * abs(self.reference(case, A, B)) + 8 * 2.0**-22 * products

    def flop(self, case):
        return 2 * case.M * case.N * case.K


def tensor_maps(case, arrays):
    def encoded(address, rows):
        held = (ctypes.c_uint64 * 24)()
        start = (ctypes.addressof(held) + 63) // 64 * 64  # the driver wants it aligned
        extents = (ctypes.c_uint64 * 2)(case.K, case.M)
        strides, box, ones = (ctypes.c_uint64 * 1)(2 * case.K), (ctypes.c_uint32 * 2)(64, rows), (ctypes.c_uint32 * 2)(1, 1)
        encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
        status = encode(ctypes.c_void_p(start), 9, 2, ctypes.c_void_p(address), extents, strides, box, ones, 0, 3, 0, 0)
        assert status == 0, f"cuTensorMapEncodeTiled: {status}"
        return ctypes.string_at(start, 128)

    return {"map_a": encoded(arrays["A"].address, 128), "map_b": encoded(arrays["B"].address, 256)}


kernels = [
    Kernel(
        "matmulKernel6",
        "matmul.cu",
        instantiate="M6::matmulKernel6<128, 256, 64, 384, 3, 128>",
        arch="sm_90a",
        include=("examples/matmul",),
        options={"cuda": ("--expt-relaxed-constexpr", "-DNDEBUG")},
        block=384,
        grid=128,
        dynamic_shared_bytes=3 * 64 * (128 + 256) * 2,
        args=("M", "N", "K", "C", "map_a", "map_b"),
        dtype="bfloat16",
        setup=tensor_maps,
    )
]
suite = Suite("hopper", Matmul(), headline="GFLOP/s", kernels=kernels)
P
hand
replace fast_cu/examples/matmul/matmul_6.cuh '                        wgmma<WGMMA_N, 1, 1, 1, 0, 0>(d[m_it], &wgmma_sA[k_it*WGMMA_K], &sB[qidx*BK*BN + k_it*WGMMA_K]);
' '                        warpgroup_arrive();
                        wgmma<WGMMA_N, 1, 1, 1, 0, 0>(d[m_it], &wgmma_sA[k_it*WGMMA_K], &sB[qidx*BK*BN + k_it*WGMMA_K]);
                        warpgroup_commit_batch();
                        warpgroup_wait<0>();
'
slower fast_cu "Wait for each product"

if [[ -d $CLONES/nvbench-builds ]]; then
    mkdir nvbench
    cd nvbench
    git init --quiet --initial-branch main
    cp --recursive "$CLONES/nvbench/python/scripts" scripts
    cp "$HERE/nvbench.cu" .
    printf '.asv\n*.json\n*.bench\n' > .gitignore
    for build in base head same; do
        cp "$CLONES/nvbench-builds/$build" bench
        strip bench
        git add --all
        git commit --quiet --message "Build $build"
    done
    cd ..
fi
column --table --separator $'\t' lines.tsv
