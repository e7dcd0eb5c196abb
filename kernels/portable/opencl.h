// The dialect in which portable kernels are written, for OpenCL C 1.2. cuda.h gives the same words to CUDA.

typedef long index_t;  // offsets of elements: 64 bits, because arrays may hold more than 2^31 of them

#define KERNEL __kernel void  // KERNEL LAUNCH_BOUNDS(x, y, z) name(parameters) { body }
#define LAUNCH_BOUNDS(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))  // the block's size

#define GLOBAL __global    // before the type of a pointer to device memory: GLOBAL float* RESTRICT c
#define RESTRICT restrict  // no other parameter points to the same memory
#define SHARED __local     // an array that the block shares, declared at the top of a kernel's body
#define SHARED_POINTER __local  // before the type of a pointer into such an array
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define LOAD_STREAMING(from) (*(from))  // of an element or vector in device memory that is accessed once:
#define STORE_STREAMING(to, value) (*(to) = (value))  // a plain access, as OpenCL has no such hint

// Shared memory whose size is known at launch: the first goes last in the parameter list, no comma before it,
// and the second is the body's first line.
#define DYNAMIC_SHARED_PARAMETER(type, name) , __local type* restrict name
#define DYNAMIC_SHARED(type, name)

#define THREAD_X ((int)get_local_id(0))  // this thread in its block
#define THREAD_Y ((int)get_local_id(1))
#define THREAD_Z ((int)get_local_id(2))

#ifdef HARNESS_DISPATCH  // the grid is launched in parts: its first block; OpenCL counts within it
#  define HARNESS_FIRST(axis) (get_global_offset(axis) / get_local_size(axis))
#else
#  define HARNESS_FIRST(axis) 0
#  define HARNESS_GRID_X get_num_groups(0)
#  define HARNESS_GRID_Y get_num_groups(1)
#  define HARNESS_GRID_Z get_num_groups(2)
#endif

#define BLOCK_X ((int)(get_group_id(0) + HARNESS_FIRST(0)))  // this block in the grid
#define BLOCK_Y ((int)(get_group_id(1) + HARNESS_FIRST(1)))
#define BLOCK_Z ((int)(get_group_id(2) + HARNESS_FIRST(2)))
#define BLOCK_SIZE_X ((int)get_local_size(0))  // threads in a block
#define BLOCK_SIZE_Y ((int)get_local_size(1))
#define BLOCK_SIZE_Z ((int)get_local_size(2))
#define GRID_X ((int)HARNESS_GRID_X)           // blocks in the grid
#define GRID_Y ((int)HARNESS_GRID_Y)
#define GRID_Z ((int)HARNESS_GRID_Z)
