// One thread computes one element of C. Where everybody starts, with the mistake that many start with:
// THREAD_X walks down the rows, so the 32 threads of a warp read A, and write C, at addresses a whole row
// apart.

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) naive(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    const int tiles_m = (m - 1) / TILE + 1;
    const int row = BLOCK_X % tiles_m * TILE + THREAD_X;
    const int column = BLOCK_X / tiles_m * TILE + THREAD_Y;
    if (row >= m || column >= n)
        return;

    a += (index_t)row * k;
    b += column;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
        sum += a[p] * b[(index_t)p * n];
    c[(index_t)row * n + column] = sum;
}
