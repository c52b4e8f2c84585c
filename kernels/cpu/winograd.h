// What Winograd's algorithm F(TALL×2, 3×3) shares between its kernels (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2015): TALL by two results of a 3×3 convolution of stride 1 come from a tile of TALL + 2 by four elements.
//
// F(2×2, 3×3) takes 16 multiplications instead of 36. Its matrices hold 0, ±1 and ±1/2 alone, and its results are as accurate as those of
// the sum that defines a convolution. F(4×2, 3×3) takes 24 instead of 72; down it is F(4, 3) at the points 0, ±3/4, ±3/2 and infinity: of
// those tried (±1/2 to ±2) the ones with the least errors, about 0.7 of those of the usual 0, ±1, ±2 and infinity. Their root mean square
// is mostly 1.4 to 2.4 times that of eager mode, and 3 times with 256 channels.
//
// Parts of the files: 0 two vectors of results at a time, 1 a single one, 2 images that have to be laid, 3 results or slopes that have to be,
// 4 records, 5 windows.
//
// Vectors hold channels, so images are read where they lie if their channels come last there; others are laid so into scratch memory, a band
// at a time. Each of a tile's places is a product of matrices of its own, [tiles, channels] times [channels, outputs].
#ifndef GRADLAB_WINOGRAD_H
#define GRADLAB_WINOGRAD_H

#include "images.h"
#include "pairs.h"

namespace {

constexpr int WIDE = 2, ACROSS = WIDE + 2;  // results of a tile, and its elements
constexpr int64_t GAP = 16;  // floats between the matrices of two places, so that they do not compete for the same cache lines
constexpr int64_t LONG = 128;  // numbers that are summed up before they are added to others
thread_local LargeScratch tile_scratch;

// Tiles [first, first + count) of bands of `height` by `width` tiles, laid one behind the other; what is done for each run of a row:
// f(the number of the run's first tile counted from `first`, tiles of the run, band, its row, its column).
template <typename F> inline void runs(int64_t first, int64_t count, int64_t height, int64_t width, F f) {
  for (int64_t t = first; t < first + count;) {
    const int64_t x = t % width, y = t / width, many = least(width - x, first + count - t);
    f(t - first, many, y / height, y % height, x);
    t += many;
  }
}

// Part of images: rows and columns that there are; what lies outside is zero. Channels are beside each other.
struct Part {
  const float* at;
  int64_t image, row, pixel, rows, columns;
};

// Whether images can be read where they lie, whole vectors of channels at a time.
inline bool readable(const Images& s) { return s.step[1] == 1 && s.c % L == 0 && s.step[3] > 0; }

// A row of zeros, for what lies above and below of images. A kernel asks for as many as it will need before it begins.
struct Zeros {
  float* memory = nullptr;
  int64_t size = 0;
  ~Zeros() { aligned_delete(memory); }
  const float* of(int64_t wanted) {
    if (wanted > size) {
      aligned_delete(memory);
      memory = (float*)aligned_new(64, sizeof(float) * size_t(wanted));
      if (memory == nullptr) return size = 0, nullptr;
      size = wanted;
      std::memset(memory, 0, sizeof(float) * size_t(size));
    }
    return memory;
  }
};
thread_local Zeros zeros;

// Whether all that was added up to these sums is finite (or nearly too large).
inline bool finite(V total) {
  float rest[L];
  store(rest, total - total);
  bool all = true;
  for (int i = 0; i < L; ++i) all = all && rest[i] == 0;
  return all;
}

// The points of F(4, 3) besides 0 and infinity are ±NEAR and ±FAR.
constexpr float NEAR = 0.75f, FAR = 1.5f, NEAR2 = NEAR * NEAR, FAR2 = FAR * FAR;
// What the algorithm's matrices for the weights hold: 1 over the product of a point's distances from the others.
constexpr float ZERO_PART = 1 / (NEAR2 * FAR2), NEAR_PART = 1 / (2 * NEAR2 * (NEAR2 - FAR2)), FAR_PART = 1 / (2 * FAR2 * (FAR2 - NEAR2));

// A column of a tile, transformed: element i is at(i).
template <int TALL, typename F> inline void spread_down(F at, V* out) {
  const V a = at(0), b = at(1), c = at(2), d = at(3);
  if constexpr (TALL == 2) {
    out[0] = a - c, out[1] = b + c, out[2] = c - b, out[3] = b - d;
  } else {
    const V e = at(4), f = at(5);
    const V near = e - FAR2 * c, near_odd = d - FAR2 * b, far = e - NEAR2 * c, far_odd = d - NEAR2 * b;
    out[0] = NEAR2 * FAR2 * a + (e - (NEAR2 + FAR2) * c);
    out[1] = near + NEAR * near_odd, out[2] = near - NEAR * near_odd;
    out[3] = far + FAR * far_odd, out[4] = far - FAR * far_odd;
    out[5] = NEAR2 * FAR2 * b + (f - (NEAR2 + FAR2) * d);
  }
}

// A run of tiles whose first element is (y, x) of an image's part, written as tiles `t` and so on to out, whose places are `place` apart. There
// `panel` channels of a tile lie together, panels are `next` apart; the last one may be narrower. E: what is written, floats or pairs of channels
// rounded to bfloat16.
template <int TALL, typename E>
inline void transform(const Part& s, int64_t image, int64_t y, int64_t x, int64_t channels, int64_t many, E* out, int64_t t, int64_t place, int64_t panel, int64_t next) {
  constexpr int DOWN = TALL + 2;
  const float *lines[DOWN], *ahead[TALL];  // what the tiles below are made of is fetched meanwhile
  for (int i = 0; i < DOWN + TALL; ++i) {
    const bool inside = uint64_t(y + i) < uint64_t(s.rows);
    const float* const line = inside ? s.at + image * s.image + (y + i) * s.row : i < DOWN ? zeros.of(s.columns * s.pixel + channels) : s.at;
    if (i < DOWN) lines[i] = line;
    else ahead[i - DOWN] = line;
  }
  for (int64_t first = 0; first < channels; first += panel, out += next) {
    const int64_t tile = least(panel, channels - first);
    for (int64_t c = 0; c < tile; c += L) {
      int64_t at = x * s.pixel + first + c;
      const auto column = [&](int64_t j, V* found) {
        if (uint64_t(j) < uint64_t(s.columns)) spread_down<TALL>([&](int i) { return load(lines[i] + at); }, found);
        else
          for (int i = 0; i < DOWN; ++i) found[i] = V{};
        at += s.pixel;
      };
      E* to[DOWN];
      for (int i = 0; i < DOWN; ++i) to[i] = out + (t * tile + c) / EACH<E> + ACROSS * i * place;
      V had[2][DOWN];  // two columns that the next tile begins with
      column(x, had[0]), column(x + 1, had[1]);
      for (int64_t j = x + 2; j < x + 2 + WIDE * many; j += WIDE) {
        V own[2][DOWN];
#pragma GCC unroll 4
        for (int i = 0; i < TALL; ++i) __builtin_prefetch(ahead[i] + at), __builtin_prefetch(ahead[i] + at + s.pixel);
        column(j, own[0]);
#pragma GCC unroll 6
        for (int i = 0; i < DOWN; ++i)
          put(to[i], had[0][i] - own[0][i]), put(to[i] + place, had[1][i] + own[0][i]), put(to[i] + 2 * place, own[0][i] - had[1][i]);
        column(j + 1, own[1]);
#pragma GCC unroll 6
        for (int i = 0; i < DOWN; ++i) {
          put(to[i] + 3 * place, had[1][i] - own[1][i]);
          had[0][i] = own[0][i], had[1][i] = own[1][i];
          to[i] += tile / EACH<E>;
        }
      }
    }
  }
}

// Products of matrices C = A B, or with `add` C += A B, W vectors wide, one for each place. `step` is that of A's rows with ROWS_APART, else of its
// columns, and the other one is 1; that of C's rows is `c_row`; rows of B are W vectors. C may lie where A does, row by row. E: their elements, floats
// or pairs of bfloat16 numbers along the depth.
template <int W, bool ROWS_APART, typename E = float> struct Matrices {
  static constexpr int MOST = W == 1 && ROWS < 12 ? 12 : ROWS;  // narrow ones are worth more rows, as each waits for the one before
  int64_t step, depth, c_row, places, a_place, b_place, c_place;
  bool add;

  template <int R> inline __attribute__((always_inline)) void block(const E* a, const E* b, float* c) const {
    V total[R][W];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) total[i][j] = V{};
    const int64_t row = ROWS_APART ? step : 1, column = ROWS_APART ? 1 : step;
    const E *a0 = a, *a3 = a + 3 * row, *a6 = a + 6 * row, *a9 = a + 9 * row;  // an address holds up to two rows' distances from these
    for (int64_t k = depth; k > 0; --k) {
      decltype(terms(b)) own[W];
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) own[j] = terms(b + j * L);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const E* const from = i < 3 ? a0 : i < 6 ? a3 : i < 9 ? a6 : a9;
        const auto s = spread(from[i % 3 * row]);
#pragma GCC unroll 2
        for (int j = 0; j < W; ++j) total[i][j] = dot(s, own[j], total[i][j]);
      }
      a0 += column, a3 += column, a6 += column, a9 += column, b += W * L;
    }
    float* to = c;
    if (add) {
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i, to += c_row)
#pragma GCC unroll 2
        for (int j = 0; j < W; ++j) total[i][j] += load(to + j * L);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i, c += c_row)
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) store(c + j * L, total[i][j]);
  }
  // `count` times R rows of each.
  template <int R> __attribute__((noinline)) void strips(int64_t count, const E* a, const E* b, float* c) const {
    for (int64_t f = 0; f < places; ++f, a += a_place, b += b_place, c += c_place)
      for (int64_t i = 0; i < count; ++i) block<R>(a + i * R * (ROWS_APART ? step : 1), b, c + i * R * c_row);
  }
  template <int R> void some(int64_t r, int64_t count, const E* a, const E* b, float* c) const {
    if constexpr (R > 0) {
      if (r == R) strips<R>(count, a, b, c);
      else some<R - 1>(r, count, a, b, c);
    }
  }
  // m rows, in strips as even as possible.
  void multiply(int64_t m, const E* a, const E* b, float* c) const {
    const int64_t count = up(m, MOST), low = m / count, higher = m - low * count, from = higher * (low + 1);
    if (higher > 0) some<MOST>(low + 1, higher, a, b, c);
    some<MOST>(low, count - higher, a + from * (ROWS_APART ? step : 1), b, c + from * c_row);
  }
};

// The same for as many columns as there are vectors, a panel of two after the other: of B they are `next` apart. Up to LONG numbers are summed up by
// themselves, as sums of sums are more accurate than one long sum.
template <bool ROWS_APART, typename E = float> struct Panels {
  int64_t step, depth, c_row, places, a_place, b_place, c_place;
  bool add;

  template <int W> void panel(int64_t m, const E* a, const E* b, float* c) const {
    for (int64_t k = 0; k < depth; k += LONG) {
      const Matrices<W, ROWS_APART, E> part = {step, least(LONG, depth - k), c_row, places, a_place, b_place, c_place, add || k > 0};
      part.multiply(m, a + k * (ROWS_APART ? 1 : step), b + k * W * L, c);
    }
  }
  void multiply(int64_t m, int64_t vectors, const E* a, const E* b, int64_t next, float* c) const {
    for (; vectors >= 2; vectors -= 2, b += next, c += P) GRADLAB_PART(0) panel<2>(m, a, b, c);
    if (vectors > 0) GRADLAB_PART(1) panel<1>(m, a, b, c);
  }
};

}  // namespace

#endif
