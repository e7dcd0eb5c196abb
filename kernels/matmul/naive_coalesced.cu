// One thread per element of C, as in naive, but THREAD_X walks along the columns. The threads of a warp now
// read neighbouring elements of B, write neighbouring elements of C, and read one and the same element of A,
// which the card broadcasts.

// Half of the loop's instructions are addresses, so offsets are as narrow as the matrices allow.
#if OFFSET_BITS == 32
typedef int offset_t;
#else
typedef index_t offset_t;
#endif

KERNEL LAUNCH_BOUNDS(BX, BY, 1) naive_coalesced(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    const int tiles_n = (n - 1) / BX + 1;
    const int row = BLOCK_X / tiles_n * BY + THREAD_Y;
    const int column = BLOCK_X % tiles_n * BX + THREAD_X;
    if (row >= m || column >= n)
        return;

    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
        sum += a[(offset_t)row * k + p] * b[(offset_t)p * n + column];
    c[(index_t)row * n + column] = sum;
}
