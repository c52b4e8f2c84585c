// Mean and sum of squared deviations, merged pairwise (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979).
#pragma once
#include "rows.cuh"

namespace gradlab {

template <class T_>
struct Moments {
    typedef T_ T;
    T n, mean, squares;

    static __device__ __forceinline__ Moments identity() { return {T(0), T(0), T(0)}; }
    static __device__ __forceinline__ Moments merge(const Moments& x, const Moments& y) {
        const T n = x.n + y.n, d = y.mean - x.mean, part = n > T(0) ? y.n / n : T(0);
        return {n, x.mean + d * part, x.squares + y.squares + d * d * (x.n * part)};
    }
    __device__ __forceinline__ Moments down(int k) const { return {shuffle_down(n, k), shuffle_down(mean, k), shuffle_down(squares, k)}; }
    // A few more elements at once: one division for all of them. Those outside are zeros.
    template <int N, class L>
    __device__ __forceinline__ void add(const T (&a)[N], const L& places) {
        T sum = T(0), counted = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            sum += a[k];
            counted += places.inside(k) ? T(1) : T(0);
        }
        const T centre = sum / counted;
        T more = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T d = places.inside(k) ? a[k] - centre : T(0);
            more += d * d;
        }
        *this = merge(*this, {counted, centre, more});
    }
    // 1 / sqrt(variance + eps)
    __device__ __forceinline__ T scale(double eps) const { return T(1) / sqrt(squares / maximum(n, T(1)) + T(eps)); }
};

// Two sums.
template <class T_>
struct Sums {
    typedef T_ T;
    T dot, sum;
    static __device__ __forceinline__ Sums identity() { return {T(0), T(0)}; }
    static __device__ __forceinline__ Sums merge(const Sums& x, const Sums& y) { return {x.dot + y.dot, x.sum + y.sum}; }
    __device__ __forceinline__ Sums down(int n) const { return {shuffle_down(dot, n), shuffle_down(sum, n)}; }
};

}  // namespace gradlab
