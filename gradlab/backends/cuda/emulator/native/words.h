// CUDA's words for where code and data live. No include guard: CUDA's own headers define them anew, and this undoes it.
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#undef __cluster_dims__
#undef __forceinline__
#undef __noinline__
#undef __align__
#undef __builtin_align__

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
// __shared__ stays a plain word for emulator/source.py to find.
