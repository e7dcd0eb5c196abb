// Words of PTX for Hopper's tensor cores, copy engine and barriers, which the stages from wgmma on share.
#ifdef BFLOAT16
#include <cuda_bf16.h>
typedef __nv_bfloat16 input_t;
#define INPUTS ".bf16.bf16 "
#else
#include <cuda_fp16.h>
typedef half input_t;
#define INPUTS ".f16.f16 "
#endif

#define WARP 32
#define GROUP_THREADS 128                // of a warpgroup
#define WGMMA_M 64
#define WGMMA_K 16
#define CHUNK 8                          // elements in 16 bytes, the unit of the swizzle
#define SPAN 64                          // elements in 128 bytes, the width of a swizzled tile

struct alignas(64) TensorMap {  // what the driver made of an array for the copy engine: a CUtensorMap
    unsigned char bytes[128];
};

__device__ unsigned shared_address(const void* pointer)
{
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// mbarriers. A phase ends when `arrivals` threads have arrived and all announced bytes have come.
__device__ void initialise(unsigned barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

__device__ void arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

__device__ void arrive_expecting(unsigned barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ void wait_for(unsigned barrier, int parity)  // until the phase of this parity has ended
{
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra done%=;\n"
        "bra again%=;\n"
        "done%=:\n"
        "}" :: "r"(barrier), "r"(parity) : "memory");
}

// Begins to copy a box of a matrix; its bytes arrive at the barrier. Outside of the matrix there are zeros.
__device__ void copy_box(unsigned to, const TensorMap* map, int column, int row, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];"
        :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row) : "memory");
}

// The threads of a warpgroup wait for each other.
__device__ void synchronise(int warpgroup)
{
    asm volatile("bar.sync %0, 128;" :: "r"(1 + warpgroup) : "memory");
}

// Begins to copy a piece from shared memory to a matrix; what would lie outside of it is left out.
__device__ void begin_store(const TensorMap* map, unsigned from, int column, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
        :: "l"(map), "r"(from), "r"(column), "r"(row) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the copy engine has read all but the last N pieces of this thread.
template <int N>
__device__ void wait_reads() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }

__device__ void put(unsigned to, float first, float second)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(first), "f"(second) : "memory");
}

// Describes a tile in shared memory to wgmma, in units of 16 bytes: where it begins, the two distances between
// its parts, and the swizzle of 128 bytes.
__device__ unsigned long long describe(unsigned address, int leading, int stride)
{
    return (unsigned long long)(address >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
        (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

// wgmma and the copy engine see what this thread stored into shared memory before.
__device__ void fence_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N>
__device__ void wait_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }

// sum = A B, or sum += A B: 64 x 16 of A with 16 x 256 of B. The last 1 says that B lies in rows.
__device__ void multiply(float (&d)[128], unsigned long long a, unsigned long long b, int add)
{
    #define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
    #define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
    asm volatile(
        "{\n"
        ".reg .pred adding;\n"
        "setp.ne.b32 adding, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32" INPUTS
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
        "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "
        "%120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, adding, 1, 1, 0, 1;\n"
        "}"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48),
          SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
        : "l"(a), "l"(b), "r"(add));
    #undef SIXTEEN
    #undef FOUR
}

// Copies a tile of `rows` x `spans` * SPAN elements as the copy engine would: spans one after the other, in each
// the chunks of a row exchanged by its number.
__device__ inline void copy_by_threads(
    input_t* to, const input_t* from, index_t pitch, int rows, int spans, int rows_inside, int columns_inside)
{
    #pragma unroll 1
    for (int i = THREAD_X; i < rows * spans * (SPAN / CHUNK); i += GROUP_THREADS) {
        const int chunk = i % (SPAN / CHUNK);
        const int row = i / (SPAN / CHUNK) % rows;
        const int span = i / (SPAN / CHUNK) / rows;
        const int column = span * SPAN + chunk * CHUNK;
        alignas(16) input_t held[CHUNK];
        #pragma unroll
        for (int j = 0; j < CHUNK; ++j)
            held[j] = row < rows_inside && column + j < columns_inside
                ? from[row * pitch + column + j] : input_t(0.0f);
        *(uint4*)(to + (span * rows + row) * SPAN + (chunk ^ row % 8) * CHUNK) = *(const uint4*)held;
    }
}
