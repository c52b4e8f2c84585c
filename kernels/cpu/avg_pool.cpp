// Means of windows, and their gradient (see pooling.h).
#include "pooling.h"

namespace {

// How many elements the mean of a window along one dimension is of.
inline int64_t counted(int64_t start, int64_t kernel, int64_t size, int64_t padding, bool include) {
  const int64_t from = include || start > 0 ? start : 0, to = least(start + kernel, include ? size + padding : size);
  return to - from > 1 ? to - from : 1;
}

// The divisors of the windows of a row: `columns` of elements along it, and the rows they reach over.
inline void columns_of(const Windows& s, bool include, float* columns) {
  for (int64_t x = 0; x < s.ow; ++x) columns[x] = float(counted(x * s.sx - s.px, s.kx, s.w, s.px, include));
}
inline float rows_of(const Windows& s, int64_t y, bool include) { return float(counted(y * s.sy - s.py, s.ky, s.h, s.py, include)); }
// out = x over the number of elements.
inline void divide(const float* x, const float* columns, float rows, float divisor, int64_t n, float* out) {
  if (divisor != 0) for (int64_t i = 0; i < n; ++i) out[i] = x[i] / divisor;
  else for (int64_t i = 0; i < n; ++i) out[i] = x[i] / (rows * columns[i]);
}

// What the sum of window (y, x) is divided by.
inline float divisor_of(const Windows& s, int64_t y, int64_t x, bool include, float divisor) {
  return divisor != 0 ? divisor : rows_of(s, y, include) * float(counted(x * s.sx - s.px, s.kx, s.w, s.px, include));
}

// The means of W vectors of channels; `partial` channels, where there are fewer than a vector's.
template <int W> inline void mean(const float* x, const Windows& s, Inside rows, Inside columns, float by, int64_t partial, float* y) {
  V total[W] = {};
  for (int64_t a = rows.first; a < rows.last; ++a)
    for (int64_t b = columns.first; b < columns.last; ++b) {
      const float* from = x + ((rows.start + a) * s.w + columns.start + b) * s.channels;
      if (partial < L) {
        V some = {};
        std::memcpy(&some, from, sizeof(float) * size_t(partial));
        total[0] += some;
        continue;
      }
#pragma GCC unroll 4
      for (int j = 0; j < W; ++j) total[j] += load(from + j * L);
    }
#pragma GCC unroll 4
  for (int j = 0; j < W; ++j) total[j] /= by - V{};
  if (partial < L) std::memcpy(y, total, sizeof(float) * size_t(partial));
  else
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) store(y + j * L, total[j]);
}

}  // namespace

// y, x; parameters: the windows, whether padding counts, the divisor or 0
GRADLAB_KERNEL gradlab_avg_pool(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  float* const columns = (float*)window_scratch.of(sizeof(float) * size_t(s.ow));
  if (columns == nullptr) return no_memory(p);
  columns_of(s, v[WINDOWS] != 0, columns);
  Pieces pieces(p, part, parts, s.planes(), up(s.planes(), PIECES));
  for (Share mine; pieces.next(mine);)
    for (int64_t u = mine.first; u < mine.last; ++u)
      for (int64_t y = 0; y < s.oh; ++y) {
        float* __restrict__ out = (float*)p[0] + (u * s.oh + y) * s.ow;
        for (int64_t x = 0; x < s.ow; ++x) out[x] = 0;
        for (int64_t a = 0; a < s.ky; ++a) {
          const int64_t in = y * s.sy - s.py + a;
          if (in < 0 || in >= s.h) continue;
          const float* row = (const float*)p[1] + (u * s.h + in) * s.w;
          if (s.ow == 1) {
            float lane[16] = {};
            int64_t i = s.px < 0 ? -s.px : 0;
            const int64_t last = least(s.w, s.kx - s.px);
            for (; i + 16 <= last; i += 16)
              for (int j = 0; j < 16; ++j) lane[j] += row[i + j];
            for (int j = 0; i + j < last; ++j) lane[j] += row[i + j];
            for (int half = 8; half > 0; half /= 2)
              for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
            out[0] += lane[0];
            continue;
          }
          for (int64_t b = 0; b < s.kx; ++b) {
            const Met m = met(s, b);
            const float* __restrict__ from = row + m.at;
            if (s.sx == 1) for (int64_t i = m.first; i < m.last; ++i) out[i] += from[i];
            else if (s.sx == 2) for (int64_t i = m.first; i < m.last; ++i) out[i] += from[2 * i];
            else for (int64_t i = m.first; i < m.last; ++i) out[i] += from[i * s.sx];
          }
        }
        divide(out, columns, rows_of(s, y, v[WINDOWS] != 0), float(v[WINDOWS + 1]), s.ow, out);
      }
}

// The same with channels last.
GRADLAB_KERNEL gradlab_avg_pool_last(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  const int64_t rows = s.images * s.oh;
  Pieces pieces(p, part, parts, rows, up(rows, 4 * PIECES));
  for (Share mine; pieces.next(mine);)
    for (int64_t r = mine.first; r < mine.last; ++r) {
      const float* x = (const float*)p[1] + r / s.oh * s.h * s.w * s.channels;
      const Inside down = inside_of(r % s.oh, s.sy, s.py, 1, s.ky, s.h);
      for (int64_t i = 0; i < s.ow; ++i) {
        const Inside across = inside_of(i, s.sx, s.px, 1, s.kx, s.w);
        const float by = divisor_of(s, r % s.oh, i, v[WINDOWS] != 0, float(v[WINDOWS + 1]));
        float* y = (float*)p[0] + (r * s.ow + i) * s.channels;
        int64_t c = 0;
        for (; c + 4 * L <= s.channels; c += 4 * L) mean<4>(x + c, s, down, across, by, L, y + c);
        for (; c < s.channels; c += L) {
          if (c + L > s.channels && s.channels > L) c = s.channels - L;  // some of them once more
          mean<1>(x + c, s, down, across, by, least(L, s.channels), y + c);
        }
      }
    }
}

// dx, dy; parameters as above
GRADLAB_KERNEL gradlab_avg_pool_backward(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  float *const portion = (float*)window_scratch.of(2 * sizeof(float) * size_t(s.ow)), *const columns = portion + s.ow;
  if (portion == nullptr) return no_memory(p);
  columns_of(s, v[WINDOWS] != 0, columns);
  Pieces pieces(p, part, parts, s.planes(), up(s.planes(), PIECES));
  for (Share mine; pieces.next(mine);)
    for (int64_t u = mine.first; u < mine.last; ++u) {
      float* dx = (float*)p[0] + u * s.h * s.w;
      std::memset(dx, 0, sizeof(float) * size_t(s.h * s.w));
      for (int64_t y = 0; y < s.oh; ++y) {
        const float* dy = (const float*)p[1] + (u * s.oh + y) * s.ow;
        divide(dy, columns, rows_of(s, y, v[WINDOWS] != 0), float(v[WINDOWS + 1]), s.ow, portion);
        for (int64_t a = 0; a < s.ky; ++a) {
          const int64_t in = y * s.sy - s.py + a;
          if (in < 0 || in >= s.h) continue;
          float* row = dx + in * s.w;
          if (s.ow == 1) {
            for (int64_t i = s.px < 0 ? -s.px : 0; i < least(s.w, s.kx - s.px); ++i) row[i] += portion[0];
            continue;
          }
          for (int64_t b = 0; b < s.kx; ++b) {
            const Met m = met(s, b);
            float* __restrict__ to = row + m.at;
            const float* __restrict__ of = portion;
            if (s.sx == 1) for (int64_t i = m.first; i < m.last; ++i) to[i] += of[i];
            else for (int64_t i = m.first; i < m.last; ++i) to[i * s.sx] += of[i];
          }
        }
      }
    }
}

// The same with channels last.
GRADLAB_KERNEL gradlab_avg_pool_backward_last(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  const int64_t split = channel_parts(s.images, s.channels);
  Pieces pieces(p, part, parts, s.images * split);
  for (Share piece; pieces.next(piece);) {
    const int64_t n = piece.first / split;
    const Share c = share(s.channels, int(piece.first % split), int(split), 16);
    float* dx = (float*)p[0] + n * s.h * s.w * s.channels;
    for (int64_t i = 0; i < s.h * s.w; ++i) std::memset(dx + i * s.channels + c.first, 0, sizeof(float) * size_t(c.last - c.first));
    for (int64_t y = 0; y < s.oh; ++y) {
      const Inside down = inside_of(y, s.sy, s.py, 1, s.ky, s.h);
      for (int64_t x = 0; x < s.ow; ++x) {
        const Inside across = inside_of(x, s.sx, s.px, 1, s.kx, s.w);
        const float by = divisor_of(s, y, x, v[WINDOWS] != 0, float(v[WINDOWS + 1]));
        const float* dy = (const float*)p[1] + ((n * s.oh + y) * s.ow + x) * s.channels;
        for (int64_t k = c.first; k < c.last; k += L) {
          const int64_t have = least(L, c.last - k);
          V portion = {};
          if (have == L) portion = load(dy + k);
          else std::memcpy(&portion, dy + k, sizeof(float) * size_t(have));
          portion /= by - V{};
          for (int64_t a = down.first; a < down.last; ++a)
            for (int64_t b = across.first; b < across.last; ++b) {
              float* to = dx + ((down.start + a) * s.w + across.start + b) * s.channels + k;
              if (have == L) store(to, load(to) + portion);
              else for (int64_t j = 0; j < have; ++j) to[j] += portion[j];
            }
        }
      }
    }
  }
}
