// naive_coalesced with a grid that no longer depends on the matrix: it has as many blocks as the card holds at
// once, and each strides over the tiles of C, a grid at a time, so any grid computes any matrix. No last wave
// leaves most of the card idle, and no block is started anew.

#if OFFSET_BITS == 32
typedef int offset_t;
#else
typedef index_t offset_t;
#endif

KERNEL LAUNCH_BOUNDS(BX, BY, 1) loop_tiling(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    const int tiles_n = (n - 1) / BX + 1;
    const index_t tiles = (index_t)((m - 1) / BY + 1) * tiles_n;
    for (index_t tile = BLOCK_X; tile < tiles; tile += GRID_X) {
        const int row = (int)(tile / tiles_n) * BY + THREAD_Y;
        const int column = (int)(tile % tiles_n) * BX + THREAD_X;
        if (row < m && column < n) {
            float sum = 0.0f;
            for (int p = 0; p < k; ++p)
                sum += a[(offset_t)row * k + p] * b[(offset_t)p * n + column];
            c[(index_t)row * n + column] = sum;
        }
    }
}
