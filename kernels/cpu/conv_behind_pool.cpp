// Gradients of a 3×3 convolution of stride 1 behind a pooling: the gradient of its result is zero but for the largest elements of windows of two by
// two. Those are given, and where in its plane each lies. Only they are multiplied, a quarter of the work of all pixels, and as accurate as the
// sum that defines a convolution.
#include "partial_sums.h"

namespace {

using I = Wide<int32_t>::type;
using Long = Wide<int64_t>::type;
typedef int32_t HalfInts __attribute__((vector_size(BYTES / 2)));
constexpr int64_t LONGS = LANES<int64_t>;
thread_local LargeScratch band_scratch;

#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int MOST = 2;  // vectors of channels whose nine sums fit into registers
#else
constexpr int MOST = 1;
#endif
constexpr int64_t LINE = 64 / sizeof(float);
constexpr int64_t BITS = 64;  // channels of the gradient that a mask has room for; their weights stay in the first-level cache

// Elements of windows: sizes, strides, and those of their indices, each in row-major order or with the channels last; columns of the plane that was
// pooled.
struct Windows {
  int64_t n, c, h, w, step[4], at[4], width;
  bool last() const { return at[1] == 1 && c > 1; }
};
inline Windows windows_of(const int64_t* v) {
  return {v[0], v[1], v[2], v[3], {v[4], v[5], v[6], v[7]}, {v[8], v[9], v[10], v[11]}, v[12]};
}
constexpr int WINDOWS = 13;

template <size_t... J> inline I joined(HalfInts a, HalfInts b, std::index_sequence<J...>) { return __builtin_shufflevector(a, b, int(J)...); }
inline I narrow(const int64_t* at) {
  return joined(__builtin_convertvector(load(at), HalfInts), __builtin_convertvector(load(at + LONGS), HalfInts), std::make_index_sequence<L>());
}

// How far in rows of `columns` pixels the elements of window rows [top, top + rows) of image n lie behind the first of their windows, in the order of
// the indices: [channels, rows, windows of a row], or with the channels last.
void find(const int64_t* indices, const Windows& s, int64_t n, int64_t top, int64_t rows, int64_t columns, int32_t* out) {
  const int32_t lower = int32_t(columns - s.width);
  const int64_t lines = s.last() ? 1 : s.c, count = s.last() ? s.w * s.c : s.w;
  for (int64_t c = 0; c < lines; ++c)
    for (int64_t r = 0; r < rows; ++r, out += count) {
      const int64_t* from = indices + n * s.at[0] + c * s.at[1] + (top + r) * s.at[2];
      const int32_t limit = int32_t((2 * (top + r) + 1) * s.width), shift = int32_t(2 * r * columns - 2 * (top + r) * s.width);
      if (count >= L)
        for (int64_t i = 0; i < count; i += L) {
          const int64_t at = least(i, count - L);
          const I found = narrow(from + at);
          store(out + at, found + shift + ((found >= limit) & lower));
        }
      else
        for (int64_t i = 0; i < count; ++i) out[i] = int32_t(from[i]) + shift + (from[i] >= limit ? lower : 0);
    }
}

// The windows [first, last) of a row of windows, of channels c and up to 63 more: of each window the channels whose element lies in the lower row, and
// those whose element lies in the right column, as bits.
struct Bits {
  uint64_t *below, *right;
  int64_t width;

  void mark(const int64_t* indices, int64_t window_step, int64_t windows, int64_t channel_step, int64_t channels, int64_t limit) const {
    if (channel_step == 1) {
      for (int64_t i = 0; i < windows; ++i) one(indices + i * window_step, channels, limit, below[i], right[i]);
      return;
    }
    std::memset(below, 0, sizeof(uint64_t) * size_t(windows)), std::memset(right, 0, sizeof(uint64_t) * size_t(windows));
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t* const from = indices + c * channel_step;
      if (windows >= LONGS)
        for (int64_t i = 0; i < windows; i += LONGS) {
          const int64_t at = least(i, windows - LONGS);
          Long low = load(from + at) >= limit, odd = (load(from + at) - (low & width)) & 1;
          store((int64_t*)below + at, load((int64_t*)below + at) | (low & int64_t(uint64_t(1) << c)));
          store((int64_t*)right + at, load((int64_t*)right + at) | (odd << c));
        }
      else
        for (int64_t i = 0; i < windows; ++i) add(from[i], limit, c, below[i], right[i]);
    }
  }
  void add(int64_t index, int64_t limit, int64_t c, uint64_t& low, uint64_t& odd) const {
    const uint64_t down = index >= limit;
    low |= down << c, odd |= uint64_t((index - (down ? width : 0)) & 1) << c;
  }
  // The channels of one window.
  void one(const int64_t* indices, int64_t channels, int64_t limit, uint64_t& low, uint64_t& odd) const {
    Long some_low = {}, some_odd = {}, bit;
    for (int64_t k = 0; k < LONGS; ++k) bit[k] = int64_t(1) << k;
    int64_t c = 0;
    for (; c + LONGS <= channels; c += LONGS) {
      const Long down = load(indices + c) >= limit, found = load(indices + c) - (down & width);
      some_low |= down & (bit << c), some_odd |= -(found & 1) & (bit << c);
    }
    low = odd = 0;
    for (int64_t k = 0; k < LONGS; ++k) low |= uint64_t(some_low[k]), odd |= uint64_t(some_odd[k]);
    for (; c < channels; ++c) add(indices[c], limit, c, low, odd);
  }
};

// Panels of up to MOST vectors of channels: f(the first channel, how many vectors).
template <typename F> inline void panels(int64_t channels, F f) {
  int64_t c = 0;
  if constexpr (MOST == 2)
    for (; c + L < channels; c += 2 * L) f(c, std::integral_constant<int, 2>());
  for (; c < channels; c += L) f(c, std::integral_constant<int, 1>());
}

// The sums of elements times the nine pixels that each of them meets, W vectors of channels. Pixels lie side by side, rows are `row` apart.
template <int W>
__attribute__((noinline)) void meet(const float* values, int64_t value_step, const int32_t* places, int64_t place_step, int64_t count, const float* x, int64_t row,
                                    float* total, int64_t step) {
  V sum[9][W] = {};
  const float* const lines[3] = {x, x + row, x + 2 * row};
  for (int64_t i = 0; i < count; ++i, values += value_step, places += place_step) {
    const V v = *values - V{};
    const int64_t at = int64_t(*places) * (W * L);
#pragma GCC unroll 9
    for (int k = 0; k < 9; ++k)
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) sum[k][j] = fused(v, load(lines[k / 3] + at + (k % 3 * W + j) * L), sum[k][j]);
  }
#pragma GCC unroll 9
  for (int k = 0; k < 9; ++k)
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) store(total + k * step + j * L, load(total + k * step + j * L) + sum[k][j]);
}

// The other way round: the nine pixels that the elements of some channels meet get the sums of elements times weights.
inline void give(uint64_t channels, const float* values, int64_t step, const float* weights, float* y, int64_t row) {
  V sum[9] = {};
  for (; channels != 0; channels &= channels - 1) {
    const int64_t c = __builtin_ctzll(channels);
    const V v = values[c * step] - V{};
    const float* const w = weights + c * (9 * L);
#pragma GCC unroll 9
    for (int k = 0; k < 9; ++k) sum[k] = fused(v, load(w + k * L), sum[k]);
  }
  float* const lines[3] = {y, y + row, y + 2 * row};
#pragma GCC unroll 9
  for (int k = 0; k < 9; ++k) {
    float* const to = lines[k / 3] + k % 3 * L;
    store(to, load(to) + sum[k]);
  }
}

}  // namespace

// Partial sums [blocks, outputs, 9, channels (up to whole vectors)], x, elements, indices. Parameters: the images x, the windows; row and column of
// the first tap; window rows of a band, windows of one between which sums stay in registers, blocks of images.
GRADLAB_KERNEL gradlab_pooled_dw(char** p, const int64_t* v, int part, int parts) {
  const Images x = images_of(v);
  const Windows y = windows_of(v + IMAGES);
  const int64_t* w = v + IMAGES + WINDOWS;
  const int64_t top = w[0], left = w[1], band = w[2], most = w[3], blocks = w[4], wide = up(x.c, L) * L, columns = y.width + 2;
  const int64_t laid = (2 * band + 2) * columns * MOST * L, found = up(y.c * band * y.w, L) * L;
  const UntilTheEnd end(band_scratch);
  float* const from = (float*)band_scratch.of(sizeof(float) * size_t(laid + found));
  if (from == nullptr) return no_memory(p);
  int32_t* const places = (int32_t*)(from + laid);
  Pieces pieces(p, part, parts, blocks);
  for (Share piece; pieces.next(piece);) {
    float* const total = (float*)p[0] + piece.first * y.c * 9 * wide;
    std::memset(total, 0, sizeof(float) * size_t(y.c * 9 * wide));
    for (int64_t n = x.n * piece.first / blocks; n < x.n * (piece.first + 1) / blocks; ++n)
      for (int64_t begin = 0; begin < y.h; begin += band) {
        const int64_t rows = least(band, y.h - begin), windows = rows * y.w;
        const int64_t place_step = y.last() ? y.c : 1, channel_step = y.last() ? 1 : windows;
        const float* const values = (const float*)p[2] + n * y.step[0] + begin * y.step[2];
        find((const int64_t*)p[3], y, n, begin, rows, columns, places);
        panels(x.c, [&](int64_t c, auto vectors) {
          constexpr int W = vectors;
          Images part = x;
          part.c = least(x.c - c, W * L);
          lay((const float*)p[1] + c * x.step[1], part, n, top + 2 * begin, 2 * rows + 2, left, columns, W * L, from);
          for (int64_t i = 0; i < windows; i += most)
            for (int64_t o = 0; o < y.c; ++o) {
              for (int64_t k = 0; k < most; k += LINE) __builtin_prefetch(values + (i + k) * y.step[3] + (o + AHEAD) * y.step[1]);
              meet<W>(values + i * y.step[3] + o * y.step[1], y.step[3], places + i * place_step + o * channel_step, place_step, least(most, windows - i), from,
                      columns * W * L, total + o * 9 * wide + c, wide);
            }
        });
      }
  }
}

GRADLAB_KERNEL gradlab_pooled_dw_sum(char** p, const int64_t* v, int part, int parts) { add_blocks(p, v, part, parts); }

// The weights as the input's gradient takes them: [vectors of channels, outputs, 9, channels of a vector]. Target, weights [outputs, channels, 3, 3].
// Parameters: outputs, channels.
GRADLAB_KERNEL gradlab_pooled_weights(char** p, const int64_t* v, int part, int parts) {
  const int64_t outputs = v[0], channels = v[1];
  const Share mine = share(outputs, part, parts);
  for (int64_t c = 0; c < channels; c += L)
    for (int64_t o = mine.first; o < mine.last; ++o) {
      float* const to = (float*)p[0] + (c * outputs + o * L) * 9;
      const float* const from = (const float*)p[1] + (o * channels + c) * 9;
      for (int k = 0; k < 9; ++k)
        for (int64_t i = 0; i < L; ++i) to[k * L + i] = c + i < channels ? from[i * 9 + k] : 0;
    }
}

// dx, elements, indices, weights. Parameters: the images dx, the windows; row and column of the first tap; rows of a band, bands.
GRADLAB_KERNEL gradlab_pooled_dx(char** p, const int64_t* v, int part, int parts) {
  const Images x = images_of(v);
  const Windows y = windows_of(v + IMAGES);
  const int64_t* w = v + IMAGES + WINDOWS;
  const int64_t top = w[0], left = w[1], band = w[2], bands = w[3], columns = y.width + 2, row = columns * L;
  const int64_t made = (band + 8) * row, most = (band / 2 + 3) * y.w;
  const UntilTheEnd end(band_scratch);
  float* const to = (float*)band_scratch.of(sizeof(float) * size_t(made) + 2 * sizeof(uint64_t) * size_t(most * up(y.c, BITS)));
  if (to == nullptr) return no_memory(p);
  uint64_t* const bits = (uint64_t*)(to + made);
  Pieces pieces(p, part, parts, x.n * bands);
  for (Share piece; pieces.next(piece);) {
    const int64_t n = piece.first / bands, begin = piece.first % bands * band, rows = least(band, x.h - begin);
    if (rows <= 0) continue;
    // The scratch begins with the first row of the first window that meets the band.
    const int64_t high = begin - top, first = high > 3 ? (high - 2) / 2 : 0, last = least(y.h, (high + rows + 1) / 2), skip = high - 2 * first;
    for (int64_t o = 0; o < y.c; o += BITS)
      for (int64_t r = first; r < last; ++r) {
        uint64_t* const below = bits + 2 * ((o / BITS) * most + (r - first) * y.w);
        const Bits masks = {below, below + y.w, y.width};
        masks.mark((const int64_t*)p[2] + n * y.at[0] + o * y.at[1] + r * y.at[2], y.at[3], y.w, y.at[1], least(BITS, y.c - o), (2 * r + 1) * y.width);
      }
    for (int64_t c = 0; c < x.c; c += L) {
      std::memset(to, 0, sizeof(float) * size_t((skip + rows + 3) * row));
      for (int64_t o = 0; o < y.c; o += BITS) {
        const uint64_t all = y.c - o >= BITS ? ~uint64_t(0) : (uint64_t(1) << (y.c - o)) - 1;
        const float* const weights = (const float*)p[3] + (c * y.c + o * L) * 9;
        for (int64_t r = first; r < last; ++r) {
          const uint64_t *below = bits + 2 * ((o / BITS) * most + (r - first) * y.w), *right = below + y.w;
          for (int64_t i = 0; i < y.w; ++i) {
            const float* const values = (const float*)p[1] + n * y.step[0] + o * y.step[1] + r * y.step[2] + i * y.step[3];
            float* const at = to + (2 * (r - first) * columns + 2 * i) * L;
            give(~below[i] & ~right[i] & all, values, y.step[1], weights, at, row);
            give(~below[i] & right[i] & all, values, y.step[1], weights, at + L, row);
            give(below[i] & ~right[i] & all, values, y.step[1], weights, at + row, row);
            give(below[i] & right[i] & all, values, y.step[1], weights, at + row + L, row);
          }
        }
      }
      Images part = x;
      part.c = least(x.c - c, L);
      lay_back(to + skip * row - left * L, rows, columns, L, part, n, begin, (float*)p[0] + c * x.step[1]);
    }
  }
}
