// Convolution and its gradients as products of matrices whose second factor, the unrolled windows, is never written: every tile of it is
// gathered into shared memory. float32 (float64) accumulation in an order that depends on sizes alone; no atomics.
//
// For each group, with P output positions, X input positions and R kernel places (P, X, R count all spatial dimensions):
//   forward  y  [O/g x images·P] = w  [O/g x C/g·R]      · windows of x [C/g·R x images·P]
//   dx       dx [C/g x images·X] = wᵀ [C/g x O/g·R]      · spread dy    [O/g·R x images·X]
//   dw       dw [O/g x C/g·R]    = dy [O/g x images·P]   · windows of x [images·P x C/g·R]
// A transposed convolution is dx with a bias of C numbers. Either may end with an activation; `sums`, where given, gets what that is taken of.
#include "conv_epilogue.cuh"
#include "windows.cuh"

namespace gradlab {

enum { FORWARD = 0, INPUT = 1, WEIGHT = 2 };

// The same struct is packed in backends/cuda/launch/conv.py.
struct Convolution {
    Windows windows;
    int images, channels, outputs, groups, activation;
};

// What one row of the unrolled factor, or one column of it, adds to an element's address: a memory offset, and a place in space.
struct Part {
    int64 base;
    int at[3];
};

enum { OUTSIDE = -(1 << 29) };  // makes every place lie outside the array, also when two such numbers are added

// Which window begins at a place of the padded input; negative for none.
__device__ __forceinline__ int window_number(int at, int stride, int outputs) {
    if (at < 0) return -1;
    const int number = stride == 1 ? at : at / stride;
    return number * stride == at && number < outputs ? number : -1;
}

// Where an element of the unrolled factor lies; negative for one that is 0.
template <int Mode>
__device__ __forceinline__ int64 locate(const Windows& windows, const Part& row, const Part& column) {
    int64 flat = 0;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        int at = row.at[d] + column.at[d];
        if (Mode == INPUT) {
            at = window_number(at, windows.stride[d], windows.out[d]);
            if (at < 0) return -1;
            flat = flat * windows.out[d] + at;
        } else {
            if (static_cast<unsigned>(at) >= static_cast<unsigned>(windows.size[d])) return -1;
            flat = flat * windows.size[d] + at;
        }
    }
    return row.base + column.base + flat;
}

// The part of an output position (image, place in space).
__device__ __forceinline__ Part position_part(const Convolution& c, unsigned i, int64 image_step) {
    const unsigned positions = c.windows.positions(), image = i / positions;
    int o[3];
    unravel(i - image * positions, c.windows.out, o);
    Part part;
    part.base = image * image_step;
#pragma unroll
    for (int d = 0; d < 3; ++d) part.at[d] = o[d] * c.windows.stride[d] - c.windows.padding[d];
    return part;
}

// The part of a kernel place (channel, place in space).
__device__ __forceinline__ Part place_part(const Convolution& c, unsigned i, int64 channel_step, int sign) {
    const unsigned places = c.windows.places(), channel = i / places;
    int k[3];
    unravel(i - channel * places, c.windows.kernel, k);
    Part part;
    part.base = channel * channel_step;
#pragma unroll
    for (int d = 0; d < 3; ++d) part.at[d] = sign * k[d] * c.windows.dilation[d];
    return part;
}

template <class S>
constexpr int blocks_at_once = sizeof(S) == 8 ? 1 : 2;  // of a multiprocessor; double takes more registers than two blocks have

// One block for each tile of BM rows and 4096 / BM columns; each thread has 4 x 4 elements. blockIdx.y is the group. blockIdx.z takes `share`
// numbers of the sum, and writes a whole result of its own.
// `first` is the weight (for dw: dy), `second` what is unrolled: x (for dx: dy). bias and sums may be null pointers.
template <class S, class Out, int Mode, int BM>
__global__ void __launch_bounds__(256, blocks_at_once<S>) convolve(const S* __restrict__ first, const S* __restrict__ second, const S* __restrict__ bias,
                                                Out* __restrict__ result, Out* __restrict__ sums, const Convolution c, int64 share) {
    typedef typename Compute<S>::type T;
    const int BN = 4096 / BM, BK = 16;
    __shared__ Pack<T, 4> a_tile[BK][BM / 4 + 1];
    __shared__ Pack<T, 4> b_tile[BK][BN / 4 + 1];
    __shared__ Part columns[BN];
    __shared__ Part rows[2][BK];
    __shared__ int64 offsets[2][BK];  // of `first`, along the sum

    const int64 x_size = c.windows.inputs(), y_size = c.windows.positions(), places = c.windows.places();
    const int64 channels = c.channels / c.groups, outputs = c.outputs / c.groups, group = blockIdx.y;
    const int64 m_size = Mode == INPUT ? channels : outputs;
    const int64 n_size = Mode == FORWARD ? c.images * y_size : Mode == INPUT ? c.images * x_size : channels * places;
    const int64 k_size = Mode == FORWARD ? channels * places : Mode == INPUT ? outputs * places : c.images * y_size;
    // 32 bits: a 64-bit division is a call, and costs registers that are spilled.
    const unsigned tiles = static_cast<unsigned>((n_size + BN - 1) / BN), tile_row = blockIdx.x / tiles;
    const int64 row0 = static_cast<int64>(tile_row) * BM, column0 = static_cast<int64>(blockIdx.x - tile_row * tiles) * BN;
    const int64 begin = blockIdx.z * share, end = begin + share < k_size ? begin + share : k_size;

    // Along the rows of the first factor, and where the group begins.
    const int64 a_step = Mode == FORWARD ? k_size : Mode == INPUT ? places : y_size;
    const S* const a = first + group * outputs * (Mode == WEIGHT ? y_size : channels * places);
    const S* const b = second + group * (Mode == INPUT ? outputs * y_size : channels * x_size);

    for (int i = threadIdx.x; i < BN; i += 256) {
        const int64 n = column0 + i;
        Part part;
        if (n >= n_size) {
            part.base = 0;
            part.at[0] = part.at[1] = part.at[2] = OUTSIDE;
        } else if (Mode == FORWARD) {
            part = position_part(c, static_cast<unsigned>(n), c.channels * x_size);
        } else if (Mode == WEIGHT) {
            part = place_part(c, static_cast<unsigned>(n), x_size, 1);
        } else {
            const unsigned image = static_cast<unsigned>(n) / static_cast<unsigned>(x_size);
            unravel(static_cast<unsigned>(n) - image * static_cast<unsigned>(x_size), c.windows.size, part.at);
            part.base = image * (c.outputs * y_size);
#pragma unroll
            for (int d = 0; d < 3; ++d) part.at[d] += c.windows.padding[d];
        }
        columns[i] = part;
    }
    auto describe = [&](int64 k0, int buffer) {  // the rows of one step
        if (threadIdx.x >= BK) return;
        const int64 k = k0 + threadIdx.x;
        Part part;
        int64 offset = 0;
        if (k >= end) {
            part.base = 0;
            part.at[0] = part.at[1] = part.at[2] = OUTSIDE;
        } else if (Mode == WEIGHT) {
            part = position_part(c, static_cast<unsigned>(k), c.channels * x_size);
            const int64 image = static_cast<unsigned>(k) / static_cast<unsigned>(y_size);
            offset = image * c.outputs * y_size + (k - image * y_size);
        } else {
            part = place_part(c, static_cast<unsigned>(k), Mode == FORWARD ? x_size : y_size, Mode == FORWARD ? 1 : -1);
            const int64 channel = static_cast<unsigned>(k) / static_cast<unsigned>(places);
            offset = Mode == FORWARD ? k : channel * channels * places + (k - channel * places);
        }
        rows[buffer][threadIdx.x] = part;
        offsets[buffer][threadIdx.x] = offset;
    };

    const int tx = threadIdx.x % (BN / 4), ty = threadIdx.x / (BN / 4);
    T sum[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = T(0);

    describe(begin, 0);
    int buffer = 0;
    for (int64 k0 = begin; k0 < end; k0 += BK, buffer ^= 1) {
        __syncthreads();  // the descriptions are there, and the tiles are no longer read
#pragma unroll
        for (int t = 0; t < BM / 16; ++t) {
            const int k = threadIdx.x % BK, m = threadIdx.x / BK + t * 16;
            T value = T(0);
            if (k0 + k < end && row0 + m < m_size) value = load(a[(row0 + m) * a_step + offsets[buffer][k]]);
            a_tile[k][m >> 2].item[m & 3] = value;
        }
#pragma unroll
        for (int t = 0; t < BN / 16; ++t) {
            // Neighbouring threads take neighbouring positions in space: along the columns, for dw along the rows.
            const int e = threadIdx.x + t * 256;
            const int k = Mode == WEIGHT ? e % BK : e / BN, n = Mode == WEIGHT ? e / BK : e % BN;
            const int64 at = locate<Mode>(c.windows, rows[buffer][k], columns[n]);
            b_tile[k][n >> 2].item[n & 3] = at < 0 ? T(0) : load(b[at]);
        }
        __syncthreads();
        describe(k0 + BK, buffer ^ 1);
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            const Pack<T, 4> x = a_tile[k][ty], y = b_tile[k][tx];
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] += x.item[i] * y.item[j];
        }
    }

    // Rows of the result are planes, or for dw the weights of one output channel. A quarter of the tile at a time goes through shared memory, so
    // that neighbouring threads write neighbouring columns; each thread writes in one column alone.
    const int64 c_step = Mode == FORWARD ? y_size : Mode == INPUT ? x_size : n_size;
    const int own = threadIdx.x % BN;
    const int64 n = column0 + own;
    int64 to = group * m_size * c_step;
    if (Mode == WEIGHT) {
        to += n + blockIdx.z * (c.outputs * n_size);
    } else {
        const int64 image = static_cast<unsigned>(n) / static_cast<unsigned>(c_step);
        to += image * (Mode == FORWARD ? c.outputs : c.channels) * c_step + (n - image * c_step);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        __syncthreads();
        Pack<T, 4> part;
#pragma unroll
        for (int j = 0; j < 4; ++j) part.item[j] = sum[i][j];
        b_tile[ty][tx] = part;
        __syncthreads();
#pragma unroll 1
        for (int row = threadIdx.x / BN; row < BM / 4; row += 256 / BN) {
            const int64 m = row0 + row * 4 + i;
            if (m >= m_size || n >= n_size) continue;
            const int64 at = to + m * c_step;
            T total = b_tile[row][own >> 2].item[own & 3];
            if (Mode != WEIGHT) {
                if (bias) total += load(bias[group * m_size + m]);
                if (sums) sums[at] = store<Out>(total);
                total = activated(total, c.activation);
            }
            result[at] = store<Out>(total);
        }
    }
}

// The shares of dw, in order.
template <class S>
__global__ void __launch_bounds__(256) add_shares(const typename Compute<S>::type* __restrict__ partial, S* __restrict__ dw, int64 parts,
                                                  int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = thread_number<int64>();
    if (i >= count) return;
    T total = T(0);
    for (int64 part = 0; part < parts; ++part) total += partial[part * count + i];
    dw[i] = store<S>(total);
}

// The shares of a forward pass or of dx, in order, then as the kernels of whole sums end: the bias, `sums`, the activation. channels: of the
// result; step: from one to the next in memory.
template <class S>
__global__ void __launch_bounds__(256) finish_shares(const typename Compute<S>::type* __restrict__ partial, const S* __restrict__ bias,
                                                     S* __restrict__ result, S* __restrict__ sums, int64 parts, int64 count, int64 channels,
                                                     int64 step, int activation) {
    typedef typename Compute<S>::type T;
    const int64 i = thread_number<int64>();
    if (i >= count) return;
    T total = T(0);
    for (int64 part = 0; part < parts; ++part) total += partial[part * count + i];
    if (bias) total += load(bias[i / step % channels]);
    if (sums) sums[i] = store<S>(total);
    result[i] = store<S>(activated(total, activation));
}

// ---- groups of few channels: tiles would be nearly empty --------------------------------------------------------------------

// One thread for each output. Index: 32 bits where they can count the elements.
template <class S, class Index>
__global__ void __launch_bounds__(256, 4) narrow_forward(const S* __restrict__ x, const S* __restrict__ w, const S* __restrict__ bias,
                                                      S* __restrict__ y, S* __restrict__ sums, const Convolution c, int64 count) {
    typedef typename Compute<S>::type T;
    const Index i = thread_number<Index>();
    if (i >= static_cast<Index>(count)) return;
    const Windows& win = c.windows;
    const Index plane = i / static_cast<Index>(win.positions());
    const int64 image = plane / static_cast<Index>(c.outputs);
    const int output = static_cast<int>(plane - image * c.outputs), channels = c.channels / c.groups, group = output / (c.outputs / c.groups);
    int o[3];
    unravel(static_cast<unsigned>(i - plane * win.positions()), win.out, o);
    const S* weight = w + static_cast<int64>(output) * channels * win.places();
    T total = T(0);
    for (int channel = 0; channel < channels; ++channel) {
        const S* from = x + (image * c.channels + group * channels + channel) * win.inputs();
        for (int k0 = 0; k0 < win.kernel[0]; ++k0) {
            const int a0 = o[0] * win.stride[0] - win.padding[0] + k0 * win.dilation[0];
            for (int k1 = 0; k1 < win.kernel[1]; ++k1) {
                const int a1 = o[1] * win.stride[1] - win.padding[1] + k1 * win.dilation[1];
                const bool inside = static_cast<unsigned>(a0) < static_cast<unsigned>(win.size[0]) && static_cast<unsigned>(a1) < static_cast<unsigned>(win.size[1]);
                for (int k2 = 0; k2 < win.kernel[2]; ++k2, ++weight) {
                    const int a2 = o[2] * win.stride[2] - win.padding[2] + k2 * win.dilation[2];
                    if (inside && static_cast<unsigned>(a2) < static_cast<unsigned>(win.size[2]))
                        total += load(from[(a0 * win.size[1] + a1) * win.size[2] + a2]) * load(*weight);
                }
            }
        }
    }
    if (bias) total += load(bias[output]);
    if (sums) sums[i] = store<S>(total);
    y[i] = store<S>(activated(total, c.activation));
}

// One thread for each input.
template <class S, class Index>
__global__ void __launch_bounds__(256, 4) narrow_input(const S* __restrict__ dy, const S* __restrict__ w, const S* __restrict__ bias,
                                                    S* __restrict__ dx, S* __restrict__ sums, const Convolution c, int64 count) {
    typedef typename Compute<S>::type T;
    const Index i = thread_number<Index>();
    if (i >= static_cast<Index>(count)) return;
    const Windows& win = c.windows;
    const Index plane = i / static_cast<Index>(win.inputs());
    const int64 image = plane / static_cast<Index>(c.channels);
    const int channels = c.channels / c.groups, outputs = c.outputs / c.groups;
    const int number = static_cast<int>(plane - image * c.channels), group = number / channels, channel = number - group * channels;
    int at[3];
    unravel(static_cast<unsigned>(i - plane * static_cast<Index>(win.inputs())), win.size, at);
#pragma unroll
    for (int d = 0; d < 3; ++d) at[d] += win.padding[d];
    const S* from = dy + (image * c.outputs + group * outputs) * win.positions();
    const S* weight = w + (static_cast<int64>(group * outputs) * channels + channel) * win.places();
    T total = T(0);
    for (int output = 0; output < outputs; ++output, from += win.positions(), weight += static_cast<int64>(channels) * win.places()) {
        for (int k0 = 0; k0 < win.kernel[0]; ++k0) {
            const int o0 = window_number(at[0] - k0 * win.dilation[0], win.stride[0], win.out[0]);
            if (o0 < 0) continue;
            for (int k1 = 0; k1 < win.kernel[1]; ++k1) {
                const int o1 = window_number(at[1] - k1 * win.dilation[1], win.stride[1], win.out[1]);
                if (o1 < 0) continue;
                for (int k2 = 0; k2 < win.kernel[2]; ++k2) {
                    const int o2 = window_number(at[2] - k2 * win.dilation[2], win.stride[2], win.out[2]);
                    if (o2 >= 0)
                        total += load(from[(o0 * win.out[1] + o1) * win.out[2] + o2]) *
                                 load(weight[(k0 * win.kernel[1] + k1) * win.kernel[2] + k2]);
                }
            }
        }
    }
    if (bias) total += load(bias[number]);
    if (sums) sums[i] = store<S>(total);
    dx[i] = store<S>(activated(total, c.activation));
}

// One block of 256 threads for each weight.
template <class S>
__global__ void __launch_bounds__(256) narrow_weight(const S* __restrict__ x, const S* __restrict__ dy, S* __restrict__ dw, const Convolution c) {
    typedef typename Compute<S>::type T;
    __shared__ T warps[8];
    const Windows& win = c.windows;
    const unsigned channels = c.channels / c.groups, places = win.places(), positions = win.positions();
    const unsigned number = blockIdx.x / places, output = number / channels;
    const unsigned channel = output / (c.outputs / c.groups) * channels + number % channels;
    int k[3];
    unravel(blockIdx.x - number * places, win.kernel, k);
    Part column;
    column.base = static_cast<int64>(channel) * win.inputs();
#pragma unroll
    for (int d = 0; d < 3; ++d) column.at[d] = k[d] * win.dilation[d];
    T total = T(0);
    const unsigned count = c.images * positions;
    for (unsigned i = threadIdx.x; i < count; i += 256) {
        const int64 at = locate<WEIGHT>(win, position_part(c, i, static_cast<int64>(c.channels) * win.inputs()), column);
        if (at < 0) continue;
        const unsigned image = i / positions;
        total += load(x[at]) * load(dy[(static_cast<int64>(image) * c.outputs + output) * positions + (i - image * positions)]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) total += shuffle_down(total, offset);
    if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        T sum = warps[0];
#pragma unroll
        for (int i = 1; i < 8; ++i) sum += warps[i];
        dw[blockIdx.x] = store<S>(sum);
    }
}

}  // namespace gradlab
