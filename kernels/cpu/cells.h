// The cells of recurrent networks, on whole vectors of units. float.
#ifndef GRADLAB_CELLS_H
#define GRADLAB_CELLS_H

#include "vectors.h"

namespace {

// A vector of what lies at `at`; where it is not FULL, only the first `have` elements are there.
template <bool FULL> inline __attribute__((always_inline)) V some(const float* at, int64_t have) {
  if (FULL) return load(at);
  V found = {};
  std::memcpy(&found, at, sizeof(float) * size_t(have));
  return found;
}
template <bool FULL> inline __attribute__((always_inline)) void put(float* at, V x, int64_t have) {
  if (FULL) store(at, x);
  else std::memcpy(at, &x, sizeof(float) * size_t(have));
}

// f(whether there is a whole vector, where it begins, how many elements it has)
template <bool FULL> struct Full { static constexpr bool value = FULL; };
template <typename F> inline __attribute__((always_inline)) void each_vector(int64_t n, F f) {
  int64_t j = 0;
  for (; j + L <= n; j += L) f(Full<true>(), j, L);
  if (j < n) f(Full<false>(), j, n - j);
}

// exp(x) as a power of two, and what that is multiplied by, less 1. x between -87 and 89; above 88.7 the power is infinite.
struct Exponential {
  V power, rest;
};
inline __attribute__((always_inline)) Exponential parts_of_exponential(V x) {
  const V shifted = fused(x, all(1.442695041f), all(12582912.0f)), n = shifted - all(12582912.0f);
  const V r = fused(n, all(-1.428606820e-06f), fused(n, all(-6.931457520e-01f), x));
  V p = fused(all(1.393998973e-03f), r, all(8.366576396e-03f));
  p = fused(p, r, all(4.166641086e-02f)), p = fused(p, r, all(1.666654348e-01f)), p = fused(p, r, all(0.5f));
  return {(V)(((Whole)shifted - 0x4b400000 + 127) << 23), fused(p * r, r, r)};
}
inline __attribute__((always_inline)) V sigmoid(V x) {
  const Exponential e = parts_of_exponential(smaller(all(88.9f), larger(all(-87.0f), -x)));
  return all(1) / (fused(e.rest, e.power, e.power) + all(1));
}
// (exp(2|x|) - 1) / (exp(2|x|) + 1), whose numerator is exact near 0, with the sign of x.
inline __attribute__((always_inline)) V hyperbolic_tangent(V x) {
  const Whole sign = (Whole)x & Whole(all(-0.0f));
  const Exponential e = parts_of_exponential(all(2) * smaller(all(10.0f), (V)((Whole)x ^ sign)));
  const V t = fused(e.power, e.rest, e.power - all(1));
  return (V)((Whole)(t / (t + all(2))) | sign);
}

// An LSTM's gates, and what it makes of them.
struct Lstm {
  V i, f, g, o, cell, hidden;
  inline __attribute__((always_inline)) Lstm(V in, V forget, V tilt, V out, V c) {
    i = sigmoid(in), f = sigmoid(forget), g = hyperbolic_tangent(tilt), o = sigmoid(out);
    cell = fused(f, c, i * g);
    hidden = o * hyperbolic_tangent(cell);
  }
};
// The gradients of the gates' sums, and of the old cell state.
struct LstmSlopes {
  V i, f, g, o, old;
  inline __attribute__((always_inline)) LstmSlopes(V dh, V dc, V in, V forget, V tilt, V out, V c, V cell) {
    const V t = hyperbolic_tangent(cell), arrived = fused((all(1) - t * t) * out, dh, dc);
    i = (all(1) - in) * in * tilt * arrived;
    f = (all(1) - forget) * forget * c * arrived;
    g = (all(1) - tilt * tilt) * in * arrived;
    o = (all(1) - out) * out * t * dh;
    old = arrived * forget;
  }
};

}  // namespace

#endif
