// The totals of a softmax: the largest element and the sum of exponentials relative to it, taken online; and those of its derivative.
#pragma once
#include "rows.cuh"

namespace gradlab {

// A probability from which on 1 minus it is not taken from its rounded value (ops/softmax.py).
template <class T>
inline constexpr T SURE = T(0.9);

// `rest`: the sum without the largest element's 1, in its own digits; only where a single one is the largest.
template <class T_>
struct Exponentials {
    typedef T_ T;
    T top, sum, rest;

    // A row of nothing but -inf has no largest element to subtract: its exponentials are zeros.
    static __device__ __forceinline__ T base_of(T top) { return top == -infinity<T>() ? T(0) : top; }
    __device__ __forceinline__ T base() const { return base_of(top); }
    __device__ __forceinline__ T logarithm() const { return sum >= T(1) && sum < T(1) / SURE<T> ? log1p(rest) : log(sum); }
    static __device__ __forceinline__ Exponentials identity() { return {-infinity<T>(), T(0), T(0)}; }
    static __device__ __forceinline__ Exponentials merge(const Exponentials& x, const Exponentials& y) {
        const T top = maximum(x.top, y.top), base = base_of(top), left = x.sum * exp(x.top - base), right = y.sum * exp(y.top - base);
        return {top, left + right, x.top > y.top ? x.rest + right : y.rest + left};
    }
    __device__ __forceinline__ Exponentials down(int n) const { return {shuffle_down(top, n), shuffle_down(sum, n), shuffle_down(rest, n)}; }
    template <int N>
    __device__ __forceinline__ void add(const T (&a)[N]) {
        T most = a[0];
#pragma unroll
        for (int k = 1; k < N; ++k) most = maximum(most, a[k]);
        most = maximum(top, most);
        const T base = base_of(most);
        T more = T(0), others = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T e = exp(a[k] - base);
            more += e;
            others += a[k] == most ? T(0) : e;
        }
        const T before = sum * exp(top - base);
        sum = before + more;
        rest = (top == most ? rest : before) + others;
        top = most;
    }
    // Of a row in registers. Its elements become their exponentials, or their distances from the largest one; `rest` where it is asked for.
    template <class Team, int N>
    static __device__ __forceinline__ Exponentials of(T (&a)[N], bool distances, bool rests) {
        T most = a[0];
#pragma unroll
        for (int k = 1; k < N; ++k) most = maximum(most, a[k]);
        most = Team::template total<Maximum, 0>(most);
        const T base = base_of(most);
        T sum = T(0), rest = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T distance = a[k] - base, e = exp(distance);
            a[k] = distances ? distance : e;
            sum += e;
            rest += distance == T(0) ? T(0) : e;
        }
        return {most, Team::template total<Plus, 1>(sum), rests ? Team::template total<Plus, 2>(rest) : T(0)};
    }
};

// Σ (dy - base)·r and Σ r, where base is dy at the largest r: the likeliest element's difference from Σ dy·r is otherwise all rounding.
template <class T>
struct Relative {
    T dot, weight, top, base;

    // A row of nothing but -inf has NaN as its result: where no gradient comes, none goes on.
    static __device__ __forceinline__ T product(T a, T b) { return a == T(0) ? T(0) : a * b; }
    static __device__ __forceinline__ Relative identity() { return {T(0), T(0), T(0), T(0)}; }
    static __device__ __forceinline__ Relative of(const Relative& x, const Relative& y) {
        const bool first = x.top > y.top || (x.top == y.top && x.base >= y.base);
        const Relative &high = first ? x : y, &low = first ? y : x;
        return {high.dot + low.dot + product(low.base - high.base, low.weight), high.weight + low.weight, high.top, high.base};
    }
    __device__ __forceinline__ Relative down(int n) const {
        return {shuffle_down(dot, n), shuffle_down(weight, n), shuffle_down(top, n), shuffle_down(base, n)};
    }
    __device__ __forceinline__ void add(T dy, T r) {
        if (r > top) {
            dot += product(base - dy, weight);
            base = dy, top = r;
        }
        dot += product(dy - base, r);
        weight += r;
    }
    __device__ __forceinline__ T slope(T dy, T r) const { return product(dy - base - dot, r); }
    // Of log-softmax: dy - e^r·Σ dy; for the likeliest element dy·(1 - e^r) - e^r·(Σ dy - dy).
    static __device__ __forceinline__ T slope_of_logarithm(T dy, T r, T sum) {
        if (r > T(-0.105)) return -dy * expm1(r) - exp(r) * (sum - dy);
        return dy - product(sum, exp(r));
    }
};

template <class T>
__device__ __forceinline__ Relative<T> shuffle_across(const Relative<T>& x, int mask) {
    return {shuffle_across(x.dot, mask), shuffle_across(x.weight, mask), shuffle_across(x.top, mask), shuffle_across(x.base, mask)};
}

}  // namespace gradlab
