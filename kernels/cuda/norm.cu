// Normalisations of rows of neighbouring elements (layer norm, rms norm): policies for the forms of rows.cuh, and the derivative that sums over
// rows for the weights on its way.
#include "norm.cuh"

namespace gradlab {

template <class S_>
struct RowNorm : NormOfRow<S_> {
    typedef S_ S;
    typedef NormOfRow<S> Base;
    typedef typename Base::T T;
    typedef typename Base::State State;
    typedef typename Base::Ready Ready;
    static constexpr int streams = 1;
    const S *a, *b;
    S* y;

    explicit __device__ __forceinline__ RowNorm(const Rows& g)
        : Base{static_cast<const S*>(g.in[1]), static_cast<const S*>(g.in[2]), static_cast<T*>(g.out[1]), static_cast<T*>(g.out[2]), g.number,
               g.count},
          a(static_cast<const S*>(g.in[0])), b(nullptr), y(static_cast<S*>(g.out[0])) {}
    __device__ __forceinline__ void enter(int64, int64 first) {
        if (this->mean && this->count) this->near = near_of(a + first);
    }
    template <int N, int M, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&)[M], const L& places) const {
        this->gather(state, a, places);
    }
    template <class Team, int N, int M, class L>
    __device__ __forceinline__ State hold(T (&a)[N], const T (&)[M], const L& places) const {
        return this->template spread<Team>(a, places);
    }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&)[V], const L& places, int at) const {
        this->apply(r, a, places, at);
    }
};

// Of rows that are too long for registers. a: the gradient dy, b: x.
template <class S_>
struct RowNormBackward {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Sums<T> State;
    struct Ready {
        T dot, sum;
    };
    static constexpr int streams = 2;
    static constexpr bool writes = true;
    const S *a, *b, *weight;
    const T *mean, *rstd;
    S* y;
    int64 count;
    T centre, scale;

    explicit __device__ __forceinline__ RowNormBackward(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), b(static_cast<const S*>(g.in[1])), weight(static_cast<const S*>(g.in[2])),
          mean(static_cast<const T*>(g.in[3])), rstd(static_cast<const T*>(g.in[4])), y(static_cast<S*>(g.out[0])), count(g.count),
          centre(0), scale(0) {}
    static __device__ __forceinline__ T blank() { return T(0); }
    __device__ __forceinline__ void enter(int64 row, int64) {
        if (mean) centre = mean[row];
        scale = rstd[row];
    }
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::merge(x, y); }
    template <int N, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&b)[N], const L& places) const {
        constexpr int V = L::width;
        T dot = T(0), sum = T(0);
#pragma unroll
        for (int k = 0; k < N; k += V) {
            T w[V];
            take(weight, places, k, T(1), w);
#pragma unroll
            for (int j = 0; j < V; ++j) {  // a is zero outside
                const T u = a[k + j] * w[j];
                dot += u * ((b[k + j] - centre) * scale);
                sum += u;
            }
        }
        state.dot += dot;
        state.sum += sum;
    }
    __device__ __forceinline__ Ready ready(const State& state) const {
        return {static_cast<T>(state.dot) / T(count), mean ? static_cast<T>(state.sum) / T(count) : T(0)};
    }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&b)[V], const L& places, int at) const {
        T w[V];
        take(weight, places, at, T(1), w);
#pragma unroll
        for (int k = 0; k < V; ++k) a[k] = (a[k] * w[k] - ((b[k] - centre) * scale * r.dot + r.sum)) * scale;
    }
    __device__ __forceinline__ void end(const State&, int64, int64, int64) const {}
};

// The number itself, as if it were another one in each turn of a loop: what depends on it is computed there, not once before it and held in
// registers, for which ptxas spilled others on sm_100.
__device__ __forceinline__ int anew(int value) {
#if !defined(__CUDAEMU__)
    asm volatile("" : "+r"(value));
#endif
    return value;
}

// The derivative of rows in registers. A block takes every gridDim.x-th group of rows; its threads keep their columns, so that the sums over rows
// of dy * normal and of dy stay in registers, and go to partial [gridDim.x, 2, count] at the end: each array is read once. mean: a null pointer
// for rms norm. more: what x gets of a gradient elsewhere, added to dx, or a null pointer.
template <class S, int Lanes, int Items>
__global__ void __launch_bounds__(Lanes < 128 ? 128 : Lanes, 1)
    held_backward(const S* __restrict__ dy, const S* __restrict__ x, const S* __restrict__ weight,
                  const typename Compute<S>::type* __restrict__ mean, const typename Compute<S>::type* __restrict__ rstd,
                  const S* __restrict__ more, S* __restrict__ dx, typename Compute<S>::type* __restrict__ partial, int64 rows, int64 count,
                  int64 packed) {
    typedef typename Compute<S>::type T;
    constexpr int V = pack_size<S>(Items), teams = Lanes < 128 ? 128 / Lanes : 1;
    const int lane = threadIdx.x % Lanes, mine = threadIdx.x / Lanes;
    const Places<V, Lanes> columns(packed, 0, lane, count);
    T by_weight[Items], by_bias[Items];
#pragma unroll
    for (int k = 0; k < Items; ++k) by_weight[k] = by_bias[k] = T(0);
    int turn = 0;
    for (int64 first = static_cast<int64>(blockIdx.x) * teams; first < rows; first += static_cast<int64>(gridDim.x) * teams) {
        const bool real = first + mine < rows;
        const int64 row = real ? first + mine : 0, base = row * count;
        const Places<V, Lanes> places(packed, 0, anew(lane), real ? count : 0);
        const T centre = mean && real ? mean[row] : T(0), scale = real ? rstd[row] : T(0);
        T g[Items], n[Items];
        fetch(dy + base, 1, places, T(0), g);
        fetch(x + base, 1, places, centre, n);
        T dot = T(0), sum = T(0);
#pragma unroll
        for (int k = 0; k < Items; k += V) {
            T w[V];
            take(weight, places, k, T(1), w);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                n[k + j] = (n[k + j] - centre) * scale;
                by_weight[k + j] += g[k + j] * n[k + j];
                by_bias[k + j] += g[k + j];
                g[k + j] *= w[j];
                dot += g[k + j] * n[k + j];
                sum += g[k + j];
            }
        }
        dot = Team<Lanes>::template total<Plus, 0>(dot, turn) / T(count);
        sum = mean ? Team<Lanes>::template total<Plus, 1>(sum, turn) / T(count) : T(0);
        turn ^= 1;
#pragma unroll
        for (int k = 0; k < Items; k += V) {
            T few[V];
            take(more ? more + base : nullptr, places, k, T(0), few);
#pragma unroll
            for (int j = 0; j < V; ++j) few[j] += (g[k + j] - (n[k + j] * dot + sum)) * scale;
            give(dx + base, 1, places, k, few);
        }
    }
    T* out = partial + static_cast<int64>(blockIdx.x) * 2 * count;
    if constexpr (teams > 1) {
        __shared__ T joined[2][Lanes * Items];
#pragma unroll 1
        for (int team = 0; team < teams; ++team) {
            if (team == mine) {
#pragma unroll
                for (int k = 0; k < Items; ++k) {
                    const int at = lane * (packed ? V : 1) + columns.offset(k);
                    joined[0][at] = team ? joined[0][at] + by_weight[k] : by_weight[k];
                    joined[1][at] = team ? joined[1][at] + by_bias[k] : by_bias[k];
                }
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < count; i += 128) {
            out[i] = joined[0][i];
            out[count + i] = joined[1][i];
        }
    } else {
#pragma unroll
        for (int k = 0; k < Items; ++k) {
            if (!columns.inside(k)) continue;
            out[columns.at(k)] = by_weight[k];
            out[count + columns.at(k)] = by_bias[k];
        }
    }
}

// One thread for each column walks down a share of the rows (blockIdx.y): partial sums of dy * normal and dy, [parts, 2, count].
// mean: a null pointer for rms norm.
template <class S>
__global__ void __launch_bounds__(256)
    column_sums(const S* __restrict__ dy, const S* __restrict__ x, const typename Compute<S>::type* __restrict__ mean,
                const typename Compute<S>::type* __restrict__ rstd, typename Compute<S>::type* __restrict__ partial, int64 rows, int64 parts,
                int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 share = (rows + parts - 1) / parts, begin = blockIdx.y * share;
    const int64 end = begin + share < rows ? begin + share : rows;
    T a = T(0), b = T(0);
#pragma unroll 4
    for (int64 row = begin; row < end; ++row) {
        const T g = load(dy[row * count + i]);
        a += g * ((load(x[row * count + i]) - (mean ? mean[row] : T(0))) * rstd[row]);
        b += g;
    }
    partial[(blockIdx.y * 2) * count + i] = a;
    partial[(blockIdx.y * 2 + 1) * count + i] = b;
}

// The shares of 32 columns, in order: eight walkers, whose sums are then added in order. dbias may be a null pointer. blockIdx.y: which of both.
template <class S>
__global__ void __launch_bounds__(256) join_columns(const typename Compute<S>::type* __restrict__ partial, S* __restrict__ dweight,
                                                    S* __restrict__ dbias, int64 parts, int64 count) {
    typedef typename Compute<S>::type T;
    __shared__ double found[8][32];
    const int lane = threadIdx.x & 31, walker = threadIdx.x >> 5;
    const int64 i = static_cast<int64>(blockIdx.x) * 32 + lane;
    S* out = blockIdx.y ? dbias : dweight;
    double sum = 0;
    if (i < count) {
#pragma unroll 4
        for (int64 part = walker; part < parts; part += 8) sum += partial[(part * 2 + blockIdx.y) * count + i];
    }
    found[walker][lane] = sum;
    __syncthreads();
    if (walker || i >= count || !out) return;
#pragma unroll
    for (int k = 1; k < 8; ++k) sum += found[k][lane];
    out[i] = store<S>(static_cast<T>(sum));
}

template <class P, int Lanes, int Items>
__global__ void __launch_bounds__(Lanes < 128 ? 128 : Lanes, 1) held(GRADLAB_ROWS) { held_rows<P, Lanes, Items>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(512, 1) looped(GRADLAB_ROWS) { shared_rows<P>(GRADLAB_GIVEN); }
}  // namespace gradlab
