// Scalar functions in forms that only the CPU has, beside those of scalar_math.h: what several of them have in common is computed once.
#ifndef GRADLAB_SCALAR_FORMS_H
#define GRADLAB_SCALAR_FORMS_H

#include "scalar_math.h"

namespace gradlab {

namespace polynomial {

// Of the normal distribution from x on: exp(-x^2 / 2) times 2^64, since it may be less than a float, and the fraction, times 2^-64, of which
// it is so many parts. a: |x|, or where both have come to 0. The fraction is that of `erfc`, with sqrt(1/2) in its coefficients. An FMA knows
// what rounding took from x^2.
struct NormalTail { float a, density, fraction; };
GRADLAB_FUNCTION NormalTail normal_tail(float x) {
  float a = __builtin_fabsf(x); a = a > 14.4f ? 14.4f : a;
  const float s = a * a, half = s * -0.5f, lost = fused(a, a, -s);
  constexpr float small = 0x1p-64f;
  float p = fused(4.099783023e-03f * small, a, 4.052200847e-02f * small); p = fused(p, a, 1.829053760e-01f * small);
  p = fused(fused(p, a, 4.378500801e-01f * small), a, 0.5f * small);
  float q = fused(1.027650868e-02f, a, 1.015802100e-01f); q = fused(fused(q, a, 4.686000415e-01f), a, 1.201133847f);
  q = fused(fused(q, a, 1.673585100f), a, 1.0f);
  const float shifted = fused(half, 1.442695041f, 12582912.0f), n = shifted - 12582912.0f;
  const float r = fused(lost, -0.5f, fused(n, -1.428606820e-06f, fused(n, -6.931457520e-01f, half)));
  float e = 1.393998973e-03f; e = fused(e, r, 8.366576396e-03f); e = fused(e, r, 4.166641086e-02f); e = fused(e, r, 1.666654348e-01f);
  e = fused(e, r, 0.5f); e = fused(fused(e, r, 1.0f), r, 1.0f);
  return {a, e * float_of((bits_of(shifted) - (0x4b400000u - 191u)) << 23), p / q};
}
GRADLAB_FUNCTION bool below_zero(float x) { return int(bits_of(x)) < 0; }

// `angle` for |x| < 2^24, to the same bits: all of them have the same line of its table.
GRADLAB_FUNCTION Angle near_angle(float x) {
  const double m = double(x), high = m * quarter_turns.high[0], low = m * quarter_turns.low[0];
  const double shifted = (high + low) + 6755399441055744.0;  // 1.5 * 2^52
  const double fraction = (high - (shifted - 6755399441055744.0)) + low;
  return {float(fraction * 1.5707963267948966), unsigned(bits_of(shifted))};
}

}  // namespace polynomial

// x times the normal distribution: x without the tail from x on, or minus that up to x. The sign of a zero stays.
GRADLAB_FUNCTION float gelu(float x) {
  const auto t = polynomial::normal_tail(x);
  return polynomial::fused(-t.a, t.density * t.fraction, polynomial::below_zero(x) ? -0.0f : x);
}
GRADLAB_FUNCTION double gelu(double x) { return maximum(x, -1000.0) * (0.5 * erfc(x * -0.7071067811865476)); }
// Its derivative: the distribution plus x times the density.
GRADLAB_FUNCTION float gelu_slope(float x) {
  const auto t = polynomial::normal_tail(x);
  const float d = polynomial::fused(-t.a, t.density * (0x1p-64f * 0.3989422804014327f), t.density * t.fraction);
  return polynomial::below_zero(x) ? d : 1.0f - d;
}
GRADLAB_FUNCTION double gelu_slope(double x) {
  const double b = clamp(x, -1000.0, 1000.0);
  return 0.5 * erfc(x * -0.7071067811865476) + b * exp(b * b * -0.5) * 0.3989422804014327;
}

// The polynomials of the sine and the cosine in double: their quotient, or in odd quadrants the negative inverse of it.
GRADLAB_FUNCTION float tangent(float x) {
  const auto a = polynomial::wide_angle(x);
  const double t = a.r * a.r;
  const double s = ((-1.951840823e-04 * t + 8.332190104e-03) * t - 1.666665524e-01) * (t * a.r) + a.r;
  const double c = ((2.443066842e-05 * t - 1.388730132e-03) * t + 4.166664556e-02) * (t * t) + (1.0 - 0.5 * t);
  const bool odd = a.quadrant & 1u;
  const float y = float((odd ? -c : s) / (odd ? s : c));
  return __builtin_fabsf(x) < 1e-4f ? x : y;  // the sign of a zero, and what is smaller than normal
}
template <typename T> GRADLAB_FUNCTION T tangent(T x) { return tan(x); }

// By half of exp|x|, which does not overflow before they do; the sine below 1 by its series.
GRADLAB_FUNCTION float half_exp(float x) {
  const auto e = polynomial::exponential(polynomial::between(__builtin_fabsf(x), 0.0f, 90.0f));
  return polynomial::scale(1.0f + e.minus_one, e.n - 1);
}
GRADLAB_FUNCTION float hyperbolic_cosine(float x) { const float h = half_exp(x); return h + 0.25f / h; }
template <typename T> GRADLAB_FUNCTION T hyperbolic_cosine(T x) { return cosh(x); }
GRADLAB_FUNCTION float hyperbolic_sine(float x) {
  using polynomial::fused;
  const float a = __builtin_fabsf(x), h = half_exp(x), s = x * x;
  const float p = fused(fused(fused(fused(2.505210839e-8f, s, 2.755731922e-6f), s, 1.984126984e-4f), s, 8.333333333e-3f), s, 1.666666667e-1f);
  return __builtin_copysignf(a < 1.0f ? fused(a * s, p, a) : h - 0.25f / h, x);
}
template <typename T> GRADLAB_FUNCTION T hyperbolic_sine(T x) { return sinh(x); }

// Sine and cosine of |x| < NEAR.
constexpr float NEAR = 16777216.0f;
GRADLAB_FUNCTION float near_sin(float x) { return polynomial::sine(polynomial::near_angle(x)); }
GRADLAB_FUNCTION float near_cos(float x) {
  const auto a = polynomial::near_angle(x);
  return polynomial::sine({a.r, a.quadrant + 1u});
}
// Whether all are. NaN is not.
inline bool all_near(const float* x, int64_t n) {
  unsigned far = 0;
  for (int64_t i = 0; i < n; ++i) far |= __builtin_fabsf(x[i]) < NEAR ? 0u : 1u;
  return far == 0;
}

}  // namespace gradlab

#endif
