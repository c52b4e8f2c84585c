// Sums of rows in running totals that vectorise. float.
#ifndef GRADLAB_SUMS_H
#define GRADLAB_SUMS_H

#include "runtime.h"

namespace {

constexpr int ADDENDS = 16;

template <typename F> inline float total(int64_t n, F of) {
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

}  // namespace

#endif
