// outer_product with swizzling in place of padding: the tile of A keeps its TILE columns, and element (row,
// column) lies in column ^ row. Storing the transpose and reading a row both hit 32 different banks, and no word
// of shared memory is spent on it.

#if TILE & (TILE - 1)
#error "outer_product_swizzled: TILE must be a power of two"
#endif

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) outer_product_swizzled(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float column_a[TILE][TILE];
    SHARED float row_b[TILE][TILE];

    const int x = THREAD_X;
    const int y = THREAD_Y;
    const int tiles_n = (n - 1) / TILE + 1;
    const int row = BLOCK_X / tiles_n * TILE + y;
    const int column = BLOCK_X % tiles_n * TILE + x;

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)min(row, m - 1) * k + x;
    b += (index_t)y * n + min(column, n - 1);
    float sum = 0.0f;
    for (int left = k; left > 0; left -= TILE) {
        column_a[x][y ^ x] = x < left ? *a : 0.0f;
        row_b[y][x] = y < left ? *b : 0.0f;
        a += TILE;
        b += (index_t)TILE * n;
        BARRIER();
        #pragma unroll
        for (int p = 0; p < TILE; ++p)
            sum += column_a[p][y ^ p] * row_b[p][x];
        BARRIER();
    }
    if (row < m && column < n)
        c[(index_t)row * n + column] = sum;
}
