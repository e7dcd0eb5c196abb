// Thread tiling in two dimensions: a thread computes a TM x TN patch of a BM x BN tile. Each step along k
// reads TM + TN elements from shared memory for TM * TN multiplications; thread_tiling reads TM + 1 for TM.

#define THREADS_X (BN / TN)
#define THREADS_Y (BM / TM)
#define THREADS (THREADS_X * THREADS_Y)
#define ROWS_A (THREADS / BK)  // rows of each tile that the block loads at once
#define ROWS_B (THREADS / BN)

#if BM % TM || BN % TN
#error "thread_tiling_2d: TM must divide BM and TN must divide BN"
#endif
#if THREADS % BK || THREADS % BN || BM % ROWS_A || BK % ROWS_B
#error "thread_tiling_2d: the block must load whole rows of the tiles, and the tiles in whole steps"
#endif

KERNEL LAUNCH_BOUNDS(THREADS_X, THREADS_Y, 1) thread_tiling_2d(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float tile_a[BM][BK];
    SHARED float tile_b[BK][BN];

    const int y = THREAD_Y * TM;  // this thread's patch
    const int x = THREAD_X * TN;
    const int thread = THREAD_Y * THREADS_X + THREAD_X;
    const int row_a = thread / BK;  // what it loads: neighbouring threads, neighbouring elements
    const int column_a = thread % BK;
    const int row_b = thread / BN;
    const int column_b = thread % BN;
    const int tiles_n = (n - 1) / BN + 1;
    const int row0 = BLOCK_X / tiles_n * BM;
    const int column0 = BLOCK_X % tiles_n * BN;
    const int last_row = m - 1 - row0;
    const int last_column = n - 1 - column0;

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k;
    b += column0 + min(column_b, last_column);
    float sum[TM][TN] = {{0.0f}};
    for (int left = k; left > 0; left -= BK) {
        #pragma unroll
        for (int r = 0; r < BM; r += ROWS_A)
            tile_a[r + row_a][column_a] =
                column_a < left ? a[(index_t)min(r + row_a, last_row) * k + column_a] : 0.0f;
        #pragma unroll
        for (int r = 0; r < BK; r += ROWS_B)
            tile_b[r + row_b][column_b] = r + row_b < left ? b[(index_t)(r + row_b) * n] : 0.0f;
        a += BK;
        b += (index_t)BK * n;
        BARRIER();
        #pragma unroll 4
        for (int p = 0; p < BK; ++p) {
            float element_b[TN];
            #pragma unroll
            for (int j = 0; j < TN; ++j)
                element_b[j] = tile_b[p][x + j];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                const float element_a = tile_a[y + i][p];
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
        for (int j = 0; j < TN; ++j)
            if (y + i <= last_row && x + j <= last_column)
                c[(index_t)i * n + j] = sum[i][j];
}
