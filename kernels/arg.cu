// Extreme elements along the middle dimension of [outer, count, inner], with their places. The first of equal ones; a NaN is extreme.
#include "team.cuh"

namespace gradlab {

template <class T>
struct Found {
    T value;
    int64 at;  // -1: nothing yet
};

template <bool Largest, class T>
__device__ __forceinline__ bool beats(const Found<T>& a, const Found<T>& b) {
    if (b.at < 0) return a.at >= 0;
    if (a.at < 0) return false;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) return a_nan && (!b_nan || a.at < b.at);
    if (a.value == b.value) return a.at < b.at;
    return Largest ? a.value > b.value : a.value < b.value;
}

// values may be a null pointer.
template <class S, bool Alone, bool Largest>
__global__ void __launch_bounds__(512) extreme(const S* __restrict__ x, S* __restrict__ values, int64* __restrict__ indices, int64 rows, int64 count,
                                               int64 inner) {
    typedef typename Compute<S>::type T;
    Team<Alone> team;
    if (!team.start(rows, count, inner)) return;
    Found<T> best = {T(0), -1};
    for (int64 i = team.lane; i < count; i += team.size) {
        const Found<T> next = {load(x[team.base + i * team.stride]), i};
        if (beats<Largest>(next, best)) best = next;
    }
    if constexpr (!Alone) {
        __shared__ T value_of[32];
        __shared__ int64 place_of[32];
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) {
            const Found<T> other = {shuffle_down(best.value, offset), __shfl_down_sync(0xffffffffu, best.at, offset)};
            if (beats<Largest>(other, best)) best = other;
        }
        const int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
        if ((threadIdx.x & 31) == 0) {
            value_of[warp] = best.value;
            place_of[warp] = best.at;
        }
        __syncthreads();
        if (threadIdx.x != 0) return;
        for (int i = 1; i < warps; ++i) {
            const Found<T> other = {value_of[i], place_of[i]};
            if (beats<Largest>(other, best)) best = other;
        }
    }
    if (values) values[team.row] = x[team.base + best.at * team.stride];
    indices[team.row] = best.at;
}

}  // namespace gradlab
