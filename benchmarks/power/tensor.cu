// Each warp multiplies a 64 x 16 tile with a 16 x 64 tile `rounds` times and adds everything up.
#include <cuda_fp16.h>

extern "C" __global__ void __launch_bounds__(128) tensor(
    const __half* a, const __half* b, float* c, int warps, int rounds)
{
    const int warp = blockIdx.x * 4 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32, row = lane / 4, pair = lane % 4 * 2;
    if (warp >= warps) return;
    a += (size_t)warp * 64 * 16;
    b += (size_t)warp * 16 * 64;
    c += (size_t)warp * 64 * 64;

    unsigned fa[4][4], fb[8][2];
    float sum[4][8][4] = {};
    for (int i = 0; i < 4; ++i)
        for (int r = 0; r < 4; ++r) {
            const __half* at = a + (16 * i + row + r % 2 * 8) * 16 + pair + r / 2 * 8;
            fa[i][r] = __half_as_ushort(at[0]) | (unsigned)__half_as_ushort(at[1]) << 16;
        }
    for (int j = 0; j < 8; ++j)
        for (int r = 0; r < 2; ++r) {
            const __half* at = b + (pair + r * 8) * 64 + 8 * j + row;
            fb[j][r] = __half_as_ushort(at[0]) | (unsigned)__half_as_ushort(at[64]) << 16;
        }
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j)
                asm volatile(
                    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(sum[i][j][0]), "+f"(sum[i][j][1]), "+f"(sum[i][j][2]), "+f"(sum[i][j][3])
                    : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 8; ++j)
            for (int r = 0; r < 4; ++r)
                c[(16 * i + row + r / 2 * 8) * 64 + 8 * j + pair + r % 2] = sum[i][j][r];
}
