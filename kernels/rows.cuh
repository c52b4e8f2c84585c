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
//   enter(row)           read what belongs to the row
//   identity(), merge(), add(state, a, b, places)   totals: of nothing, of two, and of a few more elements
//   hold<Team>(a, b, places)    totals of a row whose elements are in registers, and these made ready for `value`
//   ready(state)         what `value` needs of the totals
//   value<V, Held>(ready, a, b, at)  the results in `a` for V neighbouring elements from index `at` (an aligned place if V > 1)
//   end(state, row, base, stride)    by one thread of each row
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
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) state = P::merge(state, state.down(offset));
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if (lane == 0) lanes[warp] = state;
    __syncthreads();
    if (warp == 0) {
        state = lane < warps ? lanes[lane] : P::identity();
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) state = P::merge(state, state.down(offset));
        if (lane == 0) lanes[0] = state;
    }
    __syncthreads();
    return lanes[0];
}

// ---------------------------------------------------------------- elements

// Which elements of a row a thread has: N of them, V neighbours at a time.
template <class I, int V>
struct Places {
    static constexpr int width = V;
    I first, step, end;
    __device__ __forceinline__ I at(int k) const { return first + k / V * step + k % V; }
    __device__ __forceinline__ bool inside(int k) const { return at(k) < end; }
};
// The same, all of them inside.
template <class I, int V>
struct Whole : Places<I, V> {
    __device__ __forceinline__ bool inside(int) const { return true; }
};

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

template <class L, class S, class T, int N>
__device__ __forceinline__ void fetch(const S* __restrict__ row, int64 stride, const L& places, T blank, T (&value)[N]) {
    constexpr int V = L::width;
#pragma unroll
    for (int k = 0; k < N; k += V) {
        T few[V];
#pragma unroll
        for (int j = 0; j < V; ++j) few[j] = blank;
        if (places.inside(k)) {
            if constexpr (V > 1) read<V>(row + places.at(k), few);
            else few[0] = load(row[static_cast<int64>(places.at(k)) * stride]);
        }
#pragma unroll
        for (int j = 0; j < V; ++j) value[k + j] = few[j];
    }
}

// How many elements make 16 bytes, at most `most`.
template <class S>
__host__ __device__ constexpr int pack_size(int most) {
    return 16 / static_cast<int>(sizeof(S)) < most ? 16 / static_cast<int>(sizeof(S)) : most;
}

// ---------------------------------------------------------------- forms

template <class P, bool Held, class L, int N, int M>
__device__ __forceinline__ void write_values(const P& p, const typename P::Ready& ready, const L& places, int64 base, int64 stride,
                                             typename P::T (&a)[N], const typename P::T (&b)[M]) {
    constexpr int V = L::width;
#pragma unroll
    for (int k = 0; k < N; k += V) {
        if (!places.inside(k)) continue;
        typename P::T few[V], other[V];
#pragma unroll
        for (int j = 0; j < V; ++j) few[j] = a[k + j], other[j] = b[M > 1 ? k + j : 0];
        p.template value<V, Held>(ready, few, other, places.at(k));
        put<V>(p.y + base + static_cast<int64>(places.at(k)) * stride, few);
    }
}

template <class P, int Lanes, int Items, int V>
__device__ __forceinline__ void held_row(const Rows& g) {
    typedef typename P::T T;
    constexpr int teams = Lanes < 128 ? 128 / Lanes : 1, second = P::streams > 1 ? Items : 1;
    P p(g);
    const int64 row = static_cast<int64>(blockIdx.x) * teams + threadIdx.x / Lanes;
    const int lane = threadIdx.x % Lanes;
    const bool real = row < g.rows;  // the others go along, because totals take whole warps
    const int64 base = real ? row * g.count : 0;
    const Places<int, V> places{lane * V, Lanes * V, real ? static_cast<int>(g.count) : 0};
    p.enter(real ? row : 0);
    T a[Items], b[second];
    fetch(p.a + base, 1, places, P::blank(), a);
    b[0] = T(0);
    if constexpr (P::streams > 1) fetch(p.b + base, 1, places, T(0), b);
    const typename P::State state = p.template hold<Team<Lanes>>(a, b, places);
    if constexpr (P::writes) write_values<P, true>(p, p.ready(state), places, base, 1, a, b);
    if (real && lane == 0) p.end(state, row, base, 1);
}
template <class P, int Lanes, int Items>
__device__ __forceinline__ void held_rows(const Rows& g) {
    constexpr int V = pack_size<typename P::S>(Items);
    if (g.packed()) held_row<P, Lanes, Items, V>(g);
    else held_row<P, Lanes, Items, 1>(g);
}

// How many elements a thread has in flight in a loop.
template <int V>
inline constexpr int batch_of = V >= 16 ? V : V >= 8 ? 2 * V : 4 * V;

// Totals of elements from `first` to `end`.
template <class P, int V>
__device__ __forceinline__ typename P::State walk(const P& p, int64 base, int64 stride, int64 first, int64 step, int64 end) {
    typedef typename P::T T;
    constexpr int N = batch_of<V>;
    typename P::State state = P::identity();
    int64 i = first;
    for (; i + (N / V - 1) * step + V <= end; i += N / V * step) {
        T a[N], b[P::streams > 1 ? N : 1];
        b[0] = T(0);
        const Whole<int64, V> places{{i, step, end}};
        fetch(p.a + base, stride, places, P::blank(), a);
        if constexpr (P::streams > 1) fetch(p.b + base, stride, places, T(0), b);
        p.add(state, a, b, places);
    }
#pragma unroll 1
    for (; i < end; i += step) {  // what is left, one access at a time
        T a[V], b[P::streams > 1 ? V : 1];
        b[0] = T(0);
        const Whole<int64, V> places{{i, step, end}};
        fetch(p.a + base, stride, places, P::blank(), a);
        if constexpr (P::streams > 1) fetch(p.b + base, stride, places, T(0), b);
        p.add(state, a, b, places);
    }
    return state;
}

// Results of elements from `first` to `end`.
template <class P, int V>
__device__ __forceinline__ void write_walk(const P& p, const typename P::Ready& ready, int64 base, int64 stride, int64 first, int64 step,
                                           int64 end) {
    typedef typename P::T T;
    constexpr int N = batch_of<V>;
    for (int64 i = first; i < end; i += N / V * step) {
        T a[N], b[P::streams > 1 ? N : 1];
        const Places<int64, V> places{i, step, end};
        fetch(p.a + base, stride, places, P::blank(), a);
        b[0] = T(0);
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

template <class P, int V>
__device__ __forceinline__ void shared_row(const Rows& g) {
    typedef typename P::State State;
    P p(g);
    const int stage = g.stage();
    const Share share(g, stage != RESULTS || P::writes ? g.parts : 1);
    const int64 base = share.row * g.count, step = static_cast<int64>(blockDim.x) * V, first = share.begin + threadIdx.x * V;
    p.enter(share.row);
    State* partial = static_cast<State*>(g.partial);
    State state = P::identity();
    if (stage != RESULTS) state = walk<P, V>(p, base, 1, first, step, share.end);
    else if (threadIdx.x < g.parts) state = partial[share.row * g.parts + threadIdx.x];
    state = block_total<P>(state);
    if (stage == TOTALS) {
        if (threadIdx.x == 0) partial[share.row * g.parts + share.part] = state;
        return;
    }
    if constexpr (P::writes) write_walk<P, V>(p, p.ready(state), base, 1, first, step, share.end);
    if (threadIdx.x == 0 && share.part == 0) p.end(state, share.row, base, 1);
}
template <class P>
__device__ __forceinline__ void shared_rows(const Rows& g) {
    constexpr int V = pack_size<typename P::S>(16);
    if (g.packed()) shared_row<P, V>(g);
    else shared_row<P, 1>(g);
}

// A block has 32 rows of neighbouring elements and eight walkers; blockIdx.y is the part.
template <class P>
__device__ __forceinline__ void column_rows(const Rows& g) {
    typedef typename P::State State;
    __shared__ State found[8][32];
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
        p.enter(row);
        if (stage != RESULTS) {
            state = walk<P, 1>(p, base, g.inner, begin + walker, 8, end);
        } else {
            for (int64 i = walker; i < g.parts; i += 8) state = P::merge(state, partial[i * g.rows + row]);
        }
    }
    found[walker][lane] = state;
    __syncthreads();
    if (!real) return;
    state = found[0][lane];
#pragma unroll
    for (int i = 1; i < 8; ++i) state = P::merge(state, found[i][lane]);
    if (stage == TOTALS) {
        if (walker == 0) partial[part * g.rows + row] = state;
        return;
    }
    if constexpr (P::writes) write_walk<P, 1>(p, p.ready(state), base, g.inner, begin + walker, 8, end);
    if (walker == 0 && part == 0) p.end(state, row, base, g.inner);
}

}  // namespace gradlab
