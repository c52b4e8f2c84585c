// Shared memory that is read before it is written.

extern "C" __global__ void static_total(float* y) {
    __shared__ float total;
    if (threadIdx.x != 0) atomicAdd(&total, 1.0f);
    __syncthreads();
    if (threadIdx.x == 0) *y = total;
}

// Right in the first block, if memory were kept from one block to the next.
extern "C" __global__ void kept_between_blocks(float* y) {
    __shared__ float value;
    if (blockIdx.x == 0 && threadIdx.x == 0) value = 1.0f;
    __syncthreads();
    y[blockIdx.x] = value;
}

extern "C" __global__ void dynamic_total(float* y) {
    extern __shared__ float work[];
    __syncthreads();
    y[threadIdx.x] = work[threadIdx.x];
}
