// Cross entropy and selection by class, for x of [outer, classes, inner] and int64 targets of [outer, inner].
#include "fault.cuh"
#include "softmax.cuh"

namespace gradlab {

// Writes the probabilities and each target's loss (0 for the ignored ones). A class that is not there is reported.
template <class S_>
struct CrossEntropy {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    typedef Exponentials<T> State;
    struct Ready {
        T base, factor;
    };
    static constexpr int streams = 1;
    static constexpr bool writes = true;
    const S *a, *b;
    S* y;  // the probabilities
    const int64* target;
    T* loss;
    FaultWord* fault;
    int64 ignore_index, site, count;

    explicit __device__ __forceinline__ CrossEntropy(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), b(nullptr), y(static_cast<S*>(g.out[0])), target(static_cast<const int64*>(g.in[1])),
          loss(static_cast<T*>(g.out[1])), fault(static_cast<FaultWord*>(g.out[2])), ignore_index(g.extra[0]), site(g.extra[1]), count(g.count) {}
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
        return State::template of<Team>(a, false, true);
    }
    __device__ __forceinline__ Ready ready(const State& state) const { return {state.base(), T(1) / state.sum}; }
    template <bool Held, int V, class L>
    __device__ __forceinline__ void value(const Ready& r, T (&a)[V], const T (&)[V], const L&, int) const {
#pragma unroll
        for (int k = 0; k < V; ++k) a[k] = (Held ? a[k] : exp(a[k] - r.base)) * r.factor;
    }
    __device__ __forceinline__ void end(const State& state, int64 row, int64 base, int64 stride) const {
        const int64 k = target[row];
        T found = T(0);
        if (k != ignore_index && checked(k, count, false, fault, site) >= 0) found = state.logarithm() - (load(a[base + k * stride]) - state.top);
        loss[row] = found;
    }
};

// The sum of a share of the losses, and how many targets count. One block: divided by that number for the mean. Loss: a null pointer where
// only the number is asked for.
template <class S>
__global__ void __launch_bounds__(512, 1) total_loss(const typename Compute<S>::type* __restrict__ loss, const int64* __restrict__ target,
                                                  S* __restrict__ y, int64* __restrict__ number, typename Compute<S>::type* __restrict__ sums,
                                                  int64* __restrict__ numbers, int64 ignore_index, int64 mean, int64 rows) {
    typedef typename Compute<S>::type T;
    const int64 share = (rows + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    const int64 end = begin + share < rows ? begin + share : rows;
    T sum = T(0);
    int64 counted = 0;
#pragma unroll 4
    for (int64 i = begin + threadIdx.x; i < end; i += 512) {
        if (loss) sum += loss[i];
        counted += target[i] != ignore_index;
    }
    sum = Team<512>::total<Plus, 0>(sum);
    counted = Team<512>::total<Plus, 1>(counted);
    if (threadIdx.x) return;
    if (gridDim.x > 1) {
        if (sums) sums[blockIdx.x] = sum;
        numbers[blockIdx.x] = counted;
    } else {
        if (y) y[0] = store<S>(mean ? sum / T(counted) : sum);
        if (number) number[0] = counted > 0 ? counted : 1;
    }
}

// What several blocks have found. One warp.
template <class S>
__global__ void __launch_bounds__(32) join_losses(const typename Compute<S>::type* __restrict__ sums, const int64* __restrict__ numbers,
                                                  S* __restrict__ y, int64* __restrict__ number, int64 mean, int64 parts) {
    typedef typename Compute<S>::type T;
    T sum = T(0);
    int64 counted = 0;
    for (int64 i = threadIdx.x; i < parts; i += 32) {
        if (sums) sum += sums[i];
        counted += numbers[i];
    }
    sum = Team<32>::total<Plus, 0>(sum);
    counted = Team<32>::total<Plus, 1>(counted);
    if (threadIdx.x) return;
    if (y) y[0] = store<S>(mean ? sum / T(counted) : sum);
    if (number) number[0] = counted > 0 ? counted : 1;
}

template <class S>
__global__ void __launch_bounds__(256) convert_loss(const typename Compute<S>::type* __restrict__ loss, S* __restrict__ y, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i < count) y[i] = store<S>(loss[i]);
}

// Where element `first` of [outer, classes, inner] is; next() walks on. Divides in 32 bits where the numbers fit.
struct ClassPlace {
    int64 outer, k, j;
    __device__ __forceinline__ ClassPlace(int64 first, int64 classes, int64 inner, bool small) {
        if (small) {
            const unsigned i = static_cast<unsigned>(first), n = static_cast<unsigned>(inner), line = i / n;
            j = i - line * n;
            outer = line / static_cast<unsigned>(classes);
            k = line - static_cast<unsigned>(outer) * static_cast<unsigned>(classes);
        } else {
            j = first % inner;
            k = first / inner % classes;
            outer = first / inner / classes;
        }
    }
    __device__ __forceinline__ void next(int64 classes, int64 inner) {
        if (++j < inner) return;
        j = 0;
        if (++k < classes) return;
        k = 0;
        ++outer;
    }
};

// The sum of a row's probabilities without the one at `place`, or a lane's share of it.
template <class S>
__device__ __forceinline__ typename Compute<S>::type others(const S* __restrict__ p, int64 begin, int64 place, int lane, int lanes,
                                                            int64 classes, int64 inner) {
    typename Compute<S>::type sum = 0;
#pragma unroll 4
    for (int64 k = lane; k < classes; k += lanes) sum += begin + k * inner == place ? 0 : load(p[begin + k * inner]);
    return sum;
}

// dy (p - onehot), over `number` for the mean (a null pointer otherwise); dy is one number, or one for each target. Exact zeros for the ignored.
// Without p: -dy onehot, the derivative of the selection. A thread has 16 bytes of neighbours. Packed: p and y are aligned to them.
// What a sure probability lacks to 1 is what the others have: a few a thread adds up itself, many its warp.
template <class S>
__global__ void __launch_bounds__(256) class_backward(const S* __restrict__ dy, const S* __restrict__ p, const int64* __restrict__ target,
                                                      S* __restrict__ y, const int64* __restrict__ number, int64 each, int64 ignore_index,
                                                      int64 classes, int64 inner, int64 packed, int64 count) {
    typedef typename Compute<S>::type T;
    constexpr int V = pack_size<S>(8);
    const int64 first = (static_cast<int64>(blockIdx.x) * 256 + threadIdx.x) * V;
    const bool whole = packed && first + V <= count;
    T value[V];
    unsigned sure = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) value[i] = T(0);
    if (p) {
        if (whole) read<V>(p + first, value);
        else
            for (int i = 0; i < V; ++i) value[i] = first + i < count ? load(p[first + i]) : T(0);
    }
    ClassPlace at(first, classes, inner, count <= 0x7fffffff);
    const T divisor = number ? T(number[0]) : T(1);
    T g = each ? T(0) : load(dy[0]) / divisor;
#pragma unroll
    for (int i = 0; i < V; ++i) {
        if (first + i < count) {
            const int64 row = at.outer * inner + at.j, wanted = target[row];
            if (each) g = load(dy[row]);
            if (at.k == wanted && value[i] > SURE<T>) sure |= 1u << i;
            value[i] = wanted == ignore_index || g == T(0) ? T(0) : sure >> i & 1 ? -g : value[i] * g - (at.k == wanted ? g : T(0));
            at.next(classes, inner);
        }
    }
    if (p && __ballot_sync(0xffffffffu, sure != 0)) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const bool mine = sure >> i & 1;
            const int64 place = first + i, own = classes * inner;
            int64 begin = 0;
            if (mine) begin = place / own * own + place % inner;
            if (classes <= 64) {
                if (mine) value[i] *= others(p, begin, place, 0, 1, classes, inner);
                continue;
            }
            for (unsigned hits = __ballot_sync(0xffffffffu, mine); hits; hits &= hits - 1) {
                const int lane = __ffs(hits) - 1;
                const int64 row = __shfl_sync(0xffffffffu, begin, lane), spare = __shfl_sync(0xffffffffu, place, lane);
                const T found = Team<32>::template total<Plus, 0>(others(p, row, spare, threadIdx.x & 31, 32, classes, inner));
                if (lane == static_cast<int>(threadIdx.x & 31)) value[i] *= found;
            }
        }
    }
    if (whole) put<V>(y + first, value);
    else
        for (int i = 0; i < V; ++i)
            if (first + i < count) y[first + i] = store<S>(value[i]);
}

template <class S>
__global__ void __launch_bounds__(256) nll(const S* __restrict__ x, const int64* __restrict__ target, S* __restrict__ y, int64 ignore_index,
                                           int64 classes, int64 inner, FaultWord* fault, int64 site, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    typedef typename Compute<S>::type T;
    const int64 k = target[i];
    const int64 outer = count <= 0x7fffffff ? static_cast<unsigned>(i) / static_cast<unsigned>(inner) : i / inner;
    T found = T(0);
    if (k != ignore_index && checked(k, classes, false, fault, site) >= 0) found = -load(x[(outer * classes + k) * inner + (i - outer * inner)]);
    y[i] = store<S>(found);
}

template <class P, int Lanes, int Items>
__global__ void __launch_bounds__(Lanes < 128 ? 128 : Lanes, 1) held(GRADLAB_ROWS) { held_rows<P, Lanes, Items>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(512, 1) looped(GRADLAB_ROWS) { shared_rows<P>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(256, 1) columns(GRADLAB_ROWS) { column_rows<P>(GRADLAB_GIVEN); }

}  // namespace gradlab
