// Kernels of clusters: a right one, and ones with a planted fault. Each block gives its numbers to the next one of its cluster.
#include "cluster.cuh"

using namespace gradlab;

#define RING(name, ...)                                                                                    \
    extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(64) name(float* y, int rounds) { \
        __shared__ float box[2][64];                                                                        \
        const int rank = int(blockIdx.x) % 4, i = int(threadIdx.x);                                         \
        float value = float(64 * blockIdx.x + i);                                                           \
        __VA_ARGS__                                                                                         \
        y[64 * blockIdx.x + i] = value;                                                                     \
    }

RING(right, {
    cluster_barrier();
    for (int round = 0; round < rounds; ++round) {
        in_block(&box[round & 1][63 - i], (rank + 1) % 4)[0] = value;
        cluster_barrier();
        value = box[round & 1][i];
    }
})
// The next block may not have begun.
RING(before_it_begins, {
    in_block(&box[0][i], (rank + 1) % 4)[0] = value;
    cluster_barrier();
    value = box[0][i];
})
// It may read what the next round writes, or not yet what this one does.
RING(no_barrier, {
    cluster_barrier();
    for (int round = 0; round < rounds; ++round) {
        in_block(&box[round & 1][63 - i], (rank + 1) % 4)[0] = value;
        __syncthreads();
        value = box[round & 1][i];
    }
    cluster_barrier();
})
RING(one_box, {
    cluster_barrier();
    for (int round = 0; round < rounds; ++round) {
        in_block(&box[0][63 - i], (rank + 1) % 4)[0] = value;
        cluster_barrier();
        value = box[0][i];
    }
})
// The other block may have returned.
RING(after_it_ends, {
    box[0][i] = value;
    cluster_barrier();
    if (rank == 0) {
        for (int round = 0; round < rounds; ++round) __syncthreads();
        value = in_block(&box[0][i], 1)[0];
    }
})
RING(write_after_it_ends, {
    cluster_barrier();
    if (rank == 0) {
        for (int round = 0; round < rounds; ++round) __syncthreads();
        in_block(&box[0][i], 1)[0] = value;
    }
})
RING(part_of_a_block, {
    if (i < 32) cluster_barrier();
    else __syncthreads();
})
RING(part_of_a_warp, {
    if (i % 2) cluster_barrier();
    else cluster_barrier();
})
RING(no_such_block, { in_block(&box[0][i], 4)[0] = value; })
RING(not_shared, { in_block(y, 1)[0] = value; })
RING(beside, {
    cluster_barrier();
    in_block(&box[1][63], 3)[1 + i % 8] = value;
    cluster_barrier();
})
