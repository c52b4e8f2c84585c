// Stable sorting of rows by unsigned keys, and what is read off a sorted row.
//
// Keys lie as [rows, count]; `order` holds, in sorted order, the places in that flattened array, which therefore has fewer than 2^32 elements.
// Rows of at most 2048 are sorted in a block's shared memory. Longer ones by a radix sort of 8 bits at a time, from the lowest: counts of each
// digit in each tile, their running sums, and a scatter that keeps the order of equal digits. The last passes sort by the number of the row.
#include "sort.cuh"
#include "fault.cuh"

namespace gradlab {

__device__ __forceinline__ int64 thread_number() { return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; }

// ---- keys ---------------------------------------------------------------------------------------------------------------------

// Rows of x [outer, count, inner] along its middle dimension. Downwards: equal elements keep their order all the same. A null `order` is not wanted.
template <class S>
__global__ void __launch_bounds__(256) keys(const S* __restrict__ x, typename KeyOf<S>::type* __restrict__ key, unsigned* __restrict__ order,
                                            int64 descending, int64 size, int64 inner, int64 count) {
    typedef typename KeyOf<S>::type Key;
    const int64 i = thread_number();
    if (i >= count) return;
    int64 at = i;
    if (inner > 1) {
        const int64 row = i / size;
        at = (row / inner * size + i % size) * inner + row % inner;
    }
    const Key found = key_of(x[at]);
    key[i] = descending ? static_cast<Key>(~found) : found;
    if (order) order[i] = static_cast<unsigned>(i);
}

// ---- rows that fit a block ----------------------------------------------------------------------------------------------------

// Bitonic sort (Batcher, 1968) of pairs of key and place, which are distinct, so that the order is the stable one. `half` threads sort 2 half pairs.
template <class Key>
__global__ void __launch_bounds__(1024) sort_block(Key* __restrict__ key, unsigned* __restrict__ order, int64 half, int64 count) {
    extern __shared__ unsigned long long memory[];
    Key* keys = reinterpret_cast<Key*>(memory);
    const unsigned size = static_cast<unsigned>(half) * 2, n = static_cast<unsigned>(count);
    unsigned* places = reinterpret_cast<unsigned*>(keys + size);
    const int64 base = static_cast<int64>(blockIdx.x) * count;
    for (unsigned i = threadIdx.x; i < size; i += blockDim.x) {
        keys[i] = i < n ? key[base + i] : static_cast<Key>(~Key(0));
        places[i] = i;
    }
    for (unsigned run = 2; run <= size; run *= 2) {
        for (unsigned step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            const unsigned a = (threadIdx.x & ~(step - 1)) * 2 + (threadIdx.x & (step - 1)), b = a + step;
            const bool up = (a & run) == 0;
            const Key ka = keys[a], kb = keys[b];
            const unsigned pa = places[a], pb = places[b];
            const bool above = ka > kb || (ka == kb && pa > pb);
            if (above == up) {
                keys[a] = kb;
                keys[b] = ka;
                places[a] = pb;
                places[b] = pa;
            }
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        key[base + i] = keys[i];
        order[base + i] = static_cast<unsigned>(base) + places[i];
    }
}

// ---- radix sort ---------------------------------------------------------------------------------------------------------------

inline constexpr int radix_threads = 256, radix_items = 8, radix_tile = radix_threads * radix_items, radix_warps = radix_threads / 32;

// Eight bits of the key, or (rows > 0) of the number of the row that a place belongs to.
template <class Key>
__device__ __forceinline__ unsigned digit_of(Key key, unsigned place, unsigned shift, unsigned row_size) {
    if (row_size) return (place / row_size) >> shift & 255u;
    return static_cast<unsigned>(key >> shift) & 255u;
}

// How often each digit occurs in each tile: counts[digit][tile].
template <class Key>
__global__ void __launch_bounds__(radix_threads) radix_count(const Key* __restrict__ key, const unsigned* __restrict__ order,
                                                             unsigned* __restrict__ counts, int64 shift, int64 row_size, int64 tiles, int64 count) {
    __shared__ unsigned found[256];
    found[threadIdx.x] = 0;
    __syncthreads();
    const int64 begin = static_cast<int64>(blockIdx.x) * radix_tile;
#pragma unroll
    for (int item = 0; item < radix_items; ++item) {
        const int64 i = begin + item * radix_threads + threadIdx.x;
        if (i < count) atomicAdd(&found[digit_of(key[i], order[i], static_cast<unsigned>(shift), static_cast<unsigned>(row_size))], 1u);
    }
    __syncthreads();
    counts[threadIdx.x * tiles + blockIdx.x] = found[threadIdx.x];
}

// One block for each digit: counts become how many elements with that digit lie in earlier tiles; totals: in all.
__global__ void __launch_bounds__(256) radix_offsets(unsigned* __restrict__ counts, unsigned* __restrict__ totals, int64 tiles) {
    __shared__ unsigned sums[8];
    unsigned* mine = counts + static_cast<int64>(blockIdx.x) * tiles;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned carried = 0;
    for (int64 begin = 0; begin < tiles; begin += 256) {
        const int64 i = begin + threadIdx.x;
        const unsigned value = i < tiles ? mine[i] : 0u;
        unsigned sum = value;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned other = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        unsigned before = carried;
        for (int w = 0; w < 8; ++w) {
            if (w < warp) before += sums[w];
            carried += sums[w];
        }
        if (i < tiles) mine[i] = before + sum - value;
        __syncthreads();
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carried;
}

// Each warp has a stretch of the tile and ranks its elements among those with the same digit, 32 at a time.
template <class Key>
__global__ void __launch_bounds__(radix_threads) radix_scatter(const Key* __restrict__ key, const unsigned* __restrict__ order,
                                                               Key* __restrict__ sorted, unsigned* __restrict__ sorted_order,
                                                               const unsigned* __restrict__ counts, const unsigned* __restrict__ totals,
                                                               int64 shift, int64 row_size, int64 tiles, int64 count) {
    __shared__ unsigned first[256];               // where a digit's elements of this tile begin
    __shared__ unsigned mine[radix_warps][256];   // how many each warp has; then where each warp's begin
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int w = 0; w < radix_warps; ++w) mine[w][threadIdx.x] = 0;
    // Running sum of all digits' totals.
    {
        const unsigned value = totals[threadIdx.x];
        unsigned sum = value;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const unsigned other = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += other;
        }
        __shared__ unsigned sums[radix_warps];
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        for (int w = 0; w < warp; ++w) sum += sums[w];
        first[threadIdx.x] = sum - value + counts[threadIdx.x * tiles + blockIdx.x];
    }
    const int64 begin = static_cast<int64>(blockIdx.x) * radix_tile + warp * (32 * radix_items) + lane;
    unsigned rank[radix_items];
#pragma unroll
    for (int item = 0; item < radix_items; ++item) {
        const int64 i = begin + item * 32;
        const bool inside = i < count;
        // Elements beyond the end form a group of their own, which counts for nothing.
        const unsigned digit = inside ? digit_of(key[i], order[i], static_cast<unsigned>(shift), static_cast<unsigned>(row_size)) : 256u;
        const unsigned peers = __match_any_sync(0xffffffffu, digit);
        const unsigned before = inside ? mine[warp][digit] : 0u;
        rank[item] = before + __popc(peers & ((1u << lane) - 1u));
        __syncwarp();
        if (inside && lane == 31 - __clz(static_cast<int>(peers))) mine[warp][digit] = rank[item] + 1u;
        __syncwarp();
    }
    __syncthreads();
    {
        unsigned sum = first[threadIdx.x];
        for (int w = 0; w < radix_warps; ++w) {
            const unsigned own = mine[w][threadIdx.x];
            mine[w][threadIdx.x] = sum;
            sum += own;
        }
    }
    __syncthreads();
#pragma unroll
    for (int item = 0; item < radix_items; ++item) {
        const int64 i = begin + item * 32;
        if (i >= count) continue;
        const Key k = key[i];
        const unsigned place = order[i], digit = digit_of(k, place, static_cast<unsigned>(shift), static_cast<unsigned>(row_size));
        const unsigned to = mine[warp][digit] + rank[item];
        sorted[to] = k;
        sorted_order[to] = place;
    }
}

// ---- what is read off ---------------------------------------------------------------------------------------------------------

// The first k of each sorted row: values (unless null) and indices of [outer, k, inner]; x is [outer, size, inner], moved as words.
template <class Word>
__global__ void __launch_bounds__(256) pick_sorted(const Word* __restrict__ x, const unsigned* __restrict__ order, Word* __restrict__ values,
                                                   int64* __restrict__ indices, int64 k, int64 size, int64 inner, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 in = i % inner, j = i / inner % k, out = i / inner / k, row = out * inner + in;
    const int64 index = static_cast<int64>(order[row * size + j]) - row * size;
    indices[i] = index;
    if (values) values[i] = x[(out * size + index) * inner + in];
}

// The order of one row in a type of integers.
template <class S>
__global__ void __launch_bounds__(256) order_as(const unsigned* __restrict__ order, S* __restrict__ y, int64 count) {
    const int64 i = thread_number();
    if (i < count) y[i] = store<S>(order[i]);
}

// The lower median of each row of numbers. With NaN in it: the first NaN, or (pass_nan) the median of the others. Numbers come before NaN.
template <class S>
__global__ void __launch_bounds__(256) median(const S* __restrict__ x, const typename KeyOf<S>::type* __restrict__ key,
                                              const unsigned* __restrict__ order, S* __restrict__ values, int64* __restrict__ indices,
                                              int64 pass_nan, int64 size, int64 inner, int64 count) {
    typedef typename KeyOf<S>::type Key;
    const int64 row = thread_number();
    if (row >= count) return;
    const int64 base = row * size;
    int64 low = size;
    if constexpr (is_floating<typename Compute<S>::type>) {
        low = 0;
        int64 high = size;
        while (low < high) {
            const int64 middle = (low + high) >> 1;
            if (key[base + middle] != key_of_nan<Key>) low = middle + 1;
            else high = middle;
        }
    }
    int64 place = low > 0 ? (low - 1) / 2 : 0;
    if (!pass_nan && low < size) place = low;
    const int64 index = static_cast<int64>(order[base + place]) - base;
    values[row] = x[(row / inner * size + index) * inner + row % inner];
    if (indices) indices[row] = index;
}

// Where a run of equal keys begins, the place in the row; else 0: the running maximum is each element's run. NaN equals nothing.
template <class S>
__global__ void __launch_bounds__(256) run_starts(const typename KeyOf<S>::type* __restrict__ key, int64* __restrict__ start, int64 size, int64 count) {
    typedef typename KeyOf<S>::type Key;
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 j = i % size;
    bool first = j == 0;
    if (!first) first = key[i] != key[i - 1] || (is_floating<typename Compute<S>::type> && key[i] == key_of_nan<Key>);
    start[i] = first ? j : 0;
}

// In each sorted row the element that ends the first of the longest runs. `start` holds each element's start of its run. One block for each row.
template <class Word>
__global__ void __launch_bounds__(256) mode(const Word* __restrict__ x, const unsigned* __restrict__ order, const int64* __restrict__ start,
                                            Word* __restrict__ values, int64* __restrict__ indices, int64 size, int64 inner) {
    __shared__ int64 lengths[8];
    __shared__ int64 places[8];
    const int64 row = blockIdx.x, base = row * size;
    int64 length = -1, place = 0;
    for (int64 j = threadIdx.x; j < size; j += 256) {
        const int64 run = j - start[base + j];
        if (run > length) length = run, place = j;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const int64 other = __shfl_down_sync(0xffffffffu, length, step), at = __shfl_down_sync(0xffffffffu, place, step);
        if (other > length || (other == length && at < place)) length = other, place = at;
    }
    if ((threadIdx.x & 31) == 0) lengths[threadIdx.x >> 5] = length, places[threadIdx.x >> 5] = place;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < 8; ++w)
        if (lengths[w] > length || (lengths[w] == length && places[w] < place)) length = lengths[w], place = places[w];
    const int64 index = static_cast<int64>(order[base + place]) - base;
    indices[row] = index;
    values[row] = x[(row / inner * size + index) * inner + row % inner];
}

// ---- places in sorted sequences -----------------------------------------------------------------------------------------------

// How many boundaries lie below each x (right: not above it). `columns` values of x share a row of boundaries; 0: all share one.
template <class S, class Y>
__global__ void __launch_bounds__(256) searchsorted(const S* __restrict__ boundaries, const S* __restrict__ x, Y* __restrict__ y, int64 right,
                                                    int64 size, int64 columns, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const S* row = boundaries + (columns ? i / columns * size : 0);
    const auto wanted = key_of(x[i]);
    int64 low = 0, high = size;
    while (low < high) {
        const int64 middle = (low + high) >> 1;
        const auto key = key_of(row[middle]);
        if (right ? key <= wanted : key < wanted) low = middle + 1;
        else high = middle;
    }
    y[i] = static_cast<Y>(low);
}

// Whether each x is among the sorted keys. NaN is nowhere.
template <class S>
__global__ void __launch_bounds__(256) isin(const S* __restrict__ x, const typename KeyOf<S>::type* __restrict__ key, bool* __restrict__ y,
                                            int64 invert, int64 size, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const auto wanted = key_of(x[i]);
    int64 low = 0, high = size;
    while (low < high) {
        const int64 middle = (low + high) >> 1;
        if (key[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    const bool found = low < size && key[low] == wanted && !is_nan(x[i]);
    y[i] = found != (invert != 0);
}

// ---- counting -----------------------------------------------------------------------------------------------------------------

// How many x lie in each of `bins` equal parts of [lo, hi], the last one with its end. The limits are on the device: given, or (both 0) x's own
// extremes. Integer atomics: the same result in any order.
template <class S>
__global__ void __launch_bounds__(256) histogram(const S* __restrict__ x, const S* __restrict__ smallest, const S* __restrict__ largest,
                                                 unsigned long long* __restrict__ counts, int64 bins, double lo, double hi, FaultWord* fault,
                                                 int64 site, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    if (smallest) {
        lo = static_cast<double>(load(smallest[0]));
        hi = static_cast<double>(load(largest[0]));
    }
    if (lo == hi) {
        lo -= 1.0;
        hi += 1.0;
    }
    if (!(hi - lo < infinity<double>())) {
        if (i == 0) report(fault, site, 0);
        return;
    }
    const double value = static_cast<double>(load(x[i]));
    if (!(value >= lo && value <= hi)) return;
    const int64 bin = static_cast<int64>(__dmul_rn(__ddiv_rn(__dadd_rn(value, -lo), __dadd_rn(hi, -lo)), static_cast<double>(bins)));
    atomicAdd(&counts[bin < bins ? bin : bins - 1], 1ull);
}

template <class S>
__global__ void __launch_bounds__(256) convert_counts(const unsigned long long* __restrict__ counts, S* __restrict__ y, int64 count) {
    const int64 i = thread_number();
    if (i < count) y[i] = store<S>(static_cast<double>(counts[i]));
}

// How often each number occurs; numbers beyond `size` are not counted.
template <class S>
__global__ void __launch_bounds__(256) count_numbers(const S* __restrict__ x, unsigned long long* __restrict__ counts, int64 size, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 number = static_cast<int64>(x[i]);
    if (number >= 0 && number < size) atomicAdd(&counts[number], 1ull);
}

// ---- distinct values ----------------------------------------------------------------------------------------------------------

// 1 where the sorted row's value differs from the one before (the first always does; NaN differs from NaN). `order` may be null: x as it is.
template <class S>
__global__ void __launch_bounds__(256) firsts(const S* __restrict__ x, const unsigned* __restrict__ order, bool* __restrict__ first, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    bool differs = i == 0;
    if (!differs) {
        const S a = x[order ? order[i - 1] : i - 1], b = x[order ? order[i] : i];
        differs = key_of(a) != key_of(b) || is_nan(b);
    }
    first[i] = differs;
}

// `running` counts the firsts up to each element: the number of its value is one less.
template <class Word>
__global__ void __launch_bounds__(256) write_distinct(const Word* __restrict__ x, const unsigned* __restrict__ order,
                                                      const int64* __restrict__ running, Word* __restrict__ values, int64* __restrict__ inverse,
                                                      int64* __restrict__ starts, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 from = order ? order[i] : i, number = running[i] - 1;
    inverse[from] = number;
    if (i == 0 || running[i - 1] != running[i]) {
        values[number] = x[from];
        starts[number] = i;
    }
}

// From where each begins, how many there are of it.
__global__ void __launch_bounds__(256) lengths(const int64* __restrict__ starts, int64* __restrict__ counts, int64 total, int64 count) {
    const int64 i = thread_number();
    if (i < count) counts[i] = (i + 1 < count ? starts[i + 1] : total) - starts[i];
}

}  // namespace gradlab
