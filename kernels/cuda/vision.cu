// Windows as columns and back.
#include "windows.cuh"

namespace gradlab {

// x [planes, sizes] to y [planes, kernel, windows], 0 beyond the borders. One thread for each element of y.
template <class Word>
__global__ void __launch_bounds__(256) im2col(const Word* __restrict__ x, Word* __restrict__ y, const Windows w, int count) {
    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (i >= count) return;
    int rest = i, at[3];
#pragma unroll
    for (int d = 2; d >= 0; --d) {
        at[d] = rest % w.out[d] * w.stride[d] - w.padding[d];
        rest /= w.out[d];
    }
#pragma unroll
    for (int d = 2; d >= 0; --d) {
        at[d] += rest % w.kernel[d] * w.dilation[d];
        rest /= w.kernel[d];
    }
    const bool inside = at[0] >= 0 && at[0] < w.size[0] && at[1] >= 0 && at[1] < w.size[1] && at[2] >= 0 && at[2] < w.size[2];
    y[i] = inside ? x[((rest * w.size[0] + at[0]) * w.size[1] + at[1]) * w.size[2] + at[2]] : Word(0);
}

// The adjoint: one thread for each element of y [planes, sizes] adds what its windows hold, in the order of the kernel's places.
template <class S, class I>
__global__ void __launch_bounds__(256, 4) col2im(const I* __restrict__ x, S* __restrict__ y, const Windows w, int count) {
    typedef typename Compute<S>::type T;
    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (i >= count) return;
    const int a2 = i % w.size[2] + w.padding[2], a1 = i / w.size[2] % w.size[1] + w.padding[1];
    const int a0 = i / (w.size[2] * w.size[1]) % w.size[0] + w.padding[0];
    const int plane = i / (w.size[2] * w.size[1] * w.size[0]);
    T sum = T(0);
    for (int k0 = 0; k0 < w.kernel[0]; ++k0) {
        const int b0 = a0 - k0 * w.dilation[0], o0 = b0 / w.stride[0];
        if (b0 < 0 || b0 % w.stride[0] || o0 >= w.out[0]) continue;
        for (int k1 = 0; k1 < w.kernel[1]; ++k1) {
            const int b1 = a1 - k1 * w.dilation[1], o1 = b1 / w.stride[1];
            if (b1 < 0 || b1 % w.stride[1] || o1 >= w.out[1]) continue;
            for (int k2 = 0; k2 < w.kernel[2]; ++k2) {
                const int b2 = a2 - k2 * w.dilation[2], o2 = b2 / w.stride[2];
                if (b2 < 0 || b2 % w.stride[2] || o2 >= w.out[2]) continue;
                const int k = ((plane * w.kernel[0] + k0) * w.kernel[1] + k1) * w.kernel[2] + k2;
                sum += load(x[((k * w.out[0] + o0) * w.out[1] + o1) * w.out[2] + o2]);
            }
        }
    }
    y[i] = store<S>(sum);
}

}  // namespace gradlab
