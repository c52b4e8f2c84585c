// Functions that CUDA has beside the C library's: fast and rounded arithmetic, conversions, bits, min and max.
//
// Intrinsics of low accuracy (__expf and so on) are as accurate here as their plain twins.
#ifndef GRADLAB_EMULATOR_DEVICE_MATH_H
#define GRADLAB_EMULATOR_DEVICE_MATH_H

#if !defined(__GLIBC__)
#define GRADLAB_GLIBC(major, minor) 0
#else
#define GRADLAB_GLIBC(major, minor) __GLIBC_PREREQ(major, minor)
#endif

// ---- real functions ----------------------------------------------------------------------------------------------------

#if !GRADLAB_GLIBC(2, 42)  // which has them
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#endif
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float normcdff(float x) { return 0.5f * erfcf(-0.70710678f * x); }
inline double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752 * x); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return float(pow(10.0, double(x))); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }  // NaN to 0

// ---- arithmetic rounded to nearest, which the compiler may not fuse -------------------------------------------------------

inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return float(1.0 / sqrt(double(x))); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }

// ---- conversions -----------------------------------------------------------------------------------------------------------

namespace gradlab_emulator {
// As the hardware: NaN gives 0, what does not fit the nearest value that does.
template <class To>
inline To saturated(double x) {
    const double low = -ldexp(To(-1) < To(0) ? 1.0 : 0.0, int(8 * sizeof(To)) - 1), high = ldexp(1.0, int(8 * sizeof(To)) - (To(-1) < To(0)));
    const To greatest = To(-1) < To(0) ? To(~(uint64_t(1) << (8 * sizeof(To) - 1))) : To(-1);
    return x != x ? To(0) : x < low ? To(low) : x >= high ? greatest : To(x);
}
}  // namespace gradlab_emulator

#define GRADLAB_ROUNDINGS(from, From, to, To)                                                                     \
    inline To __##from##2##to##_rn(From x) { return ::gradlab_emulator::saturated<To>(rint(double(x))); }         \
    inline To __##from##2##to##_rz(From x) { return ::gradlab_emulator::saturated<To>(trunc(double(x))); }        \
    inline To __##from##2##to##_rd(From x) { return ::gradlab_emulator::saturated<To>(floor(double(x))); }        \
    inline To __##from##2##to##_ru(From x) { return ::gradlab_emulator::saturated<To>(ceil(double(x))); }
GRADLAB_ROUNDINGS(float, float, int, int)
GRADLAB_ROUNDINGS(float, float, uint, unsigned)
GRADLAB_ROUNDINGS(float, float, ll, long long)
GRADLAB_ROUNDINGS(float, float, ull, unsigned long long)
GRADLAB_ROUNDINGS(double, double, int, int)
GRADLAB_ROUNDINGS(double, double, uint, unsigned)
GRADLAB_ROUNDINGS(double, double, ll, long long)
GRADLAB_ROUNDINGS(double, double, ull, unsigned long long)
#undef GRADLAB_ROUNDINGS

inline float __double2float_rn(double x) { return float(x); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return double(x); }
inline double __uint2double_rn(unsigned x) { return double(x); }
inline double __ll2double_rn(long long x) { return double(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }

inline int __float_as_int(float x) { return ::gradlab_emulator::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return ::gradlab_emulator::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return ::gradlab_emulator::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return ::gradlab_emulator::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return ::gradlab_emulator::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return ::gradlab_emulator::bits_as<double>(x); }
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) { return __longlong_as_double((long long)(uint64_t(unsigned(high)) << 32 | unsigned(low))); }

// ---- bits and integers -----------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed = reversed << 1 | (x >> i & 1);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> 4 * i & 15, byte = unsigned(bytes >> 8 * (pick & 7)) & 255;
        result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline int __mulhi(int x, int y) { return int(int64_t(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned(uint64_t(x) * y >> 32); }
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline int __mul24(int x, int y) { return int(unsigned(x << 8 >> 8) * unsigned(y << 8 >> 8)); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
inline unsigned __sad(int x, int y, unsigned z) { return (x < y ? unsigned(y) - unsigned(x) : unsigned(x) - unsigned(y)) + z; }
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline int __dp4a(int x, int y, int z) {
    unsigned total = unsigned(z);
    for (int i = 0; i < 4; ++i) total += unsigned(int8_t(x >> 8 * i) * int8_t(y >> 8 * i));
    return int(total);
}

// Of floats: the number where one side is NaN, as fminf and fmaxf.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value>>
inline std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value) return std::fmin(T(a), T(b));
    else return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value>>
inline std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<T>::value) return std::fmax(T(a), T(b));
    else return T(a) < T(b) ? T(b) : T(a);
}
template <class A, class B> inline auto umin(A a, B b) { return min(unsigned(a), unsigned(b)); }
template <class A, class B> inline auto umax(A a, B b) { return max(unsigned(a), unsigned(b)); }

#endif
