// What a function is marked with that nvcc compiles for GPUs too; nothing to other compilers.
#pragma once

#ifdef __CUDACC__
#define TUCCL_PORTABLE __host__ __device__
#define TUCCL_DEVICE __device__ __forceinline__
#define TUCCL_DEVICE_CALL static __device__ __noinline__
#define TUCCL_UNROLL _Pragma("unroll")
#else
#define TUCCL_PORTABLE
#define TUCCL_DEVICE inline
#define TUCCL_DEVICE_CALL inline
#define TUCCL_UNROLL
#endif
