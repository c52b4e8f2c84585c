// The norm of a sum: s = x + residual, and the layer norm or rms norm of s, in one pass over both. Layer norm where there are means to write,
// else rms norm: one kernel for both. The derivative, with the gradient that s gets elsewhere added on the way, is `held_backward` of norm.cu.
#include "welford.cuh"

namespace gradlab {

// a: x, b: the residual. Elements of s stay in registers, not rounded, where they are held.
template <class S_>
struct SumNorm {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Moments<T> State;  // without a mean, which stays 0, the squares of the elements themselves
    struct Ready {
        T centre, scale;
    };
    static constexpr int streams = 2;
    static constexpr bool writes = true;
    const S *a, *b, *weight, *bias;
    S *y, *sum, *mean, *rstd;
    double eps;
    int64 count, base;

    explicit __device__ __forceinline__ SumNorm(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), b(static_cast<const S*>(g.in[1])), weight(static_cast<const S*>(g.in[2])),
          bias(static_cast<const S*>(g.in[3])), y(static_cast<S*>(g.out[0])), sum(static_cast<S*>(g.out[1])), mean(static_cast<S*>(g.out[2])),
          rstd(static_cast<S*>(g.out[3])), eps(g.number), count(g.count), base(0) {}
    static __device__ __forceinline__ T blank() { return T(0); }
    __device__ __forceinline__ void enter(int64 row) { base = row * count; }
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::merge(x, y); }
    template <int N, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&b)[N], const L& places) const {
        T s[N];
#pragma unroll
        for (int k = 0; k < N; ++k) s[k] = a[k] + b[k];
        if (mean) {
            state.add(s, places);
            return;
        }
        T squares = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) squares += s[k] * s[k];
        state.squares += squares;
        state.n += T(N);
    }
    template <class Team, int N, class L>
    __device__ __forceinline__ State hold(T (&a)[N], const T (&b)[N], const L& places) const {
        constexpr int V = L::width;
        T centre = T(0), squares = T(0);
#pragma unroll
        for (int k = 0; k < N; k += V) {
            T few[V];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                a[k + j] += b[k + j];
                few[j] = a[k + j];
                centre += a[k + j];
            }
            give(sum + base, 1, places, k, few);
        }
        centre = mean ? Team::template total<Plus, 0>(centre) / T(count > 0 ? count : 1) : T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T d = places.inside(k) ? a[k] - centre : T(0);
            squares += d * d;
        }
        return {T(count), centre, Team::template total<Plus, 1>(squares)};
    }
    __device__ __forceinline__ Ready ready(const State& state) const {
        return {state.mean, T(1) / sqrt(state.squares / T(count > 0 ? count : 1) + T(eps))};
    }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&b)[V], const L& places, int k) const {
        if constexpr (!Held) {
#pragma unroll
            for (int j = 0; j < V; ++j) a[j] += b[j];
            give(sum + base, 1, places, k, a);
        }
        T w[V], c[V];
        take(weight, places, k, T(1), w);
        take(bias, places, k, T(0), c);
#pragma unroll
        for (int j = 0; j < V; ++j) a[j] = (a[j] - r.centre) * r.scale * w[j] + c[j];
    }
    __device__ __forceinline__ void end(const State& state, int64 row, int64, int64) const {
        const Ready r = ready(state);
        if (mean) mean[row] = store<S>(r.centre);
        rstd[row] = store<S>(r.scale);
    }
};

// Of rows that are too long for registers the derivative comes without that gradient; then this adds it.
template <class S>
__global__ void __launch_bounds__(256) add_rest(S* __restrict__ dx, const S* __restrict__ ds, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i < count) dx[i] = store<S>(load(dx[i]) + load(ds[i]));
}

template <class P, int Lanes, int Items>
__global__ void __launch_bounds__(Lanes < 128 ? 128 : Lanes, 1) held(GRADLAB_ROWS) { held_rows<P, Lanes, Items>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(512, 1) looped(GRADLAB_ROWS) { shared_rows<P>(GRADLAB_GIVEN); }
}  // namespace gradlab
