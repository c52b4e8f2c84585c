// The functions that elementwise expressions may use, for the GPU (NVRTC, nvcc) and for the CPU (C++17).
//
// A row says `Elementwise("x * sigmoid(x)")` once; the backends, the static graph and the emulated GPU compile that text with
// this header, so that one name means one thing on both devices, also for NaN, infinities, signed zeros and INT_MIN.
//
// Where expressions live. Compile them *inside* `namespace gradlab { ... }`; extern "C" entry points may live there too. A function
// outside that says `using namespace gradlab` does not compile: the global ::exp of NVRTC or of <math.h> is as good a match.
//
// Types. `T` is the compute type: float (also for float16 and bfloat16), double, bool or an integer type. Arguments of one call
// have one type, so literals are written T(0.5) and small-integer sums T(a + b); a forgotten T is a compile error, not a slow
// double. Functions of real analysis take float and double alone: the rows cast integers first.
//
// Accuracy. float on the CPU: branch-free polynomials that the compiler turns into vector loops, at most 2 ulp (exp, log) and
// 4 ulp (the others; erfc 6; docs/numerics.md), subnormal inputs and results included; tests/test_scalar_math.py holds them to it. double on the CPU: the
// C library. GPU: CUDA's own functions. CuPy compiles with -ftz=true, where float subnormals are zero.
//
// Compile for the CPU with -O3 -fwrapv -fno-math-errno -fno-trapping-math, never with -ffast-math: it would remove the NaN tests
// and the rounding tricks. -fwrapv gives `a + b` and `a * b` of integers the wrap-around that NumPy and PyTorch have.
#ifndef GRADLAB_SCALAR_MATH_H
#define GRADLAB_SCALAR_MATH_H

#if defined(__CUDACC__) && !defined(__CUDAEMU__)
#define GRADLAB_DEVICE 1
#define GRADLAB_FUNCTION __device__ __forceinline__
#define GRADLAB_LIBRARY
#else
#include <cmath>
#define GRADLAB_DEVICE 0
#define GRADLAB_FUNCTION inline __attribute__((always_inline))
#define GRADLAB_LIBRARY std
#endif

namespace gradlab {

// ---- types ---------------------------------------------------------------------------------------------------------------

template <typename T> inline constexpr bool is_floating = false;
template <> inline constexpr bool is_floating<float> = true;
template <> inline constexpr bool is_floating<double> = true;
template <typename T> inline constexpr bool is_bool = false;
template <> inline constexpr bool is_bool<bool> = true;
template <typename T> inline constexpr bool is_signed = T(-1) < T(0);

// Integer arithmetic that may wrap is done in this type and cut back: signed overflow is undefined in C++, this is not.
using Wide = unsigned long long;

template <typename T> GRADLAB_FUNCTION T infinity() {
#if GRADLAB_DEVICE
  return T(__int_as_float(0x7f800000));
#else
  return T(__builtin_inff());
#endif
}

// As NumPy and PyTorch on the CPU: to bool, anything but zero (so NaN too) is true; float to integer truncates; integers wrap.
// A float that is NaN or whose truncation does not fit the integer type gives no defined value, here as there.
template <typename To, typename From> GRADLAB_FUNCTION To cast(From x) { return static_cast<To>(x); }

// ---- float on the CPU: polynomials -----------------------------------------------------------------------------------------
// The coefficients are our own minimax fits (Lawson's reweighted least squares, rounded to float from the lowest power up). The
// range reductions are the classic ones of Cody and Waite, "Software Manual for the Elementary Functions" (1980).

#if !GRADLAB_DEVICE
namespace polynomial {

GRADLAB_FUNCTION unsigned bits_of(float x) { unsigned bits; __builtin_memcpy(&bits, &x, sizeof bits); return bits; }
GRADLAB_FUNCTION Wide bits_of(double x) { Wide bits; __builtin_memcpy(&bits, &x, sizeof bits); return bits; }
GRADLAB_FUNCTION float float_of(unsigned bits) { float x; __builtin_memcpy(&x, &bits, sizeof x); return x; }
GRADLAB_FUNCTION float power_of_two(int n) { return float_of(unsigned(n + 127) << 23); }

// a b + c, rounded once where the machine has an instruction for it.
GRADLAB_FUNCTION float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// x = n ln 2 + r with |r| <= ln(2)/2, and exp(r) - 1. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits, which
// costs one addition where a call of rint would not vectorise below SSE4.1. ln 2 is split so that n * 0.69314575 is exact.
struct Exponential { int n; float minus_one; };
GRADLAB_FUNCTION float minus_one_of(float r) {
  float p = 1.393998973e-03f; p = fused(p, r, 8.366576396e-03f); p = fused(p, r, 4.166641086e-02f);
  p = fused(p, r, 1.666654348e-01f); p = fused(p, r, 0.5f);
  return fused(p * r, r, r);
}
GRADLAB_FUNCTION Exponential exponential(float x) {
  const float shifted = fused(x, 1.442695041f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float r = fused(n, -1.428606820e-06f, fused(n, -6.931457520e-01f, x));
  return {int(bits_of(shifted) - 0x4b400000u), minus_one_of(r)};
}
// p 2^n in two steps, so that the result may be subnormal or infinite although 2^n is not a float.
GRADLAB_FUNCTION float scale(float p, int n) { return p * power_of_two(n >> 1) * power_of_two(n - (n >> 1)); }
// Comparisons are written so that NaN passes through.
GRADLAB_FUNCTION float between(float x, float low, float high) { x = x < low ? low : x; return x > high ? high : x; }

GRADLAB_FUNCTION float exp(float x) { const auto e = exponential(between(x, -104.0f, 89.0f)); return scale(1.0f + e.minus_one, e.n); }
GRADLAB_FUNCTION float exp2(float x) {
  x = between(x, -151.0f, 129.0f);
  const float shifted = x + 12582912.0f;
  const float r = (x - (shifted - 12582912.0f)) * 6.931471806e-01f;
  return scale(1.0f + minus_one_of(r), int(bits_of(shifted) - 0x4b400000u));
}
GRADLAB_FUNCTION float expm1(float x) {
  const Exponential e = exponential(between(x, -30.0f, 89.0f));
  const float half = power_of_two(e.n - 1);  // of 2^n, which is not a float for n = 128
  const float y = (half * e.minus_one + (half - 0.5f)) * 2.0f;
  return __builtin_fabsf(x) < 1e-9f ? x : y;
}
// An odd polynomial up to 5/8, so that differences from x keep their digits.
GRADLAB_FUNCTION float tanh(float x) {
  const float a = __builtin_fabsf(x), s = x * x;
  const float p = fused(fused(fused(fused(-5.70499105e-3f, s, 2.06390917e-2f), s, -5.37397154e-2f), s, 1.33314416e-1f), s, -3.33332807e-1f);
  const Exponential e = exponential(2.0f * between(a, 0.0f, 10.0f));
  const float power = power_of_two(e.n), t = fused(power, e.minus_one, power - 1.0f);  // exp(2|x|) - 1
  return __builtin_copysignf(a < 0.625f ? fused(a * s, p, a) : t / (t + 2.0f), x);
}

// x = m 2^e with sqrt(1/2) <= m < sqrt(2), and log(m). Subnormals are brought into range first.
struct Logarithm { float e, log_m; };
GRADLAB_FUNCTION Logarithm logarithm(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const unsigned shifted = bits_of(tiny ? x * 8388608.0f : x) - 0x3f3504f3u;
  const float e = float(int(shifted) >> 23) - (tiny ? 23.0f : 0.0f);
  const float f = float_of((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float p = -7.636399567e-02f; p = fused(p, f, 1.276219934e-01f); p = fused(p, f, -1.315961331e-01f);
  p = fused(p, f, 1.420158148e-01f); p = fused(p, f, -1.662340909e-01f); p = fused(p, f, 2.000124156e-01f);
  p = fused(p, f, -2.500081956e-01f); p = fused(p, f, 3.333333135e-01f);
  return {e, fused(fused(p, f, -0.5f), f * f, f)};
}
// What the reduction cannot see: 0, negative numbers, infinity and NaN.
GRADLAB_FUNCTION float at_edges_of_log(float x, float y) {
  y = x == 0.0f ? -__builtin_inff() : y;
  y = x < 0.0f ? __builtin_nanf("") : y;
  return x < __builtin_inff() ? y : x;
}
GRADLAB_FUNCTION float log(float x) {
  const Logarithm l = logarithm(x);
  return at_edges_of_log(x, fused(l.e, 6.931457520e-01f, fused(l.e, 1.428606820e-06f, l.log_m)));
}
GRADLAB_FUNCTION float log2(float x) {
  const Logarithm l = logarithm(x); return at_edges_of_log(x, fused(l.log_m, 1.442695022f, fused(l.log_m, 1.926e-08f, l.e)));
}
GRADLAB_FUNCTION float log10(float x) {
  const Logarithm l = logarithm(x); const float rest = fused(l.log_m, -1.0103e-08f, l.e * 4.605038981e-06f);
  return at_edges_of_log(x, fused(l.e, 3.010253906e-01f, fused(l.log_m, 4.342944920e-01f, rest)));
}
GRADLAB_FUNCTION float log1p(float x) {
  const float u = 1.0f + x;
  const float y = log(u);
  const float lost = (x - (u - 1.0f)) / u;  // to first order, what rounding 1 + x took from the logarithm
  return x == 0.0f ? x : (u > 0.0f && u < __builtin_inff() ? y + lost : y);
}

// Below 1 an odd polynomial; above, 1 - exp(-q(x)), where erf's last bits need few of the exponential's.
GRADLAB_FUNCTION float erf(float x) {
  const float a = __builtin_fabsf(x), t = a * a;
  float p = 7.920368080e-05f; p = fused(p, t, -8.030761383e-04f); p = fused(p, t, 5.190733820e-03f);
  p = fused(p, t, -2.685512602e-02f); p = fused(p, t, 1.128361821e-01f); p = fused(p, t, -3.761262894e-01f);
  p = fused(p, t, 1.283791661e-01f);
  const float b = between(a, 0.0f, 4.0f);  // erf(4) rounds to 1
  float q = -1.863801735e-04f; q = fused(q, b, 2.947674599e-03f); q = fused(q, b, -2.183814161e-02f);
  q = fused(q, b, 1.031069160e-01f); q = fused(q, b, 6.381446719e-01f); q = fused(q, b, 1.127089262e+00f);
  q = fused(q, b, 3.415129613e-04f);
  const Exponential e = exponential(-q); const float tail = (1.0f + e.minus_one) * power_of_two(e.n);
  return __builtin_copysignf(a < 1.0f ? fused(a, p, a) : 1.0f - tail, x);
}

// exp(-x^2) times our own minimax fit of erfcx from 0 to 10.1, where erfc rounds to 0. An FMA knows what rounding took from x^2.
GRADLAB_FUNCTION float erfc(float x) {
  const float a = between(__builtin_fabsf(x), 0.0f, 10.1f), s = a * a, lost = fused(a, a, -s);
  float p = fused(3.279826418e-02f, a, 2.292270958e-01f); p = fused(fused(fused(p, a, 7.316215038e-01f), a, 1.238427043e+00f), a, 1.0f);
  float q = fused(5.813271180e-02f, a, 4.063208401e-01f); q = fused(fused(q, a, 1.325401068e+00f), a, 2.402267694e+00f);
  const float tail = exp(-s) * (p / fused(fused(q, a, 2.366806746e+00f), a, 1.0f) * (1.0f - lost));
  return x < 0.0f ? 2.0f - tail : tail;
}

// Quarter turns in 2^e radians, modulo 4, for each e that a float of 24 bits can be a multiple of: 29 bits, whose product with 24
// bits is exact in double, and the next 53. Built from the bits of 2/pi (the idea of Payne and Hanek, 1983), so that the largest
// floats are reduced as exactly as the small ones, without a branch.
struct QuarterTurns { double high[105], low[105]; };
constexpr Wide bits_of_two_over_pi(int first, int count) {
  constexpr unsigned words[6] = {0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u};
  Wide value = 0;
  for (int i = first; i < first + count; ++i) value = value << 1 | (i < 0 ? 0u : words[i / 32] >> (31 - i % 32) & 1u);
  return value;
}
constexpr QuarterTurns quarter_turns_table() {
  QuarterTurns table{};
  for (int e = 0; e < 105; ++e) {
    table.high[e] = double(bits_of_two_over_pi(e - 2, 29)) / 0x1p27;
    table.low[e] = double(bits_of_two_over_pi(e + 27, 53)) / 0x1p80;
  }
  return table;
}
static constexpr QuarterTurns quarter_turns = quarter_turns_table();
struct WideAngle { double r; unsigned quadrant; }; struct Angle { float r; unsigned quadrant; };  // x = quadrant pi/2 + r, |r| <= pi/4
GRADLAB_FUNCTION WideAngle wide_angle(float x) {
  int e = int(bits_of(x) >> 23 & 255u) - 150;
  e = e < 0 ? 0 : (e > 104 ? 104 : e);
  const long long i = e;  // as wide as what it looks up: gcc 12 gathers in no other way
  const double m = double(x * power_of_two(-e)), high = m * quarter_turns.high[i], low = m * quarter_turns.low[i];
  const double shifted = (high + low) + 6755399441055744.0;  // 1.5 * 2^52
  const double fraction = (high - (shifted - 6755399441055744.0)) + low;
  return {fraction * 1.5707963267948966, unsigned(bits_of(shifted))};
}
GRADLAB_FUNCTION Angle angle(float x) { const WideAngle a = wide_angle(x); return {float(a.r), a.quadrant}; }
GRADLAB_FUNCTION float sine(Angle a) {
  const float t = a.r * a.r;
  const float s = fused(fused(fused(-1.951840823e-04f, t, 8.332190104e-03f), t, -1.666665524e-01f), t * a.r, a.r);
  const float c = fused(fused(fused(2.443066842e-05f, t, -1.388730132e-03f), t, 4.166664556e-02f), t * t, fused(-0.5f, t, 1.0f));
  const float y = a.quadrant & 1u ? c : __builtin_copysignf(s, a.r);  // the sign of a zero, too
  return float_of(bits_of(y) ^ (a.quadrant & 2u) << 30);
}
GRADLAB_FUNCTION float sin(float x) { return sine(angle(x)); }
GRADLAB_FUNCTION float cos(float x) { const Angle a = angle(x); return sine({a.r, a.quadrant + 1u}); }

// Squares of floats fit a double, so no scaling is needed.
GRADLAB_FUNCTION float hypot(float x, float y) {
  const float h = float(__builtin_sqrt(double(x) * double(x) + double(y) * double(y)));
  return __builtin_fabsf(x) == __builtin_inff() || __builtin_fabsf(y) == __builtin_inff() ? __builtin_inff() : h;
}

}  // namespace polynomial
#endif

// ---- functions of the platforms' libraries -----------------------------------------------------------------------------------

#define GRADLAB_UNARY(name)                                                    \
  GRADLAB_FUNCTION float name(float x) { return GRADLAB_LIBRARY::name(x); }    \
  GRADLAB_FUNCTION double name(double x) { return GRADLAB_LIBRARY::name(x); }
#define GRADLAB_BINARY(name)                                                             \
  GRADLAB_FUNCTION float name(float x, float y) { return GRADLAB_LIBRARY::name(x, y); }  \
  GRADLAB_FUNCTION double name(double x, double y) { return GRADLAB_LIBRARY::name(x, y); }
#if GRADLAB_DEVICE
#define GRADLAB_VECTORISED(name) GRADLAB_UNARY(name)
#else
#define GRADLAB_VECTORISED(name)                                               \
  GRADLAB_FUNCTION float name(float x) { return polynomial::name(x); }         \
  GRADLAB_FUNCTION double name(double x) { return std::name(x); }
#endif

GRADLAB_VECTORISED(exp) GRADLAB_VECTORISED(exp2) GRADLAB_VECTORISED(expm1) GRADLAB_VECTORISED(log) GRADLAB_VECTORISED(log2)
GRADLAB_VECTORISED(log10) GRADLAB_VECTORISED(log1p) GRADLAB_VECTORISED(tanh) GRADLAB_VECTORISED(erf) GRADLAB_VECTORISED(erfc)
GRADLAB_VECTORISED(sin) GRADLAB_VECTORISED(cos)
GRADLAB_UNARY(sqrt) GRADLAB_UNARY(sinh) GRADLAB_UNARY(cosh) GRADLAB_UNARY(tan) GRADLAB_UNARY(asin) GRADLAB_UNARY(acos) GRADLAB_UNARY(atan)
GRADLAB_UNARY(asinh) GRADLAB_UNARY(acosh) GRADLAB_UNARY(atanh) GRADLAB_UNARY(floor) GRADLAB_UNARY(ceil) GRADLAB_UNARY(trunc)
GRADLAB_BINARY(atan2) GRADLAB_BINARY(pow) GRADLAB_BINARY(fmod) GRADLAB_BINARY(copysign)

#if GRADLAB_DEVICE
GRADLAB_UNARY(rsqrt)
GRADLAB_BINARY(hypot)
#else
GRADLAB_FUNCTION float rsqrt(float x) { return 1.0f / std::sqrt(x); }
GRADLAB_FUNCTION double rsqrt(double x) { return 1.0 / std::sqrt(x); }
GRADLAB_FUNCTION float hypot(float x, float y) { return polynomial::hypot(x, y); }
GRADLAB_FUNCTION double hypot(double x, double y) { return std::hypot(x, y); }
#endif

// Half to even, as NumPy and PyTorch; C's own round goes away from zero.
GRADLAB_FUNCTION float round(float x) { return GRADLAB_LIBRARY::rint(x); }
GRADLAB_FUNCTION double round(double x) { return GRADLAB_LIBRARY::rint(x); }
template <typename T> GRADLAB_FUNCTION T floor(T x) { return x; }  // integers are whole already
template <typename T> GRADLAB_FUNCTION T ceil(T x) { return x; }
template <typename T> GRADLAB_FUNCTION T trunc(T x) { return x; }
template <typename T> GRADLAB_FUNCTION T round(T x) { return x; }

// ---- classification and selection ----------------------------------------------------------------------------------------

template <typename T> GRADLAB_FUNCTION T where(bool condition, T x, T y) { return condition ? x : y; }  // never mixes the two
template <typename T> GRADLAB_FUNCTION bool isnan(T x) { return x != x; }
// The smallest integer is its own absolute value, as in NumPy.
template <typename T> GRADLAB_FUNCTION T abs(T x) {
  if constexpr (is_floating<T>) return GRADLAB_LIBRARY::fabs(x);
  else if constexpr (is_signed<T>) return x < T(0) ? T(Wide(0) - Wide(x)) : x;
  else return x;
}
template <typename T> GRADLAB_FUNCTION bool isinf(T x) {
  if constexpr (is_floating<T>) return abs(x) == infinity<T>();
  else return false;
}
template <typename T> GRADLAB_FUNCTION bool isfinite(T x) {
  if constexpr (is_floating<T>) return abs(x) < infinity<T>();
  else return true;
}
template <typename T> GRADLAB_FUNCTION bool signbit(T x) {
  if constexpr (is_floating<T>) return copysign(T(1), x) < T(0);
  else return x < T(0);
}
// NaN gives NaN, as np.sign; torch.sign gives 0 there.
template <typename T> GRADLAB_FUNCTION T sign(T x) {
  if constexpr (is_signed<T>) return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
  else return T(x != T(0));
}
// A NaN on either side is the result, as in np.maximum; fmax and fmin prefer the number.
template <typename T> GRADLAB_FUNCTION T maximum(T x, T y) { return x > y || x != x ? x : y; }
template <typename T> GRADLAB_FUNCTION T minimum(T x, T y) { return x < y || x != x ? x : y; }
template <typename T> GRADLAB_FUNCTION T fmax(T x, T y) { return x >= y || y != y ? x : y; }
template <typename T> GRADLAB_FUNCTION T fmin(T x, T y) { return x <= y || y != y ? x : y; }
// `high` wins over a larger `low`, and NaN in any argument over both, as in np.clip and torch.clamp.
template <typename T> GRADLAB_FUNCTION T clamp(T x, T low, T high) { return minimum(maximum(x, low), high); }

// ---- division --------------------------------------------------------------------------------------------------------------
// Integers: x / 0 is 0, and the smallest integer divided by -1 wraps; the hardware would trap on the CPU and invent on the GPU.

// Quotient toward zero. The division is of a harmless pair where the true one has no answer.
template <typename T> GRADLAB_FUNCTION T whole_quotient(T x, T y) {
  if (is_signed<T> && y == T(-1)) return T(Wide(0) - Wide(x));
  return y == T(0) ? T(0) : T(x / y);
}
// The C sign: that of x.
template <typename T> GRADLAB_FUNCTION T fmod(T x, T y) {
  return y == T(0) ? T(0) : T(Wide(x) - Wide(whole_quotient(x, y)) * Wide(y));
}
// The sign of y, as Python's %; a zero too takes it, as in NumPy.
template <typename T> GRADLAB_FUNCTION T remainder(T x, T y) {
  const T r = fmod(x, y);
  if constexpr (is_floating<T>) return r == T(0) ? copysign(r, y) : ((r < T(0)) != (y < T(0)) ? r + y : r);
  else return r != T(0) && (r < T(0)) != (y < T(0)) ? T(r + y) : r;
}
// floor(x / y) of the exact quotient, which a rounded x / y can miss by one: take the remainder out first, as Python does.
template <typename T> GRADLAB_FUNCTION T floor_divide(T x, T y) {
  if constexpr (is_floating<T>) {
    const T r = fmod(x, y);
    const T below = r != T(0) && (r < T(0)) != (y < T(0)) ? T(1) : T(0);
    const T quotient = (x - r) / y - below;
    const T down = floor(quotient);
    const T nearest = quotient - down > T(0.5) ? down + T(1) : down;
    return y == T(0) ? x / y : (quotient == T(0) ? copysign(T(0), x / y) : nearest);
  } else {
    const T quotient = whole_quotient(x, y), r = fmod(x, y);
    return r != T(0) && (r < T(0)) != (y < T(0)) ? T(quotient - T(1)) : quotient;
  }
}
// Of integers: float, as in PyTorch.
GRADLAB_FUNCTION double true_divide(double x, double y) { return x / y; }
template <typename T> GRADLAB_FUNCTION float true_divide(T x, T y) { return float(x) / float(y); }

// ---- arithmetic ------------------------------------------------------------------------------------------------------------

template <typename T> GRADLAB_FUNCTION T square(T x) {
  if constexpr (is_floating<T>) return x * x;
  else return T(Wide(x) * Wide(x));
}
template <typename T> GRADLAB_FUNCTION T reciprocal(T x) { return whole_quotient(T(1), x); }
GRADLAB_FUNCTION float reciprocal(float x) { return 1.0f / x; } GRADLAB_FUNCTION double reciprocal(double x) { return 1.0 / x; }
// Integer powers wrap. Negative exponents give the whole part of the true value, and 0 for a zero base, as PyTorch on the CPU.
template <typename T> GRADLAB_FUNCTION T pow(T base, T exponent) {
  if constexpr (is_bool<T>) return base || !exponent;
  else {
    if (is_signed<T> && exponent < T(0)) return base == T(1) ? T(1) : (base != T(-1) ? T(0) : (exponent & 1 ? base : T(1)));
    Wide result = 1, factor = Wide(base);
    for (Wide left = Wide(exponent); left != 0; left >>= 1, factor *= factor) result *= left & 1 ? factor : 1;
    return T(result);
  }
}
// ±0.5 as a number of the program are roots, as in NumPy and PyTorch: also of -inf and -0, where C's pow has others.
template <typename T> GRADLAB_FUNCTION T pow_number(T x, T e) { return pow(x, e); }
GRADLAB_FUNCTION float pow_number(float x, float e) { return abs(e) != 0.5f ? pow(x, e) : e < 0.0f ? 1.0f / sqrt(x) : sqrt(x); }
GRADLAB_FUNCTION double pow_number(double x, double e) { return abs(e) != 0.5 ? pow(x, e) : e < 0.0 ? 1.0 / sqrt(x) : sqrt(x); }
// In exp's range for any x: the exponential is of a number below zero.
template <typename T> GRADLAB_FUNCTION T sigmoid(T x) {
  const T e = exp(-abs(x)); return (x < T(0) ? e : T(1)) / (T(1) + e);
}
// Equal infinities have no difference; they are their own sum.
template <typename T> GRADLAB_FUNCTION T logaddexp(T x, T y) {
  const T gap = x == y ? T(0) : abs(x - y); return maximum(x, y) + log1p(exp(-gap));
}
// Exact at both ends: from x for small weights, from y for large ones, as PyTorch.
template <typename T> GRADLAB_FUNCTION T lerp(T x, T y, T weight) {
  return abs(weight) < T(0.5) ? x + weight * (y - x) : y - (y - x) * (T(1) - weight);
}

// ---- bits ------------------------------------------------------------------------------------------------------------------

template <typename T> GRADLAB_FUNCTION T bitwise_and(T x, T y) { return T(x & y); }
template <typename T> GRADLAB_FUNCTION T bitwise_or(T x, T y) { return T(x | y); }
template <typename T> GRADLAB_FUNCTION T bitwise_xor(T x, T y) { return T(x ^ y); }
template <typename T> GRADLAB_FUNCTION T bitwise_not(T x) {
  if constexpr (is_bool<T>) return !x;
  else return T(~x);
}
// Shifting by a negative count, or by all bits and more, leaves 0, or the sign for a signed right shift; C leaves it undefined.
template <typename T> GRADLAB_FUNCTION T left_shift(T x, T count) {
  constexpr Wide bits = 8 * sizeof(T);
  return Wide(count) < bits ? T(Wide(x) << (Wide(count) & 63)) : T(0);
}
template <typename T> GRADLAB_FUNCTION T right_shift(T x, T count) {
  constexpr Wide bits = 8 * sizeof(T);
  if constexpr (is_signed<T>) return T(x >> (Wide(count) < bits ? count : T(bits - 1)));
  else return Wide(count) < bits ? T(x >> count) : T(0);
}

}  // namespace gradlab
#include "complex_math.h"
#include "special_math.h"
#endif
