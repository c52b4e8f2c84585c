// The LSTM cell, and its derivative. float, rows contiguous.
#include "runtime.h"
#include "scalar_math.h"

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
