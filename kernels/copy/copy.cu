// One thread copies one element: neighbouring threads, neighbouring addresses.

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) copy(
    const GLOBAL float* RESTRICT x, GLOBAL float* RESTRICT y, int rows, int cols)
{
    const index_t i = (index_t)BLOCK_X * THREADS + THREAD_X;
    if (i < (index_t)rows * cols)
        y[i] = x[i];
}
