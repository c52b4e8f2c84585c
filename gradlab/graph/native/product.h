// Matrix products with up to two batch dimensions: the kernel, which `gemm.cpp` and `gemm_double.cpp` make for their
// types. They are compiled apart, because few programs need both.
#ifndef GRADLAB_PRODUCT_H
#define GRADLAB_PRODUCT_H

#include "gemm.h"

namespace {

// Pointers: c, a, b and, if there is one, bias. Parameters: m n k, a_row a_column b_row b_column c_row, bias, add,
// two batch sizes, then for a, b, c the stride of each batch dimension. With bias = 2, b is packed (and there is no bias), with 3 it is
// packed and there is a bias.
template <typename T> void product(char** p, const int64_t* v, int part, int parts) {
  const Product q = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], (v[8] & 1) != 0, v[9] != 0};
  const bool packed = (v[8] & 2) != 0;
  const int64_t outer = v[10], inner = v[11], batch = outer * inner;
  const T* bias = q.bias ? (const T*)p[3] : nullptr;
  int64_t b0 = 0, b1 = batch, m0 = 0, m1 = q.m, n0 = 0, n1 = q.n;
  if (batch >= 2 * parts || (batch > 1 && batch % parts == 0)) {
    const Share mine = share(batch, part, parts);
    b0 = mine.first, b1 = mine.last;
  } else if (q.n >= 2 * PANEL<T> * parts && q.n >= q.m) {
    const Share mine = share(q.n, part, parts, PANEL<T>);
    n0 = mine.first, n1 = mine.last;
  } else {
    const Share mine = share(q.m, part, parts, ROWS);
    m0 = mine.first, m1 = mine.last;
  }
  for (int64_t i = b0; i < b1; ++i) {
    const int64_t x = i / inner, y = i % inner;
    multiply((const T*)p[1] + x * v[12] + y * v[13], (const T*)p[2] + x * v[14] + y * v[15], (T*)p[0] + x * v[16] + y * v[17], bias, q,
             m0, m1, n0, n1, packed ? (const T*)p[2] : nullptr);
  }
}

}  // namespace

#endif
