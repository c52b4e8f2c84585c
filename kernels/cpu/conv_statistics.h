// What batch norm has to know of a piece of a convolution's results, taken from them while they are in the cache: see conv_statistics.py.
#ifndef GRADLAB_RECORDS_H
#define GRADLAB_RECORDS_H

#include "images.h"
#include "sum_of_squares.h"
#include "sums.h"

namespace {

inline int64_t record_length(int64_t channels) { return 2 * channels + 16; }

// Pixels with their channels last: `images` that are `image` apart, rows that are `row` apart, pixels that are `pixel` apart; of whole vectors
// of channels, of which the last may hold anything in part.
struct Pixels {
  const float* at;
  int64_t images, rows, columns, image, row, pixel;

  // What f makes of a vector of each pixel, added up row by row.
  template <typename F> V sum(int64_t c, F f) const {
    V none;
    return sum<false>(c, f, none);
  }
  // The same, and the sums of the squares.
  template <bool SQUARES = true, typename F> V sum(int64_t c, F f, V& squares) const {
    V total = {};
    squares = V{};
    for (int64_t i = 0; i < images; ++i)
      for (int64_t r = 0; r < rows; ++r) {
        const float* x = at + i * image + r * row + c;
        V some[4] = {}, more[4] = {};  // several sums, so that they do not wait for one another
        const auto add = [&](const float* at, int j) {
          const V v = f(load(at));
          some[j] += v;
          if (SQUARES) more[j] += v * v;
        };
        int64_t k = 0;
        for (; k + 4 <= columns; k += 4)
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) add(x + (k + j) * pixel, j);
        for (; k < columns; ++k) add(x + k * pixel, 0);
        total += (some[0] + some[1]) + (some[2] + some[3]);
        if (SQUARES) squares += (more[0] + more[1]) + (more[2] + more[3]);
      }
    return total;
  }
};

// The channels' means and the sums of their squared deviations from these.
inline void record(const Pixels& pixels, int64_t channels, float* means, float* deviations) {
  const int64_t count = pixels.images * pixels.rows * pixels.columns;
  const auto put = [&](V v, int64_t c, float* to) {
    if (c + L <= channels) return store(to + c, v);
    for (int64_t k = c; k < channels; ++k) to[k] = v[k - c];
  };
  const float part = count > 0 ? 1 / float(count) : 0;
  for (int64_t c = 0; c < channels; c += L) {
    const V about = pixels.sum(c, [=](V x) { return x; }) * part;
    V squares;
    const V off = pixels.sum(c, [=](V x) { return x - about; }, squares) * part;
    squares -= off * off * float(count);
    const V mean = corrected(about, off, squares * part);
    put(mean, c, means);
    put(squares < 0 ? V{} : squares, c, deviations);
    bool lost = false;
    for (int64_t k = c; k < channels && k < c + L; ++k) lost |= deviations[k] - deviations[k] != 0;
    if (!lost) continue;
    const V less = pixels.sum(c, [=](V x) { const V off = (x - mean) * LESS; return off * off; });
    for (int64_t k = c; k < channels && k < c + L; ++k)
      if (deviations[k] - deviations[k] != 0) deviations[k] = root_of(less[k - c]);
  }
}

// What stands behind them.
inline void count_pixels(int64_t count, float* out) {
  std::memset(out, 0, 16 * sizeof(float));
  *out = float(count);
}

// A whole record.
inline void record(const Pixels& pixels, int64_t channels, float* out) {
  record(pixels, channels, out, out + channels);
  count_pixels(pixels.images * pixels.rows * pixels.columns, out + 2 * channels);
}

}  // namespace

#endif
