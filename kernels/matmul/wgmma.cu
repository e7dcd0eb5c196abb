// Hopper's own tensor-core instruction: wgmma multiplies straight from shared memory, for four warps at once,
// and the copy engine (TMA) fills that memory. Warpgroups have roles: one starts copies, two multiply, and
// mbarriers pass the tiles between them. mma_sync loads fragments into registers and copies with all threads.
//
// The numbers:
// - BM = 128, BN = 256: two warpgroups multiply 64 x 256 each, one instruction wide. The accumulators are 128
//   registers a thread. Tiles of A and B, 49,152 bytes, serve 4,194,304 FLOP: 85 FLOP a byte from the L2.
// - BK = 64: a row of the tile of A is 128 bytes, the widest swizzle of the copy engine. Four steps of 16.
// - STAGES = 4: 196,608 of the 227 KiB that a block can have. One more would not fit.
// - 40 and 232 registers: the three warpgroups begin with 168 each, all that there are. The one that copies
//   gives 128 away, and the two that multiply take 64 more each.
// - GROUP = 8: blocks that run at once cover 8 rows of tiles or more. Their bands of A and B stay in the L2.
// - The grid has a block a multiprocessor, and each block walks over tiles of C: while a tile is stored, the
//   next ones are copied.
// - The copy engine wants rows that begin at multiples of 16 bytes. Where k or n says otherwise (ALIGNMENT is
//   1), the first warpgroup copies by itself, half by half.

#include <cuda_fp16.h>

#define WARP 32
#define GROUP_THREADS 128                // of a warpgroup
#define WGMMA_M 64
#define WGMMA_K 16
#define CONSUMERS (BM / WGMMA_M)         // warpgroups that multiply
#define THREADS (GROUP_THREADS * (1 + CONSUMERS))
#define CHUNK 8                          // halves in 16 bytes, the unit of the swizzle
#define SPAN 64                          // halves in 128 bytes, the width of a swizzled tile
#define TILE_A (BM * BK)                 // halves
#define TILE_B (BK * BN)
#define TILE_BYTES (2 * (TILE_A + TILE_B))

#if BN != 256 || BK != SPAN || BM % WGMMA_M || STAGES < 2
#error "wgmma: BN is 256, BK is 64, BM a multiple of 64, and STAGES at least 2"
#endif

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
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
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
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row) : "memory");
}

// Describes a tile in shared memory to wgmma, in units of 16 bytes: where it begins, the two distances between
// its parts, and the swizzle of 128 bytes.
__device__ unsigned long long describe(unsigned address, int leading, int stride)
{
    return (unsigned long long)(address >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
        (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

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
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, adding, 1, 1, 0, 1;\n"
        "}"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
        : "l"(a), "l"(b), "r"(add));
    #undef SIXTEEN
    #undef FOUR
}

#if ALIGNMENT != 8
// Copies a tile of `rows` x `spans` * SPAN halves as the copy engine would: spans one after the other, in each
// the chunks of a row exchanged by its number.
__device__ void copy_by_threads(
    half* to, const half* from, index_t pitch, int rows, int spans, int rows_inside, int columns_inside)
{
    #pragma unroll 1
    for (int i = THREAD_X; i < rows * spans * (SPAN / CHUNK); i += GROUP_THREADS) {
        const int chunk = i % (SPAN / CHUNK);
        const int row = i / (SPAN / CHUNK) % rows;
        const int span = i / (SPAN / CHUNK) / rows;
        const int column = span * SPAN + chunk * CHUNK;
        alignas(16) half held[CHUNK];
        #pragma unroll
        for (int j = 0; j < CHUNK; ++j)
            held[j] = row < rows_inside && column + j < columns_inside ? from[row * pitch + column + j] : half(0.0f);
        *(uint4*)(to + (span * rows + row) * SPAN + (chunk ^ row % 8) * CHUNK) = *(const uint4*)held;
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
    const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    extern __shared__ unsigned char memory[];
    // The swizzle goes by addresses: tiles begin at multiples of its period, 1,024 bytes.
    unsigned char* const stages = memory + (-shared_address(memory) & 1023);
    unsigned long long* const full = (unsigned long long*)(stages + STAGES * TILE_BYTES);
    unsigned long long* const empty = full + STAGES;

    const int tiles_m = (m - 1) / BM + 1;
    const int tiles_n = (n - 1) / BN + 1;
    const int tiles = tiles_m * tiles_n;
    const int warpgroup = THREAD_X / GROUP_THREADS;

    if (THREAD_X == 0) {
        for (int i = 0; i < STAGES; ++i) {
            initialise(shared_address(full + i), ALIGNMENT == 8 ? 1 : GROUP_THREADS);
            initialise(shared_address(empty + i), CONSUMERS * GROUP_THREADS / WARP);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    // Tiles are numbered down GROUP rows of them, then to the next column.
    auto corner = [&](int tile, int& row, int& column) {
        const int above = tile / (GROUP * tiles_n) * GROUP;
        const int rows = min(GROUP, tiles_m - above);
        const int place = tile - above * tiles_n;
        row = (above + place % rows) * BM;
        column = place / rows * BN;
    };
    int stage = 0, parity = 0;
    auto advance = [&] {
        if (++stage == STAGES)
            stage = 0, parity ^= 1;
    };

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        #if ALIGNMENT == 8
        if (THREAD_X == 0)
        #endif
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                int row, column;
                corner(tile, row, column);
                for (int begun = 0; begun < k; begun += BK, advance()) {
                    half* const to_a = (half*)(stages + stage * TILE_BYTES);
                    half* const to_b = to_a + TILE_A;
                    const unsigned barrier = shared_address(full + stage);
                    wait_for(shared_address(empty + stage), parity ^ 1);
                    #if ALIGNMENT == 8
                    arrive_expecting(barrier, TILE_BYTES);
                    copy_box(shared_address(to_a), &map_a, begun, row, barrier);
                    #pragma unroll
                    for (int j = 0; j < BN / SPAN; ++j)
                        copy_box(shared_address(to_b + j * BK * SPAN), &map_b, column + j * SPAN, begun, barrier);
                    #else
                    copy_by_threads(to_a, a + (index_t)row * k + begun, k, BM, 1, m - row, k - begun);
                    copy_by_threads(to_b, b + (index_t)begun * n + column, n, BK, BN / SPAN, k - begun, n - column);
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma sees what was stored
                    arrive(barrier);
                    #endif
                }
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int consumer = warpgroup - 1;
        const int lane = THREAD_X % WARP;
        const int warp = THREAD_X % GROUP_THREADS / WARP;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            float sum[BN / 2];
            int last = -1;  // stage that is still read
            for (int begun = 0; begun < k; begun += BK, advance()) {
                const unsigned tile_a = shared_address(stages + stage * TILE_BYTES) + consumer * (WGMMA_M * SPAN * 2);
                const unsigned tile_b = shared_address(stages + stage * TILE_BYTES) + 2 * TILE_A;
                wait_for(shared_address(full + stage), parity);
                fence();
                #pragma unroll
                for (int step = 0; step < BK / WGMMA_K; ++step)
                    // A: 8 rows are 1,024 bytes, a step is 32 bytes along them. B: 8 rows likewise, 64 columns
                    // are the BK rows of a box, and a step is 16 rows.
                    multiply(
                        sum, describe(tile_a + step * WGMMA_K * 2, 0, 8 * SPAN * 2),
                        describe(tile_b + step * WGMMA_K * SPAN * 2, BK * SPAN * 2, 8 * SPAN * 2),
                        begun > 0 || step > 0);
                commit();
                if (last >= 0) {  // the products before these are done: their tiles may be overwritten
                    wait_products<1>();
                    if (lane == 0)
                        arrive(shared_address(empty + last));
                }
                last = stage;
            }
            wait_products<0>();
            if (lane == 0)
                arrive(shared_address(empty + last));

            // A thread has neighbours of a row, and those 8 rows below. Four threads write 32 bytes.
            int row, column;
            corner(tile, row, column);
            row += consumer * WGMMA_M + warp * 16 + lane / 4;
            column += lane % 4 * 2;
            #pragma unroll
            for (int lower = 0; lower < 2; ++lower, row += 8) {
                float* const to = c + (index_t)row * n;
                #pragma unroll
                for (int j = 0; j < BN / 8; ++j) {
                    const int at = column + 8 * j;
                    const float first = sum[4 * j + 2 * lower], second = sum[4 * j + 2 * lower + 1];
                    #if ALIGNMENT == 8
                    if (row < m && at < n)
                        *(float2*)(to + at) = make_float2(first, second);
                    #else
                    if (row < m && at < n)
                        to[at] = first;
                    if (row < m && at + 1 < n)
                        to[at + 1] = second;
                    #endif
                }
            }
        }
    }
}
