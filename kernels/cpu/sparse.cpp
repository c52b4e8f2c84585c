// Products of a sparse matrix with dense ones, called by eager rows as well. Each row of a result is one thread's, so the order of a sum does not depend
// on how many there are.
#include "runtime.h"

// The rows of a part, so that all parts have about as many entries.
static Share rows_of(const int64_t* starts, int64_t rows, int part, int parts) {
  int64_t found[2];
  for (int side = 0; side < 2; ++side) {
    const int64_t wanted = starts[rows] / parts * (part + side);
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (starts[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    found[side] = part + side == parts ? rows : low;
  }
  return {found[0], found[1]};
}

template <class T>
static void add_rows(char** p, const int64_t* v, int part, int parts) {
  const T* const values = (const T*)p[1];
  const T* const dense = (const T*)p[2];
  const int64_t *const col = (const int64_t*)p[3], *const starts = (const int64_t*)p[4], *const order = (const int64_t*)p[5];
  const int64_t n = v[1];
  const Share mine = rows_of(starts, v[0], part, parts);
  if (n == 1) {
    for (int64_t r = mine.first; r < mine.last; ++r) {
      T total = 0;
      for (int64_t e = starts[r]; e < starts[r + 1]; ++e) {
        const int64_t i = order ? order[e] : e;
        total += values[i] * dense[col[i]];
      }
      ((T*)p[0])[r] = total;
    }
    return;
  }
  for (int64_t r = mine.first; r < mine.last; ++r) {
    T* __restrict const to = (T*)p[0] + r * n;
    std::memset(to, 0, sizeof(T) * size_t(n));
    for (int64_t e = starts[r]; e < starts[r + 1]; ++e) {
      const int64_t i = order ? order[e] : e;
      const T value = values[i];
      const T* __restrict const from = dense + col[i] * n;
      for (int64_t j = 0; j < n; ++j) to[j] += value * from[j];
    }
  }
}

template <class T>
static void inner_products(char** p, const int64_t* v, int part, int parts) {
  const T *const a = (const T*)p[1], *const b = (const T*)p[2];
  const int64_t *const row = (const int64_t*)p[3], *const col = (const int64_t*)p[4];
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t e = mine.first; e < mine.last; ++e) {
    const T *const x = a + row[e] * n, *const y = b + col[e] * n;
    T sums[8] = {};
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
      for (int k = 0; k < 8; ++k) sums[k] += x[j + k] * y[j + k];
    T total = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    for (; j < n; ++j) total += x[j] * y[j];
    ((T*)p[0])[e] = total;
  }
}

// y, values, dense, columns, starts, order (or null); parameters: rows, columns of the result
GRADLAB_KERNEL gradlab_spmm_float(char** p, const int64_t* v, int part, int parts) { add_rows<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_spmm_double(char** p, const int64_t* v, int part, int parts) { add_rows<double>(p, v, part, parts); }

// y, a, b, rows, columns; parameters: entries, columns of a and b
GRADLAB_KERNEL gradlab_sddmm_float(char** p, const int64_t* v, int part, int parts) { inner_products<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_sddmm_double(char** p, const int64_t* v, int part, int parts) { inner_products<double>(p, v, part, parts); }
