// Mean and sum of squared deviations, merged pairwise (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979).
#pragma once
#include "rows.cuh"

namespace gradlab {

// An element that the others of its row may lie near, so that sums of distances from it are exact far from zero too.
template <class S>
__device__ __forceinline__ typename Compute<S>::type near_of(const S* x) {
    const typename Compute<S>::type value = load(*x);
    return value - value == 0 ? value : 0;
}

// Squares of floats beyond 1e19 are none: such are made smaller first. The powers of two are exact.
template <class T>
struct Squares {
    static constexpr T less = sizeof(T) == 4 ? T(1) / (T(1 << 20) * T(1 << 20) * T(1 << 20) * T(1 << 20)) : T(1);
    static constexpr double more = 1 / (double(less) * double(less));
    template <int N>
    static __device__ __forceinline__ double of(const T (&a)[N]) {
        T sum = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) sum += a[k] * a[k];
        if (sizeof(T) > 4 || sum != infinity<T>()) return sum;
        sum = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) sum += (a[k] * less) * (a[k] * less);
        return sum * more;
    }
    // 1 / sqrt(squares / n + eps)
    static __device__ __forceinline__ T scale(double squares, T n, double eps) {
        const T mean = static_cast<T>(squares) / n;
        if (sizeof(T) > 4 || mean != infinity<T>()) return T(1) / sqrt(mean + T(eps));
        return less / sqrt(static_cast<T>(squares / more) / n);
    }
};

// Of distances from a number near them. The squares in double: those of 1e30 are no float.
template <class T_>
struct Moments {
    typedef T_ T;
    T n, mean;
    double squares;

    static __device__ __forceinline__ Moments identity() { return {T(0), T(0), 0.0}; }
    static __device__ __forceinline__ Moments merge(const Moments& x, const Moments& y) {
        const T n = x.n + y.n, d = y.mean - x.mean, part = n > T(0) ? y.n / n : T(0);
        return {n, x.mean + d * part, x.squares + y.squares + double(d) * d * (x.n * part)};
    }
    __device__ __forceinline__ Moments down(int k) const { return {shuffle_down(n, k), shuffle_down(mean, k), shuffle_down(squares, k)}; }
    // A few more elements at once: one division for all of them. Those outside are as near as can be.
    template <int N, class L>
    __device__ __forceinline__ void add(const T (&a)[N], T near, const L& places) {
        T sum = T(0), counted = T(0), d[N];
#pragma unroll
        for (int k = 0; k < N; ++k) {
            d[k] = a[k] - near;
            sum += d[k];
            counted += places.inside(k) ? T(1) : T(0);
        }
        const T centre = sum / counted;
#pragma unroll
        for (int k = 0; k < N; ++k) d[k] = places.inside(k) ? d[k] - centre : T(0);
        *this = merge(*this, {counted, centre, Squares<T>::of(d)});
    }
    // 1 / sqrt(variance + eps)
    __device__ __forceinline__ T scale(double eps) const { return Squares<T>::scale(squares, maximum(n, T(1)), eps); }
};

// Two sums of many.
template <class T_>
struct Sums {
    typedef T_ T;
    double dot, sum;
    static __device__ __forceinline__ Sums identity() { return {0.0, 0.0}; }
    static __device__ __forceinline__ Sums merge(const Sums& x, const Sums& y) { return {x.dot + y.dot, x.sum + y.sum}; }
    __device__ __forceinline__ Sums down(int n) const { return {shuffle_down(dot, n), shuffle_down(sum, n)}; }
};

}  // namespace gradlab
