/* ---- layers with weights of few bits: inputs become places of 8 bits, products are whole numbers, results float ---- */
#include "integer_products.h"
#include "four_bits.h"
#include "integer_windows.h"

/* Weights int8 (n, k), or, where `groups` are given, of 4 bits with a scale for each 32 inputs; whole: inputs of those stay floats. */
GL_UNUSED static void gl_quantized_linear(const gl_team *team, int64_t rows, int64_t n, int64_t k, bool four, bool whole, gl_grid grid, const float *x, const void *weight, const float *scale, const float *bias, float *y, void *space, float *factors) {
  const int64_t depth = gl_blocks(k), wide = team->threads > 1 ? ((n + team->threads - 1) / team->threads + 15) / 16 * 16 : n;
  int16_t *const places = space;
  float *const filled = space;
  if (whole)
    for (int64_t r = 0; r < rows; ++r) {
      memcpy(filled + r * depth, x + r * k, (size_t)k * sizeof *x);
      for (int64_t i = k; i < depth; ++i) filled[r * depth + i] = 0;
    }
  else gl_quantize_rows(x, rows, k, grid, places, factors);
  const gl_results to = {y, n, 1, factors, 1, scale, bias};
  GL_MANY(rows * n * k > 200000, team->threads)
  for (int64_t j = 0; j < n; j += wide) {
    const int64_t end = j + wide < n ? j + wide : n;
    if (four) gl_multiply_4(whole ? NULL : places, whole ? filled : NULL, rows, depth, weight, scale, j, end, &to);
    else gl_multiply_8(places, rows, k, weight, j, end, &to);
  }
}

/* gathered: places whose windows are copied at a time, for each thread. */
GL_UNUSED static void gl_quantized_convolution(const gl_team *team, const gl_windows *w, int64_t n, int64_t gathered, gl_grid grid, const float *x, const int8_t *weight, const float *scale, const float *bias, float *y, int16_t *image) {
  const int64_t each = w->inputs * w->size[0] * w->size[1] * w->size[2], places = gl_places_made(w), rows = w->outputs / w->groups;
  const bool planes = w->groups == w->inputs && rows == 1;
  const int64_t blocks = planes ? 1 : (places + gathered - 1) / gathered, jobs = w->groups * blocks;
  for (int64_t i = 0; i < n; ++i) {
    const float factor = gl_quantize_image(w, x + i * each, grid, image, planes);
    GL_MANY(places * w->outputs * gl_products(w) > 200000, team->threads)
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t group = job / blocks, first = job % blocks * gathered, last = first + gathered < places ? first + gathered : places;
      float *const own = y + (i * w->outputs + group * rows) * places;
      const int8_t *const factors = weight + group * rows * gl_products(w);
      const gl_results to = {planes ? own : own + first, 1, places, &factor, 0, planes ? scale : scale + group * rows, bias == NULL || planes ? bias : bias + group * rows};
      if (planes) gl_convolve_planes_8(w, image, group, factors, &to);
      else gl_convolve_8(w, image, group, factors, first, last, (int16_t *)(void *)(team->own + GL_SELF * team->own_size), &to);
    }
  }
  (void)team;
}
