// Reading and writing by index tensors. A place outside its dimension is reported (fault.cuh), reads zeros and writes nothing. Sums are taken in the
// order of the sources: no float atomics.
#include "fault.cuh"
#include "reduce.cuh"
#include "second_place.cuh"

namespace gradlab {

// One place in the flattened indexed dimensions for each set of places, -1 where one is out of range. `at` is [k, count].
struct IndexedDims {
    int k, wrap;  // wrap: negative places count from the end
    long long size[8];
};
__global__ void __launch_bounds__(256) linear_places(const int64* __restrict__ at, int64* __restrict__ places, const IndexedDims dims,
                                                     FaultWord* fault, int64 site, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    int64 total = 0;
#pragma unroll
    for (int d = 0; d < 8; ++d) {
        if (d >= dims.k) continue;
        const int64 place = checked(at[d * count + i], dims.size[d], dims.wrap != 0, fault, site + d);
        total = place < 0 || total < 0 ? -1 : total * dims.size[d] + place;
    }
    places[i] = total;
}

// y[outer, place, inner] = x[outer, places[place], inner], moved as words. Places that were not checked before come with a record of faults.
// Index: 32 bits where they can count the elements, since a division of 64 bits costs more than the access.
template <class Word, class Index>
__global__ void __launch_bounds__(256) take(const Word* __restrict__ x, const int64* __restrict__ places, Word* __restrict__ y, FaultWord* fault,
                                            int64 site, int64 number, int64 size, int64 inner, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const Index line = static_cast<Index>(i) / static_cast<Index>(inner), out = line / static_cast<Index>(number);
    const int64 in = i - static_cast<int64>(line) * inner, at = line - out * static_cast<Index>(number);
    const int64 place = fault ? checked(places[at], size, false, fault, site) : places[at];
    y[i] = place < 0 ? Word{} : x[(out * size + place) * inner + in];
}

// y[place, :] = (x[place, :] or 0) + the sum of rows[n, :] over all n with places[n] == place, in the order of n. One warp for each place and
// 32 columns: its lanes look at 32 sources at a time and vote on those that match. `skip` is a place that gets nothing (or -1).
template <class S>
__global__ void __launch_bounds__(128) add_rows(const S* __restrict__ x, const int64* __restrict__ places, const S* __restrict__ rows,
                                                S* __restrict__ y, int64 number, int64 width, int64 skip, int64 targets) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
    const int64 target = static_cast<int64>(blockIdx.x) * 4 + (threadIdx.x >> 5);
    const int64 column = second_place() * 32 + lane;
    if (target >= targets || column - lane >= width) return;  // the whole warp
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
