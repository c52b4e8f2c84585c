// C = A B (+ bias) with float32 (float64) accumulation: any strides, any batch, a K of two levels. Correct on every GPU and deterministic;
// the fast products are cuBLASLt's.
#include "common.cuh"

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

// One block of 16 x 16 threads for each tile of 64 x 64; each thread has 4 x 4 elements. bias (one number for each column, or one in all: stride 0)
// may be a null pointer.
template <class S, class O>
__global__ void __launch_bounds__(256, LEAST_BLOCKS<S>) gemm(const S* __restrict__ a, const S* __restrict__ b, const S* __restrict__ bias, O* __restrict__ c,
                                            long long bias_stride, const GemmShape shape) {
    typedef typename Compute<S>::type T;
    constexpr int UNROLL = !is_floating<T> && sizeof(T) >= 8 ? 1 : 16;  // products of 64-bit integers and complex numbers take many registers on the way
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

}  // namespace gradlab
