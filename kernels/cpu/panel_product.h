// Products of a few rows with packed panels, for kernels that go on with what lies in the cache: the cells of recurrent networks. float.
#ifndef GRADLAB_PANEL_PRODUCT_H
#define GRADLAB_PANEL_PRODUCT_H

#include "cells.h"

namespace {

constexpr int64_t P = PANEL<float>, GATES = 4;  // of an LSTM
constexpr int64_t TALL = 4 * ROWS;              // rows of a tile

// The rows of A times one panel, into a tile whose rows are `step` apart, of which the first `width` columns are there. whole: the tile is not
// read. deepest: of a part of the panel that all rows are multiplied with before the next one is read.
inline void panel_product(const float* a, int64_t a_row, const float* panel, int64_t depth, int64_t height, float* tile, int64_t step, bool whole,
                          int64_t width = P, int64_t deepest = WHOLE, const float* bias = nullptr) {
  const Product q = {height, P, depth, a_row, 1, P, 1, step, false, false};
  for (int64_t k = 0; k < depth; k += deepest) {
    const int64_t deep = depth - k < deepest ? depth - k : deepest;
    for (int64_t i = 0, some; i < height; i += some) {
      some = together(height - i);
      some_rows<float, ROWS>(some, a + i * a_row + k, q, panel + k * P, 0, deep, width, tile + i * step, whole && k == 0,
                             k + deep < depth ? nullptr : bias);
    }
  }
}

}  // namespace

#endif
