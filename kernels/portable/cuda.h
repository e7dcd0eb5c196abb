// The dialect in which portable kernels are written, for CUDA. opencl.h gives the same words to OpenCL C
// 1.2.

typedef long long index_t;  // offsets of elements: 64 bits, because arrays may hold more than 2^31 of them

#define KERNEL extern "C" __global__ void  // KERNEL LAUNCH_BOUNDS(x, y, z) name(parameters) { body }
#define LAUNCH_BOUNDS(x, y, z) __launch_bounds__((x) * (y) * (z))  // the block's size, known when compiling

#define GLOBAL                  // before the type of a pointer to device memory: GLOBAL float* RESTRICT c
#define RESTRICT __restrict__   // no other parameter points to the same memory
#define SHARED __shared__       // an array that the block shares, declared at the top of a kernel's body
#define SHARED_POINTER          // before the type of a pointer into such an array
#define BARRIER() __syncthreads()
#define LOAD_STREAMING(from) __ldcs(from)             // of an element or vector in device memory that is accessed
#define STORE_STREAMING(to, value) __stcs(to, value)  // once: the L2 evicts it first

// Shared memory whose size is known at launch: the first goes last in the parameter list, no comma before it,
// and the second is the body's first line.
#define DYNAMIC_SHARED_PARAMETER(type, name)
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]

#define THREAD_X ((int)threadIdx.x)  // this thread in its block
#define THREAD_Y ((int)threadIdx.y)
#define THREAD_Z ((int)threadIdx.z)

#ifdef HARNESS_DISPATCH  // the grid is launched in parts: the first block of this one, set before each
__constant__ int harness_origin[3];
#  define HARNESS_FIRST(axis) harness_origin[axis]
#else
#  define HARNESS_FIRST(axis) 0
#  define HARNESS_GRID_X gridDim.x
#  define HARNESS_GRID_Y gridDim.y
#  define HARNESS_GRID_Z gridDim.z
#endif

#define BLOCK_X ((int)blockIdx.x + HARNESS_FIRST(0))  // this block in the grid; CUDA allows 2^31 - 1 in x,
#define BLOCK_Y ((int)blockIdx.y + HARNESS_FIRST(1))  // 65 535 in y and z
#define BLOCK_Z ((int)blockIdx.z + HARNESS_FIRST(2))
#define BLOCK_SIZE_X ((int)blockDim.x)  // threads in a block
#define BLOCK_SIZE_Y ((int)blockDim.y)
#define BLOCK_SIZE_Z ((int)blockDim.z)
#define GRID_X ((int)HARNESS_GRID_X)    // blocks in the grid
#define GRID_Y ((int)HARNESS_GRID_Y)
#define GRID_Z ((int)HARNESS_GRID_Z)
