// What every kernel of gradlab shares: storage and compute types, 16-byte packs, block reductions. Includes nothing of the host's C library.
#pragma once
#if defined(__CUDACC__) && !defined(__CUDAEMU__)
#pragma nv_diag_suppress 186  // templates ask whether a number is below zero also of unsigned types
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "scalar_math.h"

namespace gradlab {

typedef long long int64;

// The type that a storage type is computed in: half types in float, the rest in their own.
template <class S>
struct Compute {
    typedef S type;
};
template <>
struct Compute<__half> {
    typedef float type;
};
template <>
struct Compute<__nv_bfloat16> {
    typedef float type;
};

template <class S>
__device__ __forceinline__ typename Compute<S>::type load(S value) {
    return value;
}
template <>
__device__ __forceinline__ float load<__half>(__half value) {
    return __half2float(value);
}
template <>
__device__ __forceinline__ float load<__nv_bfloat16>(__nv_bfloat16 value) {
    return __bfloat162float(value);
}

// Rounded to the storage type.
template <class S, class C>
struct Store {
    static __device__ __forceinline__ S from(C value) { return static_cast<S>(value); }
};
template <>
struct Store<__half, double> {
    static __device__ __forceinline__ __half from(double value) { return __double2half(value); }
};
template <class C>
struct Store<__half, C> {
    static __device__ __forceinline__ __half from(C value) { return __float2half_rn(static_cast<float>(value)); }
};
template <class C>
struct Store<__nv_bfloat16, C> {
    static __device__ __forceinline__ __nv_bfloat16 from(C value) { return __float2bfloat16_rn(static_cast<float>(value)); }
};
template <class S, class C>
__device__ __forceinline__ S store(C value) {
    return Store<S, C>::from(value);
}

// N values that are read and written in one access.
template <class S, int N>
struct alignas(sizeof(S) * N) Pack {
    S item[N];
};

}  // namespace gradlab
