// gather, scatter and its reductions along one dimension. x is [outer dims..., size, inner dims...]; the index tensor may be smaller in all
// dimensions. Each target walks its sources in their order, so results do not depend on the schedule.
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

template <class Word>
__global__ void __launch_bounds__(256) gather(const Word* __restrict__ x, const int64* __restrict__ index, Word* __restrict__ y, const Lines lines,
                                              int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    int64 rest = i / lines.number, at = i % lines.number * lines.index_step, from = 0;
    for (int d = 0; d < lines.rank; ++d) {
        const int64 here = rest % lines.index_size[d];
        rest /= lines.index_size[d];
        at += here * lines.index_stride[d];
        from += here * lines.target_stride[d];
    }
    int64 p = index[at];
    p = p < 0 ? 0 : p >= lines.size ? lines.size - 1 : p;
    y[at] = x[from + p * lines.target_step];
}

// 0 add, 1 the last wins, 2 product, 3 maximum, 4 minimum
template <class T, int Mode>
__device__ __forceinline__ T merged(T a, T b) {
    if constexpr (Mode == 0) return static_cast<T>(a + b);
    else if constexpr (Mode == 2) return static_cast<T>(a * b);
    else if constexpr (Mode == 3) return maximum(a, b);
    else if constexpr (Mode == 4) return minimum(a, b);
    else return b;
}

// One thread for each element of the lines that the index has; y holds x already (or zeros). `keep`: the old value takes part.
template <class S, int Mode>
__global__ void __launch_bounds__(256) scatter(S* __restrict__ y, const int64* __restrict__ index, const S* __restrict__ source, const Lines lines,
                                               int64 keep, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    // Neighbouring threads have neighbouring lines.
    int64 lines_count = 1;
    for (int d = 0; d < lines.rank; ++d) lines_count *= lines.index_size[d];
    int64 rest = i % lines_count;
    const int64 place = i / lines_count;
    int64 at = 0, to = place * lines.target_step, from = 0;
    for (int d = 0; d < lines.rank; ++d) {
        const int64 here = rest % lines.index_size[d];
        rest /= lines.index_size[d];
        at += here * lines.index_stride[d];
        to += here * lines.target_stride[d];
        from += here * lines.source_stride[d];
    }
    bool found = false;
    T total = load(y[to]);
    for (int64 k = 0; k < lines.number; ++k) {
        if (index[at + k * lines.index_step] != place) continue;
        const T value = load(source[from + k * lines.source_step]);
        total = found || keep ? merged<T, Mode>(total, value) : value;
        found = true;
    }
    if (found) y[to] = store<S>(total);
}

}  // namespace gradlab
