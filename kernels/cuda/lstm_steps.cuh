// All time steps of a layer of LSTM units in one launch (the formulas: gradlab/ops/recurrent.py).
//
// Sequences do not know of each other: a team of blocks takes Rows of them through all steps. Each block of the team has a share of the
// units, and keeps their part of the weight in shared memory for the whole way. A step is a product of the states of all units, the gates
// of the block's own, and new states, which are written into the shared memory of all blocks of the team (forward); or the gradients of the
// block's own gates, their product with its part of the weight, and sums of it for all units, which go to the blocks that have these
// (backward). So there is one barrier of the team for each step. A team is one block, or a cluster of them.
//
// S is what states and weights are rounded to; T, in which is computed, is what gates, cells and their gradients are kept in. Sums are
// taken in a fixed order.
#pragma once
#include "cluster.cuh"

namespace gradlab {

template <class S>
struct alignas(sizeof(S) * 4) Gates {
    S i, f, g, o;
};

// Sizes, and distances in elements: from step to step, from sequence to sequence, from number to number.
struct Steps {
    int64 steps, batch, units;
    int64 backwards;                            // 1: the way goes from the last step to the first
    int64 weight_input, weight_gate;            // from one state's number to the next, from one gate to the next
    int64 gates_step, gates_row;                // forward: what the input adds to the sums
    int64 first_row, first_unit;                // the first hidden states (backward: the gradients that arrive at the last ones)
    int64 cell_row, cell_unit;                  // the first cell states (backward: the gradients that arrive at the last ones)
    int64 begun_row, begun_unit;                // backward: the first cell states
    int64 slope_step, slope_row, slope_unit;    // backward: the gradients that arrive at the hidden states, but those of the last
    int64 cells_step, cells_row, acts_step, acts_row;  // backward: where cells and gates lie
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

template <class S>
__device__ __forceinline__ Gates<S> weights_of(const S* weight, const Steps& p, int64 input, int64 unit) {
    const S* const at = weight + input * p.weight_input + unit * p.weight_gate;
    const int64 apart = p.units * p.weight_gate;
    return {at[0], at[apart], at[2 * apart], at[3 * apart]};
}

// What the input adds to the gates of a unit.
template <class T, class S>
__device__ __forceinline__ Gates<T> added(const S* x, int units) {
    return {load(x[0]), load(x[units]), load(x[2 * units]), load(x[3 * units])};
}

template <int Blocks, int Rows, class S>
__device__ __forceinline__ void lstm_forward(const S* gates, const S* weight, const typename Compute<S>::type* first,
                                             const typename Compute<S>::type* begun, S* hidden, typename Compute<S>::type* cells,
                                             typename Compute<S>::type* acts, const Steps& p) {
    typedef typename Compute<S>::type T;
    const Share<Blocks, Rows> my(p, 0);
    const int tid = static_cast<int>(threadIdx.x), H = my.units, U = my.most;
    extern __shared__ __align__(32) unsigned char memory[];
    Gates<T>* const sums = reinterpret_cast<Gates<T>*>(memory);                          // [Rows][threads]
    Pack<T, Rows>* const states = reinterpret_cast<Pack<T, Rows>*>(sums + Rows * my.threads);  // [2][H]
    T* const cell = reinterpret_cast<T*>(states + 2 * H);                                // [Rows][U]
    Gates<S>* const w = reinterpret_cast<Gates<S>*>(cell + Rows * U);                          // [H][U]

    for (int i = tid; i < my.own * H; i += my.threads) {
        const int k = i % H, u = i / H;
        w[k * U + u] = weights_of(weight, p, k, my.first + u);
    }
    for (int i = tid; i < H * Rows; i += my.threads) {
        const int k = i % H, r = i / H;
        states[k].item[r] = r < my.sequences ? first[(my.row + r) * p.first_row + k * p.first_unit] : T(0);
    }
    for (int i = tid; i < U * my.sequences; i += my.threads) {
        const int r = i / U, u = i % U;
        if (u >= my.own) continue;
        const int unit = my.first + u;
        cell[i] = begun[(my.row + r) * p.cell_row + unit * p.cell_unit];
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
        Gates<T> early = {T(0), T(0), T(0), T(0)};  // of the thread's first item; it comes while products are summed up
        if (slice < my.sequences && column < my.own) early = added<T>(x + slice * p.gates_row + column, H);
        if (slice < my.slices && column < my.own) {
            Gates<T> sum[Rows];
#pragma unroll
            for (int r = 0; r < Rows; ++r) sum[r] = {T(0), T(0), T(0), T(0)};
#pragma unroll 4
            for (int k = slice; k < H; k += my.slices) {
                const Gates<S> v = w[k * U + column];
                const Pack<T, Rows> h = now[k];
                const T i = load(v.i), f = load(v.f), g = load(v.g), o = load(v.o);
#pragma unroll
                for (int r = 0; r < Rows; ++r) {
                    sum[r].i += i * h.item[r];
                    sum[r].f += f * h.item[r];
                    sum[r].g += g * h.item[r];
                    sum[r].o += o * h.item[r];
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
            const Gates<T> in = item == tid ? early : added<T>(x + r * p.gates_row + u, H);
            Gates<T> own = {T(0), T(0), T(0), T(0)};
            for (int slice_ = 0; slice_ < my.slices; ++slice_) {
                const Gates<T> part = sums[r * my.threads + slice_ * U + u];
                own.i += part.i, own.f += part.f, own.g += part.g, own.o += part.o;
            }
            const T i = sigmoid(in.i + own.i), f = sigmoid(in.f + own.f), g = tanh(in.g + own.g), o = sigmoid(in.o + own.o);
            const T c = f * cell[item] + i * g;
            const S h = store<S>(o * tanh(c));
            const T state = load(h);
            cell[item] = rounded<S>(c);
#pragma unroll
            for (int block = 0; block < Blocks; ++block) of_team<Blocks>(next, block)[unit].item[r] = state;
            T* const kept = acts + (row + r) * 4 * H + unit;
            kept[0] = i, kept[H] = f, kept[2 * H] = g, kept[3 * H] = o;
            cells[(row + r) * H + unit] = c;
            hidden[(p.backwards ? row + r : row + r + p.batch) * H + unit] = h;
        }
        team_barrier<Blocks>();
    }
}

// What a step's way back needs of one unit of one sequence.
template <class T>
struct Kept {
    Gates<T> acts;
    T cell, before, slope;
};

template <class S, class T>
__device__ __forceinline__ Kept<T> kept_of(const S* slopes, const T* acts, const T* cells, const T* begun, const Steps& p, int64 s, int64 row,
                                           int64 unit) {
    const int64 t = p.backwards ? p.steps - 1 - s : s, former = p.backwards ? p.cells_step : -p.cells_step;
    const T* const a = acts + t * p.acts_step + row * p.acts_row + unit;
    const T* const c = cells + t * p.cells_step + row * p.cells_row + unit;
    Kept<T> found = {{a[0], a[p.units], a[2 * p.units], a[3 * p.units]}, c[0], T(0), static_cast<T>(p.slope)};
    found.before = s == 0 ? begun[row * p.begun_row + unit * p.begun_unit] : rounded<S>(c[former]);
    if (slopes && s < p.steps - 1) found.slope = load(slopes[(t - p.backwards) * p.slope_step + row * p.slope_row + unit * p.slope_unit]);
    return found;
}

template <int Blocks, int Rows, class S>
__device__ __forceinline__ void lstm_backward(const S* slopes, const typename Compute<S>::type* first,
                                              const typename Compute<S>::type* arrived, const typename Compute<S>::type* acts, const typename Compute<S>::type* cells,
                                              const typename Compute<S>::type* begun, const S* weight, typename Compute<S>::type* dgates,
                                              typename Compute<S>::type* dcell, const Steps& p) {
    typedef typename Compute<S>::type T;
    const Share<Blocks, Rows> my(p, 1);
    const int tid = static_cast<int>(threadIdx.x), H = my.units, U = my.most, senders = Blocks * my.slices;
    extern __shared__ __align__(32) unsigned char memory[];
    Gates<T>* const own = reinterpret_cast<Gates<T>*>(memory);                                 // [U][Rows]: gradients of the block's gates
    Pack<T, Rows>* const parts = reinterpret_cast<Pack<T, Rows>*>(own + U * Rows);             // [2][senders][U]
    T* const cell = reinterpret_cast<T*>(parts + 2 * senders * U);                             // [Rows][U]
    Gates<S>* const w = reinterpret_cast<Gates<S>*>(cell + Rows * U);                          // [U][H]

    for (int i = tid; i < my.own * H; i += my.threads) w[i] = weights_of(weight, p, i % H, my.first + i / H);
    for (int i = tid; i < U * Rows; i += my.threads) own[i] = {T(0), T(0), T(0), T(0)};  // of sequences that are not there
    const bool mine = tid < U * my.sequences && tid % U < my.own;
    Kept<T> early;  // of the thread's first item, for the next step; it comes while products are summed up
    if (mine) early = kept_of<S>(slopes, acts, cells, begun, p, p.steps - 1, my.row + tid / U, my.first + tid % U);
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
            const Kept<T> now = item == tid ? early : kept_of<S>(slopes, acts, cells, begun, p, s, row, unit);
            T dh, dc;
            if (s == p.steps - 1) {
                dh = first[row * p.first_row + unit * p.first_unit];
                dc = arrived[row * p.cell_row + unit * p.cell_unit];
            } else {
                dh = T(0);
                for (int sender = 0; sender < senders; ++sender) dh += came[sender * U + u].item[r];
                dh = rounded<S>(rounded<S>(dh) + now.slope);
                dc = rounded<S>(cell[item]);
            }
            const T i = now.acts.i, f = now.acts.f, g = now.acts.g, o = now.acts.o, c = tanh(now.cell);
            const T all = (T(1) - c * c) * o * dh + dc;
            const Gates<T> d = {(T(1) - i) * i * g * all, (T(1) - f) * f * now.before * all, (T(1) - g * g) * i * all, (T(1) - o) * o * c * dh};
            own[u * Rows + r] = d;
            cell[item] = all * f;
            T* const out = dgates + (t * p.batch + row) * 4 * H + unit;
            out[0] = d.i, out[H] = d.f, out[2 * H] = d.g, out[3 * H] = d.o;
            if (s == 0) dcell[row * H + unit] = all * f;
        }
        if (s == 0) break;
        if (mine) early = kept_of<S>(slopes, acts, cells, begun, p, s - 1, my.row + tid / U, my.first + tid % U);
        __syncthreads();
        for (int at = tid; at < H * my.slices; at += my.threads) {
            const int unit = at % H, slice = at / H;
            Pack<T, Rows> sum;
#pragma unroll
            for (int r = 0; r < Rows; ++r) sum.item[r] = T(0);
#pragma unroll 4
            for (int u = slice; u < my.own; u += my.slices) {
                const Gates<S> v = w[u * H + unit];
                const T i = load(v.i), f = load(v.f), g = load(v.g), o = load(v.o);
#pragma unroll
                for (int r = 0; r < Rows; ++r) {
                    const Gates<T> d = own[u * Rows + r];
                    sum.item[r] += d.i * i + d.f * f + d.g * g + d.o * o;
                }
            }
            of_team<Blocks>(go, unit / U)[(my.rank * my.slices + slice) * U + unit % U] = sum;
        }
        team_barrier<Blocks>();
    }
}

}  // namespace gradlab
