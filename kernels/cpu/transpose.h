// Copies that make columns of rows.
#ifndef GRADLAB_TURNING_H
#define GRADLAB_TURNING_H

#include "runtime.h"

namespace gradlab {

constexpr int64_t SIDE = 32;  // of squares of which the first-level cache holds both sides

typedef uint32_t Four __attribute__((vector_size(16)));

inline Four four(const uint32_t* at) {
  Four v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline void put(uint32_t* at, Four v) { std::memcpy(at, &v, sizeof v); }

// A square of four by four.
inline void turn(uint32_t* y, int64_t to, const uint32_t* x, int64_t from) {
  const Four a = four(x), b = four(x + from), c = four(x + 2 * from), d = four(x + 3 * from);
  const Four e = __builtin_shufflevector(a, b, 0, 4, 1, 5), f = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four g = __builtin_shufflevector(c, d, 0, 4, 1, 5), h = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  put(y, __builtin_shufflevector(e, g, 0, 1, 4, 5));
  put(y + to, __builtin_shufflevector(e, g, 2, 3, 6, 7));
  put(y + 2 * to, __builtin_shufflevector(f, h, 0, 1, 4, 5));
  put(y + 3 * to, __builtin_shufflevector(f, h, 2, 3, 6, 7));
}

// A square of 16 by 16: of each side a row is a line of the cache, which is touched once. Where rows lie a power of two apart, the first-level
// cache does not hold 16 lines of a side.
inline void turn_lines(uint32_t* y, int64_t to, const uint32_t* x, int64_t from) {
  alignas(64) uint32_t rows[16 * 16];
  for (int j = 0; j < 16; j += 4)
    for (int i = 0; i < 16; i += 4) turn(rows + i * 16 + j, 16, x + j * from + i, from);
  for (int i = 0; i < 16; ++i) std::memcpy(y + i * to, rows + i * 16, 64);
}

// y[i * to + j] = x[j * from + i] for `rows` i and `columns` j.
template <typename W> inline void turn(W* __restrict__ y, int64_t to, const W* __restrict__ x, int64_t from, int64_t rows, int64_t columns) {
  for (int64_t top = 0; top < rows; top += SIDE)
    for (int64_t left = 0; left < columns; left += SIDE) {
      const int64_t low = top + SIDE < rows ? top + SIDE : rows, right = left + SIDE < columns ? left + SIDE : columns;
      int64_t i = top;
      if constexpr (sizeof(W) == 4) {
        if (low - top == SIDE && right - left == SIDE) {
          for (; i < low; i += 16)
            for (int64_t j = left; j < right; j += 16) turn_lines(y + i * to + j, to, x + j * from + i, from);
          continue;
        }
        for (; i + 4 <= low; i += 4) {
          int64_t j = left;
          for (; j + 4 <= right; j += 4) turn(y + i * to + j, to, x + j * from + i, from);
          for (; j < right; ++j)
            for (int k = 0; k < 4; ++k) y[(i + k) * to + j] = x[j * from + i + k];
        }
      }
      for (; i < low; ++i)
        for (int64_t j = left; j < right; ++j) y[i * to + j] = x[j * from + i];
    }
}

}  // namespace gradlab

#endif
