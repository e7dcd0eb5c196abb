// The kernels by which the CUDA backend flushes, occupies, holds and reads a card.

// Reads more than the L2 holds: a memset would leave it full of lines that still have to be written back.
extern "C" __global__ void harness_flush(const uint4 *data, unsigned *sink, unsigned long long count) {
    unsigned sum = 0;
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += step) {
        const uint4 v = data[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 1u) *sink = sum;
}
// Ends by itself, so it cannot hang a card whose host has died.
extern "C" __global__ void harness_occupy(unsigned long long duration_ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < duration_ns);
}
extern "C" __global__ void harness_hold(
    volatile unsigned *released, unsigned ticket, unsigned long long most_ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
#if __CUDA_ARCH__ >= 700
        __nanosleep(1000);  // the host enqueues by the bus that is asked here
#endif
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (*released < ticket && now - start < most_ns);
}
// One block per SM; SM 0 alone writes, since the cycle counters of two SMs cannot be compared.
extern "C" __global__ void harness_stamp(unsigned long long *out) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (sm != 0) return;
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    out[0] = (unsigned long long)clock64();
    out[1] = now;
}
extern "C" __global__ void harness_globaltimer(unsigned long long *out, int count) {
    unsigned long long last = 0, now;
    for (int i = 0; i < count;) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now != last) out[i++] = last = now;
    }
}
// Some 20 us of arithmetic on every SM. No memory: what a kernel leaves in the caches must not show in it.
extern "C" __global__ void harness_canary(float *sink, int steps) {
    float x = threadIdx.x;
    for (int i = 0; i < steps; ++i) x = fmaf(x, 0.999f, 1.0f);
    if (x == -1.0f) *sink = x;
}
