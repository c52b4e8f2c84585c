// Softmax, its logarithm and their derivatives over the middle dimension of [outer, count, inner]: policies for the forms of rows.cuh.
#include "softmax.cuh"

namespace gradlab {

// extra[1]: log-softmax. Otherwise softmax, of which a row of nothing but -inf gives zeros if it is masked (extra[0]).
template <class S_>
struct Softmax {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Exponentials<T> State;
    struct Ready {
        T base, factor, shift;  // the result is exp(x - base) factor, or x - base + shift: of what is held a · factor + shift
    };
    static constexpr int streams = 1;
    static constexpr bool writes = true;
    const S *a, *b;
    S* y;
    bool masked, logarithm;

    explicit __device__ __forceinline__ Softmax(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), b(nullptr), y(static_cast<S*>(g.out[0])), masked(g.extra[0]), logarithm(g.extra[1]) {}
    static __device__ __forceinline__ T blank() { return -infinity<T>(); }
    __device__ __forceinline__ void enter(int64, int64) {}
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::merge(x, y); }
    template <int N, int M, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&)[M], const L&) const {
        state.add(a);
    }
    template <class Team, int N, int M, class L>
    __device__ __forceinline__ State hold(T (&a)[N], const T (&)[M], const L&) const {
        return State::template of<Team>(a, logarithm, logarithm);
    }
    __device__ __forceinline__ Ready ready(const State& state) const {
        if (logarithm) return {state.base(), T(1), -state.logarithm()};
        return {state.base(), masked && state.sum == T(0) ? T(0) : T(1) / state.sum, T(0)};
    }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&)[V], const L&, int) const {
#pragma unroll
        for (int k = 0; k < V; ++k) {
            if constexpr (!Held) {
                a[k] -= r.base;
                if (!logarithm) a[k] = exp(a[k]);
            }
            a[k] = a[k] * r.factor + r.shift;
        }
    }
    __device__ __forceinline__ void end(const State&, int64, int64, int64) const {}
};

// a: the gradient dy, b: the result r. extra[1]: of log-softmax.
template <class S_>
struct SoftmaxBackward {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Relative<T> State;
    typedef State Ready;
    static constexpr int streams = 2;
    static constexpr bool writes = true;
    const S *a, *b;
    S* y;
    bool logarithm;

    explicit __device__ __forceinline__ SoftmaxBackward(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), b(static_cast<const S*>(g.in[1])), y(static_cast<S*>(g.out[0])), logarithm(g.extra[1]) {}
    static __device__ __forceinline__ T blank() { return T(0); }
    __device__ __forceinline__ void enter(int64, int64) {}
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::of(x, y); }
    template <int N, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&b)[N], const L&) const {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (logarithm) state.dot += a[k];
            else state.add(a[k], b[k]);
        }
    }
    template <class Team, int N, class L>
    __device__ __forceinline__ State hold(const T (&a)[N], const T (&b)[N], const L& places) const {
        State state = identity();
        add(state, a, b, places);
        return Team::template total<State, 0>(state);
    }
    __device__ __forceinline__ Ready ready(const State& state) const { return state; }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&b)[V], const L&, int) const {
#pragma unroll
        for (int k = 0; k < V; ++k) a[k] = logarithm ? State::slope_of_logarithm(a[k], b[k], r.dot) : r.slope(a[k], b[k]);
    }
    __device__ __forceinline__ void end(const State&, int64, int64, int64) const {}
};

template <class P, int Lanes, int Items>
__global__ void __launch_bounds__(Lanes < 128 ? 128 : Lanes, 1) held(GRADLAB_ROWS) { held_rows<P, Lanes, Items>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(512, 1) looped(GRADLAB_ROWS) { shared_rows<P>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(256, 1) columns(GRADLAB_ROWS) { column_rows<P>(GRADLAB_GIVEN); }

}  // namespace gradlab
