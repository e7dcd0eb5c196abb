// thread_tiling_2d with four elements an access: rows of A and B are loaded, and those of C stored, 16 bytes a
// thread at once, so a quarter of the instructions moves them. Rows must begin at multiples of four: where k or n
// is none, VECTOR is 1 and the accesses are single.

#if VECTOR == 4
typedef float4 vector_t;
#elif VECTOR == 1
typedef float vector_t;
#else
#error "thread_tiling_2d_vectorized: VECTOR is 1 or 4"
#endif

#define THREADS_X (BN / TN)
#define THREADS_Y (BM / TM)
#define THREADS (THREADS_X * THREADS_Y)
#define LOADS_A (BK / VECTOR)           // of a row of the tile of A
#define LOADS_B (BN / VECTOR)
#define ROWS_A (THREADS / LOADS_A)      // rows of each tile that the block loads at once
#define ROWS_B (THREADS / LOADS_B)

#if BM % TM || BN % TN || TN % VECTOR
#error "thread_tiling_2d_vectorized: TM must divide BM, TN must divide BN, and VECTOR must divide TN"
#endif
#if THREADS % LOADS_A || THREADS % LOADS_B || BM % ROWS_A || BK % ROWS_B
#error "thread_tiling_2d_vectorized: the block must load whole rows of the tiles, and the tiles in whole steps"
#endif

KERNEL LAUNCH_BOUNDS(THREADS_X, THREADS_Y, 1) thread_tiling_2d_vectorized(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED vector_t tile_a[BM][LOADS_A];
    SHARED vector_t tile_b[BK][LOADS_B];

    const int y = THREAD_Y * TM;  // this thread's patch
    const int x = THREAD_X * TN;
    const int thread = THREAD_Y * THREADS_X + THREAD_X;
    const int row_a = thread / LOADS_A;  // what it loads: neighbouring threads, neighbouring vectors
    const int column_a = thread % LOADS_A;
    const int row_b = thread / LOADS_B;
    const int column_b = thread % LOADS_B;
    const int tiles_n = (n - 1) / BN + 1;
    const int row0 = BLOCK_X / tiles_n * BM;
    const int column0 = BLOCK_X % tiles_n * BN;
    const int last_row = m - 1 - row0;
    const int last_column = n - VECTOR - column0;  // where the last vector of a row begins

    const SHARED_POINTER float* elements_a = (const SHARED_POINTER float*)tile_a;
    const SHARED_POINTER float* elements_b = (const SHARED_POINTER float*)tile_b;
    vector_t zero;
    #if VECTOR == 4
    zero.x = zero.y = zero.z = zero.w = 0.0f;
    #else
    zero = 0.0f;
    #endif

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k;
    b += column0 + min(column_b * VECTOR, last_column);
    float sum[TM][TN] = {{0.0f}};
    for (int left = k; left > 0; left -= BK) {
        #pragma unroll
        for (int r = 0; r < BM; r += ROWS_A) {
            const GLOBAL float* from = a + (index_t)min(r + row_a, last_row) * k + column_a * VECTOR;
            tile_a[r + row_a][column_a] = column_a * VECTOR < left ? *(const GLOBAL vector_t*)from : zero;
        }
        #pragma unroll
        for (int r = 0; r < BK; r += ROWS_B) {
            const GLOBAL float* from = b + (index_t)(r + row_b) * n;
            tile_b[r + row_b][column_b] = r + row_b < left ? *(const GLOBAL vector_t*)from : zero;
        }
        a += BK;
        b += (index_t)BK * n;
        BARRIER();
        #pragma unroll 4
        for (int p = 0; p < BK; ++p) {
            float element_b[TN];
            #pragma unroll
            for (int j = 0; j < TN; ++j)
                element_b[j] = elements_b[p * BN + x + j];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                const float element_a = elements_a[(y + i) * BK + p];
                #pragma unroll
                for (int j = 0; j < TN; ++j)
                    sum[i][j] += element_a * element_b[j];
            }
        }
        BARRIER();
    }

    c += (index_t)(row0 + y) * n + column0 + x;
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; j += VECTOR)
            if (y + i <= last_row && x + j <= last_column) {
                #if VECTOR == 4
                vector_t out;
                out.x = sum[i][j], out.y = sum[i][j + 1], out.z = sum[i][j + 2], out.w = sum[i][j + 3];
                *(GLOBAL vector_t*)(c + (index_t)i * n + j) = out;
                #else
                c[(index_t)i * n + j] = sum[i][j];
                #endif
            }
}
