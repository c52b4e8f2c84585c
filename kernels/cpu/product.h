// Matrix products with up to two batch dimensions: the kernel, which `gemm.cpp` and `gemm_double.cpp` make for their
// types. They are compiled apart, because few programs need both.
#ifndef GRADLAB_PRODUCT_H
#define GRADLAB_PRODUCT_H

#include "gemm.h"

namespace {

constexpr int64_t HALVES = 100;  // instead of an ending: see below

struct NoEnding {
  NoEnding(char**, int64_t) {}
  void operator()(int64_t, int64_t, int64_t, int64_t, const void*) const {}
};

// What computes: the products of gemm.h, or others with a `multiply` like theirs.
template <typename T> struct Plain {
  template <typename... Arguments> static bool multiply(const Arguments&... given) { return ::multiply<T>(given...); }
};

// One product of two, each of one half of the depth: neither thread packs what the other one packs. The second goes to `rest`. The halves are
// the same for any number of threads, and so is their sum.
template <typename T, typename Core> void halves(char** p, const Product& q, int part, int parts) {
  const T *a = (const T*)p[1], *b = (const T*)p[2];
  T *c = (T*)p[0], *rest = (T*)p[3];
  for (int half = 0; half < 2; ++half) {
    if (parts > 1 && part % 2 != half) continue;
    const int64_t middle = q.k / 2, group = parts > 1 ? part / 2 : 0, groups = parts > 1 ? (parts + 1 - half) / 2 : 1;
    Product own = q;
    own.k = half == 0 ? middle : q.k - middle;
    const bool across = q.n >= q.m;
    const Share mine = share(across ? q.n : q.m, int(group), int(groups), across ? int64_t(PANEL<T>) : int64_t(ROWS));
    if (!Core::multiply(a + half * middle * q.a_column, b + half * middle * q.b_row, half == 0 ? c : rest, (const T*)nullptr, own, across ? 0 : mine.first,
                  across ? q.m : mine.last, across ? mine.first : 0, across ? mine.last : q.n))
      return no_memory(p);
  }
}

// Pointers: c, a, b and, if there is one, bias; then what the ending needs. Parameters: m n k, a_row a_column b_row b_column c_row, bias,
// ending, two batch sizes, then for a, b, c the stride of each batch dimension. With bias = 2, b is packed (and there is no bias), with 3 it is
// packed and there is a bias. With HALVES, which need contiguous c, there are a rest and neither bias nor batches. Endings have no batches.
template <typename T, typename Ends, typename Core = Plain<T>> void product(char** p, const int64_t* v, int part, int parts) {
  const Product q = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], (v[8] & 1) != 0, false};
  if (v[9] == HALVES) GRADLAB_PART(10) return halves<T, Core>(p, q, part, parts);
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
    const T *a = (const T*)p[1] + x * v[12] + y * v[13], *b = (const T*)p[2] + x * v[14] + y * v[15];
    T* c = (T*)p[0] + x * v[16] + y * v[17];
    const Ends end(p + 3 + q.bias, v[9]);
    const bool made = Core::multiply(a, b, c, bias, q, m0, m1, n0, n1, packed ? (const T*)p[2] : nullptr, [&](int64_t m, int64_t n, int64_t rows, int64_t width) {
      const int64_t at = m * q.c_row + n;
      end(at, rows, width, q.c_row, c + at);
    });
    if (!made) return no_memory(p);
  }
}

}  // namespace

#endif
