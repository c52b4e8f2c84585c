// Convolution of images, and the gradient for its input: correlations of spread images with weights (see conv.h).
#include "conv.h"

namespace {

// Where the pixels of a panel lie, for each of its two vectors: in one row, in two, or anywhere.
struct Pixels {
  int32_t at[P];
  int kind;             // 0: both vectors in one row; 1: at most one change of rows in each; 2: more
  int32_t second[2];    // where the part behind the change would begin
  Wide<int32_t>::type in_first[2];

  void find() {
    kind = 0;
    for (int h = 0; h < 2; ++h) {
      const int32_t* a = at + h * L;
      int s = 1;
      while (s < L && a[s] == a[0] + s) ++s;
      second[h] = s < L ? a[s] - s : a[0];
      for (int j = 0; j < L; ++j) in_first[h][j] = j < s ? -1 : 0;
      if (s < L && kind == 0) kind = 1;
      for (int j = s; j < L; ++j) if (a[j] != second[h] + j) kind = 2;
    }
  }
};

// Rows [k0, k1) of the matrix (channels × taps), for one panel of pixels.
void pack_pixels(const float* x, int64_t channel, const int64_t* taps, int64_t count, int64_t k0, int64_t k1, const Pixels& q, float* out) {
  int64_t t = k0 % count;
  const float* base = x + k0 / count * channel;
  for (int64_t k = k0; k < k1; ++k, out += P) {
    const float* at = base + taps[t];
    if (q.kind == 0) {
      store(out, load(at + q.at[0]));
      store(out + L, load(at + q.at[L]));
    } else if (q.kind == 1) {
      store(out, q.in_first[0] ? load(at + q.at[0]) : load(at + q.second[0]));
      store(out + L, q.in_first[1] ? load(at + q.at[L]) : load(at + q.second[1]));
    } else {
      for (int j = 0; j < P; ++j) out[j] = at[q.at[j]];
    }
    if (++t == count) t = 0, base += channel;
  }
}

// What of the result is computed together: the pixels (start + step * i) of each dimension, all from the same taps.
struct Phase {
  int64_t y, x, rows, columns, weights, count;
  const int64_t* taps;  // (row, column) of each, counted from the first
};

}  // namespace

// target, source, weights, bias. Parameters: the source (15 numbers); channels of the target, groups, its plane's height and width, the
// steps of a phase's pixels there; grid rows of a band, bands, spread rows of a band, bias, ReLU, phases; of each phase y x rows columns,
// where its weights [channels, source channels of the group × taps] begin, taps, then (row, column) of each tap.
GRADLAB_KERNEL gradlab_correlate(char** p, const int64_t* v, int part, int parts) {
  const Source s = source_of(v);
  const int64_t* w = v + SOURCE;
  const int64_t channels = w[0], groups = w[1], height = w[2], width = w[3], step_y = w[4], step_x = w[5];
  const int64_t band = w[6], bands = w[7], rows = w[8], phases = w[11];
  const int64_t own = channels / groups, given = s.c / groups, plane = rows * s.width, channel = s.fy * s.fx * plane;
  const float *weights = (const float*)p[2], *bias = w[9] ? (const float*)p[3] : nullptr;
  const bool relu = w[10] != 0;
  int64_t most_taps = 0, most_pixels = 0;
  const int64_t* at = w + 12;
  for (int64_t i = 0; i < phases; ++i) {
    most_taps = at[5] > most_taps ? at[5] : most_taps;
    most_pixels = at[3] * band > most_pixels ? at[3] * band : most_pixels;
    at += 6 + 2 * at[5];
  }
  const int64_t deepest = least(DEEPEST, WEIGHTS / own < 64 ? 64 : WEIGHTS / own);
  const bool whole = step_y == 1 && step_x == 1;
  const int64_t stage = whole ? 0 : (most_pixels + P) / P * P;
  float* panel = (float*)image_scratch.of(sizeof(float) * size_t(deepest * P + s.c * channel + 4 * P + own * stage) +
                                          sizeof(int64_t) * size_t(most_taps));
  float* spread_to = panel + deepest * P;
  float* staged = spread_to + (s.c * channel + 4 * P) / 2 * 2;
  int64_t* taps = (int64_t*)(staged + own * stage);
  Pieces pieces(p, part, parts, s.n * bands);
  for (Share piece; pieces.next(piece);) {
    const int64_t u = piece.first, n = u / bands, first = u % bands * band;
    spread((const float*)p[1], s, n, 0, s.c, first, rows, plane, spread_to);
    at = w + 12;
    for (int64_t f = 0; f < phases; ++f) {
      const Phase q = {at[0], at[1], at[2], at[3], at[4], at[5], at + 6};
      at += 6 + 2 * q.count;
      const int64_t last = least(first + band, q.rows);
      if (last <= first) continue;
      for (int64_t t = 0; t < q.count; ++t) taps[t] = tap_at(s, q.taps[2 * t], q.taps[2 * t + 1], plane);
      const int64_t pixels = (last - first) * q.columns, depth = given * q.count, blocks = up(own, ROWS);
      const int64_t chunks = depth > deepest ? up(depth, deepest) : 1, chunk = up(depth, chunks);
      for (int64_t g = 0; g < groups; ++g) {
        float* const target = (float*)p[0] + (n * channels + g * own) * height * width;
        float* const result = whole ? target + first * width : staged;
        const int64_t row = whole ? height * width : stage;
        for (int64_t k = 0; k < depth || k == 0; k += chunk ? chunk : 1) {
          const int64_t deep = least(chunk, depth - k);
          for (int64_t b = 0; b < pixels; b += P) {
            Pixels some;
            int64_t y = b / q.columns, x = b % q.columns;
            for (int64_t j = 0; j < P; ++j) {
              some.at[j] = int32_t(y * s.width + x);
              if (++x == q.columns && b + j + 1 < pixels) x = 0, ++y;
            }
            some.find();
            pack_pixels(spread_to + g * given * channel, channel, taps, q.count ? q.count : 1, k, k + deep, some, panel);
            for (int64_t i = 0; i < blocks; ++i) {
              const int64_t o = own * i / blocks, r = own * (i + 1) / blocks - o;
              some_channels<ROWS>(r, weights + q.weights + (g * own + o) * depth + k, depth, panel, deep, result + o * row + b, row,
                                  least(P, pixels - b), k == 0, bias == nullptr ? nullptr : bias + g * own + o, relu && k + deep >= depth);
            }
          }
        }
        if (whole) continue;
        for (int64_t o = 0; o < own; ++o)
          for (int64_t y = first; y < last; ++y) {
            float* to = target + o * height * width + (q.y + y * step_y) * width + q.x;
            const float* from = staged + o * stage + (y - first) * q.columns;
            for (int64_t x = 0; x < q.columns; ++x) to[x * step_x] = from[x];
          }
      }
    }
  }
}

// The weights of the input's gradient: for each phase [channels, outputs of the group × taps]. target, weights [outputs, channels of the
// group, places]. Parameters: groups, outputs of a group, channels of a group, places, phases; of each where it begins, taps, their places.
GRADLAB_KERNEL gradlab_conv_turn(char** p, const int64_t* v, int part, int parts) {
  const int64_t groups = v[0], outputs = v[1], channels = v[2], places = v[3];
  const Share mine = share(groups * channels, part, parts);
  const int64_t* at = v + 5;
  for (int64_t f = 0; f < v[4]; ++f) {
    const int64_t count = at[1];
    for (int64_t u = mine.first; u < mine.last; ++u) {
      const float* w = (const float*)p[1] + (u / channels * outputs * channels + u % channels) * places;
      float* out = (float*)p[0] + at[0] + u * outputs * count;
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t t = 0; t < count; ++t) out[o * count + t] = w[o * channels * places + at[2 + t]];
    }
    at += 2 + count;
  }
}
