// Functions of signed integers; overflow wraps.
GL_INLINE @T gl_bitwise_not_@S(@T x) { return (@T)~x; }
GL_INLINE @T gl_abs_@S(@T x) { return x < 0 ? (@T)((uint64_t)0 - (uint64_t)x) : x; }
GL_INLINE @T gl_sign_@S(@T x) { return (@T)((x > 0) - (x < 0)); }
GL_INLINE bool gl_signbit_@S(@T x) { return x < 0; }
/* x / 0 is 0, and the smallest number divided by -1 wraps. */
GL_INLINE @T gl_whole_quotient_@S(@T x, @T y) {
  if (y == -1) return (@T)((uint64_t)0 - (uint64_t)x);
  return y == 0 ? (@T)0 : (@T)(x / y);
}
GL_INLINE @T gl_fmod_@S(@T x, @T y) {
  return y == 0 ? (@T)0 : (@T)((uint64_t)x - (uint64_t)gl_whole_quotient_@S(x, y) * (uint64_t)y);
}
GL_INLINE @T gl_remainder_@S(@T x, @T y) {
  const @T r = gl_fmod_@S(x, y);
  return r != 0 && (r < 0) != (y < 0) ? (@T)(r + y) : r;
}
GL_INLINE @T gl_floor_divide_@S(@T x, @T y) {
  const @T quotient = gl_whole_quotient_@S(x, y), r = gl_fmod_@S(x, y);
  return r != 0 && (r < 0) != (y < 0) ? (@T)(quotient - 1) : quotient;
}
GL_INLINE @T gl_reciprocal_@S(@T x) { return gl_whole_quotient_@S(1, x); }
GL_INLINE @T gl_pow_@S(@T base, @T exponent) {
  if (exponent < 0) return base == 1 ? (@T)1 : (base != -1 ? (@T)0 : (exponent & 1 ? base : (@T)1));
  uint64_t result = 1, factor = (uint64_t)base;
  for (uint64_t left = (uint64_t)exponent; left != 0; left >>= 1, factor *= factor) result *= left & 1 ? factor : 1;
  return (@T)result;
}
GL_INLINE @T gl_pow_number_@S(@T base, @T exponent) { return gl_pow_@S(base, exponent); }
GL_INLINE @T gl_left_shift_@S(@T x, @T count) {
  return (uint64_t)count < 8 * sizeof(@T) ? (@T)((uint64_t)x << ((uint64_t)count & 63)) : (@T)0;
}
GL_INLINE @T gl_right_shift_@S(@T x, @T count) {
  return (@T)(x >> ((uint64_t)count < 8 * sizeof(@T) ? (int)count : (int)(8 * sizeof(@T) - 1)));
}
GL_INLINE @T gl_gcd_@S(@T x, @T y) {
  uint64_t a = x < 0 ? (uint64_t)0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? (uint64_t)0 - (uint64_t)y : (uint64_t)y;
  while (b != 0) { const uint64_t r = a % b; a = b; b = r; }
  return (@T)a;
}
GL_INLINE @T gl_lcm_@S(@T x, @T y) {
  const @T g = gl_gcd_@S(x, y);
  return g == 0 ? (@T)0 : gl_abs_@S((@T)((uint64_t)gl_whole_quotient_@S(x, g) * (uint64_t)y));
}
