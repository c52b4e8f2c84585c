// C = A B (+ bias) with float32 (float64) accumulation: any strides, any batch, a K of two levels. Correct on every GPU and deterministic;
// the fast products are cuBLASLt's.
#include "fault.cuh"
#include "second_place.cuh"

namespace gradlab {

// The same struct is packed in backends/cuda/launch/gemm.py. Strides in elements.
struct GemmShape {
    long long m, n, k;         // k = k1 * k2
    long long k2;              // size of the inner level of k
    long long a_m, a_k1, a_k2;  // strides of A
    long long b_n, b_k1, b_k2;  // strides of B
    long long c_m, c_n;        // strides of C
    long long batch[4];        // sizes of the batch dimensions, innermost first
    long long a_batch[4], b_batch[4], c_batch[4];
};

template <class S>
constexpr int LEAST_BLOCKS = !is_floating<S> && sizeof(S) >= 8 ? 1 : 0;  // 64-bit integers and complex numbers need the registers of two blocks

// The sums of a block's tile of 64 x 64 over k from `first` to `last`, 4 x 4 for each of its 16 x 16 threads: of what a(k, i) and b(k, j) answer,
// which are zeros outside. along_k: neighbouring numbers of k are neighbours in memory, so neighbouring threads read those, else those of rows.
template <class T, class A, class B>
__device__ __forceinline__ void tile_sums(T (&sum)[4][4], long long first, long long last, bool a_along_k, bool b_along_k, const A& a, const B& b) {
    __shared__ T a_tile[16][64 + 4];
    __shared__ T b_tile[16][64 + 4];
    constexpr int UNROLL = !is_floating<T> && sizeof(T) >= 8 ? 1 : 16;  // products of 64-bit integers and complex numbers take many registers on the way
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = T(0);
    for (long long k0 = first; k0 < last; k0 += 16) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const int e = threadIdx.x + t * 256;
            const int ka = a_along_k ? e & 15 : e >> 6, i = a_along_k ? e >> 4 : e & 63;
            a_tile[ka][i] = a(k0 + ka, i);
            const int kb = b_along_k ? e & 15 : e >> 6, j = b_along_k ? e >> 4 : e & 63;
            b_tile[kb][j] = b(k0 + kb, j);
        }
        __syncthreads();
#pragma unroll UNROLL
        for (int k = 0; k < 16; ++k) {
            T x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                x[i] = a_tile[k][ty * 4 + i];
                y[i] = b_tile[k][tx * 4 + i];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
}

// give(row, column, sum) for each of a thread's elements that lies before the ends.
template <class T, class G>
__device__ __forceinline__ void give_tile(const T (&sum)[4][4], long long row0, long long rows, long long column0, long long columns, const G& give) {
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const long long row = row0 + ty * 4 + i;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const long long column = column0 + tx * 4 + j;
            if (row < rows && column < columns) give(row, column, sum[i][j]);
        }
    }
}

// One block of 16 x 16 threads for each tile of 64 x 64; each thread has 4 x 4 elements. bias (one number for each column, or one in all: stride 0)
// may be a null pointer.
template <class S, class O>
__global__ void __launch_bounds__(256, LEAST_BLOCKS<S>) gemm(const S* __restrict__ a, const S* __restrict__ b, const S* __restrict__ bias, O* __restrict__ c,
                                            long long bias_stride, const GemmShape shape) {
    typedef typename Compute<S>::type T;
    const long long columns = (shape.n + 63) / 64;
    const long long row0 = blockIdx.x / columns * 64, column0 = blockIdx.x % columns * 64;
    long long rest = second_place();
    long long a_at = 0, b_at = 0, c_at = 0;
#pragma unroll
    for (int d = 0; d < 4; ++d) {
        const long long i = rest % shape.batch[d];
        rest /= shape.batch[d];
        a_at += i * shape.a_batch[d];
        b_at += i * shape.b_batch[d];
        c_at += i * shape.c_batch[d];
    }
    if (rest) return;  // beyond the last batch: the whole block
    const bool one_level = shape.k2 >= shape.k;
    T sum[4][4];
    tile_sums(
        sum, 0, shape.k, shape.a_k2 == 1, shape.b_k2 == 1,
        [&](long long k, int i) {
            const long long m = row0 + i;
            const long long step = one_level ? k * shape.a_k2 : k / shape.k2 * shape.a_k1 + k % shape.k2 * shape.a_k2;
            return k < shape.k && m < shape.m ? load(a[a_at + m * shape.a_m + step]) : T(0);
        },
        [&](long long k, int j) {
            const long long n = column0 + j;
            const long long step = one_level ? k * shape.b_k2 : k / shape.k2 * shape.b_k1 + k % shape.k2 * shape.b_k2;
            return k < shape.k && n < shape.n ? load(b[b_at + n * shape.b_n + step]) : T(0);
        });
    give_tile(sum, row0, shape.m, column0, shape.n, [&](long long m, long long n, T value) {
        c[c_at + m * shape.c_m + n * shape.c_n] = store<O>(bias ? value + load(bias[n * bias_stride]) : value);
    });
}

// The same struct is packed in backends/cuda/launch/gemm.py. Strides in elements; those along groups are 0 of what is divided among them.
struct GroupedShape {
    long long m, n, k, groups;
    long long a_m, a_k, a_g;
    long long b_n, b_k, b_g;
    long long c_m, c_n, c_g;
};

// Products of parts: group g has the rows of A and C (BETWEEN: the numbers of k) from ends[g - 1] (0 for the first) to ends[g]. Rows beyond the last
// group are zeros. A block for each tile of 64 x 64 of a group; blockIdx.x: the tile, of all rows' tiles and those that groups begin anew
// (BETWEEN: of one result, and the group is the second place).
template <class S, bool BETWEEN>
__global__ void __launch_bounds__(256) grouped_gemm(const S* __restrict__ a, const S* __restrict__ b, const int* __restrict__ ends, S* __restrict__ c,
                                                    FaultWord* fault, int64 site, const GroupedShape shape) {
    typedef typename Compute<S>::type T;
    const long long columns = (shape.n + 63) / 64, column0 = blockIdx.x % columns * 64, size = BETWEEN ? shape.k : shape.m;
    long long tile = blockIdx.x / columns, group = BETWEEN ? second_place() : 0, begin = 0, end = 0;
    if (BETWEEN && group >= shape.groups) return;
    if (BETWEEN && group) begin = ends[group - 1];
    for (;; ++group) {
        end = group < shape.groups ? ends[group] : size;
        if (begin < 0 || end < begin || end > size) {
            if (threadIdx.x == 0) report(fault, site, end);
            return;
        }
        if (BETWEEN || tile < (end - begin + 63) / 64) break;
        if (group == shape.groups) return;  // no tile is left
        tile -= (end - begin + 63) / 64;
        begin = end;
    }
    const long long row0 = BETWEEN ? tile * 64 : begin + tile * 64, row_end = BETWEEN ? shape.m : end;
    const long long first = BETWEEN ? begin : 0, last = BETWEEN ? end : group < shape.groups ? shape.k : 0;
    a += group * shape.a_g;
    b += group * shape.b_g;
    c += group * shape.c_g;
    T sum[4][4];
    tile_sums(
        sum, first, last, shape.a_k == 1, shape.b_k == 1,
        [&](long long k, int i) { return k < last && row0 + i < row_end ? load(a[(row0 + i) * shape.a_m + k * shape.a_k]) : T(0); },
        [&](long long k, int j) { return k < last && column0 + j < shape.n ? load(b[(column0 + j) * shape.b_n + k * shape.b_k]) : T(0); });
    give_tile(sum, row0, row_end, column0, shape.n, [&](long long m, long long n, T value) { c[m * shape.c_m + n * shape.c_n] = store<S>(value); });
}

}  // namespace gradlab
