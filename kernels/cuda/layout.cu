// Triangles of matrices, masks, places of true elements.
#include "fault.cuh"
#include "sort.cuh"

namespace gradlab {

__device__ __forceinline__ int64 thread_number() { return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; }

// x [..., rows, columns] on one side of a diagonal (lower: up to it; else from it on), 0 elsewhere. Moved as words.
template <class Word>
__global__ void __launch_bounds__(256) triangle(const Word* __restrict__ x, Word* __restrict__ y, int64 diagonal, int64 lower, int64 rows,
                                                int64 columns, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 column = i % columns, row = i / columns % rows, offset = column - row;
    y[i] = (lower ? offset <= diagonal : offset >= diagonal) ? x[i] : Word(0);
}

// By bits: a subnormal is not zero.
template <class S>
__device__ __forceinline__ bool not_zero(S x) {
    return key_of(x) != key_of(store<S>(0));
}

// Which elements are not zero; NaN is not.
template <class S>
__global__ void __launch_bounds__(256) truth(const S* __restrict__ x, bool* __restrict__ y, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    if constexpr (is_complex<S>) y[i] = not_zero(x[i].re) || not_zero(x[i].im);
    else y[i] = not_zero(x[i]);
}

struct Sizes {
    int rank, unused;
    long long size[8];
};

// The coordinates of true elements, in their order: `running` counts them up to each element.
__global__ void __launch_bounds__(256) true_places(const bool* __restrict__ x, const int64* __restrict__ running, int64* __restrict__ y,
                                                   const Sizes sizes, int64 count) {
    const int64 i = thread_number();
    if (i >= count || !x[i]) return;
    int64* row = y + (running[i] - 1) * sizes.rank;
    int64 rest = i;
#pragma unroll
    for (int d = 7; d >= 0; --d) {
        if (d >= sizes.rank) continue;
        row[d] = rest % sizes.size[d];
        rest /= sizes.size[d];
    }
}

// y is x with the elements of `source` where the mask is true, in order. Reports a source that is too short.
template <class Word>
__global__ void __launch_bounds__(256) masked_scatter(const Word* __restrict__ x, const bool* __restrict__ mask, const int64* __restrict__ running,
                                                      const Word* __restrict__ source, Word* __restrict__ y, FaultWord* fault, int64 site,
                                                      int64 size, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    if (i == count - 1 && running[i] > size) report(fault, site, running[i]);
    const int64 from = running[i] - 1;
    y[i] = mask[i] && from < size ? source[from] : x[i];
}

// y: the elements of x where the mask is true, in order; the rest of y is 0 already.
template <class Word>
__global__ void __launch_bounds__(256) masked_gather(const Word* __restrict__ x, const bool* __restrict__ mask, const int64* __restrict__ running,
                                                     Word* __restrict__ y, int64 size, int64 count) {
    const int64 i = thread_number();
    if (i < count && mask[i] && running[i] <= size) y[running[i] - 1] = x[i];
}

// The element that each of `count` repetitions belongs to: `running` are the running sums of the repeats.
__global__ void __launch_bounds__(256) repeated(const int64* __restrict__ running, int64* __restrict__ y, int64 size, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    int64 low = 0, high = size;
    while (low < high) {
        const int64 middle = (low + high) >> 1;
        if (running[middle] <= i) low = middle + 1;
        else high = middle;
    }
    y[i] = low;
}

}  // namespace gradlab
