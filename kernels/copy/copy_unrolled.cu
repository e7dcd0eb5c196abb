// One thread copies ITEMS elements, THREADS apart: all loads leave before the first store waits, so that
// fewer threads keep more bytes in flight than in copy.

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) copy_unrolled(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int rows, int cols)
{
    const index_t first = (index_t)BLOCK_X * (THREADS * ITEMS) + THREAD_X;
    const index_t left = (index_t)rows * cols - first;
    x += first;
    y += first;
    if (left > THREADS * (ITEMS - 1)) {
        float items[ITEMS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            items[i] = x[i * THREADS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            y[i * THREADS] = items[i];
    } else {
        for (int i = 0; i * THREADS < left; ++i)
            y[i * THREADS] = x[i * THREADS];
    }
}
