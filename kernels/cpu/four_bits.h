// Products with weights of 4 bits, in groups of 32 with a scale each: of places of 8 bits, in whole numbers within a group, or of floats. C and C++.
#ifndef GRADLAB_FOUR_BITS_H
#define GRADLAB_FOUR_BITS_H
#include "integer_products.h"

/* 32 weights of 4 bits, two in a byte, around 0. */
GL_Q_INLINE void gl_unpack_4(const uint8_t *packed, int8_t *out) {
  for (int i = 0; i < 16; ++i) {
    out[2 * i] = (int8_t)((packed[i] & 15) - 8);
    out[2 * i + 1] = (int8_t)((packed[i] >> 4) - 8);
  }
}
#if defined(__AVX2__)
GL_Q_INLINE float gl_float_total(__m256 sum) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
/* sums[r] of one column, up to 8 rows. */
GL_Q_INLINE void gl_column_4(const int rows, const int16_t *a, const float *x, int64_t depth, const uint8_t *weight, const float *scale, float *sums) {
  const __m128i low = _mm_set1_epi8(15), middle = _mm_set1_epi8(8);
  __m256 sum[8];
  GL_Q_UNROLL for (int r = 0; r < rows; ++r) sum[r] = _mm256_setzero_ps();
  for (int64_t at = 0; at < depth; at += 32, weight += 16, ++scale) {
    const __m128i both = _mm_loadu_si128((const __m128i *)(const void *)weight);
    const __m128i even = _mm_and_si128(both, low), odd = _mm_and_si128(_mm_srli_epi16(both, 4), low);
    const __m128i b[2] = {_mm_sub_epi8(_mm_unpacklo_epi8(even, odd), middle), _mm_sub_epi8(_mm_unpackhi_epi8(even, odd), middle)};
    const __m256 own = _mm256_set1_ps(*scale);
    if (a != NULL) {
      const __m256i w0 = _mm256_cvtepi8_epi16(b[0]), w1 = _mm256_cvtepi8_epi16(b[1]);
      GL_Q_UNROLL for (int r = 0; r < rows; ++r) {
        const int16_t *line = a + r * depth + at;
        const __m256i x0 = _mm256_loadu_si256((const __m256i *)(const void *)line), x1 = _mm256_loadu_si256((const __m256i *)(const void *)(line + 16));
        const __m256i total = _mm256_add_epi32(_mm256_madd_epi16(x0, w0), _mm256_madd_epi16(x1, w1));
        sum[r] = _mm256_add_ps(sum[r], _mm256_mul_ps(_mm256_cvtepi32_ps(total), own));
      }
    } else {
      __m256 w[4];
      GL_Q_UNROLL for (int i = 0; i < 4; ++i)
        w[i] = _mm256_mul_ps(own, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(i % 2 ? _mm_srli_si128(b[i / 2], 8) : b[i / 2])));
      GL_Q_UNROLL for (int r = 0; r < rows; ++r)
        GL_Q_UNROLL for (int i = 0; i < 4; ++i) sum[r] = _mm256_add_ps(sum[r], _mm256_mul_ps(_mm256_loadu_ps(x + r * depth + at + i * 8), w[i]));
    }
  }
  for (int r = 0; r < rows; ++r) sums[r] = gl_float_total(sum[r]);
}
GL_Q_APART void gl_sums_4(int rows, const int16_t *a, const float *x, int64_t depth, const uint8_t *weight, const float *scale, float *sums) {
  if (rows == 8 && a != NULL) gl_column_4(8, a, NULL, depth, weight, scale, sums);
  else if (rows == 8) gl_column_4(8, NULL, x, depth, weight, scale, sums);
  else
    for (int r = 0; r < rows; ++r) {
      if (a != NULL) gl_column_4(1, a + r * depth, NULL, depth, weight, scale, sums + r);
      else gl_column_4(1, NULL, x + r * depth, depth, weight, scale, sums + r);
    }
}
#else
GL_Q_APART void gl_sums_4(int rows, const int16_t *a, const float *x, int64_t depth, const uint8_t *weight, const float *scale, float *sums) {
  for (int r = 0; r < rows; ++r) sums[r] = 0;
  for (int64_t at = 0; at < depth; at += 32, weight += 16, ++scale) {
    int8_t b[32];
    gl_unpack_4(weight, b);
    for (int r = 0; r < rows; ++r) {
      if (a != NULL) {
        sums[r] += *scale * (float)gl_total(gl_dot(gl_no_sum(), a + r * depth + at, b));
        continue;
      }
      float part[8] = {0};
      for (int j = 0; j < 32; j += 8)
        for (int i = 0; i < 8; ++i) part[i] += x[r * depth + at + j + i] * (float)b[j + i];
      sums[r] += *scale * (((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7])));
    }
  }
}
#endif
/* Weights of 4 bits, (columns, depth / 2), with a scale for each 32 of a column; rows of blocks, or of floats. */
GL_Q_APART void gl_multiply_4(const int16_t *a, const float *x, int64_t rows, int64_t depth, const uint8_t *weight, const float *scale, int64_t first, int64_t last, const gl_results *to) {
  for (int64_t start = 0; start < rows; start += 8) {
    const int some = rows - start < 8 ? (int)(rows - start) : 8;
    for (int64_t c = first; c < last; ++c) {
      float sums[8];
      gl_sums_4(some, a != NULL ? a + start * depth : NULL, x != NULL ? x + start * depth : NULL, depth, weight + c * (depth / 2), scale + c * (depth / 32), sums);
      for (int r = 0; r < some; ++r)
        to->y[(start + r) * to->row + c * to->column] = sums[r] * (a != NULL ? to->factors[start + r] : 1.0f) + (to->bias ? to->bias[c] : 0.0f);
    }
  }
}
#endif
