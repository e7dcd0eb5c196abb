// Block tiling as the author of the CUDA ladder wrote it: THREAD_X walks down the rows, of the tiles as of C.
// The threads of a warp read A, and write C, a whole row apart, and read and store both tiles down their
// columns. block_tiling differs in nothing but which of the two coordinates is the row.
//
// The author's kernel is right at multiples of TILE; the bounds are ours.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) block_tiling_as_published(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float tile_a[TILE][TILE];
    SHARED float tile_b[TILE][TILE];

    const int r = THREAD_X;
    const int s = THREAD_Y;
    const int tiles_m = (m - 1) / TILE + 1;
    const int row = BLOCK_X % tiles_m * TILE + r;
    const int column = BLOCK_X / tiles_m * TILE + s;

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)min(row, m - 1) * k + s;
    b += (index_t)r * n + min(column, n - 1);
    float sum = 0.0f;
    for (int left = k; left > 0; left -= TILE) {
        tile_a[r][s] = s < left ? *a : 0.0f;
        tile_b[r][s] = r < left ? *b : 0.0f;
        a += TILE;
        b += (index_t)TILE * n;
        BARRIER();
        #pragma unroll
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[r][p] * tile_b[p][s];
        BARRIER();
    }
    if (row < m && column < n)
        c[(index_t)row * n + column] = sum;
}
