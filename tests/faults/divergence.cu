// Barriers and warp functions that not all threads reach.

extern "C" __global__ void divergent_barrier(float* x) {
    if (threadIdx.x < 16) {
        x[threadIdx.x] = 1.0f;
        __syncthreads();
    } else {
        x[threadIdx.x] = 2.0f;
        __syncthreads();
    }
}

extern "C" __global__ void barrier_after_return(float* x, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    x[threadIdx.x] = 1.0f;
}

extern "C" __global__ void barrier_or_shuffle(float* x) {
    if (threadIdx.x < 8) __syncthreads();
    else x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
}

extern "C" __global__ void shuffle_from_returned(float* x, int n) {
    if (threadIdx.x >= n) return;
    x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 16);
}

extern "C" __global__ void shuffle_outside_mask(float* x) {
    if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0x0000ffffu, x[threadIdx.x], 20);
}

extern "C" __global__ void shuffle_in_two_places(float* x) {
    if (threadIdx.x & 1) x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 2);
    else x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 2.0f, 2);
}

extern "C" __global__ void not_in_own_mask(float* x) { x[threadIdx.x] = __shfl_sync(0x0000ffffu, x[threadIdx.x], 0); }

extern "C" __global__ void odd_width(float* x) { x[threadIdx.x] = __shfl_sync(0xffffffffu, x[threadIdx.x], 0, 12); }

extern "C" __global__ void two_masks(int* x) {
    const unsigned mask = threadIdx.x < 16 ? 0x0001ffffu : 0xffffffffu;
    __syncwarp(mask);
    x[threadIdx.x] = 1;
}

extern "C" __global__ void trapped(int* x) {
    if (threadIdx.x == 5 && blockIdx.x == 2) __trap();
    x[threadIdx.x] = 1;
}

extern "C" __global__ void asserted(int* x, int n) {
    assert(int(threadIdx.x) < n);
    x[threadIdx.x] = 1;
}
