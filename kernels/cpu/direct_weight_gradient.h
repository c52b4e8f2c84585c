// What the gradient of a convolution's weight is made of: sums of products along the pixels of a band of images, and the ways to lay such
// bands into scratch memory.
#ifndef GRADLAB_DIRECT_DW_H
#define GRADLAB_DIRECT_DW_H

#include "images.h"

namespace {

using I = Wide<int32_t>::type;
constexpr int MOST = 12;  // rows of sums in blocks one vector wide; those two vectors wide have ROWS

// Distances from one image, row and pixel to the next.
struct Steps {
  int64_t image, row, pixel;
};

// What sums run along, and the steps of both factors. rest: elements of a last vector of a row, which ends where the row does.
struct Run {
  int64_t images, rows, width;
  Steps a, b;
  int64_t rest = 0;

  // Rows that follow each other without a gap are one; then images.
  Run joined() const {
    Run r = *this;
    if (rest > 0) return r;
    if (r.rows == 1 || (r.a.row == r.width * r.a.pixel && r.b.row == r.width * r.b.pixel)) {
      r.width *= r.rows, r.rows = r.images, r.images = 1;
      r.a.row = r.a.image, r.b.row = r.b.image;
      if (r.a.row == r.width * r.a.pixel && r.b.row == r.width * r.b.pixel) r.width *= r.rows, r.rows = 1;
    }
    return r;
  }
};

// Keeps the compiler from loading a value again for each use.
inline void in_register(V& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

// What a row of sums multiplies by.
enum Kind { NUMBERS, VECTORS };

// to[r, w] = Σ along the run a[r] · (vector w of b), or is added to; vectors of b are `apart`. Sums are kept in registers; where they are few,
// those of several pixels apart, for a sum waits for the one before it.
template <Kind KIND, int R, int W>
__attribute__((noinline)) void products(const float* const* rows, const float* b, int64_t apart, const Run& run, bool add, float* to, int64_t to_row,
                                        int64_t to_vector) {
  constexpr int U = KIND == VECTORS || R * W >= 8 ? 1 : (7 + R * W) / (R * W);
  V total[U][R][W];
  const float* a[R];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) a[r] = rows[r];
#pragma GCC unroll 12
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) total[u][r][w] = V{};
  I own;  // of the last vector of a row: all ones in elements that no vector before has
  for (int j = 0; j < L; ++j) own[j] = L - j <= run.rest ? -1 : 0;
  for (int64_t n = 0; n < run.images; ++n)
    for (int64_t y = 0; y < run.rows; ++y) {
      const float* at = b + n * run.b.image + y * run.b.row;
      int64_t i = n * run.a.image + y * run.a.row, left = run.width;
      const auto step = [&](V (&sum)[R][W], int64_t u, bool masked) __attribute__((always_inline)) {
        V some[W];
#pragma GCC unroll 4
        for (int w = 0; w < W; ++w) {
          some[w] = load(at + u * run.b.pixel + w * apart);
          if (masked) some[w] = (V)((I)some[w] & own);
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
          V s;
          if (KIND == NUMBERS) s = a[r][i + u * run.a.pixel] - V{};  // the same in every lane: x - 0 is x
          else s = load(a[r] + i + u * run.a.pixel);
          if (KIND == VECTORS && W > 1) in_register(s);
          if (masked) s = (V)((I)s & own);
#pragma GCC unroll 4
          for (int w = 0; w < W; ++w) sum[r][w] = fused(s, some[w], sum[r][w]);
        }
      };
      if (U > 1)
        for (; left >= U; left -= U, i += U * run.a.pixel, at += U * run.b.pixel)
#pragma GCC unroll 12
          for (int u = 0; u < U; ++u) step(total[u], u, false);
      for (; left > 0; --left, i += run.a.pixel, at += run.b.pixel) step(total[0], 0, false);
      if (KIND == VECTORS && run.rest > 0) {
        i += run.rest - L, at += run.rest - L;
        step(total[0], 0, true);
      }
    }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      V sum = total[0][r][w];
#pragma GCC unroll 12
      for (int u = 1; u < U; ++u) sum += total[u][r][w];
      float* place = to + r * to_row + w * to_vector;
      store(place, add ? load(place) + sum : sum);
    }
}

using Products = void (*)(const float* const*, const float*, int64_t, const Run&, bool, float*, int64_t, int64_t);
// Parts of the file: 4 to 7 vectors in blocks of one to four; of numbers 12 to 23 blocks of one vector and so many rows, 24 to 35 those of two.
template <Kind KIND, int W, int R> inline Products made() {
  if constexpr (needed(KIND == NUMBERS ? 11 + R + 12 * (W - 1) : 3 + W)) return products<KIND, R, W>;
  else return nullptr;
}
template <Kind KIND, int W, size_t... R> inline Products chosen(int64_t r, std::index_sequence<R...>) {
  static const Products all[] = {made<KIND, W, int(R) + 1>()...};
  const Products found = all[r - 1];
  if (found == nullptr) __builtin_trap();
  GRADLAB_NOTE(KIND == NUMBERS ? 11 + r + 12 * (W - 1) : 3 + W);
  return found;
}

// The most vectors of a block of vectors; the most rows of one so many vectors wide, and the kernel for it.
constexpr int WIDEST = ROWS == 12 ? 4 : 2;
inline int64_t most_rows(int64_t wide) { return wide == 1 ? MOST : 2 * ROWS / wide; }
inline Products kernel(Kind kind, int64_t rows, int64_t wide) {
  using One = std::make_index_sequence<MOST>;
  using Two = std::make_index_sequence<ROWS>;
  if (kind == NUMBERS) return wide == 2 ? chosen<NUMBERS, 2>(rows, Two()) : chosen<NUMBERS, 1>(rows, One());
  if constexpr (WIDEST == 4) {
    if (wide == 3) return chosen<VECTORS, 3>(rows, std::make_index_sequence<2 * ROWS / 3>());
    if (wide == 4) return chosen<VECTORS, 4>(rows, std::make_index_sequence<ROWS / 2>());
  }
  return wide == 2 ? chosen<VECTORS, 2>(rows, Two()) : chosen<VECTORS, 1>(rows, One());
}

// Rows [top, top + rows) and columns [left, left + columns) of the planes of image n, `plane` apart; zeros outside.
inline void planes(const float* x, const Images& s, int64_t n, int64_t top, int64_t rows, int64_t left, int64_t columns, int64_t plane, float* out) {
  const int64_t t0 = left < 0 ? least(-left, columns) : 0, t1 = least(s.w - left, columns) > t0 ? least(s.w - left, columns) : t0;
  const bool last = s.step[1] == 1 && s.step[3] > 1 && t1 - t0 >= L && s.step[2] == s.w * s.step[3] && s.step[0] == s.h * s.step[2];
  for (int64_t c = 0, some; c < s.c; c += some) {  // plane after plane, as they lie; or some together, of which more may be read than there are
    some = last ? least(L, s.c - c) : 1;
    const float* in = x + n * s.step[0] + c * s.step[1] + top * s.step[2] + left * s.step[3];
    float* row = out + c * plane;
    for (int64_t r = 0; r < rows; ++r, row += columns, in += s.step[2]) {
      const int64_t y = top + r, first = y < 0 || y >= s.h ? columns : t0, end = y < 0 || y >= s.h ? columns : t1;
      const bool turns = last && end > first && (some == L || n + 1 < s.n || y + 1 < s.h);
      for (int64_t j = 0; j < some; ++j) {
        float* to = row + j * plane;
        for (int64_t t = 0; t < first; ++t) to[t] = 0;
        for (int64_t t = end; t < columns; ++t) to[t] = 0;
        if (turns) continue;
        if (s.step[3] != 1 || end - first < L) {
          for (int64_t t = first; t < end; ++t) to[t] = in[j * s.step[1] + t * s.step[3]];
          continue;
        }
        for (int64_t t = first; t < end - L; t += L) store(to + t, load(in + j * s.step[1] + t));
        store(to + end - L, load(in + j * s.step[1] + end - L));
      }
      for (int64_t t = first; turns && t < end; t += L) {
        const int64_t at = least(t, end - L);
        V found[L];
        turned(in + at * s.step[3], s.step[3], found);
        if (some < L) for (int64_t j = 0; j < some; ++j) store(row + j * plane + at, found[j]);
        else
#pragma GCC unroll 16
          for (int j = 0; j < L; ++j) store(row + j * plane + at, found[j]);
      }
    }
  }
}

}  // namespace

#endif
