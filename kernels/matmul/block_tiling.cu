// Block tiling: the block walks along k and stages a square tile of A and one of B in shared memory. An
// element comes from device memory once for the whole block, not once for every thread that needs it: TILE
// times less traffic than in naive_coalesced.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) block_tiling(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float tile_a[TILE][TILE];
    SHARED float tile_b[TILE][TILE];

    const int x = THREAD_X;
    const int y = THREAD_Y;
    const int tiles_n = (n - 1) / TILE + 1;
    const int row = BLOCK_X / tiles_n * TILE + y;
    const int column = BLOCK_X % tiles_n * TILE + x;

    // A thread beyond the edge of C repeats its last row or column: it helps to load, reads nothing outside
    // the arrays and stores nothing. Beyond the end of k both tiles are zero.
    a += (index_t)min(row, m - 1) * k + x;
    b += (index_t)y * n + min(column, n - 1);
    float sum = 0.0f;
    for (int left = k; left > 0; left -= TILE) {
        tile_a[y][x] = x < left ? *a : 0.0f;
        tile_b[y][x] = y < left ? *b : 0.0f;
        a += TILE;
        b += (index_t)TILE * n;
        BARRIER();
        #pragma unroll
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        BARRIER();
    }
    if (row < m && column < n)
        c[(index_t)row * n + column] = sum;
}
