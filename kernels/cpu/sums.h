// Sums of rows in running totals that vectorise. float.
#ifndef GRADLAB_SUMS_H
#define GRADLAB_SUMS_H

#include "runtime.h"

namespace {

constexpr int ADDENDS = 16;
constexpr int64_t RUN = 1024;

// Of at most so many elements that running totals of float keep their last bits.
template <typename F> inline __attribute__((always_inline)) float total_of_few(int64_t n, F of) {
  float lane[ADDENDS] = {};
  int64_t i = 0;
  for (; i + ADDENDS <= n; i += ADDENDS)
    for (int j = 0; j < ADDENDS; ++j) lane[j] += of(i + j);
  float rest = 0;
  for (; i < n; ++i) rest += of(i);
  for (int half = ADDENDS / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0] + rest;
}

template <typename F> inline float total(int64_t n, F of) {
  if (n <= RUN) return total_of_few(n, of);
  double sum = 0;
  for (int64_t first = 0; first < n; first += RUN) sum += total_of_few(first + RUN < n ? RUN : n - first, [=](int64_t i) { return of(first + i); });
  return float(sum);
}

// A mean from one taken of a sum, `about`, the mean of the distances from it, `off`, and the variance. Far from zero the sum has lost bits, which
// the distances, exact there, bring back. Near zero they are rounded all alike and would bring in an error, while the sum's parts cancel.
template <typename T> inline auto corrected(T about, T off, T var) { return about * about > var ? about + off : about; }

// Of n numbers whose squares overflow, at(i): the mean (0 if not centred), 1 / sqrt(var + eps) and, returned, the variance.
template <typename F> float in_more_range(int64_t n, double eps, bool centred, float* mean, float* rstd, F at) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n && centred; ++i) sum += double(at(i));
  const double m = sum / double(n);
  for (int64_t i = 0; i < n; ++i) squares += (double(at(i)) - m) * (double(at(i)) - m);
  squares /= double(n);
  *mean = float(m), *rstd = float(1 / __builtin_sqrt(squares + eps));
  return float(squares);
}

}  // namespace

#endif
