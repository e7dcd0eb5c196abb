// naive_coalesced with a grid that no longer depends on the matrix: each block strides over C, a grid at a
// time, so any grid computes any matrix. One as large as the card holds at once leaves no last wave of a
// few blocks.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) loop_tiling(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    for (index_t row = (index_t)BLOCK_Y * TILE + THREAD_Y; row < m; row += (index_t)GRID_Y * TILE)
        for (index_t column = (index_t)BLOCK_X * TILE + THREAD_X; column < n;
             column += (index_t)GRID_X * TILE) {
            const GLOBAL float* row_a = a + row * k;
            const GLOBAL float* column_b = b + column;
            float sum = 0.0f;
            for (int p = 0; p < k; ++p)
                sum += row_a[p] * column_b[(index_t)p * n];
            c[row * n + column] = sum;
        }
}
