// Distinct rows of a matrix: rows are sorted by their last column, then by the one before, …, each time stably (the keys of sort.cuh).
#include "sort.cuh"

namespace gradlab {

__device__ __forceinline__ int64 thread_number() { return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; }

// The keys of a column, in the order that the rows have so far; `order` numbers them anew.
template <class S>
__global__ void __launch_bounds__(256) column_keys(const S* __restrict__ x, const unsigned* __restrict__ rows,
                                                   typename KeyOf<S>::type* __restrict__ key, unsigned* __restrict__ order, int64 column,
                                                   int64 columns, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    key[i] = key_of(x[rows[i] * columns + column]);
    order[i] = static_cast<unsigned>(i);
}

__global__ void __launch_bounds__(256) first_order(unsigned* __restrict__ rows, int64 count) {
    const int64 i = thread_number();
    if (i < count) rows[i] = static_cast<unsigned>(i);
}
__global__ void __launch_bounds__(256) reorder(const unsigned* __restrict__ rows, const unsigned* __restrict__ order,
                                               unsigned* __restrict__ y, int64 count) {
    const int64 i = thread_number();
    if (i < count) y[i] = rows[order[i]];
}

// Whether a row differs from the one before it in that order; the first does, and one with NaN in it always.
template <class S>
__global__ void __launch_bounds__(256) first_rows(const S* __restrict__ x, const unsigned* __restrict__ rows, bool* __restrict__ first,
                                                  int64 columns, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    bool differs = i == 0;
    if (!differs) {
        const S *a = x + rows[i - 1] * columns, *b = x + rows[i] * columns;
        for (int64 c = 0; c < columns && !differs; ++c) differs = key_of(a[c]) != key_of(b[c]) || is_nan(b[c]);
    }
    first[i] = differs;
}

// `running` counts those up to each row: the number of its value is one less.
__global__ void __launch_bounds__(256) number_rows(const unsigned* __restrict__ rows, const int64* __restrict__ running,
                                                   int64* __restrict__ inverse, int64* __restrict__ starts, unsigned* __restrict__ from,
                                                   int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 number = running[i] - 1;
    inverse[rows[i]] = number;
    if (i == 0 || running[i - 1] != running[i]) {
        starts[number] = i;
        from[number] = rows[i];
    }
}

template <class Word>
__global__ void __launch_bounds__(256) take_rows(const Word* __restrict__ x, const unsigned* __restrict__ from, Word* __restrict__ y,
                                                 int64 columns, int64 count) {
    const int64 i = thread_number();
    if (i < count) y[i] = x[from[i / columns] * columns + i % columns];
}

}  // namespace gradlab
