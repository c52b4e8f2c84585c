// Kernels along one dimension of (outer, n, inner): extremes with their places, running sums and products. Templates; a program makes its own.
#ifndef GRADLAB_LINES_H
#define GRADLAB_LINES_H

#include "half.h"
#include "runtime.h"

namespace gradlab {

constexpr int64_t COLUMNS = 64;  // lines beside each other that are walked along together

template <typename T> struct Computed { using type = T; };
template <> struct Computed<Float16> { using type = float; };
template <> struct Computed<Bfloat16> { using type = float; };

// Whether v comes before what was best so far: NaN before everything, the first of equals.
template <bool LARGEST, typename C> inline bool better(C v, C best) {
  return (LARGEST ? v > best : v < best) | ((v != v) & (best == best));
}

// values (or null), places, x; outer, n, inner
template <typename S, bool LARGEST>
void extremes(S* values, int64_t* places, const S* x, int64_t outer, int64_t n, int64_t inner, int part, int parts) {
  using C = typename Computed<S>::type;
  const int64_t blocks = (inner + COLUMNS - 1) / COLUMNS;
  const Share mine = share(outer * blocks, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t o = u / blocks, first = u % blocks * COLUMNS;
    const S* const from = x + o * n * inner + first;
    const int64_t to = o * inner + first;
    if (inner == 1) {
      constexpr int LANES = 16;
      C lane[LANES], best = C(from[0]);
      for (int k = 0; k < LANES; ++k) lane[k] = best;
      int64_t j = 0;
      for (; j + LANES <= n; j += LANES)
        for (int k = 0; k < LANES; ++k) {
          const C v = C(from[j + k]);
          lane[k] = better<LARGEST>(v, lane[k]) ? v : lane[k];
        }
      for (int k = 0; k < LANES; ++k) best = better<LARGEST>(lane[k], best) ? lane[k] : best;
      for (; j < n; ++j) best = better<LARGEST>(C(from[j]), best) ? C(from[j]) : best;
      int64_t at = 0;
      if (best == best) while (!(C(from[at]) == best)) ++at;
      else while (C(from[at]) == C(from[at])) ++at;
      places[to] = at;
      if (values) values[to] = from[at];
      continue;
    }
    const int64_t wide = inner - first < COLUMNS ? inner - first : COLUMNS;
    C best[COLUMNS];
    int64_t at[COLUMNS];
    for (int64_t i = 0; i < wide; ++i) best[i] = C(from[i]), at[i] = 0;
    for (int64_t j = 1; j < n; ++j)
      for (int64_t i = 0; i < wide; ++i) {
        const C v = C(from[j * inner + i]);
        const bool now = better<LARGEST>(v, best[i]);
        best[i] = now ? v : best[i];
        at[i] = now ? j : at[i];
      }
    for (int64_t i = 0; i < wide; ++i) places[to + i] = at[i];
    if (values) for (int64_t i = 0; i < wide; ++i) values[to + i] = from[at[i] * inner + i];
  }
}

// The largest (smallest) elements so far and where they last were; a NaN stays. values, places, x; outer, n, inner
template <typename S, bool LARGEST>
void running_extremes(S* values, int64_t* places, const S* x, int64_t outer, int64_t n, int64_t inner, int part, int parts) {
  using C = typename Computed<S>::type;
  const int64_t blocks = (inner + COLUMNS - 1) / COLUMNS;
  const Share mine = share(outer * blocks, part, parts);
  const auto attains = [](C v, C best) { return (LARGEST ? v >= best : v <= best) | (v != v); };
  if (inner == 1) {
    for (int64_t u = mine.first; u < mine.last; ++u) {
      const S* const from = x + u * n;
      S* const to = values + u * n;
      C best = C(from[0]);
      for (int64_t j = 0, at = 0; j < n; ++j) {
        if (attains(C(from[j]), best)) best = C(from[j]), at = j;  // rare: told in advance by the processor
        to[j] = from[at], places[u * n + j] = at;
      }
    }
    return;
  }
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t start = u / blocks * n * inner + u % blocks * COLUMNS, left = inner - u % blocks * COLUMNS;
    const int64_t wide = left < COLUMNS ? left : COLUMNS;
    C best[COLUMNS];
    int64_t at[COLUMNS];
    for (int64_t i = 0; i < wide; ++i) best[i] = C(x[start + i]), at[i] = 0;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < wide; ++i) {
        const C v = C(x[start + j * inner + i]);
        const bool now = attains(v, best[i]);
        best[i] = now ? v : best[i];
        at[i] = now ? j : at[i];
        values[start + j * inner + i] = x[start + at[i] * inner + i];
        places[start + j * inner + i] = at[i];
      }
  }
}

// y, x; outer, n, inner. Totals are kept as A.
template <typename T, typename A, bool PRODUCT>
void running(T* y, const T* x, int64_t outer, int64_t n, int64_t inner, int part, int parts) {
  const int64_t blocks = (inner + COLUMNS - 1) / COLUMNS;
  const Share mine = share(outer * blocks, part, parts);
  if (inner == 1) {  // some lines at once: each total waits for the one before
    constexpr int LINES = 8;
    for (int64_t u = mine.first; u < mine.last; u += LINES) {
      const int64_t some = mine.last - u < LINES ? mine.last - u : LINES;
      const T* from = x + u * n;
      T* to = y + u * n;
      A total[LINES];
      for (int i = 0; i < LINES; ++i) total[i] = PRODUCT ? A(1) : A(0);
      const auto next = [&](int64_t i, int64_t j) {
        total[i] = PRODUCT ? A(total[i] * A(from[i * n + j])) : A(total[i] + A(from[i * n + j]));
        to[i * n + j] = T(total[i]);
      };
      if (some == LINES)
        for (int64_t j = 0; j < n; ++j)
#pragma GCC unroll 8
          for (int64_t i = 0; i < LINES; ++i) next(i, j);
      else
        for (int64_t i = 0; i < some; ++i)
          for (int64_t j = 0; j < n; ++j) next(i, j);
    }
    return;
  }
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t start = u / blocks * n * inner + u % blocks * COLUMNS, left = inner - u % blocks * COLUMNS;
    const int64_t wide = left < COLUMNS ? left : COLUMNS;
    A total[COLUMNS];
    for (int64_t i = 0; i < wide; ++i) total[i] = PRODUCT ? A(1) : A(0);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < wide; ++i) {
        total[i] = PRODUCT ? A(total[i] * A(x[start + j * inner + i])) : A(total[i] + A(x[start + j * inner + i]));
        y[start + j * inner + i] = T(total[i]);
      }
  }
}

}  // namespace gradlab

#endif
