// Functions of doubles from the C library.
GL_INLINE double gl_exp_f64(double x) { return exp(x); }
GL_INLINE double gl_exp2_f64(double x) { return exp2(x); }
GL_INLINE double gl_expm1_f64(double x) { return expm1(x); }
GL_INLINE double gl_tanh_f64(double x) { return tanh(x); }
GL_INLINE double gl_log_f64(double x) { return log(x); }
GL_INLINE double gl_log2_f64(double x) { return log2(x); }
GL_INLINE double gl_log10_f64(double x) { return log10(x); }
GL_INLINE double gl_log1p_f64(double x) { return log1p(x); }
GL_INLINE double gl_erf_f64(double x) { return erf(x); }
GL_INLINE double gl_hypot_f64(double x, double y) { return hypot(x, y); }
GL_INLINE double gl_sin_f64(double x) { return sin(x); }
GL_INLINE double gl_cos_f64(double x) { return cos(x); }
GL_INLINE double gl_rsqrt_f64(double x) { return 1.0 / sqrt(x); }
GL_INLINE double gl_round_f64(double x) { return rint(x); }
GL_INLINE double gl_erfc_f64(double x) { return erfc(x); }
