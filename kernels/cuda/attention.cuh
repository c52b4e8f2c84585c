// Attention without its matrix of weights: the online softmax of Milakov and Gimelshein ("Online normalizer calculation for softmax", 2018)
// over blocks of keys, and gradients that make the weights again from the logarithms of their sums, as in Dao and others ("FlashAttention",
// 2022; "FlashAttention-2", 2023). No atomics: one kernel over blocks of keys makes dk and dv, one over blocks of queries makes dq.
#pragma once
#include "softmax.cuh"
#include "warp_tile.cuh"

namespace gradlab {

enum { NO_MASK = 0, ADDED = 1, ALLOWED = 2 };  // kinds of mask: numbers to add to the scores; true where attention is allowed

// The same struct is packed in backends/cuda/launch/attention.py. Strides count elements: image, head, row (of the mask also column).
struct Attention {
    int64 q[3], k[3], v[3], g[3], y[3], dq[3], dk[3], dv[3], mask_strides[4];
    double scale;
    // aligned: a bit for each of q, k, v, g; from 16 on one for y, dq, dk, dv where two numbers may be written at once.
    int heads, queries, keys, size, value_size, mask, causal, aligned;
};

// The scores p [16 x BN] of a warp's rows (`row` and row + 8 are a thread's) from column `from` on: those of pairs that may not be become -inf, and a
// mask is added, in units of log 2. Rows are queries, columns keys; or (Keys) the other way round. No branches between the loads of a mask.
template <class Engine, class S, int BN, bool Keys, class T>
__device__ __forceinline__ void mask_scores(const Attention& a, const void* __restrict__ mask, int64 base, int row, int from, T (&p)[BN / 8][4]) {
    const int64 row_step = a.mask_strides[Keys ? 3 : 2], column_step = a.mask_strides[Keys ? 2 : 3];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int own = row + 8 * half;
        int begin = 0, end = own < (Keys ? a.keys : a.queries) ? (Keys ? a.queries : a.keys) : 0;  // the columns that this row may meet
        if (Keys && a.causal) begin = own;
        if (!Keys && a.causal && own + 1 < end) end = own + 1;
        begin -= from + Engine::column(0, 0);
        end -= from + Engine::column(0, 0);
        const int64 first = base + own * row_step + (from + Engine::column(0, 0)) * column_step;
        const auto allowed = [&](int j, int e) { return (!Keys || 8 * j + e >= begin) && 8 * j + e < end; };
#pragma unroll
        for (int j = 0; j < BN / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) p[j][2 * half + e] = allowed(j, e) ? p[j][2 * half + e] : -infinity<T>();
        if (a.mask == ADDED) {
#pragma unroll
            for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const T found = static_cast<T>(load(static_cast<const S*>(mask)[allowed(j, e) ? first + (8 * j + e) * column_step : 0]));
                    p[j][2 * half + e] += allowed(j, e) ? found * T(1.4426950408889634) : T(0);
                }
        } else if (a.mask == ALLOWED) {
#pragma unroll
            for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const bool found = static_cast<const bool*>(mask)[allowed(j, e) ? first + (8 * j + e) * column_step : 0];
                    p[j][2 * half + e] = found ? p[j][2 * half + e] : -infinity<T>();
                }
        }
    }
}

// Rows of `result`, each of `size` elements behind one another, the rows `step` apart.
template <class Engine, int D, class S, class T>
__device__ __forceinline__ void write_rows(S* to, int64 step, bool pairs, const T (&result)[D / 8][4], const T (&factor)[2], int row, int rows, int size) {
#pragma unroll 1  // once a block: not worth twice the code
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= rows) continue;
        S* const at = to + (row + 8 * half) * step;
#pragma unroll
        for (int j = 0; j < D / 8; ++j) {
            const int column = Engine::spread_column(j, 0);
            Pack<S, 2> both;
#pragma unroll
            for (int e = 0; e < 2; ++e) both.item[e] = store<S>((half ? result[j][2 + e] : result[j][e]) * (half ? factor[1] : factor[0]));
            if (column + 1 < size && pairs) {
                *reinterpret_cast<Pack<S, 2>*>(at + column) = both;
            } else {
                if (column < size) at[column] = both.item[0];
                if (column + 1 < size) at[column + 1] = both.item[1];
            }
        }
    }
}

// ---- forward -----------------------------------------------------------------------------------------------------------------

// One block for 64 · M queries of a head; each of its 4 warps has 16 · M of them. BN keys at a time, with their values, in a ring of Stages: the next
// Stages - 1 are on their way while one is multiplied. With one stage keys arrive while values are multiplied, and values while keys are.
template <class Engine, class S, int D, int M, int BN, int Stages>
__device__ __forceinline__ void attend_rows(const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v, const void* __restrict__ mask,
                                            S* __restrict__ y, typename Engine::T* __restrict__ lse, const Attention& a) {
    typedef typename Engine::T T;
    typedef typename Engine::Cell Cell;
    const int BM = 64 * M, THREADS = 128, WIDTH = D + Engine::PAD, AHEAD = Stages == 1 ? BN : (Stages - 1) * BN;
    extern __shared__ uint4 attention_room[];
    Cell* const q_tile = reinterpret_cast<Cell*>(attention_room);
    Cell* const tiles_of_keys = q_tile + BM * WIDTH;  // Stages times: keys, values
    const int warp = threadIdx.x >> 5, group = (threadIdx.x & 31) >> 2;
    T* const room = reinterpret_cast<T*>(tiles_of_keys + Stages * 2 * BN * WIDTH) + warp * 16 * (BN + Engine::PAD);

    // The longest first: with a causal mask the last queries have the most keys.
    const unsigned tiles = static_cast<unsigned>((a.queries + BM - 1) / BM), plane = blockIdx.x / tiles;
    const int row0 = static_cast<int>(tiles - 1 - (blockIdx.x - plane * tiles)) * BM, own = row0 + warp * 16 * M;
    const int64 image = plane / static_cast<unsigned>(a.heads), head = plane - image * a.heads;
    q += image * a.q[0] + head * a.q[1];
    k += image * a.k[0] + head * a.k[1];
    v += image * a.v[0] + head * a.v[1];
    const int64 mask_base = image * a.mask_strides[0] + head * a.mask_strides[1];
    const int limit = a.causal && row0 + BM < a.keys ? row0 + BM : a.keys;
    const T scale = static_cast<T>(a.scale * 1.4426950408889634);

    T total[M][2], top[M][2], result[M][D / 8][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        total[m][0] = total[m][1] = T(0);
        top[m][0] = top[m][1] = -infinity<T>();
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) result[m][j][e] = T(0);
    }

    fetch<Engine, BM, D, THREADS>(q_tile, q, a.q[2], row0, a.queries, a.size, a.aligned & 1);
    T p[M][BN / 8][4], keep[M][2];
    Cell *k_tile = tiles_of_keys, *next_tile = tiles_of_keys;  // those that are multiplied, and those that come
    Cell* const last_tile = tiles_of_keys + (Stages - 1) * 2 * BN * WIDTH;
#pragma unroll 1
    for (int key0 = -AHEAD; key0 < limit; key0 += BN) {  // the first turns but fetch: one place in the text for that
        if (key0 >= 0) {
            await_groups<Stages == 1 ? 0 : Stages - 2>();
            __syncthreads();  // the keys are there, and what was multiplied in the last turn is no longer read
        }
        if (Stages > 1 && key0 + AHEAD < limit) {
            fetch<Engine, BN, D, THREADS>(next_tile, k, a.k[2], key0 + AHEAD, a.keys, a.size, a.aligned & 2);
            fetch<Engine, BN, D, THREADS>(next_tile + BN * WIDTH, v, a.v[2], key0 + AHEAD, a.keys, a.value_size, a.aligned & 4);
        }
        if (Stages > 1) {
            end_of_group();
            next_tile = next_tile == last_tile ? tiles_of_keys : next_tile + 2 * BN * WIDTH;
        }
        if (key0 >= 0) {
            if (Stages == 1) fetch<Engine, BN, D, THREADS>(k_tile + BN * WIDTH, v, a.v[2], key0, a.keys, a.value_size, a.aligned & 4);
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) p[m][j][e] = T(0);
            Engine::template across<D, BN, M>(q_tile + warp * 16 * M * WIDTH, k_tile, p);
            const bool plain = a.mask == NO_MASK && key0 + BN <= a.keys && (!a.causal || key0 + BN <= own + 1) && own + 16 * M <= a.queries;
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) p[m][j][e] *= scale;
                if (!plain) mask_scores<Engine, S, BN, false>(a, mask, mask_base, own + 16 * m + group, key0, p[m]);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    T most = top[m][half];
#pragma unroll
                    for (int j = 0; j < BN / 8; ++j) most = maximum(most, maximum(p[m][j][2 * half], p[m][j][2 * half + 1]));
                    most = maximum(most, __shfl_xor_sync(0xffffffffu, most, 1));
                    most = maximum(most, __shfl_xor_sync(0xffffffffu, most, 2));
                    const T base = most == -infinity<T>() ? T(0) : most;  // nothing allowed so far
                    keep[m][half] = exp2(top[m][half] - base);
                    top[m][half] = most;
                    T sum = T(0);
#pragma unroll
                    for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                        for (int e = 2 * half; e < 2 * half + 2; ++e) {
                            p[m][j][e] = exp2(p[m][j][e] - base);
                            sum += p[m][j][e];
                        }
                    total[m][half] = total[m][half] * keep[m][half] + sum;
                }
            }
            if (Stages == 1) {
                await_copies();
                __syncthreads();  // the values are there, and the keys are no longer read
            }
        }
        if (Stages == 1) {
            if (key0 + BN < limit) fetch<Engine, BN, D, THREADS>(k_tile, k, a.k[2], key0 + BN, a.keys, a.size, a.aligned & 2);
            end_of_group();
        }
        if (key0 < 0) continue;
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int j = 0; j < D / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) result[m][j][e] *= keep[m][e >> 1];
        Engine::template along<BN, D, M>(p, room, k_tile + BN * WIDTH, result);
        if (Stages > 1) k_tile = k_tile == last_tile ? tiles_of_keys : k_tile + 2 * BN * WIDTH;
    }
    await_copies();
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            T& sum = total[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int row = own + 16 * m + group + 8 * half;
            // Of a query that may look at nothing: 0, so that its weights come out as exp(-inf - 0) = 0.
            const T logarithm = sum == T(0) ? T(0) : top[m][half] * T(0.6931471805599453) + log(sum);
            if ((threadIdx.x & 3) == 0 && row < a.queries) lse[static_cast<int64>(plane) * a.queries + row] = logarithm;
            sum = sum == T(0) ? T(0) : T(1) / sum;
        }
        S* const to = y + image * a.y[0] + head * a.y[1];
        write_rows<Engine, D>(to, a.y[2], a.aligned >> 16 & 1, result[m], total[m], own + 16 * m + group, a.queries, a.value_size);
    }
}

// ---- backward ----------------------------------------------------------------------------------------------------------------

// One block for 16 · Warps keys (Keys) or queries of a head; it walks over the others, BN at a time.
// Keys: `first` is dk and `second` dv. Else `first` is dq.
//
// A query's slopes, weight · (gradient - delta), add up to its gradient of lse. Where one key has nearly all the weight its own is all rounding: it is
// what the others' sum lacks, which the block of the query leaves in `sure` (-infinity where there is no such key) for those of the keys.
template <class Engine, class S, int D, int Warps, int BN, int Stages, bool Keys>
__device__ __forceinline__ void differentiate(const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v, const S* __restrict__ g,
                                              const void* __restrict__ mask, const typename Engine::T* __restrict__ lse,
                                              const typename Engine::T* __restrict__ delta, const typename Engine::T* __restrict__ g_lse,
                                              typename Engine::T* __restrict__ sure, S* __restrict__ first, S* __restrict__ second,
                                              const Attention& a) {
    typedef typename Engine::T T;
    typedef typename Engine::Cell Cell;
    const int BM = 16 * Warps, THREADS = 32 * Warps, WIDTH = D + Engine::PAD;
    extern __shared__ uint4 attention_room[];
    Cell* const own_tile = reinterpret_cast<Cell*>(attention_room);  // keys, or queries
    Cell* const own_values = own_tile + BM * WIDTH;                  // values, or the queries' gradients
    Cell* const others = own_values + BM * WIDTH;                    // Stages times: the other side's two
    T* const numbers = reinterpret_cast<T*>(others + Stages * 2 * BN * WIDTH);  // Stages times: lse and delta of the other side, if queries
    const int warp = threadIdx.x >> 5, group = (threadIdx.x & 31) >> 2;
    T* const room = numbers + Stages * 2 * BN + warp * 16 * (BN + Engine::PAD);

    const int rows = Keys ? a.keys : a.queries, columns = Keys ? a.queries : a.keys;
    const unsigned tiles = static_cast<unsigned>((rows + BM - 1) / BM), plane = blockIdx.x / tiles, tile = blockIdx.x - plane * tiles;
    const int row0 = static_cast<int>(Keys ? tile : tiles - 1 - tile) * BM, own = row0 + warp * 16;
    const int64 image = plane / static_cast<unsigned>(a.heads), head = plane - image * a.heads;
    q += image * a.q[0] + head * a.q[1];
    k += image * a.k[0] + head * a.k[1];
    v += image * a.v[0] + head * a.v[1];
    g += image * a.g[0] + head * a.g[1];
    lse += static_cast<int64>(plane) * a.queries;
    delta += static_cast<int64>(plane) * a.queries;
    sure += static_cast<int64>(plane) * a.queries;
    if (g_lse) g_lse += static_cast<int64>(plane) * a.queries;
    const int64 mask_base = image * a.mask_strides[0] + head * a.mask_strides[1];
    const int begin = Keys && a.causal ? row0 / BN * BN : 0;
    const int limit = !Keys && a.causal && row0 + BM < columns ? row0 + BM : columns;
    const T scale = static_cast<T>(a.scale * 1.4426950408889634), per_log2 = T(1.4426950408889634);

    auto fetch_others = [&](int from, int stage) {
        Cell* const to = others + stage * 2 * BN * WIDTH;
        fetch<Engine, BN, D, THREADS>(to, Keys ? q : k, Keys ? a.q[2] : a.k[2], from, columns, a.size, a.aligned & (Keys ? 1 : 2));
        fetch<Engine, BN, D, THREADS>(to + BN * WIDTH, Keys ? g : v, Keys ? a.g[2] : a.v[2], from, columns, a.value_size, a.aligned & (Keys ? 8 : 4));
        if (Keys)
            for (int i = threadIdx.x; i < BN; i += THREADS) {
                numbers[stage * 2 * BN + i] = from + i < columns ? lse[from + i] * per_log2 : T(0);
                numbers[stage * 2 * BN + BN + i] = from + i < columns ? delta[from + i] : T(0);
            }
    };

    T one[D / 8][4], two[Keys ? D / 8 : 1][4];
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) one[j][e] = T(0);
#pragma unroll
    for (int j = 0; j < (Keys ? D / 8 : 1); ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) two[j][e] = T(0);
    T row_lse[2] = {T(0), T(0)}, row_delta[2] = {T(0), T(0)}, rest[2] = {T(0), T(0)};
    int likeliest[2] = {-1, -1};
    if (!Keys) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = own + group + 8 * half;
            if (row >= rows) continue;
            row_lse[half] = lse[row] * per_log2;
            row_delta[half] = delta[row];
        }
    }

    fetch<Engine, BM, D, THREADS>(own_tile, Keys ? k : q, Keys ? a.k[2] : a.q[2], row0, rows, a.size, a.aligned & (Keys ? 2 : 1));
    fetch<Engine, BM, D, THREADS>(own_values, Keys ? v : g, Keys ? a.v[2] : a.g[2], row0, rows, a.value_size, a.aligned & (Keys ? 4 : 8));
    int stage = Stages - 1;
#pragma unroll 1
    for (int from = begin - BN; from < limit; from += BN, stage = Stages - 1 - stage) {  // the first turn but fetches: one place in the text
        const bool started = from >= begin, more = from + BN < limit;
        if (started) {
            await_copies();
            __syncthreads();
        }
        if (Stages == 2 && more) fetch_others(from + BN, stage ^ 1);
        if (started) {
            const Cell* const other = others + stage * 2 * BN * WIDTH;
            const Cell* const other_values = other + BN * WIDTH;
            const T* const of_columns = numbers + stage * 2 * BN;
            T p[BN / 8][4], d[BN / 8][4];
#pragma unroll
            for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) p[j][e] = d[j][e] = T(0);
            Engine::template across<D, BN>(own_tile + warp * 16 * WIDTH, other, &p);
            const bool plain = a.mask == NO_MASK && from + BN <= columns && own + 16 <= rows &&
                               (!a.causal || (Keys ? own + 16 <= from + 1 : from + BN <= own + 1));
#pragma unroll
            for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) p[j][e] *= scale;
            if (!plain) mask_scores<Engine, S, BN, Keys>(a, mask, mask_base, own + group, from, p);
#pragma unroll
            for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) p[j][e] = exp2(p[j][e] - (Keys ? of_columns[Engine::column(j, e & 1)] : row_lse[e >> 1]));
            Engine::template across<D, BN>(own_values + warp * 16 * WIDTH, other_values, &d);
            if constexpr (Keys) Engine::template along<BN, D>(&p, room, other_values, &two);
#pragma unroll
            for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) d[j][e] = p[j][e] * (d[j][e] - (Keys ? of_columns[BN + Engine::column(j, e & 1)] : row_delta[e >> 1]));
            if constexpr (Keys) {
                T most = T(0);
#pragma unroll
                for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) most = maximum(most, p[j][e]);
                if (most > T(0.5)) {
#pragma unroll
                    for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            const T known = p[j][e] > T(0.5) ? sure[from + Engine::column(j, e & 1)] : -infinity<T>();
                            if (known > -infinity<T>()) d[j][e] = known;
                        }
                }
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    T most = T(0), sum = T(0);
#pragma unroll
                    for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                        for (int e = 2 * half; e < 2 * half + 2; ++e) most = maximum(most, p[j][e]), sum += d[j][e];
                    if (most > SURE<T>) {
                        sum = T(0);
#pragma unroll
                        for (int j = 0; j < BN / 8; ++j)
#pragma unroll
                            for (int e = 2 * half; e < 2 * half + 2; ++e) {
                                if (p[j][e] > SURE<T>) likeliest[half] = from + Engine::column(j, e & 1), d[j][e] = T(0);
                                sum += d[j][e];
                            }
                    }
                    rest[half] += sum;
                }
            }
            Engine::template along<BN, D>(&d, room, other, &one);
            if (Stages == 1) __syncthreads();  // the other side is no longer read
        }
        if (Stages == 1 && more) fetch_others(from + BN, 0);
    }
    await_copies();
    if constexpr (!Keys) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = own + group + 8 * half;
#pragma unroll
            for (int lane = 1; lane < 4; lane *= 2) {
                rest[half] += __shfl_xor_sync(0xffffffffu, rest[half], lane);
                const int found = __shfl_xor_sync(0xffffffffu, likeliest[half], lane);
                likeliest[half] = found > likeliest[half] ? found : likeliest[half];
            }
            if (row >= rows) continue;
            const T slope = likeliest[half] < 0 ? -infinity<T>() : (g_lse ? g_lse[row] : T(0)) - rest[half];
            if ((threadIdx.x & 3) == 0) sure[row] = slope;
            if (likeliest[half] < 0) continue;
            const S* const key = k + static_cast<int64>(likeliest[half]) * a.k[2];
#pragma unroll
            for (int j = 0; j < D / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (Engine::spread_column(j, e) < a.size) one[j][2 * half + e] += slope * static_cast<T>(load(key[Engine::spread_column(j, e)]));
        }
    }
    const T factor = static_cast<T>(a.scale), factors[2] = {factor, factor}, ones[2] = {T(1), T(1)};
    const int64(&to)[3] = Keys ? a.dk : a.dq;
    write_rows<Engine, D>(first + image * to[0] + head * to[1], to[2], a.aligned >> (Keys ? 18 : 17) & 1, one, factors, own + group, rows, a.size);
    if constexpr (Keys)
        write_rows<Engine, D>(second + image * a.dv[0] + head * a.dv[1], a.dv[2], a.aligned >> 19 & 1, two, ones, own + group, rows, a.value_size);
}

}  // namespace gradlab
