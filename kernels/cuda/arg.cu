// Extreme elements along the middle dimension of [outer, count, inner], with their places. The first of equal ones; a NaN is extreme.
#include "rows.cuh"

namespace gradlab {

// extra[0]: the smallest. Elements are turned round then, so that one search serves both.
template <class S_>
struct Extreme {
    typedef S_ S;
    typedef typename Compute<S>::type T;
    struct State {
        T value;
        int64 at;  // -1: nothing yet
        __device__ __forceinline__ State down(int n) const {
            return {shuffle_down(value, n), __shfl_down_sync(0xffffffffu, at, n)};
        }
        __device__ __forceinline__ State across(int mask) const {
            return {shuffle_across(value, mask), __shfl_xor_sync(0xffffffffu, at, mask)};
        }
    };
    static constexpr int streams = 1;
    static constexpr bool writes = false;
    const S* a;
    S* values;  // may be a null pointer
    int64* indices;
    bool least;

    explicit __device__ __forceinline__ Extreme(const Rows& g)
        : a(static_cast<const S*>(g.in[0])), values(static_cast<S*>(g.out[0])), indices(static_cast<int64*>(g.out[1])), least(g.extra[0]) {}
    static __device__ __forceinline__ T blank() { return T(0); }
    __device__ __forceinline__ void enter(int64, int64) {}
    static __device__ __forceinline__ State identity() { return {T(0), -1}; }
    __device__ __forceinline__ T turned(T value) const {
        if constexpr (is_floating<T>) return least ? -value : value;
        else return least ? static_cast<T>(~value) : value;
    }
    // Whether x comes before y as the result: any order of merging finds the same.
    static __device__ __forceinline__ bool beats(const State& x, const State& y) {
        const bool x_nan = x.value != x.value, y_nan = y.value != y.value, alike = x_nan ? y_nan : x.value == y.value;
        const bool above = alike ? x.at < y.at : x_nan || (!y_nan && x.value > y.value);
        return x.at >= 0 && (y.at < 0 || above);
    }
    static __device__ __forceinline__ State merge(const State& x, const State& y) { return beats(y, x) ? y : x; }
    template <int N, int M, class L>
    __device__ __forceinline__ void add(State& state, const T (&a)[N], const T (&)[M], const L& places) const {
        int found = -1;  // which of them: their places are counted once, at the end
        bool none = state.at < 0;
        T value = state.value;
#pragma unroll
        for (int k = 0; k < N; ++k) {  // a thread's places ascend: of equal elements the one it has already is the first
            const T x = turned(a[k]);
            const bool better = places.inside(k) & (none | (!(x <= value) & (value == value)));  // without branches
            value = better ? x : value;
            found = better ? k : found;
            none &= !better;
        }
        if (found >= 0) state = {value, static_cast<int64>(places.at(found))};
    }
    template <class Team, int N, int M, class L>
    __device__ __forceinline__ State hold(const T (&a)[N], const T (&b)[M], const L& places) const {
        State state = identity();
        add(state, a, b, places);
#pragma unroll 1
        for (int mask = Team::lanes / 2; mask > 0; mask >>= 1) state = merge(state, state.across(mask));
        return state;
    }
    __device__ __forceinline__ void end(const State& state, int64 row, int64 base, int64 stride) const {
        if (values) values[row] = a[base + state.at * stride];
        indices[row] = state.at;
    }
};

template <class P, int Lanes, int Items>
__global__ void __launch_bounds__(Lanes < 128 ? 128 : Lanes, 1) held(GRADLAB_ROWS) { held_rows<P, Lanes, Items>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(512, 2) looped(GRADLAB_ROWS) { shared_rows<P>(GRADLAB_GIVEN); }
template <class P>
__global__ void __launch_bounds__(256, 1) columns(GRADLAB_ROWS) { column_rows<P>(GRADLAB_GIVEN); }

}  // namespace gradlab
