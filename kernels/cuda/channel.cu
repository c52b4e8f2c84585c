// Batch normalisation with the statistics of the batch, forward and backward: channels of an array [batch, channels, inner].
//
// Where inner is 1, channels are the rows of rows.cuh's columns. Otherwise one or several blocks have a channel, as a long row there.
#include "welford.cuh"

namespace gradlab {

// What policies of this file are made of.
struct Channels : Rows {
    const void* beside;  // an array like x that is read beside it, where the policy does
};

// A gradient behind a ReLU, whose result lies beside: 0 where that is.
template <class S>
struct Masked {
    const S *slope, *result;
    __device__ __forceinline__ Masked operator+(int64 n) const { return {slope + n, result + n}; }
};
template <class L, class S, class T, int N>
__device__ __forceinline__ void fetch(const Masked<S>& row, int64 stride, const L& places, T blank, T (&value)[N]) {
    T result[N];
    fetch(row.slope, stride, places, blank, value);
    fetch(row.result, stride, places, T(0), result);
#pragma unroll
    for (int k = 0; k < N; ++k) value[k] = result[k] <= T(0) ? T(0) : value[k];
}
template <class S, bool Behind>
struct Gradient {
    typedef const S* type;
    static __device__ __forceinline__ type of(const Channels& g) { return static_cast<const S*>(g.in[0]); }
};
template <class S>
struct Gradient<S, true> {
    typedef Masked<S> type;
    static __device__ __forceinline__ type of(const Channels& g) { return {static_cast<const S*>(g.in[0]), static_cast<const S*>(g.beside)}; }
};

// extra[0]: whether a ReLU follows. Added: what lies beside is added before. It is read for results alone: `add` leaves it.
template <class S_, bool Added>
struct BatchNorm {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Moments<T> State;
    struct Ready {
        Centre<T> centre;
        T factor;
    };
    static constexpr int streams = Added ? 2 : 1;
    static constexpr bool writes = true;
    const S *a, *b, *weight, *bias;
    S* y;
    T *mean, *rstd, *var;  // not rounded to a half type
    double eps;
    bool some, relu;
    T gain, shift, near;

    explicit __device__ __forceinline__ BatchNorm(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), b(static_cast<const S*>(static_cast<const Channels&>(g).beside)),
          weight(static_cast<const S*>(g.in[1])), bias(static_cast<const S*>(g.in[2])), y(static_cast<S*>(g.out[0])),
          mean(static_cast<T*>(g.out[1])), rstd(static_cast<T*>(g.out[2])), var(static_cast<T*>(g.out[3])), eps(g.number),
          some(g.count > 0 && g.inner > 0), relu(g.extra[0] != 0), gain(1), shift(0), near(0) {}
    __device__ __forceinline__ T blank() const { return near; }
    __device__ __forceinline__ void enter(int64 channel, int64 first) {
        if (some) near = near_of(a + first);
        if (weight) gain = load(weight[channel]);
        if (bias) shift = load(bias[channel]);
    }
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::merge(x, y); }
    template <int N, int M, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&)[M], const L& places) const {
        state.add(a, near, places);
    }
    __device__ __forceinline__ Ready ready(const State& state) const { return {Centre<T>(state.mean), state.scale(eps) * gain}; }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&b)[V], const L&, int) const {
#pragma unroll
        for (int k = 0; k < V; ++k) {
            a[k] = r.centre.to(a[k] - near) * r.factor + shift;
            if constexpr (Added) a[k] = load(store<S>(a[k])) + b[k];  // as two operations round
            if (relu) a[k] = maximum(a[k], T(0));
        }
    }
    __device__ __forceinline__ void end(const State& state, int64 channel, int64, int64) const {
        mean[channel] = static_cast<T>(near + state.mean);
        rstd[channel] = state.scale(eps);
        var[channel] = static_cast<T>(state.squares / maximum(state.n, T(1)));
    }
};

// a: the gradient dy, b: x. Behind: dy is what arrives at a ReLU behind the norm, whose result lies beside.
template <class S_, bool Behind>
struct BatchNormBackward {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Sums<T> State;
    struct Ready {
        T by_x, by_one, factor;
    };
    static constexpr int streams = 2;
    static constexpr bool writes = true;
    typename Gradient<S, Behind>::type a;
    const S *b, *weight;
    const T *mean, *rstd;
    S *y, *dweight, *dbias;
    T n, centre, scale, gain;

    explicit __device__ __forceinline__ BatchNormBackward(const Rows& g)
        : a(Gradient<S, Behind>::of(static_cast<const Channels&>(g))), b(static_cast<const S*>(g.in[1])),
          weight(static_cast<const S*>(g.in[2])), mean(static_cast<const T*>(g.in[3])), rstd(static_cast<const T*>(g.in[4])), y(static_cast<S*>(g.out[0])),
          dweight(static_cast<S*>(g.out[1])), dbias(static_cast<S*>(g.out[2])), n(T(g.extra[0])), centre(0), scale(0), gain(1) {}
    static __device__ __forceinline__ T blank() { return T(0); }
    __device__ __forceinline__ void enter(int64 channel, int64) {
        centre = mean[channel];
        scale = rstd[channel];
        if (weight) gain = load(weight[channel]);
    }
    static __device__ __forceinline__ State identity() { return State::identity(); }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return State::merge(x, y); }
    template <int N, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&b)[N], const L&) const {
        T dot = T(0), sum = T(0);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            dot += a[k] * (b[k] - centre);  // a is zero outside
            sum += a[k];
        }
        state.dot += dot;
        state.sum += sum;
    }
    __device__ __forceinline__ Ready ready(const State& state) const {
        return {static_cast<T>(state.dot) * scale * scale / n, static_cast<T>(state.sum) / n, scale * gain};
    }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&b)[V], const L&, int) const {
#pragma unroll
        for (int k = 0; k < V; ++k) a[k] = (a[k] - (b[k] - centre) * r.by_x - r.by_one) * r.factor;
    }
    __device__ __forceinline__ void end(const State& state, int64 channel, int64, int64) const {
        dweight[channel] = store<S>(static_cast<T>(state.dot) * scale);
        dbias[channel] = store<S>(static_cast<T>(state.sum));
    }
};

// A thread's next elements of a channel, as Places: N / V times V, in one plane or (planes that a step covers) of several planes at one place.
template <int V, int N>
struct InPlanes {
    static constexpr int width = V;
    bool packed;
    int each, left[N / V];
    int64 place[N / V];
    __device__ __forceinline__ bool some() const { return left[0] > 0; }
    __device__ __forceinline__ bool inside(int k) const { return k % V * each < left[k / V]; }
    __device__ __forceinline__ int64 at(int k) const { return place[k / V] + k % V * each; }
    __device__ __forceinline__ int64 near(int k) const { return inside(k) ? at(k) : place[0]; }
};

// Of rows.cuh's arguments: rows are the channels, count the batch, extra[1] the threads that a step takes along a plane.
template <class P>
__device__ __forceinline__ void channel_rows(const Channels& g) {
    typedef typename P::State State;
    typedef typename P::T T;
    constexpr int V = pack_size<typename P::S>(8), N = batch_of<V>, U = N / V;
    P p(g);
    const bool packed = g.packed();
    const int64 channel = blockIdx.x / g.parts, part = blockIdx.x % g.parts;
    const int stage = g.stage(), across = static_cast<int>(g.extra[1]), lane = threadIdx.x & (across - 1), line = threadIdx.x / across;
    const int64 lines = 256 / across, covered = static_cast<int64>(across) * V;
    const bool several = g.inner <= covered;
    const int64 pieces = several ? 1 : (g.inner + U * covered - 1) / (U * covered), total = g.count * pieces, step = g.parts * lines;
    p.enter(channel, channel * g.inner);

    // The elements of a round that begins with piece `first`.
    const auto places_of = [&](int64 first) {
        InPlanes<V, N> places;
        places.packed = packed;
        places.each = packed ? 1 : across;
        const int64 plane = several ? first : first / pieces, start = several ? 0 : (first - plane * pieces) * U * covered;
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int64 image = several ? plane + u * step : plane, i = start + (several ? 0 : u * covered) + lane * (packed ? V : 1);
            const int64 left = image < g.count ? g.inner - i : 0;
            places.left[u] = static_cast<int>(left < covered ? left : covered);
            places.place[u] = (image * g.rows + channel) * g.inner + i;
        }
        return places;
    };
    const int64 begin = part * lines + line, stride = several ? U * step : step;
    T a[N], b[P::streams > 1 ? N : 1];
    b[0] = T(0);

    State* partial = static_cast<State*>(g.partial);
    State state = P::identity();
    if (stage != RESULTS) {
#pragma unroll 1
        for (int64 first = begin; first < total; first += stride) {
            const auto places = places_of(first);
            if (!places.some()) continue;
            fetch(p.a, 1, places, p.blank(), a);
            if constexpr (P::streams > 1) fetch(p.b, 1, places, T(0), b);
            p.add(state, a, b, places);
        }
    } else if (threadIdx.x < g.parts) {
        state = partial[channel * g.parts + threadIdx.x];
    }
    state = block_total<P>(state);
    if (stage == TOTALS) {
        if (threadIdx.x == 0) partial[channel * g.parts + part] = state;
        return;
    }
    const typename P::Ready ready = p.ready(state);
#pragma unroll 1
    for (int64 first = begin; first < total; first += stride) {
        const auto places = places_of(first);
        fetch(p.a, 1, places, p.blank(), a);
        if constexpr (P::streams > 1) fetch(p.b, 1, places, T(0), b);
        write_values<P, false>(p, ready, places, 0, 1, a, b);
    }
    if (threadIdx.x == 0 && part == 0) p.end(state, channel, 0, 1);
}

template <class P>
__global__ void __launch_bounds__(256, 1) channel(GRADLAB_ROWS, const void* beside) {
    channel_rows<P>(Channels{GRADLAB_GIVEN, beside});
}
template <class P>
__global__ void __launch_bounds__(256, 1) columns(GRADLAB_ROWS, const void* beside) {
    column_rows<P>(Channels{GRADLAB_GIVEN, beside});
}

}  // namespace gradlab
