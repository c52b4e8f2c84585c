// What a product does with rows of its result while they are in the first-level cache: the elementwise row behind it.
#ifndef GRADLAB_ENDINGS_H
#define GRADLAB_ENDINGS_H

#include "vectors.h"

namespace {

enum Ending : int64_t { NOTHING, RELU, RELU_BACKWARD, ADD, GELU, GELU_KEPT, GELU_BACKWARD, GELU_AGAIN };

// The result c, becomes: RELU max(c, 0); RELU_BACKWARD 0 where other <= 0; ADD other + c; GELU gelu(c), by the tanh form;
// GELU_KEPT c, and beside it gelu(c); GELU_BACKWARD c gelu'(other); GELU_AGAIN the same, and beside it gelu(other).
constexpr bool HAS_OTHER[] = {false, false, true, true, false, false, true, true};
constexpr bool HAS_BESIDE[] = {false, false, false, false, false, true, false, true};

// Beside the kind stand what it is rounded to, as float, before and after it (of what is kept beside, too): half types of `half.h`.
constexpr int64_t BEFORE = 16, AFTER = 256, BFLOAT16 = 1, FLOAT16 = 2;

inline __attribute__((always_inline)) V rounded(V x, int64_t to) {
  const Whole bits = (Whole)x, sign = bits & int32_t(0x80000000);
  Whole found;
  if (to == BFLOAT16) {
    found = (bits + 0x7fff + (bits >> 16 & 1)) & ~0xffff;
  } else {
    const Whole rest = bits ^ sign;
    found = (rest + 0xfff + (rest >> 13 & 1)) & ~0x1fff;
    found = rest < 0x38800000 ? (Whole)(((V)rest + 0.5f) - 0.5f) : found;
    found = (rest >= 0x477ff000 ? Whole{} + 0x7f800000 : found) | sign;
  }
  return x != x ? (V)(sign | 0x7fc00000) : (V)found;
}

constexpr int TOGETHER = 4;  // vectors: a chain of dependent instructions each, which run side by side
using Some = V[TOGETHER];
#define GRADLAB_EACH _Pragma("GCC unroll 4") for (int i = 0; i < TOGETHER; ++i)

constexpr float FAR = 1000;  // where the portion has long been 0 or 1: infinity times 0 would be NaN

// 1 / (1 + exp(-2u)) for u = sqrt(2/pi) (x + 0.044715 x^3): gelu(x) is x times that. exp becomes infinite in time for x = -infinity.
inline __attribute__((always_inline)) void portion(const Some& x, Some& y) {
  Some t, n, r, p;
  GRADLAB_EACH t[i] = x[i] * fused(x[i] * x[i], all(-0.0713548162726f), all(-1.59576912161f));
  GRADLAB_EACH t[i] = smaller(all(88.9f), larger(all(-87.0f), t[i]));
  GRADLAB_EACH n[i] = fused(t[i], all(1.442695041f), all(12582912.0f));
  GRADLAB_EACH r[i] = n[i] - all(12582912.0f);
  GRADLAB_EACH t[i] = fused(r[i], all(-6.931457520e-01f), t[i]);
  GRADLAB_EACH r[i] = fused(r[i], all(-1.428606820e-06f), t[i]);
  GRADLAB_EACH p[i] = fused(all(1.393998973e-03f), r[i], all(8.366576396e-03f));
  GRADLAB_EACH p[i] = fused(p[i], r[i], all(4.166641086e-02f));
  GRADLAB_EACH p[i] = fused(p[i], r[i], all(1.666654348e-01f));
  GRADLAB_EACH p[i] = fused(p[i], r[i], all(0.5f));
  GRADLAB_EACH p[i] = fused(p[i] * r[i], r[i], r[i]);
  GRADLAB_EACH n[i] = (V)(((Whole)n[i] - 0x4b400000 + 127) << 23);
  GRADLAB_EACH p[i] = fused(p[i] + all(1), n[i], all(1));
  GRADLAB_EACH y[i] = all(1) / p[i];
}

template <int64_t KIND> inline __attribute__((always_inline)) void ended(Some& c, const Some& other, Some& beside) {
  Some s;
  if (KIND == RELU) { GRADLAB_EACH c[i] = c[i] < V{} ? V{} : c[i]; }
  if (KIND == RELU_BACKWARD) { GRADLAB_EACH c[i] = other[i] <= V{} ? V{} : c[i]; }
  if (KIND == ADD) { GRADLAB_EACH c[i] = other[i] + c[i]; }
  if (KIND == GELU || KIND == GELU_KEPT) {
    portion(c, s);
    if (KIND == GELU) { GRADLAB_EACH c[i] = larger(all(-FAR), c[i]) * s[i]; }
    else { GRADLAB_EACH beside[i] = larger(all(-FAR), c[i]) * s[i]; }
  }
  if (KIND == GELU_BACKWARD || KIND == GELU_AGAIN) {
    portion(other, s);
    GRADLAB_EACH {
      const V z = larger(all(-FAR), other[i]), y = z * s[i], inside = smaller(all(FAR), z);
      if (KIND == GELU_AGAIN) beside[i] = y;
      c[i] = c[i] * fused(fused(-y, s[i], y), fused(inside * inside, all(0.2140644488f), all(1.59576912161f)), s[i]);
    }
  }
}

// The same between two roundings; what is kept of GELU_KEPT is rounded once.
template <int64_t KIND> inline __attribute__((always_inline)) void finished(Some& c, const Some& other, Some& beside, int64_t before, int64_t after) {
  if (before) { GRADLAB_EACH c[i] = rounded(c[i], before); }
  ended<KIND>(c, other, beside);
  if (after && HAS_BESIDE[KIND]) { GRADLAB_EACH beside[i] = rounded(beside[i], after); }
  if (after && KIND != GELU_KEPT) { GRADLAB_EACH c[i] = rounded(c[i], after); }
}

template <int64_t KIND>
void end_rows(int64_t rows, int64_t width, int64_t step, float* c, const float* other, float* beside, int64_t before, int64_t after) {
  float edges[3][TOGETHER * L] = {};  // what is left of rows at their end, so that there is one way to compute
  for (int64_t j = 0; j < width; j += TOGETHER * L) {
    const bool edge = width - j < TOGETHER * L;
    const size_t left = sizeof(float) * size_t(width - j);
    for (int64_t row = 0; row < rows; ++row) {  // not along the row: what is fetched ahead there may be what another thread writes
      const int64_t at = row * step + j;
      float *own = edge ? edges[0] : c + at, *kept = edge ? edges[2] : beside + at;
      const float* given = edge ? edges[1] : other + at;
      if (edge) {
        std::memcpy(edges[0], c + at, left);
        if (HAS_OTHER[KIND]) std::memcpy(edges[1], other + at, left);
      }
      Some x, y, z;
      GRADLAB_EACH x[i] = load(own + i * L);
      if (HAS_OTHER[KIND]) { GRADLAB_EACH y[i] = load(given + i * L); }
      finished<KIND>(x, y, z, before, after);
      if (KIND != GELU_KEPT || before) { GRADLAB_EACH store(own + i * L, x[i]); }
      if (HAS_BESIDE[KIND]) { GRADLAB_EACH store(kept + i * L, z[i]); }
      if (edge) {
        if (KIND != GELU_KEPT || before) std::memcpy(c + at, edges[0], left);
        if (HAS_BESIDE[KIND]) std::memcpy(beside + at, edges[2], left);
      }
    }
  }
}

// Of a file the parts 0 to 7 are the kinds of endings (0: where the result is rounded).
//
// The pointers are those of the other and of what is beside, as far as the kind has them; both are laid out as c.
struct Ends {
  int64_t kind, before, after;
  const float* other = nullptr;
  float* beside = nullptr;
  Ends(char** next, int64_t ending) : kind(ending % BEFORE), before(ending / BEFORE % 16), after(ending / AFTER) {
    if (HAS_OTHER[kind]) other = (const float*)*next++;
    if (HAS_BESIDE[kind]) beside = (float*)*next;
  }
  // Rows of c, whose first element is `at` behind that of the whole; `step` apart.
  void operator()(int64_t at, int64_t rows, int64_t width, int64_t step, float* c) const {
    const auto run = [=](auto end) { end(rows, width, step, c, other + at, beside + at, before, after); };
    switch (kind) {
      case NOTHING: if (before) GRADLAB_PART(NOTHING) run(end_rows<NOTHING>); return;
      case RELU: GRADLAB_PART(RELU) return run(end_rows<RELU>);
      case RELU_BACKWARD: GRADLAB_PART(RELU_BACKWARD) return run(end_rows<RELU_BACKWARD>);
      case ADD: GRADLAB_PART(ADD) return run(end_rows<ADD>);
      case GELU: GRADLAB_PART(GELU) return run(end_rows<GELU>);
      case GELU_KEPT: GRADLAB_PART(GELU_KEPT) return run(end_rows<GELU_KEPT>);
      case GELU_BACKWARD: GRADLAB_PART(GELU_BACKWARD) return run(end_rows<GELU_BACKWARD>);
      case GELU_AGAIN: GRADLAB_PART(GELU_AGAIN) return run(end_rows<GELU_AGAIN>);
    }
  }
};

}  // namespace

#endif
