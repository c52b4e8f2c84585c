// Pooling over windows, and reading planes at the indices of maxima.
#include "fault.cuh"
#include "windows.cuh"

namespace gradlab {

// The first largest element of each window and its place in the plane; a NaN wins.
template <class S>
__global__ void __launch_bounds__(256, 4) max_pool(const S* __restrict__ x, S* __restrict__ values, int64* __restrict__ indices, const Windows w,
                                                int count) {
    typedef typename Compute<S>::type T;
    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (i >= count) return;
    const int o2 = i % w.out[2], o1 = i / w.out[2] % w.out[1], o0 = i / (w.out[2] * w.out[1]) % w.out[0];
    const int plane = i / (w.out[2] * w.out[1] * w.out[0]);
    const S* source = x + plane * (w.size[0] * w.size[1] * w.size[2]);
    T best = T(0);
    int where = -1;
    for (int k0 = 0; k0 < w.kernel[0]; ++k0) {
        const int p0 = o0 * w.stride[0] - w.padding[0] + k0 * w.dilation[0];
        if (p0 < 0 || p0 >= w.size[0]) continue;
        for (int k1 = 0; k1 < w.kernel[1]; ++k1) {
            const int p1 = o1 * w.stride[1] - w.padding[1] + k1 * w.dilation[1];
            if (p1 < 0 || p1 >= w.size[1]) continue;
            for (int k2 = 0; k2 < w.kernel[2]; ++k2) {
                const int p2 = o2 * w.stride[2] - w.padding[2] + k2 * w.dilation[2];
                if (p2 < 0 || p2 >= w.size[2]) continue;
                const int at = (p0 * w.size[1] + p1) * w.size[2] + p2;
                const T v = load(source[at]);
                if (where < 0 || v > best || (v != v && best == best)) {
                    best = v;
                    where = at;
                }
            }
        }
    }
    values[i] = where < 0 ? store<S>(lowest<T>()) : store<S>(best);
    indices[i] = where < 0 ? 0 : where;
}

// The cell of output o of an adaptive pooling: from floor(o size / out) to ceil((o + 1) size / out). o size may have 62 bits.
__device__ __forceinline__ int cell_start(int o, int size, int out) { return static_cast<int>(static_cast<int64>(o) * size / out); }
__device__ __forceinline__ int cell_end(int o, int size, int out) {
    return static_cast<int>(((static_cast<int64>(o) + 1) * size + out - 1) / out);
}

template <class S>
__global__ void __launch_bounds__(256) adaptive_max_pool(const S* __restrict__ x, S* __restrict__ values, int64* __restrict__ indices,
                                                         const Windows w, int count) {
    typedef typename Compute<S>::type T;
    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (i >= count) return;
    const int o2 = i % w.out[2], o1 = i / w.out[2] % w.out[1], o0 = i / (w.out[2] * w.out[1]) % w.out[0];
    const S* source = x + i / (w.out[2] * w.out[1] * w.out[0]) * (w.size[0] * w.size[1] * w.size[2]);
    T best = T(0);
    int where = -1;
    for (int p0 = cell_start(o0, w.size[0], w.out[0]); p0 < cell_end(o0, w.size[0], w.out[0]); ++p0)
        for (int p1 = cell_start(o1, w.size[1], w.out[1]); p1 < cell_end(o1, w.size[1], w.out[1]); ++p1)
            for (int p2 = cell_start(o2, w.size[2], w.out[2]); p2 < cell_end(o2, w.size[2], w.out[2]); ++p2) {
                const int at = (p0 * w.size[1] + p1) * w.size[2] + p2;
                const T v = load(source[at]);
                if (where < 0 || v > best || (v != v && best == best)) {
                    best = v;
                    where = at;
                }
            }
    values[i] = store<S>(best);
    indices[i] = where;
}

// What a window's sum is divided by, of one dimension; of three the product may have more than 32 bits.
__device__ __forceinline__ int64 divisor(const Windows& w, int o, int d, bool include) {
    const int start = o * w.stride[d] - w.padding[d], end = start + w.kernel[d];
    int number;
    if (include) {
        const int limit = w.size[d] + w.padding[d];
        number = (end < limit ? end : limit) - start;
    } else {
        number = (end < w.size[d] ? end : w.size[d]) - (start > 0 ? start : 0);
    }
    return number > 1 ? number : 1;
}

template <class S>
__global__ void __launch_bounds__(256) avg_pool(const S* __restrict__ x, S* __restrict__ y, const Windows w, int include, int given,
                                                int count) {
    typedef typename Compute<S>::type T;
    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (i >= count) return;
    const int o2 = i % w.out[2], o1 = i / w.out[2] % w.out[1], o0 = i / (w.out[2] * w.out[1]) % w.out[0];
    const S* source = x + i / (w.out[2] * w.out[1] * w.out[0]) * (w.size[0] * w.size[1] * w.size[2]);
    T sum = T(0);
    for (int k0 = 0; k0 < w.kernel[0]; ++k0) {
        const int p0 = o0 * w.stride[0] - w.padding[0] + k0;
        if (p0 < 0 || p0 >= w.size[0]) continue;
        for (int k1 = 0; k1 < w.kernel[1]; ++k1) {
            const int p1 = o1 * w.stride[1] - w.padding[1] + k1;
            if (p1 < 0 || p1 >= w.size[1]) continue;
            for (int k2 = 0; k2 < w.kernel[2]; ++k2) {
                const int p2 = o2 * w.stride[2] - w.padding[2] + k2;
                if (p2 >= 0 && p2 < w.size[2]) sum += load(source[(p0 * w.size[1] + p1) * w.size[2] + p2]);
            }
        }
    }
    const int64 n = given ? given : divisor(w, o0, 0, include) * divisor(w, o1, 1, include) * divisor(w, o2, 2, include);
    y[i] = store<S>(sum / T(n));
}

// One thread for each input element gathers its share of all windows that hold it.
template <class S>
__global__ void __launch_bounds__(256, 4) avg_pool_backward(const S* __restrict__ dy, S* __restrict__ y, const Windows w, int include, int given,
                                                         int count) {
    typedef typename Compute<S>::type T;
    const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (i >= count) return;
    int rest = i, first[3], last[3];
#pragma unroll
    for (int d = 2; d >= 0; --d) {
        const int at = rest % w.size[d] + w.padding[d];
        rest /= w.size[d];
        first[d] = at < w.kernel[d] ? 0 : (at - w.kernel[d]) / w.stride[d] + 1;
        last[d] = at / w.stride[d];
        if (last[d] >= w.out[d]) last[d] = w.out[d] - 1;
    }
    const S* source = dy + rest * (w.out[0] * w.out[1] * w.out[2]);
    T sum = T(0);
    for (int o0 = first[0]; o0 <= last[0]; ++o0)
        for (int o1 = first[1]; o1 <= last[1]; ++o1)
            for (int o2 = first[2]; o2 <= last[2]; ++o2) {
                const int64 n = given ? given : divisor(w, o0, 0, include) * divisor(w, o1, 1, include) * divisor(w, o2, 2, include);
                sum += load(source[(o0 * w.out[1] + o1) * w.out[2] + o2]) / T(n);
            }
    y[i] = store<S>(sum);
}

template <class Word>
__global__ void __launch_bounds__(256) plane_gather(const Word* __restrict__ x, const int64* __restrict__ indices, Word* __restrict__ y,
                                                    FaultWord* fault, int64 site, int64 outputs, int64 plane, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 at = checked(indices[i], plane, false, fault, site);
    y[i] = at < 0 ? Word(0) : x[i / outputs * plane + at];
}

}  // namespace gradlab
