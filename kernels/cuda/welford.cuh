// Mean and sum of squared deviations, merged pairwise (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979).
#pragma once
#include "rows.cuh"

namespace gradlab {

// An element that the others of its row may lie near: sums of distances from it are exact far from zero too. Sums of float are taken in double
// instead, from zero: distances of what lies near zero from an element that does not would lose its last bits.
template <class S>
__device__ __forceinline__ typename Compute<S>::type near_of(const S* x) {
    typedef typename Compute<S>::type T;
    if constexpr (sizeof(T) == 4) return T(0);
    const T value = load(*x);
    return value - value == 0 ? value : 0;
}

// The sum of a few distances from `near`, which are none outside. Its last bits far from zero are those of the distances from their mean.
template <int N, class T, class L>
__device__ __forceinline__ double sum_of(const T (&a)[N], T near, const L& places, T& counted) {
    T sum = T(0), rest = T(0);
    counted = T(0);
#pragma unroll
    for (int k = 0; k < N; ++k) {
        sum += (a[k] - near) * (T(1) / T(N));  // N is a power of two; the largest numbers' sum is none
        counted += places.inside(k) ? T(1) : T(0);
    }
    const T centre = sum * (T(N) / maximum(counted, T(1)));
#pragma unroll
    for (int k = 0; k < N; ++k) rest += places.inside(k) ? a[k] - near - centre : T(0);
    return double(centre) * counted + (rest - rest == 0 ? rest : T(0));
}

// sum / n, without a division of doubles.
template <class T>
__device__ __forceinline__ double mean_of(double sum, T n) {
    const T high = static_cast<T>(sum) / n, low = static_cast<T>(sum - double(high) * n) / n;
    return high + double(low - low == 0 ? low : T(0));
}

// A mean as a number and what that lacks to it.
template <class T>
struct Centre {
    T high, low;
    explicit __device__ __forceinline__ Centre(double mean) : high(static_cast<T>(mean)), low(static_cast<T>(mean - high)) {
        if (low - low != 0) low = T(0);
    }
    __device__ __forceinline__ T to(T distance) const { return distance - high - low; }
};

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

// Of distances from a number near them, in double: the squares of 1e30 are no float, and a mean far from zero has more digits.
template <class T_>
struct Moments {
    typedef T_ T;
    T n;
    double mean, squares;

    static __device__ __forceinline__ Moments identity() { return {T(0), 0.0, 0.0}; }
    static __device__ __forceinline__ Moments merge(const Moments& x, const Moments& y) {
        const T n = x.n + y.n, part = n > T(0) ? y.n / n : T(0);
        const double d = y.mean - x.mean;
        return {n, x.mean + d * part, x.squares + y.squares + d * d * (x.n * part)};
    }
    __device__ __forceinline__ Moments down(int k) const { return {shuffle_down(n, k), shuffle_down(mean, k), shuffle_down(squares, k)}; }
    // A few more elements at once.
    template <int N, class L>
    __device__ __forceinline__ void add(const T (&a)[N], T near, const L& places) {
        T counted, d[N];
        const double sum = sum_of(a, near, places, counted), mean = mean_of(sum, maximum(counted, T(1)));
        const Centre<T> centre(mean);
#pragma unroll
        for (int k = 0; k < N; ++k) d[k] = places.inside(k) ? centre.to(a[k] - near) : T(0);
        *this = merge(*this, {counted, mean, Squares<T>::of(d)});
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
