// Weighted sums of elements along one dimension. A template; a program makes its own.
#ifndef GRADLAB_RESAMPLING_H
#define GRADLAB_RESAMPLING_H

#include "half.h"
#include "runtime.h"

namespace gradlab {

// y (outer, outputs, inner) of x (outer, n, inner). Parameters: outer, outputs, inner, n, taps of an output; of each tap its place (the first of
// an output's is negative where there are none), then, if there are weights, each one's as a double.
template <typename T, bool WEIGHTED> void resampled(T* y, const T* x, const int64_t* v, int part, int parts) {
  const int64_t outputs = v[1], inner = v[2], n = v[3], taps = v[4];
  const int64_t *const at = v + 5, *const weights = at + outputs * taps;
  const Share mine = share(v[0] * outputs, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t first = u % outputs * taps;
    T* const to = y + u * inner;
    const T* const from = x + u / outputs * n * inner;
    if (at[first] < 0) {
      for (int64_t i = 0; i < inner; ++i) to[i] = T();
      continue;
    }
    if constexpr (!WEIGHTED) {
      for (int64_t i = 0; i < inner; ++i) to[i] = from[at[first] * inner + i];
      for (int64_t t = first + 1; t < first + taps; ++t)
        for (int64_t i = 0; i < inner; ++i) to[i] = T(to[i] + from[at[t] * inner + i]);
    } else {
      const T weight = T(::real(weights[first]));
      for (int64_t i = 0; i < inner; ++i) to[i] = from[at[first] * inner + i] * weight;
      for (int64_t t = first + 1; t < first + taps; ++t) {
        const T own = T(::real(weights[t]));
        for (int64_t i = 0; i < inner; ++i) to[i] += from[at[t] * inner + i] * own;
      }
    }
  }
}

}  // namespace gradlab

#endif
