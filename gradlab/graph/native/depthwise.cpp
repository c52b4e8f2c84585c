// Depthwise convolution, one channel to a group, with channels last: vectors hold channels of a pixel (see direct.h). Of many channels: at least
// a vector; the last vector of a pixel lies over the one before.
#include "direct.h"
#include "records.h"

namespace {

constexpr int TOGETHER = 8;  // pixels that are computed together: a weight is loaded once for them
thread_local LargeScratch depth_scratch;

// What pixels of a row have in common: the taps' distances and weights, `wide` between those of two taps; the distances of pixels; where sums begin;
// whether results below zero become zero.
struct Walk {
  const int32_t* at;
  int64_t taps;
  const float* weights;
  int64_t wide, x_step, y_step;
  const float* start;
  bool relu;
};

template <int Q> inline __attribute__((always_inline)) void block(const Walk& w, int64_t c, const float* x, float* y) {
  V total[Q];
  const V start = load(w.start + c);
#pragma GCC unroll 8
  for (int i = 0; i < Q; ++i) total[i] = start;
  const float* weights = w.weights + c;
#pragma GCC unroll 2
  for (const int32_t *at = w.at, *const end = at + w.taps; at < end; ++at, weights += w.wide) {
    const V s = load(weights);
    const float* from = x + *at;
#pragma GCC unroll 8
    for (int i = 0; i < Q; ++i, from += w.x_step) total[i] = fused(load(from), s, total[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Q; ++i, y += w.y_step) {
    if (w.relu) total[i] = total[i] < V{} ? V{} : total[i];
    store(y, total[i]);
  }
}

// `count` pixels of a row, all their channels.
template <int Q> __attribute__((noinline)) void blocks(int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  for (int64_t i = 0; i < channels; i += L) {
    const int64_t c = least(i, channels - L);
    const float* from = x + c;
    float* to = y + c;
    for (int64_t k = count; k > 0; k -= Q, from += Q * w.x_step, to += Q * w.y_step) block<Q>(w, c, from, to);
  }
}
template <int Q = TOGETHER> void some_pixels(int64_t q, int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  if constexpr (Q > 0) {
    if (q == Q) blocks<Q>(count, w, channels, x, y);
    else some_pixels<Q - 1>(q, count, w, channels, x, y);
  }
}
// In blocks as even as possible.
void pixels(int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  const int64_t many = up(count, TOGETHER), low = count / many, higher = count - low * many, done = higher * (low + 1);
  if (higher) some_pixels(low + 1, done, w, channels, x, y);
  some_pixels(low, count - done, w, channels, x + done * w.x_step, y + done * w.y_step);
}

}  // namespace

// The weights with the channels last: for each phase [taps, channels]. target, weights. Parameters: as those of gradlab_direct_weights.
GRADLAB_KERNEL gradlab_depthwise_weights(char** p, const int64_t* v, int part, int parts) {
  const int64_t channels = v[0], step = v[3];
  const Share mine = share(channels, part, parts, 16);
  const int64_t* at = v + 8;
  for (int64_t f = 0; f < v[7]; ++f, at += 2 + at[1])
    for (int64_t t = 0; t < at[1]; ++t)
      for (int64_t c = mine.first; c < mine.last; ++c) ((float*)p[0])[at[0] + t * channels + c] = ((const float*)p[1])[c * step + at[2 + t]];
}

// y, x, weights, bias, records. Parameters: as those of gradlab_direct.
GRADLAB_KERNEL gradlab_depthwise(char** p, const int64_t* v, int part, int parts) {
  const Convolution c = convolution_of(v);
  const int64_t* w = v + CONVOLUTION + c.phases * PHASE;
  const bool straight = c.y.step[1] == 1;
  const int64_t channels = c.y.c, tall = c.band * c.step_y;
  const Steps steps = c.steps(), out = straight ? Steps{c.y.step[0], c.y.step[2], c.y.step[3], 1} : Steps{tall * c.y.w * channels, c.y.w * channels, channels, 1};
  int64_t taps = 0, most = 0;
  for (int64_t f = 0; f < c.phases; ++f) {
    const Phase q = c.phase(f);
    taps += q.count_y * q.count_x;
    most = q.rows > most ? q.rows : most;
  }
  const int64_t stage = straight ? 0 : c.together * out.image + L;
  float* const bias = (float*)depth_scratch.of(sizeof(float) * size_t(channels + stage + c.scratch()) + sizeof(int32_t) * size_t(taps));
  float *const staged = bias + channels, *const space = staged + stage;
  int32_t *const table = (int32_t*)(space + c.scratch()), *at = table;
  if (w[0]) std::memcpy(bias, p[3], sizeof(float) * size_t(channels));
  else std::memset(bias, 0, sizeof(float) * size_t(channels));
  for (int64_t f = 0; f < c.phases; ++f) {
    const Phase q = c.phase(f);
    for (int64_t a = 0; a < q.count_y; ++a)
      for (int64_t b = 0; b < q.count_x; ++b) *at++ = int32_t((q.tap_y + a * q.apart_y) * steps.row + (q.tap_x + b * q.apart_x) * steps.pixel);
  }
  Pieces pieces(p, part, parts, c.units());
  for (Share piece; pieces.next(piece);) {
    const Unit u = unit_of(c, piece.first, most);
    const float* const x = laid(c, u, (const float*)p[1], space);
    const int64_t rows = least(u.rows * c.step_y, c.y.h - u.first * c.step_y);
    float* const y = straight ? (float*)p[0] + u.n * out.image + u.first * c.step_y * out.row : staged;
    at = table;
    for (int64_t f = 0; f < c.phases; ++f) {
      const Phase q = c.phase(f);
      const Walk walk = {at, q.count_y * q.count_x, (const float*)p[2] + q.weights, channels, c.stride_x * steps.pixel, c.step_x * out.pixel, bias, w[1] != 0};
      at += walk.taps;
      for (int64_t i = 0; i < u.images; ++i)
        for (int64_t r = 0; r < least(u.rows, q.rows - u.first); ++r)
          pixels(q.columns, walk, channels, x + i * steps.image + r * c.stride_y * steps.row,
                 y + i * out.image + (q.y + r * c.step_y) * out.row + q.x * out.pixel);
    }
    if (w[2]) {
      float* const notes = (float*)p[4] + piece.first * record_length(channels);
      Pixels all = {y, u.images, rows, c.y.w, out.image, out.row, out.pixel};
      record(all, channels / L * L, notes, notes + channels);
      all.at += channels - L;  // the last vector, which lies over the one before
      record(all, L, notes + channels - L, notes + 2 * channels - L);
      count_pixels(all.images * all.rows * all.columns, notes + 2 * channels);
    }
    for (int64_t i = 0; !straight && i < u.images; ++i) lay_back(staged + i * out.image, rows, c.y.w, channels, c.y, u.n + i, u.first * c.step_y, (float*)p[0]);
  }
}
