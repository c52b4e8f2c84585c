// The exponential of matrices in float64: scaled by a power of 2, Padé's approximant, squared as often. N. J. Higham, "The scaling and squaring
// method for the matrix exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005).
#include "matrix.cuh"

namespace gradlab {

// out = a b of [n, n] matrices. Ends with a barrier.
__device__ __forceinline__ void multiply(double* out, const double* a, const double* b, int n) {
    const Grid grid;
    for (int i = grid.warp; i < n; i += grid.warps)
        for (int c = grid.lane; c < n; c += 32) {
            double sum = 0.0;
            for (int j = 0; j < n; ++j) sum += a[i * n + j] * b[j * n + c];
            out[i * n + c] = sum;
        }
    __syncthreads();
}
// out = p x + q y + r z (+ s on the diagonal), added to what is there if `add`. Ends with a barrier.
__device__ __forceinline__ void combine(double* out, bool add, double p, const double* x, double q, const double* y, double r, const double* z,
                                        double s, int n) {
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        const double value = p * x[i] + q * y[i] + r * z[i] + (i / n == i % n ? s : 0.0);
        out[i] = add ? out[i] + value : value;
    }
    __syncthreads();
}

// scratch: seven matrices for each.
template <class T>
__global__ void __launch_bounds__(512, 1) matrix_exp(const T* __restrict__ x, T* __restrict__ y, double* __restrict__ scratch, int64 size) {
    const int n = static_cast<int>(size);
    const Team<false> team{};
    double* a = scratch + blockIdx.x * 7 * size * size;
    double *a2 = a + n * n, *a4 = a2 + n * n, *a6 = a4 + n * n, *left = a6 + n * n, *odd = left + n * n, *even = odd + n * n;
    x += blockIdx.x * size * size;
    y += blockIdx.x * size * size;
    double norm = 0.0;
    for (int c = threadIdx.x; c < n; c += blockDim.x) {
        double sum = 0.0;
        for (int i = 0; i < n; ++i) sum += abs(static_cast<double>(x[i * n + c]));
        norm = maximum(norm, sum);
    }
    norm = team.max(norm);
    int times = 0;
    double scale = 1.0;
    if (isfinite(norm))
        for (; norm * scale > 5.37; ++times) scale *= 0.5;
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) a[i] = static_cast<double>(x[i]) * scale;
    __syncthreads();
    multiply(a2, a, a, n);
    multiply(a4, a2, a2, n);
    multiply(a6, a4, a2, n);
    combine(left, false, 1.0, a6, 16380.0, a4, 40840800.0, a2, 0.0, n);
    multiply(even, a6, left, n);
    combine(even, true, 33522128640.0, a6, 10559470521600.0, a4, 1187353796428800.0, a2, 32382376266240000.0, n);
    multiply(odd, a, even, n);
    combine(left, false, 182.0, a6, 960960.0, a4, 1323241920.0, a2, 0.0, n);
    multiply(even, a6, left, n);
    combine(even, true, 670442572800.0, a6, 129060195264000.0, a4, 7771770303897600.0, a2, 64764752532480000.0, n);
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        const double e = even[i], o = odd[i];
        left[i] = e - o;
        even[i] = e + o;
    }
    eliminate(left, n, n, even, n, static_cast<int64*>(nullptr));
    substitute(left, n, even, n);
    double *now = even, *next = odd;
    for (; times > 0; --times) {
        multiply(next, now, now, n);
        double* kept = now;
        now = next;
        next = kept;
    }
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) y[i] = static_cast<T>(now[i]);
}

}  // namespace gradlab
