// Functions of unsigned integers.
GL_INLINE @T gl_bitwise_not_@S(@T x) { return (@T)~x; }
GL_INLINE @T gl_abs_@S(@T x) { return x; }
GL_INLINE @T gl_sign_@S(@T x) { return (@T)(x != 0); }
GL_INLINE bool gl_signbit_@S(@T x) { (void)x; return false; }
GL_INLINE @T gl_fmod_@S(@T x, @T y) { return y == 0 ? (@T)0 : (@T)(x % y); }
GL_INLINE @T gl_remainder_@S(@T x, @T y) { return y == 0 ? (@T)0 : (@T)(x % y); }
GL_INLINE @T gl_floor_divide_@S(@T x, @T y) { return y == 0 ? (@T)0 : (@T)(x / y); }
GL_INLINE @T gl_pow_@S(@T base, @T exponent) {
  uint64_t result = 1, factor = (uint64_t)base;
  for (uint64_t left = (uint64_t)exponent; left != 0; left >>= 1, factor *= factor) result *= left & 1 ? factor : 1;
  return (@T)result;
}
GL_INLINE @T gl_pow_number_@S(@T base, @T exponent) { return gl_pow_@S(base, exponent); }
GL_INLINE @T gl_left_shift_@S(@T x, @T count) {
  return (uint64_t)count < 8 * sizeof(@T) ? (@T)((uint64_t)x << ((uint64_t)count & 63)) : (@T)0;
}
GL_INLINE @T gl_right_shift_@S(@T x, @T count) { return (uint64_t)count < 8 * sizeof(@T) ? (@T)(x >> count) : (@T)0; }
GL_INLINE @T gl_gcd_@S(@T x, @T y) {
  while (y != 0) { const @T r = (@T)(x % y); x = y; y = r; }
  return x;
}
GL_INLINE @T gl_lcm_@S(@T x, @T y) {
  const @T g = gl_gcd_@S(x, y);
  return g == 0 ? (@T)0 : (@T)(x / g * y);
}
