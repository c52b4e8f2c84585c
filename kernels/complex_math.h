// Complex numbers for the expressions of scalar_math.h, which includes this file: `T` is Complex<float> or Complex<double> then, and every
// function that an expression may call has an overload here. Branch cuts are those of C99's annex G, which NumPy and PyTorch have, too.
//
// A complex number is two reals side by side, as in NumPy's arrays, and lies where its size says (so that 16 bytes load at once).
// Products and quotients are the plain ones: where parts are infinite, they may be NaN (as NumPy's are).
#ifndef GRADLAB_COMPLEX_MATH_H
#define GRADLAB_COMPLEX_MATH_H

namespace gradlab {

template <typename R> struct alignas(8) Complex {
  R re, im;
  Complex() = default;
  GRADLAB_FUNCTION Complex(R real, R imaginary) : re(real), im(imaginary) {}
  template <typename N> GRADLAB_FUNCTION Complex(N number) : re(R(number)), im(R(0)) {}
  template <typename O> GRADLAB_FUNCTION Complex(Complex<O> z) : re(R(z.re)), im(R(z.im)) {}
  GRADLAB_FUNCTION explicit operator bool() const { return re != R(0) || im != R(0); }
  template <typename N> GRADLAB_FUNCTION explicit operator N() const { return N(re); }
};

template <typename T> inline constexpr bool is_complex = false;
template <typename R> inline constexpr bool is_complex<Complex<R>> = true;

#define GRADLAB_COMPLEX template <typename R> GRADLAB_FUNCTION

GRADLAB_COMPLEX Complex<R> operator+(Complex<R> a, Complex<R> b) { return {a.re + b.re, a.im + b.im}; }
GRADLAB_COMPLEX Complex<R> operator-(Complex<R> a, Complex<R> b) { return {a.re - b.re, a.im - b.im}; }
GRADLAB_COMPLEX Complex<R> operator-(Complex<R> a) { return {-a.re, -a.im}; }
GRADLAB_COMPLEX Complex<R> operator*(Complex<R> a, Complex<R> b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
GRADLAB_COMPLEX Complex<R> operator*(Complex<R> a, R b) { return {a.re * b, a.im * b}; }
GRADLAB_COMPLEX Complex<R>& operator+=(Complex<R>& a, Complex<R> b) { return a = a + b; }
GRADLAB_COMPLEX Complex<R>& operator*=(Complex<R>& a, Complex<R> b) { return a = a * b; }
GRADLAB_COMPLEX bool operator==(Complex<R> a, Complex<R> b) { return a.re == b.re && a.im == b.im; }
GRADLAB_COMPLEX bool operator!=(Complex<R> a, Complex<R> b) { return a.re != b.re || a.im != b.im; }

// R. L. Smith, "Algorithm 116: Complex division" (1962): scaled by the larger part, so that nothing overflows on the way.
GRADLAB_COMPLEX Complex<R> operator/(Complex<R> a, Complex<R> b) {
  if (abs(b.re) >= abs(b.im)) {
    if (b.re == R(0) && b.im == R(0)) return {a.re / abs(b.re), a.im / abs(b.re)};
    const R ratio = b.im / b.re, whole = R(1) / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * whole, (a.im - a.re * ratio) * whole};
  }
  const R ratio = b.re / b.im, whole = R(1) / (b.re * ratio + b.im);
  return {(a.re * ratio + a.im) * whole, (a.im * ratio - a.re) * whole};
}

// ---- parts, size, angle -------------------------------------------------------------------------------------------------------

GRADLAB_FUNCTION Complex<float> joined(float re, float im) { return {re, im}; }
GRADLAB_FUNCTION Complex<double> joined(double re, double im) { return {re, im}; }
GRADLAB_COMPLEX R real(Complex<R> z) { return z.re; }
GRADLAB_COMPLEX R imag(Complex<R> z) { return z.im; }
GRADLAB_COMPLEX Complex<R> conj(Complex<R> z) { return {z.re, -z.im}; }
GRADLAB_COMPLEX R abs(Complex<R> z) { return hypot(z.re, z.im); }
GRADLAB_COMPLEX R angle(Complex<R> z) { return atan2(z.im, z.re); }
GRADLAB_COMPLEX Complex<R> turned(Complex<R> z) { return {-z.im, z.re}; }  // i z
GRADLAB_COMPLEX Complex<R> sgn(Complex<R> z) {
  R scale = maximum(abs(z.re), abs(z.im));
  scale = scale == R(0) || !isfinite(scale) ? R(1) : scale;
  const R x = z.re / scale, y = z.im / scale, length = hypot(x, y);
  return length == R(0) ? Complex<R>(x, y) : Complex<R>(x / length, y / length);
}
GRADLAB_COMPLEX bool isnan(Complex<R> z) { return z.re != z.re || z.im != z.im; }
GRADLAB_COMPLEX bool isinf(Complex<R> z) { return isinf(z.re) || isinf(z.im); }
GRADLAB_COMPLEX bool isfinite(Complex<R> z) { return isfinite(z.re) && isfinite(z.im); }

// ---- powers -------------------------------------------------------------------------------------------------------------------

GRADLAB_COMPLEX Complex<R> square(Complex<R> z) { return z * z; }
GRADLAB_COMPLEX Complex<R> reciprocal(Complex<R> z) { return Complex<R>(R(1), R(0)) / z; }
// From the larger part, so that no digits cancel; the result's real part is not negative, its imaginary part has the sign of z's.
GRADLAB_COMPLEX Complex<R> sqrt(Complex<R> z) {
  if (z.re == R(0) && z.im == R(0)) return {R(0), z.im};
  if (isinf(z.im)) return {infinity<R>(), z.im};
  const R scale = maximum(abs(z.re), abs(z.im)), a = abs(z.re) / scale, b = abs(z.im) / scale;
  const R part = sqrt((a + hypot(a, b)) * R(0.5)) * sqrt(scale), other = abs(z.im) / part * R(0.5);
  return z.re >= R(0) ? Complex<R>(part, copysign(other, z.im)) : Complex<R>(other, copysign(part, z.im));
}
GRADLAB_COMPLEX Complex<R> rsqrt(Complex<R> z) { return reciprocal(sqrt(z)); }
GRADLAB_COMPLEX Complex<R> exp(Complex<R> z) {
  const R size = exp(z.re);
  return z.im == R(0) ? Complex<R>(size, z.im) : Complex<R>(size * cos(z.im), size * sin(z.im));
}
GRADLAB_COMPLEX Complex<R> log(Complex<R> z) { return {log(abs(z)), angle(z)}; }
GRADLAB_COMPLEX Complex<R> exp2(Complex<R> z) { return exp(z * R(0.69314718055994530942)); }
GRADLAB_COMPLEX Complex<R> log2(Complex<R> z) { return log(z) * R(1.44269504088896340736); }
GRADLAB_COMPLEX Complex<R> log10(Complex<R> z) { return log(z) * R(0.43429448190325182765); }
// Near 0 by parts that do not cancel: e^x cos y - 1 = expm1(x) cos y - 2 sin²(y/2), and |1 + z|² - 1 = x (2 + x) + y².
GRADLAB_COMPLEX Complex<R> expm1(Complex<R> z) {
  const R half = sin(z.im * R(0.5));
  return {expm1(z.re) * cos(z.im) - R(2) * half * half, exp(z.re) * sin(z.im)};
}
GRADLAB_COMPLEX Complex<R> log1p(Complex<R> z) {
  const R more = z.re * (R(2) + z.re) + z.im * z.im;
  return {abs(more) < R(0.5) ? log1p(more) * R(0.5) : log(hypot(R(1) + z.re, z.im)), atan2(z.im, R(1) + z.re)};
}
GRADLAB_COMPLEX Complex<R> pow(Complex<R> base, Complex<R> exponent) {
  if (exponent == Complex<R>(R(0), R(0))) return {R(1), R(0)};
  if (base == Complex<R>(R(0), R(0))) return exponent.re > R(0) ? Complex<R>(R(0), R(0)) : log(base) * exponent;
  if (exponent.im == R(0) && exponent.re == floor(exponent.re) && abs(exponent.re) <= R(64)) {  // whole powers: products
    Complex<R> result(R(1), R(0)), factor = base;
    for (int left = int(abs(exponent.re)); left != 0; left >>= 1, factor = factor * factor)
      if (left & 1) result = result * factor;
    return exponent.re < R(0) ? reciprocal(result) : result;
  }
  return exp(exponent * log(base));
}

// ---- angles ---------------------------------------------------------------------------------------------------------------------

GRADLAB_COMPLEX Complex<R> sinh(Complex<R> z) { return {sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im)}; }
GRADLAB_COMPLEX Complex<R> cosh(Complex<R> z) { return {cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im)}; }
// W. Kahan, "Branch cuts for complex elementary functions" (1987): with t = tan y, s = sinh x.
GRADLAB_COMPLEX Complex<R> tanh(Complex<R> z) {
  if (abs(z.re) > R(sizeof(R) == 4 ? 11 : 22)) {
    const R fade = exp(R(-2) * abs(z.re));
    return {copysign(R(1), z.re), R(4) * sin(z.im) * cos(z.im) * fade};
  }
  const R t = tan(z.im), s = sinh(z.re), beta = R(1) + t * t, rho = sqrt(R(1) + s * s), whole = R(1) / (R(1) + beta * s * s);
  return {beta * rho * s * whole, t * whole};
}
GRADLAB_COMPLEX Complex<R> unturned(Complex<R> z) { return {z.im, -z.re}; }  // -i z
GRADLAB_COMPLEX Complex<R> sin(Complex<R> z) {
  const R s = sin(z.re), c = cos(z.re);
  return {s * cosh(z.im), c * sinh(z.im)};
}
GRADLAB_COMPLEX Complex<R> cos(Complex<R> z) { return cosh(turned(z)); }
GRADLAB_COMPLEX Complex<R> tan(Complex<R> z) { return unturned(tanh(turned(z))); }
// 1 ± z keep the sign of a zero, which says on which side of a cut z is.
GRADLAB_COMPLEX Complex<R> asin(Complex<R> z) {
  const Complex<R> a = sqrt(Complex<R>(R(1) - z.re, -z.im)), b = sqrt(Complex<R>(R(1) + z.re, z.im));
  return {atan2(z.re, a.re * b.re - a.im * b.im), asinh(a.re * b.im - a.im * b.re)};
}
GRADLAB_COMPLEX Complex<R> acos(Complex<R> z) {
  const Complex<R> a = sqrt(Complex<R>(R(1) - z.re, -z.im)), b = sqrt(Complex<R>(R(1) + z.re, z.im));
  return {R(2) * atan2(a.re, b.re), asinh(b.re * a.im - b.im * a.re)};
}
GRADLAB_COMPLEX Complex<R> acosh(Complex<R> z) {
  const Complex<R> a = sqrt(Complex<R>(z.re - R(1), z.im)), b = sqrt(Complex<R>(z.re + R(1), z.im));
  return {asinh(a.re * b.re + a.im * b.im), R(2) * atan2(a.im, b.re)};
}
GRADLAB_COMPLEX Complex<R> asinh(Complex<R> z) { return unturned(asin(turned(z))); }
GRADLAB_COMPLEX Complex<R> atanh(Complex<R> z) {
  const R x = abs(z.re), y = z.im, near = (R(1) - x) * (R(1) - x) + y * y;
  return {copysign(log1p(R(4) * x / near) * R(0.25), z.re), atan2(R(2) * y, (R(1) - x) * (R(1) + x) - y * y) * R(0.5)};
}
GRADLAB_COMPLEX Complex<R> atan(Complex<R> z) { return unturned(atanh(turned(z))); }
GRADLAB_COMPLEX Complex<R> sigmoid(Complex<R> z) {
  const Complex<R> one(R(1), R(0));
  return z.re < R(0) ? exp(z) / (one + exp(z)) : one / (one + exp(-z));
}
GRADLAB_COMPLEX Complex<R> lerp(Complex<R> x, Complex<R> y, Complex<R> weight) {
  return abs(weight) < R(0.5) ? x + weight * (y - x) : y - (y - x) * (Complex<R>(R(1), R(0)) - weight);
}

}  // namespace gradlab

#endif
