// The order of values as the order of unsigned integers, so that one sort serves every type: NaN above everything, -0 equal to 0.
#pragma once
#include "common.cuh"

namespace gradlab {

template <class S>
struct KeyOf {
    typedef unsigned type;
};
template <>
struct KeyOf<double> {
    typedef unsigned long long type;
};
template <>
struct KeyOf<long long> {
    typedef unsigned long long type;
};
template <>
struct KeyOf<unsigned long long> {
    typedef unsigned long long type;
};

// By bits alone: the GPU's own comparisons would take float32 subnormals for zero.
__device__ __forceinline__ unsigned key_of_float(float x) {
    const unsigned bits = __float_as_uint(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0xffffffffu;
    if (size == 0) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ unsigned long long key_of_float(double x) {
    const unsigned long long sign = 0x8000000000000000ull, bits = static_cast<unsigned long long>(__double_as_longlong(x)), size = bits & ~sign;
    if (size > 0x7ff0000000000000ull) return ~0ull;
    if (size == 0) return sign;
    return bits & sign ? ~bits : bits | sign;
}

template <class S>
__device__ __forceinline__ typename KeyOf<S>::type key_of(S x) {
    typedef typename Compute<S>::type T;
    typedef typename KeyOf<S>::type Key;
    if constexpr (is_floating<T>) return key_of_float(load(x));
    else if constexpr (!is_bool<T> && is_signed<T>) return static_cast<Key>(x) ^ (Key(1) << (8 * sizeof(Key) - 1));
    else return static_cast<Key>(x);
}
template <class Key>
inline constexpr Key key_of_nan = static_cast<Key>(~Key(0));

template <class S>
__device__ __forceinline__ bool is_nan(S x) {
    typedef typename Compute<S>::type T;
    if constexpr (is_floating<T>) return key_of(x) == key_of_nan<typename KeyOf<S>::type>;
    else return false;
}

}  // namespace gradlab
