// Attention on tensor cores: float32 rounded to TensorFloat32 and bfloat16 from compute capability 8.0, float16 from 7.5.
#include "attention.cuh"

namespace gradlab {

template <class S, int D, int M, int BN, int Stages>
__global__ void __launch_bounds__(128, 2) attend(const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v,
                                                     const void* __restrict__ mask, S* __restrict__ y, float* __restrict__ lse, const Attention a) {
    attend_rows<Tensor<S>, S, D, M, BN, Stages>(q, k, v, mask, y, lse, a);
}

template <class S, int D, int Warps, int BN, bool Keys>
__global__ void __launch_bounds__(Warps * 32, 2) attention_gradient(const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v,
        const S* __restrict__ g, const void* __restrict__ mask, const float* __restrict__ lse, const float* __restrict__ delta,
        const float* __restrict__ g_lse, float* __restrict__ sure, S* __restrict__ first, S* __restrict__ second, const Attention a) {
    differentiate<Tensor<S>, S, D, Warps, BN, sizeof(S) == 2 ? 2 : 1, Keys>(q, k, v, g, mask, lse, delta, g_lse, sure, first, second, a);
}

}  // namespace gradlab
