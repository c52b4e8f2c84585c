// Reading and writing by index tensors. Places outside their dimension are brought to its ends, so that no access leaves its array; the host
// functions of the tensor room have refused what they could know. Sums are taken in the order of the sources: no float atomics.
#include "reduce.cuh"

namespace gradlab {

// One place in the flattened indexed dimensions for each set of places; negative ones count from the end. `at` is [k, count].
struct IndexedDims {
    int k, unused;
    long long size[8];
};
__global__ void __launch_bounds__(256) linear_places(const int64* __restrict__ at, int64* __restrict__ places, const IndexedDims dims, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    int64 total = 0;
    for (int d = 0; d < dims.k; ++d) {
        int64 p = at[d * count + i];
        if (p < 0) p += dims.size[d];
        p = p < 0 ? 0 : p >= dims.size[d] ? dims.size[d] - 1 : p;
        total = total * dims.size[d] + p;
    }
    places[i] = total;
}

// y[outer, place, inner] = x[outer, places[place], inner], moved as words.
template <class Word>
__global__ void __launch_bounds__(256) take(const Word* __restrict__ x, const int64* __restrict__ places, Word* __restrict__ y, int64 number,
                                            int64 size, int64 inner, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 in = i % inner, at = i / inner % number, out = i / inner / number;
    int64 p = places[at];
    p = p < 0 ? 0 : p >= size ? size - 1 : p;
    y[i] = x[(out * size + p) * inner + in];
}

// y[place, :] = (x[place, :] or 0) + the sum of rows[n, :] over all n with places[n] == place, in the order of n. One warp for each place and
// 32 columns: its lanes look at 32 sources at a time and vote on those that match. `skip` is a place that gets nothing (or -1).
template <class S>
__global__ void __launch_bounds__(128) add_rows(const S* __restrict__ x, const int64* __restrict__ places, const S* __restrict__ rows,
                                                S* __restrict__ y, int64 number, int64 width, int64 skip, int64 targets) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
    const int64 target = static_cast<int64>(blockIdx.x) * 4 + (threadIdx.x >> 5);
    const int64 column = static_cast<int64>(blockIdx.y) * 32 + lane;
    if (target >= targets) return;  // the whole warp
    const bool inside = column < width;
    T total = T(0);
    if (x && inside) total = load(x[target * width + column]);
    if (target != skip) {
        for (int64 n0 = 0; n0 < number; n0 += 32) {
            const int64 n = n0 + lane;
            unsigned hits = __ballot_sync(0xffffffffu, n < number && places[n] == target);
            while (hits) {
                const int bit = __ffs(static_cast<int>(hits)) - 1;
                hits &= hits - 1;
                if (inside) total = static_cast<T>(total + load(rows[(n0 + bit) * width + column]));
            }
        }
    }
    if (inside) y[target * width + column] = store<S>(total);
}

// y[place, :] = rows[n, :] of the last n with that place, where there is one.
template <class Word>
__global__ void __launch_bounds__(128) put_rows(const int64* __restrict__ places, const Word* __restrict__ rows, Word* __restrict__ y, int64 number,
                                                int64 width, int64 targets) {
    const int lane = threadIdx.x & 31;
    const int64 target = static_cast<int64>(blockIdx.x) * 4 + (threadIdx.x >> 5);
    if (target >= targets) return;
    int64 last = -1;
    for (int64 n0 = 0; n0 < number; n0 += 32) {
        const int64 n = n0 + lane;
        const unsigned hits = __ballot_sync(0xffffffffu, n < number && places[n] == target);
        if (hits) last = n0 + 31 - __clz(static_cast<int>(hits));
    }
    if (last < 0) return;
    for (int64 column = lane; column < width; column += 32) y[target * width + column] = rows[last * width + column];
}

}  // namespace gradlab
