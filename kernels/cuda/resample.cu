// Resampling along one dimension: every output is a weighted sum of a few inputs, its taps. A small launch computes the taps from the table's
// numbers, in double and without fused multiply-add, as gradlab/ops/vision_cpu.py does on the host.
#include "common.cuh"

namespace gradlab {

enum Method { REFLECT, REPLICATE, CIRCULAR, NEAREST, AREA, LINEAR, CUBIC, LINEAR_SMOOTH, CUBIC_SMOOTH };

// The same struct is packed in backends/cuda/launch/resample.py. Numbers of elements along the dimension; `most` taps for each output; `low`:
// elements that a border adds in front; `half`: 0.5 for nearest-exact; `aligned`: the corners' centres coincide.
struct Resampling {
    int inputs, outputs, most, method, low, aligned;
    double scale, half;
};

__device__ __forceinline__ int whole_floor(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

__device__ __forceinline__ int border(const Resampling& r, int o) {
    int at = o - r.low;
    if (r.method == REPLICATE) return at < 0 ? 0 : at >= r.inputs ? r.inputs - 1 : at;
    if (r.method == CIRCULAR) {  // negative padding crops first; what is left goes round
        const int high = r.outputs - r.inputs - r.low, start = r.low < 0 ? -r.low : 0;
        const int size = r.inputs - start - (high < 0 ? -high : 0);
        at = o - (r.low > 0 ? r.low : 0);
        return start + at - whole_floor(at, size) * size;
    }
    at = at < 0 ? -at : at;
    return at >= r.inputs ? 2 * (r.inputs - 1) - at : at;
}

// In float, as in PyTorch, so that rounding at the borders between pixels is the same; equal and doubled sizes repeat pixels evenly.
__device__ __forceinline__ int nearest(const Resampling& r, int o) {
    if (r.half == 0.0 && (r.outputs == r.inputs || r.outputs == 2 * r.inputs)) return static_cast<int>(static_cast<int64>(o) * r.inputs / r.outputs);
    const float at = __fmul_rn(static_cast<float>(o) + static_cast<float>(r.half), static_cast<float>(r.scale));
    const int found = static_cast<int>(floor(at));
    return found < r.inputs - 1 ? found : r.inputs - 1;
}

// Keys' cubic convolution kernel (R. Keys, 1981).
__device__ __forceinline__ double cubic(double distance, double a) {
    const double d = abs(distance);
    const double near = ((a + 2) * d - (a + 3)) * d * d + 1, far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    return d <= 1 ? near : d < 2 ? far : 0.0;
}

// One thread for each output writes `most` taps, and how many of them are used.
template <class T>
__global__ void __launch_bounds__(256) taps(int* __restrict__ index, T* __restrict__ weight, int* __restrict__ used, const Resampling r) {
    const int o = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
    if (o >= r.outputs) return;
    int* const at = index + static_cast<int64>(o) * r.most;
    T* const share = weight + static_cast<int64>(o) * r.most;
    if (r.method <= NEAREST) {
        at[0] = r.method == NEAREST ? nearest(r, o) : border(r, o);
        share[0] = T(1);
        used[o] = 1;
    } else if (r.method == AREA) {
        const int start = static_cast<int>(static_cast<int64>(o) * r.inputs / r.outputs);
        const int stop = static_cast<int>((static_cast<int64>(o + 1) * r.inputs + r.outputs - 1) / r.outputs);
        for (int t = 0; t < stop - start; ++t) at[t] = start + t, share[t] = static_cast<T>(1.0 / (stop - start));
        used[o] = stop - start;
    } else if (r.method <= CUBIC) {
        const double place = r.aligned ? o * r.scale : __dsub_rn(__dmul_rn(o + 0.5, r.scale), 0.5);
        if (r.method == LINEAR) {
            const double source = place > 0 ? place : 0.0;
            const int found = static_cast<int>(floor(source)), low = found < r.inputs - 1 ? found : r.inputs - 1;
            const double part = source - low, high_share = part < 0 ? 0.0 : part > 1 ? 1.0 : part;
            at[0] = low, at[1] = low + 1 < r.inputs ? low + 1 : r.inputs - 1;
            share[0] = static_cast<T>(1.0 - high_share), share[1] = static_cast<T>(high_share);
            used[o] = 2;
        } else {
            const int low = static_cast<int>(floor(place));
            for (int t = 0; t < 4; ++t) {
                const int k = low + t - 1;
                at[t] = k < 0 ? 0 : k >= r.inputs ? r.inputs - 1 : k;
                share[t] = static_cast<T>(cubic(place - low - (t - 1), -0.75));
            }
            used[o] = 4;
        }
    } else {  // the filter stretched over as many inputs as one output covers, its weights normalised
        const double stretch = r.scale > 1 ? r.scale : 1.0, support = (r.method == LINEAR_SMOOTH ? 1 : 2) * stretch;
        const double centre = __dmul_rn(r.scale, o + 0.5);
        int first = static_cast<int>(centre - support + 0.5), last = static_cast<int>(centre + support + 0.5);
        first = first > 0 ? first : 0;
        last = last < r.inputs ? last : r.inputs;
        double total = 0;
        for (int pass = 0; pass < 2; ++pass) {
            for (int k = first; k < last; ++k) {
                const double distance = (k - centre + 0.5) / stretch, side = 1.0 - abs(distance);
                const double found = r.method == LINEAR_SMOOTH ? (side > 0 ? side : 0.0) : cubic(distance, -0.5);
                if (pass == 0) total += found;
                else at[k - first] = k, share[k - first] = static_cast<T>(found / total);
            }
        }
        used[o] = last - first;
    }
}

// Outputs first[i] to last[i] are those that input i is a tap of, besides others. One warp for each input.
template <class T>
__global__ void __launch_bounds__(256) tapped(const int* __restrict__ index, const T* __restrict__ weight, const int* __restrict__ used,
                                              int* __restrict__ first, int* __restrict__ last, const Resampling r) {
    const int i = static_cast<int>(blockIdx.x * 8 + (threadIdx.x >> 5)), lane = threadIdx.x & 31;
    if (i >= r.inputs) return;  // the whole warp
    int low = r.outputs, high = -1;
    for (int o = lane; o < r.outputs; o += 32) {
        const int64 from = static_cast<int64>(o) * r.most;
        bool found = false;
        for (int t = 0; t < used[o]; ++t) found = found || (index[from + t] == i && weight[from + t] != T(0));
        if (found) {
            low = o < low ? o : low;
            high = o;
        }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        const int other_low = __shfl_down_sync(0xffffffffu, low, offset), other_high = __shfl_down_sync(0xffffffffu, high, offset);
        low = other_low < low ? other_low : low;
        high = other_high > high ? other_high : high;
    }
    if (lane == 0) first[i] = low, last[i] = high;
}

// x [outer, inputs, inner] to y [outer, outputs, inner].
template <class S, class Index>
__global__ void __launch_bounds__(256) resample(const S* __restrict__ x, S* __restrict__ y, const int* __restrict__ index,
                                                const typename Compute<S>::type* __restrict__ weight, const int* __restrict__ used,
                                                const Resampling r, int64 inner, int64 count) {
    typedef typename Compute<S>::type T;
    const Index i = static_cast<Index>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= static_cast<Index>(count)) return;
    const Index line = i / static_cast<Index>(inner), outer = line / static_cast<Index>(r.outputs);
    const int64 o = line - outer * static_cast<Index>(r.outputs);
    const S* const source = x + static_cast<int64>(outer) * r.inputs * inner + (i - line * static_cast<Index>(inner));
    if (r.method <= NEAREST) {
        y[i] = source[index[o] * inner];
        return;
    }
    T sum = T(0);
    for (int t = 0; t < used[o]; ++t) sum += load(source[index[o * r.most + t] * inner]) * weight[o * r.most + t];
    y[i] = store<S>(sum);
}

// dy [outer, outputs, inner] to y [outer, inputs, inner]: each input gathers from the outputs that it is a tap of, in their order.
template <class S, class Index>
__global__ void __launch_bounds__(256, 4) resample_backward(const S* __restrict__ dy, S* __restrict__ y, const int* __restrict__ index,
                                                         const typename Compute<S>::type* __restrict__ weight, const int* __restrict__ used,
                                                         const int* __restrict__ first, const int* __restrict__ last, const Resampling r,
                                                         int64 inner, int64 count) {
    typedef typename Compute<S>::type T;
    const Index i = static_cast<Index>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= static_cast<Index>(count)) return;
    const Index line = i / static_cast<Index>(inner), outer = line / static_cast<Index>(r.inputs);
    const int in = static_cast<int>(line - outer * static_cast<Index>(r.inputs));
    const S* const source = dy + static_cast<int64>(outer) * r.outputs * inner + (i - line * static_cast<Index>(inner));
    T sum = T(0);
    for (int64 o = first[in]; o <= last[in]; ++o) {
        const T value = load(source[o * inner]);
        const int64 from = o * r.most;
        if (r.most > 4) {  // taps are neighbours: at most one of them is this input
            const int t = in - index[from];
            if (t >= 0 && t < used[o]) sum += value * weight[from + t];
        } else {
            for (int t = 0; t < used[o]; ++t)
                if (index[from + t] == in && weight[from + t] != T(0)) sum += value * weight[from + t];
        }
    }
    y[i] = store<S>(sum);
}

}  // namespace gradlab
