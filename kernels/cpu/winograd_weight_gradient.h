// The gradient of a 3×3 convolution's weight by Winograd's algorithm (winograd.h), its transforms the other way round: the kernels, which
// `winograd_weight_gradient.cpp` makes for F(2×2, 3×3), and `winograd_weight_gradient_tall.cpp` for F(4×2, 3×3).
#ifndef GRADLAB_WINOGRAD_SLOPES_H
#define GRADLAB_WINOGRAD_SLOPES_H

#include "partial_sums.h"
#include "winograd.h"

namespace {

inline void slopes_across(V a, V b, V* out) { out[0] = a, out[1] = a + b, out[2] = a - b, out[3] = -b; }
template <int TALL, typename F> inline void slopes_down(F at, V* out) {
  if constexpr (TALL == 2) return slopes_across(at(0), at(1), out);
  const V a = at(0), b = at(1), c = at(TALL - 2), d = at(TALL - 1);
  const V near = a + NEAR2 * c, near_odd = NEAR * (b + NEAR2 * d), far = a + FAR2 * c, far_odd = FAR * (b + FAR2 * d);
  out[0] = a, out[1] = near + near_odd, out[2] = near - near_odd, out[3] = far + far_odd, out[4] = far - far_odd, out[5] = d;
}

// A run of tiles of TALL by two slopes each, from row y and column x of an image on: DOWN numbers down, four across, placed as `transform` does.
template <int TALL>
inline void slopes(const Part& s, int64_t image, int64_t y, int64_t x, int64_t channels, int64_t many, float* out, int64_t place) {
  constexpr int DOWN = TALL + 2;
  const float *lines[TALL], *ahead[TALL];
  for (int i = 0; i < TALL; ++i) {
    const float* const first = s.at + image * s.image + (y + i) * s.row;
    lines[i] = y + i < s.rows ? first : zeros.of(s.columns * s.pixel + channels);
    ahead[i] = y + i + TALL < s.rows ? first + TALL * s.row : s.at;
  }
  for (int64_t c = 0; c < channels; c += L) {
    const auto column = [&](int64_t j, V* found) {
      if (j < s.columns) slopes_down<TALL>([&](int i) { return load(lines[i] + j * s.pixel + c); }, found);
      else
        for (int i = 0; i < DOWN; ++i) found[i] = V{};
    };
    float* to = out + c;
    for (int64_t t = 0; t < many; ++t, to += channels) {
      V half[WIDE][DOWN];
#pragma GCC unroll 4
      for (int i = 0; i < TALL; ++i)
        for (int j = 0; j < WIDE; ++j) __builtin_prefetch(ahead[i] + (x + WIDE * t + j) * s.pixel + c);
      column(x + WIDE * t, half[0]), column(x + WIDE * t + 1, half[1]);
#pragma GCC unroll 6
      for (int i = 0; i < DOWN; ++i) {
        V found[ACROSS];
        slopes_across(half[0][i], half[1][i], found);
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; ++j) store(to + (ACROSS * i + j) * place, found[j]);
      }
    }
  }
}

// G of the algorithm, transposed: four numbers across, or DOWN of them down, become three.
inline void taps_across(V a, V b, V c, V d, V* out) {
  const V sum = (b + c) * 0.5f, difference = (b - c) * 0.5f;
  out[0] = a + sum, out[1] = difference, out[2] = sum + d;
}
template <int TALL, typename F> inline void taps_down(F at, V* out) {
  if constexpr (TALL == 2) return taps_across(at(0), at(1), at(2), at(3), out);
  const V b = at(1), c = at(2), d = at(3), e = at(TALL);
  const V near = (b + c) * NEAR_PART, near_odd = (b - c) * (NEAR * NEAR_PART), far = (d + e) * FAR_PART, far_odd = (d - e) * (FAR * FAR_PART);
  out[0] = at(0) * ZERO_PART + (near + far), out[1] = near_odd + far_odd, out[2] = NEAR2 * near + FAR2 * far + at(TALL + 1);
}

// Images whose rows [top, top + rows) are wanted: where they lie, or laid into scratch memory.
struct Reader {
  const float* x;
  Images s;
  int64_t left, columns, laid;
  float* scratch;
  int64_t wide() const { return up(s.c, L) * L; }
  // Channels [first, first + count) of them.
  Reader some(int64_t first, int64_t count) const {
    Reader part = *this;
    part.x += first * s.step[1], part.s.c = least(count, s.c - first);
    return part;
  }
  Part part(int64_t n, int64_t images, int64_t top, int64_t rows) const {
    if (readable(s)) return {x + n * s.step[0], s.step[0], s.step[2], s.step[3], s.h, s.w};
    GRADLAB_PART(2)
      for (int64_t i = 0; i < images; ++i) lay(x, s, n + i, top, rows, left, columns, wide(), scratch + i * laid);
    return {scratch, laid, columns * wide(), wide(), rows, columns};
  }
};

// Sums of all places, [outputs, channels (up to whole vectors)], `place` apart, become taps: rows of nine times so many channels, `row` apart. Whether
// all of them are finite.
template <int TALL> inline bool taps(const float* sums, int64_t place, int64_t outputs, int64_t wide, float* to, int64_t row) {
  V total = {};
  for (int64_t o = 0; o < outputs; ++o, to += 9 * row)
    for (int64_t c = 0; c < wide; c += L) {
      const float* at = sums + o * wide + c;
      V half[3][ACROSS];
#pragma GCC unroll 4
      for (int j = 0; j < ACROSS; ++j) {
        V found[3];
        taps_down<TALL>([=](int i) { return load(at + (ACROSS * i + j) * place); }, found);
        for (int i = 0; i < 3; ++i) half[i][j] = found[i];
      }
#pragma GCC unroll 4
      for (int i = 0; i < 3; ++i) {
        V found[3];
        taps_across(half[i][0], half[i][1], half[i][2], half[i][3], found);
        for (int j = 0; j < 3; ++j) store(to + (3 * i + j) * row + c, found[j]), total += found[j];
      }
    }
  return finite(total);
}

// The same as plain sums, of `rows` by `columns` slopes, those of an image from row own_y on: what they are multiplied by begins at (y, x).
__attribute__((noinline)) void add_plainly(const Part& s, const Part& slopes, int64_t images, int64_t y, int64_t x, int64_t own_y, int64_t rows, int64_t columns, int64_t outputs, int64_t wide, float* out, int64_t row) {
  for (int64_t u = 0; u < images * rows * columns; ++u) {
    const int64_t i = u / columns / rows, r = u / columns % rows, j = u % columns;
    for (int64_t o = 0; o < outputs; ++o) {
      const V slope = slopes.at[i * slopes.image + (own_y + r) * slopes.row + j * slopes.pixel + o] - V{};
      for (int k = 0; k < 9; ++k) {
        const int64_t line = y + r + k / 3, column = x + j + k % 3;
        const bool inside = uint64_t(line) < uint64_t(s.rows) && uint64_t(column) < uint64_t(s.columns);
        const float* const from = s.at + i * s.image + line * s.row + column * s.pixel;
        float* const to = out + (9 * o + k) * row;
        for (int64_t c = 0; c < wide; c += L) store(to + c, fused(slope, inside ? load(from + c) : V{}, load(to + c)));
      }
    }
  }
}

// Rows of all places, each of so many floats, become pairs with the next one, rounded to bfloat16, where they lie.
inline void pair_rows(float* at, int64_t place, int64_t places, int64_t rows, int64_t wide) {
  for (int64_t i = 0; i < places; ++i, at += place)
    for (int64_t r = 0; r < rows; r += 2)
      for (int64_t c = 0; c < wide; c += L) {
        const float* const from = at + r * wide + c;
        store_pairs((Pair*)at + r / 2 * wide + c, joined(load(from), r + 1 < rows ? load(from + wide) : V{}));
      }
}

// Partial sums [blocks, outputs, 9, channels (up to whole vectors)], x, dy. Parameters: the images x, the images dy; row and column of the first tap;
// tile rows of a band, bands of an image, images of a band, tiles that are multiplied at a time, blocks of bands; outputs and channels whose sums stay
// in the second-level cache.
template <int TALL, typename E = float> inline void slope(char** p, const int64_t* v, int part, int parts) {
  constexpr int DOWN = TALL + 2, PLACES = DOWN * ACROSS;
  const Images x = images_of(v), y = images_of(v + IMAGES);
  const int64_t* w = v + 2 * IMAGES;
  const int64_t top = w[0], left = w[1], band = w[2], bands = w[3], group = w[4], most = w[5], blocks = w[6], some_outputs = w[7], some_channels = w[8];
  const int64_t width = up(y.w, WIDE), height = up(y.h, TALL), columns = WIDE * width + 2;
  const int64_t widest = up(least(some_channels, x.c), L) * L, own_widest = up(least(some_outputs, y.c), L) * L, own_columns = WIDE * width;
  const int64_t in_place = most * widest + GAP, slope_place = most * own_widest + GAP, total_place = own_widest * widest + GAP;
  const int64_t laid = readable(x) ? 0 : (TALL * band + 2) * columns * widest, own_laid = readable(y) ? 0 : TALL * band * own_columns * own_widest;
  const UntilTheEnd end(tile_scratch);
  float* from = (float*)tile_scratch.of(sizeof(float) * size_t(group * (laid + own_laid) + PLACES * (in_place + slope_place + total_place)));
  if (from == nullptr) return no_memory(p);
  const auto longest = [](const Images& s, int64_t laid) { return s.w * s.step[3] > laid ? s.w * s.step[3] : laid; };  // of a row
  if (zeros.of(longest(x, columns * widest) + longest(y, own_columns * own_widest) + widest + own_widest) == nullptr) return no_memory(p);
  float *own_from = from + group * laid, *in = own_from + group * own_laid, *out = in + PLACES * in_place, *total = out + PLACES * slope_place;
  const int64_t outer = up(y.c, some_outputs), inner = up(x.c, some_channels), row = up(x.c, L) * L;
  Pieces pieces(p, part, parts, blocks * outer * inner);
  for (Share piece; pieces.next(piece);) {
    const int64_t u = piece.first / (outer * inner), o = piece.first / inner % outer * some_outputs, c = piece.first % inner * some_channels;
    const Reader source = Reader{(const float*)p[1], x, left, columns, laid, from}.some(c, some_channels);
    const Reader given = Reader{(const float*)p[2], y, 0, own_columns, own_laid, own_from}.some(o, some_outputs);
    const int64_t last = x.n * bands * (u + 1) / blocks, wide = source.wide(), own = given.wide();
    float* const made = (float*)p[0] + (u * y.c + o) * 9 * row + c;
    // f(images of a band, slopes of it, how many of them, row and column of the first tap, row of the first slope, tile rows, all their slopes)
    const auto every_band = [&](auto f) {
      for (int64_t b = x.n * bands * u / blocks, images; b < last; b += images) {
        const int64_t n = b / bands, begin = b % bands * band, tall = least(band, height - begin);
        images = least(group, last - b);
        const Part mine = source.part(n, images, top + TALL * begin, TALL * tall + 2), other = given.part(n, images, TALL * begin, TALL * tall);
        const bool lies = readable(source.s);
        f(mine, other, images, lies ? top + TALL * begin : 0, lies ? left : 0, readable(given.s) ? TALL * begin : 0, tall, least(TALL * tall, y.h - TALL * begin));
      }
    };
    bool add = false;
    every_band([&](const Part& mine, const Part& other, int64_t images, int64_t down, int64_t right, int64_t own_down, int64_t tall, int64_t) {
      const int64_t tiles = images * tall * width;
      for (int64_t first = 0; first < tiles; first += most) {
        const int64_t count = least(most, tiles - first);
        runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t k) {
          transform<TALL>(mine, i, down + TALL * r, right + WIDE * k, wide, many, in, t, in_place, P, most * P);
          slopes<TALL>(other, i, own_down + TALL * r, WIDE * k, own, many, out + t * own, slope_place);
        });
        if constexpr (EACH<E> == 2) {
          pair_rows(out, slope_place, PLACES, count, own);
          for (int64_t k = 0; k < wide; k += P) pair_rows(in + k / P * most * P, in_place, PLACES, count, least(P, wide - k));
        }
        const Panels<false, E> product = {own, up(count, EACH<E>), wide, PLACES, slope_place, in_place, total_place, add};
        product.multiply(given.s.c, wide / L, (const E*)out, (const E*)in, most * P, total);
        add = true;
      }
    });
    if (taps<TALL>(total, total_place, given.s.c, wide, made, row)) continue;
    // An infinity has become NaN in all taps.
    for (int64_t i = 0; i < 9 * given.s.c; ++i) std::memset(made + i * row, 0, sizeof(float) * size_t(wide));
    every_band([&](const Part& mine, const Part& other, int64_t images, int64_t down, int64_t right, int64_t own_down, int64_t, int64_t rows) {
      add_plainly(mine, other, images, down, right, own_down, rows, y.w, given.s.c, wide, made, row);
    });
  }
}

}  // namespace

#endif
