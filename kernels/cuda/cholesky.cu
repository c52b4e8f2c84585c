// Cholesky's factor of symmetric positive definite matrices, a column at a time; only the lower half is read.
#include "matrix.cuh"

namespace gradlab {

template <class T>
__global__ void __launch_bounds__(512, 1) cholesky(const T* __restrict__ x, T* __restrict__ y, int64 shared, FaultWord* fault, int64 site,
                                                int64 size) {
    extern __shared__ unsigned long long memory[];
    const int n = static_cast<int>(size);
    const Grid grid;
    x += blockIdx.x * size * size;
    y += blockIdx.x * size * size;
    T* a = shared ? reinterpret_cast<T*>(memory) : y;
    for (int i = grid.warp; i < n; i += grid.warps)
        for (int c = grid.lane; c < n; c += 32) a[i * n + c] = c <= i ? x[i * n + c] : T(0);
    bool wrong = false;
    for (int j = 0; j < n; ++j) {
        __syncthreads();
        const T top = a[j * n + j], root = sqrt(top);
        wrong |= top <= T(0);  // NaN goes on to the result, as on the CPU
        __syncthreads();
        for (int i = j + threadIdx.x; i < n; i += blockDim.x) a[i * n + j] = i == j ? root : a[i * n + j] / root;
        __syncthreads();
        for (int i = j + 1 + grid.warp; i < n; i += grid.warps)
            for (int c = j + 1 + grid.lane; c <= i; c += 32) a[i * n + c] -= a[i * n + j] * a[c * n + j];
    }
    __syncthreads();
    if (shared)
        for (int i = threadIdx.x; i < n * n; i += blockDim.x) y[i] = a[i];
    if (wrong && threadIdx.x == 0) report(fault, site, 0);
}

}  // namespace gradlab
