// Windows over planes. float. In row-major order a row of results is made at a time, one place of the windows after the other, so that the inner
// loops run along the row; with channels last, vectors hold channels of a pixel.
#ifndef GRADLAB_WINDOWS_H
#define GRADLAB_WINDOWS_H

#include "gemm.h"

namespace {

constexpr int64_t PIECES = 16;  // in which the planes are taken

inline int64_t up(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// images, channels; height and width of a plane, those of the result; kernel, stride, padding, dilation
struct Windows {
  int64_t images, channels, h, w, oh, ow, ky, kx, sy, sx, py, px, dy, dx;
  int64_t planes() const { return images * channels; }
};
constexpr int WINDOWS = 14;  // numbers
inline Windows windows(const int64_t* v) { return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13]}; }

// The windows of a row that meet the plane at place k, and where the first window (met or not) would meet it.
struct Met {
  int64_t first, last, at;
};
inline Met met(const Windows& s, int64_t k) {
  const int64_t at = k * s.dx - s.px;
  return {least(up(-at, s.sx), s.ow), least(up(s.w - at, s.sx), s.ow), at};
}

// The places [first, last) along one dimension at which a window lies inside; `start`: where its first place lies.
struct Inside {
  int64_t start, first, last;
};
inline Inside inside_of(int64_t number, int64_t stride, int64_t padding, int64_t dilation, int64_t kernel, int64_t size) {
  const int64_t start = number * stride - padding, first = least(up(-start, dilation), kernel), last = least(up(size - start, dilation), kernel);
  return {start, first, last > first ? last : first};
}

using V = Wide<float>::type;
using I = Wide<int32_t>::type;
constexpr int64_t L = LANES<float>;

// Parts of the channels, so that few images are work for several threads.
inline int64_t channel_parts(int64_t images, int64_t channels) { return images >= PIECES ? 1 : least(up(channels, 64), up(PIECES, images)); }

thread_local Scratch window_scratch;

}  // namespace

#endif
