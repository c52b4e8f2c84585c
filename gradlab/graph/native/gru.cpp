// One step of a GRU, there and back: everything between the matrix products in one pass over the gates. float, rows contiguous.
#include "runtime.h"
#include "scalar_math.h"

// hidden, acts, gates, own, h; parameters: rows, units, then the distance of the rows of gates, own, h
GRADLAB_KERNEL gradlab_gru_cell(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t row = mine.first; row < mine.last; ++row) {
    float *hidden = (float*)p[0] + row * n, *acts = (float*)p[1] + row * 3 * n;
    const float *gates = (const float*)p[2] + row * v[2], *own = (const float*)p[3] + row * v[3], *h = (const float*)p[4] + row * v[4];
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const float r = gradlab::sigmoid(gates[j] + own[j]), z = gradlab::sigmoid(gates[n + j] + own[n + j]);
      const float t = gradlab::tanh(gates[2 * n + j] + r * own[2 * n + j]);
      acts[j] = r, acts[n + j] = z, acts[2 * n + j] = t;
      hidden[j] = t + z * (h[j] - t);
    }
  }
}

// dgates, down, dold, dh, acts, own, h; parameters: rows, units, then the distance of the rows of dh, own, h
GRADLAB_KERNEL gradlab_gru_cell_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t row = mine.first; row < mine.last; ++row) {
    float *d = (float*)p[0] + row * 3 * n, *down = (float*)p[1] + row * 3 * n, *dold = (float*)p[2] + row * n;
    const float *dh = (const float*)p[3] + row * v[2], *acts = (const float*)p[4] + row * 3 * n;
    const float *own = (const float*)p[5] + row * v[3], *h = (const float*)p[6] + row * v[4];
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const float r = acts[j], z = acts[n + j], t = acts[2 * n + j];
      const float dt = (1 - t * t) * (1 - z) * dh[j], dr = (1 - r) * r * dt * own[2 * n + j], dz = (1 - z) * z * (h[j] - t) * dh[j];
      d[j] = dr, d[n + j] = dz, d[2 * n + j] = dt;
      down[j] = dr, down[n + j] = dz, down[2 * n + j] = dt * r;
      dold[j] = dh[j] * z;
    }
  }
}
