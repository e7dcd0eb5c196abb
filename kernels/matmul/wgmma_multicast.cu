// Tiles for two blocks: wgmma_store in clusters of two blocks whose tiles of C lie below each other, and need the
// same tile of B. Each block copies half of it, to both (multicast), so that a block reads a third less from the
// L2. A block may overwrite a tile only when the warpgroups of both have left it.
//
// The numbers are those of wgmma_store, and:
// - CLUSTER = 2: with its own 128 rows of A and half of B, a block reads 32,768 bytes for 4,194,304 FLOP: 128
//   FLOP a byte from the L2, in place of 85.
// - STAGES = 3 and PIECES = 4: half of a tile of C leaves while the next one is multiplied, in place of a
//   quarter. Four stages and two pieces were 1 % slower on an H200.
// - GROUP = 4: rows of tiles of a cluster, as many rows of C as wgmma's 8.

#include "hopper.cuh"

#define CONSUMERS (BM / WGMMA_M)         // warpgroups that multiply
#define THREADS (GROUP_THREADS * (1 + CONSUMERS))
#define TILE_A (BM * BK)                 // elements
#define TILE_B (BK * BN)
#define TILE_BYTES (2 * (TILE_A + TILE_B))
#define PIECE 32                         // columns of C in a piece: 128 bytes
#define PIECE_BYTES (WGMMA_M * PIECE * 4)

#if BN != 256 || BK != SPAN || BM % WGMMA_M || STAGES < 2 || (CLUSTER != 2 && CLUSTER != 4)
#error "wgmma_multicast: BN is 256, BK is 64, BM a multiple of 64, STAGES at least 2, CLUSTER 2 or 4"
#endif

// Begins to copy a box of a matrix to every block of the cluster. Its bytes arrive at each one's barrier.
__device__ void copy_box_to_all(unsigned to, const TensorMap* map, int column, int row, unsigned barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;"
        :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row), "h"((short)((1 << CLUSTER) - 1))
        : "memory");
}

__device__ void arrive_at(unsigned barrier, int rank)  // at this barrier of a block of the cluster
{
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}" :: "r"(barrier), "r"(rank) : "memory");
}

__device__ void synchronise_cluster()
{
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) wgmma_multicast(
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

    const int rank = blockIdx.x % CLUSTER;                // of this block in its cluster
    const int tiles_m = (m - 1) / (CLUSTER * BM) + 1;     // of the clusters
    const int tiles_n = (n - 1) / BN + 1;
    const int tiles_k = (k - 1) / BK + 1;
    const int tiles = tiles_m * tiles_n;
    const int warpgroup = THREAD_X / GROUP_THREADS;

    if (THREAD_X == 0) {
        for (int i = 0; i < STAGES; ++i) {
            initialise(shared_address(full + i), ALIGNMENT == 8 ? 1 : GROUP_THREADS);
            initialise(shared_address(empty + i), CLUSTER * CONSUMERS * GROUP_THREADS / WARP);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    synchronise_cluster();

    // Tiles of the clusters are numbered down GROUP rows of them, then to the next column.
    auto corner = [&](int tile, int& row, int& column) {
        const int above = tile / (GROUP * tiles_n) * GROUP;
        const int rows = min(GROUP, tiles_m - above);
        const int place = tile - above * tiles_n;
        row = ((above + place % rows) * CLUSTER + rank) * BM;
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
            for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
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
                    for (int i = 0; i < BN / SPAN / CLUSTER; ++i) {
                        const int j = rank * (BN / SPAN / CLUSTER) + i;
                        copy_box_to_all(
                            shared_address(to_b + j * BK * SPAN), &map_b, column + j * SPAN, begun, barrier);
                    }
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
        for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
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
                    if (lane < CLUSTER)
                        arrive_at(shared_address(empty + last), lane);
                }
                last = stage;
            }
            wait_products<0>();
            if (lane < CLUSTER)
                arrive_at(shared_address(empty + last), lane);

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
    synchronise_cluster();  // the other block may still copy and arrive here
}
