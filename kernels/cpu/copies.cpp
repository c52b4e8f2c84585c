// Copies between strided places and constants, their sizes given as parameters: for rows that run by themselves (backends/native/general).
#include "transpose.h"

namespace {

constexpr int DEPTH = 6;  // dimensions at most

template <typename W> void repeat(W* y, W value, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = value;
}

// Parameters: dimensions, then for each, the innermost first, size, step of the target, step of the source; at last the dimension along which
// the source lies without gaps, where that is not the first.
template <typename W> void copied(W* y, const W* x, const int64_t* v, int part, int parts) {
  const int n = int(v[0]), across = int(v[1]), outermost = n - 1 == across && n > 1 ? n - 2 : n - 1;
  const int64_t* const d = v + 2;
  int64_t from[DEPTH], to[DEPTH], at[DEPTH];
  for (int i = 0; i < n; ++i) from[i] = at[i] = 0, to[i] = d[3 * i];
  const bool turned = across > 0 && outermost == 0;  // two dimensions, which change places: the parts share the columns
  const int shared = turned ? across : outermost;
  const Share mine = share(d[3 * shared], part, parts, shared == 0 || turned ? 64 : 1);
  from[shared] = at[shared] = mine.first, to[shared] = mine.last;
  if (mine.first >= mine.last) return;
  for (;;) {
    W* target = y + from[0] * d[1];
    const W* source = x + from[0] * d[2];
    for (int i = 1; i < n; ++i) target += at[i] * d[3 * i + 1], source += at[i] * d[3 * i + 2];
    if (across > 0) gradlab::turn(target, d[3 * across + 1], source, d[2], to[across] - from[across], to[0] - from[0]);
    else if (d[1] == 1 && d[2] == 1) std::memcpy(target, source, size_t(to[0] - from[0]) * sizeof(W));
    else if (d[1] == 1 && d[2] == -1)
      for (int64_t i = 0; i < to[0] - from[0]; ++i) target[i] = source[-i];
    else if (d[1] == 1 && d[2] == 0)
      repeat(target, *source, to[0] - from[0]);
    else
      for (int64_t i = 0; i < to[0] - from[0]; ++i) target[i * d[1]] = source[i * d[2]];
    int i = 1;
    for (; i < n; ++i) {
      if (i == across) continue;
      if (++at[i] < to[i]) break;
      at[i] = from[i];
    }
    if (i == n) return;
  }
}

template <typename W> void filled(W* y, W value, int64_t count, int part, int parts) {
  const Share mine = share(count, part, parts, 64);
  repeat(y + mine.first, value, mine.last - mine.first);
}

}  // namespace

GRADLAB_KERNEL gradlab_copy_1(char** p, const int64_t* v, int part, int parts) { copied((uint8_t*)p[0], (const uint8_t*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_copy_2(char** p, const int64_t* v, int part, int parts) { copied((uint16_t*)p[0], (const uint16_t*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_copy_4(char** p, const int64_t* v, int part, int parts) { copied((uint32_t*)p[0], (const uint32_t*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_copy_8(char** p, const int64_t* v, int part, int parts) { copied((uint64_t*)p[0], (const uint64_t*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_fill_1(char** p, const int64_t* v, int part, int parts) { filled((uint8_t*)p[0], uint8_t(v[0]), v[1], part, parts); }
GRADLAB_KERNEL gradlab_fill_2(char** p, const int64_t* v, int part, int parts) { filled((uint16_t*)p[0], uint16_t(v[0]), v[1], part, parts); }
GRADLAB_KERNEL gradlab_fill_4(char** p, const int64_t* v, int part, int parts) { filled((uint32_t*)p[0], uint32_t(v[0]), v[1], part, parts); }
GRADLAB_KERNEL gradlab_fill_8(char** p, const int64_t* v, int part, int parts) { filled((uint64_t*)p[0], uint64_t(v[0]), v[1], part, parts); }
