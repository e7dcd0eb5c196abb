// Thread tiling: a thread computes TM elements of one column of the tile instead of one. It reads an
// element of B from shared memory once and uses it TM times from a register, so the arithmetic waits less
// for shared memory than in shared_tile.

#define THREADS_Y (TILE / TM)

#if TILE % TM
#error "thread_tiling: TM must divide TILE"
#endif

KERNEL LAUNCH_BOUNDS(TILE, THREADS_Y, 1) thread_tiling(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float tile_a[TILE][TILE];
    SHARED float tile_b[TILE][TILE];

    const int x = THREAD_X;
    const int y = THREAD_Y;
    const int tiles_n = (n - 1) / TILE + 1;
    const int row0 = BLOCK_X / tiles_n * TILE;
    const int column = BLOCK_X % tiles_n * TILE + x;
    const int last_row = m - 1 - row0;

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k + x;
    b += min(column, n - 1);
    float sum[TM] = {0.0f};
    for (int left = k; left > 0; left -= TILE) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            const int r = y + i * THREADS_Y;
            tile_a[r][x] = x < left ? a[(index_t)min(r, last_row) * k] : 0.0f;
            tile_b[r][x] = r < left ? b[(index_t)r * n] : 0.0f;
        }
        a += TILE;
        b += (index_t)TILE * n;
        BARRIER();
        #pragma unroll
        for (int p = 0; p < TILE; ++p) {
            const float element_b = tile_b[p][x];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                sum[i] += tile_a[y * TM + i][p] * element_b;
        }
        BARRIER();
    }

    c += (index_t)row0 * n + column;
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        if (y * TM + i <= last_row && column < n)
            c[(index_t)(y * TM + i) * n] = sum[i];
}
