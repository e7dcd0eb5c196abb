// outer_product and loop_tiling together: shared memory that does not grow with k, and a grid that does not
// grow with the matrix. Any matrix, any grid.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) outer_product_loop_tiling(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float column_a[TILE][TILE + 1];
    SHARED float row_b[TILE][TILE];

    const int x = THREAD_X;
    const int y = THREAD_Y;
    for (index_t row0 = (index_t)BLOCK_Y * TILE; row0 < m; row0 += (index_t)GRID_Y * TILE)
        for (index_t column0 = (index_t)BLOCK_X * TILE; column0 < n; column0 += (index_t)GRID_X * TILE) {
            const index_t row = row0 + y;
            const index_t column = column0 + x;
            const GLOBAL float* next_a = a + min(row, (index_t)m - 1) * k + x;
            const GLOBAL float* next_b = b + (index_t)y * n + min(column, (index_t)n - 1);
            float sum = 0.0f;
            for (int left = k; left > 0; left -= TILE) {
                column_a[x][y] = x < left ? *next_a : 0.0f;
                row_b[y][x] = y < left ? *next_b : 0.0f;
                next_a += TILE;
                next_b += (index_t)TILE * n;
                BARRIER();
                #pragma unroll
                for (int p = 0; p < TILE; ++p)
                    sum += column_a[p][y] * row_b[p][x];
                BARRIER();
            }
            if (row < m && column < n)
                c[row * n + column] = sum;
        }
}
