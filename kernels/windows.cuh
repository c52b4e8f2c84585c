// Windows over the last three dimensions of [planes, depth, height, width]; fewer spatial dimensions have leading sizes of 1.
#pragma once
#include "reduce.cuh"

namespace gradlab {

// The same struct is packed in backends/cuda/launch/windows.py.
struct Windows {
    long long size[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};

}  // namespace gradlab
