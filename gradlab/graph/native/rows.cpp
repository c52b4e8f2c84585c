// Kernels that work row by row: softmax, cross-entropy, norms, embeddings, the LSTM cell. float, rows contiguous.
#include "gemm.h"
#include "scalar_math.h"

namespace {

using gradlab::exp;
constexpr int ADDENDS = 16;

// Sum and maximum of a row in running totals that vectorise.
template <typename F> inline float total(int64_t n, F of) {
  float lane[ADDENDS] = {};
  int64_t i = 0;
  for (; i + ADDENDS <= n; i += ADDENDS)
    for (int j = 0; j < ADDENDS; ++j) lane[j] += of(i + j);
  float rest = 0;
  for (; i < n; ++i) rest += of(i);
  for (int half = ADDENDS / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0] + rest;
}

inline float largest(const float* x, int64_t n) {
  float lane[ADDENDS];
  for (int j = 0; j < ADDENDS; ++j) lane[j] = -__builtin_inff();
  int64_t i = 0;
  for (; i + ADDENDS <= n; i += ADDENDS)
    for (int j = 0; j < ADDENDS; ++j) lane[j] = x[i + j] > lane[j] || x[i + j] != x[i + j] ? x[i + j] : lane[j];
  for (; i < n; ++i) lane[0] = x[i] > lane[0] || x[i] != x[i] ? x[i] : lane[0];
  float found = lane[0];
  for (int j = 1; j < ADDENDS; ++j) found = lane[j] > found || lane[j] != lane[j] ? lane[j] : found;
  return found;
}

// y = exp(x - m), and its sum.
inline float exponentials(const float* x, float m, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = gradlab::exp(x[i] - m);
  return total(n, [&](int64_t i) { return y[i]; });
}

}  // namespace

// y, x; parameters: rows, columns
GRADLAB_KERNEL gradlab_softmax(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[1] + r * n;
    const float scale = 1 / exponentials(x, largest(x, n), y, n);
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

GRADLAB_KERNEL gradlab_log_softmax(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[1] + r * n;
    const float m = largest(x, n), shift = m + gradlab::log(exponentials(x, m, y, n));
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - shift;
  }
}

// dx, dy, y; parameters: rows, columns
GRADLAB_KERNEL gradlab_softmax_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* dx = (float*)p[0] + r * n;
    const float *dy = (const float*)p[1] + r * n, *y = (const float*)p[2] + r * n;
    const float dot = total(n, [&](int64_t i) { return dy[i] * y[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
  }
}

GRADLAB_KERNEL gradlab_log_softmax_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* dx = (float*)p[0] + r * n;
    const float *dy = (const float*)p[1] + r * n, *y = (const float*)p[2] + r * n;
    const float sum = total(n, [&](int64_t i) { return dy[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - gradlab::exp(y[i]) * sum;
  }
}

// p, losses (one for each row), x, target, status; parameters: rows, classes, ignore_index
GRADLAB_KERNEL gradlab_cross_entropy_rows(char** q, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const int64_t* target = (const int64_t*)q[3];
  float* losses = (float*)q[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)q[0] + r * n;
    const float* x = (const float*)q[2] + r * n;
    const float m = largest(x, n), sum = exponentials(x, m, y, n), scale = 1 / sum;
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    const int64_t t = target[r];
    if (t == v[2]) losses[r] = 0;
    else if (t < 0 || t >= n) *(int64_t*)q[4] = 1;
    else losses[r] = gradlab::log(sum) - (x[t] - m);
  }
}

// y, losses, target; parameters: rows, ignore_index, whether to take the mean
GRADLAB_KERNEL gradlab_cross_entropy_total(char** q, const int64_t* v, int, int) {
  const float* losses = (const float*)q[1];
  const int64_t* target = (const int64_t*)q[2];
  double sum = 0;
  int64_t counted = 0;
  for (int64_t r = 0; r < v[0]; ++r)
    if (target[r] != v[1]) sum += losses[r], ++counted;
  *(float*)q[0] = float(v[2] ? sum / double(counted) : sum);
}

// dx, dy, p, target; parameters: rows, classes, ignore_index, whether the mean was taken, whether dy has one element a row
GRADLAB_KERNEL gradlab_cross_entropy_backward(char** q, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const int64_t* target = (const int64_t*)q[3];
  const float* dy = (const float*)q[1];
  float scale = 1;
  if (v[3]) {
    int64_t counted = 0;
    for (int64_t r = 0; r < v[0]; ++r) counted += target[r] != v[2];
    scale = 1 / float(counted > 0 ? counted : 1);
  }
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* dx = (float*)q[0] + r * n;
    const float* y = (const float*)q[2] + r * n;
    const int64_t t = target[r];
    const float g = t == v[2] ? 0 : (v[4] ? dy[r] : dy[0]) * scale;
    if (t == v[2]) {
      std::memset(dx, 0, sizeof(float) * size_t(n));
      continue;
    }
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * g;
    dx[t] -= g;
  }
}

// y, mean, rstd, x, weight, bias; parameters: rows, columns, eps, whether there is a weight, a bias
GRADLAB_KERNEL gradlab_layer_norm(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const float eps = float(real(v[2]));
  const float *weight = v[3] ? (const float*)p[4] : nullptr, *bias = v[4] ? (const float*)p[5] : nullptr;
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[3] + r * n;
    const float mean = total(n, [&](int64_t i) { return x[i]; }) / float(n);
    const float square = total(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    const float rstd = 1 / __builtin_sqrtf(square / float(n) + eps);
    ((float*)p[1])[r] = mean;
    ((float*)p[2])[r] = rstd;
    if (weight && bias) for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    else for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
  }
}

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
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const float *d = dy + r * n, *from = x + r * n, m = mean[r], s = rstd[r];
    float *to = dx + r * n, own = sum_of(a[r]), along = sum_of(b[r]);
    for (int64_t j = whole; j < n; ++j) {
      const float h = (from[j] - m) * s, scaled = weight ? d[j] * weight[j] : d[j];
      dbias[j] += d[j], dweight[j] += d[j] * h;
      own += scaled, along += scaled * h;
    }
    own /= float(n), along /= float(n);
    for (int64_t j = 0; j < n; ++j) to[j] = s * ((weight ? d[j] * weight[j] : d[j]) - own - (from[j] - m) * s * along);
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

// y, a, b; parameters: elements, whether to take the mean
GRADLAB_KERNEL gradlab_mse(char** p, const int64_t* v, int, int) {
  const float *a = (const float*)p[1], *b = (const float*)p[2];
  double sum = 0;
  for (int64_t first = 0; first < v[0]; first += 4096) {
    const int64_t n = v[0] - first < 4096 ? v[0] - first : 4096;
    sum += total(n, [&](int64_t i) { const float d = a[first + i] - b[first + i]; return d * d; });
  }
  *(float*)p[0] = float(v[1] ? sum / double(v[0]) : sum);
}

// y, weight, at, status; parameters: indices, table rows, columns
GRADLAB_KERNEL gradlab_embedding(char** p, const int64_t* v, int part, int parts) {
  const int64_t* at = (const int64_t*)p[2];
  const int64_t bytes = v[2] * 4;
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    if (at[r] < 0 || at[r] >= v[1]) {
      *(int64_t*)p[3] = 1;
      return;
    }
    std::memcpy(p[0] + r * bytes, p[1] + at[r] * bytes, size_t(bytes));
  }
}

// dw, dy, at; parameters: indices, table rows, columns, padding index or -1. Each thread has columns of its own; rows add up in order.
GRADLAB_KERNEL gradlab_embedding_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t* at = (const int64_t*)p[2];
  const int64_t n = v[2];
  const Share mine = share(n, part, parts, 16);
  const int64_t wide = mine.last - mine.first;
  for (int64_t r = 0; r < v[1]; ++r) std::memset((float*)p[0] + r * n + mine.first, 0, sizeof(float) * size_t(wide));
  for (int64_t r = 0; r < v[0]; ++r) {
    if (at[r] == v[3] || at[r] < 0 || at[r] >= v[1]) continue;
    float* to = (float*)p[0] + at[r] * n + mine.first;
    const float* from = (const float*)p[1] + r * n + mine.first;
    for (int64_t j = 0; j < wide; ++j) to[j] += from[j];
  }
}

// hidden, cell, acts, gates, own, c; parameters: rows, units, then the distance of the rows of gates, own, c
GRADLAB_KERNEL gradlab_lstm_cell(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float *hidden = (float*)p[0] + r * n, *cell = (float*)p[1] + r * n, *acts = (float*)p[2] + r * 4 * n;
    const float *gates = (const float*)p[3] + r * v[2], *own = (const float*)p[4] + r * v[3], *c = (const float*)p[5] + r * v[4];
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const float i = gradlab::sigmoid(gates[j] + own[j]), f = gradlab::sigmoid(gates[n + j] + own[n + j]);
      const float g = gradlab::tanh(gates[2 * n + j] + own[2 * n + j]), o = gradlab::sigmoid(gates[3 * n + j] + own[3 * n + j]);
      const float now = f * c[j] + i * g;
      acts[j] = i, acts[n + j] = f, acts[2 * n + j] = g, acts[3 * n + j] = o;
      cell[j] = now;
      hidden[j] = o * gradlab::tanh(now);
    }
  }
}

// dgates, dold, dh, dc, acts, c, cell; parameters: rows, units, then the distance of the rows of dh, dc, c, cell
GRADLAB_KERNEL gradlab_lstm_cell_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float *d = (float*)p[0] + r * 4 * n, *dold = (float*)p[1] + r * n;
    const float *dh = (const float*)p[2] + r * v[2], *dc = (const float*)p[3] + r * v[3], *acts = (const float*)p[4] + r * 4 * n;
    const float *c = (const float*)p[5] + r * v[4], *cell = (const float*)p[6] + r * v[5];
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const float i = acts[j], f = acts[n + j], g = acts[2 * n + j], o = acts[3 * n + j], t = gradlab::tanh(cell[j]);
      const float k = (1 - t * t) * o * dh[j] + dc[j];
      d[j] = (1 - i) * i * g * k;
      d[n + j] = (1 - f) * f * c[j] * k;
      d[2 * n + j] = (1 - g * g) * i * k;
      d[3 * n + j] = (1 - o) * o * t * dh[j];
      dold[j] = k * f;
    }
  }
}
