// The norm of one row: layer norm where there are means to write or to read, else rms norm. What the policies for rows.cuh share that normalise
// a row (norm.cu) and a sum of two (residual.cu).
#pragma once
#include "welford.cuh"

namespace gradlab {

// weight and bias may be null pointers. Statistics are not rounded to a half type: they are of the type that is computed in.
template <class S_>
struct NormOfRow {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Moments<T> State;  // without a mean, which stays 0, the squares of the elements themselves
    struct Ready {
        Centre<T> centre;
        T scale;
    };
    static constexpr bool writes = true;
    const S *weight, *bias;
    T *mean, *rstd;
    double eps;
    int64 count;
    T near = T(0);  // a number near the mean, where there is one

    __device__ __forceinline__ T blank() const { return near; }
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::merge(x, y); }
    // Some elements more of a row that is not held.
    template <int N, class L>
    __device__ __forceinline__ void gather(State& state, const T (&s)[N], const L& places) const {
        if (mean) state.add(s, near, places);
        else state.squares += Squares<T>::of(s);
    }
    // Of a row that a team holds: its mean, and the squares of the distances from it.
    template <class Team, int N, class L>
    __device__ __forceinline__ State spread(const T (&s)[N], const L& places) const {
        double middle = 0;
        T counted, d[N];
        if (mean) middle = mean_of(Team::template total<Plus, 0>(sum_of(s, near, places, counted)), T(count > 0 ? count : 1));
        const Centre<T> centre(middle);
#pragma unroll
        for (int k = 0; k < N; ++k) d[k] = places.inside(k) ? centre.to(s[k] - near) : T(0);
        return {T(count), middle, Team::template total<Plus, 1>(Squares<T>::of(d))};
    }
    __device__ __forceinline__ Ready ready(const State& state) const {
        return {Centre<T>(state.mean), Squares<T>::scale(state.squares, T(count > 0 ? count : 1), eps)};
    }
    // Elements of the row become elements of the result.
    template <int V, class L>
    __device__ __forceinline__ void apply(const Ready& r, T (&s)[V], const L& places, int at) const {
        T w[V], c[V];
        take(weight, places, at, T(1), w);
        take(bias, places, at, T(0), c);
#pragma unroll
        for (int k = 0; k < V; ++k) s[k] = r.centre.to(s[k] - near) * r.scale * w[k] + c[k];
    }
    __device__ __forceinline__ void end(const State& state, int64 row, int64, int64) const {
        const Ready r = ready(state);
        if (mean) mean[row] = static_cast<T>(near + state.mean);
        rstd[row] = r.scale;
    }
};
}  // namespace gradlab
