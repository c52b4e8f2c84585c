// Reductions of an array seen as [outer, count, inner] over its middle dimension, in a fixed order, so that two runs give the same bits.
// R, passed by value, supplies: A (accumulator), Out (storage), load(i) of element i, combine(a, b), identity(), finish(a, n).
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

template <class A>
__device__ __forceinline__ A shuffle_down(A value, int offset) {
    if constexpr (sizeof(A) < 4) return static_cast<A>(__shfl_down_sync(0xffffffffu, static_cast<int>(value), offset));
    else return __shfl_down_sync(0xffffffffu, value, offset);
}

template <class R>
__device__ __forceinline__ typename R::A warp_total(typename R::A a) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) a = R::combine(a, shuffle_down(a, offset));
    return a;  // right in lane 0
}

// One block for each of [outer] rows of `count` neighbouring elements. With `partial`, `parts` blocks share a row, each writing a partial result.
template <class R>
__device__ __forceinline__ void reduce_row(const R r, typename R::A* __restrict__ partial, typename R::Out* __restrict__ y, int64 count,
                                           int64 parts, int64 total) {
    typedef typename R::A A;
    __shared__ A lanes[32];
    const int64 row = blockIdx.x / parts, part = blockIdx.x % parts;
    const int64 share = (count + parts - 1) / parts;
    const int64 begin = part * share, end = begin + share < count ? begin + share : count;
    const int64 base = row * count;
    // Four independent accumulators keep several loads in flight. The compiler's own unrolling on top of that would only cost registers.
    A a0 = R::identity(), a1 = R::identity(), a2 = R::identity(), a3 = R::identity();
    int64 i = begin + threadIdx.x;
    const int64 step = blockDim.x;
#pragma unroll 1
    for (; i + 3 * step < end; i += 4 * step) {
        const A x0 = r.load(base + i), x1 = r.load(base + i + step), x2 = r.load(base + i + 2 * step), x3 = r.load(base + i + 3 * step);
        a0 = R::combine(a0, x0);
        a1 = R::combine(a1, x1);
        a2 = R::combine(a2, x2);
        a3 = R::combine(a3, x3);
    }
#pragma unroll 1
    for (; i < end; i += step) a0 = R::combine(a0, r.load(base + i));
    A a = warp_total<R>(R::combine(R::combine(a0, a1), R::combine(a2, a3)));
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) lanes[warp] = a;
    __syncthreads();
    if (warp == 0) {
        a = warp_total<R>(lane < warps ? lanes[lane] : R::identity());
        if (lane == 0) {
            if (partial) partial[row * parts + part] = a;
            else y[row] = r.finish(a, total);
        }
    }
}

// One thread for each (outer, inner) column, walking down `count`. With `partial`, blockIdx.y takes one of `parts` shares of the column.
template <class R>
__device__ __forceinline__ void reduce_column(const R r, typename R::A* __restrict__ partial, typename R::Out* __restrict__ y, int64 columns,
                                              int64 inner, int64 count, int64 parts, int64 total) {
    typedef typename R::A A;
    const int64 column = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int64 part = blockIdx.y;
    const int64 share = (count + parts - 1) / parts;
    const int64 begin = part * share, end = begin + share < count ? begin + share : count;
    const int64 base = (column / inner) * count * inner + column % inner;
    A a0 = R::identity(), a1 = R::identity(), a2 = R::identity(), a3 = R::identity();
    int64 i = begin;
#pragma unroll 1
    for (; i + 3 < end; i += 4) {
        const A x0 = r.load(base + i * inner), x1 = r.load(base + (i + 1) * inner), x2 = r.load(base + (i + 2) * inner),
                x3 = r.load(base + (i + 3) * inner);
        a0 = R::combine(a0, x0);
        a1 = R::combine(a1, x1);
        a2 = R::combine(a2, x2);
        a3 = R::combine(a3, x3);
    }
#pragma unroll 1
    for (; i < end; ++i) a0 = R::combine(a0, r.load(base + i * inner));
    const A a = R::combine(R::combine(a0, a1), R::combine(a2, a3));
    if (partial) partial[part * columns + column] = a;
    else y[column] = r.finish(a, total);
}

// The shares of a column, in order.
template <class R>
__device__ __forceinline__ void reduce_parts(const R r, const typename R::A* __restrict__ partial, typename R::Out* __restrict__ y,
                                             int64 columns, int64 stride, int64 step, int64 parts, int64 total) {
    const int64 column = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    typename R::A a = R::identity();
#pragma unroll 4
    for (int64 part = 0; part < parts; ++part) a = R::combine(a, partial[column * stride + part * step]);
    y[column] = r.finish(a, total);
}

}  // namespace gradlab
