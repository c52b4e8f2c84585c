// Products with few rows, in float32: each number of the second matrix is needed once or twice, so nothing is packed. c = a b (+ bias).
// Parts of the file: 8 rows of b that are read from end to end, 9 to 11 columns, and one to three rows of a.
#include "epilogues.h"

namespace {

constexpr int SIDE = 4;  // columns or rows of b that go together
constexpr int64_t WIDE = 1024;  // columns of which a row of c stays in the first-level cache, beside such rows of b

inline float total(V x) {
  float lanes[L], found = 0;
  store(lanes, x);
  for (int i = 0; i < L; ++i) found += lanes[i];
  return found;
}

// Rows of a times columns of b that lie one behind the other: a sum along each.
template <int ROWS_OF_A, int COLUMNS>
inline __attribute__((always_inline)) void along(const float* a, int64_t a_row, const float* b, int64_t column, int64_t k, float* c, int64_t c_row) {
  constexpr int64_t PARTS = int64_t(ROWS_OF_A) * COLUMNS <= 4 ? 2 : 1;  // of a sum, where there are too few sums for none to wait
  V sums[ROWS_OF_A][COLUMNS][PARTS] = {};
  int64_t i = 0;
  for (; i + PARTS * L <= k; i += PARTS * L) {
#pragma GCC unroll 2
    for (int64_t p = 0; p < PARTS; ++p) {
      V x[ROWS_OF_A];
#pragma GCC unroll 4
      for (int r = 0; r < ROWS_OF_A; ++r) x[r] = load(a + r * a_row + i + p * L);
#pragma GCC unroll 4
      for (int j = 0; j < COLUMNS; ++j) {
        const V y = load(b + j * column + i + p * L);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS_OF_A; ++r) sums[r][j][p] = fused(x[r], y, sums[r][j][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < COLUMNS; ++j)
#pragma GCC unroll 4
    for (int r = 0; r < ROWS_OF_A; ++r) {
      float rest = 0;
      for (int64_t last = i; last < k; ++last) rest += a[r * a_row + last] * b[j * column + last];
      c[r * c_row + j] = total(PARTS == 2 ? sums[r][j][0] + sums[r][j][PARTS - 1] : sums[r][j][0]) + rest;
    }
}

// The same for all of them: up to 3 rows, which share what is read of b.
template <int ROWS_OF_A>
void all_along(const float* a, int64_t a_row, const float* b, int64_t column, int64_t k, int64_t width, float* c, int64_t c_row) {
  int64_t j = 0;
  for (; j + SIDE <= width; j += SIDE) along<ROWS_OF_A, SIDE>(a, a_row, b + j * column, column, k, c + j, c_row);
  for (; j < width; ++j) along<ROWS_OF_A, 1>(a, a_row, b + j * column, column, k, c + j, c_row);
}

// Numbers of a times rows of b, that are read from end to end, added to a row of c.
template <int ROWS_OF_B> void across(const float* a, const float* b, int64_t row, int64_t width, float* c) {
  V x[ROWS_OF_B];
  for (int r = 0; r < ROWS_OF_B; ++r) x[r] = all(a[r]);
  int64_t j = 0;
  for (; j + L <= width; j += L) {
    V sum = load(c + j);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS_OF_B; ++r) sum = fused(x[r], load(b + r * row + j), sum);
    store(c + j, sum);
  }
  for (; j < width; ++j)
    for (int r = 0; r < ROWS_OF_B; ++r) c[j] += a[r] * b[r * row + j];
}

}  // namespace

// Pointers and parameters as of a product (product.h) without batches: m n k, a_row b_row b_column c_row, bias (1: one for each column, 2: one
// for all), ending. One of b_row and b_column is 1, and what is added for all needs m = 1. There are at most 3 rows.
GRADLAB_KERNEL gradlab_few_rows(char** p, const int64_t* v, int part, int parts) {
  const int64_t m = v[0], n = v[1], k = v[2], a_row = v[3], b_row = v[4], b_column = v[5], c_row = v[6];
  const float *a = (const float*)p[1], *b = (const float*)p[2], *bias = v[7] ? (const float*)p[3] : nullptr;
  float* c = (float*)p[0];
  const Ends end(p + 3 + (v[7] != 0), v[8]);
  const Share mine = share(n, part, parts, SIDE * L);
  const int64_t step = b_row == 1 ? SIDE * L : WIDE;
  for (int64_t first = mine.first; first < mine.last; first += step) {  // all rows, while these columns are near
    const int64_t width = mine.last - first < step ? mine.last - first : step;
    const float* from = b + first * b_column;
    float* to = c + first;
    if (b_row == 1) {
      if (m == 1) GRADLAB_PART(9) all_along<1>(a, a_row, from, b_column, k, width, to, c_row);
      else if (m == 2) GRADLAB_PART(10) all_along<2>(a, a_row, from, b_column, k, width, to, c_row);
      else GRADLAB_PART(11) all_along<3>(a, a_row, from, b_column, k, width, to, c_row);
    } else GRADLAB_PART(8) {
      for (int64_t i = 0; i < m; ++i) std::memset(to + i * c_row, 0, sizeof(float) * size_t(width));
      int64_t r = 0;
      for (; r + SIDE <= k; r += SIDE)
        for (int64_t i = 0; i < m; ++i) across<SIDE>(a + i * a_row + r, from + r * b_row, b_row, width, to + i * c_row);
      for (; r < k; ++r)
        for (int64_t i = 0; i < m; ++i) across<1>(a + i * a_row + r, from + r * b_row, b_row, width, to + i * c_row);
    }
    for (int64_t i = 0; bias != nullptr && i < m; ++i)
      for (int64_t j = 0; j < width; ++j) to[i * c_row + j] += bias[v[7] == 1 ? first + j : 0];
    end(first, m, width, c_row, to);
  }
}
