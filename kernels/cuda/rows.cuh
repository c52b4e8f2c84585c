// Work on rows of an array [outer, count, inner], each of which needs totals over its elements first (softmax, norms, extremes).
//
// What is computed is a policy P, made of the kernel's arguments; how a row is walked is one of the forms below, chosen by the launch rule
// (launch/rows.py) from the sizes alone:
//   held      rows of at most Lanes * Items neighbouring elements: read once into the registers of their threads
//   looped    longer rows: a block reads the row for its totals, and once more (from the L2 cache) for its results. Few long rows are shared
//             by several blocks, in two launches: one (TOTALS) writes the blocks' totals, one (RESULTS) merges them in order and writes the
//             results. They are one kernel with a branch, because each instance has to be compiled for every type
//   columns   inner > 1: neighbouring threads take neighbouring rows, eight walkers share one; shared as above
// Totals are merged in an order that depends on the sizes alone, without atomics, so that two runs give the same bits.
//
// A policy supplies:
//   S, T, State          storage and compute type; totals, with down(n) and across(n): another lane's
//   streams, writes      how many arrays of rows are read (a; a and b); whether there is a result for each element
//   a, b, y              the arrays
//   blank()              what stands for elements of `a` past the end of a row (zeros in b)
//   enter(row, first)    read what belongs to the row, whose first element (if there is one) is number `first`
//   identity(), merge(), add(state, a, b, places)   totals: of nothing, of two, and of a few more elements
//   hold<Team>(a, b, places)    totals of a row whose elements are in registers, and these made ready for `value`
//   ready(state)         what `value` needs of the totals
//   value<Held>(ready, a, b, places, k)  the results in `a` for the elements k and on of a thread, places.width of them
//   end(state, row, base, stride)    by one thread of each row
//
// Each form is compiled once for a type: whether rows are read 16 bytes at a time is a branch around the accesses alone, and what differs little
// between operations (log-softmax and softmax, the largest and the smallest) is a number of the policy's, not a parameter of the template.
#pragma once
#include "reduce.cuh"

namespace gradlab {

// All kernels of rows take the same arguments.
struct Rows {
    const void* in[5];
    void* out[4];
    void* partial;
    double number;
    int64 extra[2], rows, count, inner, parts, mode;
    __device__ __forceinline__ bool packed() const { return mode & 1; }  // whether rows are read 16 bytes at a time
    __device__ __forceinline__ int stage() const { return static_cast<int>(mode >> 1); }
};
enum Stage { WHOLE, TOTALS, RESULTS };
#define GRADLAB_ROWS                                                                                                                  \
    const void *i0, const void *i1, const void *i2, const void *i3, const void *i4, void *o0, void *o1, void *o2, void *o3,           \
        void *partial, double number, int64 extra0, int64 extra1, int64 rows, int64 count, int64 inner, int64 parts, int64 mode
#define GRADLAB_GIVEN                                                                                                                 \
    Rows { {i0, i1, i2, i3, i4}, {o0, o1, o2, o3}, partial, number, {extra0, extra1}, rows, count, inner, parts, mode }

template <class A>
__device__ __forceinline__ A shuffle_across(A value, int mask) {
    if constexpr (sizeof(A) < 4) return static_cast<A>(__shfl_xor_sync(0xffffffffu, static_cast<int>(value), mask));
    else return __shfl_xor_sync(0xffffffffu, value, mask);
}

__device__ __forceinline__ Scaled shuffle_across(Scaled value, int mask) {
    value.part = __shfl_xor_sync(0xffffffffu, value.part, mask);
    value.powers = __shfl_xor_sync(0xffffffffu, value.powers, mask);
    return value;
}

// ---------------------------------------------------------------- totals

struct Plus {
    template <class A>
    static __device__ __forceinline__ A of(A a, A b) { return a + b; }
};
struct Maximum {
    template <class A>
    static __device__ __forceinline__ A of(A a, A b) { return maximum(a, b); }
};

// The threads of one row: part of a warp, or a whole block of `Lanes`. Every thread gets the total, the same bits in all of them.
template <int Lanes>
struct Team {
    static constexpr int lanes = Lanes;
    // Two totals in one launch differ in Slot; one that is taken again and again changes `turn` between 0 and 1, so that nobody writes what
    // a slower warp still reads.
    template <class Operation, int Slot, class A>
    static __device__ __forceinline__ A total(A value, int turn = 0) {
#pragma unroll
        for (int mask = Lanes < 32 ? Lanes / 2 : 16; mask > 0; mask >>= 1) value = Operation::of(value, shuffle_across(value, mask));
        if constexpr (Lanes > 32) {
            constexpr int warps = Lanes / 32;
            __shared__ A part[2][warps];
            if ((threadIdx.x & 31) == 0) part[turn][threadIdx.x >> 5] = value;
            __syncthreads();
            value = part[turn][0];
#pragma unroll
            for (int i = 1; i < warps; ++i) value = Operation::of(value, part[turn][i]);
        }
        return value;
    }
};

// The totals of a block's threads, merged in order, in every thread.
template <class P>
__device__ __forceinline__ typename P::State block_total(typename P::State state) {
    typedef typename P::State State;
    __shared__ State lanes[32];
#pragma unroll 1  // once a block: not worth five times the code
    for (int offset = 16; offset > 0; offset >>= 1) state = P::merge(state, state.down(offset));
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) lanes[warp] = state;
    __syncthreads();
    if (warp == 0) {
        state = lane < warps ? lanes[lane] : P::identity();
#pragma unroll 1
        for (int offset = 16; offset > 0; offset >>= 1) state = P::merge(state, state.down(offset));
        if (lane == 0) lanes[0] = state;
    }
    __syncthreads();
    return lanes[0];
}

// ---------------------------------------------------------------- elements

// How many elements make 16 bytes, at most `most`.
template <class S>
__host__ __device__ constexpr int pack_size(int most) {
    return 16 / static_cast<int>(sizeof(S)) < most ? 16 / static_cast<int>(sizeof(S)) : most;
}

template <int V, class S, class T>
__device__ __forceinline__ void read(const S* __restrict__ x, T (&value)[V]) {
    const Pack<S, V> pack = *reinterpret_cast<const Pack<S, V>*>(x);
#pragma unroll
    for (int k = 0; k < V; ++k) value[k] = load(pack.item[k]);
}
template <int V, class S, class T>
__device__ __forceinline__ void put(S* __restrict__ y, const T (&value)[V]) {
    Pack<S, V> pack;
#pragma unroll
    for (int k = 0; k < V; ++k) pack.item[k] = store<S>(value[k]);
    *reinterpret_cast<Pack<S, V>*>(y) = pack;
}

// Which elements of a row a thread of `Beside` has: V neighbours at a time, read and written as one (packed), or V that lie `Beside` apart, so that
// neighbouring threads have neighbours. Element k lies `offset` behind the first, at `base`.
template <int V, int Beside>
struct Places {
    static constexpr int width = V;
    int64 base;
    int left, each;  // what there is from `base` on; between the V
    bool packed;
    __device__ __forceinline__ Places(bool packed_, int64 begin, int thread, int64 end)
        : base(begin + thread * (packed_ ? V : 1)), left(0), each(packed_ ? 1 : Beside), packed(packed_) {
        if (base < end) left = end - base < (1 << 30) ? static_cast<int>(end - base) : 1 << 30;
        else base = begin;
    }
    __device__ __forceinline__ int offset(int k) const { return k / V * (V * Beside) + k % V * each; }
    __device__ __forceinline__ bool some() const { return left > 0; }
    __device__ __forceinline__ bool inside(int k) const { return offset(k) < left; }
    __device__ __forceinline__ int64 at(int k) const { return base + offset(k); }
    // Of element k, or of another one that there is.
    __device__ __forceinline__ int64 near(int k) const { return base + (inside(k) ? offset(k) : 0); }
};

// All of a thread's elements of a row, `blank` for those outside. No branch stands between the loads, so that they are all on their way at once.
template <class L, class S, class T, int N>
__device__ __forceinline__ void fetch(const S* __restrict__ row, int64 stride, const L& places, T blank, T (&value)[N]) {
    constexpr int V = L::width;
#pragma unroll
    for (int k = 0; k < N; ++k) value[k] = blank;
    if (!places.some()) return;
    if (V > 1 && places.packed) {
#pragma unroll
        for (int k = 0; k < N; k += V) {
            T few[V];
            read<V>(row + places.near(k), few);
#pragma unroll
            for (int j = 0; j < V; ++j) value[k + j] = places.inside(k) ? few[j] : blank;
        }
    } else {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T found = load(row[places.near(k) * stride]);
            value[k] = places.inside(k) ? found : blank;
        }
    }
}
// Elements k and on of a vector beside the row, as weights; `otherwise` where there is none.
template <class L, class S, class T, int V>
__device__ __forceinline__ void take(const S* __restrict__ x, const L& places, int k, T otherwise, T (&value)[V]) {
#pragma unroll
    for (int j = 0; j < V; ++j) value[j] = otherwise;
    if (!x || !places.some()) return;
    if (V > 1 && places.packed) {
        read<V>(x + places.near(k), value);
    } else {
#pragma unroll
        for (int j = 0; j < V; ++j) value[j] = load(x[places.near(k + j)]);
    }
}
// Results for elements k and on.
template <class L, class S, class T, int V>
__device__ __forceinline__ void give(S* __restrict__ row, int64 stride, const L& places, int k, const T (&value)[V]) {
    if (V > 1 && places.packed) {
        if (places.inside(k)) put<V>(row + places.at(k), value);
    } else {
#pragma unroll
        for (int j = 0; j < V; ++j)
            if (places.inside(k + j)) row[places.at(k + j) * stride] = store<S>(value[j]);
    }
}

// ---------------------------------------------------------------- forms

template <class P, bool Held, class L, int N, int M>
__device__ __forceinline__ void write_values(const P& p, const typename P::Ready& ready, const L& places, int64 base, int64 stride,
                                             const typename P::T (&a)[N], const typename P::T (&b)[M]) {
    constexpr int V = L::width;
#pragma unroll
    for (int k = 0; k < N; k += V) {
        typename P::T few[V], other[V];
#pragma unroll
        for (int j = 0; j < V; ++j) few[j] = a[k + j], other[j] = b[M > 1 ? k + j : 0];
        p.template value<Held>(ready, few, other, places, k);
        give(p.y + base, stride, places, k, few);
    }
}

template <class P, int Lanes, int Items>
__device__ __forceinline__ void held_rows(const Rows& g) {
    typedef typename P::T T;
    constexpr int teams = Lanes < 128 ? 128 / Lanes : 1, second = P::streams > 1 ? Items : 1;
    P p(g);
    const int64 row = static_cast<int64>(blockIdx.x) * teams + threadIdx.x / Lanes;
    const int lane = threadIdx.x % Lanes;
    const bool real = row < g.rows;  // the others go along, because totals take whole warps
    const int64 base = real ? row * g.count : 0;
    const Places<pack_size<typename P::S>(Items), Lanes> places(g.packed(), 0, lane, real ? g.count : 0);
    p.enter(real ? row : 0, base);
    T a[Items], b[second];
    fetch(p.a + base, 1, places, p.blank(), a);
    b[0] = T(0);
    if constexpr (P::streams > 1) fetch(p.b + base, 1, places, T(0), b);
    const typename P::State state = p.template hold<Team<Lanes>>(a, b, places);
    if constexpr (P::writes) write_values<P, true>(p, p.ready(state), places, base, 1, a, b);
    if (real && lane == 0) p.end(state, row, base, 1);
}

// How many elements a thread has in flight in a loop.
template <int V>
inline constexpr int batch_of = V >= 16 ? V : V >= 8 ? 2 * V : 4 * V;

// Totals of elements from `begin` to `end`, of which each of `Beside` threads takes its share.
template <class P, int V, int Beside>
__device__ __forceinline__ typename P::State walk(const P& p, bool packed, int64 base, int64 stride, int64 begin, int thread, int64 end) {
    typedef typename P::T T;
    constexpr int N = batch_of<V>;
    typename P::State state = P::identity();
#pragma unroll 1
    for (int64 i = begin; i < end; i += N * Beside) {
        const Places<V, Beside> places(packed, i, thread, end);
        if (!places.some()) break;
        T a[N], b[P::streams > 1 ? N : 1];
        b[0] = T(0);
        fetch(p.a + base, stride, places, p.blank(), a);
        if constexpr (P::streams > 1) fetch(p.b + base, stride, places, T(0), b);
        p.add(state, a, b, places);
    }
    return state;
}

// Results of elements from `begin` to `end`.
template <class P, int V, int Beside>
__device__ __forceinline__ void write_walk(const P& p, const typename P::Ready& ready, bool packed, int64 base, int64 stride, int64 begin,
                                           int thread, int64 end) {
    typedef typename P::T T;
    constexpr int N = batch_of<V>;
#pragma unroll 1
    for (int64 i = begin; i < end; i += N * Beside) {
        const Places<V, Beside> places(packed, i, thread, end);
        if (!places.some()) break;
        T a[N], b[P::streams > 1 ? N : 1];
        b[0] = T(0);
        fetch(p.a + base, stride, places, p.blank(), a);
        if constexpr (P::streams > 1) fetch(p.b + base, stride, places, T(0), b);
        write_values<P, false>(p, ready, places, base, stride, a, b);
    }
}

// The share of one block of several.
struct Share {
    int64 row, part, begin, end;
    __device__ __forceinline__ Share(const Rows& g, int64 blocks) : row(blockIdx.x / blocks), part(blockIdx.x % blocks) {
        const int64 share = ((g.count + blocks - 1) / blocks + 15) / 16 * 16;  // whole packs
        begin = part * share < g.count ? part * share : g.count;
        end = begin + share < g.count ? begin + share : g.count;
    }
};

// A block of LOOPED threads.
enum { LOOPED = 512, WALKERS = 8 };
template <class P>
__device__ __forceinline__ void shared_rows(const Rows& g) {
    typedef typename P::State State;
    constexpr int V = pack_size<typename P::S>(16);
    P p(g);
    const int stage = g.stage();
    const Share share(g, stage != RESULTS || P::writes ? g.parts : 1);
    const int64 base = share.row * g.count;
    p.enter(share.row, base);
    State* partial = static_cast<State*>(g.partial);
    State state = P::identity();
    if (stage != RESULTS) state = walk<P, V, LOOPED>(p, g.packed(), base, 1, share.begin, threadIdx.x, share.end);
    else if (threadIdx.x < g.parts) state = partial[share.row * g.parts + threadIdx.x];
    state = block_total<P>(state);
    if (stage == TOTALS) {
        if (threadIdx.x == 0) partial[share.row * g.parts + share.part] = state;
        return;
    }
    if constexpr (P::writes) write_walk<P, V, LOOPED>(p, p.ready(state), g.packed(), base, 1, share.begin, threadIdx.x, share.end);
    if (threadIdx.x == 0 && share.part == 0) p.end(state, share.row, base, 1);
}

// A block has 32 rows of neighbouring elements and eight walkers; blockIdx.y is the part.
template <class P>
__device__ __forceinline__ void column_rows(const Rows& g) {
    typedef typename P::State State;
    __shared__ State found[WALKERS][32];
    P p(g);
    const int lane = threadIdx.x & 31, walker = threadIdx.x >> 5, stage = g.stage();
    const int64 row = static_cast<int64>(blockIdx.x) * 32 + lane, part = blockIdx.y;
    const bool real = row < g.rows;
    const int64 base = real ? row / g.inner * g.count * g.inner + row % g.inner : 0;
    const int64 share = (g.count + g.parts - 1) / g.parts, begin = part * share < g.count ? part * share : g.count;
    const int64 end = begin + share < g.count ? begin + share : g.count;
    State* partial = static_cast<State*>(g.partial);
    State state = P::identity();
    if (real) {
        p.enter(row, base);
        if (stage != RESULTS) {
            state = walk<P, 1, WALKERS>(p, false, base, g.inner, begin, walker, end);
        } else {
#pragma unroll 1
            for (int64 i = walker; i < g.parts; i += WALKERS) state = P::merge(state, partial[i * g.rows + row]);
        }
    }
    found[walker][lane] = state;
    __syncthreads();
    if (!real) return;
    state = found[0][lane];
#pragma unroll 1
    for (int i = 1; i < WALKERS; ++i) state = P::merge(state, found[i][lane]);
    if (stage == TOTALS) {
        if (walker == 0) partial[part * g.rows + row] = state;
        return;
    }
    if constexpr (P::writes) write_walk<P, 1, WALKERS>(p, p.ready(state), false, base, g.inner, begin, walker, end);
    if (walker == 0 && part == 0) p.end(state, row, base, g.inner);
}

}  // namespace gradlab
