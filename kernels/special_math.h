// Special functions of elementwise expressions, the rest of scalar_math.h (which includes this file at its end; its rules hold here too).
//
// All are computed in double, float arguments too: near poles and in tails a float's own arithmetic would lose what the argument still says.
// Accuracy in double: a few ulp, except near zeros of the functions left of 0, where the error stays a few ulp of the terms that cancel.
#ifndef GRADLAB_SPECIAL_MATH_H
#define GRADLAB_SPECIAL_MATH_H

// Long functions are called, not copied into each of the places that an unrolled kernel needs them at.
#if GRADLAB_DEVICE
#define GRADLAB_CALLED inline __device__ __noinline__
#else
#define GRADLAB_CALLED inline
#endif

namespace gradlab {

// The polynomial of t, coefficients from the highest power down.
template <typename... C> GRADLAB_FUNCTION double horner(double t, double first, C... rest) {
  double p = first;
  ((p = p * t + rest), ...);
  return p;
}

inline constexpr double special_pi = 3.14159265358979323846;

// pi times the distance from the nearest integer: sines of it keep their accuracy.
GRADLAB_FUNCTION double half_turn(double x) { return special_pi * (x - round(x)); }
GRADLAB_FUNCTION bool pole_of_gamma(double x) { return x <= 0.0 && x == floor(x); }

// ---- the gamma function: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964) ------------------------------

// log(gamma(2 + z)) of |z| <= 1/2: the series 6.1.33, its coefficients 1 - Euler's constant and (-1)^k (zeta(k) - 1) / k.
GRADLAB_FUNCTION double lgamma_at_two(double z) {
  return z * horner(z, -2.7595228851242334e-10, 5.731367241678862e-10, -1.1921401405860912e-09, 2.4836745438024785e-09,
                    -5.183475041970047e-09, 1.0838659214896955e-08, -2.2711094608943164e-08, 4.7698101693639804e-08,
                    -1.0043224823968099e-07, 2.1207184805554665e-07, -4.492469198764566e-07, 9.55141213040742e-07,
                    -2.039215753801366e-06, 4.374866789907488e-06, -9.439488275268397e-06, 2.050721277567069e-05,
                    -4.492623673813314e-05, 9.945751278180853e-05, -0.00022315475845357939, 0.0005096695247430425,
                    -0.001192753911703261, 0.0028905103307415234, -0.007385551028673986, 0.020580808427784546,
                    -0.0673523010531981, 0.3224670334241132, 0.42278433509846713);
}
// Of x >= 1.5: steps down to 2 by the recurrence 6.1.15; from 10 on Stirling's series 6.1.41.
GRADLAB_FUNCTION double lgamma_right(double x) {
  if (x < 10.0) {
    double product = 1.0;
    for (; x > 2.5; product *= x) x -= 1.0;
    return lgamma_at_two(x - 2.0) + log(product);
  }
  const double inverse = 1.0 / x;
  return (x - 0.5) * (log(x) - 1.0) + 0.41893853320467274178 +
         inverse * horner(inverse * inverse, -0.029550653594771242, 0.00641025641025641, -0.0019175269175269176, 0.0008417508417508417,
                          -0.0005952380952380953, 0.0007936507936507937, -0.002777777777777778, 0.08333333333333333);
}
// The logarithm of |gamma(x)|; left of -1/2 by reflection, 6.1.17.
GRADLAB_CALLED double lgamma(double x) {
  if (x != x) return x;
  if (pole_of_gamma(x) || isinf(x)) return infinity<double>();
  if (x >= 1.5) return lgamma_right(x);
  if (x >= 0.5) return lgamma_at_two(x - 1.0) - log1p(x - 1.0);
  if (x > -0.5) return lgamma_at_two(x) - log1p(x) - log(abs(x));
  return 1.14472988584940017414 - log(abs(sin(half_turn(x)))) - lgamma_right(1.0 - x);
}
// Its derivative: recurrence 6.3.5, series 6.3.18, reflection 6.3.7.
GRADLAB_CALLED double digamma(double x) {
  if (x == 0.0) return copysign(infinity<double>(), -x);
  double y = x < 0.5 ? 1.0 - x : x, below = 0.0;
  for (; y < 10.0; y += 1.0) below += 1.0 / y;
  const double inverse = 1.0 / y, t = inverse * inverse;
  const double found = log(y) - 0.5 * inverse - below -
                       t * horner(t, -0.4432598039215686, 0.08333333333333333, -0.021092796092796094, 0.007575757575757576,
                                  -0.004166666666666667, 0.003968253968253968, -0.008333333333333333, 0.08333333333333333);
  if (pole_of_gamma(x)) return infinity<double>() - infinity<double>();
  return x < 0.5 ? found - special_pi / tan(half_turn(x)) : found;
}
GRADLAB_FUNCTION double whole_power(double x, int n) {
  double result = 1.0;
  for (; n > 0; n >>= 1, x *= x) result *= n & 1 ? x : 1.0;
  return result;
}
// The sum of 1 / (q + k)^s over k >= 0, for q > 0, by Euler and Maclaurin, 23.1.30.
GRADLAB_CALLED double hurwitz(int s, double q) {
  double sum = 0.0;
  for (const double enough = 9.0 + s; q < enough; q += 1.0) sum += 1.0 / whole_power(q, s);
  constexpr double bernoulli[8] = {0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07,
                                   2.08767569878681e-08, -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13};
  const double inverse = 1.0 / q, t = inverse * inverse;
  double correction = 0.0, factor = s * inverse;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int k = 0; k < 8; ++k) {
    correction += bernoulli[k] * factor;
    factor *= (s + 2 * k + 1) * (s + 2.0 * k + 2.0) * t;
  }
  return sum + (1.0 / (s - 1) + inverse * (0.5 + correction)) / whole_power(q, s - 1);
}
// The n-th derivative of digamma, n >= 1: (-1)^(n+1) n! times that sum of x. Left of 0 it is the sum over all k from -inf on, which depends
// on the distance to the nearest integer alone, without what lies left of x.
GRADLAB_CALLED double polygamma(int n, double x) {
  const int s = n + 1;
  double sign = n & 1 ? 1.0 : -1.0, sum;
  for (int k = 2; k <= n; ++k) sign *= k;
  if (x != x) return x;
  if (x > 0.0) sum = hurwitz(s, x);
  else if (pole_of_gamma(x)) sum = infinity<double>();
  else {
    const double t = x - round(x), other = n & 1 ? 1.0 : -1.0;
    sum = 1.0 / whole_power(t, s) + hurwitz(s, 1.0 + t);
    if (!(n & 1) && abs(t) == 0.5) return sign * hurwitz(s, 1.0 - x);  // halfway between poles what lies on both sides cancels
    if (t != x) sum += other * (hurwitz(s, 1.0 - t) - hurwitz(s, 1.0 - x));
  }
  return sign * sum;
}

// ---- the normal distribution ---------------------------------------------------------------------------------------------------------

// exp(x^2) erfc(x) of x >= 0.46875: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969).
GRADLAB_FUNCTION double erfcx_right(double x) {
  if (x > 4.0) {
    const double inverse = 1.0 / x, t = inverse * inverse;
    const double far = t * horner(t, 0.016315387137302097, 0.30532663496123236, 0.36034489994980445, 0.12578172611122926,
                                  0.016083785148742275, 0.0006587491615298378) /
                       horner(t, 1.0, 2.568520192289822, 1.8729528499234673, 0.5279051029514285, 0.06051834131244132,
                              0.0023352049762686918);
    return (0.56418958354775628695 - far) * inverse;
  }
  return horner(x, 2.1531153547440383e-08, 0.5641884969886701, 8.883149794388377, 66.11919063714163, 298.6351381974001,
                881.952221241769, 1712.0476126340707, 2051.0783778260716, 1230.3393547979972) /
         horner(x, 1.0, 15.744926110709835, 117.6939508913125, 537.1811018620099, 1621.3895745666903, 3290.7992357334597,
                4362.619090143247, 3439.3676741437216, 1230.3393548037495);
}
// Further left exp(x^2) is split as Cody splits it: 1/16ths square exactly, the rest is small.
GRADLAB_CALLED double erfcx(double x) {
  if (x >= 0.46875) return erfcx_right(x);
  if (x < -30.0) return infinity<double>();
  const double whole = trunc(x * 16.0) / 16.0;
  return exp(whole * whole) * exp((x - whole) * (x + whole)) * erfc(x);
}
GRADLAB_CALLED double log_ndtr(double x) {
  const double a = x * 0.70710678118654752440;
  if (x < -1.0) return log(0.5 * erfcx_right(-a)) - 0.5 * x * x;
  return log1p(-0.5 * erfc(a));
}
// The normal quantile of 1/2 + q, with what is left to 0 or 1: M. J. Wichura, "Algorithm AS 241", Appl. Statist. 37 (1988).
GRADLAB_CALLED double normal_quantile(double q, double rest) {
  if (abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * horner(r, 2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987, 13731.69376550946,
                      1971.5909503065513, 133.14166789178438, 3.3871328727963665) /
           horner(r, 5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597, 5394.196021424751,
                  687.1870074920579, 42.31333070160091, 1.0);
  }
  const double s = sqrt(-log(rest));
  if (isinf(s)) return copysign(s, q);
  double value;
  if (s <= 5.0) {
    const double r = s - 1.6;
    value = horner(r, 0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684, 3.6478483247632045,
                   5.769497221460691, 4.630337846156546, 1.4234371107496835) /
            horner(r, 1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008, 0.6897673349851,
                   1.6763848301838038, 2.053191626637759, 1.0);
  } else {
    const double r = s - 5.0;
    value = horner(r, 2.0103343992922881e-07, 2.7115555687434876e-05, 0.0012426609473880784, 0.026532189526576124,
                   0.29656057182850487, 1.7848265399172913, 5.463784911164114, 6.657904643501103) /
            horner(r, 2.0442631033899397e-15, 1.421511758316446e-07, 1.8463183175100548e-05, 0.0007868691311456133,
                   0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0);
  }
  return copysign(value, q);
}
GRADLAB_FUNCTION double ndtri(double p) { return normal_quantile(p - 0.5, p < 0.5 ? p : 1.0 - p); }
GRADLAB_FUNCTION double erfinv(double x) { return 0.70710678118654752440 * normal_quantile(0.5 * x, 0.5 - 0.5 * abs(x)); }

// ---- the incomplete gamma functions: DLMF ------------------------------------------------------------------------------------------------

// u - 1 - log u of u = x / a, without cancellation about 1.
GRADLAB_FUNCTION double gamma_excess(double x, double a) {
  const double m = (x - a) / a, u = x / a;
  if (!(abs(m) < 0.3)) return u - 1.0 - log(u);
  const double r = m / (2.0 + m), s = r * r;
  double total = 0.0;
  for (int k = 19; k > 1; k -= 2) total = total * s + 1.0 / k;
  return r * m - 2.0 * r * s * total;
}
// log(gamma(a)) less (a - 1/2) log a - a + log(2 pi) / 2, for a >= 10: 5.11.1.
GRADLAB_FUNCTION double stirling_rest(double a) {
  const double inverse = 1.0 / a;
  return inverse * horner(inverse * inverse, -0.029550653594771242, 0.00641025641025641, -0.0019175269175269176, 0.0008417508417508417,
                          -0.0005952380952380953, 0.0007936507936507937, -0.002777777777777778, 0.08333333333333333);
}
// x^a e^-x / gamma(a + 1).
GRADLAB_CALLED double gamma_factor(double a, double x) {
  if (a < 10.0) return exp(a * log(x) - x - lgamma(a + 1.0));
  return exp(-a * gamma_excess(x, a) - stirling_rest(a)) / sqrt(6.28318530717958647693 * a);
}
// The share of the integral 8.2.1 from x to where it no longer counts, by Gauss and Legendre's rule of 48 points: for a >= 100.
GRADLAB_CALLED double gamma_quadrature(double a, double x) {
  const double node[24] = {
      0.03238017096286937, 0.0970046992094627, 0.1612223560688917, 0.22476379039468905, 0.28736248735545555,
      0.3487558862921607, 0.4086864819907167, 0.4669029047509584, 0.523160974722233, 0.5772247260839727, 0.6288673967765136,
      0.6778723796326639, 0.7240341309238146, 0.7671590325157404, 0.8070662040294426, 0.8435882616243935,
      0.8765720202742479, 0.9058791367155696, 0.9313866907065543, 0.9529877031604308, 0.9705915925462473,
      0.9841245837228269, 0.9935301722663508, 0.9987710072524261};
  const double weight[24] = {
      0.06473769681268365, 0.06446616443594982, 0.06392423858464787, 0.06311419228625373, 0.06203942315989242,
      0.0607044391658936, 0.059114839698395344, 0.057277292100402916, 0.05519950369998403, 0.05289018948519344,
      0.0503590355538542, 0.04761665849249024, 0.04467456085669423, 0.04154508294346455, 0.0382413510658305,
      0.034777222564770394, 0.031167227832798097, 0.027426509708357034, 0.023570760839324047, 0.019616160457356056,
      0.015579315722943226, 0.011477234579234614, 0.007327553901276135, 0.0031533460523098414};
  const double drop = 60.0, slope = abs(x - a) / x;
  double width = 2.0 * drop / (slope + sqrt(slope * slope + 2.0 * drop * (a / x / x)));
  if (!(x > a)) width = -(width < x ? width : x);
  double sum = 0.0;
  for (int k = 0; k < 24; ++k) {
    const double t = x + 0.5 * width * (1.0 - node[k]), u = x + 0.5 * width * (1.0 + node[k]);
    sum += weight[k] * (exp(-a * gamma_excess(t, a)) / t + exp(-a * gamma_excess(u, a)) / u);
  }
  return 0.5 * abs(width) * sum * sqrt(a / 6.28318530717958647693) * exp(-stirling_rest(a));
}
// The lower share of the gamma function, or the upper one: the series 8.11.4 left of a + 1, the continued fraction 8.9.2 right of it, and
// 8.7.1 where the upper share of a small argument would cancel.
GRADLAB_CALLED double gamma_share(double a, double x, bool upper) {
  if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0) || (isinf(a) && isinf(x))) return infinity<double>() - infinity<double>();
  if (x == 0.0 || isinf(a)) return upper ? 1.0 : 0.0;
  if (a == 0.0 || isinf(x)) return upper ? 0.0 : 1.0;
  double found;
  bool have_upper;
  if (a >= 100.0) {
    found = gamma_quadrature(a, x);
    have_upper = x > a;
  } else if (upper && a < 1.0 && x < 1.0) {
    const double start = a * log(x) - lgamma(a + 1.0);
    double term = 1.0, total = 0.0;
    for (int n = 1; n < 25; ++n) {
      term *= -x / n;
      total += term * (a / (a + n));
    }
    return -expm1(start) - exp(start) * total;
  } else if (x < a + 1.0) {
    double term = 1.0, total = 1.0;
    for (int n = 1; n < 600 && term > 1e-17 * total; ++n) total += term *= x / (a + n);
    found = gamma_factor(a, x) * total;
    have_upper = false;
  } else {
    double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, total = d, change = 2.0;
    for (int n = 1; n < 600 && abs(change - 1.0) > 4e-16; ++n) {
      const double step = -n * (n - a);
      b += 2.0;
      d = step * d + b;
      c = b + step / c;
      if (abs(d) < 1e-300) d = 1e-300;
      if (abs(c) < 1e-300) c = 1e-300;
      d = 1.0 / d;
      change = d * c;
      total *= change;
    }
    found = gamma_factor(a, x) * a * total;
    have_upper = true;
  }
  found = found < 0.0 ? 0.0 : found > 1.0 ? 1.0 : found;
  return have_upper == upper ? found : 1.0 - found;
}
GRADLAB_FUNCTION double igamma(double a, double x) { return gamma_share(a, x, false); }
GRADLAB_FUNCTION double igammac(double a, double x) { return gamma_share(a, x, true); }

// ---- the zeta function of Riemann and Hurwitz: DLMF 25.11 -----------------------------------------------------------------------

// The sum of (q + k)^-s over k >= 0, for s > 1 and q > 0: term by term where few count, the rest by Euler and Maclaurin, 25.11.28.
GRADLAB_CALLED double zeta_right(double s, double q) {
  double sum = 0.0;
  for (int k = 0; k < 400 && q < 9.0 + s; ++k, q += 1.0) {
    const double term = pow(q, -s);
    sum += term;
    if (term <= 1e-17 * sum) return sum;
  }
  if (isinf(q) || isinf(s)) return sum;
  constexpr double bernoulli[8] = {0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07,
                                   2.08767569878681e-08, -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13};
  const double inverse = 1.0 / q, t = inverse * inverse;
  double correction = 0.0, factor = s * inverse;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int k = 0; k < 8; ++k) {
    correction += bernoulli[k] * factor;
    factor *= (s + 2 * k + 1) * (s + 2.0 * k + 2.0) * t;
  }
  return sum + (1.0 / (s - 1.0) + inverse * (0.5 + correction)) * pow(q, 1.0 - s);
}
// Left of 0, where s is whole, it is the sum over all k from -inf on, which depends on the distance to the nearest integer alone, without
// what lies left of q.
GRADLAB_CALLED double zeta(double s, double q) {
  if (s != s || q != q) return s + q;
  if (s == 1.0) return infinity<double>();
  if (s < 1.0) return infinity<double>() - infinity<double>();
  if (q > 0.0) return zeta_right(s, q);
  if (q == floor(q)) return infinity<double>();
  if (s != floor(s) || isinf(s)) return infinity<double>() - infinity<double>();
  const double t = q - round(q), sign = 0.5 * s == floor(0.5 * s) ? 1.0 : -1.0;
  double sum = (t < 0.0 ? sign : 1.0) * pow(abs(t), -s) + zeta_right(s, 1.0 + t);
  if (t != q) sum += sign * (zeta_right(s, 1.0 - t) - zeta_right(s, 1.0 - q));
  return sum;
}

GRADLAB_FUNCTION float lgamma(float x) { return float(lgamma(double(x))); }
GRADLAB_FUNCTION float digamma(float x) { return float(digamma(double(x))); }
GRADLAB_FUNCTION float polygamma(int n, float x) { return float(polygamma(n, double(x))); }
GRADLAB_FUNCTION float erfcx(float x) { return float(erfcx(double(x))); }
GRADLAB_FUNCTION float log_ndtr(float x) { return float(log_ndtr(double(x))); }
GRADLAB_FUNCTION float ndtri(float x) { return float(ndtri(double(x))); }
GRADLAB_FUNCTION float erfinv(float x) { return float(erfinv(double(x))); }
GRADLAB_FUNCTION float igamma(float a, float x) { return float(igamma(double(a), double(x))); }
GRADLAB_FUNCTION float igammac(float a, float x) { return float(igammac(double(a), double(x))); }
GRADLAB_FUNCTION float zeta(float s, float q) { return float(zeta(double(s), double(q))); }

// ---- integers: Euclid, as NumPy: of absolute values without sign, so the smallest integer is its own divisor --------------------------

template <typename T> GRADLAB_FUNCTION Wide magnitude(T x) {
  if constexpr (is_signed<T>) return x < T(0) ? Wide(0) - Wide(x) : Wide(x);
  else return Wide(x);
}
GRADLAB_CALLED Wide common_divisor(Wide a, Wide b) {
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}
template <typename T> GRADLAB_FUNCTION T gcd(T a, T b) { return T(common_divisor(magnitude(a), magnitude(b))); }
template <typename T> GRADLAB_FUNCTION T lcm(T a, T b) {
  const Wide x = magnitude(a), y = magnitude(b), divisor = common_divisor(x, y);
  return divisor == 0 ? T(0) : T(x / divisor * y);
}

}  // namespace gradlab

#include "bessel_math.h"
#include "polynomial_math.h"

#endif
