// What convolution of images and its gradients share. float; results are contiguous.
//
// An image, or a band of its rows, is spread over scratch memory that fits the second-level cache: with its border of zeros, and with
// every stride-th row and column together, so that all that follows has stride 1. There the element that a kernel's place ("tap") meets
// lies at a fixed distance, and a convolution is a product of matrices: the weights times [taps of channels, pixels], of which a panel
// of pixels is packed at a time (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, with the matrix never formed).
#ifndef GRADLAB_CONV_H
#define GRADLAB_CONV_H

#include "images.h"

namespace {

constexpr int64_t WEIGHTS = 1 << 16;  // floats of the weights that stay in the second-level cache
constexpr int64_t DEEPEST = 24576 / sizeof(float) / PANEL<float>;
thread_local Scratch image_scratch;

// Images [n, c, h, w] in memory, and how they are spread: every sy-th row and sx-th column in a plane of its own.
struct Source {
  int64_t n, c, h, w, step[4];  // sizes and strides
  int64_t sy, sx, top, left;    // strides of the convolution; where the first tap of the first pixel lies
  int64_t fy, fx;               // planes that are needed, at most sy and sx
  int64_t width;                // of a spread row
};

inline Source source_of(const int64_t* v) {
  return {v[0], v[1], v[2], v[3], {v[4], v[5], v[6], v[7]}, v[8], v[9], v[10], v[11], v[12], v[13], v[14]};
}
constexpr int SOURCE = 15;

// Of image n, the channels [c0, c1) and `rows` spread rows from `first` on; planes are `plane` apart.
void spread(const float* x, const Source& s, int64_t n, int64_t c0, int64_t c1, int64_t first, int64_t rows, int64_t plane, float* out) {
  for (int64_t c = c0; c < c1; ++c)
    for (int64_t fy = 0; fy < s.fy; ++fy)
      for (int64_t fx = 0; fx < s.fx; ++fx, out += plane) {
        const int64_t from = s.left + fx;  // column t of the plane is column from + t * sx
        const int64_t t0 = least(up(-from, s.sx), s.width), t1 = least(up(s.w - from, s.sx), s.width);
        for (int64_t r = 0; r < rows; ++r) {
          float* row = out + r * s.width;
          const int64_t y = (first + r) * s.sy + fy + s.top;
          if (y < 0 || y >= s.h || t1 <= t0) {
            std::memset(row, 0, sizeof(float) * size_t(s.width));
            continue;
          }
          const float* in = x + n * s.step[0] + c * s.step[1] + y * s.step[2] + from * s.step[3];
          const int64_t step = s.sx * s.step[3];
          for (int64_t t = 0; t < t0; ++t) row[t] = 0;
          if (step == 1) for (int64_t t = t0; t < t1; ++t) row[t] = in[t];
          else if (step == 2) for (int64_t t = t0; t < t1; ++t) row[t] = in[2 * t];
          else for (int64_t t = t0; t < t1; ++t) row[t] = in[t * step];
          for (int64_t t = t1; t < s.width; ++t) row[t] = 0;
        }
      }
}

inline int64_t tap_at(const Source& s, int64_t ty, int64_t tx, int64_t plane) {
  return (ty % s.sy * s.fx + tx % s.sx) * plane + ty / s.sy * s.width + tx / s.sx;
}

// R channels of one panel of pixels. first: they begin with the bias, or with zero; relu: what is below zero becomes zero.
template <int R>
__attribute__((noinline)) void channels_of(const float* a, int64_t a_row, const float* panel, int64_t depth, float* c, int64_t c_row,
                                           int64_t have, bool first, const float* bias, bool relu) {
  V total[R][2];
  float edge[P];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    if (first) {
      total[i][0] = total[i][1] = (bias == nullptr ? 0.0f : bias[i]) - V{};
    } else if (have == P) {
      total[i][0] = load(c + i * c_row), total[i][1] = load(c + i * c_row + L);
    } else {
      for (int64_t j = 0; j < P; ++j) edge[j] = j < have ? c[i * c_row + j] : 0;
      total[i][0] = load(edge), total[i][1] = load(edge + L);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const V low = load(panel + k * P), high = load(panel + k * P + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V s = a[i * a_row + k] - V{};
      total[i][0] = fused(s, low, total[i][0]);
      total[i][1] = fused(s, high, total[i][1]);
    }
  }
  if (relu)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) total[i][0] = total[i][0] < V{} ? V{} : total[i][0], total[i][1] = total[i][1] < V{} ? V{} : total[i][1];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    if (have == P) {
      store(c + i * c_row, total[i][0]), store(c + i * c_row + L, total[i][1]);
    } else {
      store(edge, total[i][0]), store(edge + L, total[i][1]);
      for (int64_t j = 0; j < have; ++j) c[i * c_row + j] = edge[j];
    }
  }
}

template <int R>
void some_channels(int64_t r, const float* a, int64_t a_row, const float* panel, int64_t depth, float* c, int64_t c_row, int64_t have,
                   bool first, const float* bias, bool relu = false) {
  if constexpr (R > 0) {
    if (r == R) channels_of<R>(a, a_row, panel, depth, c, c_row, have, first, bias, relu);
    else some_channels<R - 1>(r, a, a_row, panel, depth, c, c_row, have, first, bias, relu);
  }
}

}  // namespace

#endif
