// Square systems: triangular ones, and by Gaussian elimination solutions, inverses and determinants; L and U themselves.
#include "matrix.cuh"
#include "second_place.cuh"

namespace gradlab {

// 32 right sides for each block (y): a row of the solution at a time is taken out of the rows that remain.
template <class T>
__global__ void __launch_bounds__(512, 1) solve_triangular(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, int64 upper,
                                                        int64 unit, int64 size, int64 columns) {
    const int n = static_cast<int>(size);
    const Grid grid;
    const int64 c = second_place() * 32 + grid.lane;
    const bool inside = c < columns;
    a += blockIdx.x * size * size;
    b += blockIdx.x * size * columns + c;
    y += blockIdx.x * size * columns + c;
    for (int i = grid.warp; i < n; i += grid.warps)
        if (inside) y[i * columns] = b[i * columns];
    T found = T(0);
    int last = -1;
    for (int step = 0; step < n; ++step) {
        const int j = upper ? n - 1 - step : step;
        __syncthreads();
        // Nobody reads the row before any more.
        if (inside && grid.warp == 0 && last >= 0) y[last * columns] = found;
        last = j;
        if (inside) {
            found = y[j * columns];
            if (!unit) found = found / a[j * size + j];
            for (int r = step + 1 + grid.warp; r < n; r += grid.warps) {
                const int i = upper ? n - 1 - r : r;
                y[i * columns] -= a[i * size + j] * found;
            }
        }
    }
    __syncthreads();
    if (inside && grid.warp == 0 && last >= 0) y[last * columns] = found;
}

// x of a x = b; without b the inverse.
template <class T>
__global__ void __launch_bounds__(512, 1) solve(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, T* __restrict__ scratch,
                                             FaultWord* fault, int64 site, int64 size, int64 columns) {
    extern __shared__ unsigned long long memory[];
    const int n = static_cast<int>(size), width = static_cast<int>(columns);
    T* own = own_part(scratch, memory, size * size);
    a += blockIdx.x * size * size;
    y += blockIdx.x * size * columns;
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) own[i] = a[i];
    if (b) {
        b += blockIdx.x * size * columns;
        for (int i = threadIdx.x; i < n * width; i += blockDim.x) y[i] = b[i];
    } else {
        for (int i = threadIdx.x; i < n * width; i += blockDim.x) y[i] = i / width == i % width ? T(1) : T(0);
    }
    const Elimination found = eliminate(own, n, n, y, width, static_cast<int64*>(nullptr));
    if (found.singular && threadIdx.x == 0) report(fault, site, 0);
    substitute(own, n, y, width);
}

inline constexpr double large = 2.037035976334486e90, small = 4.909093465297727e-91;  // 2^300, and its reciprocal

// Brings a number's size between those, and counts by how many steps.
__device__ __forceinline__ double in_range(double x, int& steps) {
    for (; abs(x) > large && !isinf(x); ++steps) x *= small;
    for (; abs(x) < small && x != 0.0; --steps) x *= large;
    return x;
}

// The determinant: the pivots' product, kept in range by powers of 2^300; or (with `logarithm`) its sign, and the logarithm of its size.
template <class T>
__global__ void __launch_bounds__(512, 1) det(const T* __restrict__ x, T* __restrict__ y, T* __restrict__ logarithm, T* __restrict__ scratch,
                                           int64 size) {
    extern __shared__ unsigned long long memory[];
    const int n = static_cast<int>(size);
    T* own = own_part(scratch, memory, size * size);
    x += blockIdx.x * size * size;
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) own[i] = x[i];
    const Elimination found = eliminate(own, n, n, own, 0, static_cast<int64*>(nullptr));
    __syncthreads();
    if (threadIdx.x) return;
    double product = found.exchanges & 1 ? -1.0 : 1.0, sum = 0.0;
    int scale = 0;
    for (int j = 0; j < n; ++j) {
        const double pivot = static_cast<double>(own[j * n + j]);
        if (logarithm) {
            sum += log(abs(pivot));
            product = pivot == 0.0 ? 0.0 : (pivot < 0.0 ? -product : product);
            continue;
        }
        product = in_range(product * in_range(pivot, scale), scale);
    }
    for (; scale > 0 && !isinf(product); --scale) product *= large;
    for (; scale < 0 && product != 0.0; ++scale) product *= small;
    y[blockIdx.x] = static_cast<T>(product);
    if (logarithm) logarithm[blockIdx.x] = static_cast<T>(product == 0.0 ? -infinity<double>() : sum);
}

// order [m], L [m, k] and U [k, n].
template <class T>
__global__ void __launch_bounds__(512, 1) lu(const T* __restrict__ x, int64* __restrict__ order, T* __restrict__ lower, T* __restrict__ upper,
                                          T* __restrict__ scratch, int64 rows, int64 columns) {
    extern __shared__ unsigned long long memory[];
    const int m = static_cast<int>(rows), n = static_cast<int>(columns), k = m < n ? m : n;
    T* own = own_part(scratch, memory, rows * columns);
    x += blockIdx.x * rows * columns;
    order += blockIdx.x * rows;
    lower += blockIdx.x * rows * k;
    upper += blockIdx.x * columns * k;
    for (int i = threadIdx.x; i < m * n; i += blockDim.x) own[i] = x[i];
    for (int i = threadIdx.x; i < m; i += blockDim.x) order[i] = i;
    eliminate(own, m, n, own, 0, order);
    __syncthreads();
    for (int at = threadIdx.x; at < m * k; at += blockDim.x) {
        const int i = at / k, c = at % k;
        lower[at] = i > c ? own[i * n + c] : (i == c ? T(1) : T(0));
    }
    for (int at = threadIdx.x; at < k * n; at += blockDim.x) {
        const int i = at / n, c = at % n;
        upper[at] = i <= c ? own[at] : T(0);
    }
}

}  // namespace gradlab
