// C = A B (+ bias) with float32 (float64) accumulation: any strides, any batch, a K of two levels. Correct on every GPU and deterministic;
// the fast products are cuBLASLt's.
#include "fault.cuh"

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
constexpr int LEAST_BLOCKS = sizeof(S) > 8 ? 1 : 0;  // complex numbers of 16 bytes need the registers of two blocks

// What 16 steps of k add to a thread's 4 x 4 elements.
template <class T>
__device__ __forceinline__ void multiply_add_tiles(const T (&a_tile)[16][64 + 4], const T (&b_tile)[16][64 + 4], T (&sum)[4][4]) {
    constexpr int UNROLL = !is_floating<T> && sizeof(T) >= 8 ? 1 : 16;  // products of 64-bit integers and complex numbers take many registers on the way
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
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
}

// One block of 16 x 16 threads for each tile of 64 x 64; each thread has 4 x 4 elements. bias (one number for each column, or one in all: stride 0)
// may be a null pointer.
template <class S, class O>
__global__ void __launch_bounds__(256, LEAST_BLOCKS<S>) gemm(const S* __restrict__ a, const S* __restrict__ b, const S* __restrict__ bias, O* __restrict__ c,
                                            long long bias_stride, const GemmShape shape) {
    typedef typename Compute<S>::type T;
    __shared__ T a_tile[16][64 + 4];
    __shared__ T b_tile[16][64 + 4];
    const long long columns = (shape.n + 63) / 64;
    const long long row0 = blockIdx.x / columns * 64, column0 = blockIdx.x % columns * 64;
    long long rest = blockIdx.y + static_cast<long long>(blockIdx.z) * gridDim.y;
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
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    T sum[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = T(0);
    const bool one_level = shape.k2 >= shape.k;
    const bool a_along_k = shape.a_k2 == 1, b_along_k = shape.b_k2 == 1;
    for (long long k0 = 0; k0 < shape.k; k0 += 16) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const int e = threadIdx.x + t * 256;
            // Neighbouring threads read what is neighbouring in memory.
            const int ka = a_along_k ? e & 15 : e >> 6, ma = a_along_k ? e >> 4 : e & 63;
            const long long k = k0 + ka, m = row0 + ma;
            a_tile[ka][ma] = k < shape.k && m < shape.m ? load(a[a_at + m * shape.a_m + (one_level ? k * shape.a_k2 : k / shape.k2 * shape.a_k1 + k % shape.k2 * shape.a_k2)]) : T(0);
            const int kb = b_along_k ? e & 15 : e >> 6, nb = b_along_k ? e >> 4 : e & 63;
            const long long kk = k0 + kb, n = column0 + nb;
            b_tile[kb][nb] = kk < shape.k && n < shape.n ? load(b[b_at + n * shape.b_n + (one_level ? kk * shape.b_k2 : kk / shape.k2 * shape.b_k1 + kk % shape.k2 * shape.b_k2)]) : T(0);
        }
        __syncthreads();
        multiply_add_tiles(a_tile, b_tile, sum);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const long long m = row0 + ty * 4 + i;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const long long n = column0 + tx * 4 + j;
            if (m < shape.m && n < shape.n)
                c[c_at + m * shape.c_m + n * shape.c_n] = store<O>(bias ? sum[i][j] + load(bias[n * bias_stride]) : sum[i][j]);
        }
    }
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
// (BETWEEN: of one result, and blockIdx.y the group).
template <class S, bool BETWEEN>
__global__ void __launch_bounds__(256) grouped_gemm(const S* __restrict__ a, const S* __restrict__ b, const int* __restrict__ ends, S* __restrict__ c,
                                                    FaultWord* fault, int64 site, const GroupedShape shape) {
    typedef typename Compute<S>::type T;
    __shared__ T a_tile[16][64 + 4];
    __shared__ T b_tile[16][64 + 4];
    const long long columns = (shape.n + 63) / 64, column0 = blockIdx.x % columns * 64, size = BETWEEN ? shape.k : shape.m;
    long long tile = blockIdx.x / columns, group = BETWEEN ? blockIdx.y : 0, begin = 0, end = 0;
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
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = T(0);
    const bool a_along_k = shape.a_k == 1, b_along_k = shape.b_k == 1;
    for (long long k0 = first; k0 < last; k0 += 16) {
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const int e = threadIdx.x + t * 256;
            const int ka = a_along_k ? e & 15 : e >> 6, ma = a_along_k ? e >> 4 : e & 63;
            a_tile[ka][ma] = k0 + ka < last && row0 + ma < row_end ? load(a[(row0 + ma) * shape.a_m + (k0 + ka) * shape.a_k]) : T(0);
            const int kb = b_along_k ? e & 15 : e >> 6, nb = b_along_k ? e >> 4 : e & 63;
            b_tile[kb][nb] = k0 + kb < last && column0 + nb < shape.n ? load(b[(column0 + nb) * shape.b_n + (k0 + kb) * shape.b_k]) : T(0);
        }
        __syncthreads();
        multiply_add_tiles(a_tile, b_tile, sum);
        __syncthreads();
    }
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const long long m = row0 + ty * 4 + i;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const long long n = column0 + tx * 4 + j;
            if (m < row_end && n < shape.n) c[m * shape.c_m + n * shape.c_n] = store<S>(sum[i][j]);
        }
    }
}

}  // namespace gradlab
