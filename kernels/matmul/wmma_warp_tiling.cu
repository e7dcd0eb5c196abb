// Tensor cores with warp tiling: the warp holds FRAGMENTS x FRAGMENTS accumulators instead of one. Each
// step along k loads the fragments of B once and uses them for every row of accumulators, and each fragment
// of A for every column: with 4 x 4, a quarter of the loads of wmma for the same arithmetic.

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
    #pragma unroll 1
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
    #pragma unroll 1
    for (int row = THREAD_X / EDGE; row < EDGE; row += WARP / EDGE)
        if (row < rows && column < columns)
            target[(index_t)row * stride + column] = tile.output[row * EDGE + column];
    __syncwarp();
}

KERNEL LAUNCH_BOUNDS(WARP, 1, 1) wmma_warp_tiling(
    const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    __shared__ __align__(32) Tile tile;

    const int tiles_m = (m - 1) / (FRAGMENTS * EDGE) + 1;
    const int row = BLOCK_X % tiles_m * (FRAGMENTS * EDGE);
    const int column = BLOCK_X / tiles_m * (FRAGMENTS * EDGE);
    const int rows = m - row;
    const int columns = n - column;

    // The fragment loads want 32-byte aligned tiles and rows that start on 16 bytes.
    const bool aligned = k % 8 == 0 && n % 8 == 0 && ((size_t)a | (size_t)b | (size_t)c) % 32 == 0;
    const bool whole = aligned && rows >= FRAGMENTS * EDGE && columns >= FRAGMENTS * EDGE;

    a += (index_t)row * k;
    b += column;
    c += (index_t)row * n + column;
    FragmentA fragment_a;
    FragmentB fragment_b[FRAGMENTS];
    FragmentC sum[FRAGMENTS][FRAGMENTS];
    #pragma unroll
    for (int i = 0; i < FRAGMENTS; ++i)
        #pragma unroll
        for (int j = 0; j < FRAGMENTS; ++j)
            tc::fill_fragment(sum[i][j], 0.0f);

    int left = k;
    if (whole) {
        #pragma unroll 1
        for (; left >= EDGE; left -= EDGE) {
            #pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j)
                tc::load_matrix_sync(fragment_b[j], b + j * EDGE, n);
            #pragma unroll
            for (int i = 0; i < FRAGMENTS; ++i) {
                tc::load_matrix_sync(fragment_a, a + (index_t)i * EDGE * k, k);
                #pragma unroll
                for (int j = 0; j < FRAGMENTS; ++j)
                    tc::mma_sync(sum[i][j], fragment_a, fragment_b[j], sum[i][j]);
            }
            a += EDGE;
            b += (index_t)EDGE * n;
        }
    }
    for (; left > 0; left -= EDGE) {
        #pragma unroll
        for (int j = 0; j < FRAGMENTS; ++j)
            load_cut(fragment_b[j], tile, b + j * EDGE, n, left, columns - j * EDGE);
        #pragma unroll
        for (int i = 0; i < FRAGMENTS; ++i) {
            load_cut(fragment_a, tile, a + (index_t)i * EDGE * k, k, rows - i * EDGE, left);
            #pragma unroll
            for (int j = 0; j < FRAGMENTS; ++j)
                tc::mma_sync(sum[i][j], fragment_a, fragment_b[j], sum[i][j]);
        }
        a += EDGE;
        b += (index_t)EDGE * n;
    }

    #pragma unroll
    for (int i = 0; i < FRAGMENTS; ++i)
        #pragma unroll
        for (int j = 0; j < FRAGMENTS; ++j) {
            float* target = c + (index_t)i * EDGE * n + j * EDGE;
            if (whole)
                tc::store_matrix_sync(target, sum[i][j], n, tc::mem_row_major);
            else
                store_cut(target, tile, sum[i][j], n, rows - i * EDGE, columns - j * EDGE);
        }
}
