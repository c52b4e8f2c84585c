// float16 and bfloat16 in the loops of compiled CPU programs: they are loaded as float, computed in float, and rounded (to nearest, ties
// to even) once for each row, as eager mode does. All of it is integer arithmetic that compilers vectorise; no instruction set is needed.
#ifndef GRADLAB_HALF_H
#define GRADLAB_HALF_H

#include <cstdint>

#include "scalar_forms.h"

namespace gradlab {

// A choice that stays arithmetic: of nested conditions GCC makes branches, and no vectors.
GRADLAB_FUNCTION int chosen(bool condition, int yes, int no) {
  const int mask = -int(condition);
  return (yes & mask) | (no & ~mask);
}

struct Float16 {
  uint16_t bits;
  GRADLAB_FUNCTION operator float() const {
    const int rest = bits & 0x7fff;
    int found = (rest << 13) + (112 << 23);
    found = chosen(rest >= 0x7c00, found + (112 << 23), found);
    const float tiny = polynomial::float_of(unsigned(rest) + 0x3f000000u) - 0.5f;  // a multiple of 2^-24
    found = chosen(rest < 0x0400, int(polynomial::bits_of(tiny)), found);
    return polynomial::float_of(unsigned(found) | unsigned(bits & 0x8000) << 16);
  }
};

struct Bfloat16 {
  uint16_t bits;
  GRADLAB_FUNCTION operator float() const { return polynomial::float_of(unsigned(bits) << 16); }
};

// A number as the float that holds what a half type makes of it.
template <typename Half> struct Rounded;

template <> struct Rounded<Float16> {
  GRADLAB_FUNCTION static float of(float x) {
    const int given = int(polynomial::bits_of(x)), rest = given & 0x7fffffff;
    int found = (rest + 0xfff + (rest >> 13 & 1)) & ~0x1fff;
    const float tiny = (polynomial::float_of(unsigned(rest)) + 0.5f) - 0.5f;
    found = chosen(rest < 0x38800000, int(polynomial::bits_of(tiny)), found);
    found = chosen(rest >= 0x477ff000, 0x7f800000, found);
    found = chosen(rest > 0x7f800000, 0x7fc00000, found);
    return polynomial::float_of(unsigned(found | (given & int(0x80000000u))));
  }
  // Rounding twice would be wrong. Rounded to odd first (towards zero, the last bit set if anything was lost), the second is right.
  GRADLAB_FUNCTION static float of(double x) {
    const float near = float(x);
    const int bits = int(polynomial::bits_of(near));
    const double back = double(near);
    const bool lost = back != x && x == x && back - back == 0.0;
    const bool beyond = lost && (x < 0.0 ? back < x : back > x);
    const int odd = (bits - int(beyond)) | int(lost);
    return of(polynomial::float_of(unsigned(odd)));
  }
  template <typename Integer> GRADLAB_FUNCTION static float of(Integer x) { return of(float(x)); }
};

template <> struct Rounded<Bfloat16> {
  GRADLAB_FUNCTION static float of(float x) {
    const int given = int(polynomial::bits_of(x));
    const int found = (given + 0x7fff + (given >> 16 & 1)) & ~0xffff;
    const int nan = (given & int(0x80000000u)) | 0x7fc00000;
    return polynomial::float_of(unsigned((given & 0x7fffffff) > 0x7f800000 ? nan : found));
  }
  template <typename Number> GRADLAB_FUNCTION static float of(Number x) { return of(float(x)); }
};

template <typename Half, typename Number> GRADLAB_FUNCTION float rounded(Number x) { return Rounded<Half>::of(x); }

// What is stored has been rounded already.
template <> GRADLAB_FUNCTION Float16 cast<Float16, float>(float x) {
  const int given = int(polynomial::bits_of(x)), rest = given & 0x7fffffff;
  int found = (rest - (112 << 23)) >> 13;
  const float tiny = polynomial::float_of(unsigned(rest)) + 0.5f;
  found = chosen(rest < 0x38800000, int(polynomial::bits_of(tiny)) - 0x3f000000, found);
  found = chosen(rest >= 0x47800000, 0x7c00, found);
  found = chosen(rest > 0x7f800000, 0x7e00, found);
  return {uint16_t(found | (given >> 16 & 0x8000))};
}
template <> GRADLAB_FUNCTION Bfloat16 cast<Bfloat16, float>(float x) { return {uint16_t(polynomial::bits_of(x) >> 16)}; }

}  // namespace gradlab

#endif
