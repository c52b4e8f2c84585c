// The derivative of norms of rows. float, contiguous.
#include "gemm.h"

namespace {

using V = Wide<float>::type;
constexpr int64_t L = LANES<float>;
inline V all(float x) { return x - V{}; }
inline float sum_of(V v) {
  float lane[L];
  store(lane, v);
  for (int half = L / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}

constexpr int64_t MOST = 64;      // rows of a block
constexpr int64_t LONG = 1 << 12;  // columns of which the first-level cache holds the gradients of weight and bias

// What is added up over a row: its gradient, and that times its normalised elements.
struct Sums {
  V own, along;
};

// Columns `first` to `last` of R rows, added to their sums and to the gradients of weight and bias.
template <int R>
void add_columns(
    const float* dy, const float* x, const float* weight, const float* mean, const float* rstd, int64_t n, int64_t first, int64_t last,
    float* dweight, float* dbias, Sums* sums) {
  V a[R], b[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) a[r] = sums[r].own, b[r] = sums[r].along;
  for (int64_t j = first; j < last; j += L) {
    const V w = weight ? load(weight + j) : all(1);
    V to_weight = load(dweight + j), to_bias = load(dbias + j);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V d = load(dy + r * n + j), h = (load(x + r * n + j) - all(mean[r])) * all(rstd[r]), s = d * w;
      to_bias += d, to_weight = fused(d, h, to_weight);
      a[r] += s, b[r] = fused(s, h, b[r]);
    }
    store(dweight + j, to_weight), store(dbias + j, to_bias);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = {a[r], b[r]};
}

// One row of a layer norm's gradient, whose sums are complete but for the columns behind the last whole vector.
void put_row(
    const float* d, const float* from, const float* weight, float m, float s, int64_t n, float* to, float* dweight, float* dbias,
    const Sums& sums) {
  float own = sum_of(sums.own), along = sum_of(sums.along);
  for (int64_t j = n - n % L; j < n; ++j) {
    const float h = (from[j] - m) * s, scaled = weight ? d[j] * weight[j] : d[j];
    dbias[j] += d[j], dweight[j] += d[j] * h;
    own += scaled, along += scaled * h;
  }
  const float shift = own / float(n), slope = along / float(n);
  for (int64_t j = 0; j < n; ++j) to[j] = s * ((weight ? d[j] * weight[j] : d[j]) - shift - (from[j] - m) * s * slope);
}

}  // namespace

// dx, sums, dy, x, weight, mean, rstd; parameters: rows, columns, whether there is a weight, rows of a block. sums: for each block the
// gradient of the weight, then that of the bias.
GRADLAB_KERNEL gradlab_layer_norm_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t rows = v[0], n = v[1], block = v[3];
  const float *weight = v[2] ? (const float*)p[4] : nullptr, *mean = (const float*)p[5], *rstd = (const float*)p[6];
  const float *dy = (const float*)p[2], *x = (const float*)p[3];
  const Share mine = share((rows + block - 1) / block, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t end = (u + 1) * block < rows ? (u + 1) * block : rows;
    float* dweight = (float*)p[1] + 2 * u * n;
    std::memset(dweight, 0, sizeof(float) * size_t(2 * n));
    // Long rows go together, some columns at a time; of short ones four, while the cache holds them.
    const int64_t whole = n - n % L, group = n > LONG ? MOST : 4;
    for (int64_t top = u * block; top < end; top += group) {
      const int64_t low = top + group < end ? top + group : end;
      Sums sums[MOST];
      for (int64_t r = top; r < low; ++r) sums[r - top] = Sums{};
      if (n <= LONG)
        for (int64_t j = 0; j < 4 * n; j += 16) __builtin_prefetch(dy + (top + 4) * n + j), __builtin_prefetch(x + (top + 4) * n + j);
      for (int64_t first = 0; first < whole; first += LONG) {
        const int64_t last = first + LONG < whole ? first + LONG : whole;
        int64_t r = top;
        for (; r + 4 <= low; r += 4)
          add_columns<4>(dy + r * n, x + r * n, weight, mean + r, rstd + r, n, first, last, dweight, dweight + n, sums + (r - top));
        for (; r < low; ++r)
          add_columns<1>(dy + r * n, x + r * n, weight, mean + r, rstd + r, n, first, last, dweight, dweight + n, sums + (r - top));
      }
      for (int64_t r = top; r < low; ++r)
        put_row(dy + r * n, x + r * n, weight, mean[r], rstd[r], n, (float*)p[0] + r * n, dweight, dweight + n, sums[r - top]);
    }
  }
}

// dweight, dbias, sums; parameters: blocks, columns. Each thread has columns of its own.
GRADLAB_KERNEL gradlab_layer_norm_parameters(char** p, const int64_t* v, int part, int parts) {
  constexpr int64_t WIDE = 64;
  const int64_t n = v[1];
  const Share mine = share(n, part, parts, 16);
  for (int which = 0; which < 2; ++which)
    for (int64_t c = mine.first; c < mine.last; c += WIDE) {
      const int64_t wide = mine.last - c < WIDE ? mine.last - c : WIDE;
      double all[WIDE] = {};
      for (int64_t b = 0; b < v[0]; ++b) {
        const float* from = (const float*)p[2] + (2 * b + which) * n + c;
        for (int64_t j = 0; j < wide; ++j) all[j] += from[j];
      }
      for (int64_t j = 0; j < wide; ++j) ((float*)p[which])[c + j] = float(all[j]);
    }
}
