// Rows of an array seen as [outer, count, inner], each worked on by a team of threads.
//
// A team is a whole block (rows of neighbouring elements) or a single thread (rows across `inner`, where neighbouring threads have
// neighbouring rows). Sums are taken in a fixed order, so that two runs give the same bits.
#pragma once
#include "reduce.cuh"

namespace gradlab {

struct Sum {
    template <class A>
    static __device__ __forceinline__ A apply(A a, A b) { return a + b; }
};
struct Max {
    template <class A>
    static __device__ __forceinline__ A apply(A a, A b) { return maximum(a, b); }
};

template <bool Alone>
struct Team {
    int64 row, base, stride;  // which row, its first element, the distance of its elements
    int lane, size;

    // False for threads that have no row; only single threads may leave then.
    __device__ __forceinline__ bool start(int64 rows, int64 count, int64 inner) {
        if (Alone) {
            row = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
            lane = 0;
            size = 1;
            if (row >= rows) return false;
        } else {
            row = blockIdx.x;
            lane = threadIdx.x;
            size = blockDim.x;
        }
        base = (row / inner) * count * inner + row % inner;
        stride = inner;
        return true;
    }

    // The total of all threads' values, in all of them.
    template <class Operation, class A>
    __device__ __forceinline__ A total(A value) const {
        if constexpr (Alone) {
            return value;
        } else {
            __shared__ A parts[33];
#pragma unroll
            for (int offset = 16; offset > 0; offset >>= 1) value = Operation::apply(value, shuffle_down(value, offset));
            const int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
            if ((threadIdx.x & 31) == 0) parts[warp] = value;
            __syncthreads();
            if (threadIdx.x == 0) {
                A sum = parts[0];
                for (int i = 1; i < warps; ++i) sum = Operation::apply(sum, parts[i]);
                parts[32] = sum;
            }
            __syncthreads();
            const A result = parts[32];
            __syncthreads();  // before the next total writes `parts`
            return result;
        }
    }
    template <class A>
    __device__ __forceinline__ A sum(A value) const { return total<Sum>(value); }
    template <class A>
    __device__ __forceinline__ A max(A value) const { return total<Max>(value); }
};

}  // namespace gradlab
