// loop_tiling as an inner product in shared memory: a block holds TILE whole rows of A and TILE whole
// columns of B, and keeps the rows while it strides along the columns. Shared memory grows with k: a long k
// fits on no card.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) loop_tiling_shared(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k
    DYNAMIC_SHARED_PARAMETER(float, shared))
{
    DYNAMIC_SHARED(float, shared);  // the rows, k by TILE so that no two share a bank; then the columns
    const int columns = TILE * k;

    const int x = THREAD_X;
    const int y = THREAD_Y;
    for (index_t row0 = (index_t)BLOCK_Y * TILE; row0 < m; row0 += (index_t)GRID_Y * TILE) {
        const index_t row = row0 + y;
        if (row < m)
            for (int p = x; p < k; p += TILE)
                shared[p * TILE + y] = a[row * k + p];
        for (index_t column0 = (index_t)BLOCK_X * TILE; column0 < n; column0 += (index_t)GRID_X * TILE) {
            const index_t column = column0 + x;
            if (column < n)
                for (int p = y; p < k; p += TILE)
                    shared[columns + p * TILE + x] = b[(index_t)p * n + column];
            BARRIER();
            if (row < m && column < n) {
                float sum = 0.0f;
                #pragma unroll 8
                for (int p = 0; p < k; ++p)
                    sum += shared[p * TILE + y] * shared[columns + p * TILE + x];
                c[row * n + column] = sum;
            }
            BARRIER();
        }
    }
}
