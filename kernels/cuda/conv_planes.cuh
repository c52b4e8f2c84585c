// What a convolution of one or two dimensions is as a product of matrices: which arrays, and where the elements of the gathered one lie. The
// unrolled windows are never written. What is multiplied is said in conv.cu; for dx the weight comes with its first two dimensions swapped in
// each group.
#pragma once
#include "conv_epilogue.cuh"
#include "mma.cuh"

namespace gradlab {

enum { FORWARD = 0, INPUT = 1, WEIGHT = 2 };

// The same struct is packed in backends/cuda/launch/conv.py. Dimensions of space come as height, width; a missing one has size 1.
struct Planes {
    int groups, m, n, k, end_aligned;          // of a group: rows, columns, length of the sum; whether rows of `first` allow 16-byte loads
    int size[2], places[2], positions[2];      // of the gathered array; of the kernel; of the windows (for dx: of the input's positions)
    int stride[2], padding[2], dilation[2];
    unsigned inverse[2];                       // 2^32 / stride, rounded up
    int image, channel, row, column;           // strides of the gathered array, in elements
    int result_image, result_row, result_position, result_group;  // of the result (for dw: row of weights)
    int first_image, first_row, first_group;   // of `first`
    int gathered_group;                        // where the gathered array's next group begins
    int activation;                            // of the result; not of dw
};

struct Spot {  // what one index adds to an element's address and to its place in space
    int offset, y, x;
};
enum { NOWHERE = -(1 << 29) };  // outside, also when two of them are added

template <int Mode>
__device__ __forceinline__ Spot spot_of_position(const Planes& p, unsigned i) {
    const unsigned width = p.positions[1], all = p.positions[0] * width, image = i / all, at = i - image * all, y = at / width;
    Spot spot;
    if (Mode == INPUT) {
        spot.y = static_cast<int>(y) + p.padding[0];
        spot.x = static_cast<int>(at - y * width) + p.padding[1];
        spot.offset = static_cast<int>(image) * p.image;
    } else {
        spot.y = static_cast<int>(y) * p.stride[0] - p.padding[0];
        spot.x = static_cast<int>(at - y * width) * p.stride[1] - p.padding[1];
        spot.offset = static_cast<int>(image) * p.image + spot.y * p.row + spot.x * p.column;
    }
    return spot;
}
// The sum (for dw: the columns) runs over channels and, for each, over places; with Last over places and, for each, over channels.
template <int Mode, bool Last>
__device__ __forceinline__ Spot spot_of_place(const Planes& p, unsigned i) {
    const unsigned width = p.places[1], all = p.places[0] * width;
    unsigned channel, at;
    if (Last) {
        const unsigned channels = (Mode == WEIGHT ? p.n : p.k) / all;
        at = i / channels;
        channel = i - at * channels;
    } else {
        channel = i / all;
        at = i - channel * all;
    }
    const unsigned y = at / width;
    Spot spot;
    spot.y = static_cast<int>(y) * p.dilation[0];
    spot.x = static_cast<int>(at - y * width) * p.dilation[1];
    spot.offset = static_cast<int>(channel) * p.channel;
    if (Mode == INPUT) {
        spot.y = -spot.y;
        spot.x = -spot.x;
    } else {
        spot.offset += spot.y * p.row + spot.x * p.column;
    }
    return spot;
}
__device__ __forceinline__ Spot nowhere() {
    Spot spot;
    spot.offset = 0;
    spot.y = spot.x = NOWHERE;
    return spot;
}
// Where an element of the gathered array lies; negative for one that is 0.
template <int Mode>
__device__ __forceinline__ int address(const Planes& p, const Spot& a, const Spot& b) {
    int y = a.y + b.y, x = a.x + b.x, offset = a.offset + b.offset;
    if (Mode == INPUT) {
        if ((y | x) < 0) return -1;
        const int window_y = static_cast<int>(__umulhi(y, p.inverse[0])), window_x = static_cast<int>(__umulhi(x, p.inverse[1]));
        const int row = p.stride[0] == 1 ? y : window_y, column = p.stride[1] == 1 ? x : window_x;
        if (row * p.stride[0] != y || column * p.stride[1] != x || row >= p.size[0] || column >= p.size[1]) return -1;
        return offset + row * p.row + column * p.column;
    }
    return static_cast<unsigned>(y) < static_cast<unsigned>(p.size[0]) && static_cast<unsigned>(x) < static_cast<unsigned>(p.size[1]) ? offset : -1;
}

// Which places a tile's elements of the gathered array have: of the next numbers of the sum `spots`, in two buffers, and of the tile's columns
// (for dw its rows) in each thread its `own`, or where these are gathered one by one `columns`.
template <int Mode, int BN, int BK, int THREADS, int CHUNKS, int NC, bool Last>
struct Gathered {
    static constexpr bool Weight = Mode == WEIGHT, Turned = Weight != Last;  // whether the tile's rows are columns, which are gathered one by one
    static constexpr int ACROSS = (Turned ? BK : BN) / NC;  // pieces of 16 bytes in a row of the tile
    struct Shared {
        Spot spots[2][BK], columns[Weight && !Last ? BN : 1];
    };
    const Planes& p;
    Shared& shared;
    const int end, own_n, own_k;  // of the gathered elements: the column, for dw the row
    Spot own[CHUNKS];

    __device__ __forceinline__ Gathered(const Planes& p_, Shared& shared_, int column0, int end_)
        : p(p_), shared(shared_), end(end_), own_n(threadIdx.x % BN), own_k(threadIdx.x % BK) {
#pragma unroll
        for (int t = 0; t < CHUNKS; ++t) {
            if (Weight) {
                const int n = column0 + threadIdx.x % ACROSS * NC;
                own[t] = Last && n < p.n ? spot_of_place<Mode, true>(p, n) : nowhere();
            } else {
                const int n = column0 + (Last ? (threadIdx.x + t * THREADS) / ACROSS : own_n);
                own[t] = n < p.n ? spot_of_position<Mode>(p, n) : nowhere();
            }
        }
        if (Weight && !Last)
            for (int i = threadIdx.x; i < BN; i += THREADS)
                shared.columns[i] = column0 + i < p.n ? spot_of_place<Mode, false>(p, column0 + i) : nowhere();
    }
    // The numbers of the sum from k0 on, into a buffer.
    __device__ __forceinline__ void describe(int k0, int buffer) const {
        if (threadIdx.x >= BK) return;
        const int k = k0 + threadIdx.x;
        shared.spots[buffer][threadIdx.x] = k >= end ? nowhere() : Weight ? spot_of_position<Mode>(p, k) : spot_of_place<Mode, Last>(p, k);
    }
    // Where the thread's piece t, number `number` of the tile, lies, or -1.
    __device__ __forceinline__ int of_piece(int buffer, int number, int t) const {
        return address<Mode>(p, shared.spots[buffer][Weight ? number / ACROSS : number % ACROSS * NC], own[t]);
    }
    // The same of a single element, beside what the thread's have in common.
    __device__ __forceinline__ Spot common(int buffer) const { return Weight ? shared.spots[buffer][own_k] : own[0]; }
    __device__ __forceinline__ int of_element(int buffer, int number, const Spot& common) const {
        return address<Mode>(p, Weight ? shared.columns[number / BK] : shared.spots[buffer][number / BN], common);
    }
    // Its place in a tile whose rows are LB apart.
    template <int LB>
    __device__ __forceinline__ int cell(int number) const { return Weight ? number / BK * LB + own_k : number / BN * LB + own_n; }
};

}  // namespace gradlab
