// A block transposes one tile, each thread TILE / THREADS_Y elements of it. Reads run along the rows of X;
// writes run down the columns of Y, a whole row apart, so every element written costs a memory transaction
// of its own.

KERNEL LAUNCH_BOUNDS(TILE, THREADS_Y, 1) transpose_naive(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int rows, int cols)
{
    const int tiles = (cols - 1) / TILE + 1;
    const int row0 = BLOCK_X / tiles * TILE;
    const int column = BLOCK_X % tiles * TILE + THREAD_X;
    if (column >= cols)
        return;
    #pragma unroll
    for (int i = THREAD_Y; i < TILE; i += THREADS_Y)
        if (i < rows - row0)
            y[(index_t)column * rows + row0 + i] = x[(index_t)(row0 + i) * cols + column];
}
