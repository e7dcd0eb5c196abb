// Warp tiling: a warp computes a WM x WN part of the block's tile, and each of its threads TM x TN elements
// of that part, in patches of 4 x 4 that are spread over it. One step along k reads WM + WN elements from
// shared memory for a warp's WM * WN multiply-adds, 16 bytes a thread. A is transposed into shared memory:
// the four rows of a patch are then neighbours there, as its four columns of B are.
//
// The reasons for the numbers in suite.py:
// - TM = TN = 8: each step reads 2 + 2 vectors for 64 multiply-adds. The 64 sums, the 16 operands and the
//   addresses fit into 128 registers.
// - BM = BN = 128: 256 threads. At 128 registers, two such blocks fill a multiprocessor's 65,536.
// - WM = 64, WN = 32: 8 threads down and 4 across, the nearest to a square that 32 threads of 8 x 8 can make.
//   The 8 vectors of A that a warp reads lie in 32 different banks. A vector that several threads read is
//   broadcast.
// - BK = 8: each thread loads one vector of each tile. Two threads share a row of A: 32 bytes, one sector.

#if VECTOR == 4
typedef float4 vector_t;
#elif VECTOR == 1
typedef float vector_t;
#else
#error "warp_tiling: VECTOR is 1 or 4"
#endif

#define WARP 32
#define PATCH 4                         // edge of a patch: the elements of a float4
#define THREADS_X (WN / TN)             // of a warp
#define THREADS_Y (WM / TM)
#define WARPS_X (BN / WN)               // of the block
#define THREADS (WARP * WARPS_X * (BM / WM))
#define STEP_X (THREADS_X * PATCH)      // from one of a thread's patches to the next
#define STEP_Y (THREADS_Y * PATCH)
#define LOADS_A (BK / VECTOR)           // of a row of the tile of A
#define LOADS_B (BN / VECTOR)
#define ROWS_A (THREADS / LOADS_A)      // rows of each tile that the block loads at once
#define ROWS_B (THREADS / LOADS_B)
#define PITCH_A (BM + PATCH)            // 4 columns of A are then 16 banks apart: a warp stores to 32 of them

#if THREADS_X * THREADS_Y != WARP || TM % PATCH || TN % PATCH || BM % WM || BN % WN
#error "warp_tiling: a warp's 32 threads must cover WM x WN in patches of 4 x 4, and warps the tile"
#endif
#if THREADS % LOADS_A || THREADS % LOADS_B || BM % ROWS_A || BK % ROWS_B
#error "warp_tiling: the block must load whole rows of the tiles, and the tiles in whole steps"
#endif

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) warp_tiling(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float4 tile_a[BK][PITCH_A / PATCH];  // transposed
    SHARED float4 tile_b[BK][BN / PATCH];

    const int thread = THREAD_X;
    const int warp = thread / WARP;
    const int lane = thread % WARP;
    const int y = warp / WARPS_X * WM + lane / THREADS_X * PATCH;  // this thread's first patch
    const int x = warp % WARPS_X * WN + lane % THREADS_X * PATCH;
    const int row_a = thread / LOADS_A;  // what it loads: neighbouring threads, neighbouring vectors
    const int column_a = thread % LOADS_A * VECTOR;
    const int row_b = thread / LOADS_B;
    const int column_b = thread % LOADS_B * VECTOR;
    const int tiles_n = (n - 1) / BN + 1;
    const int row0 = BLOCK_X / tiles_n * BM;
    const int column0 = BLOCK_X % tiles_n * BN;
    const int last_row = m - 1 - row0;
    const int last_column = n - VECTOR - column0;  // where the last vector of a row begins

    SHARED_POINTER float* elements_a = (SHARED_POINTER float*)tile_a;
    SHARED_POINTER float* elements_b = (SHARED_POINTER float*)tile_b;
    vector_t zero;
    #if VECTOR == 4
    zero.x = zero.y = zero.z = zero.w = 0.0f;
    #else
    zero = 0.0f;
    #endif

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k + column_a;
    b += column0 + min(column_b, last_column);
    float sum[TM][TN] = {{0.0f}};
    for (int left = k; left > 0; left -= BK) {
        #pragma unroll
        for (int r = 0; r < BM; r += ROWS_A) {
            const GLOBAL float* from = a + (index_t)min(r + row_a, last_row) * k;
            const vector_t loaded = column_a < left ? *(const GLOBAL vector_t*)from : zero;
            SHARED_POINTER float* to = elements_a + column_a * PITCH_A + r + row_a;
            #if VECTOR == 4
            to[0] = loaded.x, to[PITCH_A] = loaded.y, to[2 * PITCH_A] = loaded.z, to[3 * PITCH_A] = loaded.w;
            #else
            to[0] = loaded;
            #endif
        }
        #pragma unroll
        for (int r = 0; r < BK; r += ROWS_B) {
            const GLOBAL float* from = b + (index_t)(r + row_b) * n;
            const vector_t loaded = r + row_b < left ? *(const GLOBAL vector_t*)from : zero;
            *(SHARED_POINTER vector_t*)(elements_b + (r + row_b) * BN + column_b) = loaded;
        }
        a += BK;
        b += (index_t)BK * n;
        BARRIER();
        #pragma unroll 2  // by 4, operands of more steps take up to 167 registers: one block a multiprocessor
        for (int p = 0; p < BK; ++p) {
            float element_a[TM], element_b[TN];
            #pragma unroll
            for (int i = 0; i < TM; i += PATCH) {
                const float4 read = tile_a[p][(y + i / PATCH * STEP_Y) / PATCH];
                element_a[i] = read.x, element_a[i + 1] = read.y;
                element_a[i + 2] = read.z, element_a[i + 3] = read.w;
            }
            #pragma unroll
            for (int j = 0; j < TN; j += PATCH) {
                const float4 read = tile_b[p][(x + j / PATCH * STEP_X) / PATCH];
                element_b[j] = read.x, element_b[j + 1] = read.y;
                element_b[j + 2] = read.z, element_b[j + 3] = read.w;
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j)
                    sum[i][j] += element_a[i] * element_b[j];
        }
        BARRIER();
    }

    c += (index_t)row0 * n + column0;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = y + i / PATCH * STEP_Y + i % PATCH;
        #pragma unroll
        for (int j = 0; j < TN; j += VECTOR) {
            const int column = x + j / PATCH * STEP_X + j % PATCH;
            if (row <= last_row && column <= last_column) {
                #if VECTOR == 4
                vector_t out;
                out.x = sum[i][j], out.y = sum[i][j + 1], out.z = sum[i][j + 2], out.w = sum[i][j + 3];
                *(GLOBAL vector_t*)(c + (index_t)row * n + column) = out;
                #else
                c[(index_t)row * n + column] = sum[i][j];
                #endif
            }
        }
    }
}
