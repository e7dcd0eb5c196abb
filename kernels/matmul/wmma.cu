// Tensor cores: one warp multiplies 16 x 16 by 16 x 16 at once, half precision in, single precision out. It
// walks along k and loads its fragments straight from device memory: nothing is staged, nothing is reused.

#include <cuda_fp16.h>
#include <mma.h>

#define EDGE 16
#define WARP 32

namespace tc = nvcuda::wmma;
using FragmentA = tc::fragment<tc::matrix_a, EDGE, EDGE, EDGE, half, tc::row_major>;
using FragmentB = tc::fragment<tc::matrix_b, EDGE, EDGE, EDGE, half, tc::row_major>;
using FragmentC = tc::fragment<tc::accumulator, EDGE, EDGE, EDGE, float>;

union Tile {
    half input[EDGE * EDGE];
    float output[EDGE * EDGE];
};

// For a fragment that an edge of its matrix cuts, or that is not aligned: by way of shared memory. Only its
// first `rows` and `columns` exist; the rest is zero.
template <typename Fragment>
__device__ void load_cut(
    Fragment& fragment, Tile& tile, const half* source, int stride, int rows, int columns)
{
    const int column = THREAD_X % EDGE;
    for (int row = THREAD_X / EDGE; row < EDGE; row += WARP / EDGE) {
        const bool inside = row < rows && column < columns;
        tile.input[row * EDGE + column] = inside ? source[(index_t)row * stride + column] : half(0.0f);
    }
    __syncwarp();
    tc::load_matrix_sync(fragment, tile.input, EDGE);
    __syncwarp();
}

__device__ void store_cut(
    float* target, Tile& tile, const FragmentC& fragment, int stride, int rows, int columns)
{
    tc::store_matrix_sync(tile.output, fragment, EDGE, tc::mem_row_major);
    __syncwarp();
    const int column = THREAD_X % EDGE;
    for (int row = THREAD_X / EDGE; row < EDGE; row += WARP / EDGE)
        if (row < rows && column < columns)
            target[(index_t)row * stride + column] = tile.output[row * EDGE + column];
}

KERNEL LAUNCH_BOUNDS(WARP, 1, 1) wmma(
    const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    __shared__ __align__(32) Tile tile;

    const int tiles_m = (m - 1) / EDGE + 1;
    const int row = BLOCK_X % tiles_m * EDGE;
    const int column = BLOCK_X / tiles_m * EDGE;
    const int rows = m - row;
    const int columns = n - column;

    // The fragment loads want 32-byte aligned tiles and rows that start on 16 bytes.
    const bool aligned = k % 8 == 0 && n % 8 == 0 && ((size_t)a | (size_t)b | (size_t)c) % 32 == 0;
    const bool whole = aligned && rows >= EDGE && columns >= EDGE;

    a += (index_t)row * k;
    b += column;
    c += (index_t)row * n + column;
    FragmentA fragment_a;
    FragmentB fragment_b;
    FragmentC sum;
    tc::fill_fragment(sum, 0.0f);
    int left = k;
    if (whole)
        for (; left >= EDGE; left -= EDGE) {
            tc::load_matrix_sync(fragment_a, a, k);
            tc::load_matrix_sync(fragment_b, b, n);
            tc::mma_sync(sum, fragment_a, fragment_b, sum);
            a += EDGE;
            b += (index_t)EDGE * n;
        }
    for (; left > 0; left -= EDGE) {
        load_cut(fragment_a, tile, a, k, rows, left);
        load_cut(fragment_b, tile, b, n, left, columns);
        tc::mma_sync(sum, fragment_a, fragment_b, sum);
        a += EDGE;
        b += (index_t)EDGE * n;
    }
    if (whole)
        tc::store_matrix_sync(c, sum, n, tc::mem_row_major);
    else
        store_cut(c, tile, sum, n, rows, columns);
}
