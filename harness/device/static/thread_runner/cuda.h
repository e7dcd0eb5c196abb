// CUDA's words for a compiler of the host, which compiles a kernel as the work of one thread. Barriers mean
// nothing: threads run one after the other, and addresses rarely depend on what others stored.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

struct harness_extent { unsigned x, y, z; };
extern "C" harness_extent threadIdx, blockIdx, blockDim, gridDim;
enum { warpSize = 32 };

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// All of a block's shared memory is one section of the program, so that an address in it can be told.
#define __shared__ static __attribute__((section("harness_shared"), aligned(16), used))

// With constructors, so that a vector that is written in braces is stored at once, as nvcc does, and not by
// its elements. They leave it trivial to copy, and a member of unions.
#define HARNESS_VECTOR(type, name) \
    struct alignas(2 * sizeof(type)) name##2 { \
        type x, y; \
        name##2() = default; \
        constexpr name##2(type x, type y = 0) : x(x), y(y) {} \
    }; \
    struct name##3 { type x, y, z; }; \
    struct alignas(4 * sizeof(type)) name##4 { \
        type x, y, z, w; \
        name##4() = default; \
        constexpr name##4(type x, type y = 0, type z = 0, type w = 0) : x(x), y(y), z(z), w(w) {} \
    }; \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
HARNESS_VECTOR(float, float)
HARNESS_VECTOR(int, int)
HARNESS_VECTOR(unsigned, uint)
struct alignas(16) double2 { double x, y; };

static inline void __syncthreads() {}
static inline void __syncwarp(unsigned = ~0u) {}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <class harness_t> static inline harness_t __ldg(const harness_t* from) { return *from; }
template <class harness_t> static inline harness_t __ldcs(const harness_t* from) { return *from; }
template <class harness_t> static inline void __stcs(harness_t* to, harness_t value) { *to = value; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }
static inline int __mul24(int a, int b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return a * b + c; }
static inline float __fdividef(float a, float b) { return a / b; }

// What declarations of the host's functions name; their bodies are taken out.
enum cudaError_t { cudaSuccess };
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace cooperative_groups {
struct thread_block {
    void sync() const {}
    unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
    unsigned thread_rank() const
    {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
    harness_extent group_index() const { return blockIdx; }
    harness_extent thread_index() const { return threadIdx; }
};
static inline thread_block this_thread_block() { return {}; }
template <class harness_t> static inline void sync(const harness_t&) {}
}
