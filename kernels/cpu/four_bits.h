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
#if defined(__AVX2__)
#define GL_DEEP 16384 /* places of a row at most */
#define GL_SHALLOW 1024 /* and where weights are turned for many rows */
/* 16 numbers of 32 bits as bytes. */
GL_Q_INLINE __m128i gl_narrow_4(__m256i a, __m256i b, bool positive) {
  const __m256i all = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  const __m128i first = _mm256_castsi256_si128(all), last = _mm256_extracti128_si256(all, 1);
  return positive ? _mm_packus_epi16(first, last) : _mm_packs_epi16(first, last);
}
/* One row: the sizes of its places, and their signs, which weights take: products of 8 bits, two sums of 32 at a time. Of each 64 places the even ones
 * come first. */
GL_Q_APART void gl_row_4(const int16_t *a, int64_t depth, const uint8_t *weight, const float *scale, int64_t first, int64_t last, float *sums) {
  const __m256i low = _mm256_set1_epi8(15), middle = _mm256_set1_epi8(8), ones = _mm256_set1_epi16(1);
  uint8_t sizes[GL_DEEP];
  int8_t signs[GL_DEEP];
  memset(sizes + depth / 64 * 64, 0, 64 * (depth % 64 != 0));
  memset(signs + depth / 64 * 64, 0, 64 * (depth % 64 != 0));
  for (int64_t i = 0; i < depth; i += 32) {
    const __m256i *const from = (const __m256i *)(const void *)(a + i);
    const __m256i x = _mm256_loadu_si256(from), y = _mm256_loadu_si256(from + 1);
    const int64_t at = i / 64 * 64 + i % 64 / 2;
    for (int odd = 0; odd < 2; ++odd) {
      const __m256i u = odd ? _mm256_srai_epi32(x, 16) : _mm256_srai_epi32(_mm256_slli_epi32(x, 16), 16);
      const __m256i v = odd ? _mm256_srai_epi32(y, 16) : _mm256_srai_epi32(_mm256_slli_epi32(y, 16), 16);
      const __m256i one = _mm256_set1_epi32(1);
      _mm_storeu_si128((__m128i *)(void *)(sizes + at + 32 * odd), gl_narrow_4(_mm256_abs_epi32(u), _mm256_abs_epi32(v), true));
      _mm_storeu_si128((__m128i *)(void *)(signs + at + 32 * odd), gl_narrow_4(_mm256_sign_epi32(one, u), _mm256_sign_epi32(one, v), false));
    }
  }
  weight += first * (depth / 2), scale += first * (depth / 32);
  for (int64_t c = first; c < last; ++c) {
    __m256 sum = _mm256_setzero_ps();
    for (int64_t at = 0; at < depth; at += 64) {
      const bool two = depth - at > 32;
      const __m128i *const from = (const __m128i *)(const void *)weight;
      const __m256i both = two ? _mm256_loadu_si256((const __m256i *)(const void *)from) : _mm256_castsi128_si256(_mm_loadu_si128(from));
      const __m256i even = _mm256_sub_epi8(_mm256_and_si256(both, low), middle), odd = _mm256_sub_epi8(_mm256_and_si256(_mm256_srli_epi16(both, 4), low), middle);
      const __m256i *const size = (const __m256i *)(const void *)(sizes + at), *const sign = (const __m256i *)(const void *)(signs + at);
      const __m256i left = _mm256_maddubs_epi16(_mm256_loadu_si256(size), _mm256_sign_epi8(even, _mm256_loadu_si256(sign)));
      const __m256i right = _mm256_maddubs_epi16(_mm256_loadu_si256(size + 1), _mm256_sign_epi8(odd, _mm256_loadu_si256(sign + 1)));
      const __m256i total = _mm256_madd_epi16(_mm256_add_epi16(left, right), ones);
      const __m256 own = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_set1_ps(scale[0])), _mm_set1_ps(two ? scale[1] : 0.0f), 1);
      sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(total), own));
      weight += two ? 32 : 16, scale += two ? 2 : 1;
    }
    sums[c - first] = gl_float_total(sum);
  }
}

/* 16 columns of weights 0 .. 15 as fours of a column beside those of the next, their sums of each 32 around 0, and their scales. */
typedef struct { uint8_t fours[16 * GL_SHALLOW]; int32_t sums[GL_SHALLOW / 2]; float scales[GL_SHALLOW / 2]; } gl_turned_4;
GL_Q_APART void gl_turn_4(const uint8_t *weight, const float *scale, int64_t columns, int64_t depth, gl_turned_4 *out) {
  const __m128i low = _mm_set1_epi8(15);
  for (int64_t g = 0; g < depth / 32; ++g)
    for (int64_t c = 0; c < 16; ++c) {
      const int64_t own = c < columns ? c : 0;
      const __m128i both = _mm_loadu_si128((const __m128i *)(const void *)(weight + own * (depth / 2) + g * 16));
      const __m128i even = _mm_and_si128(both, low), odd = _mm_and_si128(_mm_srli_epi16(both, 4), low);
      const __m128i sum = _mm_sad_epu8(_mm_add_epi8(even, odd), _mm_setzero_si128());
      uint8_t bytes[32];
      _mm_storeu_si128((__m128i *)(void *)bytes, _mm_unpacklo_epi8(even, odd));
      _mm_storeu_si128((__m128i *)(void *)(bytes + 16), _mm_unpackhi_epi8(even, odd));
      for (int64_t i = 0; i < 8; ++i) memcpy(out->fours + (g * 8 + i) * 64 + c * 4, bytes + 4 * i, 4);
      out->sums[g * 16 + c] = _mm_cvtsi128_si32(sum) + _mm_extract_epi16(sum, 4) - 256;
      out->scales[g * 16 + c] = scale[own * (depth / 32) + g];
    }
}
/* Rows of bytes, from which `shift` is taken, and 8 times their sums of each 32. The products' sums of 32 stay below 30,721. */
GL_Q_INLINE void gl_tile_4(const int rows, const int8_t *x, const int32_t *eights, int32_t shift, int64_t depth, const gl_turned_4 *w, float *sums) {
  const __m256i ones = _mm256_set1_epi16(1), shifts = _mm256_set1_epi32(shift);
  __m256 sum[4][2];
  GL_Q_UNROLL for (int r = 0; r < rows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  for (int64_t g = 0; g < depth / 32; ++g) {
    __m256i part[4][2];
    GL_Q_UNROLL for (int r = 0; r < rows; ++r) part[r][0] = part[r][1] = _mm256_setzero_si256();
    GL_Q_UNROLL for (int i = 0; i < 8; ++i) {
      const __m256i *const from = (const __m256i *)(const void *)(w->fours + (g * 8 + i) * 64);
      const __m256i left = _mm256_loadu_si256(from), right = _mm256_loadu_si256(from + 1);
      GL_Q_UNROLL for (int r = 0; r < rows; ++r) {
        int32_t four;
        memcpy(&four, x + r * depth + g * 32 + i * 4, 4);
        const __m256i own = _mm256_set1_epi32(four);
        part[r][0] = _mm256_add_epi16(part[r][0], _mm256_maddubs_epi16(left, own));
        part[r][1] = _mm256_add_epi16(part[r][1], _mm256_maddubs_epi16(right, own));
      }
    }
    GL_Q_UNROLL for (int v = 0; v < 2; ++v) {
      const __m256i more = _mm256_mullo_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(w->sums + g * 16 + v * 8)), shifts);
      const __m256 scales = _mm256_loadu_ps(w->scales + g * 16 + v * 8);
      GL_Q_UNROLL for (int r = 0; r < rows; ++r) {
        const __m256i whole = _mm256_add_epi32(_mm256_madd_epi16(part[r][v], ones), more);
        const __m256i total = _mm256_sub_epi32(whole, _mm256_set1_epi32(eights[r * (depth / 32) + g]));
        sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_mul_ps(_mm256_cvtepi32_ps(total), scales));
      }
    }
  }
  GL_Q_UNROLL for (int r = 0; r < rows; ++r) _mm256_storeu_ps(sums + r * 16, sum[r][0]), _mm256_storeu_ps(sums + r * 16 + 8, sum[r][1]);
}
GL_Q_APART void gl_tiles_4(int rows, const int8_t *x, const int32_t *eights, int32_t shift, int64_t depth, const gl_turned_4 *w, float *sums) {
  if (rows == 4) gl_tile_4(4, x, eights, shift, depth, w, sums);
  else
    for (int r = 0; r < rows; ++r) gl_tile_4(1, x + r * depth, eights + r * (depth / 32), shift, depth, w, sums + r * 16);
}
/* Many rows, `some` at a time as bytes; false where their places reach over more than 256 numbers. */
GL_Q_APART bool gl_rows_4(const int16_t *a, int64_t rows, int64_t depth, const uint8_t *weight, const float *scale, int64_t first, int64_t last, const gl_results *to) {
  int8_t bytes[16384];
  int32_t eights[16384 / 32];
  gl_turned_4 turned;
  int16_t least = 0, most = 0;
  for (int64_t i = 0; i < rows * depth; ++i) least = a[i] < least ? a[i] : least, most = a[i] > most ? a[i] : most;
  if (most - least > 255) return false;
  const int32_t shift = least + 128;
  const int64_t some = depth > 0 ? 16384 / depth / 4 * 4 : rows;
  for (int64_t start = 0; start < rows; start += some) {
    const int64_t many = rows - start < some ? rows - start : some;
    for (int64_t i = 0; i < many * depth; i += 32) {
      int32_t sum = 0;
      for (int64_t j = i; j < i + 32; ++j) bytes[j] = (int8_t)(a[start * depth + j] - shift), sum += bytes[j];
      eights[i / 32] = 8 * sum;
    }
    for (int64_t c = first; c < last; c += 16) {
      const int64_t columns = last - c < 16 ? last - c : 16;
      gl_turn_4(weight + c * (depth / 2), scale + c * (depth / 32), columns, depth, &turned);
      for (int64_t r = 0; r < many; r += 4) {
        const int own = many - r < 4 ? (int)(many - r) : 4;
        float sums[64];
        gl_tiles_4(own, bytes + r * depth, eights + r * (depth / 32), shift, depth, &turned, sums);
        for (int i = 0; i < own; ++i)
          for (int64_t j = 0; j < columns; ++j)
            to->y[(start + r + i) * to->row + (c + j) * to->column] = sums[i * 16 + j] * to->factors[start + r + i] + (to->bias ? to->bias[c + j] : 0.0f);
      }
    }
  }
  return true;
}
#endif
/* Weights of 4 bits, (columns, depth / 2), with a scale for each 32 of a column; rows of blocks, or of floats. */
GL_Q_APART void gl_multiply_4(const int16_t *a, const float *x, int64_t rows, int64_t depth, const uint8_t *weight, const float *scale, int64_t first, int64_t last, const gl_results *to) {
#if defined(__AVX2__)
  if (a != NULL && rows >= 4 && depth <= GL_SHALLOW && gl_rows_4(a, rows, depth, weight, scale, first, last, to)) return;
  if (a != NULL && depth <= GL_DEEP) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = first; c < last; c += 256) {
        const int64_t end = last - c < 256 ? last : c + 256;
        float sums[256];
        gl_row_4(a + r * depth, depth, weight, scale, c, end, sums);
        for (int64_t j = c; j < end; ++j) to->y[r * to->row + j * to->column] = sums[j - c] * to->factors[r] + (to->bias ? to->bias[j] : 0.0f);
      }
    return;
  }
#endif
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
