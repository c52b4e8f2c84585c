// Convolutions of one or two dimensions and their gradients as products of matrices, with tiles of BM x 64 in two stages of shared memory: the
// next tiles are on their way into registers while the present ones are multiplied.
// The order of a sum depends on sizes alone; no atomics.
#pragma once
#include "conv_planes.cuh"

namespace gradlab {

// Both engines: a warp multiplies 32 rows of `a` [rows x K] by 32 columns of b, [K x columns] or, Turned, [columns x K]. Its lanes have
// result[i][j][e], at the row and column that `place` says.
template <class S>
struct FmaTile {
    typedef typename Compute<S>::type T;
    typedef T Cell;
    enum { PAD = 16 / sizeof(T), BK = 64 / sizeof(T), SPREAD = 1 };
    static __device__ __forceinline__ Cell cell(S value) { return load(value); }

    template <bool Turned>
    static __device__ __forceinline__ void place(int i, int j, int e, int& row, int& column) {
        const int lane = threadIdx.x & 31;
        row = (lane >> 3) + 4 * (4 * i + j);
        column = Turned ? (lane & 7) + 8 * e : 4 * (lane & 7) + e;
    }
    template <bool Turned>
    static __device__ __forceinline__ void multiply(const Cell* a, int a_width, const Cell* b, int b_width, T (&result)[2][4][4]) {
        typedef Pack<T, PAD> P;
        const int lane = threadIdx.x & 31;
        a += (lane >> 3) * a_width;
        b += Turned ? (lane & 7) * b_width : 4 * (lane & 7);
#pragma unroll
        for (int k = 0; k < BK; k += PAD) {
            T right[PAD][4];
            if constexpr (Turned) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const P found = *reinterpret_cast<const P*>(b + 8 * e * b_width + k);
#pragma unroll
                    for (int i = 0; i < PAD; ++i) right[i][e] = found.item[i];
                }
            } else {
#pragma unroll
                for (int i = 0; i < PAD; ++i)
#pragma unroll
                    for (int e = 0; e < 4; e += PAD) {
                        const P found = *reinterpret_cast<const P*>(b + (k + i) * b_width + e);
#pragma unroll
                        for (int u = 0; u < PAD; ++u) right[i][e + u] = found.item[u];
                    }
            }
#pragma unroll
            for (int r = 0; r < 8; ++r) {
                const P left = *reinterpret_cast<const P*>(a + 4 * r * a_width + k);
#pragma unroll
                for (int i = 0; i < PAD; ++i)
#pragma unroll
                    for (int e = 0; e < 4; ++e) result[r / 4][r % 4][e] += left.item[i] * right[i][e];
            }
        }
    }
};

// Raw: cells are float32 as they came, and are rounded to TensorFloat32 when they are multiplied.
template <class S, bool Raw = false>
struct TensorTile {
    typedef float T;
    typedef S Cell;
    enum { W = 16 / sizeof(S), PAD = W, BK = 64 / sizeof(S), SPREAD = 0 };
    static __device__ __forceinline__ Cell cell(S value) {
        if constexpr (sizeof(S) == 4) return __uint_as_float(tensor_float(value));
        else return value;
    }

    template <int N>
    static __device__ __forceinline__ void rounded(unsigned (&cells)[N]) {
        if constexpr (Raw && sizeof(S) == 4) {
#pragma unroll
            for (int i = 0; i < N; ++i) cells[i] = tensor_float(__uint_as_float(cells[i]));
        }
    }

    template <bool Turned>
    static __device__ __forceinline__ void place(int i, int j, int e, int& row, int& column) {
        const int lane = threadIdx.x & 31;
        row = 16 * i + (lane >> 2) + 8 * (e >> 1);
        column = 8 * j + 2 * (lane & 3) + (e & 1);
    }
    template <bool Turned>
    static __device__ __forceinline__ void multiply(const Cell* a, int a_width, const Cell* b, int b_width, T (&result)[2][4][4]) {
        const int lane = threadIdx.x & 31;
        a += (lane & 15) * a_width + (lane >> 4) * W;
        if (Turned) b += ((lane & 7) + (lane >> 4) * 8) * b_width + ((lane >> 3) & 1) * W;
        else if (sizeof(S) == 4) b += (lane & 3) * b_width + (lane >> 2);
        else b += (lane & 15) * b_width + (lane >> 4) * 8;
#pragma unroll
        for (int k = 0; k < BK; k += 2 * W) {
            unsigned left[2][4], right[4][2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                load_blocks<false>(left[i], a + 16 * i * a_width + k);
                rounded(left[i]);
            }
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                if constexpr (!Turned && sizeof(S) == 4) {
                    const float* const at = reinterpret_cast<const float*>(b) + k * b_width + 8 * j;
#pragma unroll
                    for (int i = 0; i < 4; ++i) right[j + i / 2][i % 2] = __float_as_uint(at[(i % 2) * 4 * b_width + (i / 2) * 8]);
                } else {
                    unsigned found[4];
                    if constexpr (Turned) load_blocks<false>(found, b + 8 * j * b_width + k);
                    else load_blocks<true>(found, b + k * b_width + 8 * j);
#pragma unroll
                    for (int i = 0; i < 4; ++i) right[j + i / 2][i % 2] = found[i];
                }
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) rounded(right[j]);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_add<S>(result[i][j], left[i], right[j]);
        }
    }
};

// What becomes of a warp's 32 x 32 sums, whose first row and column in the group these are. It turns them round in shared memory, `of_warp`, so
// that neighbouring lanes write neighbouring columns.
template <class Engine>
constexpr int width_of_room(bool turned) { return Engine::SPREAD && !turned ? 33 : 40; }  // against bank conflicts

template <class Engine, class S, class Out, int Mode, bool Last>
__device__ __forceinline__ void write_sums(typename Engine::T* room, const typename Engine::T (&sum)[2][4][4], const S* __restrict__ bias,
                                           Out* __restrict__ result, Out* __restrict__ sums, const Planes& p, int first_row, int first_column, int64 part) {
    typedef typename Engine::T T;
    constexpr bool Weight = Mode == WEIGHT, Turned = Weight != Last;
    constexpr int STEPS = sizeof(T) / 2, HEIGHT = 32 / STEPS, WIDTH = width_of_room<Engine>(Turned);
    const int group = blockIdx.y, lane = threadIdx.x & 31, column = first_column + lane, activation = p.activation;
    const unsigned all = Weight ? p.places[0] * p.places[1] : p.positions[0] * p.positions[1];
    int64 to = static_cast<int64>(group) * p.result_group + static_cast<int64>(first_row) * p.result_row + blockIdx.z * part;
    if (Weight && Last) {
        const unsigned channels = p.n / all, at = static_cast<unsigned>(column) / channels;
        to += (column - at * channels) * all + at;
    } else if (Weight) {
        to += column;
    } else {
        const unsigned image = static_cast<unsigned>(column) / all;
        to += static_cast<int64>(image) * p.result_image + static_cast<int64>(column - image * all) * p.result_position;
    }
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        __syncwarp();
#pragma unroll
        for (int r = 0; r < 8 / STEPS; ++r)  // of FmaTile 4 rows, of TensorTile 4 columns of each lane's two rows
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int number = step * (8 / STEPS) + r, i = number / 4, j = number % 4;
                int row, along;
                Engine::template place<Turned>(i, j, e, row, along);
                room[(row - step * HEIGHT) * WIDTH + along] = sum[i][j][e];
            }
        __syncwarp();
#pragma unroll 4
        for (int r = 0; r < HEIGHT; ++r) {
            const int row = step * HEIGHT + r;
            if (first_row + row >= p.m || column >= p.n) continue;
            const int64 at = to + static_cast<int64>(row) * p.result_row;
            T total = room[r * WIDTH + lane];
            if (!Weight) {
                if (bias) total += load(bias[group * p.m + first_row + row]);
                if (sums) sums[at] = store<Out>(total);
                total = activated(total, activation);
            }
            result[at] = store<Out>(total);
        }
    }
}

// 2 BM threads; a warp has 32 x 32 of the tile. blockIdx.y is the group; blockIdx.z takes `share` numbers of the sum, a multiple of BK, and
// writes a whole result of its own, `part` elements after the last. bias may be a null pointer, and so may `sums`, which gets what the activation
// is taken of. Last: the gathered array's channels lie beside one another, so that 16 bytes of cells are read at a time; `first` (for dw: the tile's
// columns) has its places before its channels.
template <class Engine, class S, class Out, int Mode, int BM, bool Last>
__device__ __forceinline__ void convolve_tile(const S* __restrict__ first, const S* __restrict__ second, const S* __restrict__ bias,
                                              Out* __restrict__ result, Out* __restrict__ sums, const Planes& p, int share, int64 part) {
    typedef typename Engine::T T;
    typedef typename Engine::Cell Cell;
    constexpr bool Weight = Mode == WEIGHT, Turned = Weight != Last;
    constexpr int BN = 64, BK = Engine::BK, NC = 16 / sizeof(Cell), THREADS = 2 * BM, LA = BK + Engine::PAD;
    constexpr int LB = Turned ? BK + Engine::PAD : BN + (sizeof(Cell) == 2 ? 8 : 16 / static_cast<int>(sizeof(Cell)) * 2), ROWS = Turned ? BN : BK;
    constexpr int EACH = BN * BK / THREADS, CHUNKS = Last ? EACH / NC : 1;
    constexpr int ACROSS = (Turned ? BK : BN) / NC;
    __shared__ alignas(16) Cell a_tile[2][BM * LA];
    __shared__ alignas(16) Cell b_tile[2][ROWS * LB];
    typedef Gathered<Mode, BN, BK, THREADS, CHUNKS, NC, Last> Places;
    __shared__ typename Places::Shared shared;

    const unsigned tiles = static_cast<unsigned>((p.n + BN - 1) / BN), tile_row = blockIdx.x / tiles;
    const int row0 = static_cast<int>(tile_row) * BM, column0 = static_cast<int>(blockIdx.x - tile_row * tiles) * BN, group = blockIdx.y;
    const int begin = blockIdx.z * share, end = begin + share < p.k ? begin + share : p.k;
    first += static_cast<int64>(group) * p.first_group;
    second += static_cast<int64>(group) * p.gathered_group;

    Places places(p, shared, column0, end);

    Pack<S, NC> a_next[2];
    S b_next[EACH];
    auto load_next = [&](int k0, int buffer) {
        const int k = k0 + threadIdx.x % 4 * NC;
        int64 along = k;
        if (Weight) {
            const unsigned all = p.positions[0] * p.positions[1], image = static_cast<unsigned>(k) / all;
            along = static_cast<int64>(image) * p.first_image + (k - image * all);
        }
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            const int row = row0 + threadIdx.x / 4 + t * (THREADS / 4);
            const S* const at = first + static_cast<int64>(row) * p.first_row;
            if (p.end_aligned && row < p.m && k < end) {
                a_next[t] = *reinterpret_cast<const Pack<S, NC>*>(at + along);
            } else {
#pragma unroll
                for (int e = 0; e < NC; ++e) {
                    int64 from = along + e;
                    if (Weight) {
                        const unsigned all = p.positions[0] * p.positions[1], image = static_cast<unsigned>(k + e) / all;
                        from = static_cast<int64>(image) * p.first_image + (k + e - image * all);
                    }
                    a_next[t].item[e] = row < p.m && k + e < end ? at[from] : S(0.0f);
                }
            }
        }
        if constexpr (Last) {
#pragma unroll
            for (int t = 0; t < CHUNKS; ++t) {
                const int number = threadIdx.x + t * THREADS;
                const int at = places.of_piece(buffer, number, t);
                Pack<S, NC> found;
#pragma unroll
                for (int e = 0; e < NC; ++e) found.item[e] = S(0.0f);
                if (at >= 0) found = *reinterpret_cast<const Pack<S, NC>*>(second + at);
#pragma unroll
                for (int e = 0; e < NC; ++e) b_next[t * NC + e] = found.item[e];
            }
        } else {
            const Spot common = places.common(buffer);
#pragma unroll
            for (int t = 0; t < EACH; ++t) {
                const int number = threadIdx.x + t * THREADS;
                const int at = places.of_element(buffer, number, common);
                b_next[t] = at < 0 ? S(0.0f) : second[at];
            }
        }
    };
    auto store_next = [&](int stage) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            Pack<Cell, NC> cells;
#pragma unroll
            for (int e = 0; e < NC; ++e) cells.item[e] = Engine::cell(a_next[t].item[e]);
            *reinterpret_cast<Pack<Cell, NC>*>(&a_tile[stage][(threadIdx.x / 4 + t * (THREADS / 4)) * LA + threadIdx.x % 4 * NC]) = cells;
        }
        if constexpr (Last) {
#pragma unroll
            for (int t = 0; t < CHUNKS; ++t) {
                const int number = threadIdx.x + t * THREADS;
                Pack<Cell, NC> cells;
#pragma unroll
                for (int e = 0; e < NC; ++e) cells.item[e] = Engine::cell(b_next[t * NC + e]);
                *reinterpret_cast<Pack<Cell, NC>*>(&b_tile[stage][number / ACROSS * LB + number % ACROSS * NC]) = cells;
            }
        } else {
#pragma unroll
            for (int t = 0; t < EACH; ++t) {
                const int number = threadIdx.x + t * THREADS;
                b_tile[stage][places.template cell<LB>(number)] = Engine::cell(b_next[t]);
            }
        }
    };

    T sum[2][4][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] = T(0);

    const int warp = threadIdx.x >> 5, warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
    if (begin < end) {
        places.describe(begin, 0);
        __syncthreads();
        load_next(begin, 0);
        store_next(0);
        places.describe(begin + BK, 1);
        __syncthreads();
        int stage = 0;
        for (int k0 = begin; k0 < end; k0 += BK, stage ^= 1) {
            const bool more = k0 + BK < end;
            if (more) load_next(k0 + BK, stage ^ 1);
            Engine::template multiply<Turned>(&a_tile[stage][warp_row * LA], LA, &b_tile[stage][Turned ? warp_column * LB : warp_column], LB, sum);
            if (more) {
                store_next(stage ^ 1);
                places.describe(k0 + 2 * BK, stage);
            }
            __syncthreads();
        }
    }

    constexpr int HEIGHT = 64 / sizeof(T), WIDTH = width_of_room<Engine>(Turned);
    static_assert(2 * BM / 32 * HEIGHT * WIDTH * sizeof(T) <= sizeof(a_tile), "there is room for it");
    T* const room = reinterpret_cast<T*>(&a_tile[0][0]) + warp * (HEIGHT * WIDTH);  // free by now
    write_sums<Engine, S, Out, Mode, Last>(room, sum, bias, result, sums, p, row0 + warp_row, column0 + warp_column, part);
}

}  // namespace gradlab
