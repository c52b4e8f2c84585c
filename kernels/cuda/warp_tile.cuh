// Tiles in shared memory and the two products that a warp makes of them, for its 16 rows: by FMA in float or double, or by tensor cores.
// Both keep a 16 x N result in the same registers: result[j][0..1] belongs to row `group`, result[j][2..3] to row group + 8, where
// lane = 4 · group + member; which column an element has says `column` (of `across`) or `spread_column` (of `along`). Results come as pointers:
// tensor cores take 16 · M rows at a time.
#pragma once
#include "mma.cuh"

namespace gradlab {

// By FMA. S: of the arrays; T: float, or double for double.
template <class S>
struct Scalar {
    typedef typename Compute<S>::type T;
    typedef T Cell;  // in shared memory
    enum { PAD = 16 / sizeof(T), TENSOR = 0 };

    static __device__ __forceinline__ Cell cell(S value) { return load(value); }
    // Turns of a loop to make one of, so that it has some 128 multiplications: fewer would leave latencies bare, more is but machine code.
    static __host__ __device__ constexpr int unrolled(int each) { return each >= 128 ? 1 : each >= 64 ? 2 : 4; }
    static __device__ __forceinline__ int column(int j, int e) { return 8 * j + 2 * static_cast<int>(threadIdx.x & 3) + e; }
    static __device__ __forceinline__ int spread_column(int j, int e) { return 16 * (j / 2) + 4 * static_cast<int>(threadIdx.x & 3) + 2 * (j & 1) + e; }

    // result += a [16 x D] · bᵀ, b [N x D].
    template <int D, int N, int M = 1>
    static __device__ __forceinline__ void across(const Cell* a, const Cell* b, T (*results)[N / 8][4]) {
        static_assert(M == 1, "");
        typedef Pack<T, PAD> P;
        T(&result)[N / 8][4] = *results;
        const int stride = D + PAD, group = (threadIdx.x & 31) >> 2;
        constexpr int steps = D * sizeof(T) >= 512 ? 1 : unrolled(N * PAD / 2);  // at once; the largest heads leave few registers
#pragma unroll steps
        for (int d = 0; d < D; d += PAD) {
            const P low = *reinterpret_cast<const P*>(a + group * stride + d), high = *reinterpret_cast<const P*>(a + (group + 8) * stride + d);
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const P other = *reinterpret_cast<const P*>(b + column(j, e) * stride + d);
#pragma unroll
                    for (int i = 0; i < PAD; ++i) {
                        result[j][e] += low.item[i] * other.item[i];
                        result[j][2 + e] += high.item[i] * other.item[i];
                    }
                }
        }
    }

    // result += p [16 x N] · b, b [N x D]; p as `across` made it. room: 16 x (N + PAD) cells of the warp's own.
    template <int N, int D, int M = 1>
    static __device__ __forceinline__ void along(const T (*ps)[N / 8][4], T* room, const Cell* b, T (*results)[D / 8][4]) {
        static_assert(M == 1, "");
        typedef Pack<T, PAD> P;
        const T(&p)[N / 8][4] = *ps;
        T(&result)[D / 8][4] = *results;
        const int stride = D + PAD, width = N + PAD, group = (threadIdx.x & 31) >> 2;
        __syncwarp();  // `room` is no longer read
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                room[group * width + column(j, e)] = p[j][e];
                room[(group + 8) * width + column(j, e)] = p[j][2 + e];
            }
        __syncwarp();
        constexpr int steps = unrolled(D * PAD / 2);
#pragma unroll steps
        for (int n = 0; n < N; n += PAD) {
            const P low = *reinterpret_cast<const P*>(room + group * width + n), high = *reinterpret_cast<const P*>(room + (group + 8) * width + n);
#pragma unroll
            for (int i = 0; i < PAD; ++i)
#pragma unroll
                for (int c = 0; c < D / 4 / PAD; ++c) {
                    const int j = c * PAD / 2;
                    const P other = *reinterpret_cast<const P*>(b + (n + i) * stride + spread_column(j, 0));
#pragma unroll
                    for (int e = 0; e < PAD; ++e) {
                        result[j + e / 2][e & 1] += low.item[i] * other.item[e];
                        result[j + e / 2][2 + (e & 1)] += high.item[i] * other.item[e];
                    }
                }
        }
    }
};

// By tensor cores. S: float (rounded to TensorFloat32), __half, __nv_bfloat16.
template <class S>
struct Tensor {
    typedef float T;
    typedef S Cell;
    enum { W = 16 / sizeof(S), PAD = W, TENSOR = 1 };

    static __device__ __forceinline__ Cell cell(S value) {
        if constexpr (sizeof(S) == 4) return __uint_as_float(tensor_float(value));
        else return value;
    }
    static __device__ __forceinline__ int column(int j, int e) { return 8 * j + 2 * static_cast<int>(threadIdx.x & 3) + e; }
    static __device__ __forceinline__ int spread_column(int j, int e) { return column(j, e); }

    // Of 16 · M rows of a: what is read of b serves all of them.
    template <int D, int N, int M = 1>
    static __device__ __forceinline__ void across(const Cell* a, const Cell* b, T (*result)[N / 8][4]) {
        const int stride = D + PAD, lane = threadIdx.x & 31;
        a += (lane & 15) * stride + (lane >> 4) * W;
        b += ((lane & 7) + (lane >> 4) * 8) * stride + ((lane >> 3) & 1) * W;
#pragma unroll
        for (int d = 0; d < D; d += 2 * W) {
            unsigned left[M][4];
#pragma unroll
            for (int m = 0; m < M; ++m) load_blocks<false>(left[m], a + 16 * m * stride + d);
#pragma unroll
            for (int j = 0; j < N / 8; j += 2) {
                unsigned right[4];
                load_blocks<false>(right, b + j * 8 * stride + d);
                const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    multiply_add<S>(result[m][j], left[m], first);
                    multiply_add<S>(result[m][j + 1], left[m], second);
                }
            }
        }
    }

    template <int N, int D, int M = 1>
    static __device__ __forceinline__ void along(const T (*p)[N / 8][4], T*, const Cell* b, T (*result)[D / 8][4]) {
        const int stride = D + PAD, lane = threadIdx.x & 31;
        if constexpr (sizeof(S) == 4) {
            // The sum over k may be taken in any order: members take numbers 2 · member and the next, which they have, for k and k + 4.
            const float* from = reinterpret_cast<const float*>(b) + 2 * (lane & 3) * stride + (lane >> 2);
#pragma unroll
            for (int n = 0; n < N / 8; ++n) {
                unsigned left[M][4];
#pragma unroll
                for (int m = 0; m < M; ++m)
#pragma unroll
                    for (int i = 0; i < 4; ++i) left[m][i] = tensor_float(p[m][n][(i & 1) * 2 + (i >> 1)]);
#pragma unroll
                for (int j = 0; j < D / 8; ++j) {
                    const float* at = from + n * 8 * stride + j * 8;
                    const unsigned right[2] = {__float_as_uint(at[0]), __float_as_uint(at[stride])};
#pragma unroll
                    for (int m = 0; m < M; ++m) multiply_add<S>(result[m][j], left[m], right);
                }
            }
        } else {
            b += (lane & 15) * stride + (lane >> 4) * 8;
#pragma unroll
            for (int n = 0; n < N / 8; n += 2) {
                unsigned left[M][4];
#pragma unroll
                for (int m = 0; m < M; ++m)
#pragma unroll
                    for (int i = 0; i < 4; ++i) left[m][i] = pair<S>(p[m][n + i / 2][i % 2 * 2], p[m][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
                for (int j = 0; j < D / 8; j += 2) {
                    unsigned right[4];
                    load_blocks<true>(right, b + n * 8 * stride + j * 8);
                    const unsigned first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
#pragma unroll
                    for (int m = 0; m < M; ++m) {
                        multiply_add<S>(result[m][j], left[m], first);
                        multiply_add<S>(result[m][j + 1], left[m], second);
                    }
                }
            }
        }
    }
};

// Rows row0 .. row0 + Rows of an array of `rows` rows of `size` elements into a tile of D columns; zeros elsewhere. aligned: rows begin at
// multiples of 16 bytes and have a whole number of them. Ends with nothing awaited: `await_copies`, then a barrier.
template <class Engine, int Rows, int D, int Threads, class S>
__device__ __forceinline__ void fetch(typename Engine::Cell* tile, const S* from, int64 stride, int row0, int rows, int size, bool aligned) {
    typedef typename Engine::Cell Cell;
    const int width = D + Engine::PAD, N = 16 / sizeof(S);
    constexpr int all = Rows * (D / N), turns = (all + Threads - 1) / Threads, batch = turns % 4 == 0 ? 4 : turns % 3 == 0 ? 3 : turns % 2 == 0 ? 2 : 1;
    if (aligned && Engine::TENSOR && sizeof(S) == 2) {
#pragma unroll 2
        for (int i = threadIdx.x; i < all; i += Threads) {
            const int row = i / (D / N), column = (i - row * (D / N)) * N;
            const bool inside = row0 + row < rows && column < size;
            copy_ahead<16>(tile + row * width + column, from + (inside ? (row0 + row) * stride + column : 0), inside);
        }
    } else if (aligned) {
#pragma unroll 1
        for (int turn = 0; turn < turns; turn += batch) {  // what a turn reads is on its way together
            Pack<S, N> found[batch];
#pragma unroll
            for (int b = 0; b < batch; ++b) {
                const int i = threadIdx.x + (turn + b) * Threads, row = i / (D / N), column = (i - row * (D / N)) * N;
#pragma unroll
                for (int e = 0; e < N; ++e) found[b].item[e] = S(0.0f);
                if (row0 + row < rows && column < size && (all % Threads == 0 || i < all))
                    found[b] = *reinterpret_cast<const Pack<S, N>*>(from + (row0 + row) * stride + column);
            }
#pragma unroll
            for (int b = 0; b < batch; ++b) {
                const int i = threadIdx.x + (turn + b) * Threads, row = i / (D / N), column = (i - row * (D / N)) * N, M = 16 / sizeof(Cell);
                if (all % Threads != 0 && i >= all) continue;
#pragma unroll
                for (int e = 0; e < N; e += M) {
                    Pack<Cell, M> part;
#pragma unroll
                    for (int f = 0; f < M; ++f) part.item[f] = Engine::cell(found[b].item[e + f]);
                    *reinterpret_cast<Pack<Cell, M>*>(tile + row * width + column + e) = part;
                }
            }
        }
    } else {
        constexpr int several = Rows * D % (4 * Threads) ? 2 : 4;
        static_assert(Rows * D % (several * Threads) == 0, "");
#pragma unroll 1
        for (int i = threadIdx.x; i < Rows * D; i += several * Threads) {
            S found[several];
#pragma unroll
            for (int b = 0; b < several; ++b) {
                const int row = (i + b * Threads) / D, column = i + b * Threads - row * D;
                found[b] = S(0.0f);
                if (row0 + row < rows && column < size) found[b] = from[(row0 + row) * stride + column];
            }
#pragma unroll
            for (int b = 0; b < several; ++b) {
                const int row = (i + b * Threads) / D, column = i + b * Threads - row * D;
                tile[row * width + column] = Engine::cell(found[b]);
            }
        }
    }
}

}  // namespace gradlab
