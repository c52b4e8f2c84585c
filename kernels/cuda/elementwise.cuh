// The parts of generated elementwise kernels that do not depend on the row.
#pragma once
#include "common.cuh"

namespace gradlab {

// Where the elements of N strided operands lie, for an output in row-major order. Sizes of the output's dimensions, innermost first;
// strides in elements, 0 where an operand is broadcast. The same layout is built in backends/cuda/layout.py.
template <int N>
struct Layout {
    int rank;
    int unused;
    long long size[8];
    long long stride[N ? N : 1][8];

    // 32-bit division where the number of elements allows it.
    template <class Index>
    __device__ __forceinline__ void locate(Index i, long long* at) const {
#pragma unroll
        for (int k = 0; k < (N ? N : 1); ++k) at[k] = 0;
#pragma unroll 1
        for (int d = 0; d < rank; ++d) {
            const Index next = i / static_cast<Index>(size[d]);
            const Index here = i - next * static_cast<Index>(size[d]);
            i = next;
#pragma unroll
            for (int k = 0; k < N; ++k) at[k] += static_cast<long long>(here) * stride[k][d];
        }
    }
};

}  // namespace gradlab
