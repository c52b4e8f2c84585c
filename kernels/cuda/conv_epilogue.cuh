// What becomes of a convolution's sum before it is written: the bias is added, and an activation taken. The kernels choose the activation while
// they run: the same branch for all threads, beside a sum of hundreds of numbers, and an instance fewer to compile for each.
#pragma once
#include "common.cuh"

namespace gradlab {

enum { NO_ACTIVATION = 0, RELU = 1, GELU = 2, GELU_TANH = 3, SILU = 4 };  // the numbers of backends/cuda/launch/conv.py

// As the rows compute them (ops/activation.py, backends/cuda/launch/activation.py).
template <class T>
__device__ __forceinline__ T activated(T x, int activation) {
    if (activation == RELU) return maximum(x, T(0));
    if (activation == GELU) return maximum(x, T(-1000)) * (T(0.5) * erfc(x * T(-0.7071067811865476)));
    if (activation == GELU_TANH) return maximum(x, T(-1000)) * sigmoid(x * (T(1.5957691216057308) + T(0.07135481627260025) * x * x));
    if (activation == SILU) return maximum(x, T(-1000)) * sigmoid(x);
    return x;
}

}  // namespace gradlab
