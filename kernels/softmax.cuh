// The totals of a softmax: the largest element and the sum of exponentials relative to it, taken online.
#pragma once
#include "rows.cuh"

namespace gradlab {

template <class T_>
struct Exponentials {
    typedef T_ T;
    T top, sum;

    // A row of nothing but -inf has no largest element to subtract: its exponentials are zeros.
    static __device__ __forceinline__ T base_of(T top) { return top == -infinity<T>() ? T(0) : top; }
    __device__ __forceinline__ T base() const { return base_of(top); }
    static __device__ __forceinline__ Exponentials identity() { return {-infinity<T>(), T(0)}; }
    static __device__ __forceinline__ Exponentials merge(const Exponentials& x, const Exponentials& y) {
        const T top = maximum(x.top, y.top), base = base_of(top);
        return {top, x.sum * exp(x.top - base) + y.sum * exp(y.top - base)};
    }
    __device__ __forceinline__ Exponentials down(int n) const { return {shuffle_down(top, n), shuffle_down(sum, n)}; }
    template <int N>
    __device__ __forceinline__ void add(const T (&a)[N]) {
        T most = a[0];
#pragma unroll
        for (int k = 1; k < N; ++k) most = maximum(most, a[k]);
        most = maximum(top, most);
        const T base = base_of(most);
        T more = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) more += exp(a[k] - base);
        sum = sum * exp(top - base) + more;
        top = most;
    }
    // Of a row in registers. Its elements become their exponentials, or (logarithm) their distances from the largest one.
    template <class Team, int N>
    static __device__ __forceinline__ Exponentials of(T (&a)[N], bool logarithm) {
        T most = a[0];
#pragma unroll
        for (int k = 1; k < N; ++k) most = maximum(most, a[k]);
        most = Team::template total<Maximum, 0>(most);
        const T base = base_of(most);
        T sum = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T distance = a[k] - base, e = exp(distance);
            a[k] = logarithm ? distance : e;
            sum += e;
        }
        return {most, Team::template total<Plus, 1>(sum)};
    }
};

}  // namespace gradlab
