// Eigenvalues and eigenvectors of symmetric matrices by Jacobi's rotations, many at a time (G. H. Golub and C. F. Van Loan, "Matrix Computations",
// section 8.5). Eigenvalues ascend; each eigenvector's first large element is positive.
#include "matrix.cuh"

namespace gradlab {

enum { EIGH_SWEEPS = 40 };

// Work space of a matrix: itself and the eigenvectors as rows [n, n] each, and two numbers for each pair of rows.
template <class T>
__global__ void __launch_bounds__(512, 1) eigh(const T* __restrict__ x, T* __restrict__ values, T* __restrict__ vectors, T* __restrict__ scratch,
                                            int64 lower, FaultWord* fault, int64 site, int64 size) {
    extern __shared__ unsigned long long memory[];
    const int n = static_cast<int>(size), even = n + (n & 1), pairs = even / 2;
    const Grid grid;
    const Team<false> team{};
    T* a = own_part(scratch, memory, 2 * size * size + even);
    T *v = a + n * n, *cosines = v + n * n, *sines = cosines + pairs;
    x += blockIdx.x * size * size;
    values += blockIdx.x * size;
    vectors += blockIdx.x * size * size;
    T top = T(0);
    for (int i = grid.warp; i < n; i += grid.warps)
        for (int c = grid.lane; c < n; c += 32) {
            const bool own = lower ? c <= i : c >= i;
            const T value = own ? x[i * n + c] : x[c * n + i];
            top = maximum(top, abs(value));
            a[i * n + c] = value;
            v[i * n + c] = i == c ? T(1) : T(0);
        }
    top = team.max(top);
    const bool wrong = !isfinite(top);
    const T unit = top > T(0) && !wrong ? top : T(1);
    T squares = T(0);
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        const T value = a[i] / unit;
        squares += value * value;
        a[i] = value;
    }
    const T least = precision<T>() * sqrt(team.sum(squares)) / static_cast<T>(n);
    bool settled = wrong;
    for (int sweep = 0; sweep < EIGH_SWEEPS && !settled; ++sweep) {
        bool turned = false;
        for (int round = 0; round < even - 1; ++round) {
            __syncthreads();
            for (int k = threadIdx.x; k < pairs; k += blockDim.x) {
                const Pair pair(round, k, even);
                const T common = pair.q < n ? a[pair.p * n + pair.q] : T(0);
                T c = T(1), s = T(0);
                if (abs(common) > least) {
                    const Rotation<T> rotation(a[pair.q * n + pair.q] - a[pair.p * n + pair.p], T(2) * common);
                    c = rotation.c;
                    s = rotation.s;
                    turned = true;
                }
                cosines[k] = c;
                sines[k] = s;
            }
            __syncthreads();
            for (int k = grid.warp; k < pairs; k += grid.warps) {
                const Pair pair(round, k, even);
                const Rotation<T> rotation(cosines + k, sines + k);
                if (rotation.s == T(0)) continue;
                for (int c = grid.lane; c < n; c += 32) {
                    rotation.turn(a[pair.p * n + c], a[pair.q * n + c]);
                    rotation.turn(v[pair.p * n + c], v[pair.q * n + c]);
                }
            }
            __syncthreads();
            for (int i = grid.warp; i < n; i += grid.warps)
                for (int k = grid.lane; k < pairs; k += 32) {
                    const Pair pair(round, k, even);
                    const Rotation<T> rotation(cosines + k, sines + k);
                    if (rotation.s == T(0)) continue;
                    rotation.turn(a[i * n + pair.p], a[i * n + pair.q]);
                    // What the rotation is for, without its rounding.
                    if (i == pair.p) a[i * n + pair.q] = T(0);
                    if (i == pair.q) a[i * n + pair.p] = T(0);
                }
        }
        settled = !__syncthreads_or(turned);
    }
    if (!settled && threadIdx.x == 0) report(fault, site, 0);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (wrong) {  // NaN and infinity give NaN, as on the CPU
            const T nan = infinity<T>() - infinity<T>();
            values[i] = nan;
            for (int j = 0; j < n; ++j) vectors[j * n + i] = nan;
            continue;
        }
        const T value = a[i * n + i];
        int place = 0;
        for (int j = 0; j < n; ++j) {
            const T other = a[j * n + j];
            place += other < value || (other == value && j < i);
        }
        values[place] = value * unit;
        const T sign = orientation(v + i * n, n);
        for (int j = 0; j < n; ++j) vectors[j * n + place] = sign * v[i * n + j];
    }
}

}  // namespace gradlab
