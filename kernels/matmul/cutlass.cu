// CUTLASS 2 on the plain cores: blocks share C as an inner product, threads build theirs from outer products.
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

// One architecture a library. cp.async, and with it more than two stages, came with Ampere.
#if __CUDA_ARCH_LIST__ >= 800
using Arch = cutlass::arch::Sm80;
constexpr int kStages = STAGES;
#else
using Arch = cutlass::arch::Sm61;
constexpr int kStages = 2;
#endif

using Row = cutlass::layout::RowMajor;
using Gemm = cutlass::gemm::device::Gemm<
    float, Row, float, Row, float, Row, float, cutlass::arch::OpClassSimt, Arch,
    cutlass::gemm::GemmShape<BM, BN, BK>, cutlass::gemm::GemmShape<WM, WN, BK>,
    cutlass::gemm::GemmShape<1, 1, 1>, cutlass::epilogue::thread::LinearCombination<float, 1, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<SWIZZLE>, kStages>;

extern "C" int cutlass_f32(void *stream, const void *a, const void *b, void *c, int m, int n, int k) {
    auto *out = static_cast<float *>(c);
    const Gemm::Arguments arguments(
        {m, n, k}, {static_cast<const float *>(a), k}, {static_cast<const float *>(b), n}, {out, n}, {out, n},
        {1.0f, 0.0f});
    Gemm gemm;
    return static_cast<int>(gemm(arguments, nullptr, static_cast<cudaStream_t>(stream)));
}
