// copy_unrolled with four elements an access: 16 bytes a thread at once, so a quarter of the instructions keeps as
// many bytes in flight. ITEMS accesses lie THREADS apart, and all loads leave before the first store waits.

#define ELEMENTS (THREADS * ITEMS * 4)  // that a block copies

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) copy_vectorized(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int rows, int cols)
{
    const index_t first = (index_t)BLOCK_X * ELEMENTS;
    const index_t left = (index_t)rows * cols - first;
    x += first;
    y += first;
    if (left >= ELEMENTS) {
        const GLOBAL float4* from = (const GLOBAL float4*)x + THREAD_X;
        GLOBAL float4* to = (GLOBAL float4*)y + THREAD_X;
        float4 items[ITEMS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            items[i] = from[i * THREADS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            to[i * THREADS] = items[i];
    } else {  // the last block: its end need not be a multiple of four
        for (int i = THREAD_X; i < left; i += THREADS)
            y[i] = x[i];
    }
}
