// Singular values by rotations of one side (M. R. Hestenes, 1958; G. H. Golub and C. F. Van Loan, "Matrix Computations", section 8.6): the rows of
// the smaller side are turned until they are orthogonal. Their lengths are the singular values. The first large element of each row of Vh is
// positive. What pseudo-inverses and cofactors are made of it.
#include "matrix.cuh"

namespace gradlab {

enum { SVD_SWEEPS = 40 };

template <class T>
__device__ __forceinline__ T warp_dot(const T* a, const T* b, int count, int lane) {
    T sum = T(0);
    for (int i = lane; i < count; i += 32) sum += a[i] * b[i];
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

// A unit vector at right angles to the rows that are `done`, in row `at`: of the axes the one that they know least of, without what they share.
template <class T>
__device__ __forceinline__ void complete(T* w, const T* done, T* shares, int at, int rows, int length) {
    const Grid grid;
    const Team<false> team{};
    Candidate<T> axis{T(-3), length};
    for (int c = threadIdx.x; c < length; c += blockDim.x) {
        T known = T(0);
        for (int i = 0; i < rows; ++i) known += done[i] > T(0) ? w[i * length + c] * w[i * length + c] : T(0);
        axis.meet(-known, c);
    }
    axis.settle();
    for (int c = threadIdx.x; c < length; c += blockDim.x) w[at * length + c] = c == axis.place ? T(1) : T(0);
    for (int pass = 0; pass < 2; ++pass) {  // twice is enough (Kahan)
        __syncthreads();
        for (int i = grid.warp; i < rows; i += grid.warps) {
            const T share = done[i] > T(0) ? warp_dot(w + i * length, w + at * length, length, grid.lane) : T(0);
            if (grid.lane == 0) shares[i] = share;
        }
        __syncthreads();
        T squares = T(0);
        for (int c = threadIdx.x; c < length; c += blockDim.x) {
            T value = w[at * length + c];
            for (int i = 0; i < rows; ++i)
                if (done[i] > T(0)) value -= shares[i] * w[i * length + c];
            squares += value * value;
            w[at * length + c] = value;
        }
        const T scale = T(1) / sqrt(team.sum(squares));
        for (int c = threadIdx.x; c < length; c += blockDim.x) w[at * length + c] *= scale;
    }
    __syncthreads();
}

// x [m, n] = U [m, k] diag(S) Vh [k, n], where k is the smaller of m and n and l the larger. Work space of a matrix: its rows (of a tall one
// its columns) [k, l], what they were turned by [k, k], and three numbers for each.
template <class T>
__global__ void __launch_bounds__(512, 1) svd(const T* __restrict__ x, T* __restrict__ left, T* __restrict__ values, T* __restrict__ right,
                                           T* __restrict__ scratch, FaultWord* fault, int64 site, int64 m, int64 n) {
    extern __shared__ unsigned long long memory[];
    const bool tall = m >= n;
    const int k = static_cast<int>(tall ? n : m), l = static_cast<int>(tall ? m : n), even = k + (k & 1);
    const Grid grid;
    const Team<false> team{};
    T* w = own_part(scratch, memory, static_cast<int64>(k) * (l + k + 3));
    T *v = w + k * l, *norms = v + k * k, *done = norms + k, *shares = done + k;
    x += blockIdx.x * m * n;
    left += blockIdx.x * m * k;
    right += blockIdx.x * n * k;
    values += static_cast<int64>(blockIdx.x) * k;
    T top = T(0);
    for (int i = grid.warp; i < k; i += grid.warps) {
        for (int c = grid.lane; c < l; c += 32) {
            const T value = tall ? x[static_cast<int64>(c) * k + i] : x[static_cast<int64>(i) * l + c];
            top = maximum(top, abs(value));
            w[i * l + c] = value;
        }
        for (int c = grid.lane; c < k; c += 32) v[i * k + c] = i == c ? T(1) : T(0);
    }
    top = team.max(top);
    const bool wrong = !isfinite(top);
    const T unit = top > T(0) && !wrong ? top : T(1);
    T squares = T(0);
    for (int i = threadIdx.x; i < k * l; i += blockDim.x) {
        const T value = w[i] / unit;
        squares += value * value;
        w[i] = value;
    }
    // Rows shorter than that are rounding errors, which have no direction.
    const T nothing = T(4) * precision<T>() * sqrt(team.sum(squares)), least = precision<T>() * sqrt(static_cast<T>(l));
    bool settled = wrong;
    for (int sweep = 0; sweep < SVD_SWEEPS && !settled; ++sweep) {
        bool turned = false;
        for (int round = 0; round < even - 1; ++round) {
            __syncthreads();
            for (int i = grid.warp; i < even / 2; i += grid.warps) {
                const Pair pair(round, i, even);
                if (pair.q >= k) continue;
                T *p = w + pair.p * l, *q = w + pair.q * l;
                const T first = warp_dot(p, p, l, grid.lane), second = warp_dot(q, q, l, grid.lane), common = warp_dot(p, q, l, grid.lane);
                if (!(sqrt(first) > nothing && sqrt(second) > nothing && abs(common) > least * sqrt(first) * sqrt(second))) continue;
                const Rotation<T> rotation(second - first, T(2) * common);
                turned = true;
                for (int c = grid.lane; c < l; c += 32) rotation.turn(p[c], q[c]);
                for (int c = grid.lane; c < k; c += 32) rotation.turn(v[pair.p * k + c], v[pair.q * k + c]);
            }
        }
        settled = !__syncthreads_or(turned);
    }
    if ((wrong || !settled) && threadIdx.x == 0) report(fault, site, 0);
    __syncthreads();
    for (int i = grid.warp; i < k; i += grid.warps) {
        const T length = sqrt(warp_dot(w + i * l, w + i * l, l, grid.lane));
        const bool something = length > nothing;
        __syncwarp();
        if (grid.lane == 0) norms[i] = length, done[i] = something ? T(1) : T(0);
        if (something)
            for (int c = grid.lane; c < l; c += 32) w[i * l + c] /= length;
    }
    __syncthreads();
    for (int i = 0; i < k; ++i) {
        if (done[i] > T(0) || wrong) continue;
        complete(w, done, shares, i, k, l);
        if (threadIdx.x == 0) done[i] = T(1);
        __syncthreads();
    }
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        int place = 0;
        for (int j = 0; j < k; ++j) place += norms[j] > norms[i] || (norms[j] == norms[i] && j < i);
        const T sign = orientation(tall ? v + i * k : w + i * l, static_cast<int>(n));
        values[place] = norms[i] * unit;
        for (int64 c = 0; c < n; ++c) right[place * n + c] = sign * (tall ? v[i * k + c] : w[i * l + c]);
        for (int64 c = 0; c < m; ++c) left[c * k + place] = sign * (tall ? w[i * l + c] : v[i * k + c]);
    }
}

// The reciprocals of singular values, and 0 for those that count as 0.
template <class T>
__global__ void __launch_bounds__(256) reciprocals(const T* __restrict__ values, T* __restrict__ y, double atol, double rtol, int64 k,
                                                   int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const T relative = static_cast<T>(rtol) * values[i / k * k], absolute = static_cast<T>(atol);
    y[i] = values[i] > maximum(absolute, relative) ? T(1) / values[i] : T(0);
}

// For each singular value the product of the others, with the sign of the determinant of U V.
template <class T>
__global__ void __launch_bounds__(256) products(const T* __restrict__ values, const T* __restrict__ left, const T* __restrict__ right,
                                                T* __restrict__ y, int64 k, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int64 row = i / k, at = i % k;
    T before = T(1), after = T(1);
    for (int64 j = 0; j < at; ++j) before *= values[row * k + j];
    for (int64 j = k - 1; j > at; --j) after *= values[row * k + j];
    y[i] = before * after * sign(left[row] * right[row]);
}

// y [b, p, q] = a diag(s) b, where a and b may be transposed: their elements are a[i a_row + j a_column] and b[j b_row + c b_column].
template <class T>
__global__ void __launch_bounds__(256) scaled_product(const T* __restrict__ a, const T* __restrict__ s, const T* __restrict__ b,
                                                      T* __restrict__ y, int64 a_row, int64 a_column, int64 b_row, int64 b_column, int64 p,
                                                      int64 q, int64 k, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count) return;
    const int64 c = at % q, i = at / q % p, matrix = at / q / p;
    a += matrix * p * k + i * a_row;
    b += matrix * q * k + c * b_column;
    s += matrix * k;
    T sum = T(0);
    for (int64 j = 0; j < k; ++j) sum += a[j * a_column] * s[j] * b[j * b_row];
    y[at] = sum;
}

}  // namespace gradlab
