// Accesses beside an array, each a kernel of its own.

extern "C" __global__ void write_after_global(float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = float(i);  // planted: i < n
}

extern "C" __global__ void write_before_global(float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i - 1] = float(i);  // planted: y[i]
}

extern "C" __global__ void read_after_global(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + 1];  // planted, read_after_global's: x[i]
}

extern "C" __global__ void read_before_global(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i - 1];  // planted, read_before_global's: x[i]
}

extern "C" __global__ void read_far_away(const signed char* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[-n];  // planted, read_far_away's: x[i]
}

extern "C" __global__ void write_after_static(float* y) {
    __shared__ float tile[30];
    tile[threadIdx.x] = 1.0f;  // planted: a block of 32
    __syncthreads();
    y[threadIdx.x] = tile[0];
}

extern "C" __global__ void read_after_static(float* y) {
    __shared__ float tile[30];
    if (threadIdx.x < 30) tile[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];  // planted
}

extern "C" __global__ void write_after_dynamic(float* y) {
    extern __shared__ float work[];
    work[threadIdx.x] = 1.0f;  // planted by a launch with room for fewer
    __syncthreads();
    y[threadIdx.x] = work[0];
}

extern "C" __global__ void read_after_dynamic(float* y) {
    extern __shared__ float work[];
    if (threadIdx.x < 30) work[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = work[threadIdx.x];  // planted
}

extern "C" __global__ void misaligned_load(const float* x, float* y) {
    reinterpret_cast<float4*>(y)[threadIdx.x] = reinterpret_cast<const float4*>(x + 1)[threadIdx.x];  // planted: x
}

// The processor here would stop at none of these, since nothing moves 16 bytes at once, or what it moves may lie anywhere.
struct alignas(16) Four {
    float item[4];
};
extern "C" __global__ void misaligned_parts(const float* x, float* y) {
    const Four four = *reinterpret_cast<const Four*>(x + 1);  // misaligned_parts's
    y[threadIdx.x] = four.item[0] + four.item[3];
}

extern "C" __global__ void misaligned_write(const float* x, float* y) {
    reinterpret_cast<double*>(y + 1)[threadIdx.x] = x[threadIdx.x];  // misaligned_write's
}

extern "C" __global__ void misaligned_shared(const float* x, float* y) {
    __shared__ alignas(16) float work[64];
    reinterpret_cast<float2*>(work + 3)[threadIdx.x] = make_float2(x[threadIdx.x], 1.0f);  // misaligned_shared's
    y[threadIdx.x] = work[3];
}

// Shared memory may lie anywhere that its declaration allows.
extern "C" __global__ void misaligned_static(const float* x, float* y) {
    __shared__ float work[64];
    reinterpret_cast<Four*>(work)[threadIdx.x].item[0] = x[threadIdx.x];  // misaligned_static's: it has to be alignas(16)
    y[threadIdx.x] = work[4 * threadIdx.x];
}

struct alignas(32) Eight {
    float item[8];
};
extern "C" __global__ void misaligned_dynamic(const float* x, float* y) {
    extern __shared__ float room[];
    reinterpret_cast<Eight*>(room)[threadIdx.x].item[0] = x[threadIdx.x];  // misaligned_dynamic's: 16 is what hardware gives
    y[threadIdx.x] = room[8 * threadIdx.x];
}

extern "C" __global__ void null_pointer(float* y, const int* where) { y[threadIdx.x] = float(*where); }

extern "C" __global__ void division(int* y, int by) { y[threadIdx.x] = 1000 / by; }

__device__ int deep(int n) {
    volatile int frame[1000];
    frame[n % 1000] = n;
    return n == 0 ? 0 : deep(n - 1) + frame[n % 1000];
}
extern "C" __global__ void recursion(int* y, int n) { y[threadIdx.x] = deep(n); }
