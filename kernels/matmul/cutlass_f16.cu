// CUTLASS on the tensor cores: half inputs, sums and C in single precision.
//
// On sm_90 the collective builder of CUTLASS 3: the bulk copy engine feeds warpgroup instructions, by warps of
// its own. It and 128-bit loads want rows of A and B that begin at multiples of 16 bytes; where n or k says
// otherwise (ALIGNMENT is 1), elements are loaded one by one.
#if ALIGNMENT == 8 && __CUDA_ARCH_LIST__ == 900
#define HARNESS_COLLECTIVE 1
#endif

#ifdef HARNESS_COLLECTIVE
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using Row = cutlass::layout::RowMajor;
using Half = cutlass::half_t;
using Arch = cutlass::arch::Sm90;
using Tensor = cutlass::arch::OpClassTensorOp;
using Tile = cute::Shape<cute::Int<BM>, cute::Int<BN>, cute::Int<BK>>;
using Cluster = cute::Shape<cute::Int<CLUSTER_M>, cute::Int<CLUSTER_N>, cute::_1>;

// C is written and never read: its element is void.
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    Arch, Tensor, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, 4,
    float, Row, 4, cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    Arch, Tensor, Half, Row, 8, Half, Row, 8, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

static cutlass::KernelHardwareInfo hardware() {
    cutlass::KernelHardwareInfo found;
    cudaGetDevice(&found.device_id);
    found.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(found.device_id);
    return found;
}

static Gemm::Arguments arguments_of(const void *a, const void *b, void *c, int m, int n, int k) {
    Gemm::Arguments arguments{};
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    arguments.problem_shape = {m, n, k, 1};
    arguments.mainloop.ptr_A = static_cast<const Half *>(a);
    arguments.mainloop.dA = {k, cute::_1{}, 0};
    arguments.mainloop.ptr_B = static_cast<const Half *>(b);
    arguments.mainloop.dB = {cute::_1{}, n, 0};
    arguments.epilogue.thread.alpha = 1.0f;
    arguments.epilogue.thread.beta = 0.0f;
    arguments.epilogue.ptr_D = static_cast<float *>(c);
    arguments.epilogue.dD = {n, cute::_1{}, 0};
    arguments.scheduler.max_swizzle_size = SWIZZLE;
    static const cutlass::KernelHardwareInfo here = hardware();
    arguments.hw_info = here;
    return arguments;
}

#else
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>

using Row = cutlass::layout::RowMajor;
using Half = cutlass::half_t;
#if ALIGNMENT == 8 && __CUDA_ARCH_LIST__ >= 800
using Arch = cutlass::arch::Sm80;
using Block = cutlass::gemm::GemmShape<128, 256, 32>;
using Instruction = cutlass::gemm::GemmShape<16, 8, 16>;
constexpr int kStages = 3;
#else
using Arch = cutlass::arch::Sm75;
using Block = cutlass::gemm::GemmShape<128, 128, 32>;
using Instruction = cutlass::gemm::GemmShape<16, 8, 8>;
constexpr int kStages = 2;
#endif
using Gemm = cutlass::gemm::device::Gemm<
    Half, Row, Half, Row, float, Row, float, cutlass::arch::OpClassTensorOp, Arch, Block,
    cutlass::gemm::GemmShape<64, 64, 32>, Instruction,
    cutlass::epilogue::thread::LinearCombination<float, ALIGNMENT == 8 ? 4 : 1, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, kStages, ALIGNMENT, ALIGNMENT>;

static Gemm::Arguments arguments_of(const void *a, const void *b, void *c, int m, int n, int k) {
    auto *out = static_cast<float *>(c);
    return {
        {m, n, k}, {static_cast<const Half *>(a), k}, {static_cast<const Half *>(b), n}, {out, n}, {out, n},
        {1.0f, 0.0f}};
}
#endif

extern "C" int cutlass_f16(void *stream, const void *a, const void *b, void *c, int m, int n, int k) {
    const Gemm::Arguments arguments = arguments_of(a, b, c, m, n, k);
    if (const auto refused = Gemm::can_implement(arguments); refused != cutlass::Status::kSuccess)
        return static_cast<int>(refused);
    Gemm gemm;
    return static_cast<int>(gemm(arguments, nullptr, static_cast<cudaStream_t>(stream)));
}
