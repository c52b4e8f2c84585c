// Functions of whole vectors of float, for kernels that keep their numbers in registers.
#ifndef GRADLAB_VECTORS_H
#define GRADLAB_VECTORS_H

#include "gemm.h"

namespace {

using V = Wide<float>::type;
typedef int32_t Whole __attribute__((vector_size(BYTES)));
constexpr int64_t L = LANES<float>;
inline V all(float x) { return x - V{}; }

// The larger and the smaller number; y where one is NaN. Compilers make two or three instructions of a comparison and a choice.
#if defined(__AVX512F__) && !defined(__clang__)
inline V larger(V x, V y) { return __builtin_ia32_maxps512_mask(x, y, V{}, -1, 4); }
inline V smaller(V x, V y) { return __builtin_ia32_minps512_mask(x, y, V{}, -1, 4); }
#elif defined(__AVX__) && !defined(__clang__)
inline V larger(V x, V y) { return __builtin_ia32_maxps256(x, y); }
inline V smaller(V x, V y) { return __builtin_ia32_minps256(x, y); }
#else
inline V larger(V x, V y) { return x > y ? x : y; }
inline V smaller(V x, V y) { return x < y ? x : y; }
#endif

// exp of what is not far above 0, by the polynomial of scalar_math.h. Below the normal floats the power of two, and so the result, is 0.
inline V exponential(V x) {
  x = larger(all(-88.2f), x);
  const V shifted = fused(x, all(1.442695041f), all(12582912.0f)), n = shifted - all(12582912.0f);
  const V r = fused(n, all(-1.428606820e-06f), fused(n, all(-6.931457520e-01f), x));
  V p = fused(all(1.393998973e-03f), r, all(8.366576396e-03f));
  p = fused(p, r, all(4.166641086e-02f)), p = fused(p, r, all(1.666654348e-01f)), p = fused(p, r, all(0.5f));
  const V power = (V)(((Whole)shifted - 0x4b400000 + 127) << 23);
  return fused(fused(p * r, r, r), power, power);
}

}  // namespace

#endif
