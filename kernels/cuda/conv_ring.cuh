// The same products as conv_tile.cuh on tensor cores, with tiles of BM x BN in a ring of stages in shared memory: those of the next Stages - 1
// steps are on their way by cp.async, past all registers, while one is multiplied (compute capability 8.0). What is copied so has 4 bytes at
// least: single elements of float, else 16 bytes at a time, so that half types are read in channels-last memory only (launch/conv.py, in_a_ring).
#pragma once
#include "conv_tile.cuh"

namespace gradlab {

template <int BM, int BN>
constexpr int threads_of_ring() { return BM * BN / 32; }  // a warp has 32 x 32 of the tile

// share, part, bias, sums and Last as of `convolve_tile`.
template <class S, class Out, int Mode, int BM, int BN, int Stages, bool Last>
__device__ __forceinline__ void convolve_ring(const S* __restrict__ first, const S* __restrict__ second, const S* __restrict__ bias,
                                              Out* __restrict__ result, Out* __restrict__ sums, const Planes& p, int share, int64 part) {
    typedef TensorTile<S, true> Engine;
    constexpr bool Weight = Mode == WEIGHT, Turned = Weight != Last;
    constexpr int BK = Engine::BK, NC = 16 / sizeof(S), THREADS = threads_of_ring<BM, BN>(), LA = BK + Engine::PAD;
    constexpr int LB = Turned ? BK + Engine::PAD : BN + 8, ROWS = Turned ? BN : BK;
    constexpr int A_CHUNKS = BM * 4 / THREADS, EACH = BN * BK / THREADS, B_CHUNKS = Last ? EACH / NC : 1;
    constexpr int ACROSS = (Turned ? BK : BN) / NC;
    constexpr int A_CELLS = BM * LA, STAGE = A_CELLS + ROWS * LB;
    static_assert(A_CHUNKS * THREADS == BM * 4 && THREADS % ACROSS == 0 && THREADS % BK == 0 && (Last || THREADS % BN == 0 || Weight), "");
    static_assert(Last || sizeof(S) == 4, "cp.async copies 4 bytes at least");
    __shared__ alignas(16) S tiles[Stages * STAGE];
    typedef Gathered<Mode, BN, BK, THREADS, B_CHUNKS, NC, Last> Places;
    __shared__ typename Places::Shared shared;

    const unsigned across = static_cast<unsigned>((p.n + BN - 1) / BN), tile_row = blockIdx.x / across;
    const int row0 = static_cast<int>(tile_row) * BM, column0 = static_cast<int>(blockIdx.x - tile_row * across) * BN;
    const int begin = blockIdx.z * share, end = begin + share < p.k ? begin + share : p.k;
    first += static_cast<int64>(blockIdx.y) * p.first_group;
    second += static_cast<int64>(blockIdx.y) * p.gathered_group;

    Places places(p, shared, column0, end);
    auto along = [&](int k) {  // where number k of a row of `first` lies
        if (!Weight) return static_cast<int64>(k);
        const unsigned all = p.positions[0] * p.positions[1], image = static_cast<unsigned>(k) / all;
        return static_cast<int64>(image) * p.first_image + (k - image * all);
    };
    auto fetch = [&](int k0, S* a_tile, int buffer) {
        S* const b_tile = a_tile + A_CELLS;
        const int k = k0 + threadIdx.x % 4 * NC;
        const int64 from = p.end_aligned ? along(k) : 0;
#pragma unroll
        for (int t = 0; t < A_CHUNKS; ++t) {
            const int number = threadIdx.x / 4 + t * (THREADS / 4), row = row0 + number;
            const S* const at = first + static_cast<int64>(row) * p.first_row;
            S* const to = a_tile + number * LA + threadIdx.x % 4 * NC;
            if (p.end_aligned) {
                const bool inside = row < p.m && k < end;
                copy_ahead<16>(to, inside ? at + from : first, inside);
            } else if constexpr (sizeof(S) == 4) {
#pragma unroll
                for (int e = 0; e < NC; ++e) {
                    const bool inside = row < p.m && k + e < end;
                    copy_ahead<4>(to + e, inside ? at + along(k + e) : first, inside);
                }
            }
        }
        if constexpr (Last) {
#pragma unroll
            for (int t = 0; t < B_CHUNKS; ++t) {
                const int number = threadIdx.x + t * THREADS;
                const int at = places.of_piece(buffer, number, t);
                copy_ahead<16>(b_tile + number / ACROSS * LB + number % ACROSS * NC, second + (at < 0 ? 0 : at), at >= 0);
            }
        } else {
            const Spot common = places.common(buffer);
#pragma unroll
            for (int t = 0; t < EACH; ++t) {
                const int number = threadIdx.x + t * THREADS;
                const int at = places.of_element(buffer, number, common);
                copy_ahead<4>(b_tile + places.template cell<LB>(number), second + (at < 0 ? 0 : at), at >= 0);
            }
        }
    };

    float sum[2][4][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;

    const int warp = threadIdx.x >> 5, warp_row = warp / (BN / 32) * 32, warp_column = warp % (BN / 32) * 32;
    constexpr int AHEAD = (Stages - 1) * BK;
    places.describe(begin, 0);
    S *present = tiles, *coming = tiles;
    int buffer = 0;
#pragma unroll 1
    for (int k0 = begin - AHEAD; k0 < end; k0 += BK, buffer ^= 1) {  // the first turns but fetch: one place in the text for that
        if (k0 >= begin) await_groups<Stages - 2>();
        __syncthreads();  // the tiles and the spots are there, and what was multiplied in the last turn is no longer read
        if (k0 + AHEAD < end) fetch(k0 + AHEAD, coming, buffer);
        end_of_group();
        places.describe(k0 + AHEAD + BK, buffer ^ 1);
        coming = coming == tiles + (Stages - 1) * STAGE ? tiles : coming + STAGE;
        if (k0 < begin) continue;
        const S* const b_tile = present + A_CELLS;
        Engine::template multiply<Turned>(present + warp_row * LA, LA, b_tile + (Turned ? warp_column * LB : warp_column), LB, sum);
        present = present == tiles + (Stages - 1) * STAGE ? tiles : present + STAGE;
    }
    await_copies();
    __syncthreads();

    constexpr int HEIGHT = 16, WIDTH = width_of_room<Engine>(Turned);
    static_assert(THREADS / 32 * HEIGHT * WIDTH * sizeof(float) <= sizeof(S) * Stages * STAGE, "there is room for it");
    float* const room = reinterpret_cast<float*>(tiles) + warp * (HEIGHT * WIDTH);
    write_sums<Engine, S, Out, Mode, Last>(room, sum, bias, result, sums, p, row0 + warp_row, column0 + warp_column, part);
}

}  // namespace gradlab
