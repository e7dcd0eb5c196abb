// Double buffering: warp_tiling with two tiles of A and of B in shared memory. The loads of the next tiles
// begin before the block computes with the present ones, and arrive in registers meanwhile; then each thread
// stores them into the other pair of tiles. A step costs one barrier in place of two, because no thread
// overwrites what others still read.
//
// The numbers are those of warp_tiling. BK = 8 has a further reason here: what is under way takes two vectors
// a thread, 8 registers, so that the kernel stays within 128. The two pairs of tiles take 16,640 bytes.

#if VECTOR == 4
typedef float4 vector_t;
#elif VECTOR == 1
typedef float vector_t;
#else
#error "double_buffering: VECTOR is 1 or 4"
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
#error "double_buffering: a warp's 32 threads must cover WM x WN in patches of 4 x 4, and warps the tile"
#endif
#if THREADS % LOADS_A || THREADS % LOADS_B || BM % ROWS_A || BK % ROWS_B
#error "double_buffering: the block must load whole rows of the tiles, and the tiles in whole steps"
#endif

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) double_buffering(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float4 tile_a[2][BK][PITCH_A / PATCH];  // transposed
    SHARED float4 tile_b[2][BK][BN / PATCH];

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
    // The first round has nothing to compute yet, and the last one nothing to load: past the end of k, zeros
    // come without an access.
    for (int left = k, next = 0; left > -BK; left -= BK, next ^= 1) {
        vector_t loaded_a[BM / ROWS_A], loaded_b[BK / ROWS_B];
        #pragma unroll
        for (int r = 0; r < BM / ROWS_A; ++r) {
            const GLOBAL float* from = a + (index_t)min(r * ROWS_A + row_a, last_row) * k;
            loaded_a[r] = column_a < left ? *(const GLOBAL vector_t*)from : zero;
        }
        #pragma unroll
        for (int r = 0; r < BK / ROWS_B; ++r) {
            const GLOBAL float* from = b + (index_t)(r * ROWS_B + row_b) * n;
            loaded_b[r] = r * ROWS_B + row_b < left ? *(const GLOBAL vector_t*)from : zero;
        }
        a += BK;
        b += (index_t)BK * n;
        if (left < k) {
            #pragma unroll 2  // by 4, two blocks no longer fit on sm_90 and newer
            for (int p = 0; p < BK; ++p) {
                float element_a[TM], element_b[TN];
                #pragma unroll
                for (int i = 0; i < TM; i += PATCH) {
                    const float4 read = tile_a[next ^ 1][p][(y + i / PATCH * STEP_Y) / PATCH];
                    element_a[i] = read.x, element_a[i + 1] = read.y;
                    element_a[i + 2] = read.z, element_a[i + 3] = read.w;
                }
                #pragma unroll
                for (int j = 0; j < TN; j += PATCH) {
                    const float4 read = tile_b[next ^ 1][p][(x + j / PATCH * STEP_X) / PATCH];
                    element_b[j] = read.x, element_b[j + 1] = read.y;
                    element_b[j + 2] = read.z, element_b[j + 3] = read.w;
                }
                #pragma unroll
                for (int i = 0; i < TM; ++i)
                    #pragma unroll
                    for (int j = 0; j < TN; ++j)
                        sum[i][j] += element_a[i] * element_b[j];
            }
        }
        #pragma unroll
        for (int r = 0; r < BM / ROWS_A; ++r) {
            SHARED_POINTER float* to =
                elements_a + (next * BK + column_a) * PITCH_A + r * ROWS_A + row_a;
            #if VECTOR == 4
            to[0] = loaded_a[r].x, to[PITCH_A] = loaded_a[r].y;
            to[2 * PITCH_A] = loaded_a[r].z, to[3 * PITCH_A] = loaded_a[r].w;
            #else
            to[0] = loaded_a[r];
            #endif
        }
        #pragma unroll
        for (int r = 0; r < BK / ROWS_B; ++r) {
            SHARED_POINTER float* to = elements_b + (next * BK + r * ROWS_B + row_b) * BN + column_b;
            *(SHARED_POINTER vector_t*)to = loaded_b[r];
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
