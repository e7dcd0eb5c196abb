// mma_sync for single-precision inputs: the tensor cores multiply them as TF32, of whose fraction they read 10 bits
// and ignore the 13 below. ldmatrix cannot transpose elements of 32 bits, so threads load fragments of B themselves,
// one element at a time: the two that a thread needs for an mma.sync lie below each other.
//
// The numbers:
// - WM = WN = 64: a step of 8 along k takes 4 ldmatrix for A, 16 loads for B and 32 mma.sync. An
//   ldmatrix reads as many bytes as four of the loads. The
//   accumulators are 128 registers a thread.
// - BM = 256, BN = 128: 8 warps, 2 for each scheduler. 255 registers a thread are all that a multiprocessor has
//   for 256 threads. A tile of A and one of B, 24,576 bytes, serve 1,048,576 FLOP: 43 FLOP a byte.
// - BK = 16: two steps a barrier. The fragments of one step are loaded while the other one is multiplied.
// - STAGES = 4: one tile is multiplied, three are on their way. 98,304 bytes are within the 99 KiB that a block
//   can have on sm_86, sm_89 and sm_120.
// - GROUP = 8: blocks that run at once cover 8 rows of tiles. Their bands of A and B then fit into the L2.

#define WARP 32
#define MMA_M 16                     // mma.sync multiplies 16 x 8 of A with 8 x 8 of B
#define MMA_N 8
#define MMA_K 8
#define CHUNK 4                      // elements in 16 bytes: a copy, and a row of a matrix of ldmatrix
#define WARPS_N (BN / WN)            // of the block
#define THREADS (WARP * WARPS_N * (BM / WM))
#define CHUNKS_A (BK / CHUNK)        // of a row of the tile of A
#define CHUNKS_B (BN / CHUNK)
#define ROWS_A (THREADS / CHUNKS_A)  // rows of each tile that the block copies at once
#define ROWS_B (THREADS / CHUNKS_B)
#define STAGE_A (BM * CHUNKS_A)      // chunks of a stage
#define STAGE_B (BK * CHUNKS_B)
#define STEPS (BK / MMA_K)           // of a tile
#define AHEAD (STAGES - 1)           // tiles on their way while one is multiplied

#if BM % WM || BN % WN || WM % MMA_M || WN % 32 || BK % MMA_K || STAGES < 2
#error "mma_sync_tf32: fragments must cover a warp's tile, and warps the block's; STAGES is at least 2"
#endif
#if BK % (2 * MMA_K) || BK > 32 || BN % 64 || BM % ROWS_A || BK % ROWS_B || ROWS_A % 8 || ROWS_B % 4
#error "mma_sync_tf32: the block must copy the tiles in whole steps, of 8 rows of A and 4 of B"
#endif

// Where a chunk of a row of A lies in its tile. The 32 banks are 8 chunks wide, and ldmatrix reads a chunk from
// each of 8 neighbouring rows at once. Unswizzled these would lie below each other, in the same banks. The exclusive
// or with the row puts them into 8 different places.
__device__ unsigned swizzled_a(unsigned row, unsigned chunk)
{
    constexpr unsigned ROWS = CHUNKS_A < 8 ? 8 / CHUNKS_A : 1;  // that fill the banks once
    constexpr unsigned PLACES = CHUNKS_A < 8 ? CHUNKS_A : 8;
    return row * CHUNKS_A + (chunk ^ row / ROWS % PLACES);
}

// Of B, a warp reads two chunks from each of 4 neighbouring rows at once.
__device__ unsigned swizzled_b(unsigned row, unsigned chunk) { return row * CHUNKS_B + (chunk ^ row % 4 * 2); }

// Copies a chunk to shared memory: the first `inside` elements, then zeros, which cp.async stores where it reads
// 0 bytes.
__device__ void begin_copy(uint4* to, const float* from, int inside)
{
    #if VECTOR == 4  // every row begins at 16 bytes, so a chunk lies inside or outside as a whole
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
        "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside > 0 ? 16 : 0) : "memory");
    #else
    #pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
            "r"((unsigned)__cvta_generic_to_shared((float*)to + i)), "l"(from + i), "r"(i < inside ? 4 : 0)
            : "memory");
    #endif
}

__device__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
__device__ void wait_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// Four matrices of 8 x 4 elements. Thread i gives the address of row i % 8 of matrix i / 8, and gets in each
// register the element i % 4 of row i / 4.
__device__ void load_matrices(unsigned (&to)[4], const uint4* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b_upper, unsigned b_lower)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower));
}

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) mma_sync_tf32(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    extern __shared__ __align__(128) uint4 stages[];  // tiles of A, then tiles of B
    uint4* const stages_a = stages;
    uint4* const stages_b = stages + STAGES * STAGE_A;

    const int thread = THREAD_X;
    const int warp = thread / WARP;
    const int lane = thread % WARP;
    const int warp_row = warp / WARPS_N * WM;
    const int warp_column = warp % WARPS_N * WN;

    // Blocks walk down GROUP rows of tiles, then to the next column.
    const int tiles_m = (m - 1) / BM + 1;
    const int tiles_n = (n - 1) / BN + 1;
    const int above = BLOCK_X / (GROUP * tiles_n) * GROUP;
    const int rows = min(GROUP, tiles_m - above);
    const int place = BLOCK_X - above * tiles_n;
    const int row0 = (above + place % rows) * BM;
    const int column0 = place / rows * BN;

    // What this thread copies. Its rows of A are multiples of 8 apart and those of B of 4, so all are swizzled alike.
    const int copy_row_a = thread / CHUNKS_A;
    const int copy_column_a = thread % CHUNKS_A * CHUNK;
    const int copy_row_b = thread / CHUNKS_B;
    const int copy_column_b = thread % CHUNKS_B * CHUNK;
    const float* from_a = a + (index_t)(row0 + copy_row_a) * k + copy_column_a;
    const int rows_inside = m - row0 - copy_row_a;
    const float* from_b = b + (index_t)copy_row_b * n + column0 + copy_column_b;
    const int inside_b = n - column0 - copy_column_b;
    uint4* const to_a = stages_a + swizzled_a(copy_row_a, thread % CHUNKS_A);
    uint4* const to_b = stages_b + swizzled_b(copy_row_b, thread % CHUNKS_B);

    int left = k;  // of what is not yet on its way
    int next = 0;  // stage to copy to
    auto copy_tile = [&] {
        #pragma unroll
        for (int r = 0; r < BM / ROWS_A; ++r)
            begin_copy(
                to_a + next * STAGE_A + r * ROWS_A * CHUNKS_A, from_a + (index_t)r * ROWS_A * k,
                r * ROWS_A < rows_inside ? left - copy_column_a : 0);
        #pragma unroll
        for (int r = 0; r < BK / ROWS_B; ++r)
            begin_copy(
                to_b + next * STAGE_B + r * ROWS_B * CHUNKS_B, from_b + (index_t)r * ROWS_B * n,
                r * ROWS_B + copy_row_b < left ? inside_b : 0);
        from_a += BK;
        from_b += (index_t)BK * n;
        left -= BK;
        next = next + 1 == STAGES ? 0 : next + 1;
        close_group();
    };

    float sum[WM / MMA_M][WN / MMA_N][4] = {};
    unsigned part_a[2][WM / MMA_M][4];        // fragments of this step and of the next one
    unsigned part_b[2][WN / MMA_N][2];
    // Element of B that this thread loads first. The exclusive or does the same 4 rows below and 32 columns to the
    // right. Up to 24 columns to the right, another exclusive or finds the place.
    const unsigned own_b = CHUNK * swizzled_b(lane % 4, warp_column / CHUNK + lane / 16) + lane / 4 % CHUNK;
    auto load_step = [&](int into, int stage, int step) {
        #pragma unroll
        for (int i = 0; i < WM / MMA_M; ++i)
            load_matrices(part_a[into][i], stages_a + stage * STAGE_A + swizzled_a(
                warp_row + i * MMA_M + lane % 16, step * (MMA_K / CHUNK) + lane / 16));
        #pragma unroll
        for (int j = 0; j < WN / MMA_N; ++j)
            #pragma unroll
            for (int lower = 0; lower < 2; ++lower) {
                const int first = stage * STAGE_B + (step * MMA_K + lower * 4) * CHUNKS_B + j / 4 * 8;
                part_b[into][j][lower] = ((const unsigned*)(stages_b + first))[own_b ^ j % 4 * MMA_N];
            }
    };

    for (int i = 0; i < AHEAD; ++i)
        copy_tile();
    wait_groups<AHEAD - 1>();
    __syncthreads();
    load_step(0, 0, 0);
    int present = 0;
    while (left > -AHEAD * BK) {  // until the last tile, AHEAD of which nothing is left, is multiplied
        const int following = present + 1 == STAGES ? 0 : present + 1;
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {  // the following tile has come, for every thread
                wait_groups<AHEAD - 1>();
                __syncthreads();
            }
            load_step((step + 1) % 2, step == STEPS - 1 ? following : present, (step + 1) % STEPS);
            if (step == 0)  // into the tile before the present one, which every warp has left
                copy_tile();
            #pragma unroll
            for (int i = 0; i < WM / MMA_M; ++i)
                #pragma unroll
                for (int j = 0; j < WN / MMA_N; ++j)
                    multiply(sum[i][j], part_a[step % 2][i], part_b[step % 2][j][0], part_b[step % 2][j][1]);
        }
        present = following;
    }

    // A thread has two neighbours of a row, and the two that lie 8 rows below. Four threads write 32 bytes.
    #pragma unroll
    for (int i = 0; i < WM / MMA_M; ++i)
        #pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
            const int row = row0 + warp_row + i * MMA_M + upper * 8 + lane / 4;
            float* const to = c + (index_t)row * n;
            #pragma unroll
            for (int j = 0; j < WN / MMA_N; ++j) {
                const int column = column0 + warp_column + j * MMA_N + lane % 4 * 2;
                const float first = sum[i][j][2 * upper], second = sum[i][j][2 * upper + 1];
                #if VECTOR == 4
                if (row < m && column < n)
                    *(float2*)(to + column) = make_float2(first, second);
                #else
                if (row < m && column < n)
                    to[column] = first;
                if (row < m && column + 1 < n)
                    to[column + 1] = second;
                #endif
            }
        }
}
