// Runs a CUDA kernel of tensor cores on the host, a cluster at a time: a fibre for each thread, and PTX by what
// its manual says. tests/test_tensor_stages.py puts the kernel in place of KERNEL_TEXT, with emulate() for asm.
//
//     program GRID THREADS M N K EAGER < a, b  > c
//
// EAGER is 1 where copies happen when they begin, 0 where they happen when a thread waits for them: the first
// shows a tile that is overwritten too early, the second one that is read too early.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define __global__
#define __device__
#define __grid_constant__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static
struct Extent { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct alignas(8) uint2 { unsigned x, y; };
struct half {
    uint16_t bits;
    half() = default;
    half(float zero) : bits(0) { if (zero != 0.0f) abort(); }
};
using __nv_bfloat16 = half;
static float value(uint16_t bits)
{
    #ifdef BFLOAT16
    const uint32_t word = uint32_t(bits) << 16;
    float number;
    memcpy(&number, &word, 4);
    return number;
    #else
    _Float16 number;
    memcpy(&number, &bits, 2);
    return float(number);
    #endif
}
static int min(int a, int b) { return a < b ? a : b; }

// Fibres
#ifndef CLUSTER
#define CLUSTER 1
#endif
enum { THREADS_MOST = 512 * CLUSTER, STACK_BYTES = 1 << 16, COPIES_MOST = 256 };
struct Map { uint16_t* matrix; int rows, columns, box_rows, box_columns; };  // in the bytes of a tensor map
struct Copy {  // to shared memory, or from it in a box of a map
    uint32_t shared;
    const char* from;
    unsigned width, bytes, group;
    Map map;
    int column, row;
};
struct Thread {
    ucontext_t context;
    Extent index, block;
    unsigned number, rank;            // of all that run, and of the block in its cluster
    bool ended;
    Copy copies[COPIES_MOST];         // that have not happened
    unsigned copied, group, rounds;   // copies waiting, groups committed, collective instructions
};
static Thread threads[THREADS_MOST];
static char stacks[THREADS_MOST][STACK_BYTES];
static Thread* current;
static ucontext_t scheduler;
static Extent gridDim, blockDim;
static unsigned long progress;
static bool eager;
static int conflicts;
#define threadIdx (current->index)
#define blockIdx (current->block)

static void yield() { swapcontext(&current->context, &scheduler); }
static void fail(const char* why) { fprintf(stderr, "%s\n", why); exit(3); }

// A meeting of `size` neighbouring threads. Between two of its rounds the threads may look at each other's words.
struct Meeting {
    int arrived = 0;
    unsigned round = 0;
};
static Meeting meetings[THREADS_MOST + 1][THREADS_MOST / 32];
static void meet(int size)
{
    Meeting& m = meetings[size][current->number / size];
    const unsigned round = m.round;
    ++progress;
    if (++m.arrived == size)
        m.arrived = 0, ++m.round;
    else
        while (m.round == round)
            yield();
}
static void __syncthreads() { meet(blockDim.x); }
static void __syncwarp() { meet(32); }

// Shared memory. Its addresses do not begin at a multiple of 1,024.
enum { SHARED_BYTES = 256 * 1024, FIRST = 1040 };
alignas(1024) static char all_shared[CLUSTER][SHARED_BYTES];
#define dynamic_shared (all_shared[current->rank])
static size_t __cvta_generic_to_shared(const void* p) { return (const char*)p - dynamic_shared + FIRST; }
static char* at(uint32_t address, unsigned rank)
{
    if (address < FIRST || address >= FIRST + SHARED_BYTES)
        fail("an address outside of shared memory");
    return all_shared[rank] + (address - FIRST);
}
static char* at(uint32_t address) { return at(address, current->rank); }

struct Box {
    uint32_t to;
    Map map;
    int column, row;
    unsigned rank;
};
struct Barrier {
    int arrivals, pending, bytes;
    unsigned phase;
    uint32_t address;
    Box boxes[8];  // that have not been copied
    int waiting;
};
static Barrier barriers[CLUSTER][32];
static Barrier& barrier_at(uint32_t address, unsigned rank)
{
    for (Barrier& b : barriers[rank])
        if (b.address == address || b.address == 0)
            return b.address = address, b;
    fail("too many mbarriers");
    abort();
}
static Barrier& barrier_at(uint32_t address) { return barrier_at(address, current->rank); }
static void settle(Barrier& b)
{
    ++progress;
    if (b.pending == 0 && b.bytes == 0)
        b.pending = b.arrivals, ++b.phase;
}

static uint32_t words[2][THREADS_MOST][8];  // what threads show each other, by the parity of their round

using Operands = char* const*;
template <class T> static T get(char* p) { T out; memcpy(&out, p, sizeof out); return out; }
static uint32_t u32(char* p) { return get<uint32_t>(p); }

static void load_matrices(Operands o, bool transposed)
{
    const int lane = threadIdx.x % 32, first = int(current->number) - lane, parity = current->rounds++ % 2;
    words[parity][current->number][0] = u32(o[4]);
    meet(32);
    for (int q = 0; q < 4; ++q) {
        uint16_t out[2];
        unsigned groups = 0;
        for (int row = 0; row < 8; ++row)
            groups |= 1u << words[parity][first + 8 * q + row][0] / 16 % 8;
        conflicts += lane == 0 && groups != 255;
        for (int i = 0; i < 2; ++i) {
            const int row = transposed ? lane % 4 * 2 + i : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + i;
            out[i] = get<uint16_t>(at(words[parity][first + 8 * q + row][0]) + 2 * column);
        }
        memcpy(o[q], out, 4);
    }
}

static float half_of(uint32_t word, int upper) { return value(uint16_t(word >> 16 * upper)); }

static float tf32_of(uint32_t word)
{
    word &= ~0x1fffu;  // the tensor cores ignore the last 13 bits
    float number;
    memcpy(&number, &word, 4);
    return number;
}

static void mma(Operands o, bool tf32)
{
    const int lane = threadIdx.x % 32, first = int(current->number) - lane, parity = current->rounds++ % 2;
    for (int i = 0; i < 6; ++i)
        words[parity][current->number][i] = u32(o[4 + i]);
    meet(32);
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = get<float>(o[i]);
        for (int p = 0; tf32 && p < 8; ++p) {
            const uint32_t a = words[parity][first + row % 8 * 4 + p % 4][p / 4 * 2 + row / 8];
            sum += tf32_of(a) * tf32_of(words[parity][first + column * 4 + p % 4][4 + p / 4]);
        }
        for (int p = 0; !tf32 && p < 16; ++p) {
            const int pair = p % 8 / 2;
            const uint32_t a = words[parity][first + row % 8 * 4 + pair][p / 8 * 2 + row / 8];
            const uint32_t b = words[parity][first + column * 4 + pair][4 + p / 8];
            sum += half_of(a, p % 2) * half_of(b, p % 2);
        }
        memcpy(o[i], &sum, 4);
    }
}

// The swizzle of 128 bytes: 16-byte units of an address, exchanged by the line of 128 bytes that they lie in.
static uint32_t swizzle(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

__attribute__((optimize("O2"))) static void wgmma_instruction(Operands o)
{
    const uint64_t a = get<uint64_t>(o[128]), b = get<uint64_t>(o[129]);
    const bool add = get<int>(o[130]);
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    meet(128);
    auto begin = [](uint64_t d) { return uint32_t(d & 0x3fff) << 4; };
    auto leading = [](uint64_t d) { return uint32_t(d >> 16 & 0x3fff) << 4; };
    auto stride = [](uint64_t d) { return uint32_t(d >> 32 & 0x3fff) << 4; };
    if (a >> 62 != 1 || b >> 62 != 1)
        fail("wgmma: not the swizzle of 128 bytes");
    float of_a[2][16];
    for (int lower = 0; lower < 2; ++lower)
        for (int p = 0; p < 16; ++p) {
            const int row = warp * 16 + lane / 4 + 8 * lower;
            of_a[lower][p] = value(get<uint16_t>(at(swizzle(begin(a) + row % 8 * 128 + row / 8 * stride(a) + p * 2))));
        }
    for (int i = 0; i < 128; ++i) {
        const int lower = i / 2 % 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = add ? get<float>(o[i]) : 0.0f;
        for (int p = 0; p < 16; ++p) {
            const uint32_t address =
                begin(b) + column % 64 * 2 + column / 64 * leading(b) + p % 8 * 128 + p / 8 * stride(b);
            sum += of_a[lower][p] * value(get<uint16_t>(at(swizzle(address))));
        }
        memcpy(o[i], &sum, 4);
    }
    meet(128);
}

static void copy_boxes(Barrier& barrier)
{
    for (; barrier.waiting > 0; settle(barrier)) {
        const auto [to, map, column, row, rank] = barrier.boxes[--barrier.waiting];
        for (int y = 0; y < map.box_rows; ++y)
            for (int x = 0; x < 64; ++x) {
                const bool inside = row + y < map.rows && column + x < map.columns;
                const uint16_t bits = inside ? map.matrix[size_t(row + y) * map.columns + column + x] : 0;
                memcpy(at(swizzle(to + y * 128 + x * 2), rank), &bits, 2);
            }
        barrier.bytes -= map.box_rows * 128;
    }
}

static void begin_boxes(Operands o, unsigned ranks)
{
    for (unsigned rank = 0; rank < CLUSTER; ++rank) {
        if (!(ranks >> rank & 1))
            continue;
        Barrier& barrier = barrier_at(u32(o[2]), rank);
        const Box box = {u32(o[0]), get<Map>(get<char*>(o[1])), get<int>(o[3]), get<int>(o[4]), rank};
        if (box.to % 1024 || box.map.box_columns != 64 || barrier.waiting == 8)
            fail("a box has 128 bytes a row and lands at a multiple of 1,024");
        barrier.boxes[barrier.waiting++] = box;
        if (eager)
            copy_boxes(barrier);
    }
}

static void copy_groups(int before)  // the copies of earlier groups than this one happen
{
    unsigned kept = 0;
    for (unsigned i = 0; i < current->copied; ++i) {
        const Copy& copy = current->copies[i];
        if (int(copy.group) >= before) {
            current->copies[kept++] = copy;
            continue;
        }
        const auto [matrix, rows, columns, box_rows, box_columns] = copy.map;
        for (int y = copy.row; y < copy.row + box_rows && y < rows; ++y)  // none of a plain copy
            for (int x = copy.column; x < copy.column + box_columns && x < columns; ++x)
                memcpy((float*)matrix + size_t(y) * columns + x,
                    at(swizzle(copy.shared + (y - copy.row) * 128 + (x - copy.column) * 4)), 4);
        if (box_rows == 0) {
            memset(at(copy.shared), 0, copy.width);
            memcpy(at(copy.shared), copy.from, copy.bytes);
        }
    }
    current->copied = kept;
}

static void begin_copy(const Copy& copy)
{
    if (current->copied == COPIES_MOST)
        fail("too many copies wait");
    current->copies[current->copied++] = copy;
    if (eager)
        copy_groups(current->group + 1);
}

static void run(const char* ptx, Operands o)
{
    auto is = [&](const char* name) { return strstr(ptx, name) != nullptr; };
    if (is("cp.async.bulk.tensor.2d.shared"))
        begin_boxes(o, is(".multicast::cluster") ? get<uint16_t>(o[5]) : 1u << current->rank);
    else if (is("cp.async.bulk.tensor.2d.global"))
        begin_copy({u32(o[1]), nullptr, 0, 0, current->group, get<Map>(get<char*>(o[0])), get<int>(o[2]), get<int>(o[3])});
    else if (is("shared.global [%0]")) {
        const unsigned width = is("], 16,") ? 16 : 4;
        const Copy copy = {u32(o[0]), get<char*>(o[1]), width, u32(o[2]), current->group, {}, 0, 0};
        if (copy.shared % width || (copy.bytes && uintptr_t(copy.from) % width))
            fail("cp.async: not aligned");
        begin_copy(copy);
    } else if (is("commit_group") && is("cp.async"))
        ++current->group;
    else if (is("wait_group") && is("cp.async"))
        copy_groups(int(current->group) - get<int>(o[0]));
    else if (is("st.shared.v2"))
        memcpy(at(u32(o[0])), o[1], 4), memcpy(at(u32(o[0]) + 4), o[2], 4);
    else if (is("bar.sync"))
        meet(128);
    else if (is("ldmatrix"))
        load_matrices(o, is(".trans"));
    else if (is("mma.sync"))
        mma(o, is(".tf32"));
    else if (is("wgmma.mma_async"))
        wgmma_instruction(o);
    else if (is("mbarrier.init"))
        barrier_at(u32(o[0])) = {get<int>(o[1]), get<int>(o[1]), 0, 0, u32(o[0]), {}, 0};
    else if (is("mbarrier.arrive")) {
        Barrier& barrier = barrier_at(u32(o[0]), is("mapa") ? u32(o[1]) : current->rank);
        barrier.bytes += is("expect_tx") ? get<int>(o[1]) : 0;
        if (--barrier.pending < 0)
            fail("mbarrier: more arrivals than threads");
        settle(barrier);
    } else if (is("mbarrier.try_wait"))
        // A phase of the other parity than the present one is the one before it, which has ended.
        for (Barrier& b = barrier_at(u32(o[0])); copy_boxes(b), b.phase % 2 == u32(o[1]) % 2;)
            yield();
    else if (is("barrier.cluster"))
        meet(CLUSTER * blockDim.x);
    else if (!is("wgmma.") && !is("fence") && !is("setmaxnreg"))
        fail(ptx);
}

template <class... T>
static void emulate(const char* ptx, T&&... operands)
{
    char* const pointers[] = {(char*)&operands..., nullptr};
    run(ptx, pointers);
}

KERNEL_TEXT

static ELEMENT *a, *b;
static float* c;
static int m, n, k;

static void body()
{
    #ifdef TENSOR_MAPS
    const Map maps[] = {{(uint16_t*)a, m, k, BM, 64}, {(uint16_t*)b, k, n, BK, 64}, {(uint16_t*)c, m, n, 64, 32}};
    TensorMap map_a = {}, map_b = {}, map_c = {};
    memcpy(&map_a, &maps[0], sizeof(Map)), memcpy(&map_b, &maps[1], sizeof(Map)), memcpy(&map_c, &maps[2], sizeof(Map));
    #endif
    ENTRY(ARGUMENTS);
    current->ended = true;
    ++progress;
    yield();
}

int main(int, char** argv)
{
    gridDim = {unsigned(atoi(argv[1])), 1, 1}, blockDim = {unsigned(atoi(argv[2])), 1, 1};
    m = atoi(argv[3]), n = atoi(argv[4]), k = atoi(argv[5]);
    eager = atoi(argv[6]);
    a = (ELEMENT*)aligned_alloc(64, (size_t(m) * k * sizeof *a + 63) / 64 * 64);
    b = (ELEMENT*)aligned_alloc(64, (size_t(k) * n * sizeof *b + 63) / 64 * 64);
    c = (float*)malloc(size_t(m) * n * 4);
    memset(c, 0xff, size_t(m) * n * 4);  // NaN
    if (fread(a, sizeof *a, size_t(m) * k, stdin) != size_t(m) * k ||
        fread(b, sizeof *b, size_t(k) * n, stdin) != size_t(k) * n)
        return 2;
    for (unsigned block = 0; block < gridDim.x; block += CLUSTER) {
        memset(all_shared, 0xff, sizeof all_shared);
        memset(barriers, 0, sizeof barriers), memset(meetings, 0, sizeof meetings);
        Thread* order[THREADS_MOST];
        unsigned left = CLUSTER * blockDim.x;
        for (unsigned i = 0; i < left; ++i) {
            Thread& t = threads[i];
            t = {};
            t.number = i, t.rank = i / blockDim.x;
            t.index.x = i % blockDim.x, t.block.x = block + t.rank;
            getcontext(&t.context);
            t.context.uc_stack = {stacks[i], 0, STACK_BYTES};
            makecontext(&t.context, body, 0);
            order[i] = &t;
        }
        while (left > 0) {
            const unsigned long before = progress;
            unsigned kept = 0;
            for (unsigned i = 0; i < left; ++i) {  // in another order every time
                const unsigned other = i + rand() % (left - i);
                Thread* const t = order[other];
                order[other] = order[i];
                current = t, swapcontext(&scheduler, &t->context);
                order[kept] = t, kept += !t->ended;
            }
            left = kept;
            if (progress == before)
                fail("every thread waits");
        }
    }
    fwrite(c, 4, size_t(m) * n, stdout);
    fprintf(stderr, "%d\n", conflicts);
}
