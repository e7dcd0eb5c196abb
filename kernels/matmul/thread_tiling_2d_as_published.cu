// Thread tiling in two dimensions as the author of the CUDA ladder wrote it: each thread loads its own T x T
// patch of both tiles, so neighbouring threads read A eight rows apart, and B in patches; THREAD_X counts rows.
// thread_tiling_2d has the block load whole rows.
//
// The author's kernel bounds its stores alone, and is right at multiples of TILE; the other bounds are ours.

#define THREADS (TILE / T)

#if TILE % T
#error "thread_tiling_2d_as_published: T must divide TILE"
#endif

KERNEL LAUNCH_BOUNDS(THREADS, THREADS, 1) thread_tiling_2d_as_published(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float tile_a[TILE][TILE];
    SHARED float tile_b[TILE][TILE];

    const int r = THREAD_X * T;
    const int s = THREAD_Y * T;
    const int tiles_m = (m - 1) / TILE + 1;
    const int row0 = BLOCK_X % tiles_m * TILE;
    const int column0 = BLOCK_X / tiles_m * TILE;
    const int last_row = m - 1 - row0;
    const int last_column = n - 1 - column0;

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k;
    b += column0;
    float sum[T][T] = {{0.0f}};
    for (int left = k; left > 0; left -= TILE) {
        #pragma unroll
        for (int i = 0; i < T; ++i)
            #pragma unroll
            for (int j = 0; j < T; ++j) {
                tile_a[r + i][s + j] = s + j < left ? a[(index_t)min(r + i, last_row) * k + s + j] : 0.0f;
                tile_b[r + i][s + j] =
                    r + i < left ? b[(index_t)(r + i) * n + min(s + j, last_column)] : 0.0f;
            }
        a += TILE;
        b += (index_t)TILE * n;
        BARRIER();
        for (int p = 0; p < TILE; ++p)
            #pragma unroll
            for (int j = 0; j < T; ++j)
                #pragma unroll
                for (int i = 0; i < T; ++i)
                    sum[i][j] += tile_a[r + i][p] * tile_b[p][s + j];
        BARRIER();
    }

    c += (index_t)(row0 + r) * n + column0 + s;
    #pragma unroll
    for (int i = 0; i < T; ++i)
        #pragma unroll
        for (int j = 0; j < T; ++j)
            if (r + i <= last_row && s + j <= last_column)
                c[(index_t)i * n + j] = sum[i][j];
}
