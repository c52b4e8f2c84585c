// gather, scatter and its reductions along one dimension. x is [outer dims..., size, inner dims...]; the index tensor may be smaller in all
// dimensions. Each target walks its sources in their order, so results do not depend on the schedule.
#include "fault.cuh"
#include "reduce.cuh"

namespace gradlab {

// Sizes and strides (in elements, of the row-major x) of the dimensions other than `dim`, innermost first, for the index and the target.
struct Lines {
    int rank, unused;
    long long index_size[8], index_stride[8], target_stride[8], source_stride[8];
    long long index_step, target_step, source_step;  // along dim
    long long number;                                // index elements along dim
    long long size;                                  // target elements along dim
};

// Line `rest` of the index: its first element, that of its target (at place 0) and of its source. Index: 32 bits where they can count the elements
// (a division of 64 bits is a call).
template <class Index>
__device__ __forceinline__ void locate(const Lines& lines, Index rest, int64& at, int64& to, int64& from) {
    at = to = from = 0;
#pragma unroll 1
    for (int d = 0; d < lines.rank; ++d) {
        const Index size = static_cast<Index>(lines.index_size[d]), next = rest / size;
        const int64 here = static_cast<int64>(rest - next * size);
        rest = next;
        at += here * lines.index_stride[d];
        to += here * lines.target_stride[d];
        from += here * lines.source_stride[d];
    }
}

// The index element i: where it lies, and the target of its line.
template <class Index>
__device__ __forceinline__ void locate_element(const Lines& lines, Index i, int64& at, int64& to) {
    const Index number = static_cast<Index>(lines.number), rest = i / number;
    int64 from;
    locate(lines, rest, at, to, from);
    at += static_cast<int64>(i - rest * number) * lines.index_step;
}

// An index out of range is reported and reads zero.
template <class Word, class Index>
__global__ void __launch_bounds__(256) gather(const Word* __restrict__ x, const int64* __restrict__ index, Word* __restrict__ y, const Lines lines,
                                              FaultWord* fault, int64 site, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    int64 at, line;
    locate_element(lines, static_cast<Index>(i), at, line);
    const int64 place = checked(index[at], lines.size, false, fault, site);
    y[at] = place < 0 ? Word(0) : x[line + place * lines.target_step];
}

// Each index element's place in the flattened target, -1 where it is out of range.
template <class Index>
__global__ void __launch_bounds__(256) line_places(const int64* __restrict__ index, int64* __restrict__ places, const Lines lines, FaultWord* fault,
                                                   int64 site, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    int64 at, line;
    locate_element(lines, static_cast<Index>(i), at, line);
    const int64 place = checked(index[at], lines.size, false, fault, site);
    places[at] = place < 0 ? -1 : line + place * lines.target_step;
}

// 0 add, 1 the last wins, 2 product, 3 maximum, 4 minimum. The same for all threads, and cheap beside the accesses around it.
template <class T>
__device__ __forceinline__ T merged(int64 mode, T a, T b) {
    if (mode == 0) return static_cast<T>(a + b);
    if (mode == 2) return static_cast<T>(a * b);
    if constexpr (!is_complex<T>) {
        if (mode == 3) return maximum(a, b);
        if (mode == 4) return minimum(a, b);
    }
    return b;
}

// One thread for each element of the lines that the index has; y holds x already (or zeros). `keep`: the old value takes part.
template <class S, class Index>
__global__ void __launch_bounds__(256) scatter(S* __restrict__ y, const int64* __restrict__ index, const S* __restrict__ source, const Lines lines,
                                               int64 mode, int64 keep, FaultWord* fault, int64 site, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    // Neighbouring threads have neighbouring lines.
    Index lines_count = 1;
#pragma unroll 1
    for (int d = 0; d < lines.rank; ++d) lines_count *= static_cast<Index>(lines.index_size[d]);
    const Index row = static_cast<Index>(i) / lines_count;
    const int64 place = row;
    int64 at, to, from;
    locate(lines, static_cast<Index>(i) - row * lines_count, at, to, from);
    to += place * lines.target_step;
    // Loops are not unrolled: that takes registers which sm_90 and sm_100 spill.
#pragma unroll 1
    for (int64 k = place; k < lines.number; k += lines.size) checked(index[at + k * lines.index_step], lines.size, false, fault, site);
    bool found = false;
    T total = load(y[to]);
#pragma unroll 1
    for (int64 k = 0; k < lines.number; ++k) {
        const int64 p = index[at + k * lines.index_step];
        if (p != place) continue;
        const T value = load(source[from + k * lines.source_step]);
        total = found || keep ? merged(mode, total, value) : value;
        found = true;
    }
    if (found) y[to] = store<S>(total);
}

// y[outer, places[n], inner] += source[outer, n, inner], in any order: only where the user has allowed results that differ in their last bits.
// A source of one element stands for all. A thread for each source element.
template <class T, class Index>
__global__ void __launch_bounds__(256) atomic_add(const int64* __restrict__ places, const T* __restrict__ source, T* y, int64 number, int64 size,
                                                  int64 inner, int64 skip, int64 each, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const Index width = static_cast<Index>(inner), sources = static_cast<Index>(number);
    const Index row = static_cast<Index>(i) / width, outer = row / sources;
    const int64 place = places[row - outer * sources];
    if (place < 0 || place == skip) return;
    atomicAdd(y + (outer * size + place) * inner + static_cast<int64>(static_cast<Index>(i) - row * width), source[each ? i : 0]);
}

}  // namespace gradlab
