// Running sums, products and extremes along the middle dimension of [outer, count, inner]: one thread for each line, floating point in double.
#include "reduce.cuh"

namespace gradlab {

template <class T>
struct Running {
    typedef T type;
};
template <>
struct Running<float> {
    typedef double type;
};

// 0 sum, 1 product, 2 log of the sum of exponentials
template <class S, int Mode>
__global__ void __launch_bounds__(128) running(const S* __restrict__ x, S* __restrict__ y, int64 count, int64 inner, int64 lines) {
    typedef typename Running<typename Compute<S>::type>::type T;
    const int64 line = static_cast<int64>(blockIdx.x) * 128 + threadIdx.x;
    if (line >= lines) return;
    const int64 base = line / inner * count * inner + line % inner;
    T total = T(0);
    for (int64 i = 0; i < count; ++i) {
        const T value = static_cast<T>(load(x[base + i * inner]));
        if (i == 0) total = value;
        else if constexpr (Mode == 0) total = static_cast<T>(total + value);
        else if constexpr (Mode == 1) total = static_cast<T>(total * value);
        else total = logaddexp(total, value);
        y[base + i * inner] = store<S>(total);
    }
}

// y_i = a_i y_(i-1) + b_i, backwards where `reverse`.
template <class S>
__global__ void __launch_bounds__(128) recurrence(const S* __restrict__ a, const S* __restrict__ b, S* __restrict__ y, int64 reverse, int64 count,
                                                  int64 inner, int64 lines) {
    const int64 line = static_cast<int64>(blockIdx.x) * 128 + threadIdx.x;
    if (line >= lines) return;
    const int64 base = line / inner * count * inner + line % inner;
    double last = 0;
    for (int64 n = 0; n < count; ++n) {
        const int64 at = base + (reverse ? count - 1 - n : n) * inner;
        last = static_cast<double>(load(a[at])) * last + static_cast<double>(load(b[at]));
        y[at] = store<S>(last);
    }
}

// The running extreme and the last place where it was attained; a NaN stays.
template <class S, bool Largest>
__global__ void __launch_bounds__(128) running_extreme(const S* __restrict__ x, S* __restrict__ values, int64* __restrict__ indices, int64 count,
                                                       int64 inner, int64 lines) {
    typedef typename Compute<S>::type T;
    const int64 line = static_cast<int64>(blockIdx.x) * 128 + threadIdx.x;
    if (line >= lines) return;
    const int64 base = line / inner * count * inner + line % inner;
    T best = T(0);
    int64 where = 0;
    for (int64 i = 0; i < count; ++i) {
        const T value = load(x[base + i * inner]);
        const bool nan = value != value;
        if (i == 0 || nan || (best == best && (Largest ? value >= best : value <= best))) {
            best = value;
            where = i;
        }
        values[base + i * inner] = store<S>(best);
        indices[base + i * inner] = where;
    }
}

}  // namespace gradlab
