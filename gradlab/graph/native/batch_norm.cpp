// Batch norm with the statistics of the batch, and its derivative; both also with a ReLU behind the norm. One channel is one thread's work, so that what the first pass reads
// is still in the cache for the next ones. float; x and y are contiguous [images, channels, places].
#include "runtime.h"

#include <cmath>

namespace {

// A sum of many numbers: running float totals that vectorise, emptied into a double before they get inexact.
struct Sum {
  static constexpr int LANES = 32;
  static constexpr int64_t MOST = 256;  // additions to one total
  float lane[LANES] = {};
  double total = 0;
  int64_t added = 0;

  void flush() {
    for (int j = 0; j < LANES; ++j) total += lane[j], lane[j] = 0;
    added = 0;
  }
  template <typename F> void add(int64_t n, F of) {
    for (int64_t first = 0; first < n; first += MOST * LANES) {
      const int64_t last = first + MOST * LANES < n ? first + MOST * LANES : n;
      if (added + (last - first) / LANES + 1 > MOST) flush();
      added += (last - first) / LANES + 1;
      float own[LANES];
      std::memcpy(own, lane, sizeof own);
      int64_t i = first;
      for (; i + LANES <= last; i += LANES)
        for (int j = 0; j < LANES; ++j) own[j] += of(i + j);
      for (int j = 0; i + j < last; ++j) own[j] += of(i + j);
      std::memcpy(lane, own, sizeof own);
    }
  }
  double value() {
    flush();
    return total;
  }
};

// Many channels of one place each (a matrix): rows are added up, COLUMNS channels at a time.
constexpr int64_t COLUMNS = 64;
template <typename F> void column_sums(int64_t rows, int64_t wide, double* sum, F of) {
  for (int64_t j = 0; j < wide; ++j) sum[j] = 0;
  for (int64_t first = 0; first < rows; first += 256) {
    const int64_t last = first + 256 < rows ? first + 256 : rows;
    float some[COLUMNS] = {};
    for (int64_t r = first; r < last; ++r)
      for (int64_t j = 0; j < wide; ++j) some[j] += of(r, j);
    for (int64_t j = 0; j < wide; ++j) sum[j] += some[j];
  }
}

struct Layout {
  int64_t images, channels, places;
};

// What a channel's results are made of.
inline void statistics(double squares, double n, double eps, float* var, float* rstd) {
  *var = float(squares / n);
  *rstd = 1 / std::sqrt(*var + float(eps));
}

// A channel of an image, normalised; with what is added to it, and without what lies below zero.
inline float normal(float x, float m, float scale, float shift) { return (x - m) * scale + shift; }
inline float above(float v) { return v < 0 ? 0 : v; }  // NaN stays
void apply(const float* x, float m, float scale, float shift, const float* other, bool relu, int64_t n, float* y) {
  if (!relu) for (int64_t j = 0; j < n; ++j) y[j] = normal(x[j], m, scale, shift);
  else if (other == nullptr) for (int64_t j = 0; j < n; ++j) y[j] = above(normal(x[j], m, scale, shift));
  else for (int64_t j = 0; j < n; ++j) y[j] = above(normal(x[j], m, scale, shift) + other[j]);
}

void forward_columns(char** p, const Layout& s, double eps, const float* weight, const float* bias, Share mine) {
  float *mean = (float*)p[1], *rstd = (float*)p[2], *var = (float*)p[3];
  for (int64_t c = mine.first; c < mine.last; c += COLUMNS) {
    const int64_t wide = c + COLUMNS < mine.last ? COLUMNS : mine.last - c;
    const float* x = (const float*)p[4] + c;
    float *y = (float*)p[0] + c, *m = mean + c, scale[COLUMNS], shift[COLUMNS];
    double sum[COLUMNS];
    column_sums(s.images, wide, sum, [&](int64_t r, int64_t j) { return x[r * s.channels + j]; });
    for (int64_t j = 0; j < wide; ++j) m[j] = float(sum[j] / double(s.images));
    column_sums(s.images, wide, sum, [&](int64_t r, int64_t j) { const float d = x[r * s.channels + j] - m[j]; return d * d; });
    for (int64_t j = 0; j < wide; ++j) {
      statistics(sum[j], double(s.images), eps, var + c + j, rstd + c + j);
      scale[j] = weight ? rstd[c + j] * weight[c + j] : rstd[c + j];
      shift[j] = bias ? bias[c + j] : 0;
    }
    for (int64_t r = 0; r < s.images; ++r)
      for (int64_t j = 0; j < wide; ++j) y[r * s.channels + j] = (x[r * s.channels + j] - m[j]) * scale[j] + shift[j];
  }
}

void backward_columns(char** p, const Layout& s, const float* weight, Share mine) {
  const float *mean = (const float*)p[6], *rstd = (const float*)p[7];
  float *dweight = (float*)p[1], *dbias = (float*)p[2];
  const float n = float(s.images);
  for (int64_t c = mine.first; c < mine.last; c += COLUMNS) {
    const int64_t wide = c + COLUMNS < mine.last ? COLUMNS : mine.last - c;
    const float *dy = (const float*)p[3] + c, *x = (const float*)p[4] + c, *m = mean + c;
    float *dx = (float*)p[0] + c, along[COLUMNS], shift[COLUMNS], scale[COLUMNS];
    double sum[COLUMNS], dot[COLUMNS];
    column_sums(s.images, wide, sum, [&](int64_t r, int64_t j) { return dy[r * s.channels + j]; });
    column_sums(s.images, wide, dot, [&](int64_t r, int64_t j) { return dy[r * s.channels + j] * (x[r * s.channels + j] - m[j]); });
    for (int64_t j = 0; j < wide; ++j) {
      dbias[c + j] = float(sum[j]);
      dweight[c + j] = float(dot[j]) * rstd[c + j];
      along[j] = dweight[c + j] * rstd[c + j] / n;
      shift[j] = dbias[c + j] / n;
      scale[j] = weight ? rstd[c + j] * weight[c + j] : rstd[c + j];
    }
    for (int64_t r = 0; r < s.images; ++r)
      for (int64_t j = 0; j < wide; ++j) {
        const int64_t i = r * s.channels + j;
        dx[i] = (dy[i] - (x[i] - m[j]) * along[j] - shift[j]) * scale[j];
      }
  }
}

}  // namespace

// y, mean, rstd, var, x, weight, bias, what is added; parameters: images, channels, places, eps, whether there are a weight and a bias,
// whether a ReLU follows, whether something is added before it
GRADLAB_KERNEL gradlab_batch_norm(char** p, const int64_t* v, int part, int parts) {
  const Layout s = {v[0], v[1], v[2]};
  const double eps = real(v[3]), n = double(s.images * s.places);
  const float *weight = v[4] ? (const float*)p[5] : nullptr, *bias = v[5] ? (const float*)p[6] : nullptr;
  if (s.places == 1) return forward_columns(p, s, eps, weight, bias, share(s.channels, part, parts, 16));
  float *mean = (float*)p[1], *rstd = (float*)p[2], *var = (float*)p[3];
  const Share mine = share(s.channels, part, parts);
  for (int64_t c = mine.first; c < mine.last; ++c) {
    Sum sum, squares;
    for (int64_t i = 0; i < s.images; ++i) {
      const float* x = (const float*)p[4] + (i * s.channels + c) * s.places;
      sum.add(s.places, [=](int64_t j) { return x[j]; });
    }
    const float m = mean[c] = float(sum.value() / n);
    for (int64_t i = 0; i < s.images; ++i) {
      const float* x = (const float*)p[4] + (i * s.channels + c) * s.places;
      squares.add(s.places, [=](int64_t j) { const float d = x[j] - m; return d * d; });
    }
    statistics(squares.value(), n, eps, var + c, rstd + c);
    const float scale = weight ? rstd[c] * weight[c] : rstd[c], shift = bias ? bias[c] : 0;
    for (int64_t i = 0; i < s.images; ++i) {
      const float* x = (const float*)p[4] + (i * s.channels + c) * s.places;
      float* y = (float*)p[0] + (i * s.channels + c) * s.places;
      apply(x, m, scale, shift, v[7] ? (const float*)p[7] + (i * s.channels + c) * s.places : nullptr, v[6] != 0, s.places, y);
    }
  }
}

// The same result once more, from the statistics: y, x, weight, bias, mean, rstd, what is added; parameters: images, channels, places,
// whether something is added
GRADLAB_KERNEL gradlab_batch_norm_relu_again(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0] * v[1], part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t c = u % v[1], at = u * v[2];
    const float scale = ((const float*)p[5])[c] * ((const float*)p[2])[c];
    apply((const float*)p[1] + at, ((const float*)p[4])[c], scale, ((const float*)p[3])[c], v[3] ? (const float*)p[6] + at : nullptr, true, v[2],
          (float*)p[0] + at);
  }
}

// One channel of the derivative; slope(i, j): the gradient at place j of image i.
template <typename F> void backward_channel(char** p, const Layout& s, int64_t c, float weight, F slope) {
  const float m = ((const float*)p[6])[c], rstd = ((const float*)p[7])[c], n = float(s.images * s.places);
  Sum sum, dot;
  for (int64_t i = 0; i < s.images; ++i) {
    const float* x = (const float*)p[4] + (i * s.channels + c) * s.places;
    const auto dy = slope(i);
    sum.add(s.places, [=](int64_t j) { return dy(j); });
    dot.add(s.places, [=](int64_t j) { return dy(j) * (x[j] - m); });
  }
  const float dbias = ((float*)p[2])[c] = float(sum.value()), dweight = ((float*)p[1])[c] = float(dot.value()) * rstd;
  const float along = dweight * rstd / n, shift = dbias / n, scale = rstd * weight;
  for (int64_t i = 0; i < s.images; ++i) {
    const int64_t at = (i * s.channels + c) * s.places;
    const float* x = (const float*)p[4] + at;
    const auto dy = slope(i);
    float* dx = (float*)p[0] + at;
    for (int64_t j = 0; j < s.places; ++j) dx[j] = (dy(j) - (x[j] - m) * along - shift) * scale;
  }
}

// dx, dweight, dbias, dy, x, weight, mean, rstd, bias; parameters: images, channels, places, whether there is a weight, whether a ReLU
// stands behind the norm
GRADLAB_KERNEL gradlab_batch_norm_backward(char** p, const int64_t* v, int part, int parts) {
  const Layout s = {v[0], v[1], v[2]};
  const float* weight = v[3] ? (const float*)p[5] : nullptr;
  if (s.places == 1) return backward_columns(p, s, weight, share(s.channels, part, parts, 16));
  const Share mine = share(s.channels, part, parts);
  for (int64_t c = mine.first; c < mine.last; ++c) {
    const float w = weight ? weight[c] : 1;
    const float* dy = (const float*)p[3] + c * s.places;
    const int64_t image = s.channels * s.places;
    if (!v[4]) {
      backward_channel(p, s, c, w, [=](int64_t i) {
        const float* row = dy + i * image;
        return [=](int64_t j) { return row[j]; };
      });
      continue;
    }
    const float* x = (const float*)p[4] + c * s.places;
    const float m = ((const float*)p[6])[c], scale = ((const float*)p[7])[c] * w, shift = ((const float*)p[8])[c];
    backward_channel(p, s, c, w, [=](int64_t i) {
      const float *row = dy + i * image, *in = x + i * image;
      return [=](int64_t j) { return normal(in[j], m, scale, shift) <= 0 ? 0.0f : row[j]; };
    });
  }
}
