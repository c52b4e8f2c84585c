// Reductions of an array seen as [outer, count, inner] over its middle dimension, in a fixed order, so that two runs give the same bits.
// R supplies: In (storage), A (accumulator), Out (storage), load(x), combine(a, b), identity(), finish(a, n).
#pragma once
#include "common.cuh"

namespace gradlab {

template <class A>
__device__ __forceinline__ A shuffle_down(A value, int offset) {
    return __shfl_down_sync(0xffffffffu, value, offset);
}
template <>
__device__ __forceinline__ bool shuffle_down<bool>(bool value, int offset) {
    return __shfl_down_sync(0xffffffffu, static_cast<int>(value), offset) != 0;
}

template <class R>
__device__ __forceinline__ typename R::A warp_total(typename R::A a) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) a = R::combine(a, shuffle_down(a, offset));
    return a;  // right in lane 0
}

// One block for each of [outer] rows of `count` neighbouring elements; `parts` blocks share a row, each writing a partial result.
template <class R, bool Final>
__device__ __forceinline__ void reduce_row(const typename R::In* __restrict__ x, typename R::A* __restrict__ partial,
                                           typename R::Out* __restrict__ y, int64 count, int64 parts, int64 total) {
    typedef typename R::A A;
    __shared__ A lanes[32];
    const int64 row = blockIdx.x / parts, part = blockIdx.x % parts;
    const int64 share = (count + parts - 1) / parts;
    const int64 begin = part * share, end = begin + share < count ? begin + share : count;
    const typename R::In* __restrict__ source = x + row * count;
    // Four independent accumulators keep several loads in flight.
    A a0 = R::identity(), a1 = R::identity(), a2 = R::identity(), a3 = R::identity();
    int64 i = begin + threadIdx.x;
    const int64 step = blockDim.x;
    for (; i + 3 * step < end; i += 4 * step) {
        a0 = R::combine(a0, R::load(source[i]));
        a1 = R::combine(a1, R::load(source[i + step]));
        a2 = R::combine(a2, R::load(source[i + 2 * step]));
        a3 = R::combine(a3, R::load(source[i + 3 * step]));
    }
    for (; i < end; i += step) a0 = R::combine(a0, R::load(source[i]));
    A a = warp_total<R>(R::combine(R::combine(a0, a1), R::combine(a2, a3)));
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) lanes[warp] = a;
    __syncthreads();
    if (warp == 0) {
        a = warp_total<R>(lane < warps ? lanes[lane] : R::identity());
        if (lane == 0) {
            if (Final)
                y[row] = R::finish(a, total);
            else
                partial[row * parts + part] = a;
        }
    }
}

// One thread for each (outer, inner) column, walking down `count`; blockIdx.y takes one of `parts` shares of the column.
template <class R, bool Final>
__device__ __forceinline__ void reduce_column(const typename R::In* __restrict__ x, typename R::A* __restrict__ partial,
                                              typename R::Out* __restrict__ y, int64 columns, int64 inner, int64 count, int64 parts, int64 total) {
    typedef typename R::A A;
    const int64 column = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int64 part = blockIdx.y;
    const int64 share = (count + parts - 1) / parts;
    const int64 begin = part * share, end = begin + share < count ? begin + share : count;
    const typename R::In* __restrict__ source = x + (column / inner) * count * inner + column % inner;
    A a0 = R::identity(), a1 = R::identity(), a2 = R::identity(), a3 = R::identity();
    int64 i = begin;
    for (; i + 3 < end; i += 4) {
        a0 = R::combine(a0, R::load(source[i * inner]));
        a1 = R::combine(a1, R::load(source[(i + 1) * inner]));
        a2 = R::combine(a2, R::load(source[(i + 2) * inner]));
        a3 = R::combine(a3, R::load(source[(i + 3) * inner]));
    }
    for (; i < end; ++i) a0 = R::combine(a0, R::load(source[i * inner]));
    const A a = R::combine(R::combine(a0, a1), R::combine(a2, a3));
    if (Final)
        y[column] = R::finish(a, total);
    else
        partial[part * columns + column] = a;
}

// The shares of a column, in order.
template <class R>
__device__ __forceinline__ void reduce_parts(const typename R::A* __restrict__ partial, typename R::Out* __restrict__ y, int64 columns,
                                             int64 stride, int64 step, int64 parts, int64 total) {
    const int64 column = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    typename R::A a = R::identity();
    for (int64 part = 0; part < parts; ++part) a = R::combine(a, partial[column * stride + part * step]);
    y[column] = R::finish(a, total);
}

}  // namespace gradlab
