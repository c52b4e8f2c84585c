// Strided copies.
#include "elementwise.cuh"

namespace gradlab {

// Elements are moved as words of their size; operand 0 of the layout is the target, operand 1 the source.
template <class Word, class Index>
__global__ void __launch_bounds__(256) copy(Word* __restrict__ target, const Word* __restrict__ source, Layout<2> layout, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    long long at[2];
    layout.locate(static_cast<Index>(i), at);
    target[at[0]] = source[at[1]];
}

template <class Word>
__global__ void __launch_bounds__(256) fill(Word* __restrict__ target, Word value, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i < count) target[i] = value;
}

template <class S, class To>
__global__ void __launch_bounds__(256) convert(const S* __restrict__ x, To* __restrict__ y, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i < count) y[i] = store<To>(load(x[i]));
}

// The sum over all windows (along one dimension, `size` long, `step` apart) that hold an element; windows lie as [outer, windows, inner, size].
template <class S>
__global__ void __launch_bounds__(256) unfold_backward(S* __restrict__ y, const S* __restrict__ windows, int64 length, int64 inner, int64 number,
                                                       int64 size, int64 step, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 in = i % inner, at = i / inner % length, out = i / inner / length;
    typename Compute<S>::type total = 0;
    // As the CPU: by place within the window, from its first.
    for (int64 k = at % step; k < size && k <= at; k += step) {
        const int64 window = (at - k) / step;
        if (window < number) total += load(windows[((out * number + window) * inner + in) * size + k]);
    }
    y[i] = store<S>(total);
}

// y[b, r, c] = x[b, r, c], where neighbours lie along c in y and along r in x: tiles of 32 x 32 through shared memory, so that both are read
// and written in whole lines. `y_row` and `x_column` are the other strides.
template <class Word>
__global__ void __launch_bounds__(256) copy_turned(Word* __restrict__ y, const Word* __restrict__ x, int64 batch, int64 rows, int64 columns, int64 y_batch,
                                                   int64 y_row, int64 x_batch, int64 x_column) {
    __shared__ Word tile[32][33];  // the odd width keeps a column's elements in different banks
    const int across = threadIdx.x & 31, line = threadIdx.x >> 5;
    const int64 tiles = (columns + 31) / 32, first_row = blockIdx.x / tiles * 32, first_column = blockIdx.x % tiles * 32;
#pragma unroll 1
    for (int64 b = blockIdx.y; b < batch; b += gridDim.y) {
#pragma unroll
        for (int j = line; j < 32; j += 8)
            if (first_row + across < rows && first_column + j < columns)
                tile[j][across] = x[b * x_batch + (first_column + j) * x_column + first_row + across];
        __syncthreads();
#pragma unroll
        for (int j = line; j < 32; j += 8)
            if (first_row + j < rows && first_column + across < columns)
                y[b * y_batch + (first_row + j) * y_row + first_column + across] = tile[across][j];
        __syncthreads();
    }
}

}  // namespace gradlab
