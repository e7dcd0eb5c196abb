// Asynchronous copies: double_buffering with tiles that go straight from device memory to shared memory. From
// compute capability 8.0 on, cp.async copies them without registers, so several can be on their way; on older
// cards and in OpenCL the newest tile waits in registers, as in double_buffering.
//
// The numbers are those of warp_tiling, and:
// - STAGES = 3: one tile is computed, two are on their way. A block has 24,960 bytes: two blocks fit into the
//   64 KiB of sm_75. With four stages, 33,280 bytes, they would not.
// - Elements of A are copied one by one, 4 bytes each, because cp.async cannot transpose a vector. 8 threads
//   copy a row's 32 bytes, one sector. A warp stores 8 columns of 4 rows, into 32 different banks.

#if VECTOR == 4
typedef float4 vector_t;
#elif VECTOR == 1
typedef float vector_t;
#else
#error "async_copy: VECTOR is 1 or 4"
#endif

#define WARP 32
#define PATCH 4                         // edge of a patch: the elements of a float4
#define THREADS_X (WN / TN)             // of a warp
#define THREADS_Y (WM / TM)
#define WARPS_X (BN / WN)               // of the block
#define THREADS (WARP * WARPS_X * (BM / WM))
#define STEP_X (THREADS_X * PATCH)      // from one of a thread's patches to the next
#define STEP_Y (THREADS_Y * PATCH)
#define LOADS_B (BN / VECTOR)           // of a row of the tile of B
#define ROWS_A (THREADS / BK)           // rows of each tile that the block loads at once
#define ROWS_B (THREADS / LOADS_B)
#define AHEAD (STAGES - 1)              // tiles on their way while one is computed
#define PITCH_A (BM + PATCH)            // neighbouring columns of A are then 4 banks apart

#if THREADS_X * THREADS_Y != WARP || TM % PATCH || TN % PATCH || BM % WM || BN % WN
#error "async_copy: a warp's 32 threads must cover WM x WN in patches of 4 x 4, and warps the tile"
#endif
#if THREADS % BK || THREADS % LOADS_B || BM % ROWS_A || BK % ROWS_B
#error "async_copy: the block must load whole rows of the tiles, and the tiles in whole steps"
#endif

#if STAGES < 2
#error "async_copy: STAGES is at least 2"
#endif

// A copy to shared memory begins, and ends later. `held` is zero before it; outside the matrix it is stored.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define BEGIN_COPY(to, held, from, inside)  /* where it reads 0 bytes, cp.async stores zeros */ \
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::                             \
        "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "n"(sizeof(*(to))),             \
        "r"((inside) ? (int)sizeof(*(to)) : 0) : "memory")
#define END_COPY(to, held) (void)(held)
#define CLOSE_GROUP() asm volatile("cp.async.commit_group;" ::: "memory")  // of the copies since the last one
#define WAIT_GROUPS(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")  // for all but n groups
#else
#define BEGIN_COPY(to, held, from, inside) held = (inside) ? *(from) : held
#define END_COPY(to, held) *(to) = held
#define CLOSE_GROUP()
#define WAIT_GROUPS(n)
#endif

KERNEL LAUNCH_BOUNDS(THREADS, 1, 1) async_copy(
    const GLOBAL float* RESTRICT a, const GLOBAL float* RESTRICT b, GLOBAL float* RESTRICT c,
    int m, int n, int k)
{
    SHARED float4 tile_a[STAGES][BK][PITCH_A / PATCH];  // transposed
    SHARED float4 tile_b[STAGES][BK][BN / PATCH];

    const int thread = THREAD_X;
    const int warp = thread / WARP;
    const int lane = thread % WARP;
    const int y = warp / WARPS_X * WM + lane / THREADS_X * PATCH;  // this thread's first patch
    const int x = warp % WARPS_X * WN + lane % THREADS_X * PATCH;
    const int row_a = thread / BK;  // what it loads: neighbouring threads, neighbouring elements or vectors
    const int column_a = thread % BK;
    const int row_b = thread / LOADS_B;
    const int column_b = thread % LOADS_B * VECTOR;
    const int tiles_n = (n - 1) / BN + 1;
    const int row0 = BLOCK_X / tiles_n * BM;
    const int column0 = BLOCK_X % tiles_n * BN;
    const int last_row = m - 1 - row0;
    const int last_column = n - VECTOR - column0;  // where the last vector of a row begins

    SHARED_POINTER float* elements_a = (SHARED_POINTER float*)tile_a;
    SHARED_POINTER float* elements_b = (SHARED_POINTER float*)tile_b;
    vector_t zero;
    #if VECTOR == 4
    zero.x = zero.y = zero.z = zero.w = 0.0f;
    #else
    zero = 0.0f;
    #endif

    // Beyond the edges of C the last row and column are repeated, never stored; beyond the end of k: zeros.
    a += (index_t)row0 * k + column_a;
    b += column0 + min(column_b, last_column);
    float sum[TM][TN] = {{0.0f}};
    // The first rounds have nothing to compute yet, and the last ones nothing to load: past the end of k,
    // zeros come without an access.
    for (int left = k, next = 0; left > -AHEAD * BK; left -= BK) {
        const int present = (next + 1) % STAGES;
        float loaded_a[BM / ROWS_A];
        vector_t loaded_b[BK / ROWS_B];
        SHARED_POINTER float* to_a = elements_a + (next * BK + column_a) * PITCH_A + row_a;
        SHARED_POINTER vector_t* to_b =
            (SHARED_POINTER vector_t*)(elements_b + (next * BK + row_b) * BN + column_b);
        #pragma unroll
        for (int r = 0; r < BM / ROWS_A; ++r) {
            const GLOBAL float* from = a + (index_t)min(r * ROWS_A + row_a, last_row) * k;
            loaded_a[r] = 0.0f;
            BEGIN_COPY(to_a + r * ROWS_A, loaded_a[r], from, column_a < left);
        }
        #pragma unroll
        for (int r = 0; r < BK / ROWS_B; ++r) {
            const GLOBAL vector_t* from = (const GLOBAL vector_t*)(b + (index_t)(r * ROWS_B + row_b) * n);
            loaded_b[r] = zero;
            BEGIN_COPY(to_b + r * ROWS_B * LOADS_B, loaded_b[r], from, r * ROWS_B + row_b < left);
        }
        CLOSE_GROUP();
        a += BK;
        b += (index_t)BK * n;
        if (left <= k - AHEAD * BK) {
            #pragma unroll 2  // by 4, two blocks no longer fit on sm_90
            for (int p = 0; p < BK; ++p) {
                float element_a[TM], element_b[TN];
                #pragma unroll
                for (int i = 0; i < TM; i += PATCH) {
                    const float4 read = tile_a[present][p][(y + i / PATCH * STEP_Y) / PATCH];
                    element_a[i] = read.x, element_a[i + 1] = read.y;
                    element_a[i + 2] = read.z, element_a[i + 3] = read.w;
                }
                #pragma unroll
                for (int j = 0; j < TN; j += PATCH) {
                    const float4 read = tile_b[present][p][(x + j / PATCH * STEP_X) / PATCH];
                    element_b[j] = read.x, element_b[j + 1] = read.y;
                    element_b[j + 2] = read.z, element_b[j + 3] = read.w;
                }
                #pragma unroll
                for (int i = 0; i < TM; ++i)
                    #pragma unroll
                    for (int j = 0; j < TN; ++j)
                        sum[i][j] += element_a[i] * element_b[j];
            }
        }
        #pragma unroll
        for (int r = 0; r < BM / ROWS_A; ++r)
            END_COPY(to_a + r * ROWS_A, loaded_a[r]);
        #pragma unroll
        for (int r = 0; r < BK / ROWS_B; ++r)
            END_COPY(to_b + r * ROWS_B * LOADS_B, loaded_b[r]);
        WAIT_GROUPS(AHEAD - 1);  // the oldest tile on its way has come: the next round computes with it
        BARRIER();
        next = present;
    }
    WAIT_GROUPS(0);

    c += (index_t)row0 * n + column0;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = y + i / PATCH * STEP_Y + i % PATCH;
        #pragma unroll
        for (int j = 0; j < TN; j += VECTOR) {
            const int column = x + j / PATCH * STEP_X + j % PATCH;
            if (row <= last_row && column <= last_column) {
                #if VECTOR == 4
                vector_t out;
                out.x = sum[i][j], out.y = sum[i][j + 1], out.z = sum[i][j + 2], out.w = sum[i][j + 3];
                *(GLOBAL vector_t*)(c + (index_t)row * n + column) = out;
                #else
                c[(index_t)row * n + column] = sum[i][j];
                #endif
            }
        }
    }
}
