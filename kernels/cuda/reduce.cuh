// Reductions of an array seen as [outer, count, inner] over its middle dimension, in a fixed order, so that two runs give the same bits.
// R, passed by value, supplies: A (accumulator), Total (of accumulators; of sums wider than A), Out (storage), load(i) of element i,
// combine(a, b) of either, identity(), finish(total, n).
#pragma once
#include "common.cuh"

namespace gradlab {

// The neutral elements of maximum and minimum.
template <class T>
__device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -infinity<T>();
    else if constexpr (is_bool<T> || !is_signed<T>) return T(0);
    else return T(Wide(1) << (8 * sizeof(T) - 1));
}
template <class T>
__device__ __forceinline__ T highest() {
    if constexpr (is_floating<T>) return infinity<T>();
    else if constexpr (is_bool<T>) return true;
    else if constexpr (!is_signed<T>) return T(~Wide(0));
    else return T(~(Wide(1) << (8 * sizeof(T) - 1)) & ((Wide(1) << (8 * sizeof(T) - 1)) - 1));
}

// A product that neither overflows nor vanishes on the way: part times 2^(500 powers), |part| between 2^-500 and 2^500, or 0, infinite, NaN.
struct Scaled {
    double part;
    int64 powers;

    Scaled() = default;
    __device__ __forceinline__ Scaled(double value, int64 of = 0) : part(value), powers(of) {
        const double size = abs(value);
        if (size >= large() && size < infinity<double>()) part *= small(), ++powers;
        else if (size <= small() && size > 0) part *= large(), --powers;
    }
    static __device__ __forceinline__ double large() { return 3.273390607896142e150; }  // 2^500
    static __device__ __forceinline__ double small() { return 3.0549363634996047e-151; }
    __device__ __forceinline__ operator double() const {
        double value = part;
        for (int64 k = powers < 4 ? powers : 4; k > 0; --k) value *= large();
        for (int64 k = powers > -4 ? powers : -4; k < 0; ++k) value *= small();
        return value;
    }
    friend __device__ __forceinline__ Scaled operator*(const Scaled& a, const Scaled& b) { return Scaled(a.part * b.part, a.powers + b.powers); }
};

template <class A>
__device__ __forceinline__ A shuffle_down(A value, int offset) {
    if constexpr (sizeof(A) < 4) return static_cast<A>(__shfl_down_sync(0xffffffffu, static_cast<int>(value), offset));
    else return __shfl_down_sync(0xffffffffu, value, offset);
}

template <class R>
__device__ __forceinline__ Complex<R> shuffle_down(Complex<R> value, int offset) {
    return {__shfl_down_sync(0xffffffffu, value.re, offset), __shfl_down_sync(0xffffffffu, value.im, offset)};
}

__device__ __forceinline__ Scaled shuffle_down(Scaled value, int offset) {
    value.part = __shfl_down_sync(0xffffffffu, value.part, offset);
    value.powers = __shfl_down_sync(0xffffffffu, value.powers, offset);
    return value;
}

template <class R>
__device__ __forceinline__ typename R::Total warp_total(typename R::Total a) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) a = R::combine(a, shuffle_down(a, offset));
    return a;  // right in lane 0
}

// The total of the elements from `at` on, `step` apart, before `end`: of runs short enough that a sum of float keeps its last bits.
// Four independent accumulators keep several loads in flight. The compiler's own unrolling on top of that would only cost registers.
template <class R>
__device__ __forceinline__ typename R::Total total_of_runs(const R& r, int64 at, int64 end, int64 step) {
    typedef typename R::A A;
    typedef typename R::Total Total;
    constexpr int run = 64;
    Total total = R::identity();
#pragma unroll 1
    while (at < end) {
        const int64 pause = end - at > run * step ? at + run * step : end;
        A a0 = R::identity(), a1 = R::identity(), a2 = R::identity(), a3 = R::identity();
#pragma unroll 1
        for (; at + 3 * step < pause; at += 4 * step) {
            const A x0 = r.load(at), x1 = r.load(at + step), x2 = r.load(at + 2 * step), x3 = r.load(at + 3 * step);
            a0 = R::combine(a0, x0);
            a1 = R::combine(a1, x1);
            a2 = R::combine(a2, x2);
            a3 = R::combine(a3, x3);
        }
#pragma unroll 1
        for (; at < pause; at += step) a0 = R::combine(a0, r.load(at));
        total = R::combine(total, static_cast<Total>(R::combine(R::combine(a0, a1), R::combine(a2, a3))));
    }
    return total;
}

// One block for each of [outer] rows of `count` neighbouring elements. With `partial`, `parts` blocks share a row, each writing a partial result.
template <class R>
__device__ __forceinline__ void reduce_row(const R r, typename R::Total* __restrict__ partial, typename R::Out* __restrict__ y, int64 count,
                                           int64 parts, int64 total) {
    typedef typename R::Total Total;
    __shared__ Total lanes[32];
    const int64 row = blockIdx.x / parts, part = blockIdx.x % parts;
    const int64 share = (count + parts - 1) / parts;
    const int64 begin = part * share, end = begin + share < count ? begin + share : count;
    const int64 base = row * count;
    Total a = warp_total<R>(total_of_runs(r, base + begin + threadIdx.x, base + end, blockDim.x));
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) lanes[warp] = a;
    __syncthreads();
    if (warp == 0) {
        a = warp_total<R>(lane < warps ? lanes[lane] : Total(R::identity()));
        if (lane == 0) {
            if (partial) partial[row * parts + part] = a;
            else y[row] = r.finish(a, total);
        }
    }
}

// One thread for each (outer, inner) column, walking down `count`. With `partial`, blockIdx.y takes one of `parts` shares of the column.
template <class R>
__device__ __forceinline__ void reduce_column(const R r, typename R::Total* __restrict__ partial, typename R::Out* __restrict__ y,
                                              int64 columns, int64 inner, int64 count, int64 parts, int64 total) {
    const int64 column = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int64 part = blockIdx.y;
    const int64 share = (count + parts - 1) / parts;
    const int64 begin = part * share, end = begin + share < count ? begin + share : count;
    const int64 base = (column / inner) * count * inner + column % inner;
    const typename R::Total a = total_of_runs(r, base + begin * inner, base + end * inner, inner);
    if (partial) partial[part * columns + column] = a;
    else y[column] = r.finish(a, total);
}

// The shares of a column, in order.
template <class R>
__device__ __forceinline__ void reduce_parts(const R r, const typename R::Total* __restrict__ partial, typename R::Out* __restrict__ y,
                                             int64 columns, int64 stride, int64 step, int64 parts, int64 total) {
    const int64 column = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    typename R::Total a = R::identity();
#pragma unroll 4
    for (int64 part = 0; part < parts; ++part) a = R::combine(a, partial[column * stride + part * step]);
    y[column] = r.finish(a, total);
}

}  // namespace gradlab
