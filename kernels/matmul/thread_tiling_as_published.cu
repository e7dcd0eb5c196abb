// Thread tiling as the author of the CUDA ladder wrote it: THREAD_X counts patches of TM rows, THREAD_Y is the
// column. A warp spans four patches and eight columns, and each thread loads TM rows of both tiles.
// thread_tiling has the warp walk along the columns instead.
//
// The author's kernel is right at multiples of TILE; the bounds are ours.

#define THREADS_X (TILE / TM)

#if TILE % TM
#error "thread_tiling_as_published: TM must divide TILE"
#endif

KERNEL LAUNCH_BOUNDS(THREADS_X, TILE, 1) thread_tiling_as_published(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float tile_a[TILE][TILE];
    SHARED float tile_b[TILE][TILE];

    const int r = THREAD_X * TM;
    const int s = THREAD_Y;
    const int tiles_m = (m - 1) / TILE + 1;
    const int row0 = BLOCK_X % tiles_m * TILE;
    const int column = BLOCK_X / tiles_m * TILE + s;
    const int last_row = m - 1 - row0;

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k + s;
    b += min(column, n - 1);
    float sum[TM] = {0.0f};
    for (int left = k; left > 0; left -= TILE) {
        #pragma unroll
        for (int w = 0; w < TM; ++w) {
            tile_a[r + w][s] = s < left ? a[(index_t)min(r + w, last_row) * k] : 0.0f;
            tile_b[r + w][s] = r + w < left ? b[(index_t)(r + w) * n] : 0.0f;
        }
        a += TILE;
        b += (index_t)TILE * n;
        BARRIER();
        #pragma unroll
        for (int p = 0; p < TILE; ++p)
            #pragma unroll
            for (int w = 0; w < TM; ++w)
                sum[w] += tile_a[r + w][p] * tile_b[p][s];
        BARRIER();
    }

    c += (index_t)row0 * n + column;
    #pragma unroll
    for (int w = 0; w < TM; ++w)
        if (r + w <= last_row && column < n)
            c[(index_t)(r + w) * n] = sum[w];
}
