// Functions of integers of either kind: rounding, arithmetic, bits.
GL_INLINE @T gl_floor_@S(@T x) { return x; }
GL_INLINE @T gl_ceil_@S(@T x) { return x; }
GL_INLINE @T gl_trunc_@S(@T x) { return x; }
GL_INLINE @T gl_round_@S(@T x) { return x; }
GL_INLINE bool gl_isnan_@S(@T x) { (void)x; return false; }
GL_INLINE bool gl_isinf_@S(@T x) { (void)x; return false; }
GL_INLINE bool gl_isfinite_@S(@T x) { (void)x; return true; }
GL_INLINE @T gl_maximum_@S(@T x, @T y) { return x > y ? x : y; }
GL_INLINE @T gl_minimum_@S(@T x, @T y) { return x < y ? x : y; }
GL_INLINE @T gl_fmax_@S(@T x, @T y) { return x > y ? x : y; }
GL_INLINE @T gl_fmin_@S(@T x, @T y) { return x < y ? x : y; }
GL_INLINE @T gl_square_@S(@T x) { return (@T)((uint64_t)x * (uint64_t)x); }
GL_INLINE @T gl_bitwise_and_@S(@T x, @T y) { return (@T)(x & y); }
GL_INLINE @T gl_bitwise_or_@S(@T x, @T y) { return (@T)(x | y); }
GL_INLINE @T gl_bitwise_xor_@S(@T x, @T y) { return (@T)(x ^ y); }
GL_INLINE float gl_true_divide_@S(@T x, @T y) { return (float)x / (float)y; }
