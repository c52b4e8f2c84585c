// Windows over planes. float, all contiguous. A row of results is made at a time, one place of the windows after the other, so that the inner
// loops run along the row.
#ifndef GRADLAB_WINDOWS_H
#define GRADLAB_WINDOWS_H

#include "gemm.h"

namespace {

constexpr int64_t PIECES = 16;  // in which the planes are taken

inline int64_t up(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// planes, their height and width, those of the result; kernel, stride, padding, dilation
struct Windows {
  int64_t planes, h, w, oh, ow, ky, kx, sy, sx, py, px, dy, dx;
};
inline Windows windows(const int64_t* v) { return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12]}; }

// The windows of a row that meet the plane at place k, and where the first window (met or not) would meet it.
struct Met {
  int64_t first, last, at;
};
inline Met met(const Windows& s, int64_t k) {
  const int64_t at = k * s.dx - s.px;
  return {least(up(-at, s.sx), s.ow), least(up(s.w - at, s.sx), s.ow), at};
}

thread_local Scratch window_scratch;

}  // namespace

#endif
