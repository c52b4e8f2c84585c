// What batch norm has to know of a piece of a convolution's results, taken from them while they are in the cache: see conv_statistics.py.
#ifndef GRADLAB_RECORDS_H
#define GRADLAB_RECORDS_H

#include "images.h"
#include "sum_of_squares.h"

namespace {

inline int64_t record_length(int64_t channels) { return 2 * channels + 16; }

// Pixels with their channels last: `images` that are `image` apart, rows that are `row` apart, pixels that are `pixel` apart; of whole vectors
// of channels, of which the last may hold anything in part.
struct Pixels {
  const float* at;
  int64_t images, rows, columns, image, row, pixel;

  // What f makes of a vector of each pixel, added up row by row.
  template <typename F> V sum(int64_t c, F f) const {
    V total = {};
    for (int64_t i = 0; i < images; ++i)
      for (int64_t r = 0; r < rows; ++r) {
        const float* x = at + i * image + r * row + c;
        V some[4] = {};  // several sums, so that they do not wait for one another
        int64_t k = 0;
        for (; k + 4 <= columns; k += 4)
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) some[j] += f(load(x + (k + j) * pixel));
        for (; k < columns; ++k) some[0] += f(load(x + k * pixel));
        total += (some[0] + some[1]) + (some[2] + some[3]);
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
    const V any = load(pixels.at + c), near = any - any == V{} ? any : V{};  // sums of small differences are exact, far from zero too
    const V off = pixels.sum(c, [=](V x) { return x - near; }) * part, mean = near + off, rest = off - (mean - near);
    put(mean, c, means);
    const V squares = pixels.sum(c, [=](V x) { return (x - mean) * (x - mean); }) - rest * rest * float(count);
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
