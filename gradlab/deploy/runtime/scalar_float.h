/* ---- float: branch-free polynomials that become vector loops; at most 2 ulp (exp, log), 4 ulp (the others) ---- */

GL_INLINE uint32_t gl_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
GL_INLINE uint64_t gl_bits_double(double x) { uint64_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
GL_INLINE float gl_float_of(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
GL_INLINE float gl_power_of_two(int32_t n) { return gl_float_of((uint32_t)(n + 127) << 23); }
GL_INLINE float gl_between(float x, float low, float high) { x = x < low ? low : x; return x > high ? high : x; }

/* a b + c, rounded once where the machine can; polynomials alone: what a program's own rows say is computed as they say it. */
#if defined(__GNUC__) && (defined(__FMA__) || (defined(__ARM_FEATURE_FMA) && defined(__aarch64__)))
#define GL_FUSED(a, b, c) __builtin_fmaf(a, b, c)
#else
#define GL_FUSED(a, b, c) ((a) * (b) + (c))
#endif
/* x = n ln 2 + r with |r| <= ln(2)/2, and exp(r) - 1 (range reduction of Cody and Waite, 1980). */
GL_INLINE float gl_minus_one_of(float r) {
  float p = 1.393998973e-03f;
  p = GL_FUSED(p, r, 8.366576396e-03f);
  p = GL_FUSED(p, r, 4.166641086e-02f);
  p = GL_FUSED(p, r, 1.666654348e-01f);
  p = GL_FUSED(p, r, 0.5f);
  return GL_FUSED(p * r, r, r);
}
typedef struct { int32_t n; float minus_one; } gl_exponential;
GL_INLINE gl_exponential gl_exponential_of(float x) {
  const float shifted = GL_FUSED(x, 1.442695041f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float r = GL_FUSED(n, -1.428606820e-06f, GL_FUSED(n, -6.931457520e-01f, x));
  gl_exponential e;
  e.n = (int32_t)(gl_bits(shifted) - 0x4b400000u);
  e.minus_one = gl_minus_one_of(r);
  return e;
}
GL_INLINE float gl_scale(float p, int32_t n) { return p * gl_power_of_two(n >> 1) * gl_power_of_two(n - (n >> 1)); }
GL_INLINE float gl_exp_f32(float x) {
  const gl_exponential e = gl_exponential_of(gl_between(x, -104.0f, 89.0f));
  return gl_scale(1.0f + e.minus_one, e.n);
}
GL_INLINE float gl_exp2_f32(float x) {
  x = gl_between(x, -151.0f, 129.0f);
  const float shifted = x + 12582912.0f;
  const float r = (x - (shifted - 12582912.0f)) * 6.931471806e-01f;
  return gl_scale(1.0f + gl_minus_one_of(r), (int32_t)(gl_bits(shifted) - 0x4b400000u));
}
GL_INLINE float gl_expm1_f32(float x) {
  const gl_exponential e = gl_exponential_of(gl_between(x, -30.0f, 89.0f));
  const float half = gl_power_of_two(e.n - 1);
  const float y = GL_FUSED(half, e.minus_one, half - 0.5f) * 2.0f;
  return fabsf(x) < 1e-9f ? x : y;
}
GL_INLINE float gl_tanh_f32(float x) {
  const gl_exponential e = gl_exponential_of(2.0f * gl_between(fabsf(x), 0.0f, 10.0f));
  const float power = gl_power_of_two(e.n);
  const float t = GL_FUSED(power, e.minus_one, power - 1.0f);
  return copysignf(t / (t + 2.0f), x);
}
/* x = m 2^e with sqrt(1/2) <= m < sqrt(2), and log(m). */
typedef struct { float e, log_m; } gl_logarithm;
GL_INLINE gl_logarithm gl_logarithm_of(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t shifted = gl_bits(tiny ? x * 8388608.0f : x) - 0x3f3504f3u;
  const float f = gl_float_of((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float p = -7.636399567e-02f;
  p = GL_FUSED(p, f, 1.276219934e-01f);
  p = GL_FUSED(p, f, -1.315961331e-01f);
  p = GL_FUSED(p, f, 1.420158148e-01f);
  p = GL_FUSED(p, f, -1.662340909e-01f);
  p = GL_FUSED(p, f, 2.000124156e-01f);
  p = GL_FUSED(p, f, -2.500081956e-01f);
  p = GL_FUSED(p, f, 3.333333135e-01f);
  gl_logarithm l;
  l.e = (float)((int32_t)shifted >> 23) - (tiny ? 23.0f : 0.0f);
  l.log_m = GL_FUSED(GL_FUSED(p, f, -0.5f), f * f, f);
  return l;
}
GL_INLINE float gl_at_edges_of_log(float x, float y) {
  y = x == 0.0f ? -INFINITY : y;
  y = x < 0.0f ? NAN : y;
  return x < INFINITY ? y : x;
}
GL_INLINE float gl_log_f32(float x) {
  const gl_logarithm l = gl_logarithm_of(x);
  return gl_at_edges_of_log(x, l.e * 6.931457520e-01f + (l.log_m + l.e * 1.428606820e-06f));
}
GL_INLINE float gl_log2_f32(float x) {
  const gl_logarithm l = gl_logarithm_of(x);
  return gl_at_edges_of_log(x, l.e + l.log_m * 1.442695041f);
}
GL_INLINE float gl_log10_f32(float x) {
  const gl_logarithm l = gl_logarithm_of(x);
  return gl_at_edges_of_log(x, l.e * 3.010253906e-01f + (l.log_m * 4.342944819e-01f + l.e * 4.605038981e-06f));
}
GL_INLINE float gl_log1p_f32(float x) {
  const float u = 1.0f + x;
  const float y = gl_log_f32(u);
  const float lost = (x - (u - 1.0f)) / u;
  return x == 0.0f ? x : (u > 0.0f && u < INFINITY ? y + lost : y);
}
/* Below 1 an odd polynomial; above, 1 - exp(-q(x)). */
GL_INLINE float gl_erf_f32(float x) {
  const float a = fabsf(x), t = a * a;
  float p = 7.920368080e-05f;
  p = GL_FUSED(p, t, -8.030761383e-04f);
  p = GL_FUSED(p, t, 5.190733820e-03f);
  p = GL_FUSED(p, t, -2.685512602e-02f);
  p = GL_FUSED(p, t, 1.128361821e-01f);
  p = GL_FUSED(p, t, -3.761262894e-01f);
  p = GL_FUSED(p, t, 1.283791661e-01f);
  const float b = gl_between(a, 0.0f, 4.0f);
  float q = -1.863801735e-04f;
  q = GL_FUSED(q, b, 2.947674599e-03f);
  q = GL_FUSED(q, b, -2.183814161e-02f);
  q = GL_FUSED(q, b, 1.031069160e-01f);
  q = GL_FUSED(q, b, 6.381446719e-01f);
  q = GL_FUSED(q, b, 1.127089262e+00f);
  q = GL_FUSED(q, b, 3.415129613e-04f);
  const gl_exponential e = gl_exponential_of(-q);
  const float tail = (1.0f + e.minus_one) * gl_power_of_two(e.n);
  return copysignf(a < 1.0f ? GL_FUSED(a, p, a) : 1.0f - tail, x);
}
/* exp(-x^2) times a fit of exp(x^2) erfc(x) from 0 to 10.1, where erfc rounds to 0; `lost` is what rounding took from x^2. */
GL_INLINE float gl_erfc_f32(float x) {
  const float a = gl_between(fabsf(x), 0.0f, 10.1f), s = a * a;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  const float lost = __builtin_fmaf(a, a, -s);
#else
  const float lost = (float)((double)a * (double)a - (double)s);
#endif
  const float p = GL_FUSED(GL_FUSED(GL_FUSED(GL_FUSED(3.279826418e-02f, a, 2.292270958e-01f), a, 7.316215038e-01f), a, 1.238427043e+00f), a, 1.0f);
  const float q = GL_FUSED(GL_FUSED(GL_FUSED(GL_FUSED(5.813271180e-02f, a, 4.063208401e-01f), a, 1.325401068e+00f), a, 2.402267694e+00f), a, 2.366806746e+00f);
  const float tail = gl_exp_f32(-s) * (p / (q * a + 1.0f) * (1.0f - lost));
  return x < 0.0f ? 2.0f - tail : tail;
}
GL_INLINE float gl_hypot_f32(float x, float y) {
  const float h = (float)sqrt((double)x * (double)x + (double)y * (double)y);
  return fabsf(x) == INFINITY || fabsf(y) == INFINITY ? INFINITY : h;
}
/* In double: exact where a float polynomial would need the bits of 2/pi. */
GL_INLINE float gl_sin_f32(float x) { return (float)sin((double)x); }
GL_INLINE float gl_cos_f32(float x) { return (float)cos((double)x); }
GL_INLINE float gl_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
GL_INLINE float gl_round_f32(float x) { return rintf(x); }
