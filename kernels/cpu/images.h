// Images as convolutions see them: bands of their rows are laid into scratch memory with the channels last, a border of zeros around them.
#ifndef GRADLAB_IMAGES_H
#define GRADLAB_IMAGES_H

#include "vectors.h"

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

namespace {

inline int64_t up(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int64_t P = PANEL<float>;

typedef float Half __attribute__((vector_size(16)));
typedef float LooseHalf __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));
inline Half half(const float* at) { return *(const LooseHalf*)at; }

// L rows of L elements, row i from from(i) on, as rows[j] = column j.
template <typename F> inline void turned(F from, V* rows) {
#if defined(__AVX__) && !defined(__AVX512F__)  // halves of rows are put together as they are loaded, which costs nothing beside the shuffles
  V both[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const float *a = from(i), *b = from(i + 4);
    both[i] = __builtin_shufflevector(half(a), half(b), 0, 1, 2, 3, 4, 5, 6, 7);
    both[i + 4] = __builtin_shufflevector(half(a + 4), half(b + 4), 0, 1, 2, 3, 4, 5, 6, 7);
  }
#pragma GCC unroll 2
  for (int h = 0; h < 8; h += 4) {
    const V a = __builtin_shufflevector(both[h], both[h + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    const V b = __builtin_shufflevector(both[h], both[h + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    const V c = __builtin_shufflevector(both[h + 2], both[h + 3], 0, 8, 1, 9, 4, 12, 5, 13);
    const V d = __builtin_shufflevector(both[h + 2], both[h + 3], 2, 10, 3, 11, 6, 14, 7, 15);
    rows[h] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
    rows[h + 1] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
    rows[h + 2] = __builtin_shufflevector(b, d, 0, 1, 8, 9, 4, 5, 12, 13);
    rows[h + 3] = __builtin_shufflevector(b, d, 2, 3, 10, 11, 6, 7, 14, 15);
  }
#else
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) rows[i] = load(from(i));
  turn<float>(rows);
#endif
}

// Scratch memory of a thread, much of it on large pages: the matrices of a tile's places lie far apart, in too many small pages for the
// processor to keep track of. Little is not worth a large page, and stays with the thread from call to call.
struct LargeScratch {
  static constexpr size_t PAGE = size_t(1) << 21, LITTLE = PAGE / 2, KEPT = size_t(1) << 18;
  void* memory = nullptr;
  size_t size = 0;
  ~LargeScratch() { aligned_delete(memory); }
  void* of(size_t wanted) {
    if (wanted > size) {
      aligned_delete(memory);
      const size_t page = wanted > LITTLE ? PAGE : 4096;
      size = (wanted + page - 1) / page * page;
      memory = aligned_new(page, size);
      if (memory == nullptr) return size = 0, nullptr;
#if defined(MADV_HUGEPAGE)
      if (page == PAGE) madvise(memory, size, MADV_HUGEPAGE);
#endif
    }
    return memory;
  }
};

// Stands in a kernel that uses scratch memory: what is more than a thread may keep goes back at the end of the call.
struct UntilTheEnd {
  LargeScratch& scratch;
  explicit UntilTheEnd(LargeScratch& scratch) : scratch(scratch) {}
  UntilTheEnd(const UntilTheEnd&) = delete;
  ~UntilTheEnd() {
    if (scratch.size <= LargeScratch::KEPT) return;
    aligned_delete(scratch.memory);
    scratch.memory = nullptr, scratch.size = 0;
  }
};

// Images in memory: sizes and strides.
struct Images {
  int64_t n, c, h, w, step[4];
};
inline Images images_of(const int64_t* v) { return {v[0], v[1], v[2], v[3], {v[4], v[5], v[6], v[7]}}; }
constexpr int IMAGES = 8;

// The same of rows `stride` apart.
inline void turned(const float* from, int64_t stride, V* rows) {
  turned([=](int64_t i) { return from + i * stride; }, rows);
}

// `count` pixels of so many channels, `step` apart and `pace` where they go to.
inline void moved(const float* in, int64_t step, int64_t count, int64_t channels, float* out, int64_t pace) {
  if (step == channels && pace == channels) {
    std::memcpy(out, in, sizeof(float) * size_t(count * channels));
    return;
  }
  for (int64_t i = 0; i < count; ++i, in += step, out += pace) {
    int64_t c = 0;
    for (; c + L <= channels; c += L) store(out + c, load(in + c));
    for (; c < channels; ++c) out[c] = in[c];
  }
}

// Rows [top, top + rows) and columns [left, left + columns) of image n, channels last and `wide` apart; zeros outside and behind the last
// channel.
inline void lay(const float* x, const Images& s, int64_t n, int64_t top, int64_t rows, int64_t left, int64_t columns, int64_t wide, float* out) {
  if (rows > 1 && left == 0 && columns == s.w && top >= 0 && top + rows <= s.h && s.step[2] == s.w * s.step[3]) {  // whole rows are one
    const Images one = {s.n, s.c, 1, s.h * s.w, {s.step[0], s.step[1], 0, s.step[3]}};
    return lay(x, one, n, 0, 1, top * s.w, rows * s.w, wide, out);
  }
  const int64_t a = left < 0 ? least(-left, columns) : 0, b = least(s.w - left, columns) > a ? least(s.w - left, columns) : a;
  const size_t pixel = sizeof(float) * size_t(wide);
  const V none[1] = {};
  for (int64_t r = 0; r < rows; ++r, out += columns * wide) {
    const int64_t y = top + r;
    if (y < 0 || y >= s.h) {
      std::memset(out, 0, pixel * size_t(columns));
      continue;
    }
    std::memset(out, 0, pixel * size_t(a));
    std::memset(out + b * wide, 0, pixel * size_t(columns - b));
    const float* in = x + n * s.step[0] + y * s.step[2] + left * s.step[3];
    if (s.step[1] == 1) {
      moved(in + a * s.step[3], s.step[3], b - a, s.c, out + a * wide, wide);
      if (s.c < wide)
        for (int64_t i = a; i < b; ++i) std::memset(out + i * wide + s.c, 0, sizeof(float) * size_t(wide - s.c));
      continue;
    }
    // A short row is read on into the next one, where there is one.
    const bool beyond = b > a && b - a < L && s.step[2] == s.w && y * s.w + left + a + L <= s.h * s.w;
    int64_t c = 0;
    for (; s.step[3] == 1 && (b - a >= L || beyond) && c < s.c && c + L <= (c + L <= s.c ? s.c : wide); c += L)
      for (int64_t i = a; i < b; i += L) {
        const int64_t from = beyond ? a : least(i, b - L), have = least(L, b - from);
        V some[L];
        if (c + L <= s.c) turned(in + c * s.step[1] + from, s.step[1], some);
        else turned([&](int64_t j) { return c + j < s.c ? in + (c + j) * s.step[1] + from : (const float*)none; }, some);
        float* to = out + from * wide + c;
        if (have < L) for (int64_t j = 0; j < have; ++j) store(to + j * wide, some[j]);
        else
#pragma GCC unroll 16
          for (int j = 0; j < L; ++j) store(to + j * wide, some[j]);
      }
    if (c >= wide) continue;
    for (int64_t i = a; i < b; ++i) {
      for (int64_t k = c; k < s.c; ++k) out[i * wide + k] = in[k * s.step[1] + i * s.step[3]];
      for (int64_t k = c > s.c ? c : s.c; k < wide; ++k) out[i * wide + k] = 0;
    }
  }
}

// The way back: rows of `columns` pixels into image n from row `top` on, of which the first s.w are wanted.
inline void lay_back(const float* from, int64_t rows, int64_t columns, int64_t wide, const Images& images, int64_t n, int64_t top, float* y) {
  Images s = images;
  y += n * s.step[0] + top * s.step[2];
  if (columns == s.w && s.step[2] == columns * s.step[3]) s.w = columns = rows * columns, rows = rows > 0;  // rows lie behind each other in both
  for (int64_t r = 0; r < rows; ++r, from += columns * wide) {
    float* out = y + r * s.step[2];
    if (s.step[1] == 1) {
      moved(from, wide, s.w, s.c, out, s.step[3]);
      continue;
    }
    int64_t c = 0;
    if (s.step[3] == 1 && s.w >= L)
      for (; c + L <= s.c; c += L)
        for (int64_t i = 0; i < s.w; i += L) {
          const int64_t at = least(i, s.w - L);
          V some[L];
          turned(from + at * wide + c, wide, some);
#pragma GCC unroll 16
          for (int j = 0; j < L; ++j) store(out + (c + j) * s.step[1] + at, some[j]);
        }
    for (; c < s.c; ++c)
      for (int64_t i = 0; i < s.w; ++i) out[c * s.step[1] + i * s.step[3]] = from[i * wide + c];
  }
}

}  // namespace

#endif
