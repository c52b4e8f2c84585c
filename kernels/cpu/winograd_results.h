// 3×3 convolution of stride 1 by Winograd's algorithm (winograd.h), which is also the gradient for its input: the kernels, which
// `winograd.cpp` makes for F(2×2, 3×3), and `winograd_tall.cpp` for F(4×2, 3×3). They are compiled apart, because few programs need the second.
#ifndef GRADLAB_WINOGRAD_RESULTS_H
#define GRADLAB_WINOGRAD_RESULTS_H

#include "conv_statistics.h"
#include "winograd.h"

namespace {

using I = Wide<int32_t>::type;

// G of the algorithm: three numbers become four across, or DOWN of them down.
inline void weigh_across(V a, V b, V c, V* out) {
  const V outer = (a + c) * 0.5f, middle = b * 0.5f;
  out[0] = a, out[1] = outer + middle, out[2] = outer - middle, out[3] = c;
}
template <int TALL> inline void weigh_down(V a, V b, V c, V* out) {
  if constexpr (TALL == 2) return weigh_across(a, b, c, out);
  const V near = (a + NEAR2 * c) * NEAR_PART, near_odd = b * (NEAR * NEAR_PART), far = (a + FAR2 * c) * FAR_PART, far_odd = b * (FAR * FAR_PART);
  out[0] = a * ZERO_PART, out[1] = near + near_odd, out[2] = near - near_odd, out[3] = far + far_odd, out[4] = far - far_odd, out[5] = c;
}

// The weights as the algorithm multiplies by them: [panels of P outputs, places, channels, outputs of the panel], where the last panel may have
// one vector instead of two. Target, weights [a, b, 3, 3]. Parameters: a, b, whether it is for the input's gradient: b are then the outputs, and the
// weights are turned; else a are the outputs.
// With E a pair two channels, rounded to bfloat16, are one element.
template <int TALL, typename E = float> inline void weigh(char** p, const int64_t* v, int part, int parts) {
  constexpr int DOWN = TALL + 2, PLACES = DOWN * ACROSS;
  const int64_t a = v[0], b = v[1], back = v[2];
  const int64_t outputs = back ? b : a, channels = back ? a : b, rows = up(channels, EACH<E>), wide = up(outputs, L) * L, panels = up(outputs, P);
  const int64_t o_step = back ? 9 : b * 9, c_step = back ? b * 9 : 9;
  const Share mine = share(panels * rows, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t q = u / rows * P, c = u % rows, own = least(P, wide - q);
    float* const to = (float*)p[0] + q * PLACES * rows + c * own;
    for (int64_t o = q; o < q + own; o += L) {
      V places[EACH<E>][PLACES];
      for (int64_t e = 0; e < EACH<E>; ++e) {
        float some[9][L] = {};
        for (int64_t j = 0; j < L && o + j < outputs && EACH<E> * c + e < channels; ++j) {
          const float* w = (const float*)p[1] + (o + j) * o_step + (EACH<E> * c + e) * c_step;
          for (int k = 0; k < 9; ++k) some[k][j] = w[back ? 8 - k : k];
        }
        V half[DOWN][3];
        for (int j = 0; j < 3; ++j) {
          V found[DOWN];
          weigh_down<TALL>(load(some[j]), load(some[3 + j]), load(some[6 + j]), found);
          for (int i = 0; i < DOWN; ++i) half[i][j] = found[i];
        }
        for (int i = 0; i < DOWN; ++i) weigh_across(half[i][0], half[i][1], half[i][2], places[e] + ACROSS * i);
      }
      for (int i = 0; i < PLACES; ++i) {
        float* const at = to + i * rows * own + o - q;
        if constexpr (EACH<E> == 2) store_pairs((Pair*)at, joined(places[0][i], places[1][i]));
        else store(at, places[0][i]);
      }
    }
  }
}

// Where results go: of images `image` apart, those of rows and columns that there are. plane: 0; or the width of the results' plane, of whose
// windows of two by two the largest element remains, and in `winners`, with the same distances, where in the plane it lies. top: its first row.
struct Ending {
  float* at;
  int32_t* winners;
  int64_t image, row, pixel, rows, columns, plane, top;
  const float* bias;
  bool relu;
};

inline void beat(V x, int32_t at, V& best, I& winner) {
  const I take = ~(x <= best) & (best == best);  // a NaN is not less than or equal to anything
  best = take ? x : best;
  winner = take ? at - I{} : winner;
}

// Down, the products of places at(0), at(1) ... become TALL results.
template <int TALL, typename F> inline void gather_down(F at, V* out) {
  if constexpr (TALL == 2) {
    out[0] = at(0) + (at(1) + at(2)), out[1] = (at(1) - at(2)) - at(3);
  } else {
    const V near = at(1) + at(2), near_odd = at(1) - at(2), far = at(3) + at(4), far_odd = at(3) - at(4);
    out[0] = at(0) + (near + far);
    out[1] = NEAR * near_odd + FAR * far_odd;
    out[2] = NEAR2 * near + FAR2 * far;
    out[3] = at(5) + (NEAR * NEAR2 * near_odd + FAR * FAR2 * far_odd);
  }
}

// The weights as they were given: of output o and channel c tap k lies at o * output + c * channel + k, or 8 - k where they are turned.
struct Taps {
  const float* at;
  int64_t outputs, channels, output, channel;
  bool turned;
};

// Results of the tile whose first element is (y, x) of an image's part, outputs `first` and so on, as the sum that defines a convolution.
template <int TALL> __attribute__((noinline)) void summed(const Part& s, int64_t image, int64_t y, int64_t x, const Taps& w, int64_t first, V* left, V* right) {
  for (int i = 0; i < TALL; ++i) left[i] = right[i] = V{};
  for (int64_t c = 0; c < w.channels; ++c)
    for (int k = 0; k < 9; ++k) {
      float some[L] = {};
      for (int64_t j = 0; j < least(L, w.outputs - first); ++j) some[j] = w.at[(first + j) * w.output + c * w.channel + (w.turned ? 8 - k : k)];
      const V own = load(some);
      const auto at = [&](int64_t i, int64_t j) {
        return uint64_t(i) < uint64_t(s.rows) && uint64_t(j) < uint64_t(s.columns) ? s.at[image * s.image + i * s.row + j * s.pixel + c] : 0.0f;
      };
      for (int i = 0; i < TALL; ++i) {
        left[i] += at(y + i + k / 3, x + k % 3) * own;
        right[i] += at(y + i + k / 3, x + k % 3 + 1) * own;
      }
    }
}

// A run of tiles, whose TALL by two results each, `wide` channels, are what tile(number, channel, left ones, right ones) computes: from row y and
// column x of an image on. Whether all of them are finite. Those of pairs of bfloat16 numbers (E) are rounded to bfloat16.
template <int TALL, typename E, typename F> inline bool results(F tile, int64_t wide, int64_t many, const Ending& e, int64_t image, int64_t y, int64_t x, int64_t channel) {
  const int64_t first = image * e.image + (e.plane ? y / 2 * e.row + x / 2 * e.pixel : y * e.row + x * e.pixel) + channel;
  V total[2] = {};
  for (int64_t t = 0; t < many; ++t)
    for (int64_t c = 0; c < wide; c += L) {
      V left[TALL], right[TALL];
      tile(t, c, left, right);
      const V shift = e.bias == nullptr ? V{} : load(e.bias + channel + c);
#pragma GCC unroll 4
      for (int i = 0; i < TALL; ++i) {
        left[i] += shift, right[i] += shift;
        total[0] += left[i], total[1] += right[i];
        if constexpr (EACH<E> == 2) left[i] = nearest(left[i]), right[i] = nearest(right[i]);
        if (e.relu) left[i] = left[i] < V{} ? V{} : left[i], right[i] = right[i] < V{} ? V{} : right[i];
      }
      if (!needed(5) || e.plane == 0) {
        float* const out = e.at + first + 2 * t * e.pixel + c;
        const bool both = x + 2 * t + 1 < e.columns;
#pragma GCC unroll 4
        for (int i = 0; i < TALL; ++i) {
          if (y + i >= e.rows) break;
          store(out + i * e.row, left[i]);
          if (both) store(out + i * e.row + e.pixel, right[i]);
        }
        continue;
      }
#pragma GCC unroll 2
      for (int i = 0; i < TALL / 2; ++i) {
        V best = left[2 * i];
        I winner = {};
        beat(right[2 * i], 1, best, winner);
        beat(left[2 * i + 1], int32_t(e.plane), best, winner);
        beat(right[2 * i + 1], int32_t(e.plane) + 1, best, winner);
        const int64_t at = first + t * e.pixel + i * e.row + c;
        store(e.at + at, best);
        store(e.winners + at, winner + int32_t((e.top + y + 2 * i) * e.plane + x + 2 * t));
      }
    }
  return finite(total[0] + total[1]);
}

// The results of a tile from the products of all places, whose first is at m.
template <int TALL> inline void gather(const float* m, int64_t place, V* left, V* right) {
  V half[ACROSS][TALL];
#pragma GCC unroll 4
  for (int j = 0; j < ACROSS; ++j) gather_down<TALL>([=](int i) { return load(m + (ACROSS * i + j) * place); }, half[j]);
#pragma GCC unroll 4
  for (int i = 0; i < TALL; ++i) left[i] = half[0][i] + (half[1][i] + half[2][i]), right[i] = (half[1][i] - half[2][i]) - half[3][i];
}

// Indices into image n, as `lay_back` does.
void lay_back_indices(const int32_t* from, int64_t rows, int64_t columns, int64_t wide, Images s, int64_t n, int64_t top, int64_t* out) {
  out += n * s.step[0] + top * s.step[2];
  if (columns == s.w && s.step[2] == columns * s.step[3]) s.w = columns = rows * columns, rows = rows > 0;
  for (int64_t r = 0; r < rows; ++r, from += columns * wide, out += s.step[2]) {
    int64_t c = 0;
    if (s.step[1] == 1)
      for (; c + L <= s.c; c += L)
        for (int64_t i = 0; i < s.w; ++i)
          for (int k = 0; k < L; ++k) out[i * s.step[3] + c + k] = from[i * wide + c + k];
    else if (s.step[3] == 1 && s.w >= L)
      for (; c + L <= s.c; c += L)
        for (int64_t i = 0; i < s.w; i += L) {
          const int64_t x = least(i, s.w - L);
          V some[L];
          turned((const float*)from + x * wide + c, wide, some);
          for (int j = 0; j < L; ++j) {
            int32_t found[L];
            store((float*)found, some[j]);
            for (int k = 0; k < L; ++k) out[(c + j) * s.step[1] + x + k] = found[k];
          }
        }
    for (; c < s.c; ++c)
      for (int64_t i = 0; i < s.w; ++i) out[c * s.step[1] + i * s.step[3]] = from[i * wide + c];
  }
}

// An infinity becomes NaN in the whole tile, as its transformation is a difference: a run of tiles whose results are not finite is summed up plainly.
//
// y, x, transformed weights, bias, indices, records, weights. Parameters: the images x, the images y; the row and column of the first tap; tile rows of a band, bands, images
// of a unit of work, tiles of a block; whether there is a bias, whether results below zero become zero, whether a record (conv_statistics.h) of each
// unit's results is wanted; whether only the largest elements of windows of two by two are: then the strides of y are theirs, and those of the
// indices follow the last; whether weights are turned and outputs their second dimension.
template <int TALL, typename E = float> inline void correlate(char** p, const int64_t* v, int part, int parts) {
  constexpr int DOWN = TALL + 2, PLACES = DOWN * ACROSS;
  const Images x = images_of(v), y = images_of(v + IMAGES);
  const int64_t* w = v + 2 * IMAGES;
  const int64_t top = w[0], left = w[1], band = w[2], bands = w[3], group = w[4], most = w[5];
  const Taps taps = {(const float*)p[6], y.c, x.c, w[10] ? 9 : 9 * x.c, w[10] ? 9 * y.c : 9, w[10] != 0};
  const bool pooled = w[9], lies = readable(x), direct = !pooled && readable(y);
  const int64_t width = up(y.w, WIDE), height = up(y.h, TALL), columns = WIDE * width + 2;
  const int64_t wide = up(x.c, L) * L, across = up(y.c, L) * L;
  const bool over = EACH<E> == 1 && across <= least(wide, P) && x.c <= LONG;  // products lie where what they are made of does
  const int64_t in_place = most * wide / EACH<E> + GAP, depth = up(x.c, EACH<E>), out_place = over ? in_place : most * P + GAP;
  const int64_t laid = lies ? 0 : (TALL * band + 2) * columns * wide, made = direct ? 0 : TALL * band * WIDE * width * across;
  const UntilTheEnd end(tile_scratch);
  float* from = (float*)tile_scratch.of(sizeof(float) * size_t(group * (laid + made) + PLACES * (in_place + out_place) + across));
  if (from == nullptr) return no_memory(p);
  if (zeros.of(lies ? x.w * x.step[3] + wide : columns * wide + wide) == nullptr) return no_memory(p);
  float *to = from + group * laid, *in = to + group * made, *out = over ? in : in + PLACES * in_place, *bias = out + PLACES * out_place;
  if (w[6]) {
    std::memset(bias, 0, sizeof(float) * size_t(across));
    std::memcpy(bias, p[3], sizeof(float) * size_t(y.c));
  }
  Pieces pieces(p, part, parts, up(x.n, group) * bands);
  for (Share piece; pieces.next(piece);) {
    const int64_t u = piece.first, n = u / bands * group, images = least(group, x.n - n), begin = u % bands * band, tall = least(band, height - begin);
    const int64_t rows = least(TALL * tall, y.h - TALL * begin);
    Part source = {(const float*)p[1] + n * x.step[0], x.step[0], x.step[2], x.step[3], x.h, x.w};
    if (!lies) GRADLAB_PART(2) {
      source = {from, laid, columns * wide, wide, TALL * tall + 2, columns};
      for (int64_t i = 0; i < images; ++i)
        lay((const float*)p[1], x, n + i, top + TALL * begin, TALL * tall + 2, left, columns, wide, from + i * laid);
    }
    const int64_t down = lies ? top + TALL * begin : 0, begin_column = lies ? left : 0;  // where the first tile begins
    Ending ending = {to, (int32_t*)to + made / 2, made, WIDE * width * across, across, TALL * tall, WIDE * width, 0, TALL * begin, w[6] ? bias : nullptr, w[7] != 0};
    if (direct) ending = {(float*)p[0] + n * y.step[0] + TALL * begin * y.step[2], nullptr, y.step[0], y.step[2], y.step[3], rows, y.w, 0, 0, ending.bias, ending.relu};
    if (pooled) ending.row = width * across, ending.plane = y.w;
    const int64_t tiles = images * tall * width;
    for (int64_t first = 0; first < tiles; first += most) {
      const int64_t count = least(most, tiles - first);
      runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
        transform<TALL>(source, i, down + TALL * r, begin_column + WIDE * c, wide, many, (E*)in, t, in_place, wide, 0);
      });
      for (int64_t q = 0; q < across; q += P) {
        const int64_t own = least(P, across - q), row = over ? wide : own;
        const Panels<true, E> product = {wide / EACH<E>, depth, row, PLACES, in_place, depth * own, out_place, false};
        product.multiply(count, own / L, (const E*)in, (const E*)p[2] + q * PLACES * depth, 0, out);
        runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
          const auto made = [=](int64_t tile, int64_t channel, V* left, V* right) { gather<TALL>(out + (t + tile) * row + channel, out_place, left, right); };
          if (results<TALL, E>(made, own, many, ending, i, TALL * r, WIDE * c, q)) return;
          const auto plain = [&](int64_t tile, int64_t channel, V* left, V* right) {
            summed<TALL>(source, i, down + TALL * r, begin_column + WIDE * (c + tile), taps, q + channel, left, right);
          };
          results<TALL, E>(plain, own, many, ending, i, TALL * r, WIDE * c, q);
        });
      }
    }
    if (w[8]) GRADLAB_PART(4) record({ending.at, images, rows, y.w, ending.image, ending.row, ending.pixel}, y.c, (float*)p[5] + u * record_length(y.c));
    if (pooled) GRADLAB_PART(5) {
      const Images whole = {y.n, y.c, y.h / 2, y.w / 2, {y.step[0], y.step[1], y.step[2], y.step[3]}};
      const Images places = {y.n, y.c, y.h / 2, y.w / 2, {w[11], w[12], w[13], w[14]}};
      for (int64_t i = 0; i < images; ++i) {
        const float* const at = to + i * made;
        lay_back(at, rows / 2, width, across, whole, n + i, TALL / 2 * begin, (float*)p[0]);
        lay_back_indices((const int32_t*)at + made / 2, rows / 2, width, across, places, n + i, TALL / 2 * begin, (int64_t*)p[4]);
      }
    }
    if (!pooled && !direct) GRADLAB_PART(3)
      for (int64_t i = 0; i < images; ++i) lay_back(to + i * made, rows, WIDE * width, across, y, n + i, TALL * begin, (float*)p[0]);
  }
}

}  // namespace

#endif
