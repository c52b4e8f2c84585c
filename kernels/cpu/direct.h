// What direct convolutions share: which pixels meet which, and how the images lie that are read.
//
// A result's pixel is the sum over the kernel's places ("taps") and the channels of a group, the depth. What is read lies in place where
// no border of zeros is needed; else a band of rows with its border is laid into scratch memory. Its elements lie at fixed distances either
// way, so that the depth is walked in runs of equal steps, for pixels that lie anywhere.
#ifndef GRADLAB_DIRECT_H
#define GRADLAB_DIRECT_H

#include "images.h"

namespace {

enum Laying : int64_t { IN_PLACE, PLANES, LAST };

// Distances, in floats.
struct Steps {
  int64_t image, row, pixel, channel;
};

// Pixels of the result that meet the same taps: the first one, their rows and columns; the first tap, counted from the first of all, how many
// there are and how far apart; where the weights begin.
struct Phase {
  int64_t y, x, rows, columns, tap_y, tap_x, count_y, count_x, apart_y, apart_x, weights;
};
constexpr int PHASE = 11;

// A convolution: images read and written, groups of channels, the stride of pixels read, the steps of pixels written; the first tap of the first
// pixel, how far the last tap lies behind it, columns of the largest phase; rows of a band (of the phases' pixels), bands, images of a unit of
// work; how the images are laid; the phases.
struct Convolution {
  Images x, y;
  int64_t groups, stride_y, stride_x, step_y, step_x, top, left, reach_y, reach_x, columns, band, bands, together;
  Laying laying;
  int64_t phases;
  const int64_t* numbers;

  Phase phase(int64_t f) const {
    Phase found;
    std::memcpy(&found, numbers + f * PHASE, sizeof found);
    return found;
  }
  int64_t own() const { return y.c / groups; }
  int64_t given() const { return x.c / groups; }
  int64_t laid_rows() const { return (band - 1) * stride_y + reach_y + 1; }
  int64_t laid_columns() const { return (columns - 1) * stride_x + reach_x + 1; }
  int64_t units() const { return up(x.n, together) * bands; }
  Steps steps() const {
    const int64_t wide = laid_columns(), row = wide * x.c;
    if (laying == IN_PLACE) return {x.step[0], x.step[2], x.step[3], x.step[1]};
    return {laid_rows() * row, row, laying == LAST ? x.c : 1, laying == LAST ? 1 : wide};
  }
  int64_t scratch() const { return laying == IN_PLACE ? 0 : together * laid_rows() * laid_columns() * x.c + L; }
};
constexpr int CONVOLUTION = 2 * IMAGES + 15;

inline Convolution convolution_of(const int64_t* v) {
  const int64_t* w = v + 2 * IMAGES;
  return {images_of(v), images_of(v + IMAGES), w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], Laying(w[13]), w[14], v + CONVOLUTION};
}

// What one piece of work is: images [n, n + images), rows [first, first + rows) of the phases' pixels.
struct Unit {
  int64_t n, images, first, rows;
};
inline Unit unit_of(const Convolution& c, int64_t u, int64_t most) {
  const int64_t n = u / c.bands * c.together, first = u % c.bands * c.band;
  return {n, least(c.together, c.x.n - n), first, least(c.band, most - first)};
}

// Elements [a, b) of a row, `step` apart where they come from. behind: whether as many as a vector holds can be read behind them, twice as many
// where the step is two, and what is behind them may be written.
template <size_t... I> inline V second(const float* x, std::index_sequence<I...>) {  // every second element, and nothing behind the last one
  return __builtin_shufflevector(load(x), load(x + L - 1), (2 * int(I) < L ? 2 * int(I) : 2 * int(I) + 1)...);
}
inline void lay_row(const float* in, int64_t step, int64_t a, int64_t b, bool behind, float* out) {
  using Even = std::make_index_sequence<L>;
  const int64_t most = b - a >= L ? b - L : b;
  if ((step != 1 && step != 2) || (most == b && !behind)) for (int64_t t = a; t < b; ++t) out[t] = in[t * step];
  else if (step == 1) for (int64_t t = a; t < b; t += L) store(out + least(t, most), load(in + least(t, most)));
  else for (int64_t t = a; t < b; t += L) store(out + least(t, most), second(in + 2 * least(t, most), Even()));
}

// Rows and columns of an image, with channels as planes: [rows, channels, columns]; zeros outside. What a vector writes behind a row is written
// again with the next one.
inline void lay_planes(const float* x, const Images& s, int64_t n, int64_t top, int64_t rows, int64_t left, int64_t columns, float* out) {
  const int64_t a = left < 0 ? least(-left, columns) : 0, b = least(s.w - left, columns) > a ? least(s.w - left, columns) : a;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t y = top + r;
    const float* in = x + n * s.step[0] + y * s.step[2] + left * s.step[3];
    const bool inside = y >= 0 && y < s.h && b > a, more = (s.h - 1 - y) * s.step[2] >= 2 * L;
    for (int64_t c = 0; c < s.c; ++c, out += columns, in += s.step[1]) {
      if (!inside) {
        std::memset(out, 0, sizeof(float) * size_t(columns));
        continue;
      }
      for (int64_t i = 0; i < a; ++i) out[i] = 0;
      lay_row(in, s.step[3], a, b, more && ((rows - r) * s.c - c - 1) * columns >= L, out);
      for (int64_t i = b; i < columns; ++i) out[i] = 0;
    }
  }
}

// Makes what a unit reads lie as `c.steps()` says; gives where.
inline const float* laid(const Convolution& c, const Unit& u, const float* x, float* out) {
  const int64_t top = u.first * c.stride_y + c.top;
  if (c.laying == IN_PLACE) return x + u.n * c.x.step[0] + top * c.x.step[2] + c.left * c.x.step[3];
  const int64_t rows = (u.rows - 1) * c.stride_y + c.reach_y + 1, columns = c.laid_columns(), image = c.steps().image;
  for (int64_t i = 0; i < u.images; ++i) {
    if (c.laying == LAST) GRADLAB_PART(3) lay(x, c.x, u.n + i, top, rows, c.left, columns, c.x.c, out + i * image);
    else GRADLAB_PART(2) lay_planes(x, c.x, u.n + i, top, rows, c.left, columns, out + i * image);
  }
  return out;
}

}  // namespace

#endif
