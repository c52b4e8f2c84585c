// Orthogonal polynomials of whole degrees and their derivatives, the rest of special_math.h (which includes this file at its end).
//
// Sources: DLMF (NIST Digital Library of Mathematical Functions) 18.9.1 with table 18.9.1 (three-term recurrences), differentiated where a
// derivative is asked for; 18.5.1 to 18.5.4 (Chebyshev polynomials by cosines) for higher degrees between -1 and 1, where they lose less.
#ifndef GRADLAB_POLYNOMIAL_MATH_H
#define GRADLAB_POLYNOMIAL_MATH_H

namespace gradlab {

// Chebyshev's polynomial of kind 0 to 3 (T, U, V, W), for |x| < 1.
GRADLAB_FUNCTION double chebyshev_by_angle(int kind, double x, double n) {
  const double angle = acos(x);
  if (kind == 0) return cos(n * angle);
  if (kind == 1) return sin((n + 1.0) * angle) / sin(angle);
  if (kind == 2) return cos((n + 0.5) * angle) / cos(0.5 * angle);
  return sin((n + 0.5) * angle) / sin(0.5 * angle);
}
// kind: 0 to 3 Chebyshev's T, U, V, W; 4 to 7 the same of 2 x - 1; 8 and 9 Hermite's H and He; 10 Laguerre's L; 11 Legendre's P.
// derivative: its order, up to 7. n is cut to a whole number; below 0 the polynomial is 0.
GRADLAB_CALLED double orthogonal(int kind, int derivative, double x, double n) {
  if (x != x || n != n) return x + n;
  n = trunc(n);
  if (n < derivative) return 0.0;
  double scale = 1.0;
  if (kind >= 4 && kind < 8) {
    kind -= 4;
    x = 2.0 * x - 1.0;
    for (int d = 0; d < derivative; ++d) scale *= 2.0;
  }
  if (n == 0.0) return 1.0;
  if (derivative == 0 && kind < 4 && n > 8.0 && abs(x) < 1.0) return chebyshev_by_angle(kind, x, n);
  if (n > 10000.0) return infinity<double>() - infinity<double>();  // a recurrence of so many steps has no digits left
  double before[8] = {1.0}, now[8] = {x, 1.0};
  if ((kind > 0 && kind < 4) || kind == 8) {
    now[0] = 2.0 * x + (kind == 2 ? -1.0 : kind == 3 ? 1.0 : 0.0);
    now[1] = 2.0;
  }
  if (kind == 10) {
    now[0] = 1.0 - x;
    now[1] = -1.0;
  }
  for (double k = 1.0; k < n; k += 1.0) {
    double slope = kind < 4 || kind == 8 ? 2.0 : 1.0, constant = 0.0, back = kind < 4 ? 1.0 : kind == 8 ? 2.0 * k : k, divisor = 1.0;
    if (kind >= 10) {
      slope = kind == 10 ? -1.0 : 2.0 * k + 1.0;
      constant = kind == 10 ? 2.0 * k + 1.0 : 0.0;
      divisor = k + 1.0;
    }
    for (int d = derivative; d >= 0; --d) {
      const double lower = d ? d * slope * now[d - 1] : 0.0;
      const double next = ((constant + slope * x) * now[d] + lower - back * before[d]) / divisor;
      before[d] = now[d];
      now[d] = next;
    }
    if (now[derivative] != now[derivative]) break;  // beyond the range of double
  }
  return scale * now[derivative];
}
GRADLAB_FUNCTION float orthogonal(int kind, int derivative, float x, float n) {
  return float(orthogonal(kind, derivative, double(x), double(n)));
}

}  // namespace gradlab

#endif
