// Batch norm with the statistics of the batch, and its derivative; both also with a ReLU behind the norm. One channel is one thread's work, so
// that what the first pass reads is still in the cache for the next ones. float; x and y are contiguous [images, channels, places].
#include "sums.h"

#include <cmath>

namespace {

typedef float V __attribute__((vector_size(32)));
typedef float Loose __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int L = 8, TOGETHER = 4;      // lanes; vectors that are added to at a time
constexpr int64_t MOST = 256;           // additions to one float, before it gets inexact
inline V load(const float* at) { return *(const Loose*)at; }
inline void store(float* at, V v) { *(Loose*)at = v; }

struct Layout {
  int64_t images, channels, places;
  int64_t image() const { return channels * places; }
};

// N sums over a channel's places in all images, in running float totals that are emptied into doubles in time. of(x, dy, out): what the
// elements at x and dy add to each. For a row's last elements x is filled up with `fill`, and dy with zeros.
template <int N, typename F> void totals(const float* x, const float* dy, const Layout& s, float fill, double* sums, F of) {
  constexpr int64_t STEP = TOGETHER * L;
  for (int n = 0; n < N; ++n) sums[n] = 0;
  V own[TOGETHER][N] = {};
  int64_t added = 0;
  const auto flush = [&] {
    for (int n = 0; n < N; ++n) {
      for (int u = 0; u < TOGETHER; ++u)
        for (int l = 0; l < L; ++l) sums[n] += own[u][n][l];
      for (int u = 0; u < TOGETHER; ++u) own[u][n] = V{};
    }
    added = 0;
  };
  for (int64_t i = 0; i < s.images; ++i, x += s.image(), dy += s.image())
    for (int64_t first = 0; first < s.places; first += MOST * STEP / 2) {
      const int64_t last = first + MOST * STEP / 2 < s.places ? first + MOST * STEP / 2 : s.places, most = (last - first) / STEP + TOGETHER;
      if (added + most > MOST) flush();
      added += most;
      V some[TOGETHER][N];
      std::memcpy(some, own, sizeof own);
      const auto add = [&](const float* in, const float* slope, int u) {
        V found[N];
        of(in, slope, found);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) some[u][n] += found[n];
      };
      int64_t j = first;
      for (; j + STEP <= last; j += STEP)
#pragma GCC unroll 4
        for (int u = 0; u < TOGETHER; ++u) add(x + j + u * L, dy + j + u * L, u);
      for (; j + L <= last; j += L) add(x + j, dy + j, 0);
      if (j < last) {
        float in[L], slope[L];
        for (int l = 0; l < L; ++l) in[l] = j + l < last ? x[j + l] : fill, slope[l] = j + l < last ? dy[j + l] : 0;
        add(in, slope, 1);
      }
      std::memcpy(own, some, sizeof own);
    }
  flush();
}

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

// The same of distances from `m`, and of their squares.
inline void column_deviations(const float* x, int64_t rows, int64_t step, int64_t wide, const float* m, double* sum, double* squares) {
  for (int64_t j = 0; j < wide; ++j) sum[j] = squares[j] = 0;
  for (int64_t first = 0; first < rows; first += 256) {
    const int64_t last = first + 256 < rows ? first + 256 : rows;
    float some[COLUMNS] = {}, more[COLUMNS] = {};
    for (int64_t r = first; r < last; ++r)
      for (int64_t j = 0; j < wide; ++j) {
        const float d = x[r * step + j] - m[j];
        some[j] += d, more[j] += d * d;
      }
    for (int64_t j = 0; j < wide; ++j) sum[j] += some[j], squares[j] += more[j];
  }
}

// What a channel's results are made of. *mean: at first a number near the mean; sum and squares: of the distances from it, which say what
// it lacks to the mean (see sums.h); x: the channel's first number, of a place, for squares that overflowed and are taken again.
inline void statistics(double sum, double squares, const Layout& s, double eps, const float* x, float* mean, float* var, float* rstd) {
  const double n = double(s.images * s.places), off = sum / n, exact = squares / n - off * off;
  *mean = float(corrected<double>(*mean, off, exact));
  *var = float(exact < 0 ? 0 : exact);
  *rstd = 1 / std::sqrt(*var + float(eps));
  if (*var - *var != 0)
    *var = in_more_range(s.images * s.places, eps, true, mean, rstd, [&](int64_t i) { return x[i / s.places * s.image() + i % s.places]; });
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
    double sum[COLUMNS], squares[COLUMNS];
    column_sums(s.images, wide, sum, [&](int64_t r, int64_t j) { return x[r * s.channels + j]; });
    for (int64_t j = 0; j < wide; ++j) m[j] = float(sum[j] / double(s.images));
    column_deviations(x, s.images, s.channels, wide, m, sum, squares);
    for (int64_t j = 0; j < wide; ++j) {
      statistics(sum[j], squares[j], s, eps, x + j, m + j, var + c + j, rstd + c + j);
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
  Pieces pieces(p, part, parts, s.channels);
  for (Share piece; pieces.next(piece);) {
    const int64_t c = piece.first;
    const float* channel = (const float*)p[4] + c * s.places;
    double sum, sums[2];
    totals<1>(channel, channel, s, 0, &sum, [=](const float* x, const float*, V* out) { out[0] = load(x); });
    const float about = mean[c] = float(sum / n);
    totals<2>(channel, channel, s, about, sums, [=](const float* x, const float*, V* out) {
      const V d = load(x) - about;
      out[0] = d, out[1] = d * d;
    });
    statistics(sums[0], sums[1], s, eps, channel, mean + c, var + c, rstd + c);
    const float m = mean[c];
    const float scale = weight ? rstd[c] * weight[c] : rstd[c], shift = bias ? bias[c] : 0;
    for (int64_t i = 0; i < s.images; ++i) {
      const float* x = (const float*)p[4] + (i * s.channels + c) * s.places;
      float* y = (float*)p[0] + (i * s.channels + c) * s.places;
      apply(x, m, scale, shift, v[7] ? (const float*)p[7] + (i * s.channels + c) * s.places : nullptr, v[6] != 0, s.places, y);
    }
  }
}

// One channel of the derivative; slope(x, dy): the gradients at some places.
template <typename F> void backward_channel(char** p, const Layout& s, int64_t c, float weight, F slope) {
  const float m = ((const float*)p[6])[c], rstd = ((const float*)p[7])[c], n = float(s.images * s.places);
  const float *dy = (const float*)p[3] + c * s.places, *x = (const float*)p[4] + c * s.places;
  double sums[2];
  totals<2>(x, dy, s, m, sums, [=](const float* x, const float* dy, V* out) {
    const V in = load(x), g = slope(in, load(dy));
    out[0] = g, out[1] = g * (in - m);
  });
  const float dbias = ((float*)p[2])[c] = float(sums[0]), dweight = ((float*)p[1])[c] = float(sums[1]) * rstd;
  const float along = dweight * rstd / n, shift = dbias / n, scale = rstd * weight;
  const auto result = [=](const float* x, const float* dy) { const V in = load(x); return (slope(in, load(dy)) - (in - m) * along - shift) * scale; };
  float* dx = (float*)p[0] + c * s.places;
  for (int64_t i = 0; i < s.images; ++i, x += s.image(), dy += s.image(), dx += s.image()) {
    int64_t j = 0;
#pragma GCC ivdep
    for (; j + L <= s.places; j += L) store(dx + j, result(x + j, dy + j));
    if (j < s.places) {
      float in[L] = {}, given[L] = {}, found[L];
      std::memcpy(in, x + j, sizeof(float) * size_t(s.places - j));
      std::memcpy(given, dy + j, sizeof(float) * size_t(s.places - j));
      store(found, result(in, given));
      std::memcpy(dx + j, found, sizeof(float) * size_t(s.places - j));
    }
  }
}

// dx, dweight, dbias, dy, x, weight, mean, rstd, bias; parameters: images, channels, places, whether there is a weight, whether a ReLU
// stands behind the norm
GRADLAB_KERNEL gradlab_batch_norm_backward(char** p, const int64_t* v, int part, int parts) {
  const Layout s = {v[0], v[1], v[2]};
  const float* weight = v[3] ? (const float*)p[5] : nullptr;
  if (s.places == 1) return backward_columns(p, s, weight, share(s.channels, part, parts, 16));
  Pieces pieces(p, part, parts, s.channels);
  for (Share piece; pieces.next(piece);) {
    const int64_t c = piece.first;
    const float w = weight ? weight[c] : 1;
    if (!v[4]) {
      backward_channel(p, s, c, w, [](V, V dy) { return dy; });
      continue;
    }
    const float m = ((const float*)p[6])[c], scale = ((const float*)p[7])[c] * w, shift = ((const float*)p[8])[c];
    backward_channel(p, s, c, w, [=](V x, V dy) { return (x - m) * scale + shift <= 0 ? V{} : dy; });
  }
}
