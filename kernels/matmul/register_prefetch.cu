// Fragments ahead: async_copy whose threads load the next column of A and row of B from shared memory while they
// multiply the present ones, across tiles as well. With twice the elements a thread, and tiles twice as deep.
//
// The numbers:
// - TM = 16, TN = 8: 128 multiply-adds for 6 loads of 16 bytes, where 8 x 8 has 64 for 4. The sums take 128
//   registers a thread, two columns of A and two rows of B 48 more.
// - BM = 128, BN = 256: 8 warps, 2 for each scheduler. 255 registers a thread are all that a multiprocessor has
//   for 256 threads. With 256 x 128, a thread copies 8 elements of A for each 8 of k in place of 4.
// - BK = 32, STAGES = 3: one barrier for 4,096 multiply-adds of each thread. One tile is computed, two are on their
//   way, in 148,992 bytes. Where a multiprocessor computes two tiles of C at most, or has no more than the 99 KiB of
//   sm_86, sm_89 and sm_120, it is BK = 16, STAGES = 4: 99,328 bytes. In one wave these were 7 % faster on an H200,
//   in four or more 2 to 4 % slower.
// - SPREAD = 8, or 4 with BK = 16: a thread begins its copies in so many parts, one at each of the first steps of a
//   tile, between its loads from shared memory. On an H200 four parts in place of eight were 2 to 4 % slower; with
//   BK = 16, two in place of four 0.4 %, and one 6 %.
// - GROUP = 8: blocks that run at once cover 8 rows of tiles. Their bands of A and B then fit into the L2.
// - The products go through a patch in serpentines: from one to the next, the element of A stays, or that of B. On
//   an H200 a loop is slower, the more of its multiply-adds read three registers that the one before did not.

#define WARP 32
#define PATCH 4                         // edge of a patch: the elements of a float4
#define THREADS_X (WN / TN)             // of a warp
#define THREADS_Y (WM / TM)
#define WARPS_X (BN / WN)               // of the block
#define THREADS (WARP * WARPS_X * (BM / WM))
#define STEP_X (THREADS_X * PATCH)      // from one of a thread's patches to the next
#define STEP_Y (THREADS_Y * PATCH)
#define LOADS_B (BN / VECTOR)           // of a row of the tile of B
#define ROWS_A (THREADS / BK)           // rows of each tile that the block copies at once
#define ROWS_B (THREADS / LOADS_B)
#define AHEAD (STAGES - 1)              // tiles on their way while one is computed
#define PITCH_A (BM + PATCH)            // neighbouring columns of A are then 4 banks apart

#if THREADS_X * THREADS_Y != WARP || TM % PATCH || TN % PATCH || BM % WM || BN % WN
#error "register_prefetch: a warp's 32 threads must cover WM x WN in patches of 4 x 4, and warps the tile"
#endif
#if THREADS % BK || THREADS % LOADS_B || BM % ROWS_A || BK % ROWS_B
#error "register_prefetch: the block must copy whole rows of the tiles, and the tiles in whole steps"
#endif
#if STAGES < 2 || BK % 2 || SPREAD >= BK || (VECTOR != 1 && VECTOR != 4)
#error "register_prefetch: STAGES is at least 2, BK even and above SPREAD, and VECTOR 1 or 4"
#endif

// Begins to copy an element or four of them to shared memory. cp.async stores zeros where it reads 0 bytes.
template <int BYTES>
__device__ void begin_copy(float* to, const float* from, bool inside)
{
    if (BYTES == 16)  // past the L1, as no other thread of the block reads the same
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
            "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
            "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0) : "memory");
}

__device__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
__device__ void wait_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

template <int LENGTH>
__device__ void load_patches(float (&to)[LENGTH], const float* from, int step)
{
    #pragma unroll
    for (int i = 0; i < LENGTH; i += PATCH) {
        const float4 read = *(const float4*)(from + i / PATCH * step);
        to[i] = read.x, to[i + 1] = read.y, to[i + 2] = read.z, to[i + 3] = read.w;
    }
}

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) register_prefetch(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    extern __shared__ __align__(16) float stages[];  // transposed tiles of A, then tiles of B
    float* const tiles_a = stages;
    float* const tiles_b = stages + STAGES * BK * PITCH_A;

    const int thread = THREAD_X;
    const int warp = thread / WARP;
    const int lane = thread % WARP;
    const int y = warp / WARPS_X * WM + lane / THREADS_X * PATCH;  // this thread's first patch
    const int x = warp % WARPS_X * WN + lane % THREADS_X * PATCH;
    const int row_a = thread / BK;  // what it copies: neighbouring threads, neighbouring elements or vectors
    const int column_a = thread % BK;
    const int row_b = thread / LOADS_B;
    const int column_b = thread % LOADS_B * VECTOR;

    // Blocks walk down GROUP rows of tiles, then to the next column.
    const int tiles_m = (m - 1) / BM + 1;
    const int tiles_n = (n - 1) / BN + 1;
    const int above = BLOCK_X / (GROUP * tiles_n) * GROUP;
    const int rows = min(GROUP, tiles_m - above);
    const int place = BLOCK_X - above * tiles_n;
    const int row0 = (above + place % rows) * BM;
    const int column0 = place / rows * BN;
    const int last_row = m - 1 - row0;
    const int last_column = n - VECTOR - column0;  // where the last vector of a row begins

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k + column_a;
    b += (index_t)row_b * n + column0 + min(column_b, last_column);
    int left = k;  // of what is not yet on its way
    int next = 0;  // stage to copy to
    auto copy_part = [&](int part) {
        #pragma unroll
        for (int r = part; r < BM / ROWS_A; r += SPREAD)
            begin_copy<4>(
                tiles_a + (next * BK + column_a) * PITCH_A + row_a + r * ROWS_A,
                a + (index_t)min(r * ROWS_A + row_a, last_row) * k, column_a < left);
        #pragma unroll
        for (int r = part; r < BK / ROWS_B; r += SPREAD)
            begin_copy<4 * VECTOR>(
                tiles_b + (next * BK + row_b + r * ROWS_B) * BN + column_b, b + (index_t)r * ROWS_B * n,
                r * ROWS_B + row_b < left);
        if (part == SPREAD - 1) {
            close_group();
            a += BK;
            b += (index_t)BK * n;
            left -= BK;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
    };

    float sum[TM][TN] = {{0.0f}};
    float part_a[2][TM], part_b[2][TN];  // of this step along k and of the next one
    auto load_step = [&](int into, int stage, int step) {
        load_patches(part_a[into], tiles_a + (stage * BK + step) * PITCH_A + y, STEP_Y);
        load_patches(part_b[into], tiles_b + (stage * BK + step) * BN + x, STEP_X);
    };

    for (int i = 0; i < AHEAD; ++i)
        #pragma unroll
        for (int part = 0; part < SPREAD; ++part)
            copy_part(part);
    wait_groups<AHEAD - 1>();
    __syncthreads();
    load_step(0, 0, 0);
    int present = 0;
    #pragma unroll 1
    while (left > -AHEAD * BK) {  // until the last tile, AHEAD of which nothing is left, is computed
        const int following = present + 1 == STAGES ? 0 : present + 1;
        #pragma unroll
        for (int step = 0; step < BK; ++step) {
            if (step == BK - 1) {  // the following tile has come, for every thread
                wait_groups<AHEAD - 1>();
                __syncthreads();
            }
            load_step((step + 1) % 2, step == BK - 1 ? following : present, (step + 1) % BK);
            if (step < SPREAD)  // into the tile before the present one, which every thread has left
                copy_part(step);
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int l = 0; l < TN; ++l) {
                    const int j = i % 2 ? TN - 1 - l : l;
                    sum[i][j] += part_a[step % 2][i] * part_b[step % 2][j];
                }
        }
        present = following;
    }

    c += (index_t)row0 * n + column0;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = y + i / PATCH * STEP_Y + i % PATCH;
        #pragma unroll
        for (int j = 0; j < TN; j += VECTOR) {
            const int column = x + j / PATCH * STEP_X + j % PATCH;
            if (row <= last_row && column <= last_column) {
                float* const to = c + (index_t)row * n + column;
                #if VECTOR == 4
                *(float4*)to = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
                #else
                *to = sum[i][j];
                #endif
            }
        }
    }
}
