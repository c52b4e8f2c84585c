// Attention by FMA, in float (double).
#include "attention.cuh"

namespace gradlab {

template <class S, int D, int M, int BN, int Stages>
__global__ void __launch_bounds__(128, 2) attend(const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v, const void* __restrict__ mask,
                                              S* __restrict__ y, typename Compute<S>::type* __restrict__ lse, const Attention a) {
    attend_rows<Scalar<S>, S, D, M, BN, Stages>(q, k, v, mask, y, lse, a);
}

// delta = Σ g · y - g_lse for each query: what softmax's gradient takes off. One warp for each; `g_lse` may be a null pointer.
template <class S>
__global__ void __launch_bounds__(256) attention_delta(const S* __restrict__ g, const S* __restrict__ y,
                                                       const typename Compute<S>::type* __restrict__ g_lse,
                                                       typename Compute<S>::type* __restrict__ delta, const Attention a, int64 rows) {
    typedef typename Compute<S>::type T;
    const int64 row = static_cast<int64>(blockIdx.x) * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;  // the whole warp
    const int64 plane = row / a.queries, image = plane / a.heads;
    g += image * a.g[0] + (plane - image * a.heads) * a.g[1] + (row - plane * a.queries) * a.g[2];
    y += image * a.y[0] + (plane - image * a.heads) * a.y[1] + (row - plane * a.queries) * a.y[2];
    T sum = T(0);
    for (int i = threadIdx.x & 31; i < a.value_size; i += 32) sum += load(g[i]) * load(y[i]);
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if ((threadIdx.x & 31) == 0) delta[row] = g_lse ? sum - g_lse[row] : sum;
}

template <class S, int D, int Warps, int BN, bool Keys>
__global__ void __launch_bounds__(Warps * 32, 2) attention_gradient(const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v,
        const S* __restrict__ g, const void* __restrict__ mask, const typename Compute<S>::type* __restrict__ lse,
        const typename Compute<S>::type* __restrict__ delta, const typename Compute<S>::type* __restrict__ g_lse,
        typename Compute<S>::type* __restrict__ sure, S* __restrict__ first, S* __restrict__ second, const Attention a) {
    differentiate<Scalar<S>, S, D, Warps, BN, 1, Keys>(q, k, v, g, mask, lse, delta, g_lse, sure, first, second, a);
}

}  // namespace gradlab
