// Loop tiling as the author of the road to CUTLASS wrote it: a grid that does not depend on the matrix strides
// over C, and THREAD_X walks down the rows, although the author's naive kernel walks along the columns.
// loop_tiling walks along the columns, in the blocks of naive_coalesced and as many as the card holds at once.
// Like the author's, offsets are ints where the matrix allows.
//
// The author's kernel is right where the grid's reach divides the matrix; the bounds are ours.

#if OFFSET_BITS == 32
typedef int offset_t;
#else
typedef index_t offset_t;
#endif

KERNEL LAUNCH_BOUNDS(TILE, TILE, 1) loop_tiling_as_published(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    for (index_t row = (index_t)BLOCK_X * TILE + THREAD_X; row < m; row += (index_t)GRID_X * TILE)
        for (index_t column = (index_t)BLOCK_Y * TILE + THREAD_Y; column < n;
             column += (index_t)GRID_Y * TILE) {
            float sum = 0.0f;
            for (int p = 0; p < k; ++p)
                sum += a[(offset_t)row * k + p] * b[(offset_t)p * n + (offset_t)column];
            c[row * n + column] = sum;
        }
}
