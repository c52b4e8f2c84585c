// Rows of a table and what is added to them for their place in a sequence, in one pass. A place outside of the table is reported (fault.cuh).
#include "fault.cuh"
#include "rows.cuh"

namespace gradlab {

// V neighbours of a row of y = table[place] + positions.
template <int V, class S>
__device__ __forceinline__ void add_row(const S* __restrict__ row, const S* __restrict__ position, S* __restrict__ y, int64 first, int64 step,
                                        int64 width) {
    typedef typename Compute<S>::type T;
    for (int64 i = first * V; i < width; i += step * V) {
        T a[V], b[V];
        read<V>(row + i, a);
        read<V>(position + i, b);
#pragma unroll
        for (int k = 0; k < V; ++k) a[k] += b[k];
        put<V>(y + i, a);
    }
}

// y[line, :] = table[places[line], :] + positions[line % length, :]. `lanes` neighbouring threads, a power of two, take a line.
template <class S>
__global__ void __launch_bounds__(128) embedding_add(const S* __restrict__ table, const S* __restrict__ positions, const int64* __restrict__ places,
                                                     S* __restrict__ y, FaultWord* fault, int64 site, int64 size, int64 length, int64 width,
                                                     int64 lanes, int64 packed, int64 lines) {
    constexpr int V = pack_size<S>(16);
    const int lane = threadIdx.x & (static_cast<int>(lanes) - 1), teams = 128 / static_cast<int>(lanes);
    const int64 line = static_cast<int64>(blockIdx.x) * teams + threadIdx.x / static_cast<int>(lanes);
    if (line >= lines) return;
    const int64 place = checked(places[line], size, false, fault, site);
    const S* position = positions + line % length * width;
    const S* row = place < 0 ? position : table + place * width;  // something that is there
    if (packed) add_row<V>(row, position, y + line * width, lane, lanes, width);
    else add_row<1>(row, position, y + line * width, lane, lanes, width);
}

}  // namespace gradlab
