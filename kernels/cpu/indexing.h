// Reading and writing by indices. Templates; a program makes its own.
#ifndef GRADLAB_INDEXING_H
#define GRADLAB_INDEXING_H

#include "half.h"
#include "runtime.h"

namespace gradlab {

// The places that k index tensors of n elements name together among `sizes`; -1 for one that lies outside.
struct Places {
  const int64_t *at, *sizes;
  int64_t k, n;
  bool wrap;
  int64_t operator()(int64_t i) const {
    int64_t total = 0;
    for (int64_t d = 0; d < k; ++d) {
      int64_t a = at[d * n + i];
      a += wrap && a < 0 ? sizes[d] : 0;
      if (a < 0 || a >= sizes[d]) return -1;
      total = total * sizes[d] + a;
    }
    return total;
  }
};

template <typename W> inline void row(W* to, const W* from, int64_t n) {
  if (n < 16) for (int64_t j = 0; j < n; ++j) to[j] = from[j];
  else std::memcpy(to, from, sizeof(W) * size_t(n));
}

// y (outer, n, width) = x (outer, size, width) at those places
template <typename W>
void pick(W* y, const W* x, Places at, int64_t* status, int64_t outer, int64_t size, int64_t width, int part, int parts) {
  const Share mine = share(outer * at.n, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t place = at(u % at.n);
    if (place < 0) {
      *status = 1;
      return;
    }
    row(y + u * width, x + (u / at.n * size + place) * width, width);
  }
}

// What a thread has of rows that are written in order: columns, or whole matrices.
struct Columns {
  Share outer, column;
  Columns(int64_t count, int64_t width, int part, int parts) {
    const bool rows = count >= parts;
    outer = rows ? share(count, part, parts) : Share{0, count};
    column = rows ? Share{0, width} : share(width, part, parts, 16);
  }
};

// y (outer, size, width) at those places = value (outer, n, width); the last of equal places stays
template <typename W>
void put(W* y, const W* value, Places at, int64_t* status, int64_t outer, int64_t size, int64_t width, int part, int parts) {
  const Columns mine(outer, width, part, parts);
  for (int64_t o = mine.outer.first; o < mine.outer.last; ++o)
    for (int64_t i = 0; i < at.n; ++i) {
      const int64_t place = at(i), first = mine.column.first;
      if (place < 0) *status = 1;
      else row(y + (o * size + place) * width + first, value + (o * at.n + i) * width + first, mine.column.last - first);
    }
}

// total (outer, size, width) at those places += value (outer, n, width), in order
template <typename A, typename S>
void put_sum(A* total, const S* value, Places at, int64_t* status, int64_t outer, int64_t size, int64_t width, int part, int parts) {
  const Columns mine(outer, width, part, parts);
  for (int64_t o = mine.outer.first; o < mine.outer.last; ++o)
    for (int64_t i = 0; i < at.n; ++i) {
      const int64_t place = at(i);
      if (place < 0) {
        *status = 1;
        continue;
      }
      A* const to = total + (o * size + place) * width;
      const S* const from = value + (o * at.n + i) * width;
      for (int64_t j = mine.column.first; j < mine.column.last; ++j) to[j] += A(from[j]);
    }
}

// y (outer, m, inner) = x (outer, n, inner) along the middle dimension, by index (outer, m, inner)
template <typename W>
void gather(W* y, const W* x, const int64_t* index, int64_t* status, int64_t outer, int64_t m, int64_t inner, int64_t n, int part, int parts) {
  const Share mine = share(outer * m, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const W* const from = x + u / m * n * inner;
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t at = index[u * inner + i];
      if (at < 0 || at >= n) {
        *status = 1;
        return;
      }
      y[u * inner + i] = from[at * inner + i];
    }
  }
}

enum How { WRITE, ADD, MULTIPLY, LARGEST, SMALLEST };

// y (outer, n, inner) by index (outer, m, inner): written, added to, …; `one`: the source is one value
template <typename A, typename S, How HOW>
void scatter(
    A* y, const S* source, const int64_t* index, int64_t* status, int64_t outer, int64_t m, int64_t inner, int64_t n, bool one, int part,
    int parts) {
  const Columns mine(outer, inner, part, parts);
  for (int64_t o = mine.outer.first; o < mine.outer.last; ++o)
    for (int64_t j = 0; j < m; ++j)
      for (int64_t i = mine.column.first; i < mine.column.last; ++i) {
        const int64_t u = (o * m + j) * inner + i, at = index[u];
        if (at < 0 || at >= n) {
          *status = 1;
          continue;
        }
        A& to = y[(o * n + at) * inner + i];
        const A value = A(source[one ? 0 : u]);
        if (HOW == ADD) to = A(to + value);
        else if (HOW == MULTIPLY) to = A(to * value);
        else if (HOW == WRITE || value != value || (HOW == LARGEST ? value > to : value < to)) to = value;  // a NaN wins
      }
}

template <typename To, typename From> void converted(To* y, const From* x, int64_t n, int part, int parts) {
  const Share mine = share(n, part, parts, 64);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    if constexpr (sizeof(To) == 2) y[i] = cast<To>(rounded<To>(cast<float>(x[i])));
    else y[i] = cast<To>(x[i]);
  }
}

// losses (outer, inner) = -x (outer, classes, inner) at target; 0 where that is `ignore`
template <typename S>
void class_losses(
    S* y, const S* x, const int64_t* target, int64_t* status, int64_t outer, int64_t classes, int64_t inner, int64_t ignore, int part,
    int parts) {
  const Share mine = share(outer * inner, part, parts, 16);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t t = target[u];
    if (t == ignore) y[u] = cast<S>(0.0f);
    else if (t < 0 || t >= classes) *status = 1;
    else y[u] = cast<S>(-x[(u / inner * classes + t) * inner + u % inner]);
  }
}

// dx (outer, classes, inner): 0, and -dy at target
template <typename S>
void class_gradient(S* dx, const S* dy, const int64_t* target, int64_t outer, int64_t classes, int64_t inner, int64_t ignore, int part, int parts) {
  const Share mine = share(outer, part, parts);
  std::memset((void*)(dx + mine.first * classes * inner), 0, sizeof(S) * size_t((mine.last - mine.first) * classes * inner));
  for (int64_t u = mine.first * inner; u < mine.last * inner; ++u) {
    const int64_t t = target[u];
    if (t != ignore && t >= 0 && t < classes) dx[(u / inner * classes + t) * inner + u % inner] = cast<S>(-dy[u]);
  }
}

}  // namespace gradlab

#endif
