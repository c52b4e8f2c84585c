// float32 from half types and to them, as rows that run by themselves: NumPy converts a number at a time.
#include "runtime.h"
#include "half.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace {

using gradlab::Bfloat16;
using gradlab::Float16;

// Where the processor converts eight numbers of float16 by one instruction: as many as there are eights of, and how many those are.
template <typename Half> int64_t eights(float*, const Half*, int64_t) { return 0; }
template <typename Half> int64_t eights(Half*, const float*, int64_t) { return 0; }
#ifdef __F16C__
template <> int64_t eights(float* y, const Float16* x, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(x + i))));
  return i;
}
template <> int64_t eights(Float16* y, const float* x, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm_storeu_si128((__m128i*)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#endif

// The numbers of a part. Parameter: how many there are.
template <typename Half> void widened(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0], part, parts, 64);
  float* const y = (float*)p[0];
  const Half* const x = (const Half*)p[1];
  const int64_t first = mine.first + eights(y + mine.first, x + mine.first, mine.last - mine.first);
#pragma GCC ivdep
  for (int64_t i = first; i < mine.last; ++i) y[i] = float(x[i]);
}

template <typename Half> void narrowed(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0], part, parts, 64);
  Half* const y = (Half*)p[0];
  const float* const x = (const float*)p[1];
  const int64_t first = mine.first + eights(y + mine.first, x + mine.first, mine.last - mine.first);
#pragma GCC ivdep
  for (int64_t i = first; i < mine.last; ++i) y[i] = gradlab::cast<Half>(gradlab::rounded<Half>(x[i]));
}

}  // namespace

GRADLAB_KERNEL gradlab_widen_float16(char** p, const int64_t* v, int part, int parts) { widened<Float16>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_widen_bfloat16(char** p, const int64_t* v, int part, int parts) { widened<Bfloat16>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_narrow_float16(char** p, const int64_t* v, int part, int parts) { narrowed<Float16>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_narrow_bfloat16(char** p, const int64_t* v, int part, int parts) { narrowed<Bfloat16>(p, v, part, parts); }
