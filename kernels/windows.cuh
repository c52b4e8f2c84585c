// Windows over the last three dimensions of [planes, depth, height, width]; fewer spatial dimensions have leading sizes of 1. A launch has fewer
// than 2^31 elements on either side (larger arrays are worked on plane by plane), because 64-bit divisions are slow.
#pragma once
#include "reduce.cuh"

namespace gradlab {

// The same struct is packed in backends/cuda/launch/windows.py.
struct Windows {
    int size[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};

}  // namespace gradlab
