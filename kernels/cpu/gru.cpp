// One step of a GRU, there and back: everything between the matrix products in one pass over the gates. float, rows contiguous.
#include "cells.h"

// hidden, acts, gates, own, h; parameters: rows, units, then the distance of the rows of gates, own, h
GRADLAB_KERNEL gradlab_gru_cell(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t row = mine.first; row < mine.last; ++row) {
    float *hidden = (float*)p[0] + row * n, *acts = (float*)p[1] + row * 3 * n;
    const float *gates = (const float*)p[2] + row * v[2], *own = (const float*)p[3] + row * v[3], *h = (const float*)p[4] + row * v[4];
    each_vector(n, [=](auto full, int64_t j, int64_t have) {
      constexpr bool F = decltype(full)::value;
      const auto sum = [=](int64_t at) { return some<F>(gates + at + j, have) + some<F>(own + at + j, have); };
      const V r = sigmoid(sum(0)), z = sigmoid(sum(n));
      const V t = hyperbolic_tangent(fused(r, some<F>(own + 2 * n + j, have), some<F>(gates + 2 * n + j, have)));
      put<F>(acts + j, r, have), put<F>(acts + n + j, z, have), put<F>(acts + 2 * n + j, t, have);
      put<F>(hidden + j, fused(z, some<F>(h + j, have) - t, t), have);
    });
  }
}

// dgates, down, dold, dh, acts, own, h; parameters: rows, units, then the distance of the rows of dh, own, h
GRADLAB_KERNEL gradlab_gru_cell_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const V one = all(1);
  const Share mine = share(v[0], part, parts);
  for (int64_t row = mine.first; row < mine.last; ++row) {
    float *d = (float*)p[0] + row * 3 * n, *down = (float*)p[1] + row * 3 * n, *dold = (float*)p[2] + row * n;
    const float *dh = (const float*)p[3] + row * v[2], *acts = (const float*)p[4] + row * 3 * n;
    const float *own = (const float*)p[5] + row * v[3], *h = (const float*)p[6] + row * v[4];
    each_vector(n, [=](auto full, int64_t j, int64_t have) {
      constexpr bool F = decltype(full)::value;
      const V r = some<F>(acts + j, have), z = some<F>(acts + n + j, have), t = some<F>(acts + 2 * n + j, have), g = some<F>(dh + j, have);
      const V dt = (one - t * t) * (one - z) * g, dr = (one - r) * r * dt * some<F>(own + 2 * n + j, have);
      const V dz = (one - z) * z * (some<F>(h + j, have) - t) * g;
      put<F>(d + j, dr, have), put<F>(d + n + j, dz, have), put<F>(d + 2 * n + j, dt, have);
      put<F>(down + j, dr, have), put<F>(down + n + j, dz, have), put<F>(down + 2 * n + j, dt * r, have);
      put<F>(dold + j, g * z, have);
    });
  }
}
