// Rows of a table, and their gradient. float, rows contiguous.
#include "aligned.h"
#include "runtime.h"

// y, weight, at, status; parameters: indices, table rows, columns
GRADLAB_KERNEL gradlab_embedding(char** p, const int64_t* v, int part, int parts) {
  const int64_t* at = (const int64_t*)p[2];
  const int64_t bytes = v[2] * 4;
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    if (at[r] < 0 || at[r] >= v[1]) {
      *(int64_t*)p[3] = 1;
      return;
    }
    std::memcpy(p[0] + r * bytes, p[1] + at[r] * bytes, size_t(bytes));
  }
}

// dw, dy, at; parameters: indices, table rows, columns, padding index or -1. Each thread has columns of its own; rows add up in order.
GRADLAB_KERNEL gradlab_embedding_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t* at = (const int64_t*)p[2];
  const int64_t n = v[2];
  const Share mine = share(n, part, parts, 16);
  const int64_t wide = mine.last - mine.first;
  if (v[0] >= 32 * v[1]) {  // many rows for each place: their sum is a double, so that it keeps its digits
    const Room<double> sums(size_t(v[1] * wide));
    if (sums.at == nullptr) return no_memory(p);
    std::memset(sums.at, 0, sizeof(double) * size_t(v[1] * wide));
    for (int64_t r = 0; r < v[0]; ++r) {
      if (at[r] == v[3] || at[r] < 0 || at[r] >= v[1]) continue;
      double* to = sums.at + at[r] * wide;
      const float* from = (const float*)p[1] + r * n + mine.first;
      for (int64_t j = 0; j < wide; ++j) to[j] += double(from[j]);
    }
    for (int64_t r = 0; r < v[1]; ++r)
      for (int64_t j = 0; j < wide; ++j) ((float*)p[0])[r * n + mine.first + j] = float(sums.at[r * wide + j]);
    return;
  }
  for (int64_t r = 0; r < v[1]; ++r) std::memset((float*)p[0] + r * n + mine.first, 0, sizeof(float) * size_t(wide));
  for (int64_t r = 0; r < v[0]; ++r) {
    if (at[r] == v[3] || at[r] < 0 || at[r] >= v[1]) continue;
    float* to = (float*)p[0] + at[r] * n + mine.first;
    const float* from = (const float*)p[1] + r * n + mine.first;
    for (int64_t j = 0; j < wide; ++j) to[j] += from[j];
  }
}
