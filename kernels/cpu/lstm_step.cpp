// A step of an LSTM together with the product that it begins with: of a block of units all gates' sums are computed for some rows, and while
// they are in the first-level cache, where alone they lie, what the cell makes of them. float.
//
// A step back had gained nothing: what its cell reads comes from farther away than the product's result.
#include "panel_product.h"

// panels, weight: for each gate its panels; parameters: units, depth, gates, distance of the weight's rows, of its columns
GRADLAB_KERNEL gradlab_pack_gates(char** p, const int64_t* v, int part, int parts) {
  const int64_t blocks = (v[0] + P - 1) / P;
  const Product q = {0, v[0], v[1], 0, 0, v[3], v[4], 0, false, false};
  const Share mine = share(blocks * v[2], part, parts);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const int64_t gate = i / blocks, n = i % blocks * P, width = v[0] - n < P ? v[0] - n : P;
    pack((const float*)p[1] + gate * v[0] * v[4], q, 0, q.k, n, width, (float*)p[0] + i * P * q.k);
  }
}

// hidden, cell, acts, h, panels, gates, c and, if the gates' inputs are rows of a table, its indices and the status. Parameters: rows, units,
// depth, the distance of the rows of h, gates, c, and the rows of the table, or 0
GRADLAB_KERNEL gradlab_lstm_step(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1], depth = v[2], blocks = (n + P - 1) / P;
  const int64_t* at = v[6] == 0 ? nullptr : (const int64_t*)p[7];
  // Blocks are shared where all threads have as many: their weights then stay in a thread's cache from step to step.
  Share rows = {0, v[0]}, mine = {0, blocks};
  if (blocks % parts == 0 || blocks >= 4 * parts) mine = share(blocks, part, parts);
  else rows = share(v[0], part, parts);
  alignas(64) float tile[TALL * GATES * P];
  for (int64_t block = mine.first; block < mine.last; ++block)
    for (int64_t low = rows.first; low < rows.last; low += TALL) {
      const int64_t height = rows.last - low < TALL ? rows.last - low : TALL, unit = block * P, width = n - unit < P ? n - unit : P;
      for (int64_t gate = 0; gate < GATES; ++gate)
        panel_product((const float*)p[3] + low * v[3], v[3], (const float*)p[4] + (gate * blocks + block) * P * depth, depth, height,
                      tile + gate * P, GATES * P, true);
      for (int64_t r = low; r < low + height; ++r) {
        const int64_t source = at == nullptr ? r : at[r];
        if (at != nullptr && (source < 0 || source >= v[6])) {
          *(int64_t*)p[8] = 1;
          return;
        }
        float *hidden = (float*)p[0] + r * n + unit, *cell = (float*)p[1] + r * n + unit, *acts = (float*)p[2] + r * GATES * n + unit;
        const float *gates = (const float*)p[5] + source * v[4] + unit, *c = (const float*)p[6] + r * v[5] + unit;
        const float* own = tile + (r - low) * GATES * P;
        each_vector(width, [=](auto full, int64_t j, int64_t have) {
          constexpr bool F = decltype(full)::value;
          const auto sum = [=](int64_t gate) { return some<F>(gates + gate * n + j, have) + load(own + gate * P + j); };
          const Lstm found(sum(0), sum(1), sum(2), sum(3), some<F>(c + j, have));
          put<F>(acts + j, found.i, have), put<F>(acts + n + j, found.f, have);
          put<F>(acts + 2 * n + j, found.g, have), put<F>(acts + 3 * n + j, found.o, have);
          put<F>(cell + j, found.cell, have), put<F>(hidden + j, found.hidden, have);
        });
      }
    }
}
