// The norm of a sum: s = x + residual, and the layer norm or rms norm of s, in one pass over both. Layer norm where there are means to write,
// else rms norm: one kernel for both. The derivative, with the gradient that s gets elsewhere added on the way, is `held_backward` of norm.cu.
#include "norm.cuh"

namespace gradlab {

// a: x, b: the residual. Elements of s stay in registers, not rounded, where they are held.
template <class S_>
struct SumNorm : NormOfRow<S_> {
    typedef S_ S;
    typedef NormOfRow<S> Base;
    typedef typename Base::T T;
    typedef typename Base::State State;
    typedef typename Base::Ready Ready;
    static constexpr int streams = 2;
    const S *a, *b;
    S *y, *sum;
    int64 base;

    explicit __device__ __forceinline__ SumNorm(const Rows& g)
        : Base{static_cast<const S*>(g.in[2]), static_cast<const S*>(g.in[3]), static_cast<T*>(g.out[2]), static_cast<T*>(g.out[3]), g.number,
               g.count},
          a(static_cast<const S*>(g.in[0])), b(static_cast<const S*>(g.in[1])), y(static_cast<S*>(g.out[0])), sum(static_cast<S*>(g.out[1])),
          base(0) {}
    __device__ __forceinline__ void enter(int64, int64 first) {
        base = first;
        if (this->mean && this->count) this->near = near_of(a + first) + near_of(b + first);
    }
    template <int N, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&b)[N], const L& places) const {
        T s[N];
#pragma unroll
        for (int k = 0; k < N; ++k) s[k] = a[k] + b[k];
        this->gather(state, s, places);
    }
    template <class Team, int N, class L>
    __device__ __forceinline__ State hold(T (&a)[N], const T (&b)[N], const L& places) const {
        constexpr int V = L::width;
#pragma unroll
        for (int k = 0; k < N; k += V) {
            T few[V];
#pragma unroll
            for (int j = 0; j < V; ++j) {
                a[k + j] += b[k + j];
                few[j] = a[k + j];
            }
            give(sum + base, 1, places, k, few);
        }
        return this->template spread<Team>(a, places);
    }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&b)[V], const L& places, int k) const {
        if constexpr (!Held) {
#pragma unroll
            for (int j = 0; j < V; ++j) a[j] += b[j];
            give(sum + base, 1, places, k, a);
        }
        this->apply(r, a, places, k);
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
