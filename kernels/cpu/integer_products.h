// Products of 8-bit inputs with 8- and 4-bit weights, exact sums in 32 bits. C and C++: the kernels of compiled programs and the C programs of
// gl.deploy are made of it. Inputs lie without their zero point as 16-bit numbers (-255 .. 255), in blocks of 32 that zeros fill up, so that what is
// padded is 0 and nothing has to be taken off a sum; weights lie as they are stored. At most 65,536 products in one sum.
#ifndef GRADLAB_INTEGER_PRODUCTS_H
#define GRADLAB_INTEGER_PRODUCTS_H
/* Every way of running a layer gives the same bits: a number that falls on the border of two places decides what the next layer sees. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define GL_Q_INLINE static inline __attribute__((always_inline, unused))
#define GL_Q_APART static __attribute__((noinline, unused))
#define GL_Q_UNROLL _Pragma("GCC unroll 8")
#else
#define GL_Q_INLINE static inline
#define GL_Q_APART static
#define GL_Q_UNROLL
#endif

#if defined(__AVX512BW__)
#include <immintrin.h>
typedef __m512i gl_sum;
GL_Q_INLINE gl_sum gl_no_sum(void) { return _mm512_setzero_si512(); }
GL_Q_INLINE gl_sum gl_dot(gl_sum sum, const int16_t *a, const int8_t *b) {
  const __m512i x = _mm512_loadu_si512(a), w = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)b));
#if defined(__AVX512VNNI__)
  return _mm512_dpwssd_epi32(sum, x, w);
#else
  return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
#endif
}
GL_Q_INLINE int32_t gl_total(gl_sum sum) { return _mm512_reduce_add_epi32(sum); }
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256i gl_sum;
GL_Q_INLINE gl_sum gl_no_sum(void) { return _mm256_setzero_si256(); }
GL_Q_INLINE __m256i gl_pairs(__m256i sum, const int16_t *a, const int8_t *b) {
  const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)a), w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)b));
#if defined(__AVXVNNI__)
  return _mm256_dpwssd_avx_epi32(sum, x, w);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
#endif
}
GL_Q_INLINE gl_sum gl_dot(gl_sum sum, const int16_t *a, const int8_t *b) { return gl_pairs(gl_pairs(sum, a, b), a + 16, b + 16); }
GL_Q_INLINE int32_t gl_total(gl_sum sum) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
#define GL_FOUR_TOTALS
GL_Q_INLINE void gl_totals(const gl_sum *s, int32_t *out) {
  const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
  _mm_storeu_si128((__m128i *)(void *)out, _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#define GL_Q_BYTES // a block is 32 halves (rounded down) as bytes, then the 32 bits that are left: sums of both are taken apart
typedef int32x4x2_t gl_sum;
GL_Q_INLINE gl_sum gl_no_sum(void) {
  gl_sum sum;
  sum.val[0] = sum.val[1] = vdupq_n_s32(0);
  return sum;
}
GL_Q_INLINE gl_sum gl_dot(gl_sum sum, const int16_t *a, const int8_t *b) {
  const int8_t *x = (const int8_t *)(const void *)a;
  const int8x16_t w0 = vld1q_s8(b), w1 = vld1q_s8(b + 16);
  sum.val[0] = vdotq_s32(vdotq_s32(sum.val[0], vld1q_s8(x), w0), vld1q_s8(x + 16), w1);
  sum.val[1] = vdotq_s32(vdotq_s32(sum.val[1], vld1q_s8(x + 32), w0), vld1q_s8(x + 48), w1);
  return sum;
}
GL_Q_INLINE int32_t gl_total(gl_sum sum) { return 2 * vaddvq_s32(sum.val[0]) + vaddvq_s32(sum.val[1]); }
#elif defined(__ARM_NEON)
#include <arm_neon.h>
typedef int32x4_t gl_sum;
GL_Q_INLINE gl_sum gl_no_sum(void) { return vdupq_n_s32(0); }
GL_Q_INLINE gl_sum gl_dot(gl_sum sum, const int16_t *a, const int8_t *b) {
  for (int i = 0; i < 32; i += 16) {
    const int8x16_t w = vld1q_s8(b + i);
    const int16x8_t low = vmovl_s8(vget_low_s8(w)), high = vmovl_s8(vget_high_s8(w)), x = vld1q_s16(a + i), y = vld1q_s16(a + i + 8);
    sum = vmlal_s16(vmlal_s16(sum, vget_low_s16(x), vget_low_s16(low)), vget_high_s16(x), vget_high_s16(low));
    sum = vmlal_s16(vmlal_s16(sum, vget_low_s16(y), vget_low_s16(high)), vget_high_s16(y), vget_high_s16(high));
  }
  return sum;
}
GL_Q_INLINE int32_t gl_total(gl_sum sum) {
  const int32x2_t half = vadd_s32(vget_low_s32(sum), vget_high_s32(sum));
  return vget_lane_s32(half, 0) + vget_lane_s32(half, 1);
}
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
typedef v128_t gl_sum;
GL_Q_INLINE gl_sum gl_no_sum(void) { return wasm_i32x4_splat(0); }
GL_Q_INLINE gl_sum gl_dot(gl_sum sum, const int16_t *a, const int8_t *b) {
  for (int i = 0; i < 32; i += 8) sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_v128_load(a + i), wasm_i16x8_load8x8(b + i)));
  return sum;
}
GL_Q_INLINE int32_t gl_total(gl_sum sum) {
  return wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1) + wasm_i32x4_extract_lane(sum, 2) + wasm_i32x4_extract_lane(sum, 3);
}
#else
typedef int32_t gl_sum;
GL_Q_INLINE gl_sum gl_no_sum(void) { return 0; }
GL_Q_INLINE gl_sum gl_dot(gl_sum sum, const int16_t *a, const int8_t *b) {
  for (int i = 0; i < 32; ++i) sum += (int32_t)a[i] * b[i];
  return sum;
}
GL_Q_INLINE int32_t gl_total(gl_sum sum) { return sum; }
#endif
#if !defined(GL_FOUR_TOTALS)
GL_Q_INLINE void gl_totals(const gl_sum *s, int32_t *out) {
  for (int i = 0; i < 4; ++i) out[i] = gl_total(s[i]);
}
#endif

GL_Q_INLINE int64_t gl_blocks(int64_t k) { return (k + 31) / 32 * 32; }

/* Blocks as gl_dot reads them. */
GL_Q_INLINE void gl_arrange(int16_t *a, int64_t depth) {
#if defined(GL_Q_BYTES)
  for (int64_t at = 0; at < depth; at += 32) {
    int8_t bytes[64];
    for (int i = 0; i < 32; ++i) {
      bytes[i] = (int8_t)(a[at + i] >> 1);
      bytes[32 + i] = (int8_t)(a[at + i] & 1);
    }
    memcpy(a + at, bytes, sizeof bytes);
  }
#else
  (void)a;
  (void)depth;
#endif
}

/* How inputs are rounded: places low .. high around the zero point, `factor` is the scale. */
typedef struct { float inverse, low, high, factor, zero; } gl_grid;

GL_Q_INLINE gl_grid gl_grid_of(float scale, float zero, float low, float high) {
  const gl_grid grid = {1.0f / scale, low - zero, high - zero, scale, zero};
  return grid;
}
/* That of -128 .. 127 over all numbers and 0; without an end or NaN where the numbers are. */
GL_Q_APART gl_grid gl_grid_over(const float *x, int64_t n) {
  float low = 0, high = 0, whole = 0;
  for (int64_t i = 0; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    whole += x[i] * 0.0f; /* NaN where a number is not finite */
  }
  float scale = (high - low) / 255.0f;
  if (whole != whole || !(scale - scale == 0)) {
    const gl_grid none = {0, 0, 0, whole + (scale - scale), 0};
    return none;
  }
  if (scale < 1e-12f) scale = 1e-12f;
  const float place = low / scale;
  return gl_grid_of(scale, -128.0f - ((place + 12582912.0f) - 12582912.0f), -128, 127);
}
/* Numbers to places. NaN if one of them is NaN, else 0. */
GL_Q_INLINE float gl_to_places(const float *x, int64_t n, gl_grid grid, int16_t *out) {
  int32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    float v = x[i] * grid.inverse;
    bad |= x[i] != x[i];
    v = v > grid.low ? v : grid.low;
    v = v < grid.high ? v : grid.high;
    out[i] = (int16_t)(int32_t)((v + 12582912.0f) - 12582912.0f); /* to the nearest, the even one of two */
  }
  const float none = (float)(bad - 1); /* 0 / 0 is NaN */
  return bad ? none / none : 0.0f;
}
/* Rows of k numbers; factors: a row's scale. */
GL_Q_APART void gl_quantize_rows(const float *x, int64_t rows, int64_t k, gl_grid grid, int16_t *out, float *factors) {
  const int64_t depth = gl_blocks(k);
  for (int64_t r = 0; r < rows; ++r, out += depth) {
    factors[r] = grid.factor + gl_to_places(x + r * k, k, grid, out);
    for (int64_t i = k; i < depth; ++i) out[i] = 0;
    gl_arrange(out, depth);
  }
}

/* y[r][c] = sum · factor of the row · scale of the column + bias of the column, `row` and `column` apart. */
typedef struct { float *y; int64_t row, column; const float *factors; int64_t factor_step; const float *scale, *bias; } gl_results;

GL_Q_INLINE void gl_put(const gl_results *to, int64_t r, int64_t c, float sum) {
  to->y[r * to->row + c * to->column] = sum * (to->factors[r * to->factor_step] * to->scale[c]) + (to->bias ? to->bias[c] : 0.0f);
}

/* One row by up to four columns: weights as they are stored. */
GL_Q_INLINE void gl_row_tile(const int columns, const int16_t *a, const int8_t *b, int64_t k, const gl_results *to, int64_t r, int64_t c) {
  gl_sum sum[4];
  int32_t totals[4];
  GL_Q_UNROLL for (int j = 0; j < 4; ++j) sum[j] = gl_no_sum();
  int64_t at = 0;
  for (; at + 32 <= k; at += 32)
    GL_Q_UNROLL for (int j = 0; j < columns; ++j) sum[j] = gl_dot(sum[j], a + at, b + j * k + at);
  if (at < k)
    GL_Q_UNROLL for (int j = 0; j < columns; ++j) {
      int8_t last[32] = {0};
      memcpy(last, b + j * k + at, (size_t)(k - at));
      sum[j] = gl_dot(sum[j], a + at, last);
    }
  if (columns == 4) {
    gl_totals(sum, totals);
    for (int j = 0; j < 4; ++j) gl_put(to, r, c + j, (float)totals[j]);
  } else
    for (int j = 0; j < columns; ++j) gl_put(to, r, c + j, (float)gl_total(sum[j]));
}
GL_Q_APART void gl_row_whole(const int16_t *a, const int8_t *b, int64_t k, const gl_results *to, int64_t r, int64_t c) { gl_row_tile(4, a, b, k, to, r, c); }
GL_Q_APART void gl_row_rest(int columns, const int16_t *a, const int8_t *b, int64_t k, const gl_results *to, int64_t r, int64_t c) {
  for (int j = 0; j < columns; ++j) gl_row_tile(1, a, b + j * k, k, to, r, c + j);
}

#if defined(__AVX2__)
#define GL_PANEL 1024 /* the longest sums whose weights are turned for many rows */
/* 8 columns of weights: pairs of a column, widened, lie beside those of the next. */
GL_Q_INLINE void gl_turn_columns(const int8_t *const *columns, int64_t depth, int16_t *panel) {
  for (int64_t at = 0; at < depth; at += 16) {
    __m128i a[8], b[8];
    GL_Q_UNROLL for (int j = 0; j < 8; ++j) a[j] = _mm_loadu_si128((const __m128i *)(const void *)(columns[j] + at));
    GL_Q_UNROLL for (int j = 0; j < 4; ++j) {
      b[2 * j] = _mm_unpacklo_epi16(a[2 * j], a[2 * j + 1]);
      b[2 * j + 1] = _mm_unpackhi_epi16(a[2 * j], a[2 * j + 1]);
    }
    GL_Q_UNROLL for (int j = 0; j < 2; ++j)
      GL_Q_UNROLL for (int i = 0; i < 2; ++i) {
        a[4 * j + 2 * i] = _mm_unpacklo_epi32(b[4 * j + i], b[4 * j + 2 + i]);
        a[4 * j + 2 * i + 1] = _mm_unpackhi_epi32(b[4 * j + i], b[4 * j + 2 + i]);
      }
    GL_Q_UNROLL for (int i = 0; i < 4; ++i) {
      b[2 * i] = _mm_unpacklo_epi64(a[i], a[4 + i]);
      b[2 * i + 1] = _mm_unpackhi_epi64(a[i], a[4 + i]);
    }
    GL_Q_UNROLL for (int i = 0; i < 8; ++i)
      _mm256_storeu_si256((__m256i *)(void *)(panel + (at / 2 + i) * 32), _mm256_cvtepi8_epi16(b[i]));
  }
}
GL_Q_APART void gl_turn(const int8_t *weight, int64_t k, int64_t columns, int64_t depth, int16_t *panel) {
  int8_t last[16][32] = {{0}};
  const int64_t whole = k / 32 * 32;
  static const int8_t nothing[32] = {0};
  for (int half = 0; half < 2; ++half) {
    const int8_t *at[8], *rest[8];
    for (int j = 0; j < 8; ++j) {
      const int64_t c = half * 8 + j;
      at[j] = c < columns ? weight + c * k : NULL;
      if (at[j] != NULL) memcpy(last[c], at[j] + whole, (size_t)(k - whole));
      rest[j] = last[c];
    }
    if (columns >= half * 8 + 8) gl_turn_columns(at, whole, panel + half * 16);
    else
      for (int64_t i = 0; i < whole; i += 32) {
        const int8_t *some[8];
        for (int j = 0; j < 8; ++j) some[j] = at[j] != NULL ? at[j] + i : nothing;
        gl_turn_columns(some, 32, panel + i * 16 + half * 16);
      }
    if (whole < depth) gl_turn_columns(rest, 32, panel + whole * 16 + half * 16);
  }
}
GL_Q_INLINE __m256i gl_pair(__m256i sum, __m256i x, __m256i w) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  return _mm256_dpwssd_epi32(sum, x, w);
#elif defined(__AVXVNNI__)
  return _mm256_dpwssd_avx_epi32(sum, x, w);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
#endif
}
/* gcc would load such a value again for each use instead of keeping it in a register. */
#if defined(__GNUC__) && !defined(__clang__)
#define GL_Q_KEEP(v) __asm__("" : "+v"(v))
#else
#define GL_Q_KEEP(v) (void)0
#endif
GL_Q_INLINE void gl_panel_tile(const int rows, const int16_t *a, int64_t depth, const int16_t *panel, int64_t columns, const gl_results *to, int64_t r, int64_t c) {
  __m256i sum[6][2];
  GL_Q_UNROLL for (int i = 0; i < rows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
  for (int64_t at = 0; at < depth; at += 2) {
    __m256i w[2];
    GL_Q_UNROLL for (int v = 0; v < 2; ++v) {
      w[v] = _mm256_loadu_si256((const __m256i *)(const void *)(panel + at * 16 + v * 16));
      GL_Q_KEEP(w[v]);
    }
    GL_Q_UNROLL for (int i = 0; i < rows; ++i) {
      int32_t two;
      memcpy(&two, a + i * depth + at, sizeof two);
      const __m256i x = _mm256_set1_epi32(two);
      GL_Q_UNROLL for (int v = 0; v < 2; ++v) sum[i][v] = gl_pair(sum[i][v], x, w[v]);
    }
  }
  GL_Q_UNROLL for (int i = 0; i < rows; ++i) {
    const float own = to->factors[(r + i) * to->factor_step];
    if (columns == 16 && to->column == 1) {
      float *y = to->y + (r + i) * to->row + c;
      GL_Q_UNROLL for (int v = 0; v < 2; ++v) {
        const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(own), _mm256_loadu_ps(to->scale + c + v * 8));
        const __m256 more = to->bias ? _mm256_loadu_ps(to->bias + c + v * 8) : _mm256_setzero_ps();
        _mm256_storeu_ps(y + v * 8, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][v]), scale), more));
      }
      continue;
    }
    int32_t totals[16];
    GL_Q_UNROLL for (int v = 0; v < 2; ++v) _mm256_storeu_si256((__m256i *)(void *)(totals + v * 8), sum[i][v]);
    for (int64_t j = 0; j < columns; ++j) gl_put(to, r + i, c + j, (float)totals[j]);
  }
}
GL_Q_APART void gl_panel_rows(const int16_t *a, int64_t rows, int64_t depth, const int16_t *panel, int64_t columns, const gl_results *to, int64_t r, int64_t c) {
  const int64_t end = r + rows;
  for (; r + 6 <= end; r += 6, a += 6 * depth) gl_panel_tile(6, a, depth, panel, columns, to, r, c);
  switch (end - r) {
  case 5: gl_panel_tile(5, a, depth, panel, columns, to, r, c); break;
  case 4: gl_panel_tile(4, a, depth, panel, columns, to, r, c); break;
  case 3: gl_panel_tile(3, a, depth, panel, columns, to, r, c); break;
  case 2: gl_panel_tile(2, a, depth, panel, columns, to, r, c); break;
  case 1: gl_panel_tile(1, a, depth, panel, columns, to, r, c); break;
  default: break;
  }
}
#endif

/* Rows of blocks by rows of weights, columns first .. last of the result. */
GL_Q_APART void gl_multiply_8(const int16_t *a, int64_t rows, int64_t k, const int8_t *weight, int64_t first, int64_t last, const gl_results *to) {
  const int64_t depth = gl_blocks(k), some = 16384 / (depth > 0 ? depth : 1) + 1;
#if defined(GL_PANEL)
  if (rows >= 4 && depth <= GL_PANEL) {
    int16_t panel[16 * GL_PANEL];
    for (int64_t c = first; c < last; c += 16) {
      const int64_t columns = last - c < 16 ? last - c : 16;
      gl_turn(weight + c * k, k, columns, depth, panel);
      gl_panel_rows(a, rows, depth, panel, columns, to, 0, c);
    }
    return;
  }
#endif
  for (int64_t start = 0; start < rows; start += some) {
    const int64_t end = start + some < rows ? start + some : rows;
    for (int64_t c = first; c < last; c += 4)
      for (int64_t r = start; r < end; ++r) {
        if (last - c >= 4) gl_row_whole(a + r * depth, weight + c * k, k, to, r, c);
        else gl_row_rest((int)(last - c), a + r * depth, weight + c * k, k, to, r, c);
      }
  }
}
#endif
