// Householder's QR with LAPACK's signs: each reflection 1 - tau v v' turns a column onto the axis, away from the side where it lies.
#include "matrix.cuh"

namespace gradlab {

// x [m, n] = Q [m, k] R [k, n]. The vectors v lie below the diagonal, their first element 1 is not stored. `taus` has room for one number for
// each of the smaller of m and n.
template <class T>
__global__ void __launch_bounds__(512, 1) qr(const T* __restrict__ x, T* __restrict__ q, T* __restrict__ r, T* __restrict__ taus,
                                          T* __restrict__ scratch, int64 rows, int64 columns, int64 kept) {
    extern __shared__ unsigned long long memory[];
    const int m = static_cast<int>(rows), n = static_cast<int>(columns), k = static_cast<int>(kept), steps = m < n ? m : n;
    const Team<false> team{};
    T* a = own_part(scratch, memory, rows * columns);
    x += blockIdx.x * rows * columns;
    q += blockIdx.x * rows * kept;
    r += blockIdx.x * kept * columns;
    taus += static_cast<int64>(blockIdx.x) * steps;
    for (int i = threadIdx.x; i < m * n; i += blockDim.x) a[i] = x[i];
    for (int j = 0; j < steps; ++j) {
        __syncthreads();
        const T alpha = a[j * n + j];
        T top = T(0), rest = T(0);
        for (int i = j + threadIdx.x; i < m; i += blockDim.x) top = maximum(top, abs(a[i * n + j]));
        top = team.max(top);
        for (int i = j + 1 + threadIdx.x; i < m; i += blockDim.x) {
            const T part = top > T(0) ? a[i * n + j] / top : a[i * n + j];
            rest += part * part;
        }
        rest = team.sum(rest);
        T tau = T(0);
        if (rest != T(0)) {
            const T part = alpha / top, beta = -copysign(top * sqrt(rest + part * part), alpha), scale = T(1) / (alpha - beta);
            tau = (beta - alpha) / beta;
            for (int i = j + 1 + threadIdx.x; i < m; i += blockDim.x) a[i * n + j] *= scale;
            if (threadIdx.x == 0) a[j * n + j] = beta;
        }
        if (threadIdx.x == 0) taus[j] = tau;
        __syncthreads();
        if (tau == T(0)) continue;
        for (int c = j + 1 + threadIdx.x; c < n; c += blockDim.x) {
            T share = a[j * n + c];
            for (int i = j + 1; i < m; ++i) share += a[i * n + j] * a[i * n + c];
            share *= tau;
            a[j * n + c] -= share;
            for (int i = j + 1; i < m; ++i) a[i * n + c] -= a[i * n + j] * share;
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < k * n; at += blockDim.x) r[at] = at / n <= at % n ? a[at] : T(0);
    // Q is the unit matrix under all reflections, the last one first; each thread has columns of its own.
    for (int c = threadIdx.x; c < k; c += blockDim.x) {
        for (int i = 0; i < m; ++i) q[i * k + c] = i == c ? T(1) : T(0);
        for (int j = steps - 1; j >= 0; --j) {
            const T tau = taus[j];
            if (tau == T(0)) continue;
            T share = q[j * k + c];
            for (int i = j + 1; i < m; ++i) share += a[i * n + j] * q[i * k + c];
            share *= tau;
            q[j * k + c] -= share;
            for (int i = j + 1; i < m; ++i) q[i * k + c] -= a[i * n + j] * share;
        }
    }
}

}  // namespace gradlab
