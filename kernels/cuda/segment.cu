// Rows added (multiplied, …) into the places that an index names: y[outer, place, inner] from sources [outer, n, inner]. The sources come sorted by
// place, in their own order where places are equal; so every sum has one order, without float atomics, and no place waits for another.
//
// The sorted sources are cut into tiles. A thread has one tile and one column; it adds up each run of equal places that begins in its tile. A run
// that is longer than a tile leaves its first part in `tail`, the following ones in `head`, and a second kernel joins them.
#include "reduce.cuh"
#include "fault.cuh"

namespace gradlab {

__device__ __forceinline__ int64 thread_number() { return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; }

// 0 add, 2 product, 3 maximum, 4 minimum. The same for all threads, and cheap beside the accesses around it.
template <class T>
__device__ __forceinline__ T joined(int64 mode, T a, T b) {
    if (mode == 0) return static_cast<T>(a + b);
    if (mode == 2) return static_cast<T>(a * b);
    return mode == 3 ? maximum(a, b) : minimum(a, b);
}

// Places from `size` on are nowhere. `keep`: the old value of y takes part. `each` 0: all sources are one value.
template <class S>
__global__ void __launch_bounds__(256, 1) segments(const unsigned* __restrict__ place, const unsigned* __restrict__ order, const S* __restrict__ source,
                                                S* __restrict__ y, typename Compute<S>::type* __restrict__ head,
                                                typename Compute<S>::type* __restrict__ tail, int64 number, int64 size, int64 inner, int64 mode,
                                                int64 keep, int64 each, int64 tile, int64 width, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 t = i / width, column = i % width, out = column / inner, in = column % inner;
    const int64 begin = t * tile, end = begin + tile < number ? begin + tile : number;
    const S* from = source + (each ? out * number * inner + in : 0);
    const int64 step = each ? inner : 0;
    int64 j = begin;
    while (j < end) {
        const unsigned here = place[j];
        if (here >= size) break;
        S* to = y + (out * size + here) * inner + in;
        const bool starts = j > begin || j == 0 || place[j - 1] != here;
        T total = load(from[order[j] * step]);
        if (starts && keep) total = joined<T>(mode, load(*to), total);
        const bool cut = !starts || (j + tile < number && place[j + tile] == here);
        const int64 stop = cut ? end : number;
        for (++j; j < stop && place[j] == here; ++j) total = joined<T>(mode, total, load(from[order[j] * step]));
        if (!starts) head[i] = total;
        else if (cut) tail[i] = total;
        else *to = store<S>(total);
    }
}

// Runs that are longer than a tile, by the tile in which they start.
template <class S>
__global__ void __launch_bounds__(256, 1) join_segments(const unsigned* __restrict__ place, S* __restrict__ y,
                                                     const typename Compute<S>::type* __restrict__ head,
                                                     const typename Compute<S>::type* __restrict__ tail, int64 number, int64 size, int64 inner,
                                                     int64 mode, int64 tile, int64 width, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 t = i / width, column = i % width, begin = t * tile, end = begin + tile;
    if (end >= number) return;
    const unsigned here = place[end - 1];
    if (here >= size || place[end] != here) return;
    if (begin > 0 && place[begin - 1] == here) return;  // it started before this tile
    int64 start = begin, last = end - 1;
    while (start < last) {
        const int64 middle = (start + last) >> 1;
        if (place[middle] == here) last = middle;
        else start = middle + 1;
    }
    if (start + tile >= number || place[start + tile] != here) return;  // not longer than a tile
    S* const to = y + (column / inner * size + here) * inner + column % inner;
    if (T(0.5) > T(0) && mode == 0) {  // many sums of a tile's length: in a double
        double sum = static_cast<double>(tail[i]);
        for (int64 next = end, at = i + width; next < number && place[next] == here; next += tile, at += width) sum += static_cast<double>(head[at]);
        *to = store<S>(static_cast<T>(sum));
        return;
    }
    T total = tail[i];
    for (int64 next = end, at = i + width; next < number && place[next] == here; next += tile, at += width) total = joined<T>(mode, total, head[at]);
    *to = store<S>(total);
}

// ---- the places, as keys of a sort --------------------------------------------------------------------------------------------

// Places that are int64 already: `size` for those that are nowhere, or that are skipped.
__global__ void __launch_bounds__(256) places_as_keys(const int64* __restrict__ places, unsigned* __restrict__ key, unsigned* __restrict__ order,
                                                      int64 size, int64 skip, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 place = places[i];
    key[i] = static_cast<unsigned>(place < 0 || place >= size || place == skip ? size : place);
    order[i] = static_cast<unsigned>(i);
}

// The last source for each place: claims[place] is its number + 1, from zeros. Integer atomics: the same result in any order.
__global__ void __launch_bounds__(256) claim(const int64* __restrict__ places, unsigned* __restrict__ claims, int64 size, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 place = places[i];
    if (place >= 0 && place < size) atomicMax(&claims[place], static_cast<unsigned>(i) + 1u);
}

// y[place, :] = sources[n, :] where n has claimed the place.
template <class Word>
__global__ void __launch_bounds__(256) write_claimed(const int64* __restrict__ places, const unsigned* __restrict__ claims,
                                                     const Word* __restrict__ source, Word* __restrict__ y, int64 size, int64 width, int64 each,
                                                     int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 n = i / width, place = places[n];
    if (place < 0 || place >= size || claims[place] != static_cast<unsigned>(n) + 1u) return;
    y[place * width + i % width] = source[each ? i : 0];
}

}  // namespace gradlab
