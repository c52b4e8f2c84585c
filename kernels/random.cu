// Random numbers from Philox4x64-10 (Salmon et al., 2011), bit by bit those of the CPU: gradlab/ops/random.py says which word becomes which
// number. Every float is computed in double without contraction to fma, and rounded once.
#include "reduce.cuh"

namespace gradlab {

#if GRADLAB_DEVICE
__device__ __forceinline__ Wide high_half(Wide a, Wide b) { return __umul64hi(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
#else
inline Wide high_half(Wide a, Wide b) { return static_cast<Wide>(static_cast<unsigned __int128>(a) * b >> 64); }
inline double times(double a, double b) { return a * b; }
inline double plus(double a, double b) { return a + b; }
#endif

// Words of the stream of a state: int64[2], seed and words used so far. Keeps the last block of four.
struct Stream {
    Wide key, first, block, word[4];
    __device__ __forceinline__ Stream(const int64* state, int64 offset)
        : key(static_cast<Wide>(state[0])), first(static_cast<Wide>(state[1]) + static_cast<Wide>(offset)), block(~Wide(0)) {}
    __device__ __forceinline__ void compute(Wide number) {
        block = number;
        Wide c0 = number + 1, c1 = 0, c2 = 0, c3 = 0, k0 = key, k1 = 0;
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            const Wide m0 = 0xD2E7470EE14C6C93ull, m1 = 0xCA5A826395121157ull;
            const Wide h0 = high_half(m0, c0), l0 = m0 * c0, h1 = high_half(m1, c2), l1 = m1 * c2;
            c0 = h1 ^ c1 ^ k0;
            c1 = l1;
            c2 = h0 ^ c3 ^ k1;
            c3 = l0;
            k0 += 0x9E3779B97F4A7C15ull;
            k1 += 0xBB67AE8584CAA73Bull;
        }
        word[0] = c0;
        word[1] = c1;
        word[2] = c2;
        word[3] = c3;
    }
    __device__ __forceinline__ Wide at(int64 i) {
        const Wide n = first + static_cast<Wide>(i);
        if (n >> 2 != block) compute(n >> 2);
        const int k = static_cast<int>(n & 3);
        return k == 0 ? word[0] : k == 1 ? word[1] : k == 2 ? word[2] : word[3];
    }
    __device__ __forceinline__ unsigned half(int64 i) { return static_cast<unsigned>(i & 1 ? at(i >> 1) >> 32 : at(i >> 1)); }
    __device__ __forceinline__ double unit(int64 i) { return times(static_cast<double>(at(i) >> 11), 1.1102230246251565e-16); }
};

// Each thread makes eight neighbouring elements, so that it computes each block of words once.
constexpr int per_thread = 8;
#define GRADLAB_ELEMENTS                                                                                   \
    const int64 begin = (static_cast<int64>(blockIdx.x) * 256 + threadIdx.x) * per_thread;                 \
    const int64 end = begin + per_thread < count ? begin + per_thread : count;                             \
    if (begin >= count) return;

// bits: 53 takes whole words, 24, 11 and 8 half words.
template <class S>
__global__ void __launch_bounds__(256) uniform(const int64* __restrict__ state, S* __restrict__ y, int64 offset, int64 bits, double low,
                                               double range, double below, int64 unit, int64 count) {
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    const double step = bits == 24 ? 5.9604644775390625e-08 : bits == 11 ? 0.00048828125 : 0.00390625;
    for (int64 i = begin; i < end; ++i) {
        double u = bits == 53 ? stream.unit(i) : times(static_cast<double>(stream.half(i) >> (32 - bits)), step);
        if (unit) {
            y[i] = store<S>(u);
        } else {
            const S rounded = store<S>(plus(times(u, range), low));
            const S limit = store<S>(below);
            y[i] = load(rounded) < load(limit) ? rounded : limit;
        }
    }
}

__device__ __forceinline__ double normal_at(Stream& stream, int64 i) {
    const int64 pair = i >> 1;
    const double u = stream.unit(2 * pair), v = stream.unit(2 * pair + 1);
    const double radius = sqrt(times(log(plus(1.0, -u)), -2.0)), angle = times(v, 6.283185307179586);
    return times(i & 1 ? sin(angle) : cos(angle), radius);
}

template <class S>
__global__ void __launch_bounds__(256) normal(const int64* __restrict__ state, S* __restrict__ y, int64 offset, double mean, double std, int64 count) {
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    for (int64 i = begin; i < end; ++i) {
        double z = normal_at(stream, i);
        if (std != 1.0) z = times(z, std);
        if (mean != 0.0) z = plus(z, mean);
        y[i] = store<S>(z);
    }
}

// mean and std are arrays of y's number of elements.
template <class S, class M>
__global__ void __launch_bounds__(256) normal_of(const M* __restrict__ mean, const M* __restrict__ std, const int64* __restrict__ state,
                                                 S* __restrict__ y, int64 offset, int64 count) {
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    for (int64 i = begin; i < end; ++i)
        y[i] = store<S>(plus(times(normal_at(stream, i), static_cast<double>(load(std[i]))), static_cast<double>(load(mean[i]))));
}

// size 0 stands for 2^64.
template <class S>
__global__ void __launch_bounds__(256) integers(const int64* __restrict__ state, S* __restrict__ y, int64 offset, int64 low, Wide size, int64 count) {
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    for (int64 i = begin; i < end; ++i) {
        const Wide word = stream.at(i);
        y[i] = store<S>(static_cast<int64>((size ? high_half(word, size) : word) + static_cast<Wide>(low)));
    }
}

template <class S>
__global__ void __launch_bounds__(256) exponential(const int64* __restrict__ state, S* __restrict__ y, int64 offset, double rate, int64 count) {
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    for (int64 i = begin; i < end; ++i) y[i] = store<S>(log1p(-stream.unit(i)) / -rate);
}

// Half words below the limit are dropped. scale is 1 / (1 - p) in the compute type.
template <class S>
__global__ void __launch_bounds__(256) dropout(const S* __restrict__ x, const int64* __restrict__ state, S* __restrict__ y, int64 offset, int64 limit,
                                               double scale, int64 count) {
    typedef typename Compute<S>::type T;
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    for (int64 i = begin; i < end; ++i)
        y[i] = store<S>(static_cast<int64>(stream.half(i)) < limit ? T(0) : static_cast<T>(load(x[i]) * static_cast<T>(scale)));
}

template <class S, class P>
__global__ void __launch_bounds__(256) bernoulli(const P* __restrict__ p, const int64* __restrict__ state, S* __restrict__ y, int64 offset,
                                                 int64 count) {
    GRADLAB_ELEMENTS
    Stream stream(state, offset);
    for (int64 i = begin; i < end; ++i)
        y[i] = store<S>(static_cast<int>(static_cast<double>(stream.half(i)) < times(static_cast<double>(load(p[i])), 4294967296.0)));
}

}  // namespace gradlab
