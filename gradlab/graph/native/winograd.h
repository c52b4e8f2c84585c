// What Winograd's algorithm F(4×2, 3×3) shares between its kernels (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2015): four by two results of a 3×3 convolution of stride 1 come from a tile of six by four elements with 24 multiplications instead of
// 72. Across it is F(2, 3), whose matrices hold 0, ±1 and ±1/2 alone; down it is F(4, 3) at the points 0, ±3/4, ±3/2 and infinity: of those
// tried (±1/2 to ±2) the ones with the least errors, about 0.7 of those of the usual 0, ±1, ±2 and infinity. Results are less accurate than
// those of the sum that defines a convolution: their root mean square error is mostly 1.4 to 2.4 times
// that of eager mode, and 3 times with 256 channels.
//
// A band of an image is laid into scratch memory with its channels last and its border of zeros; from there on a vector holds channels, and
// each of a tile's 24 places is a product of matrices of its own, [tiles, channels] times [channels, outputs].
#ifndef GRADLAB_WINOGRAD_H
#define GRADLAB_WINOGRAD_H

#include "images.h"

namespace {

constexpr int TALL = 4, WIDE = 2;              // results of a tile
constexpr int DOWN = TALL + 2, ACROSS = WIDE + 2, PLACES = DOWN * ACROSS;  // its elements
constexpr int64_t GAP = 16;           // floats between the matrices of two places, so that they do not compete for the same cache lines
thread_local LargeScratch tile_scratch;
using I = Wide<int32_t>::type;

// The same of images that are zero but for the largest elements of windows of two by two: those, and where in its plane each lies. The strides
// are those of the elements.
inline void lay_pooled(const float* x, const int64_t* indices, const Images& s, int64_t n, int64_t top, int64_t rows, int64_t left, int64_t columns,
                       int64_t wide, float* out) {
  std::memset(out, 0, sizeof(float) * size_t(rows * columns * wide));
  const int64_t first = top > 0 ? top / 2 : 0, last = least(up(top + rows, 2), s.h / 2), many = s.w / 2;
  const bool whole = many >= L && left <= 0 && columns >= 2 * many - left;
  for (int64_t r = first; r < last; ++r) {
    const int64_t row = 2 * r - top, corner = 2 * r * s.w;
    int64_t c = 0;
    for (; whole && c + L <= s.c; c += L)
      for (int64_t i = 0; i < many; i += L) {
        const int64_t from = least(i, many - L), at = n * s.step[0] + c * s.step[1] + r * s.step[2] + from;
        float* const to = out + (row * columns + 2 * from - left) * wide + c;
        float found[L * L];
        for (int j = 0; j < L; ++j)
          for (int k = 0; k < L; ++k) ((int32_t*)found)[j * L + k] = int32_t(indices[at + j * s.step[1] + k] - corner - 2 * (from + k));
        V values[L], places[L];
        turned(x + at, s.step[1], values);
        turned(found, L, places);
        for (int below = 0; below < 2; ++below) {
          if (row + below < 0 || row + below >= rows) continue;
#pragma GCC unroll 16
          for (int j = 0; j < L; ++j) {
            const I place = (I)places[j] - int32_t(below * s.w);
            store(to + (below * columns + 2 * j) * wide, place == 0 ? values[j] : V{});
            store(to + (below * columns + 2 * j + 1) * wide, place == 1 ? values[j] : V{});
          }
        }
      }
    for (; c < s.c; ++c)
      for (int64_t i = 0; i < many; ++i) {
        const int64_t at = n * s.step[0] + c * s.step[1] + r * s.step[2] + i, found = indices[at] - corner, below = found >= s.w;
        const int64_t column = found - below * s.w - left;
        if (uint64_t(row + below) < uint64_t(rows) && uint64_t(column) < uint64_t(columns)) out[((row + below) * columns + column) * wide + c] = x[at];
      }
  }
}

// Tiles [first, first + count) of bands of `height` by `width` tiles, laid one behind the other; what is done for each run of a row:
// f(the number of the run's first tile counted from `first`, tiles of the run, band, its row, its column).
template <typename F> inline void runs(int64_t first, int64_t count, int64_t height, int64_t width, F f) {
  for (int64_t t = first; t < first + count;) {
    const int64_t x = t % width, y = t / width, many = least(width - x, first + count - t);
    f(t - first, many, y / height, y % height, x);
    t += many;
  }
}

// The points of F(4, 3) besides 0 and infinity are ±NEAR and ±FAR.
constexpr float NEAR = 0.75f, FAR = 1.5f, NEAR2 = NEAR * NEAR, FAR2 = FAR * FAR;
// What the algorithm's matrices for the weights hold: 1 over the product of a point's distances from the others.
constexpr float ZERO_PART = 1 / (NEAR2 * FAR2), NEAR_PART = 1 / (2 * NEAR2 * (NEAR2 - FAR2)), FAR_PART = 1 / (2 * FAR2 * (FAR2 - NEAR2));

// A column of six elements, transformed; columns are `row` apart.
inline void spread_down(const float* x, int64_t row, V* out) {
  const V a = load(x), b = load(x + row), c = load(x + 2 * row), d = load(x + 3 * row), e = load(x + 4 * row), f = load(x + 5 * row);
  const V near = e - FAR2 * c, near_odd = d - FAR2 * b, far = e - NEAR2 * c, far_odd = d - NEAR2 * b;
  out[0] = NEAR2 * FAR2 * a + (e - (NEAR2 + FAR2) * c);
  out[1] = near + NEAR * near_odd, out[2] = near - NEAR * near_odd;
  out[3] = far + FAR * far_odd, out[4] = far - FAR * far_odd;
  out[5] = NEAR2 * FAR2 * b + (f - (NEAR2 + FAR2) * d);
}

// A run of tiles of a laid band: place f of tile t is written to out + f * place + t * tile. Channels go by vectors; P of them are `panel`
// apart. `pixel` is the distance of pixels, `row` that of rows.
inline void transform(const float* x, int64_t pixel, int64_t row, int64_t wide, int64_t many, float* out, int64_t place, int64_t tile, int64_t panel) {
  for (int64_t c = 0; c < wide; c += L) {
    const float* in = x + c;
    float* to = out + c / P * panel + c % P;
    V had[2][DOWN];  // two columns that the next tile begins with
    spread_down(in, row, had[0]), spread_down(in + pixel, row, had[1]);
    for (int64_t t = 0; t < many; ++t, to += tile) {
      in += WIDE * pixel;
      V own[2][DOWN];
      spread_down(in, row, own[0]), spread_down(in + pixel, row, own[1]);
#pragma GCC unroll 6
      for (int i = 0; i < DOWN; ++i) {
        float* at = to + ACROSS * i * place;
        store(at, had[0][i] - own[0][i]), store(at + place, had[1][i] + own[0][i]);
        store(at + 2 * place, own[0][i] - had[1][i]), store(at + 3 * place, had[1][i] - own[1][i]);
        had[0][i] = own[0][i], had[1][i] = own[1][i];
      }
    }
  }
}

// R rows of C, W vectors wide: C = (C +) A B, which is summed up by itself: sums of sums are more accurate than one long sum. B's rows are P
// apart.
template <int R, int W>
inline __attribute__((always_inline)) void block(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t depth, float* c, int64_t c_row, bool add) {
  V total[R][W];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) total[i][j] = V{};
  for (int64_t k = 0; k < depth; ++k) {
    V row[W];
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) row[j] = load(b + k * P + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V s = a[i * a_row + k * a_column] - V{};
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) total[i][j] = fused(s, row[j], total[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) store(c + i * c_row + j * L, add ? load(c + i * c_row + j * L) + total[i][j] : total[i][j]);
}

// A product of matrices C = (C +) A B: sizes, strides in elements. a_row or a_column is 1. B lies in panels of P columns, `step` apart.
struct Matrices {
  int64_t a_row, a_column, step, columns, depth, c_row;
  bool add;

  // `count` times R rows.
  template <int R> __attribute__((noinline)) void strips(int64_t count, const float* a, const float* b, float* c) const {
    for (; count > 0; --count, a += R * a_row, c += R * c_row) {
      if (columns <= L) {  // one vector holds a row
        block<R, 1>(a, a_row, a_column, b, depth, c, c_row, add);
        continue;
      }
      for (int64_t q = 0; q * P < columns; ++q) {
        if (a_column == 1) block<R, 2>(a, a_row, 1, b + q * step, depth, c + q * P, c_row, add);
        else block<R, 2>(a, 1, a_column, b + q * step, depth, c + q * P, c_row, add);
      }
    }
  }
  template <int R> void some(int64_t r, int64_t count, const float* a, const float* b, float* c) const {
    if constexpr (R > 0) {
      if (r == R) strips<R>(count, a, b, c);
      else some<R - 1>(r, count, a, b, c);
    }
  }
  // m rows, in strips as even as possible.
  void multiply(int64_t m, const float* a, const float* b, float* c) const {
    const int64_t count = up(m, ROWS), low = m / count, higher = m - low * count, from = higher * (low + 1);
    some<ROWS>(low + 1, higher, a, b, c);
    some<ROWS>(low, count - higher, a + from * a_row, b, c + from * c_row);
  }
};

}  // namespace

#endif
