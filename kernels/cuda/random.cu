// Random numbers from Philox4x64-10, bit by bit those of the CPU: gradlab/ops/random.py says which word becomes which number. Every float is computed
// in double without contraction to fma, and rounded once. A thread makes the elements of four words and writes them 16 bytes at a time.
#include "fault.cuh"
#include "philox.cuh"

namespace gradlab {

__device__ __forceinline__ int64 thread_number() { return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Random bits of a uniform number: what the type's significand holds. Float64 takes whole words, the others half words.
template <class S>
inline constexpr int uniform_bits = 24;
template <>
inline constexpr int uniform_bits<double> = 53;
template <>
inline constexpr int uniform_bits<__half> = 11;
template <>
inline constexpr int uniform_bits<__nv_bfloat16> = 8;

// low + range u, at most `below`. Unit: low is 0 and range 1; then float32 arithmetic is exact for all types but float64.
template <class S, bool Unit>
__global__ void __launch_bounds__(256) uniform(const int64* __restrict__ state, S* __restrict__ y, int64 offset, double low, double range,
                                               double below, int64 count) {
    constexpr int bits = uniform_bits<S>, each = bits == 53 ? 4 : 8;
    const int64 group = thread_number(), first = group * each;
    if (first >= count) return;
    const Words words = Stream(state, offset).quad(group);
    S value[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
        if constexpr (bits == 53) {
            value[i] = Unit ? words.unit(i) : __dadd_rn(__dmul_rn(words.unit(i), range), low);
        } else {
            const unsigned found = words.half(i) >> (32 - bits);
            constexpr float step = 1.0f / static_cast<float>(1 << bits);
            if (Unit) value[i] = store<S>(static_cast<float>(found) * step);
            else value[i] = store<S>(__dadd_rn(__dmul_rn(static_cast<double>(found) * step, range), low));
        }
        if (!Unit && !(static_cast<double>(load(value[i])) < below)) value[i] = store<S>(below);
    }
    write(y, first, count, value);
}

// Box and Muller: four numbers of four words.
__device__ __forceinline__ void normal_four(const Words& words, double (&z)[4]) {
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
        const double radius = sqrt(__dmul_rn(log(__dadd_rn(1.0, -words.unit(pair))), -2.0));
        const double angle = __dmul_rn(words.unit(pair + 1), 6.283185307179586);
        z[pair] = __dmul_rn(cos(angle), radius);
        z[pair + 1] = __dmul_rn(sin(angle), radius);
    }
}

template <class S>
__global__ void __launch_bounds__(256) normal(const int64* __restrict__ state, S* __restrict__ y, int64 offset, double mean, double std, int64 count) {
    const int64 group = thread_number(), first = group * 4;
    if (first >= count) return;
    double z[4];
    normal_four(Stream(state, offset).quad(group), z);
    S value[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (std != 1.0) z[i] = __dmul_rn(z[i], std);
        if (mean != 0.0) z[i] = __dadd_rn(z[i], mean);
        value[i] = store<S>(z[i]);
    }
    write(y, first, count, value);
}

// mean and std are arrays of y's number of elements.
template <class S, class M>
__global__ void __launch_bounds__(256) normal_of(const M* __restrict__ mean, const M* __restrict__ std, const int64* __restrict__ state,
                                                 S* __restrict__ y, int64 offset, FaultWord* fault, int64 site, int64 count) {
    const int64 group = thread_number(), first = group * 4;
    if (first >= count) return;
    double z[4];
    normal_four(Stream(state, offset).quad(group), z);
    bool wrong = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i >= count) break;
        const double width = static_cast<double>(load(std[first + i]));
        wrong |= !(width >= 0.0);
        y[first + i] = store<S>(__dadd_rn(__dmul_rn(z[i], width), static_cast<double>(load(mean[first + i]))));
    }
    if (wrong) report(fault, site, 0);
}

// size 0 stands for 2^64.
template <class S>
__global__ void __launch_bounds__(256) integers(const int64* __restrict__ state, S* __restrict__ y, int64 offset, int64 low, Word64 size,
                                                int64 count) {
    const int64 group = thread_number(), first = group * 4;
    if (first >= count) return;
    const Words words = Stream(state, offset).quad(group);
    S value[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Word64 word = size ? __umul64hi(words.word[i], size) : words.word[i];
        value[i] = store<S>(static_cast<int64>(word + static_cast<Word64>(low)));
    }
    write(y, first, count, value);
}

template <class S>
__global__ void __launch_bounds__(256) exponential(const int64* __restrict__ state, S* __restrict__ y, int64 offset, double rate, int64 count) {
    const int64 group = thread_number(), first = group * 4;
    if (first >= count) return;
    const Words words = Stream(state, offset).quad(group);
    S value[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) value[i] = store<S>(__ddiv_rn(log1p(-words.unit(i)), -rate));
    write(y, first, count, value);
}

// Half words below the limit are dropped. scale is 1 / (1 - p), rounded to the type of x. Packed: x is aligned to 16 bytes.
template <class S, bool Packed>
__global__ void __launch_bounds__(256) dropout(const S* __restrict__ x, const int64* __restrict__ state, S* __restrict__ y, int64 offset,
                                               Word64 limit, double scale, int64 count) {
    typedef typename Compute<S>::type T;
    constexpr int width = 16 / static_cast<int>(sizeof(S));
    const int64 group = thread_number(), first = group * 8;
    if (first >= count) return;
    S in[8], out[8];
    if (Packed && first + 8 <= count) {
#pragma unroll
        for (int i = 0; i < 8; i += width) {
            const Pack<S, width> pack = *reinterpret_cast<const Pack<S, width>*>(x + first + i);
#pragma unroll
            for (int k = 0; k < width; ++k) in[i + k] = pack.item[k];
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) in[i] = x[first + i < count ? first + i : count - 1];
    }
    const Words words = Stream(state, offset).quad(group);
    const T factor = load(store<S>(scale));
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = store<S>(words.half(i) < limit ? T(0) : static_cast<T>(load(in[i]) * factor));
    write(y, first, count, out);
}

template <class S, class P>
__global__ void __launch_bounds__(256) bernoulli(const P* __restrict__ p, const int64* __restrict__ state, S* __restrict__ y, int64 offset,
                                                 FaultWord* fault, int64 site, int64 count) {
    const int64 group = thread_number(), first = group * 8;
    if (first >= count) return;
    const Words words = Stream(state, offset).quad(group);
    S value[8];
    bool wrong = false;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const double chance = static_cast<double>(load(p[first + i < count ? first + i : count - 1]));
        wrong |= !(chance >= 0.0 && chance <= 1.0);
        value[i] = store<S>(static_cast<int>(static_cast<double>(words.half(i)) < __dmul_rn(chance, 4294967296.0)));
    }
    if (wrong) report(fault, site, 0);
    write(y, first, count, value);
}

}  // namespace gradlab
