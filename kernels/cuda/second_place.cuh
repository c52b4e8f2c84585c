// Where a grid has more blocks beside each other than its second dimension holds.
#pragma once
#include "common.cuh"

namespace gradlab {

// Which of a grid's second places a block has: beyond 65,535 they go on in the third dimension (`Work.launch`), the last of which may not be full.
__device__ __forceinline__ int64 second_place() { return blockIdx.y + static_cast<int64>(blockIdx.z) * gridDim.y; }

}  // namespace gradlab
