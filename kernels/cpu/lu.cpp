// A = P L U by Gaussian elimination with the largest pivot of each column: a panel of columns after the other, what is right of it by a product.
//
// The elimination is done where the larger one of L and U is to lie; the other one is taken out of it at the end.
#include "gemm.h"

namespace {

constexpr int64_t WIDE = 32;  // columns of a panel

template <class T> inline T size_of(T x) { return x < 0 ? -x : x; }

template <class T> struct Matrix {
  int64_t m, n, least;
  int64_t* order;
  T *lower, *upper, *at;  // at: where the elimination is done, `least` being the smaller one of m and n

  Matrix(char** p, const int64_t* v, int64_t i) : m(v[1]), n(v[2]), least(m < n ? m : n) {
    order = (int64_t*)p[0] + i * m, lower = (T*)p[1] + i * m * least, upper = (T*)p[2] + i * least * n;
    at = m < n ? upper : lower;
  }
  void begin(const T* x) const {
    std::memcpy(at, x, size_t(m * n) * sizeof(T));
    for (int64_t i = 0; i < m; ++i) order[i] = i;
  }
  int64_t end_of(int64_t first) const { return first + WIDE < least ? first + WIDE : least; }

  // Columns from `first`: their pivots, of which the rows are exchanged in these columns alone.
  void panel(int64_t first, int64_t* pivots) const {
    const int64_t last = end_of(first);
    for (int64_t j = first; j < last; ++j) {
      int64_t pivot = j;
      T most = size_of(at[j * n + j]);
      for (int64_t i = j + 1; i < m; ++i) {
        const T found = size_of(at[i * n + j]);
        if (found > most || (found != found && most == most)) most = found, pivot = i;
      }
      pivots[j] = pivot;
      T *const top = at + j * n, *const other = at + pivot * n;
      if (pivot != j) {
        const int64_t row = order[j];
        order[j] = order[pivot], order[pivot] = row;
        for (int64_t c = first; c < last; ++c) {
          const T kept = top[c];
          top[c] = other[c], other[c] = kept;
        }
      }
      if (top[j] == 0) continue;  // and so is all below
      for (int64_t i = j + 1; i < m; ++i) {
        T* __restrict__ const row = at + i * n;
        const T factor = row[j] / top[j];
        row[j] = factor;
#pragma GCC ivdep
        for (int64_t c = j + 1; c < last; ++c) row[c] -= factor * top[c];
      }
    }
  }

  // The panel's exchanges in other columns, and what the elimination does right of it.
  bool rest(int64_t first, const int64_t* pivots, int part, int parts) const {
    const int64_t last = end_of(first);
    const Share left = share(first, part, parts, 16), right = share(n - last, part, parts, PANEL<T>);
    const int64_t from = last + right.first, to = last + right.last, wide = to - from;
    for (int64_t j = first; j < last; ++j) {
      if (pivots[j] == j) continue;
      T *const top = at + j * n, *const other = at + pivots[j] * n;
      const auto exchange = [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
        for (int64_t c = begin; c < end; ++c) {
          const T kept = top[c];
          top[c] = other[c], other[c] = kept;
        }
      };
      exchange(left.first, left.last), exchange(from, to);
    }
    if (wide <= 0) return true;
    for (int64_t r = first + 1; r < last; ++r)
      for (int64_t s = first; s < r; ++s) {
        const T factor = at[r * n + s], *const above = at + s * n;
        T* __restrict__ const row = at + r * n;
#pragma GCC ivdep
        for (int64_t c = from; c < to; ++c) row[c] -= factor * above[c];
      }
    if (last == m) return true;
    if (m - last < 8 || wide < 8) {
      for (int64_t i = last; i < m; ++i)
        for (int64_t s = first; s < last; ++s) {
          const T factor = at[i * n + s], *const above = at + s * n;
          T* __restrict__ const row = at + i * n;
#pragma GCC ivdep
          for (int64_t c = from; c < to; ++c) row[c] -= factor * above[c];
        }
      return true;
    }
    Room<T> minus(size_t((last - first) * wide));
    if (minus.at == nullptr) return false;
    for (int64_t s = first; s < last; ++s)
      for (int64_t c = 0; c < wide; ++c) minus.at[(s - first) * wide + c] = -at[s * n + from + c];
    const Product q = {m - last, wide, last - first, n, 1, wide, 1, n, false, true};
    return multiply(at + last * n + first, (const T*)minus.at, at + last * n + from, (const T*)nullptr, q, 0, q.m, 0, wide);
  }

  // The one of both triangles that is not in its place.
  void finish() const {
    for (int64_t i = 0; i < m; ++i) {
      T *const row = at + i * n, *const below = lower + i * least, *const above = upper + i * n;
      if (i < least && row != above)
        for (int64_t c = 0; c < n; ++c) above[c] = c < i ? T(0) : row[c];
      if (row != below)
        for (int64_t c = 0; c < least; ++c) below[c] = c < i ? row[c] : T(0);
      else
        for (int64_t c = i + 1; c < least; ++c) below[c] = 0;
      if (i < least) {
        below[i] = 1;
        if (row == above)
          for (int64_t c = 0; c < i; ++c) above[c] = 0;
      }
    }
  }
};

template <class T> void whole(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0], part, parts);
  Room<int64_t> pivots{size_t(v[1])};
  if (pivots.at == nullptr) return no_memory(p);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const Matrix<T> one(p, v, i);
    one.begin((const T*)p[3] + i * one.m * one.n);
    for (int64_t first = 0; first < one.least; first += WIDE) {
      one.panel(first, pivots.at);
      if (!one.rest(first, pivots.at, 0, 1)) return no_memory(p);
    }
    one.finish();
  }
}

// Of one matrix: a panel; the first one begins, and one behind the last ends.
template <class T> void panel(char** p, const int64_t* v, int, int) {
  const Matrix<T> one(p, v, 0);
  if (v[3] == 0) one.begin((const T*)p[3]);
  if (v[3] < one.least) one.panel(v[3], (int64_t*)p[4]);
  else one.finish();
}
template <class T> void rest(char** p, const int64_t* v, int part, int parts) {
  if (!Matrix<T>(p, v, 0).rest(v[3], (const int64_t*)p[4], part, parts)) no_memory(p);
}

}  // namespace

// order, L, U, x; parameters: matrices, rows, columns
GRADLAB_KERNEL gradlab_lu(char** p, const int64_t* v, int part, int parts) { whole<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_lu_double(char** p, const int64_t* v, int part, int parts) { whole<double>(p, v, part, parts); }
// and pivots; parameters: as well the panel's first column
GRADLAB_KERNEL gradlab_lu_panel(char** p, const int64_t* v, int part, int parts) { panel<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_lu_panel_double(char** p, const int64_t* v, int part, int parts) { panel<double>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_lu_rest(char** p, const int64_t* v, int part, int parts) { rest<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_lu_rest_double(char** p, const int64_t* v, int part, int parts) { rest<double>(p, v, part, parts); }
