// All time steps of a layer of recurrent units in one launch (the formulas: gradlab/ops/recurrent.py).
//
// Sequences do not know of each other: a team of blocks takes Rows of them through all steps. Each block of the team has a share of the
// units, and keeps their part of the weight in shared memory for the whole way. A step is a product of the states of all units, the gates
// of the block's own, and new states, which are written into the shared memory of all blocks of the team (forward); or the gradients of the
// block's own gates, their product with its part of the weight, and sums of it for all units, which go to the blocks that have these
// (backward). So there is one barrier of the team for each step. A team is one block, or a cluster of them.
//
// S is what states and weights are rounded to; T, in which is computed, is what gates, cells and their gradients are kept in. Sums are
// taken in a fixed order. Units differ in how many gates they have, in what a step makes of these, and in what goes from step to step
// beside the hidden state: the cell of LSTM, and on the way back the gradient of it, or of GRU's state past its gates.
#pragma once
#include "cluster.cuh"

namespace gradlab {

// launch/recurrent.py, UNITS. Gates: i, f, g, o of LSTM; r, z, n of GRU; the sum itself of units that have none.
constexpr int LSTM = 0, GRU = 1, TANH = 2;  // 3: relu
constexpr int gates_of(int unit) { return unit == LSTM ? 4 : unit == GRU ? 3 : 1; }

// The gates of one unit; four of them are read at once.
template <class S, int G>
struct alignas(sizeof(S) * (G == 4 ? 4 : 1)) Gates {
    S at[G];
};

// Sizes, and distances in elements: from step to step, from sequence to sequence, from number to number.
struct Steps {
    int64 steps, batch, units;
    int64 backwards;                            // 1: the way goes from the last step to the first
    int64 weight_input, weight_gate;            // from one state's number to the next, from one gate to the next
    int64 gates_step, gates_row;                // forward: what the input adds to the sums
    int64 first_row, first_unit;                // the first hidden states (backward: the gradients that arrive at the last ones)
    int64 cell_row, cell_unit;                  // the first cell states (backward: the gradients that arrive at the last ones)
    int64 begun_row, begun_unit;                // backward: the first cell states, of GRU the first states
    int64 slope_step, slope_row, slope_unit;    // backward: the gradients that arrive at the hidden states, but those of the last
    int64 values_step, values_row, acts_step, acts_row;  // backward: where cells (the sums of GRU's state) and gates lie
    int64 states_step, states_row, states_unit;          // backward: where GRU's states lie that steps begin with, but for the first
    double slope;                               // backward: what arrives at the hidden states where there is no array of it
};

// What a block has to do.
template <int Blocks, int Rows>
struct Share {
    int units, most, own, first;       // all units; those of a block, of this block, and the first of these
    int64 row;                         // the first sequence
    int sequences, rank, threads, slices;  // place in the team; threads of the block; how many of them share a sum

    __device__ __forceinline__ explicit Share(const Steps& p, int width) {
        units = static_cast<int>(p.units);
        most = (units + Blocks - 1) / Blocks;
        rank = Blocks == 1 ? 0 : static_cast<int>(blockIdx.x) % Blocks;
        first = rank * most;
        own = units - first < most ? units - first : most;
        if (own < 0) own = 0;
        row = static_cast<int64>(blockIdx.x) / Blocks * Rows;
        sequences = p.batch - row < Rows ? static_cast<int>(p.batch - row) : Rows;
        threads = static_cast<int>(blockDim.x);
        slices = threads / (width ? units : most);
        if (slices < 1) slices = 1;
    }
};

// Rounded as it would be in memory.
template <class S, class T>
__device__ __forceinline__ T rounded(T value) {
    return load(store<S>(value));
}

template <int G, class S>
__device__ __forceinline__ Gates<S, G> weights_of(const S* weight, const Steps& p, int64 input, int64 unit) {
    const S* const at = weight + input * p.weight_input + unit * p.weight_gate;
    const int64 apart = p.units * p.weight_gate;
    Gates<S, G> found;
#pragma unroll
    for (int g = 0; g < G; ++g) found.at[g] = at[g * apart];
    return found;
}

// Of a unit's gates what lies `apart` from one another.
template <int G, class S>
__device__ __forceinline__ Gates<typename Compute<S>::type, G> gates_at(const S* x, int64 apart) {
    Gates<typename Compute<S>::type, G> found;
#pragma unroll
    for (int g = 0; g < G; ++g) found.at[g] = load(x[g * apart]);
    return found;
}

template <int G, class T>
__device__ __forceinline__ void put(T* out, const Gates<T, G>& gates, int64 apart) {
#pragma unroll
    for (int g = 0; g < G; ++g) out[g * apart] = gates.at[g];
}

// begun: the first cell states of LSTM; what is added to the sums of GRU's state, or none. values: cells, or those sums.
template <int Unit, int Blocks, int Rows, class S>
__device__ __forceinline__ void forward_steps(const S* gates, const S* weight, const typename Compute<S>::type* first,
                                              const typename Compute<S>::type* begun, S* hidden, typename Compute<S>::type* values,
                                              typename Compute<S>::type* acts, const Steps& p) {
    typedef typename Compute<S>::type T;
    constexpr int G = gates_of(Unit);
    const Share<Blocks, Rows> my(p, 0);
    const int tid = static_cast<int>(threadIdx.x), H = my.units, U = my.most;
    extern __shared__ __align__(64) unsigned char memory[];
    Gates<T, G>* const sums = reinterpret_cast<Gates<T, G>*>(memory);                          // [Rows][threads]
    Pack<T, Rows>* const states = reinterpret_cast<Pack<T, Rows>*>(sums + Rows * my.threads);  // [2][H]
    T* const cell = reinterpret_cast<T*>(states + 2 * H);                                      // [Rows][U], of LSTM alone
    Gates<S, G>* const w = reinterpret_cast<Gates<S, G>*>(cell + (Unit == LSTM ? Rows * U : 0));  // [H][U]

    for (int i = tid; i < my.own * H; i += my.threads) {
        const int k = i % H, u = i / H;
        w[k * U + u] = weights_of<G>(weight, p, k, my.first + u);
    }
    for (int i = tid; i < H * Rows; i += my.threads) {
        const int k = i % H, r = i / H;
        states[k].item[r] = r < my.sequences ? first[(my.row + r) * p.first_row + k * p.first_unit] : T(0);
    }
    for (int i = tid; i < U * my.sequences; i += my.threads) {
        const int r = i / U, u = i % U;
        if (u >= my.own) continue;
        const int unit = my.first + u;
        if constexpr (Unit == LSTM) cell[i] = begun[(my.row + r) * p.cell_row + unit * p.cell_unit];
        S* const kept = hidden + ((p.backwards ? p.steps : 0) * p.batch + my.row + r) * H;
        kept[unit] = store<S>(first[(my.row + r) * p.first_row + unit * p.first_unit]);
    }
    team_barrier<Blocks>();

#pragma unroll 1
    for (int64 s = 0; s < p.steps; ++s) {
        const int64 t = p.backwards ? p.steps - 1 - s : s, row = t * p.batch + my.row;
        const Pack<T, Rows>* const now = states + (s & 1) * H;
        Pack<T, Rows>* const next = states + (~s & 1) * H;
        const int column = tid % U, slice = tid / U;
        const S* const x = gates + t * p.gates_step + my.row * p.gates_row + my.first;
        Gates<T, G> early = {};  // of the thread's first item; it comes while products are summed up
        if (slice < my.sequences && column < my.own) early = gates_at<G>(x + slice * p.gates_row + column, H);
        if (slice < my.slices && column < my.own) {
            Gates<T, G> sum[Rows] = {};
#pragma unroll 4
            for (int k = slice; k < H; k += my.slices) {
                const Gates<S, G> v = w[k * U + column];
                const Pack<T, Rows> h = now[k];
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    const T factor = load(v.at[g]);
#pragma unroll
                    for (int r = 0; r < Rows; ++r) sum[r].at[g] += factor * h.item[r];
                }
            }
#pragma unroll
            for (int r = 0; r < Rows; ++r) sums[r * my.threads + tid] = sum[r];
        }
        __syncthreads();
#pragma unroll 1
        for (int item = tid; item < U * my.sequences; item += my.threads) {
            const int r = item / U, u = item % U;
            if (u >= my.own) continue;
            const int unit = my.first + u;
            const Gates<T, G> in = item == tid ? early : gates_at<G>(x + r * p.gates_row + u, H);
            Gates<T, G> own = {}, made;
            for (int slice_ = 0; slice_ < my.slices; ++slice_) {
                const Gates<T, G> part = sums[r * my.threads + slice_ * U + u];
#pragma unroll
                for (int g = 0; g < G; ++g) own.at[g] += part.at[g];
            }
            T state;
            if constexpr (Unit == LSTM) {
                const T i = sigmoid(in.at[0] + own.at[0]), f = sigmoid(in.at[1] + own.at[1]);
                const T g = tanh(in.at[2] + own.at[2]), o = sigmoid(in.at[3] + own.at[3]);
                const T c = f * cell[item] + i * g;
                made = {i, f, g, o};
                state = o * tanh(c);
                cell[item] = rounded<S>(c);
                values[(row + r) * H + unit] = c;
            } else if constexpr (Unit == GRU) {
                if (begun)
#pragma unroll
                    for (int g = 0; g < G; ++g) own.at[g] += begun[(unit + g * H) * p.cell_unit];
                const T reset = sigmoid(in.at[0] + own.at[0]), z = sigmoid(in.at[1] + own.at[1]), n = tanh(reset * own.at[2] + in.at[2]);
                made = {reset, z, n};
                state = (now[unit].item[r] - n) * z + n;
                put(values + (row + r) * G * H + unit, own, H);
            } else {
                const T sum = in.at[0] + own.at[0];
                if constexpr (Unit == TANH) state = tanh(sum);
                else state = sum < T(0) ? T(0) : sum;  // what is not a number stays so
                made = {state};
            }
            const S h = store<S>(state);
            state = load(h);
#pragma unroll
            for (int block = 0; block < Blocks; ++block) of_team<Blocks>(next, block)[unit].item[r] = state;
            put(acts + (row + r) * G * H + unit, made, H);
            hidden[(p.backwards ? row + r : row + r + p.batch) * H + unit] = h;
        }
        team_barrier<Blocks>();
    }
}

// What a step's way back needs of one unit of one sequence. value: its cell, or GRU's sum of the state for n; before: what it began with.
template <class T, int G>
struct Kept {
    Gates<T, G> acts;
    T value, before, slope;
};

template <int Unit, class S, class T>
__device__ __forceinline__ Kept<T, gates_of(Unit)> kept_of(const S* slopes, const T* acts, const T* values, const S* states, const T* begun,
                                                           const Steps& p, int64 s, int64 row, int64 unit) {
    constexpr int G = gates_of(Unit);
    const int64 t = p.backwards ? p.steps - 1 - s : s;
    Kept<T, G> found = {gates_at<G>(acts + t * p.acts_step + row * p.acts_row + unit, p.units), T(0), T(0), static_cast<T>(p.slope)};
    const T* const at = values + t * p.values_step + row * p.values_row + unit;
    if constexpr (Unit == LSTM || Unit == GRU) {
        found.value = Unit == LSTM ? at[0] : at[2 * p.units];
        if (s == 0) found.before = begun[row * p.begun_row + unit * p.begun_unit];
        else if constexpr (Unit == LSTM) found.before = rounded<S>(at[p.backwards ? p.values_step : -p.values_step]);
        else found.before = load(states[(t - 1 + p.backwards) * p.states_step + row * p.states_row + unit * p.states_unit]);
    }
    if (slopes && s < p.steps - 1) found.slope = load(slopes[(t - p.backwards) * p.slope_step + row * p.slope_row + unit * p.slope_unit]);
    return found;
}

// dgates: the gradients of the gates' sums; down: of GRU's sums of the state. carried: of the first cell states, or of GRU's first states
// past its gates. Units without gates leave out what they do not have.
template <int Unit, int Blocks, int Rows, class S>
__device__ __forceinline__ void backward_steps(const S* slopes, const typename Compute<S>::type* first,
                                               const typename Compute<S>::type* arrived, const typename Compute<S>::type* acts,
                                               const typename Compute<S>::type* values, const S* states,
                                               const typename Compute<S>::type* begun, const S* weight, typename Compute<S>::type* dgates,
                                               typename Compute<S>::type* down, typename Compute<S>::type* carried, const Steps& p) {
    typedef typename Compute<S>::type T;
    constexpr int G = gates_of(Unit);
    constexpr bool CARRIES = Unit == LSTM || Unit == GRU;
    const Share<Blocks, Rows> my(p, 1);
    const int tid = static_cast<int>(threadIdx.x), H = my.units, U = my.most, senders = Blocks * my.slices;
    extern __shared__ __align__(64) unsigned char memory[];
    Gates<T, G>* const own = reinterpret_cast<Gates<T, G>*>(memory);                           // [U][Rows]: gradients of the block's gates
    Pack<T, Rows>* const parts = reinterpret_cast<Pack<T, Rows>*>(own + U * Rows);             // [2][senders][U]
    T* const carry = reinterpret_cast<T*>(parts + 2 * senders * U);                            // [Rows][U]
    Gates<S, G>* const w = reinterpret_cast<Gates<S, G>*>(carry + (CARRIES ? Rows * U : 0));   // [U][H]

    for (int i = tid; i < my.own * H; i += my.threads) w[i] = weights_of<G>(weight, p, i % H, my.first + i / H);
    for (int i = tid; i < U * Rows; i += my.threads) own[i] = {};  // of sequences that are not there
    const bool mine = tid < U * my.sequences && tid % U < my.own;
    Kept<T, G> early;  // of the thread's first item, for the next step; it comes while products are summed up
    if (mine) early = kept_of<Unit>(slopes, acts, values, states, begun, p, p.steps - 1, my.row + tid / U, my.first + tid % U);
    team_barrier<Blocks>();

#pragma unroll 1
    for (int64 s = p.steps - 1; s >= 0; --s) {
        const int64 t = p.backwards ? p.steps - 1 - s : s;
        const Pack<T, Rows>* const came = parts + (s & 1) * senders * U;
        Pack<T, Rows>* const go = parts + (~s & 1) * senders * U;
#pragma unroll 1
        for (int item = tid; item < U * my.sequences; item += my.threads) {
            const int r = item / U, u = item % U;
            if (u >= my.own) continue;
            const int64 unit = my.first + u, row = my.row + r;
            const Kept<T, G> now = item == tid ? early : kept_of<Unit>(slopes, acts, values, states, begun, p, s, row, unit);
            T dh, dc = T(0), behind = T(0);
            if (s == p.steps - 1) {
                dh = first[row * p.first_row + unit * p.first_unit];
                if constexpr (Unit == LSTM) dc = arrived[row * p.cell_row + unit * p.cell_unit];
            } else {
                dh = T(0);
                for (int sender = 0; sender < senders; ++sender) dh += came[sender * U + u].item[r];
                if constexpr (Unit == GRU) dh += carry[item];
                dh = rounded<S>(rounded<S>(dh) + now.slope);
                if constexpr (Unit == LSTM) dc = rounded<S>(carry[item]);
            }
            Gates<T, G> d;
            T* const out = dgates + (t * p.batch + row) * G * H + unit;
            if constexpr (Unit == LSTM) {
                const T i = now.acts.at[0], f = now.acts.at[1], g = now.acts.at[2], o = now.acts.at[3], c = tanh(now.value);
                const T all = (T(1) - c * c) * o * dh + dc;
                d = {(T(1) - i) * i * g * all, (T(1) - f) * f * now.before * all, (T(1) - g * g) * i * all, (T(1) - o) * o * c * dh};
                behind = all * f;
                put(out, d, H);
            } else if constexpr (Unit == GRU) {
                const T reset = now.acts.at[0], z = now.acts.at[1], n = now.acts.at[2];
                const T dn = (T(1) - n * n) * (T(1) - z) * dh;
                d = {(T(1) - reset) * reset * dn * now.value, (T(1) - z) * z * (now.before - n) * dh, dn};
                behind = dh * z;
                put(out, d, H);
                d.at[2] = dn * reset;
                put(down + (t * p.batch + row) * G * H + unit, d, H);
            } else {
                const T y = now.acts.at[0];
                if constexpr (Unit == TANH) d = {(T(1) - y * y) * dh};
                else d = {y <= T(0) ? T(0) : dh};
                put(out, d, H);
            }
            own[u * Rows + r] = d;
            if constexpr (CARRIES) {
                carry[item] = behind;
                if (s == 0) carried[row * H + unit] = behind;
            }
        }
        if (s == 0) break;
        if (mine) early = kept_of<Unit>(slopes, acts, values, states, begun, p, s - 1, my.row + tid / U, my.first + tid % U);
        __syncthreads();
        for (int at = tid; at < H * my.slices; at += my.threads) {
            const int unit = at % H, slice = at / H;
            Pack<T, Rows> sum;
#pragma unroll
            for (int r = 0; r < Rows; ++r) sum.item[r] = T(0);
#pragma unroll 4
            for (int u = slice; u < my.own; u += my.slices) {
                const Gates<S, G> weights = w[u * H + unit];
                const Gates<T, G> v = gates_at<G>(weights.at, 1);
#pragma unroll
                for (int r = 0; r < Rows; ++r) {
                    const Gates<T, G> d = own[u * Rows + r];
                    T product = d.at[0] * v.at[0];
#pragma unroll
                    for (int g = 1; g < G; ++g) product += d.at[g] * v.at[g];
                    sum.item[r] += product;
                }
            }
            of_team<Blocks>(go, unit / U)[(my.rank * my.slices + slice) * U + unit % U] = sum;
        }
        team_barrier<Blocks>();
    }
}

}  // namespace gradlab
