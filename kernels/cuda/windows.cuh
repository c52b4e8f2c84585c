// Windows over the last three dimensions of [planes, depth, height, width]; fewer spatial dimensions have leading sizes of 1. A launch has fewer
// than 2^31 elements on either side (larger arrays are worked on plane by plane), because 64-bit divisions are slow.
#pragma once
#include "reduce.cuh"

namespace gradlab {

// The same struct is packed in backends/cuda/launch/windows.py.
struct Windows {
    int size[3], out[3], kernel[3], stride[3], padding[3], dilation[3];

    __device__ __forceinline__ int inputs() const { return size[0] * size[1] * size[2]; }
    __device__ __forceinline__ int positions() const { return out[0] * out[1] * out[2]; }
    __device__ __forceinline__ int places() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// A number of a flattened box of these sizes as its three coordinates.
__device__ __forceinline__ void unravel(unsigned i, const int (&sizes)[3], int (&at)[3]) {
    const unsigned rows = i / static_cast<unsigned>(sizes[2]);
    at[2] = static_cast<int>(i - rows * static_cast<unsigned>(sizes[2]));
    const unsigned planes = rows / static_cast<unsigned>(sizes[1]);
    at[1] = static_cast<int>(rows - planes * static_cast<unsigned>(sizes[1]));
    at[0] = static_cast<int>(planes);
}

// This thread's number among all; 32 bits divide several times faster.
template <class Index>
__device__ __forceinline__ Index thread_number() {
    return static_cast<Index>(blockIdx.x) * 256 + threadIdx.x;
}

}  // namespace gradlab
