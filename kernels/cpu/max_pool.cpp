// Largest elements of windows, and their gradient (see pooling.h).
#include "pooling.h"

namespace {

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

// The largest elements of the window at `x`, of N channels, of which `rows` and `columns` say what lies inside; `corner`: its first place.
// `partial` channels, where fewer than a vector's are there.
inline void window(const float* x, const Windows& s, Inside rows, Inside columns, int64_t corner, int64_t partial, float* values, int64_t* indices) {
  V best = -__builtin_inff() - V{};
  I winner = int32_t(corner) - I{};
  bool first = true;
  for (int64_t a = rows.first; a < rows.last; ++a)
    for (int64_t b = columns.first; b < columns.last; ++b) {
      const int64_t at = (rows.start + a * s.dy) * s.w + columns.start + b * s.dx;
      V some = {};
      if (partial == L) some = load(x + at * s.channels);
      else std::memcpy(&some, x + at * s.channels, sizeof(float) * size_t(partial));
      if (first) best = some, winner = int32_t(at) - I{};
      else beat(some, int32_t(at), best, winner);
      first = false;
    }
  int32_t found[L];
  store(found, winner);
  if (partial == L) {
    store(values, best);
    for (int64_t j = 0; j < L; ++j) indices[j] = found[j];
    return;
  }
  std::memcpy(values, &best, sizeof(float) * size_t(partial));
  for (int64_t j = 0; j < partial; ++j) indices[j] = found[j];
}

}  // namespace

// values, indices, x; parameters: the windows
GRADLAB_KERNEL gradlab_max_pool(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  int32_t* const winner = (int32_t*)window_scratch.of(sizeof(int32_t) * size_t(s.ow));
  if (winner == nullptr) return no_memory(p);
  Pieces pieces(p, part, parts, s.planes(), up(s.planes(), PIECES));
  const bool plain = s.py == 0 && s.px == 0 && s.dy == 1 && s.dx == 1 && (s.oh - 1) * s.sy + s.ky <= s.h && (s.ow - 1) * s.sx + s.kx <= s.w;
  const int kind = !plain || s.ky != s.kx || s.sx != 2 || s.ow < L ? 0 : s.kx == 2 ? 2 : s.kx == 3 ? 3 : 0;
  for (Share mine; pieces.next(mine);)
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
            if (s.sx == 1) compete<1>(row, m, 1, at, best, winner);
            else if (s.sx == 2) compete<2>(row, m, 2, at, best, winner);
            else compete<0>(row, m, s.sx, at, best, winner);
          }
        }
        const int64_t corner = (y * s.sy - s.py) * s.w - s.px;
        for (int64_t x = 0; x < s.ow; ++x) indices[x] = winner[x] < 0 ? corner + x * s.sx : winner[x];
      }
}

// The same with channels last.
GRADLAB_KERNEL gradlab_max_pool_last(char** p, const int64_t* v, int part, int parts) {
  const Windows s = windows(v);
  const int64_t rows = s.images * s.oh;
  Pieces pieces(p, part, parts, rows, up(rows, 4 * PIECES));
  for (Share mine; pieces.next(mine);)
    for (int64_t r = mine.first; r < mine.last; ++r) {
      const float* x = (const float*)p[2] + r / s.oh * s.h * s.w * s.channels;
      const Inside down = inside_of(r % s.oh, s.sy, s.py, s.dy, s.ky, s.h);
      for (int64_t i = 0; i < s.ow; ++i) {
        const Inside across = inside_of(i, s.sx, s.px, s.dx, s.kx, s.w);
        const int64_t to = (r * s.ow + i) * s.channels, corner = down.start * s.w + across.start;
        for (int64_t c = 0; c < s.channels; c += L) {
          if (c + L > s.channels && s.channels > L) c = s.channels - L;  // some of them once more
          window(x + c, s, down, across, corner, least(L, s.channels), (float*)p[0] + to + c, (int64_t*)p[1] + to + c);
        }
      }
    }
}

// dx, dy, indices, status; parameters: images, channels, elements of a plane, indices of a plane, whether an index may occur twice
GRADLAB_KERNEL gradlab_max_pool_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t planes = v[0] * v[1], size = v[2], count = v[3];
  Pieces pieces(p, part, parts, planes, up(planes, PIECES));
  for (Share mine; pieces.next(mine);)
    for (int64_t u = mine.first; u < mine.last; ++u) {
      float* dx = (float*)p[0] + u * size;
      const float* dy = (const float*)p[1] + u * count;
      const int64_t* at = (const int64_t*)p[2] + u * count;
      std::memset(dx, 0, sizeof(float) * size_t(size));
      for (int64_t i = 0; i < count; ++i) {
        if (uint64_t(at[i]) >= uint64_t(size)) *(int64_t*)p[3] = 1;
        else if (v[4]) dx[at[i]] += dy[i];
        else dx[at[i]] = dy[i];
      }
    }
}

// The same with channels last.
GRADLAB_KERNEL gradlab_max_pool_backward_last(char** p, const int64_t* v, int part, int parts) {
  const int64_t images = v[0], channels = v[1], size = v[2], count = v[3], split = channel_parts(images, channels);
  Pieces pieces(p, part, parts, images * split);
  for (Share piece; pieces.next(piece);) {
    const int64_t n = piece.first / split;
    const Share c = share(channels, int(piece.first % split), int(split), 16);
    float* dx = (float*)p[0] + n * size * channels;
    if (split == 1) std::memset(dx, 0, sizeof(float) * size_t(size * channels));
    else for (int64_t i = 0; i < size; ++i) std::memset(dx + i * channels + c.first, 0, sizeof(float) * size_t(c.last - c.first));
    for (int64_t i = 0; i < count; ++i) {
      const float* dy = (const float*)p[1] + (n * count + i) * channels;
      const int64_t* at = (const int64_t*)p[2] + (n * count + i) * channels;
      for (int64_t k = c.first; k < c.last; ++k) {
        if (uint64_t(at[k]) >= uint64_t(size)) *(int64_t*)p[3] = 1;
        else if (v[4]) dx[at[k] * channels + k] += dy[k];
        else dx[at[k] * channels + k] = dy[k];
      }
    }
  }
}
