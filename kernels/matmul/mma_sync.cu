// Tensor cores fed from shared memory: a block of 8 warps computes a tile of 256 x 128, a warp 64 x 64 of it.
// cp.async copies tiles of A and B ahead, ldmatrix loads fragments without bank conflicts, and mma.sync
// multiplies them. wmma_warp_tiling loads its fragments from device memory instead, with nothing ahead.
//
// The numbers:
// - WM = WN = 64: a step of 16 along k takes 4 ldmatrix for A, 4 for B and 32 mma.sync, so loads from shared
//   memory stay far behind the tensor cores. The accumulators are 128 registers a thread.
// - BM = 256, BN = 128: 8 warps, 2 for each scheduler. 255 registers a thread are all that a multiprocessor has
//   for 256 threads. A tile of A and one of B serve 85 FLOP a byte. 128 x 256 has the same figures and was as
//   fast on an H200 with BK = 64, but 10 % slower with BK = 32.
// - BK = 64: four steps a barrier. The fragments of one step are loaded while the one before is multiplied.
// - STAGES = 3: one tile is multiplied, two are on their way. They take 147,456 bytes, which fit into the 163 KiB
//   that a block can have on sm_80, and the 227 of sm_90. A fourth made no difference on an H200.
// - Where a block has only 99 KiB (sm_86, sm_89, sm_120), BK is 32 and STAGES 4: 98,304 bytes. On an H200 that
//   reached 0.57, 0.48 and 0.47 of cuBLAS at 2048, 4096 and 8192, in place of 0.66, 0.57 and 0.57. So it is where
//   k or n is no multiple of 8: elements then go through registers, and deeper tiles spill some on sm_80.
// - GROUP = 8: blocks that run at once cover 8 rows of tiles. Their bands of A and B then fit into the L2.

#ifdef BFLOAT16
#include <cuda_bf16.h>
typedef __nv_bfloat16 input_t;
#define INPUTS ".bf16.bf16"
#else
#include <cuda_fp16.h>
typedef half input_t;
#define INPUTS ".f16.f16"
#endif

#define WARP 32
#define MMA_M 16                     // mma.sync multiplies 16 x 16 of A with 16 x 8 of B
#define MMA_N 8
#define MMA_K 16
#define CHUNK 8                      // elements in 16 bytes: a copy, and a row of a matrix of ldmatrix
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

#if BM % WM || BN % WN || WM % MMA_M || WN % (2 * MMA_N) || BK % MMA_K || STAGES < 2
#error "mma_sync: fragments must cover a warp's tile, and warps the block's; STAGES is at least 2"
#endif
#if BK % (2 * MMA_K) || BK > 64 || BN % 64 || BM % ROWS_A || BK % ROWS_B || ROWS_A % 8 || ROWS_B % 8
#error "mma_sync: the block must copy the tiles in whole steps, each of whole groups of 8 rows"
#endif

// Where a chunk of a row lies in its tile. The 32 banks are 8 chunks wide, and ldmatrix reads a chunk from each
// of 8 neighbouring rows at once. Unswizzled these would lie below each other, in the same banks. The exclusive
// or with the row puts them into 8 different places.
template <int CHUNKS>
__device__ unsigned swizzled(unsigned row, unsigned chunk)
{
    constexpr unsigned ROWS = CHUNKS < 8 ? 8 / CHUNKS : 1;  // that fill the banks once
    constexpr unsigned PLACES = CHUNKS < 8 ? CHUNKS : 8;
    return row * CHUNKS + (chunk ^ row / ROWS % PLACES);
}

// Copies a chunk to shared memory: the first `inside` elements, then zeros.
__device__ void begin_copy(uint4* to, const input_t* from, int inside)
{
    #if ALIGNMENT == 8  // every row begins at 16 bytes, so a chunk lies inside or outside as a whole
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
        "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside > 0 ? 16 : 0) : "memory");
    #else  // cp.async takes 4 bytes at least: single elements go through registers
    alignas(16) input_t held[CHUNK];
    #pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        held[i] = i < inside ? from[i] : input_t(0.0f);
    *to = *(const uint4*)held;
    #endif
}

__device__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
__device__ void wait_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// Four matrices of 8 x 8 elements. Thread i gives the address of row i % 8 of matrix i / 8, and gets in each
// register the elements 2 * (i % 4) and the next one of row i / 4.
__device__ void load_matrices(unsigned (&to)[4], const uint4* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

// The same, each matrix transposed: of B, which lies in rows, a thread needs neighbours of a column.
__device__ void load_transposed(unsigned (&to)[4], const uint4* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b_upper, unsigned b_lower)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32" INPUTS ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower));
}

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) mma_sync(
    const input_t* __restrict__ a, const input_t* __restrict__ b, float* __restrict__ c, int m, int n, int k)
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

    // What this thread copies. Its rows are multiples of 8 apart, so all are swizzled alike.
    const int copy_row_a = thread / CHUNKS_A;
    const int copy_column_a = thread % CHUNKS_A * CHUNK;
    const int copy_row_b = thread / CHUNKS_B;
    const int copy_column_b = thread % CHUNKS_B * CHUNK;
    const input_t* from_a = a + (index_t)(row0 + copy_row_a) * k + copy_column_a;
    const int rows_inside = m - row0 - copy_row_a;
    const input_t* from_b = b + (index_t)copy_row_b * n + column0 + copy_column_b;
    const int inside_b = n - column0 - copy_column_b;
    uint4* const to_a = stages_a + swizzled<CHUNKS_A>(copy_row_a, thread % CHUNKS_A);
    uint4* const to_b = stages_b + swizzled<CHUNKS_B>(copy_row_b, thread % CHUNKS_B);

    int left = k;  // of what is not yet on its way
    int next = 0;  // stage to copy to
    constexpr int at_once = ALIGNMENT == 8 ? BM : 1;  // copies: by halves, all would take too many registers
    auto copy_tile = [&] {
        #pragma unroll at_once
        for (int r = 0; r < BM / ROWS_A; ++r)
            begin_copy(
                to_a + next * STAGE_A + r * ROWS_A * CHUNKS_A, from_a + (index_t)r * ROWS_A * k,
                r * ROWS_A < rows_inside ? left - copy_column_a : 0);
        #pragma unroll at_once
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
    unsigned part_b[2][WN / (2 * MMA_N)][4];  // two fragments of B each
    auto load_step = [&](int into, int stage, int step) {
        #pragma unroll
        for (int i = 0; i < WM / MMA_M; ++i)
            load_matrices(part_a[into][i], stages_a + stage * STAGE_A + swizzled<CHUNKS_A>(
                warp_row + i * MMA_M + lane % 16, step * (MMA_K / CHUNK) + lane / 16));
        #pragma unroll
        for (int j = 0; j < WN / (2 * MMA_N); ++j)
            load_transposed(part_b[into][j], stages_b + stage * STAGE_B + swizzled<CHUNKS_B>(
                step * MMA_K + lane % 16, warp_column / CHUNK + 2 * j + lane / 16));
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
                    multiply(
                        sum[i][j], part_a[step % 2][i], part_b[step % 2][j / 2][j % 2 * 2],
                        part_b[step % 2][j / 2][j % 2 * 2 + 1]);
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
                #if ALIGNMENT == 8
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
