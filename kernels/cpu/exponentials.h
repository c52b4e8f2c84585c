// What the rows of softmax and cross-entropy share. float.
#ifndef GRADLAB_EXPONENTIALS_H
#define GRADLAB_EXPONENTIALS_H

#include "scalar_math.h"
#include "sums.h"

namespace {

// NaN is larger than anything.
inline float largest(const float* x, int64_t n) {
  float lane[ADDENDS];
  for (int j = 0; j < ADDENDS; ++j) lane[j] = -__builtin_inff();
  int64_t i = 0;
  for (; i + ADDENDS <= n; i += ADDENDS)
    for (int j = 0; j < ADDENDS; ++j) lane[j] = x[i + j] > lane[j] || x[i + j] != x[i + j] ? x[i + j] : lane[j];
  for (; i < n; ++i) lane[0] = x[i] > lane[0] || x[i] != x[i] ? x[i] : lane[0];
  float found = lane[0];
  for (int j = 1; j < ADDENDS; ++j) found = lane[j] > found || lane[j] != lane[j] ? lane[j] : found;
  return found;
}

// The largest of the numbers; NaN is passed over, which costs half as much: whoever subtracts it finds them.
inline float largest_number(const float* x, int64_t n) {
  float lane[ADDENDS];
  for (int j = 0; j < ADDENDS; ++j) lane[j] = -__builtin_inff();
  int64_t i = 0;
  for (; i + ADDENDS <= n; i += ADDENDS)
    for (int j = 0; j < ADDENDS; ++j) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
  for (; i < n; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  float found = lane[0];
  for (int j = 1; j < ADDENDS; ++j) found = lane[j] > found ? lane[j] : found;
  return found;
}

// The bits of gradlab::exp for what is not above 0: one factor may be 2^24 times as large, and the result is rounded once, by the other.
inline float exp_below(float x) {
  const auto e = gradlab::polynomial::exponential(x < -104.0f ? -104.0f : x);
  return (1.0f + e.minus_one) * gradlab::polynomial::power_of_two(e.n + 24) * 5.9604644775390625e-08f;
}

// y = exp(x - m), and its sum.
inline float exponentials(const float* x, float m, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = exp_below(x[i] - m);
  return total(n, [=](int64_t i) { return y[i]; });
}

// Where a row has its largest element m.
inline int64_t place_of(const float* x, float m, int64_t n) {
  int64_t i = 0;
  while (i < n - 1 && x[i] != m) ++i;
  return i;
}

// A probability from which on 1 minus it is not taken from its rounded value (ops/softmax.py).
constexpr float SURE = 0.9f, LOG_SURE = -0.105f;

// log of the sum of exponentials y, whose largest is 1. Where the others are little beside it, by their own sum.
inline float logarithm_of(float sum, const float* y, int64_t n) {
  if (!(sum < 1 / SURE)) return gradlab::log(sum);
  const int64_t top = place_of(y, 1, n);
  return gradlab::log1p(total(n, [=](int64_t i) { return i == top ? 0.0f : y[i]; }));
}

// How many targets count, at least 1.
inline int64_t counting(const int64_t* target, int64_t n, int64_t ignore_index) {
  int64_t counted = 0;
  for (int64_t i = 0; i < n; ++i) counted += target[i] != ignore_index;
  return counted > 0 ? counted : 1;
}

}  // namespace

#endif
