// Depthwise convolution, one channel to a group, with channels last: vectors hold channels of a pixel (see direct.h). Of many channels: at least
// a vector; the last vector of a pixel lies over the one before.
#include "direct.h"
#include "conv_statistics.h"

namespace {

constexpr int TOGETHER = BYTES == 64 ? 16 : 8;  // pixels that are computed together, so that no sum waits for another
constexpr int64_t TILE = 8192;                 // floats in the first-level cache
thread_local LargeScratch depth_scratch;

// What pixels of a row have in common: the taps' distances, their number and how many of them stand in a row, their weights, `wide` between those of two
// taps; the distances of pixels; the bias, which comes last; whether results below zero become zero; whether a tap meets what the one before it meets a pixel later.
struct Walk {
  const int32_t* at;
  int64_t taps, across;
  const float* weights;
  int64_t wide, x_step, y_step;
  const float* bias;
  bool relu, sliding;
};

// Q pixels. K: taps of a row, if they slide: then what was loaded is used for all of them; or 0.
template <int Q, int K> inline __attribute__((always_inline)) void block(const Walk& w, int64_t c, const float* x, float* y) {
  V total[Q];
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i) total[i] = V{};
  const float* weights = w.weights + c;
  const int64_t wide = w.wide, x_step = w.x_step, y_step = w.y_step;
  for (const int32_t *at = w.at, *const end = at + w.taps; at < end; at += K > 0 ? K : 1, weights += (K > 0 ? K : 1) * wide) {
    const float* const from = x + *at;
    if constexpr (K == 0) {
      const V s = load(weights);
#pragma GCC unroll 16
      for (int i = 0; i < Q; ++i) total[i] = fused(load(from + i * x_step), s, total[i]);
    } else {
      V s[K];
#pragma GCC unroll 8
      for (int k = 0; k < K; ++k) s[k] = load(weights + k * wide);
#pragma GCC unroll 24
      for (int j = 0; j < Q + K - 1; ++j) {
        const V some = load(from + j * x_step);
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k)
          if (j >= k && j - k < Q) total[j - k] = fused(some, s[k], total[j - k]);
      }
    }
  }
  const V bias = load(w.bias + c);
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i) total[i] += bias;
  if (w.relu)
#pragma GCC unroll 16
    for (int i = 0; i < Q; ++i) total[i] = total[i] < V{} ? V{} : total[i];
#pragma GCC unroll 16
  for (int i = 0; i < Q; ++i) store(y + i * y_step, total[i]);
}

// `count` pixels of a row, all their channels.
template <int Q, int K> __attribute__((noinline)) void blocks(int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  for (int64_t i = 0; i < channels; i += L) {
    const int64_t c = least(i, channels - L);
    const float* from = x + c;
    float* to = y + c;
    for (int64_t k = count; k > 0; k -= Q, from += Q * w.x_step, to += Q * w.y_step) block<Q, K>(w, c, from, to);
  }
}
template <int K, int Q = TOGETHER> void some_pixels(int64_t q, int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  if constexpr (Q > 0) {
    if (q == Q) blocks<Q, K>(count, w, channels, x, y);
    else some_pixels<K, Q - 1>(q, count, w, channels, x, y);
  }
}
// In blocks as even as possible.
template <int K> void pixels_of(int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  const int64_t many = up(count, TOGETHER), low = many > 0 ? count / many : 0, higher = count - low * many, done = higher * (low + 1);
  if (higher) some_pixels<K>(low + 1, done, w, channels, x, y);
  if (many) some_pixels<K>(low, count - done, w, channels, x + done * w.x_step, y + done * w.y_step);
}
void pixels(int64_t count, const Walk& w, int64_t channels, const float* x, float* y) {
  if (w.sliding && w.across == 3) GRADLAB_PART(6) pixels_of<3>(count, w, channels, x, y);
  else if (w.sliding && w.across == 5) GRADLAB_PART(7) pixels_of<5>(count, w, channels, x, y);
  else GRADLAB_PART(8) pixels_of<0>(count, w, channels, x, y);
}

// Taps [first, last) of `count` that are `apart` and meet elements 0 to size - 1, the first one at `at`.
struct Met {
  int64_t first, last;
};
inline Met met(int64_t at, int64_t apart, int64_t count, int64_t size) {
  const int64_t first = least(up(-at, apart), count), last = least(up(size - at, apart), count);
  return {first, last > first ? last : first};
}

// A row of pixels: where all taps are met, several pixels at a time; at the borders only what there is, rows of taps one after the other. x is where
// the first tap of the first pixel would lie; row and column of that, if images are read in place.
void row(const Convolution& c, const Phase& q, Walk w, int64_t channels, int64_t y_at, int64_t x_at, const float* x, float* y) {
  if (c.laying != IN_PLACE) return pixels(q.columns, w, channels, x, y);
  const Met down = met(y_at + q.tap_y, q.apart_y, q.count_y, c.x.h);
  w.at += down.first * q.count_x, w.weights += down.first * q.count_x * w.wide, w.taps = (down.last - down.first) * q.count_x;
  const int64_t begin = least(up(-x_at - q.tap_x, c.stride_x), q.columns), reach = (q.count_x - 1) * q.apart_x;
  const int64_t behind = least(up(c.x.w - x_at - q.tap_x - reach, c.stride_x), q.columns), end = behind > begin ? behind : begin;
  const auto border = [&](int64_t from, int64_t to) {
    for (int64_t j = from; j < to; ++j) {
      const Met across = met(x_at + q.tap_x + j * c.stride_x, q.apart_x, q.count_x, c.x.w);
      for (int64_t i = 0; i < channels; i += L) {
        const int64_t k = least(i, channels - L);
        V total = {};
        for (int64_t a = 0; a < w.taps; a += q.count_x)
          for (int64_t t = a + across.first; t < a + across.last; ++t)
            total = fused(load(x + j * w.x_step + w.at[t] + k), load(w.weights + t * w.wide + k), total);
        total += load(w.bias + k);
        if (w.relu) total = total < V{} ? V{} : total;
        store(y + j * w.y_step + k, total);
      }
    }
  };
  border(0, begin), border(end, q.columns);
  pixels(end - begin, w, channels, x + begin * w.x_step, y + begin * w.y_step);
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
  const UntilTheEnd end(depth_scratch);
  float* const bias = (float*)depth_scratch.of(sizeof(float) * size_t(channels + stage + c.scratch()) + sizeof(int32_t) * size_t(taps));
  if (bias == nullptr) return no_memory(p);
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
      const Walk walk = {at, q.count_y * q.count_x, q.count_x, (const float*)p[2] + q.weights, channels, c.stride_x * steps.pixel, c.step_x * out.pixel,
                         bias, w[1] != 0, q.apart_x == c.stride_x};
      at += walk.taps;
      // In tiles of some columns, of which the rows that meet a row of pixels stay in the first-level cache.
      const int64_t room = TILE / (channels * ((q.count_y - 1) * q.apart_y + 1 + c.stride_y)) - (q.count_x - 1) * q.apart_x, most_columns = room / c.stride_x;
      const int64_t tiles = up(q.columns, most_columns > 8 ? most_columns : 8);
      for (int64_t i = 0; i < u.images; ++i)
        for (int64_t t = 0; t < tiles; ++t)
          for (int64_t r = 0; r < least(u.rows, q.rows - u.first); ++r) {
            const int64_t column = q.columns * t / tiles;
            Phase own = q;
            own.columns = q.columns * (t + 1) / tiles - column;
            row(c, own, walk, channels, c.top + (u.first + r) * c.stride_y, c.left + column * c.stride_x,
                x + i * steps.image + r * c.stride_y * steps.row + column * walk.x_step,
                y + i * out.image + (q.y + r * c.step_y) * out.row + q.x * out.pixel + column * walk.y_step);
          }
    }
    if (w[2]) GRADLAB_PART(5) {
      float* const notes = (float*)p[4] + piece.first * record_length(channels);
      Pixels all = {y, u.images, rows, c.y.w, out.image, out.row, out.pixel};
      record(all, channels / L * L, notes, notes + channels);
      all.at += channels - L;  // the last vector, which lies over the one before
      record(all, L, notes + channels - L, notes + 2 * channels - L);
      count_pixels(all.images * all.rows * all.columns, notes + 2 * channels);
    }
    if (!straight) GRADLAB_PART(4) for (int64_t i = 0; i < u.images; ++i) lay_back(staged + i * out.image, rows, c.y.w, channels, c.y, u.n + i, u.first * c.step_y, (float*)p[0]);
  }
}
