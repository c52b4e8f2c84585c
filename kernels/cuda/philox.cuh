// Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), NumPy's bits: see gradlab/ops/random.py.
#pragma once
#include "common.cuh"

namespace gradlab {

typedef unsigned long long Word64;

struct Words {
    Word64 word[4];
    // Half words: of each word the low, then the high 32 bits. For constant i.
    __device__ __forceinline__ unsigned half(int i) const { return static_cast<unsigned>(word[i >> 1] >> (i & 1 ? 32 : 0)); }
    // 53 bits, in [0, 1).
    __device__ __forceinline__ double unit(int i) const { return static_cast<double>(word[i] >> 11) * 1.1102230246251565e-16; }
};

// Unroll: how many rounds are written out one after another.
template <int Unroll = 10>
__device__ __forceinline__ Words philox(Word64 counter, Word64 seed) {
    Word64 c0 = counter, c1 = 0, c2 = 0, c3 = 0, k0 = seed, k1 = 0;
#pragma unroll Unroll
    for (int round = 0; round < 10; ++round) {
        const Word64 m0 = 0xD2E7470EE14C6C93ull, m1 = 0xCA5A826395121157ull;
        const Word64 high0 = __umul64hi(m0, c0), low0 = m0 * c0, high1 = __umul64hi(m1, c2), low1 = m1 * c2;
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B97F4A7C15ull;
        k1 += 0xBB67AE8584CAA73Bull;
    }
    return {{c0, c1, c2, c3}};
}

// The words of one draw.
struct Stream {
    Word64 seed, position;
    __device__ __forceinline__ Stream(const int64* state, int64 offset)
        : seed(static_cast<Word64>(state[0])), position(static_cast<Word64>(state[1]) + static_cast<Word64>(offset)) {}

    // Words 4 group to 4 group + 3. Draws start at multiples of four words, so one call of the cipher is the rule, two the exception.
    __device__ __forceinline__ Words quad(Word64 group) const {
        const Word64 counter = (position >> 2) + group + 1;
        const int shift = static_cast<int>(position & 3);
        Words found = philox<>(counter, seed);
        if (shift) {
            const Words next = philox<1>(counter + 1, seed);
            Word64 all[8];
#pragma unroll
            for (int i = 0; i < 4; ++i) all[i] = found.word[i], all[i + 4] = next.word[i];
            if (shift & 1) {
#pragma unroll
                for (int i = 0; i < 7; ++i) all[i] = all[i + 1];
            }
            if (shift & 2) {
#pragma unroll
                for (int i = 0; i < 6; ++i) all[i] = all[i + 2];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) found.word[i] = all[i];
        }
        return found;
    }

    // Word i alone, in [0, 1).
    __device__ __forceinline__ double unit(Word64 i) const {
        const Word64 at = position + i;
        const Words found = philox<>((at >> 2) + 1, seed);
        const int place = static_cast<int>(at & 3);
        const Word64 word = place & 2 ? (place & 1 ? found.word[3] : found.word[2]) : (place & 1 ? found.word[1] : found.word[0]);
        return static_cast<double>(word >> 11) * 1.1102230246251565e-16;
    }
};

// Write N neighbouring values of a thread in the widest accesses; one by one at the end of the array, and where it does not begin at a multiple of them.
template <class S, int N>
__device__ __forceinline__ void write(S* __restrict__ y, int64 first, int64 count, const S (&value)[N]) {
    constexpr int width = N * sizeof(S) < 16 ? N : 16 / static_cast<int>(sizeof(S));
    if (first + N <= count && reinterpret_cast<Word64>(y) % sizeof(Pack<S, width>) == 0) {
#pragma unroll
        for (int i = 0; i < N; i += width) {
            Pack<S, width> pack;
#pragma unroll
            for (int k = 0; k < width; ++k) pack.item[k] = value[i + k];
            *reinterpret_cast<Pack<S, width>*>(y + first + i) = pack;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (first + i < count) y[first + i] = value[i];
    }
}

}  // namespace gradlab
