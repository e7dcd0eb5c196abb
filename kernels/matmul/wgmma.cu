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

#include "hopper.cuh"

#define CONSUMERS (BM / WGMMA_M)         // warpgroups that multiply
#define THREADS (GROUP_THREADS * (1 + CONSUMERS))
#define TILE_A (BM * BK)                 // elements
#define TILE_B (BK * BN)
#define TILE_BYTES (2 * (TILE_A + TILE_B))

#if BN != 256 || BK != SPAN || BM % WGMMA_M || STAGES < 2
#error "wgmma: BN is 256, BK is 64, BM a multiple of 64, and STAGES at least 2"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) wgmma(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
    const input_t* __restrict__ a, const input_t* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    extern __shared__ unsigned char memory[];
    // The swizzle goes by addresses: tiles begin at multiples of its period, 1,024 bytes.
    unsigned char* const stages = memory + (-shared_address(memory) & 1023);
    unsigned long long* const full = (unsigned long long*)(stages + STAGES * TILE_BYTES);
    unsigned long long* const empty = full + STAGES;

    const int tiles_m = (m - 1) / BM + 1;
    const int tiles_n = (n - 1) / BN + 1;
    const int tiles_k = (k - 1) / BK + 1;
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
                for (int deep = 0; deep < tiles_k; ++deep, advance()) {
                    const int begun = deep * BK;
                    input_t* const to_a = (input_t*)(stages + stage * TILE_BYTES);
                    input_t* const to_b = to_a + TILE_A;
                    const unsigned barrier = shared_address(full + stage);
                    wait_for(shared_address(empty + stage), parity ^ 1);
                    #if ALIGNMENT == 8
                    arrive_expecting(barrier, TILE_BYTES);
                    copy_box(shared_address(to_a), &map_a, begun, row, barrier);
                    #pragma unroll
                    for (int j = 0; j < BN / SPAN; ++j)
                        copy_box(
                            shared_address(to_b + j * BK * SPAN), &map_b, column + j * SPAN, begun, barrier);
                    #else
                    copy_by_threads(to_a, a + (index_t)row * k + begun, k, BM, 1, m - row, k - begun);
                    copy_by_threads(
                        to_b, b + (index_t)begun * n + column, n, BK, BN / SPAN, k - begun, n - column);
                    fence_stores();
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
            for (int deep = 0; deep < tiles_k; ++deep, advance()) {
                const unsigned tiles_at = shared_address(stages + stage * TILE_BYTES);
                const unsigned tile_a = tiles_at + consumer * (WGMMA_M * SPAN * 2);
                const unsigned tile_b = tiles_at + 2 * TILE_A;
                wait_for(shared_address(full + stage), parity);
                fence();
                #pragma unroll
                for (int step = 0; step < BK / WGMMA_K; ++step)
                    // A: 8 rows are 1,024 bytes, a step is 32 bytes along them. B: 8 rows likewise, 64 columns
                    // are the BK rows of a box, and a step is 16 rows.
                    multiply(
                        sum, describe(tile_a + step * WGMMA_K * 2, 0, 8 * SPAN * 2),
                        describe(tile_b + step * WGMMA_K * SPAN * 2, BK * SPAN * 2, 8 * SPAN * 2),
                        deep > 0 || step > 0);
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
