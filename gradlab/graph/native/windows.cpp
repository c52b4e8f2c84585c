// Pooling over windows of planes, and its gradients. float, all contiguous. A row of results is made at a time, one place of the windows
// after the other, so that the inner loops run along the row.
#include "gemm.h"

#include <vector>

namespace {

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

// Candidates of one place of the windows: a larger one, the first one, or the first NaN wins. STEP 0: any.
template <int64_t STEP>
void compete(const float* __restrict__ row, Met m, int64_t step, int32_t at, float* __restrict__ best, int32_t* __restrict__ winner) {
  const int64_t s = STEP ? STEP : step;
  row += m.at;
  for (int64_t i = m.first; i < m.last; ++i) {
    const float x = row[i * s], old = best[i];
    const bool take = (x > old) | (winner[i] < 0) | ((x != x) & (old == old));
    best[i] = take ? x : old;
    winner[i] = take ? at + int32_t(i * s) : winner[i];
  }
}

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

using V = Wide<float>::type;
using I = Wide<int32_t>::type;
constexpr int64_t L = LANES<float>;

// Every second element from `x` + odd on.
template <size_t... J> inline V second(const float* x, int odd, std::index_sequence<J...>) {
  const V low = load(x), high = load(x + L);
  return odd ? __builtin_shufflevector(low, high, int(2 * J + 1)...) : __builtin_shufflevector(low, high, int(2 * J)...);
}

inline void beat(V x, int32_t at, V& best, I& winner) {
  const I take = ~(x <= best) & (best == best);  // a NaN is not less than or equal to anything
  best = take ? x : best;
  winner = take ? at - I{} : winner;
}

// A row of at least L windows of K by K (2 or 3), two columns apart, that all lie inside; `at`: where in the plane it begins.
template <int K> void inside(const float* x, int64_t width, int64_t at, int64_t n, float* values, int64_t* indices) {
  using Lanes = std::make_index_sequence<L>;
  for (int64_t i = 0; i < n; i += L) {
    if (i + L > n) i = n - L;
    const float* row = x + 2 * i;
    V best = second(row, 0, Lanes());
    I winner = {};
#pragma GCC unroll 4
    for (int a = 0; a < K; ++a) {
      if (a > 0) beat(second(row + a * width, 0, Lanes()), int32_t(a * width), best, winner);
      beat(second(row + a * width, 1, Lanes()), int32_t(a * width + 1), best, winner);
      if (K == 3) beat(second(row + a * width + 1, 1, Lanes()), int32_t(a * width + 2), best, winner);
    }
    store(values + i, best);
    int32_t found[L];
    store(found, winner);
    for (int64_t j = 0; j < L; ++j) indices[i + j] = at + 2 * (i + j) + found[j];
  }
}

}  // namespace

// values, indices, x; parameters: the windows
GRADLAB_KERNEL gradlab_max_pool(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  std::vector<int32_t> winner(static_cast<size_t>(s.ow));
  const Share mine = share(s.planes, part, parts);
  const bool plain = s.py == 0 && s.px == 0 && s.dy == 1 && s.dx == 1 && (s.oh - 1) * s.sy + s.ky <= s.h && (s.ow - 1) * s.sx + s.kx <= s.w;
  const int kind = !plain || s.ky != s.kx || s.sx != 2 || s.ow < L ? 0 : s.kx == 2 ? 2 : s.kx == 3 ? 3 : 0;
  for (int64_t u = mine.first; u < mine.last; ++u)
    for (int64_t y = 0; y < s.oh; ++y) {
      float* best = (float*)p[0] + (u * s.oh + y) * s.ow;
      int64_t* indices = (int64_t*)p[1] + (u * s.oh + y) * s.ow;
      if (kind != 0) {
        const int64_t at = y * s.sy * s.w;
        const float* x = (const float*)p[2] + u * s.h * s.w + at;
        if (kind == 2) inside<2>(x, s.w, at, s.ow, best, indices);
        else inside<3>(x, s.w, at, s.ow, best, indices);
        continue;
      }
      for (int64_t x = 0; x < s.ow; ++x) best[x] = -__builtin_inff(), winner[x] = -1;
      for (int64_t a = 0; a < s.ky; ++a) {
        const int64_t in = y * s.sy - s.py + a * s.dy;
        if (in < 0 || in >= s.h) continue;
        const float* row = (const float*)p[2] + (u * s.h + in) * s.w;
        for (int64_t b = 0; b < s.kx; ++b) {
          const Met m = met(s, b);
          const int32_t at = int32_t(in * s.w + m.at);
          if (s.sx == 1) compete<1>(row, m, 1, at, best, winner.data());
          else if (s.sx == 2) compete<2>(row, m, 2, at, best, winner.data());
          else compete<0>(row, m, s.sx, at, best, winner.data());
        }
      }
      const int64_t corner = (y * s.sy - s.py) * s.w - s.px;
      for (int64_t x = 0; x < s.ow; ++x) indices[x] = winner[x] < 0 ? corner + x * s.sx : winner[x];
    }
}

// dx, dy, indices, status; parameters: planes, elements of a plane, indices of a plane, whether an index may occur twice
GRADLAB_KERNEL gradlab_max_pool_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t size = v[1], count = v[2];
  const Share mine = share(v[0], part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    float* dx = (float*)p[0] + u * size;
    const float* dy = (const float*)p[1] + u * count;
    const int64_t* at = (const int64_t*)p[2] + u * count;
    std::memset(dx, 0, sizeof(float) * size_t(size));
    for (int64_t i = 0; i < count; ++i) {
      if (uint64_t(at[i]) >= uint64_t(size)) *(int64_t*)p[3] = 1;
      else if (v[3]) dx[at[i]] += dy[i];
      else dx[at[i]] = dy[i];
    }
  }
}

// y, x; parameters: the windows, whether padding counts, the divisor or 0
GRADLAB_KERNEL gradlab_avg_pool(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  std::vector<float> columns(static_cast<size_t>(s.ow));
  columns_of(s, v[13] != 0, columns.data());
  const Share mine = share(s.planes, part, parts);
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
      divide(out, columns.data(), rows_of(s, y, v[13] != 0), float(v[14]), s.ow, out);
    }
}

// dx, dy; parameters as above
GRADLAB_KERNEL gradlab_avg_pool_backward(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  std::vector<float> portion(static_cast<size_t>(s.ow)), columns(static_cast<size_t>(s.ow));
  columns_of(s, v[13] != 0, columns.data());
  const Share mine = share(s.planes, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    float* dx = (float*)p[0] + u * s.h * s.w;
    std::memset(dx, 0, sizeof(float) * size_t(s.h * s.w));
    for (int64_t y = 0; y < s.oh; ++y) {
      const float* dy = (const float*)p[1] + (u * s.oh + y) * s.ow;
      divide(dy, columns.data(), rows_of(s, y, v[13] != 0), float(v[14]), s.ow, portion.data());
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
          const float* __restrict__ of = portion.data();
          if (s.sx == 1) for (int64_t i = m.first; i < m.last; ++i) to[i] += of[i];
          else for (int64_t i = m.first; i < m.last; ++i) to[i * s.sx] += of[i];
        }
      }
    }
  }
}
