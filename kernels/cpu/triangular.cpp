// Solutions of triangular systems, by substitution: of many columns a block of rows after the other, what is known by a product.
#include "gemm.h"

namespace {

constexpr int64_t BLOCK = 32;   // rows
constexpr int64_t FEW = 8;      // columns that are solved one by one
constexpr int64_t LINES = 16;

template <class T> struct Triangle {
  const T* a;
  int64_t n, row, column;
  bool upper, unit;
  T at(int64_t i, int64_t j) const { return a[i * row + j * column]; }

  // One column that lies along. x: it, and the solution.
  void column_of(T* __restrict__ x) const {
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = upper ? n - 1 - step : step, first = upper ? i + 1 : 0, last = upper ? n : i;
      if (column == 1) {
        const T* const own = a + i * row;
        T lane[LINES] = {};
        int64_t j = first;
        for (; j + LINES <= last; j += LINES)
          for (int64_t l = 0; l < LINES; ++l) lane[l] += own[j + l] * x[j + l];
        T sum = 0;
        for (; j < last; ++j) sum += own[j] * x[j];
        for (int64_t half = LINES / 2; half > 0; half /= 2)
          for (int64_t l = 0; l < half; ++l) lane[l] += lane[l + half];
        x[i] -= sum + lane[0];
      }
      if (!unit) x[i] /= at(i, i);
      if (column != 1) {
        const T value = x[i];
        const int64_t begin = upper ? 0 : i + 1, end = upper ? i : n;
        if (row == 1) {
#pragma GCC ivdep
          for (int64_t j = begin; j < end; ++j) x[j] -= a[j + i * column] * value;
        } else
          for (int64_t j = begin; j < end; ++j) x[j] -= at(j, i) * value;
      }
    }
  }
  // Columns c0 to c1 of y, whose rows are k long. less: room for n BLOCK numbers.
  bool columns_of(T* y, int64_t k, int64_t c0, int64_t c1, T* less) const {
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t top = (upper ? blocks - 1 - b : b) * BLOCK, end = top + BLOCK < n ? top + BLOCK : n;
      const int64_t known = upper ? end : 0, depth = upper ? n - end : top;
      if (depth > 0) {
        for (int64_t i = top; i < end; ++i)
          for (int64_t j = 0; j < depth; ++j) less[(i - top) * depth + j] = -at(i, known + j);
        const Product q = {end - top, c1 - c0, depth, depth, 1, k, 1, k, false, true};
        if (!multiply((const T*)less, (const T*)y + known * k + c0, y + top * k + c0, (const T*)nullptr, q, 0, q.m, 0, q.n)) return false;
      }
      for (int64_t step = 0; step < end - top; ++step) {
        const int64_t i = upper ? end - 1 - step : top + step;
        T* __restrict__ const own = y + i * k;
        for (int64_t j = upper ? i + 1 : top; j < (upper ? end : i); ++j) {
          const T factor = at(i, j), *const other = y + j * k;
#pragma GCC ivdep
          for (int64_t c = c0; c < c1; ++c) own[c] -= factor * other[c];
        }
        if (unit) continue;
        const T pivot = at(i, i);
        for (int64_t c = c0; c < c1; ++c) own[c] /= pivot;
      }
    }
    return true;
  }
};

template <class T> void solve(char** p, const int64_t* v, int part, int parts) {
  const int64_t batch = v[0], n = v[1], k = v[2], apart = v[3];
  const bool together = batch > 1;
  const Share systems = together ? share(batch, part, parts) : Share{0, 1}, columns = together ? Share{0, k} : share(k, part, parts, LINES);
  if (columns.first >= columns.last || systems.first >= systems.last) return;
  Room<T> room(size_t(n * BLOCK));
  if (room.at == nullptr) return no_memory(p);
  for (int64_t u = systems.first; u < systems.last; ++u) {
    const Triangle<T> one = {(const T*)p[1] + u * apart, n, v[4], v[5], v[6] != 0, v[7] != 0};
    T* const y = (T*)p[0] + u * n * k;
    const T* const b = (const T*)p[2] + u * n * k;
    if (k >= FEW) {
      for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * k + columns.first, b + i * k + columns.first, size_t(columns.last - columns.first) * sizeof(T));
      if (!one.columns_of(y, k, columns.first, columns.last, room.at)) return no_memory(p);
      continue;
    }
    for (int64_t c = columns.first; c < columns.last; ++c) {
      T* const x = k == 1 ? y : room.at;
      for (int64_t i = 0; i < n; ++i) x[i] = b[i * k + c];
      one.column_of(x);
      for (int64_t i = 0; i < n && k > 1; ++i) y[i * k + c] = x[i];
    }
  }
}

}  // namespace

// y, a, b; parameters: systems, rows, columns of b, from one triangle to the next, its strides along a column and a row, whether it is an upper
// one, whether its diagonal is 1
GRADLAB_KERNEL gradlab_solve_triangular(char** p, const int64_t* v, int part, int parts) { solve<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_solve_triangular_double(char** p, const int64_t* v, int part, int parts) { solve<double>(p, v, part, parts); }
