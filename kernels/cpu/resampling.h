// Weighted sums of elements along one dimension. A template; a program makes its own.
#ifndef GRADLAB_RESAMPLING_H
#define GRADLAB_RESAMPLING_H

#include "half.h"
#include "runtime.h"

namespace gradlab {

// What `resampled` does where nothing lies behind the dimension. TAPS: how many, where it is known.
template <typename T, bool WEIGHTED, int TAPS> void lines(T* y, const T* x, const int64_t* v, int part, int parts) {
  const int64_t outputs = v[1], n = v[3], taps = TAPS ? TAPS : v[4];
  const int64_t *const at = v + 5, *const weights = at + outputs * taps;
  const Share mine = share(v[0], part, parts);
  int64_t begin = 0, end = 0;  // the longest run of neighbours, as inside a border: they are copied as they are
  if constexpr (TAPS == 1 && !WEIGHTED)
    for (int64_t j = 0, k; j < outputs; j = k) {
      for (k = j + 1; k < outputs && at[j] >= 0 && at[k] == at[j] + k - j;) ++k;
      if (k - j > end - begin) begin = j, end = k;
    }
  if (end - begin < 8) begin = end = 0;
  for (int64_t u = mine.first; u < mine.last; ++u) {
    T* const to = y + u * outputs;
    const T* const from = x + u * n;
    if (end > begin) std::memcpy(to + begin, from + at[begin], sizeof(T) * size_t(end - begin));
    for (int64_t j = begin > 0 ? 0 : end; j < outputs; j = j + 1 == begin ? end : j + 1) {
      const int64_t first = j * taps;
      if (at[first] < 0) {
        to[j] = T();
        continue;
      }
      T sum = from[at[first]];
      if constexpr (WEIGHTED) sum = sum * T(::real(weights[first]));
      for (int64_t t = first + 1; t < first + taps; ++t) {
        if constexpr (WEIGHTED) sum += from[at[t]] * T(::real(weights[t]));
        else sum = T(sum + from[at[t]]);
      }
      to[j] = sum;
    }
  }
}

// y (outer, outputs, inner) of x (outer, n, inner). Parameters: outer, outputs, inner, n, taps of an output; of each tap its place (the first of
// an output's is negative where there are none), then, if there are weights, each one's as a double.
template <typename T, bool WEIGHTED> void resampled(T* y, const T* x, const int64_t* v, int part, int parts) {
  if (v[2] == 1) return v[4] == 1 ? lines<T, WEIGHTED, 1>(y, x, v, part, parts) : v[4] == 2 ? lines<T, WEIGHTED, 2>(y, x, v, part, parts)
                        : v[4] == 4 ? lines<T, WEIGHTED, 4>(y, x, v, part, parts) : lines<T, WEIGHTED, 0>(y, x, v, part, parts);
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
