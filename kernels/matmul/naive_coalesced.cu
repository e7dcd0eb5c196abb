// The same as naive, with one change: THREAD_X walks along the columns. The threads of a warp now read
// neighbouring elements of B, write neighbouring elements of C, and read one and the same element of A,
// which the card broadcasts.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) naive_coalesced(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    const int tiles_n = (n - 1) / TILE + 1;
    const int row = BLOCK_X / tiles_n * TILE + THREAD_Y;
    const int column = BLOCK_X % tiles_n * TILE + THREAD_X;
    if (row >= m || column >= n)
        return;

    a += (index_t)row * k;
    b += column;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
        sum += a[p] * b[(index_t)p * n];
    c[(index_t)row * n + column] = sum;
}
