// Functions of truth values.
GL_INLINE bool gl_floor_b8(bool x) { return x; }
GL_INLINE bool gl_ceil_b8(bool x) { return x; }
GL_INLINE bool gl_trunc_b8(bool x) { return x; }
GL_INLINE bool gl_round_b8(bool x) { return x; }
GL_INLINE bool gl_abs_b8(bool x) { return x; }
GL_INLINE bool gl_sign_b8(bool x) { return x; }
GL_INLINE bool gl_signbit_b8(bool x) { (void)x; return false; }
GL_INLINE bool gl_isnan_b8(bool x) { (void)x; return false; }
GL_INLINE bool gl_isinf_b8(bool x) { (void)x; return false; }
GL_INLINE bool gl_isfinite_b8(bool x) { (void)x; return true; }
GL_INLINE bool gl_maximum_b8(bool x, bool y) { return x || y; }
GL_INLINE bool gl_minimum_b8(bool x, bool y) { return x && y; }
GL_INLINE bool gl_fmax_b8(bool x, bool y) { return x || y; }
GL_INLINE bool gl_fmin_b8(bool x, bool y) { return x && y; }
GL_INLINE bool gl_square_b8(bool x) { return x; }
GL_INLINE bool gl_pow_b8(bool x, bool y) { return x || !y; }
GL_INLINE bool gl_pow_number_b8(bool x, bool y) { return x || !y; }
GL_INLINE bool gl_bitwise_and_b8(bool x, bool y) { return x && y; }
GL_INLINE bool gl_bitwise_or_b8(bool x, bool y) { return x || y; }
GL_INLINE bool gl_bitwise_xor_b8(bool x, bool y) { return x != y; }
GL_INLINE bool gl_bitwise_not_b8(bool x) { return !x; }
