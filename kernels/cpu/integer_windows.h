// Convolutions of places of 8 bits with 8-bit weights, of up to three dimensions. C and C++.
#ifndef GRADLAB_INTEGER_WINDOWS_H
#define GRADLAB_INTEGER_WINDOWS_H
#include "integer_products.h"

typedef struct {
  int64_t inputs, outputs, groups; /* channels */
  int64_t size[3], made[3], kernel[3], stride[3], padding[3], dilation[3];
} gl_windows;

GL_Q_INLINE int64_t gl_padded(const gl_windows *w, int d) { return w->size[d] + 2 * w->padding[d]; }
GL_Q_INLINE int64_t gl_places_made(const gl_windows *w) { return w->made[0] * w->made[1] * w->made[2]; }
GL_Q_INLINE int64_t gl_products(const gl_windows *w) { return w->inputs / w->groups * w->kernel[0] * w->kernel[1] * w->kernel[2]; }

/* An image (channels, d, h, w) with zeros around it: as it is (planes), or with its channels last. The scale, or NaN. */
GL_Q_APART float gl_quantize_image(const gl_windows *w, const float *x, gl_grid grid, int16_t *out, bool planes) {
  const int64_t high = gl_padded(w, 1), wide = gl_padded(w, 2), n = w->inputs;
  float bad = 0;
  memset(out, 0, (size_t)(gl_padded(w, 0) * high * wide * n) * sizeof *out);
  for (int64_t c = 0; c < n; ++c)
    for (int64_t d = 0; d < w->size[0]; ++d)
      for (int64_t h = 0; h < w->size[1]; ++h, x += w->size[2]) {
        const int64_t row = ((d + w->padding[0]) * high + h + w->padding[1]) * wide + w->padding[2];
        if (planes) {
          bad += gl_to_places(x, w->size[2], grid, out + c * gl_padded(w, 0) * high * wide + row);
          continue;
        }
        for (int64_t i = 0; i < w->size[2]; i += 64) {
          int16_t some[64];
          const int64_t count = w->size[2] - i < 64 ? w->size[2] - i : 64;
          bad += gl_to_places(x + i, count, grid, some);
          for (int64_t j = 0; j < count; ++j) out[(row + i + j) * n + c] = some[j];
        }
      }
  return grid.factor + bad;
}
/* Where the window of a place begins. */
GL_Q_INLINE const int16_t *gl_window_at(const gl_windows *w, const int16_t *image, int64_t place) {
  const int64_t j = place % w->made[2], i = place / w->made[2] % w->made[1], d = place / w->made[2] / w->made[1];
  return image + ((d * w->stride[0] * gl_padded(w, 1) + i * w->stride[1]) * gl_padded(w, 2) + j * w->stride[2]) * w->inputs;
}
/* Places first .. last of one image and group. weight: of the group, (outputs, d, h, w, inputs); space: for (last - first) rows of blocks. */
GL_Q_APART void gl_convolve_8(const gl_windows *w, const int16_t *image, int64_t group, const int8_t *weight, int64_t first, int64_t last, int16_t *space, const gl_results *to) {
  const int64_t own = w->inputs / w->groups, k = gl_products(w), depth = gl_blocks(k), rows = w->outputs / w->groups;
  const bool joined = w->groups == 1 && w->dilation[2] == 1;
  const int64_t run = joined ? own * w->kernel[2] : own, runs = joined ? 1 : w->kernel[2];
  for (int64_t p = first; p < last; ++p) {
    const int16_t *from = gl_window_at(w, image, p) + group * own;
    int16_t *row = space + (p - first) * depth, *at = row;
    for (int64_t d = 0; d < w->kernel[0]; ++d)
      for (int64_t i = 0; i < w->kernel[1]; ++i)
        for (int64_t j = 0; j < runs; ++j, at += run)
          memcpy(at, from + ((d * w->dilation[0] * gl_padded(w, 1) + i * w->dilation[1]) * gl_padded(w, 2) + j * w->dilation[2]) * w->inputs, (size_t)run * sizeof *at);
    for (int64_t i = k; i < depth; ++i) row[i] = 0;
    gl_arrange(row, depth);
  }
  gl_multiply_8(space, last - first, k, weight, 0, rows, to);
}
/* One input for each output (depthwise), images as planes. weight: (outputs, d, h, w). The results of a channel. */
GL_Q_APART void gl_convolve_planes_8(const gl_windows *w, const int16_t *image, int64_t channel, const int8_t *weight, const gl_results *to) {
  const int64_t high = gl_padded(w, 1), wide = gl_padded(w, 2);
  const int16_t *plane = image + channel * gl_padded(w, 0) * high * wide;
  int64_t place = 0;
  for (int64_t z = 0; z < w->made[0]; ++z)
    for (int64_t y = 0; y < w->made[1]; ++y)
      for (int64_t x = 0; x < w->made[2]; x += 64) {
        const int64_t count = w->made[2] - x < 64 ? w->made[2] - x : 64;
        int32_t sum[64] = {0};
        const int8_t *factors = weight;
        for (int64_t d = 0; d < w->kernel[0]; ++d)
          for (int64_t i = 0; i < w->kernel[1]; ++i)
            for (int64_t j = 0; j < w->kernel[2]; ++j) {
              const int32_t factor = *factors++;
              const int64_t line = (z * w->stride[0] + d * w->dilation[0]) * high + y * w->stride[1] + i * w->dilation[1];
              const int16_t *from = plane + line * wide + x * w->stride[2] + j * w->dilation[2];
              if (w->stride[2] == 1)
                for (int64_t l = 0; l < count; ++l) sum[l] += from[l] * factor;
              else
                for (int64_t l = 0; l < count; ++l) sum[l] += from[l * w->stride[2]] * factor;
            }
        const float own = to->factors[0] * to->scale[channel], more = to->bias ? to->bias[channel] : 0.0f;
        for (int64_t l = 0; l < count; ++l) to->y[place + l] = (float)sum[l] * own + more;
        place += count;
      }
}
#endif
