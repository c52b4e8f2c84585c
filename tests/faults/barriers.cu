// Sums and products that need barriers, each with one left out where `planted` is true.

// Before reading what another warp wrote.
template <bool planted>
__global__ void read_too_early(const float* x, float* y) {
    __shared__ float tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    if (!planted) __syncthreads();
    y[threadIdx.x] = tile[127 - threadIdx.x];
}

// Before writing what another warp still reads: only a warp that runs ahead of the others does harm.
__device__ float sum_of_warp(float v) {
    for (int lane = 16; lane > 0; lane >>= 1) v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}
template <bool planted>
__device__ float sum_of_block(float v, float* partial) {
    v = sum_of_warp(v);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    float total = 0.0f;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) total += partial[w];
    if (!planted) __syncthreads();
    return total;
}
template <bool planted>
__global__ void write_too_early(const float* x, float* y) {
    __shared__ float partial[32];
    const float first = sum_of_block<planted>(x[threadIdx.x], partial);
    const float second = sum_of_block<planted>(x[threadIdx.x] * 2.0f, partial);
    y[threadIdx.x] = first + second;
}

// Between the steps of a loop over tiles.
template <bool planted>
__global__ void tiles(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][17], right[16][17];
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float total = 0.0f;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) total += left[threadIdx.y][i] * right[i][threadIdx.x];
        if (!planted) __syncthreads();
    }
    c[row * n + column] = total;
}

// Inside a warp: its lanes do not move in step.
template <bool planted>
__global__ void no_syncwarp(const float* x, float* y) {
    __shared__ float tile[32];
    const int lane = threadIdx.x;
    tile[lane] = x[lane];
    for (int step = 16; step > 0; step >>= 1) {
        if (!planted) __syncwarp();
        const float other = tile[(lane + step) % 32];
        if (!planted) __syncwarp();
        tile[lane] += other;
    }
    if (!planted) __syncwarp();
    y[lane] = tile[lane];
}

// A shared total that one thread clears.
template <bool planted>
__global__ void cleared_late(const int* x, int* y) {
    __shared__ int total;
    if (threadIdx.x == blockDim.x - 1) total = 0;
    if (!planted) __syncthreads();
    atomicAdd(&total, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) *y = total;
}
