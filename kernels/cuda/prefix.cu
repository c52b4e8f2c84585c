// Running results along rows of neighbouring elements, by a block for each row or, for few long rows, by several: each part's total first, then the
// running totals before each part, then the part itself with what comes before it. In a fixed order, so that two runs give the same bits.
//
// Operation supplies State, its `load` of element i (of the row: element `within`), and `join` of an earlier and a later State, which is associative.
#include "reduce.cuh"

namespace gradlab {

inline constexpr int prefix_threads = 256, prefix_items = 4, prefix_tile = prefix_threads * prefix_items;

// What running sums and products are taken in: double for all floating point, with powers beside it for products; 64 bits for integers.
template <class T, bool Product>
struct Running {
    typedef Wide type;
};
template <>
struct Running<float, false> {
    typedef double type;
};
template <>
struct Running<double, false> {
    typedef double type;
};
template <>
struct Running<float, true> {
    typedef Scaled type;
};
template <>
struct Running<double, true> {
    typedef Scaled type;
};

__device__ __forceinline__ double from_before(double value, int step) { return __shfl_up_sync(0xffffffffu, value, step); }
__device__ __forceinline__ Wide from_before(Wide value, int step) { return __shfl_up_sync(0xffffffffu, value, step); }
__device__ __forceinline__ Scaled from_before(Scaled value, int step) {
    value.part = __shfl_up_sync(0xffffffffu, value.part, step);
    value.powers = __shfl_up_sync(0xffffffffu, value.powers, step);
    return value;
}
__device__ __forceinline__ int64 from_before(int64 value, int step) { return __shfl_up_sync(0xffffffffu, value, step); }

// Too much machine code for the dozen places that join two states.
__device__ __noinline__ double join_logarithms(double a, double b) { return logaddexp(a, b); }

// 0 sum, 1 product, 2 log of the sum of exponentials
template <class S, int Mode>
struct RunningOperation {
    typedef typename Running<typename Compute<S>::type, Mode == 1>::type State;
    const S* x;
    S* y;
    __device__ __forceinline__ State load(int64 i, int64) const { return static_cast<State>(gradlab::load(x[i])); }
    static __device__ __forceinline__ State join(State a, State b) {
        if constexpr (Mode == 0) return a + b;
        else if constexpr (Mode == 1) return a * b;
        else return join_logarithms(a, b);
    }
    __device__ __forceinline__ void write(int64 i, State state) const { y[i] = store<S>(state); }
};

// How many are true up to each element.
struct CountOperation {
    typedef int64 State;
    const bool* x;
    int64* y;
    __device__ __forceinline__ State load(int64 i, int64) const { return x[i]; }
    static __device__ __forceinline__ State join(State a, State b) { return a + b; }
    __device__ __forceinline__ void write(int64 i, State state) const { y[i] = state; }
};

// The largest up to each element, in place.
struct LargestOperation {
    typedef int64 State;
    int64* y;
    __device__ __forceinline__ State load(int64 i, int64) const { return y[i]; }
    static __device__ __forceinline__ State join(State a, State b) { return a < b ? b : a; }
    __device__ __forceinline__ void write(int64 i, State state) const { y[i] = state; }
};

// The running extreme and the last place in the row where it was attained; a NaN stays.
template <class T>
struct Extreme {
    T value;
    int64 at;
};
template <class T>
__device__ __forceinline__ Extreme<T> from_before(Extreme<T> state, int step) {
    Extreme<T> other;
    if constexpr (sizeof(T) < 4) other.value = static_cast<T>(__shfl_up_sync(0xffffffffu, static_cast<int>(state.value), step));
    else other.value = __shfl_up_sync(0xffffffffu, state.value, step);
    other.at = __shfl_up_sync(0xffffffffu, state.at, step);
    return other;
}
// The largest, or (least) the smallest, of elements turned round.
template <class S>
struct ExtremeOperation {
    typedef typename Compute<S>::type T;
    typedef Extreme<T> State;
    const S* x;
    S* values;
    int64* indices;
    bool least;
    __device__ __forceinline__ T turned(T value) const {
        if constexpr (is_floating<T>) return least ? -value : value;
        else return least ? static_cast<T>(~value) : value;
    }
    __device__ __forceinline__ State load(int64 i, int64 within) const { return {turned(gradlab::load(x[i])), within}; }
    static __device__ __forceinline__ State join(State a, State b) {
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        return b_nan || (!a_nan && b.value >= a.value) ? b : a;
    }
    __device__ __forceinline__ void write(int64 i, State state) const {
        values[i] = store<S>(turned(state.value));
        indices[i] = state.at;
    }
};

// y_i = a_i y_(i-1) + b_i: each stretch maps what comes before it by a straight line.
struct Line {
    Scaled factor;
    double term;
};
__device__ __forceinline__ Line from_before(Line state, int step) {
    return {from_before(state.factor, step), __shfl_up_sync(0xffffffffu, state.term, step)};
}
template <class S>
struct RecurrenceOperation {
    typedef Line State;
    const S* a;
    const S* b;
    S* y;
    __device__ __forceinline__ State load(int64 i, int64) const {
        return {Scaled(gradlab::load(a[i])), static_cast<double>(gradlab::load(b[i]))};
    }
    static __device__ __forceinline__ State join(State a, State b) {
        return {a.factor * b.factor, a.term == 0.0 ? b.term : static_cast<double>(b.factor * Scaled(a.term)) + b.term};
    }
    __device__ __forceinline__ void write(int64 i, State state) const { y[i] = store<S>(state.term); }
};

// Threads have `prefix_items` neighbouring elements each. backward walks from the row's last element. final: the running results are written,
// continuing from totals[row, part - 1] for parts but the first; else totals[row, part].
template <class Operation>
__device__ __forceinline__ void run_prefix(const Operation operation, bool final, bool backward, typename Operation::State* __restrict__ totals,
                                           int64 count, int64 parts) {
    typedef typename Operation::State State;
    struct Room {
        State warp[prefix_threads / 32];
    };
    __shared__ Room room;
    const int64 row = blockIdx.x / parts, part = blockIdx.x % parts, base = row * count;
    const int64 tiles = (count + prefix_tile - 1) / prefix_tile, share = (tiles + parts - 1) / parts;
    const int64 begin = part * share * prefix_tile;
    int64 end = begin + share * prefix_tile;
    if (end > count) end = count;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool continues = final && part > 0;
    State carried;
    if (continues) carried = totals[row * parts + part - 1];
    for (int64 tile = begin; tile < end; tile += prefix_tile) {
        const int64 first = tile + threadIdx.x * prefix_items;
        const int64 left = end - tile;
        const int inside = static_cast<int>(left < prefix_tile ? left : prefix_tile);  // elements of this tile
        State own[prefix_items];
        State sum;
#pragma unroll
        for (int k = 0; k < prefix_items; ++k) {
            const int64 i = first + k < end ? first + k : end - 1;
            const int64 within = backward ? count - 1 - i : i;
            own[k] = operation.load(base + within, within);
            if (k > 0) own[k] = Operation::join(own[k - 1], own[k]);
        }
        sum = own[prefix_items - 1];
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const State other = from_before(sum, step);
            if (lane >= step) sum = Operation::join(other, sum);
        }
        if (lane == 31) room.warp[warp] = sum;
        const State neighbour = from_before(sum, 1);  // what the warp's threads before this one have
        __syncthreads();
        bool any = continues;
        State before = carried;
#pragma unroll 1
        for (int w = 0; w < warp; ++w) {
            before = any ? Operation::join(before, room.warp[w]) : room.warp[w];
            any = true;
        }
        if (lane > 0) {
            before = any ? Operation::join(before, neighbour) : neighbour;
            any = true;
        }
        if (final) {
#pragma unroll
            for (int k = 0; k < prefix_items; ++k) {
                if (first + k < end) {
                    const int64 i = base + (backward ? count - 1 - (first + k) : first + k);
                    operation.write(i, any ? Operation::join(before, own[k]) : own[k]);
                }
            }
        }
        // What the next tile continues from: the total of this one. Elements beyond the end repeat the last one, so a tile that is not full is the last.
        if (tile + prefix_tile < end || !final) {
            __shared__ Room total;
            const int holder = (inside - 1) / prefix_items, item = (inside - 1) % prefix_items;
            if (static_cast<int>(threadIdx.x) == holder) {
                State mine = own[0];
#pragma unroll
                for (int k = 1; k < prefix_items; ++k)
                    if (k == item) mine = own[k];
                total.warp[0] = any ? Operation::join(before, mine) : mine;
            }
            __syncthreads();
            carried = total.warp[0];
            continues = true;
        }
        __syncthreads();
    }
    if (!final && threadIdx.x == 0 && begin < end) totals[row * parts + part] = carried;
}

// Each row's totals become running totals. One thread for each row: there are few parts.
template <class Operation>
__device__ __forceinline__ void run_totals(typename Operation::State* __restrict__ totals, int64 used, int64 parts, int64 rows) {
    const int64 row = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    typename Operation::State sum = totals[row * parts];
#pragma unroll 1
    for (int64 part = 1; part < used; ++part) {
        sum = Operation::join(sum, totals[row * parts + part]);
        totals[row * parts + part] = sum;
    }
}

// Stage 0: totals of the parts; 1: their running totals; 2: the results (alone, where there is one part).
template <class Operation>
__device__ __forceinline__ void take_stage(const Operation operation, void* totals, int64 rows, int64 count, int64 parts, int64 stage, bool backward) {
    typedef typename Operation::State State;
    if (stage == 1) {
        const int64 tiles = (count + prefix_tile - 1) / prefix_tile, share = (tiles + parts - 1) / parts;
        run_totals<Operation>(static_cast<State*>(totals), (tiles + share - 1) / share, parts, rows);
    } else {
        run_prefix<Operation>(operation, stage == 2, backward, static_cast<State*>(totals), count, parts);
    }
}

template <class S, int Mode>
__global__ void __launch_bounds__(prefix_threads) prefix(const S* __restrict__ x, S* __restrict__ y, void* __restrict__ totals, int64 rows, int64 count,
                                                         int64 parts, int64 stage) {
    take_stage<RunningOperation<S, Mode>>({x, y}, totals, rows, count, parts, stage, false);
}
__global__ void __launch_bounds__(prefix_threads) prefix_count(const bool* __restrict__ x, int64* __restrict__ y, void* __restrict__ totals, int64 rows,
                                                               int64 count, int64 parts, int64 stage) {
    take_stage<CountOperation>({x, y}, totals, rows, count, parts, stage, false);
}
__global__ void __launch_bounds__(prefix_threads) prefix_largest(int64* y, void* __restrict__ totals, int64 rows, int64 count, int64 parts, int64 stage) {
    take_stage<LargestOperation>({y}, totals, rows, count, parts, stage, false);
}
template <class S>
__global__ void __launch_bounds__(prefix_threads) prefix_extreme(const S* __restrict__ x, S* __restrict__ values, int64* __restrict__ indices,
                                                                 int64 least, void* __restrict__ totals, int64 rows, int64 count, int64 parts,
                                                                 int64 stage) {
    take_stage<ExtremeOperation<S>>({x, values, indices, least != 0}, totals, rows, count, parts, stage, false);
}
template <class S>
__global__ void __launch_bounds__(prefix_threads, 1) prefix_recurrence(const S* __restrict__ a, const S* __restrict__ b, S* __restrict__ y,
                                                                    int64 backward, void* __restrict__ totals, int64 rows, int64 count, int64 parts,
                                                                    int64 stage) {
    take_stage<RecurrenceOperation<S>>({a, b, y}, totals, rows, count, parts, stage, backward != 0);
}

}  // namespace gradlab
