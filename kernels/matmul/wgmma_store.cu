// Tiles of C that leave while the next ones are multiplied: wgmma, with the copy engine for the way out too. A
// warpgroup puts its sums into shared memory, piece by piece, and goes on as soon as the engine has read the
// last one. The engine writes whole lines, where wgmma's threads write 32 bytes each four.
//
// The numbers are those of wgmma, and:
// - A piece is 64 x 32 of C, 8,192 bytes: the rows of a warpgroup, by the 128 bytes of a swizzled line.
// - PIECES = 2 of each warpgroup: one is filled while the other is read. With STAGES = 4 they take 32,768 bytes,
//   which makes 229,376 of the 232,448 that a block can have.
// - Where n is no multiple of 8 (ALIGNMENT is 1), the threads store C by themselves, as in wgmma.

#include "hopper.cuh"

#define CONSUMERS (BM / WGMMA_M)         // warpgroups that multiply
#define THREADS (GROUP_THREADS * (1 + CONSUMERS))
#define TILE_A (BM * BK)                 // elements
#define TILE_B (BK * BN)
#define TILE_BYTES (2 * (TILE_A + TILE_B))
#define PIECE 32                         // columns of C in a piece: 128 bytes
#define PIECE_BYTES (WGMMA_M * PIECE * 4)

#if BN != 256 || BK != SPAN || BM % WGMMA_M || STAGES < 2
#error "wgmma_store: BN is 256, BK is 64, BM a multiple of 64, and STAGES at least 2"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) wgmma_store(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
    const __grid_constant__ TensorMap map_c, const input_t* __restrict__ a, const input_t* __restrict__ b,
    float* __restrict__ c, int m, int n, int k)
{
    extern __shared__ unsigned char memory[];
    // The swizzle goes by addresses: tiles begin at multiples of its period, 1,024 bytes.
    unsigned char* const stages = memory + (-shared_address(memory) & 1023);
    unsigned char* const pieces = stages + STAGES * TILE_BYTES;
    unsigned long long* const full = (unsigned long long*)(pieces + CONSUMERS * PIECES * PIECE_BYTES);
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
        const int y = warp * 16 + lane / 4;  // row of this thread's sums; the others lie 8 rows below
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

            int row, column;
            corner(tile, row, column);
            row += consumer * WGMMA_M;
            #if ALIGNMENT == 8
            const bool leads = THREAD_X % GROUP_THREADS == 0;
            #pragma unroll
            for (int piece = 0; piece < BN / PIECE; ++piece) {
                const unsigned to =
                    shared_address(pieces) + (consumer * PIECES + piece % PIECES) * PIECE_BYTES;
                if (leads)
                    wait_reads<PIECES - 1>();
                synchronise(consumer);
                #pragma unroll
                for (int j = 0; j < PIECE / 8; ++j)
                    #pragma unroll
                    for (int lower = 0; lower < 2; ++lower) {
                        const float* const pair = sum + 4 * (piece * (PIECE / 8) + j) + 2 * lower;
                        const int chunk = 2 * j + lane % 4 / 2;  // of 16 bytes, in a row of 8
                        put(to + (y + 8 * lower) * 128 + (chunk ^ y % 8) * 16 + lane % 2 * 8, pair[0], pair[1]);
                    }
                fence_stores();
                synchronise(consumer);
                if (leads)
                    begin_store(&map_c, to, column + piece * PIECE, row);
            }
            #else
            #pragma unroll
            for (int lower = 0; lower < 2; ++lower) {
                const int own_row = row + y + 8 * lower;
                #pragma unroll
                for (int i = 0; i < BN / 4; ++i) {
                    const int at = column + i / 2 * 8 + lane % 4 * 2 + i % 2;
                    if (own_row < m && at < n)
                        c[(index_t)own_row * n + at] = sum[i / 2 * 4 + 2 * lower + i % 2];
                }
            }
            #endif
        }
        #if ALIGNMENT == 8
        if (THREAD_X % GROUP_THREADS == 0)
            wait_reads<0>();  // shared memory must last until then
        #endif
    }
}
