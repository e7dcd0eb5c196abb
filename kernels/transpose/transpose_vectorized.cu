// transpose_tiled with four elements an access: a thread turns 4 x 4 elements over in its registers. It loads four
// vectors that lie below each other in X, and puts four into shared memory, which are rows of Y already. So every
// access, of shared memory too, moves 16 bytes a thread. Where rows or cols is no multiple of four, a row does not
// begin at 16 bytes: VECTOR is 1, and device memory is accessed in single elements.
//
// - TILE = 64: rows of 256 bytes in X and in Y. 256 threads of 4 x 4 elements cover the tile.
// - Blocks walk down the columns of X, so that those that run at once fill whole rows of Y, and read pieces of rows of
//   X. On an H200 the other order is as fast at 4096, and 2 % slower at 8192 and 3 % at 16384: writes gain more from
//   neighbours than reads do.

#define CHUNKS (TILE / 4)           // vectors of a row of the tile
#define THREADS (CHUNKS * CHUNKS)

#if TILE % 32 || (VECTOR != 1 && VECTOR != 4)
#error "transpose_vectorized: TILE is a multiple of 32, and VECTOR 1 or 4"
#endif

// Where a vector of a row lies in the tile. Rows follow each other without padding, which would move them off
// multiples of 16 bytes. Eight neighbouring threads write vectors that lie four rows apart below each other, all in
// the same banks. The exclusive or with the row puts them into 8 different places.
#define SWIZZLED(row, chunk) ((row) * CHUNKS + ((chunk) ^ (row) / 4 % 8))

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) transpose_vectorized(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int rows, int cols)
{
    SHARED float4 tile[TILE * CHUNKS];  // rows of Y

    const int tiles = (rows - 1) / TILE + 1;  // below each other in X, beside each other in Y
    const int row0 = BLOCK_X % tiles * TILE;
    const int column0 = BLOCK_X / tiles * TILE;
    const int chunk = THREAD_X % CHUNKS;  // neighbouring threads, neighbouring vectors: of a row of X, then of Y
    const int line = THREAD_X / CHUNKS;   // four rows of X from 4 * line on; then every CHUNKS-th row of Y
    const int tile_rows = rows - row0;
    const int tile_columns = cols - column0;

    x += (index_t)(row0 + 4 * line) * cols + column0 + 4 * chunk;
    float patch[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const GLOBAL float* from = x + (index_t)i * cols;
        #if VECTOR == 4
        if (4 * line + i < tile_rows && 4 * chunk < tile_columns) {
            const float4 read = *(const GLOBAL float4*)from;
            patch[i][0] = read.x, patch[i][1] = read.y, patch[i][2] = read.z, patch[i][3] = read.w;
        }
        #else
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            if (4 * line + i < tile_rows && 4 * chunk + j < tile_columns)
                patch[i][j] = from[j];
        #endif
    }
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        float4 turned;
        turned.x = patch[0][j], turned.y = patch[1][j], turned.z = patch[2][j], turned.w = patch[3][j];
        tile[SWIZZLED(4 * chunk + j, line)] = turned;
    }
    BARRIER();
    y += (index_t)column0 * rows + row0 + 4 * chunk;
    #pragma unroll
    for (int r = 0; r < TILE; r += CHUNKS) {
        const int i = r + line;
        const float4 out = tile[SWIZZLED(i, chunk)];
        GLOBAL float* to = y + (index_t)i * rows;
        #if VECTOR == 4
        if (i < tile_columns && 4 * chunk < tile_rows)
            *(GLOBAL float4*)to = out;
        #else
        if (i < tile_columns) {
            const int left = tile_rows - 4 * chunk;
            if (left > 0)
                to[0] = out.x;
            if (left > 1)
                to[1] = out.y;
            if (left > 2)
                to[2] = out.z;
            if (left > 3)
                to[3] = out.w;
        }
        #endif
    }
}
