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

}  // namespace gradlab
