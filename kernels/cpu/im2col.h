// Windows as columns, and columns added up to what they came from. Templates; a program makes its own.
#ifndef GRADLAB_UNROLLING_H
#define GRADLAB_UNROLLING_H

#include "half.h"
#include "runtime.h"

namespace gradlab {

// planes, height, width, kernel, windows, stride, padding, dilation; of each two the vertical one first
struct Geometry {
  int64_t planes, h, w, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw;
  explicit Geometry(const int64_t* v)
      : planes(v[0]), h(v[1]), w(v[2]), kh(v[3]), kw(v[4]), oh(v[5]), ow(v[6]), sh(v[7]), sw(v[8]), ph(v[9]), pw(v[10]), dh(v[11]), dw(v[12]) {}
  // The windows along the width that have their element at place k inside.
  Share inside(int64_t k) const {
    const int64_t start = k * dw - pw;  // of the first window
    int64_t first = start < 0 ? (-start + sw - 1) / sw : 0, last = start < w ? (w - 1 - start) / sw + 1 : 0;
    last = last < ow ? last : ow;
    return {first < last ? first : last, last};
  }
};

// y (planes, kernel, windows) of x (planes, height, width)
template <typename W> void unrolled(W* y, const W* x, const Geometry g, int part, int parts) {
  const Share mine = share(g.planes * g.kh * g.kw, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t k = u % g.kw, l = u / g.kw % g.kh;
    const W* const from = x + u / (g.kh * g.kw) * g.h * g.w + k * g.dw - g.pw;
    const Share in = g.inside(k);
    for (int64_t r = 0; r < g.oh; ++r) {
      W* const to = y + (u * g.oh + r) * g.ow;
      const int64_t row = r * g.sh + l * g.dh - g.ph;
      const Share own = row < 0 || row >= g.h ? Share{0, 0} : in;
      for (int64_t c = 0; c < own.first; ++c) to[c] = 0;
      if (g.sw == 1) for (int64_t c = own.first; c < own.last; ++c) to[c] = from[row * g.w + c];
      else for (int64_t c = own.first; c < own.last; ++c) to[c] = from[row * g.w + c * g.sw];
      for (int64_t c = own.last; c < g.ow; ++c) to[c] = 0;
    }
  }
}

// y (planes, height, width): for each element the sum over x (planes, kernel, windows) where it lies in a window
template <typename T> void rolled(T* y, const T* x, const Geometry g, int part, int parts) {
  const Share mine = share(g.planes, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    T* const plane = y + u * g.h * g.w;
    for (int64_t i = 0; i < g.h * g.w; ++i) plane[i] = 0;
    for (int64_t l = 0; l < g.kh; ++l)
      for (int64_t k = 0; k < g.kw; ++k) {
        const T* const from = x + ((u * g.kh + l) * g.kw + k) * g.oh * g.ow;
        const Share in = g.inside(k);
        for (int64_t r = 0; r < g.oh; ++r) {
          const int64_t row = r * g.sh + l * g.dh - g.ph;
          if (row < 0 || row >= g.h) continue;
          T* const to = plane + row * g.w + k * g.dw - g.pw;
          if (g.sw == 1) for (int64_t c = in.first; c < in.last; ++c) to[c] += from[r * g.ow + c];
          else for (int64_t c = in.first; c < in.last; ++c) to[c * g.sw] += from[r * g.ow + c];
        }
      }
  }
}

}  // namespace gradlab

#endif
