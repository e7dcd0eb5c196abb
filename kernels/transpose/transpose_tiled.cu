// The tile goes by way of shared memory, which turns it: reads run along the rows of X and writes along the
// rows of Y. Rows of the tile are one element longer than they need to be, so that a column of it lies in
// 32 different banks.

KERNEL LAUNCH_BOUNDS(TILE, THREADS_Y, 1) transpose_tiled(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int rows, int cols)
{
    SHARED float tile[TILE][TILE + 1];

    const int tiles = (cols - 1) / TILE + 1;
    const int row0 = BLOCK_X / tiles * TILE;
    const int column0 = BLOCK_X % tiles * TILE;
    const int tile_rows = rows - row0;
    const int tile_columns = cols - column0;

    x += (index_t)row0 * cols + column0 + THREAD_X;
    #pragma unroll
    for (int i = THREAD_Y; i < TILE; i += THREADS_Y)
        if (i < tile_rows && THREAD_X < tile_columns)
            tile[i][THREAD_X] = x[(index_t)i * cols];
    BARRIER();
    y += (index_t)column0 * rows + row0 + THREAD_X;
    #pragma unroll
    for (int i = THREAD_Y; i < TILE; i += THREADS_Y)
        if (i < tile_columns && THREAD_X < tile_rows)
            y[(index_t)i * rows] = tile[THREAD_X][i];
}
