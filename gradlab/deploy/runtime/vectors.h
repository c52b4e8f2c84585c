/* ---- vectors of floats: what each kind of machine has. GL_MAX and GL_MIN give b where b is NaN. ---- */

#if defined(__AVX512F__)
#include <immintrin.h>
#define GL_LANES 16
#define GL_ROWS 11 /* a twelfth would leave no register for where its rows begin */
#define GL_PANELS 2
typedef __m512 gl_v;
#define GL_LOAD(p) _mm512_loadu_ps(p)
#define GL_STORE(p, v) _mm512_storeu_ps(p, v)
#define GL_SPREAD(x) _mm512_set1_ps(x)
#define GL_ADD(a, b) _mm512_add_ps(a, b)
#define GL_MAX(a, b) _mm512_max_ps(a, b)
#define GL_MIN(a, b) _mm512_min_ps(a, b)
#define GL_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define GL_LANES 8
#define GL_ROWS 6
#define GL_PANELS 1
typedef __m256 gl_v;
#define GL_LOAD(p) _mm256_loadu_ps(p)
#define GL_STORE(p, v) _mm256_storeu_ps(p, v)
#define GL_SPREAD(x) _mm256_set1_ps(x)
#define GL_ADD(a, b) _mm256_add_ps(a, b)
#define GL_MAX(a, b) _mm256_max_ps(a, b)
#define GL_MIN(a, b) _mm256_min_ps(a, b)
#define GL_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define GL_LANES 4
#define GL_PANELS 1
typedef float32x4_t gl_v;
#define GL_LOAD(p) vld1q_f32(p)
#define GL_STORE(p, v) vst1q_f32(p, v)
#define GL_SPREAD(x) vdupq_n_f32(x)
#define GL_ADD(a, b) vaddq_f32(a, b)
#define GL_MAX(a, b) vmaxq_f32(a, b)
#define GL_MIN(a, b) vminq_f32(a, b)
#if defined(__aarch64__)
#define GL_ROWS 6
#else /* 16 registers */
#define GL_ROWS 2
#endif
#if defined(__ARM_FEATURE_FMA)
#define GL_FMA(a, b, c) vfmaq_f32(c, a, b)
#else
#define GL_FMA(a, b, c) vmlaq_f32(c, a, b)
#endif
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define GL_LANES 4
#define GL_ROWS 3
#define GL_PANELS 1
typedef v128_t gl_v;
#define GL_LOAD(p) wasm_v128_load(p)
#define GL_STORE(p, v) wasm_v128_store(p, v)
#define GL_SPREAD(x) wasm_f32x4_splat(x)
#define GL_ADD(a, b) wasm_f32x4_add(a, b)
#define GL_MAX(a, b) wasm_f32x4_max(a, b)
#define GL_MIN(a, b) wasm_f32x4_min(a, b)
#define GL_FMA(a, b, c) wasm_f32x4_add(wasm_f32x4_mul(a, b), c)
#elif defined(__SSE2__)
#include <emmintrin.h>
#define GL_LANES 4
#define GL_ROWS 3
#define GL_PANELS 1
typedef __m128 gl_v;
#define GL_LOAD(p) _mm_loadu_ps(p)
#define GL_STORE(p, v) _mm_storeu_ps(p, v)
#define GL_SPREAD(x) _mm_set1_ps(x)
#define GL_ADD(a, b) _mm_add_ps(a, b)
#define GL_MAX(a, b) _mm_max_ps(a, b)
#define GL_MIN(a, b) _mm_min_ps(a, b)
#define GL_FMA(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#else
#define GL_LANES 1
#define GL_ROWS 2
#define GL_PANELS 1
typedef float gl_v;
#define GL_LOAD(p) (*(p))
#define GL_STORE(p, v) (*(p) = (v))
#define GL_SPREAD(x) (x)
#define GL_ADD(a, b) ((a) + (b))
#define GL_MAX(a, b) ((b) < (a) ? (a) : (b))
#define GL_MIN(a, b) ((b) > (a) ? (a) : (b))
#define GL_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define GL_POSITIVE(a) GL_MAX(GL_SPREAD(0.0f), a)
#if defined(__GNUC__) && GL_LANES > 1
typedef float gl_w __attribute__((vector_size(GL_LANES * 4), aligned(4), may_alias));
typedef int32_t gl_whole __attribute__((vector_size(GL_LANES * 4)));
#else
typedef float gl_w;
#endif
#define GL_GET(p) (*(const gl_w *)(const void *)(p))
#define GL_PUT(p, v) (*(gl_w *)(void *)(p) = (v))
GL_INLINE gl_w gl_all(float x) { return (gl_w)GL_SPREAD(x); }
GL_INLINE gl_w gl_fused(gl_w a, gl_w b, gl_w c) { return (gl_w)GL_FMA((gl_v)a, (gl_v)b, (gl_v)c); }

#if defined(__GNUC__) && GL_LANES > 1
#define GL_VECTORS_f32 1
GL_INLINE gl_w gl_limited(gl_w x, float low, float high) { return (gl_w)GL_MIN(GL_SPREAD(high), GL_MAX(GL_SPREAD(low), (gl_v)x)); }
GL_INLINE gl_w gl_chosen(gl_whole which, gl_w yes, gl_w no) { return (gl_w)(((gl_whole)yes & which) | ((gl_whole)no & ~which)); }
GL_INLINE gl_w gl_without_sign(gl_w x) { return (gl_w)((gl_whole)x & 0x7fffffff); }
GL_INLINE gl_w gl_powers(gl_whole n) { return (gl_w)((n + 127) << 23); }

/* The functions of scalar_float.h, of each. x = n ln 2 + r, and exp(r) - 1: */
GL_INLINE gl_w gl_minus_one_and(gl_w x, gl_whole *n) {
  const gl_w shifted = gl_fused(x, gl_all(1.442695041f), gl_all(12582912.0f)), whole = shifted - 12582912.0f;
  const gl_w r = gl_fused(whole, gl_all(-1.428606820e-06f), gl_fused(whole, gl_all(-6.931457520e-01f), x));
  gl_w p = gl_fused(gl_all(1.393998973e-03f), r, gl_all(8.366576396e-03f));
  p = gl_fused(p, r, gl_all(4.166641086e-02f));
  p = gl_fused(p, r, gl_all(1.666654348e-01f));
  p = gl_fused(p, r, gl_all(0.5f));
  *n = (gl_whole)shifted - 0x4b400000;
  return gl_fused(p * r, r, r);
}
GL_INLINE gl_w gl_exp_of(gl_w x) {
  gl_whole n;
  const gl_w y = 1.0f + gl_minus_one_and(gl_limited(x, -104.0f, 89.0f), &n);
  return y * gl_powers(n >> 1) * gl_powers(n - (n >> 1));
}
GL_INLINE gl_w gl_tanh_of(gl_w x) {
  gl_whole n;
  const gl_w less = gl_minus_one_and(2.0f * gl_limited(gl_without_sign(x), 0.0f, 10.0f), &n), power = gl_powers(n);
  const gl_w t = gl_fused(power, less, power - 1.0f);
  return (gl_w)((gl_whole)(t / (t + 2.0f)) | ((gl_whole)x & INT32_MIN));
}
GL_INLINE gl_w gl_sigmoid_of(gl_w x) {
  const gl_w e = gl_exp_of(-gl_without_sign(x));
  return gl_chosen(x < 0.0f, e, gl_all(1.0f)) / (1.0f + e);
}
/* What cells of recurrent networks divide by and into: sigmoid(x) is 1 / b, tanh(x) is a / b. */
GL_INLINE gl_w gl_below_sigmoid(gl_w x) {
  gl_whole n;
  const gl_w less = gl_minus_one_and(gl_limited(-x, -87.0f, 88.5f), &n), half = gl_powers(n - 1);
  return 1.0f + 2.0f * gl_fused(half, less, half);
}
GL_INLINE gl_w gl_tanh_parts(gl_w x, gl_w *below) {
  gl_whole n;
  const gl_w less = gl_minus_one_and(2.0f * gl_limited(x, -10.0f, 10.0f), &n), power = gl_powers(n), above = gl_fused(power, less, power - 1.0f);
  *below = above + 2.0f;
  return above;
}
GL_INLINE gl_w gl_erfc_of(gl_w x) {
  const gl_w a = gl_limited(gl_without_sign(x), 0.0f, 10.1f), s = a * a;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  const gl_w lost = gl_fused(a, a, -s);
#else /* Dekker's product (1971): halves of a number, whose products are exact */
  const gl_w wide = a * 4097.0f, high = wide - (wide - a), low = a - high, lost = ((high * high - s) + 2.0f * (high * low)) + low * low;
#endif
  gl_w p = gl_fused(gl_all(3.279826418e-02f), a, gl_all(2.292270958e-01f)), q = gl_fused(gl_all(5.813271180e-02f), a, gl_all(4.063208401e-01f));
  p = gl_fused(gl_fused(gl_fused(p, a, gl_all(7.316215038e-01f)), a, gl_all(1.238427043e+00f)), a, gl_all(1.0f));
  q = gl_fused(gl_fused(gl_fused(q, a, gl_all(1.325401068e+00f)), a, gl_all(2.402267694e+00f)), a, gl_all(2.366806746e+00f));
  const gl_w tail = gl_exp_of(-s) * (p / gl_fused(q, a, gl_all(1.0f)) * (1.0f - lost));
  return gl_chosen(x < 0.0f, 2.0f - tail, tail);
}
/* -1000: as the rows have it, where the other factor has long been 0 and infinity times it would be NaN. */
GL_INLINE gl_w gl_from_below(gl_w x) { return (gl_w)GL_MAX(GL_SPREAD(-1000.0f), (gl_v)x); }
GL_INLINE gl_w gl_silu_of(gl_w x) { return gl_from_below(x) * gl_sigmoid_of(x); }
GL_INLINE gl_w gl_gelu_of(gl_w x) { return gl_from_below(x) * (0.5f * gl_erfc_of(x * -0.7071067811865476f)); }
GL_INLINE gl_w gl_gelu_tanh_of(gl_w x) {
  return gl_from_below(x) * gl_sigmoid_of(x * gl_fused(gl_all(0.07135481627260025f) * x, x, gl_all(1.5957691216057308f)));
}
#endif
