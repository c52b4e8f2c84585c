// Functions of floats and doubles, by the C library's names for each.
GL_INLINE @T gl_sqrt_@S(@T x) { return sqrt@L(x); }
GL_INLINE @T gl_sinh_@S(@T x) { return sinh@L(x); }
GL_INLINE @T gl_cosh_@S(@T x) { return cosh@L(x); }
GL_INLINE @T gl_tan_@S(@T x) { return tan@L(x); }
GL_INLINE @T gl_asin_@S(@T x) { return asin@L(x); }
GL_INLINE @T gl_acos_@S(@T x) { return acos@L(x); }
GL_INLINE @T gl_atan_@S(@T x) { return atan@L(x); }
GL_INLINE @T gl_asinh_@S(@T x) { return asinh@L(x); }
GL_INLINE @T gl_acosh_@S(@T x) { return acosh@L(x); }
GL_INLINE @T gl_atanh_@S(@T x) { return atanh@L(x); }
GL_INLINE @T gl_floor_@S(@T x) { return floor@L(x); }
GL_INLINE @T gl_ceil_@S(@T x) { return ceil@L(x); }
GL_INLINE @T gl_trunc_@S(@T x) { return trunc@L(x); }
GL_INLINE @T gl_atan2_@S(@T x, @T y) { return atan2@L(x, y); }
GL_INLINE @T gl_pow_@S(@T x, @T y) { return pow@L(x, y); }
GL_INLINE @T gl_pow_number_@S(@T x, @T e) {
  return fabs@L(e) != (@T)0.5 ? pow@L(x, e) : (e < (@T)0 ? (@T)1 / sqrt@L(x) : sqrt@L(x));
}
GL_INLINE @T gl_fmod_@S(@T x, @T y) { return fmod@L(x, y); }
GL_INLINE @T gl_copysign_@S(@T x, @T y) { return copysign@L(x, y); }
GL_INLINE @T gl_abs_@S(@T x) { return fabs@L(x); }
GL_INLINE bool gl_isnan_@S(@T x) { return x != x; }
GL_INLINE bool gl_isinf_@S(@T x) { return fabs@L(x) == (@T)INFINITY; }
GL_INLINE bool gl_isfinite_@S(@T x) { return fabs@L(x) < (@T)INFINITY; }
GL_INLINE bool gl_signbit_@S(@T x) { return copysign@L((@T)1, x) < (@T)0; }
GL_INLINE @T gl_sign_@S(@T x) { return x > (@T)0 ? (@T)1 : (x < (@T)0 ? (@T)-1 : x * x); } /* x * x: NaN, and 0 of -0 */
GL_INLINE @T gl_maximum_@S(@T x, @T y) { return x > y || x != x ? x : y; }
GL_INLINE @T gl_minimum_@S(@T x, @T y) { return x < y || x != x ? x : y; }
GL_INLINE @T gl_fmax_@S(@T x, @T y) { return x >= y || y != y ? x : y; }
GL_INLINE @T gl_fmin_@S(@T x, @T y) { return x <= y || y != y ? x : y; }
GL_INLINE @T gl_square_@S(@T x) { return x * x; }
GL_INLINE @T gl_reciprocal_@S(@T x) { return (@T)1 / x; }
GL_INLINE @T gl_true_divide_@S(@T x, @T y) { return x / y; }
GL_INLINE @T gl_remainder_@S(@T x, @T y) {
  const @T r = fmod@L(x, y);
  return r == (@T)0 ? copysign@L(r, y) : ((r < (@T)0) != (y < (@T)0) ? r + y : r);
}
GL_INLINE @T gl_floor_divide_@S(@T x, @T y) {
  const @T r = fmod@L(x, y);
  const @T below = r != (@T)0 && (r < (@T)0) != (y < (@T)0) ? (@T)1 : (@T)0;
  const @T quotient = (x - r) / y - below;
  const @T down = floor@L(quotient);
  const @T nearest = quotient - down > (@T)0.5 ? down + (@T)1 : down;
  return y == (@T)0 ? x / y : (quotient == (@T)0 ? copysign@L((@T)0, x / y) : nearest);
}
GL_INLINE @T gl_sigmoid_@S(@T x) {
  const @T e = gl_exp_@S(-fabs@L(x));
  return (x < (@T)0 ? e : (@T)1) / ((@T)1 + e);
}
GL_INLINE @T gl_logaddexp_@S(@T x, @T y) {
  const @T gap = x == y ? (@T)0 : fabs@L(x - y);
  return gl_maximum_@S(x, y) + gl_log1p_@S(gl_exp_@S(-gap));
}
GL_INLINE @T gl_lerp_@S(@T x, @T y, @T weight) {
  return fabs@L(weight) < (@T)0.5 ? x + weight * (y - x) : y - (y - x) * ((@T)1 - weight);
}
GL_INLINE @T gl_lgamma_@S(@T x) { return (@T)lgamma((double)x); }
