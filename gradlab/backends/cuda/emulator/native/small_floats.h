// float16 and bfloat16 for machines without CUDA's headers: the types and functions of cuda_fp16.h and cuda_bf16.h that kernels
// commonly use, rounded to nearest even in integer arithmetic, so that the processor's handling of subnormals plays no part.
// Arithmetic is done in float and rounded once, which is exact for + - * / and sqrt; fma goes through double.
#ifndef GRADLAB_EMULATOR_SMALL_FLOATS_H
#define GRADLAB_EMULATOR_SMALL_FLOATS_H

namespace gradlab_emulator {

// A binary format of 16 bits: `fraction` bits of fraction, the exponent of the smallest normal number, infinity's bits.
struct Half { static constexpr int fraction = 10, least = -14; static constexpr uint16_t infinity = 0x7c00, nan = 0x7fff; };
struct Brain { static constexpr int fraction = 7, least = -126; static constexpr uint16_t infinity = 0x7f80, nan = 0x7fff; };

// Bits of significand * 2^unit, rounded to nearest, ties to even.
template <class Format>
inline uint16_t rounded(uint64_t significand, int unit) {
    if (significand == 0) return 0;
    const int smallest = Format::least - Format::fraction;  // exponent of the last place of subnormals
    const int width = 64 - __builtin_clzll(significand);
    int target = unit + width - (Format::fraction + 1);
    if (target < smallest) target = smallest;
    if (target - smallest > 300) return Format::infinity;
    const int drop = target - unit;
    uint64_t kept = 0;
    if (drop <= 0) kept = significand << -drop;
    else if (drop < 64) {
        const uint64_t rest = significand & ((uint64_t(1) << drop) - 1), middle = uint64_t(1) << (drop - 1);
        kept = significand >> drop;
        kept += rest > middle || (rest == middle && (kept & 1));
    }
    // The leading bit of `kept` counts as one step of the exponent: 1 for normal numbers, 0 for subnormals.
    const uint64_t bits = (uint64_t(target - smallest) << Format::fraction) + kept;
    return bits < Format::infinity ? uint16_t(bits) : Format::infinity;
}
template <class Format>
inline uint16_t encoded(float x) {
    const uint32_t bits = bits_as<uint32_t>(x), fraction = bits & 0x7fffff;
    const int exponent = int(bits >> 23 & 255);
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    if (exponent == 255) return fraction ? Format::nan : uint16_t(sign | Format::infinity);
    return uint16_t(sign | rounded<Format>(exponent ? fraction | 0x800000 : fraction, (exponent ? exponent : 1) - 150));
}
template <class Format>
inline uint16_t encoded(double x) {
    const uint64_t bits = bits_as<uint64_t>(x), fraction = bits & ((uint64_t(1) << 52) - 1);
    const int exponent = int(bits >> 52 & 2047);
    const uint16_t sign = uint16_t(bits >> 48 & 0x8000);
    if (exponent == 2047) return fraction ? Format::nan : uint16_t(sign | Format::infinity);
    return uint16_t(sign | rounded<Format>(exponent ? fraction | uint64_t(1) << 52 : fraction, (exponent ? exponent : 1) - 1075));
}
template <class Format>
inline float decoded(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (Format::fraction == 7) return bits_as<float>(sign | rest << 16);
    if (rest >= Format::infinity) return bits_as<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return bits_as<float>(sign | ((rest << 13) + (112u << 23)));
    return bits_as<float>(sign | bits_as<uint32_t>(float(rest) * 5.9604644775390625e-8f));  // subnormal: a multiple of 2^-24
}

template <class Format>
struct SmallFloat {
    uint16_t bits;
    SmallFloat() = default;
    SmallFloat(float x) : bits(encoded<Format>(x)) {}
    SmallFloat(double x) : bits(encoded<Format>(x)) {}
    template <class T, class = std::enable_if_t<std::is_integral<T>::value>>
    SmallFloat(T x) : bits(encoded<Format>(double(x))) {}
    operator float() const { return decoded<Format>(bits); }
    static SmallFloat of_bits(uint16_t bits) { SmallFloat x; x.bits = bits; return x; }
    SmallFloat operator-() const { return of_bits(uint16_t(bits ^ 0x8000)); }
    SmallFloat& operator+=(SmallFloat x) { return *this = float(*this) + float(x); }
    SmallFloat& operator-=(SmallFloat x) { return *this = float(*this) - float(x); }
    SmallFloat& operator*=(SmallFloat x) { return *this = float(*this) * float(x); }
    SmallFloat& operator/=(SmallFloat x) { return *this = float(*this) / float(x); }
    friend SmallFloat operator+(SmallFloat x, SmallFloat y) { return float(x) + float(y); }
    friend SmallFloat operator-(SmallFloat x, SmallFloat y) { return float(x) - float(y); }
    friend SmallFloat operator*(SmallFloat x, SmallFloat y) { return float(x) * float(y); }
    friend SmallFloat operator/(SmallFloat x, SmallFloat y) { return float(x) / float(y); }
    friend bool operator==(SmallFloat x, SmallFloat y) { return float(x) == float(y); }
    friend bool operator!=(SmallFloat x, SmallFloat y) { return float(x) != float(y); }
    friend bool operator<(SmallFloat x, SmallFloat y) { return float(x) < float(y); }
    friend bool operator>(SmallFloat x, SmallFloat y) { return float(x) > float(y); }
    friend bool operator<=(SmallFloat x, SmallFloat y) { return float(x) <= float(y); }
    friend bool operator>=(SmallFloat x, SmallFloat y) { return float(x) >= float(y); }
};
template <class Format>
struct alignas(4) SmallFloat2 {
    SmallFloat<Format> x, y;
    friend SmallFloat2 operator+(SmallFloat2 a, SmallFloat2 b) { return {a.x + b.x, a.y + b.y}; }
    friend SmallFloat2 operator-(SmallFloat2 a, SmallFloat2 b) { return {a.x - b.x, a.y - b.y}; }
    friend SmallFloat2 operator*(SmallFloat2 a, SmallFloat2 b) { return {a.x * b.x, a.y * b.y}; }
    friend SmallFloat2 operator/(SmallFloat2 a, SmallFloat2 b) { return {a.x / b.x, a.y / b.y}; }
};

template <class F> using S = SmallFloat<F>;
template <class F> using S2 = SmallFloat2<F>;

}  // namespace gradlab_emulator

// ---- functions whose names both headers share ------------------------------------------------------------------------------

#define GRADLAB_SMALL template <class F> inline
GRADLAB_SMALL gradlab_emulator::S<F> __hadd(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x + y; }
GRADLAB_SMALL gradlab_emulator::S<F> __hsub(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x - y; }
GRADLAB_SMALL gradlab_emulator::S<F> __hmul(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x * y; }
GRADLAB_SMALL gradlab_emulator::S<F> __hdiv(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x / y; }
GRADLAB_SMALL gradlab_emulator::S<F> __hneg(gradlab_emulator::S<F> x) { return -x; }
GRADLAB_SMALL gradlab_emulator::S<F> __habs(gradlab_emulator::S<F> x) { return gradlab_emulator::S<F>::of_bits(x.bits & 0x7fff); }
GRADLAB_SMALL gradlab_emulator::S<F> __hfma(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y, gradlab_emulator::S<F> z) {
    return gradlab_emulator::S<F>(double(float(x)) * double(float(y)) + double(float(z)));
}
GRADLAB_SMALL gradlab_emulator::S<F> __hmax(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return std::fmax(float(x), float(y)); }
GRADLAB_SMALL gradlab_emulator::S<F> __hmin(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return std::fmin(float(x), float(y)); }
GRADLAB_SMALL bool __heq(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x == y; }
GRADLAB_SMALL bool __hlt(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x < y; }
GRADLAB_SMALL bool __hle(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x <= y; }
GRADLAB_SMALL bool __hgt(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x > y; }
GRADLAB_SMALL bool __hge(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x >= y; }
// Ordered, as in CUDA: false where a side is NaN.
GRADLAB_SMALL bool __hne(gradlab_emulator::S<F> x, gradlab_emulator::S<F> y) { return x < y || x > y; }
GRADLAB_SMALL bool __hisnan(gradlab_emulator::S<F> x) { return (x.bits & 0x7fff) > F::infinity; }
GRADLAB_SMALL int __hisinf(gradlab_emulator::S<F> x) { return (x.bits & 0x7fff) == F::infinity ? (x.bits & 0x8000 ? -1 : 1) : 0; }
GRADLAB_SMALL gradlab_emulator::S<F> hexp(gradlab_emulator::S<F> x) { return expf(float(x)); }
GRADLAB_SMALL gradlab_emulator::S<F> hlog(gradlab_emulator::S<F> x) { return logf(float(x)); }
GRADLAB_SMALL gradlab_emulator::S<F> hsqrt(gradlab_emulator::S<F> x) { return sqrtf(float(x)); }
GRADLAB_SMALL gradlab_emulator::S<F> hrsqrt(gradlab_emulator::S<F> x) { return rsqrtf(float(x)); }
GRADLAB_SMALL gradlab_emulator::S<F> hrcp(gradlab_emulator::S<F> x) { return 1.0f / float(x); }
GRADLAB_SMALL gradlab_emulator::S2<F> __hadd2(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y) { return x + y; }
GRADLAB_SMALL gradlab_emulator::S2<F> __hsub2(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y) { return x - y; }
GRADLAB_SMALL gradlab_emulator::S2<F> __hmul2(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y) { return x * y; }
GRADLAB_SMALL gradlab_emulator::S2<F> __h2div(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y) { return x / y; }
GRADLAB_SMALL gradlab_emulator::S2<F> __hneg2(gradlab_emulator::S2<F> x) { return {-x.x, -x.y}; }
GRADLAB_SMALL gradlab_emulator::S2<F> __hfma2(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y, gradlab_emulator::S2<F> z) {
    return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)};
}
GRADLAB_SMALL gradlab_emulator::S2<F> __hmax2(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y) { return {__hmax(x.x, y.x), __hmax(x.y, y.y)}; }
GRADLAB_SMALL gradlab_emulator::S2<F> __hmin2(gradlab_emulator::S2<F> x, gradlab_emulator::S2<F> y) { return {__hmin(x.x, y.x), __hmin(x.y, y.y)}; }
#undef GRADLAB_SMALL

#endif
