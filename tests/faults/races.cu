// Races that no order of whole threads shows: only the thread sanitizer does.

template <bool planted>
__global__ void histogram(const int* keys, int* counts, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (planted) counts[keys[i]] += 1;
    else atomicAdd(&counts[keys[i]], 1);
}

template <bool planted>
__global__ void shared_sum(const float* x, float* y) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0.0f;
    __syncthreads();
    if (planted) total += x[threadIdx.x];
    else atomicAdd(&total, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}

// Two blocks write the same elements.
template <bool planted>
__global__ void overlapping(float* y, int n) {
    const int i = blockIdx.x * (planted ? blockDim.x / 2 : blockDim.x) + threadIdx.x;
    if (i < n) y[i] = 1.0f;
}
