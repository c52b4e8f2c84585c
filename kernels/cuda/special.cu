// Elementwise functions of bits, which no expression can say: an expression computes half types in float.
#include "common.cuh"

namespace gradlab {

template <class S>
struct Bits;
template <>
struct Bits<float> {
    typedef unsigned type;
    enum { INFINITE = 0x7f800000, NOT_A_NUMBER = 0x7fc00000 };
};
template <>
struct Bits<double> {
    typedef unsigned long long type;
    static constexpr type INFINITE = 0x7ff0000000000000ull, NOT_A_NUMBER = 0x7ff8000000000000ull;
};
template <>
struct Bits<__half> {
    typedef unsigned short type;
    enum { INFINITE = 0x7c00, NOT_A_NUMBER = 0x7e00 };
};
template <>
struct Bits<__nv_bfloat16> {
    typedef unsigned short type;
    enum { INFINITE = 0x7f80, NOT_A_NUMBER = 0x7fc0 };
};

// The number next to a on the way to b, both given by their bits: a where they are equal (then b's zero), NaN where one is NaN. By integers
// alone: the GPU's own comparisons would take float32 subnormals for zero.
template <class S>
__global__ void __launch_bounds__(256) nextafter(const typename Bits<S>::type* __restrict__ a, const typename Bits<S>::type* __restrict__ b,
                                                 typename Bits<S>::type* __restrict__ y, int64 count) {
    typedef typename Bits<S>::type Word;
    const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Word sign = static_cast<Word>(Word(1) << (8 * sizeof(Word) - 1)), from = a[i], to = b[i];
    const Word from_size = from & static_cast<Word>(~sign), to_size = to & static_cast<Word>(~sign);
    const Word infinite = static_cast<Word>(Bits<S>::INFINITE);
    Word next;
    if (from_size > infinite || to_size > infinite) next = static_cast<Word>(Bits<S>::NOT_A_NUMBER);
    else if (from == to || (from_size == 0 && to_size == 0)) next = to;
    else if (from_size == 0) next = static_cast<Word>((to & sign) | Word(1));
    else if ((from ^ to) & sign || to_size < from_size) next = static_cast<Word>(from - 1);
    else next = static_cast<Word>(from + 1);
    y[i] = next;
}

}  // namespace gradlab
