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

// R rows of a layer norm's gradient; the gradients of weight and bias are added to.
template <int R>
void norm_rows(
    const float* dy, const float* x, const float* weight, const float* mean, const float* rstd, int64_t n, float* dx, float* dweight,
    float* dbias) {
  const int64_t whole = n - n % L;
  V a[R] = {}, b[R] = {};
  for (int64_t j = 0; j < whole; j += L) {
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
  float own[R], along[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) own[r] = sum_of(a[r]), along[r] = sum_of(b[r]);
  for (int r = 0; r < R; ++r) {
    const float *d = dy + r * n, *from = x + r * n, m = mean[r], s = rstd[r];
    float* to = dx + r * n;
    for (int64_t j = whole; j < n; ++j) {
      const float h = (from[j] - m) * s, scaled = weight ? d[j] * weight[j] : d[j];
      dbias[j] += d[j], dweight[j] += d[j] * h;
      own[r] += scaled, along[r] += scaled * h;
    }
    const float shift = own[r] / float(n), slope = along[r] / float(n);
    for (int64_t j = 0; j < n; ++j) to[j] = s * ((weight ? d[j] * weight[j] : d[j]) - shift - (from[j] - m) * s * slope);
  }
}

}  // namespace

// dx, sums, dy, x, weight, mean, rstd; parameters: rows, columns, whether there is a weight, rows of a block. sums: for each block the
// gradient of the weight, then that of the bias.
GRADLAB_KERNEL gradlab_layer_norm_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t rows = v[0], n = v[1], block = v[3];
  const float *weight = v[2] ? (const float*)p[4] : nullptr, *mean = (const float*)p[5], *rstd = (const float*)p[6];
  const Share mine = share((rows + block - 1) / block, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t end = (u + 1) * block < rows ? (u + 1) * block : rows;
    float* dweight = (float*)p[1] + 2 * u * n;
    std::memset(dweight, 0, sizeof(float) * size_t(2 * n));
    for (int64_t r = u * block; r < end;) {
      float* dx = (float*)p[0] + r * n;
      const float *dy = (const float*)p[2] + r * n, *x = (const float*)p[3] + r * n;
      for (int64_t j = 0; j < 4 * n; j += 16) __builtin_prefetch(dy + 4 * n + j), __builtin_prefetch(x + 4 * n + j);
      if (end - r >= 4) norm_rows<4>(dy, x, weight, mean + r, rstd + r, n, dx, dweight, dweight + n), r += 4;
      else norm_rows<1>(dy, x, weight, mean + r, rstd + r, n, dx, dweight, dweight + n), ++r;
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
