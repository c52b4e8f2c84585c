// The LSTM cell, and its derivative. float, rows contiguous.
#include "cells.h"

// hidden, cell, acts, gates, own, c; parameters: rows, units, then the distance of the rows of gates, own, c
GRADLAB_KERNEL gradlab_lstm_cell(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float *hidden = (float*)p[0] + r * n, *cell = (float*)p[1] + r * n, *acts = (float*)p[2] + r * 4 * n;
    const float *gates = (const float*)p[3] + r * v[2], *own = (const float*)p[4] + r * v[3], *c = (const float*)p[5] + r * v[4];
    each_vector(n, [=](auto full, int64_t j, int64_t have) {
      constexpr bool F = decltype(full)::value;
      const auto sum = [=](int64_t at) { return some<F>(gates + at + j, have) + some<F>(own + at + j, have); };
      const Lstm found(sum(0), sum(n), sum(2 * n), sum(3 * n), some<F>(c + j, have));
      put<F>(acts + j, found.i, have), put<F>(acts + n + j, found.f, have), put<F>(acts + 2 * n + j, found.g, have), put<F>(acts + 3 * n + j, found.o, have);
      put<F>(cell + j, found.cell, have), put<F>(hidden + j, found.hidden, have);
    });
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
    each_vector(n, [=](auto full, int64_t j, int64_t have) {
      constexpr bool F = decltype(full)::value;
      const auto of = [=](const float* at) { return some<F>(at + j, have); };
      const LstmSlopes found(of(dh), of(dc), of(acts), of(acts + n), of(acts + 2 * n), of(acts + 3 * n), of(c), of(cell));
      put<F>(d + j, found.i, have), put<F>(d + n + j, found.f, have), put<F>(d + 2 * n + j, found.g, have), put<F>(d + 3 * n + j, found.o, have);
      put<F>(dold + j, found.old, have);
    });
  }
}
