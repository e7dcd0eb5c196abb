// A kernel of fused multiply-adds whose time is its number of steps.
#include <nvbench/nvbench.cuh>

#ifndef STEPS
#define STEPS 4000
#endif

__global__ void polynomial(float *y, int steps)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = threadIdx.x;
    for (int step = 0; step < steps; ++step)
        value = value * 0.5f + 1.0f;
    y[i] = value;
}

void evaluate(nvbench::state &state)
{
    const int blocks = static_cast<int>(state.get_int64("Blocks"));
    float *y = nullptr;
    NVBENCH_CUDA_CALL(cudaMalloc(&y, sizeof(float) * 256 * blocks));
    state.exec([&](nvbench::launch &launch) { polynomial<<<blocks, 256, 0, launch.get_stream()>>>(y, STEPS); });
    NVBENCH_CUDA_CALL(cudaFree(y));
}
NVBENCH_BENCH(evaluate).add_int64_axis("Blocks", {2112, 8448});
