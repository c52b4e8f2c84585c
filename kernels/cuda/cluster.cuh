// What the blocks of a cluster do together, from compute capability 9.0: they write into each other's shared memory and wait for each other.
//
// A kernel of clusters is declared with __cluster_dims__(blocks, 1, 1). Before the first access to another block's shared memory there has
// to be a barrier of the cluster (the block may not have begun), and after the last one another (it may have ended).
#pragma once
#include "common.cuh"

namespace gradlab {

#if defined(__CUDAEMU__)

#define cluster_barrier() ::gradlab_emulator::cluster_barrier(GRADLAB_SITE)
template <class T>
__device__ __forceinline__ T* in_block(T* own, int rank) {
    return static_cast<T*>(::gradlab_emulator::in_block(own, rank));
}

#else

// All threads of all blocks; what they wrote before it, all of them see after it.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The place in another block's shared memory that `own` is in this one's.
template <class T>
__device__ __forceinline__ T* in_block(T* own, int rank) {
#if __CUDA_ARCH__ >= 900
    unsigned long long found;
    asm("mapa.u64 %0, %1, %2;" : "=l"(found) : "l"(reinterpret_cast<unsigned long long>(own)), "r"(rank));
    return reinterpret_cast<T*>(found);
#else
    return own;
#endif
}

#endif

// A barrier of all that work together: one block, or a cluster.
template <int Blocks>
__device__ __forceinline__ void team_barrier() {
    if constexpr (Blocks == 1) __syncthreads();
    else cluster_barrier();
}
template <int Blocks, class T>
__device__ __forceinline__ T* of_team(T* own, int rank) {
    if constexpr (Blocks == 1) return own;
    else return in_block(own, rank);
}

}  // namespace gradlab
