// Products of a sparse matrix, given by its entries, with dense ones. Each number of a result is a sum in an order that the matrix alone decides, without
// atomics, so that two runs give the same bits. Places are trusted: they are looked at where a sparse tensor is made.
#include "rows.cuh"
#include "second_place.cuh"

namespace gradlab {

// The place of the e-th entry of the order in which rows have their entries.
__device__ __forceinline__ int64 entry(const int64* __restrict__ order, int64 e) { return order ? order[e] : e; }

// V neighbours of a row of y, from the column `first` on: the sum of values[i] dense[col[i], :] over the entries of the row.
template <int V, class S>
__device__ __forceinline__ void sum_rows(const S* __restrict__ values, const S* __restrict__ dense, const int64* __restrict__ col,
                                         const int64* __restrict__ order, S* __restrict__ y, int64 begin, int64 end, int64 first, int64 width) {
    typedef typename Compute<S>::type T;
    T total[V];
#pragma unroll
    for (int k = 0; k < V; ++k) total[k] = T(0);
    for (int64 e = begin; e < end; ++e) {
        const int64 i = entry(order, e);
        const T value = load(values[i]);
        T part[V];
        read<V>(dense + col[i] * width + first, part);
#pragma unroll
        for (int k = 0; k < V; ++k) total[k] = static_cast<T>(total[k] + value * part[k]);
    }
    put<V>(y + first, total);
}

// y[row, :] for a row by each team of `lanes` neighbouring threads, a power of two; the second place: which columns. packed: they are read several at a time.
template <class S>
__global__ void __launch_bounds__(128) spmm(const S* __restrict__ values, const S* __restrict__ dense, const int64* __restrict__ col,
                                            const int64* __restrict__ starts, const int64* __restrict__ order, S* __restrict__ y, int64 width,
                                            int64 lanes, int64 packed, int64 rows) {
    constexpr int V = pack_size<S>(4);
    const int lane = threadIdx.x & (static_cast<int>(lanes) - 1), teams = 128 / static_cast<int>(lanes);
    const int64 row = static_cast<int64>(blockIdx.x) * teams + threadIdx.x / static_cast<int>(lanes);
    const int64 first = (second_place() * lanes + lane) * (packed ? V : 1);
    if (row >= rows || first >= width) return;
    if (packed) sum_rows<V>(values, dense, col, order, y + row * width, starts[row], starts[row + 1], first, width);
    else sum_rows<1>(values, dense, col, order, y + row * width, starts[row], starts[row + 1], first, width);
}

// The same for few columns: a warp has a row, each of its threads every 32nd entry, and they add up what they have.
template <class S>
__global__ void __launch_bounds__(128) spmv(const S* __restrict__ values, const S* __restrict__ dense, const int64* __restrict__ col,
                                            const int64* __restrict__ starts, const int64* __restrict__ order, S* __restrict__ y, int64 width,
                                            int64 rows) {
    typedef typename Compute<S>::type T;
    const int64 row = static_cast<int64>(blockIdx.x) * 4 + (threadIdx.x >> 5);
    const int lane = threadIdx.x & 31;
    if (row >= rows) return;  // whole warps
    const int64 begin = starts[row], end = starts[row + 1];
    for (int64 column = 0; column < width; ++column) {
        T total = T(0);
        for (int64 e = begin + lane; e < end; e += 32) {
            const int64 i = entry(order, e);
            total = static_cast<T>(total + load(values[i]) * load(dense[col[i] * width + column]));
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask >>= 1) total = static_cast<T>(total + shuffle_across(total, mask));
        if (lane == 0) y[row * width + column] = store<S>(total);
    }
}

// y[e] = the inner product of a[row[e], :] and b[col[e], :], by a team of `lanes` neighbouring threads.
template <class S>
__global__ void __launch_bounds__(128) sddmm(const S* __restrict__ a, const S* __restrict__ b, const int64* __restrict__ row,
                                             const int64* __restrict__ col, S* __restrict__ y, int64 width, int64 lanes, int64 count) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & (static_cast<int>(lanes) - 1), teams = 128 / static_cast<int>(lanes);
    const int64 e = static_cast<int64>(blockIdx.x) * teams + threadIdx.x / static_cast<int>(lanes);
    T total = T(0);
    if (e < count) {
        const S *left = a + row[e] * width, *right = b + col[e] * width;
        for (int64 k = lane; k < width; k += lanes) total = static_cast<T>(total + load(left[k]) * load(right[k]));
    }
    for (int mask = static_cast<int>(lanes) / 2; mask > 0; mask >>= 1) total = static_cast<T>(total + shuffle_across(total, mask));
    if (e < count && lane == 0) y[e] = store<S>(total);
}

}  // namespace gradlab
