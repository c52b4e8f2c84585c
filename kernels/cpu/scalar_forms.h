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
