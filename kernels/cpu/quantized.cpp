// Layers with weights of few bits: inputs made places of 8 bits, products in whole numbers, results float.
#include "runtime.h"

#include "four_bits.h"
#include "integer_windows.h"

constexpr int64_t GROUPED = 32;  // places of an image that a thread gathers at a time

static gl_grid grid_of(const int64_t* v, const char* scale, const char* zero) {
  if (!v[0]) return *(const gl_grid*)(const void*)scale;
  const float middle = v[1] == 8 ? float(*(const int64_t*)(const void*)zero) : float(*(const int32_t*)(const void*)zero);
  return gl_grid_of(*(const float*)(const void*)scale, middle, float(v[2]), float(v[3]));
}

// grid, x; parameters: numbers. Over the range of x.
GRADLAB_KERNEL gradlab_quantized_range(char** p, const int64_t* v, int, int) { *(gl_grid*)(void*)p[0] = gl_grid_over((const float*)p[1], v[0]); }

// places, factors, x, scale or grid, zero; parameters: whether a scale is given, bytes of the zero point, low, high, rows, k
GRADLAB_KERNEL gradlab_quantized_rows(char** p, const int64_t* v, int part, int parts) {
  const int64_t k = v[5];
  const Share mine = share(v[4], part, parts);
  gl_quantize_rows((const float*)p[2] + mine.first * k, mine.last - mine.first, k, grid_of(v, p[3], p[4]),
                   (int16_t*)p[0] + mine.first * gl_blocks(k), (float*)p[1] + mine.first);
}

// y, places, factors, weight, scale, bias; parameters: rows, n, k, whether there is a bias
GRADLAB_KERNEL gradlab_quantized_product(char** p, const int64_t* v, int part, int parts) {
  const int64_t rows = v[0], n = v[1], k = v[2];
  const gl_results to = {(float*)p[0], n, 1, (const float*)p[2], 1, (const float*)p[4], v[3] ? (const float*)p[5] : nullptr};
  if (rows >= 4 * parts) {
    const Share mine = share(rows, part, parts, 2);
    const gl_results own = {to.y + mine.first * n, n, 1, to.factors + mine.first, 1, to.scale, to.bias};
    gl_multiply_8((const int16_t*)p[1] + mine.first * gl_blocks(k), mine.last - mine.first, k, (const int8_t*)p[3], 0, n, &own);
    return;
  }
  const Share mine = share(n, part, parts, 4);
  gl_multiply_8((const int16_t*)p[1], rows, k, (const int8_t*)p[3], mine.first, mine.last, &to);
}

// out, x; parameters: rows, k. Rows of floats filled up with zeros.
GRADLAB_KERNEL gradlab_quantized_fill(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0], part, parts);
  const int64_t k = v[1], depth = gl_blocks(k);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* out = (float*)p[0] + r * depth;
    std::memcpy(out, (const float*)p[1] + r * k, size_t(k) * sizeof *out);
    for (int64_t i = k; i < depth; ++i) out[i] = 0;
  }
}

// y, places or floats, factors, weight, scale, bias; parameters: rows, n, k, whether there is a bias, whether places are given
GRADLAB_KERNEL gradlab_quantized_product4(char** p, const int64_t* v, int part, int parts) {
  const gl_results to = {(float*)p[0], v[1], 1, (const float*)p[2], 1, nullptr, v[3] ? (const float*)p[5] : nullptr};
  const Share mine = share(v[1], part, parts);
  gl_multiply_4(v[4] ? (const int16_t*)p[1] : nullptr, v[4] ? nullptr : (const float*)p[1], v[0], gl_blocks(v[2]), (const uint8_t*)p[3],
                (const float*)p[4], mine.first, mine.last, &to);
}

static gl_windows windows(const int64_t* v) {
  gl_windows w = {v[0], v[1], v[2], {}, {}, {}, {}, {}, {}};
  for (int d = 0; d < 3; ++d) {
    w.size[d] = v[3 + d], w.made[d] = v[6 + d], w.kernel[d] = v[9 + d];
    w.stride[d] = v[12 + d], w.padding[d] = v[15 + d], w.dilation[d] = v[18 + d];
  }
  return w;
}
static int64_t image_size(const gl_windows& w) { return gl_padded(&w, 0) * gl_padded(&w, 1) * gl_padded(&w, 2) * w.inputs; }

// images, factors, x, scale or grid, zero; parameters: whether a scale is given, bytes of the zero point, low, high, n, planes, windows
GRADLAB_KERNEL gradlab_quantized_images(char** p, const int64_t* v, int part, int parts) {
  const gl_windows w = windows(v + 6);
  const gl_grid grid = grid_of(v, p[3], p[4]);
  const Share mine = share(v[4], part, parts);
  const int64_t each = w.inputs * w.size[0] * w.size[1] * w.size[2];
  for (int64_t i = mine.first; i < mine.last; ++i)
    ((float*)p[1])[i] = gl_quantize_image(&w, (const float*)p[2] + i * each, grid, (int16_t*)p[0] + i * image_size(w), v[5]);
}

// y, images, factors, weight, scale, bias, space; parameters: n, whether there is a bias, bytes of the space of a thread, windows
GRADLAB_KERNEL gradlab_quantized_convolution(char** p, const int64_t* v, int part, int parts) {
  const gl_windows w = windows(v + 3);
  const int64_t places = gl_places_made(&w), blocks = (places + GROUPED - 1) / GROUPED, rows = w.outputs / w.groups;
  const bool planes = w.groups == w.inputs && rows == 1;
  int16_t* space = (int16_t*)(p[6] + part * v[2]);
  const int64_t kinds = planes ? w.outputs : w.groups, jobs = planes ? 1 : blocks;
  const Share mine = share(v[0] * kinds * jobs, part, parts);
  for (int64_t job = mine.first; job < mine.last; ++job) {
    const int64_t block = job % jobs, group = job / jobs % kinds, image = job / jobs / kinds;
    const int64_t first = block * GROUPED, last = first + GROUPED < places ? first + GROUPED : places;
    const int16_t* from = (const int16_t*)p[1] + image * image_size(w);
    const gl_results to = {(float*)p[0] + (image * w.outputs + group * rows) * places + first, 1, places, (const float*)p[2] + image, 0,
                           (const float*)p[4] + (planes ? 0 : group * rows), v[1] ? (const float*)p[5] + (planes ? 0 : group * rows) : nullptr};
    const int8_t* weight = (const int8_t*)p[3] + group * rows * gl_products(&w);
    if (planes) gl_convolve_planes_8(&w, from, group, weight, &to);
    else gl_convolve_8(&w, from, group, weight, first, last, space, &to);
  }
}
