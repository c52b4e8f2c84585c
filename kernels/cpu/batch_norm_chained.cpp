// Batch norm in steps that go along a batch: records of parts of it, statistics from these, the normalised result. Records also come from the
// convolution that makes what is normalised (conv_statistics.py). float; images are contiguous, or have their channels last.
#include "channels.h"
#include "sum_of_squares.h"
#include "sums.h"

#include <cmath>

namespace {

constexpr int64_t SOME = 16;  // channels whose statistics are found together
constexpr int64_t PIECE = 1 << 14;  // floats of a piece of work

// A number or a vector, normalised. RELU: what lies below zero becomes zero, NaN stays; OTHER: something is added before.
template <bool RELU, bool OTHER, typename T> inline T normal(T x, T mean, T scale, T shift, T other) {
  T out = (x - mean) * scale + shift;
  if (OTHER) out += other;
  return RELU ? (out < 0 ? T{} : out) : out;
}

struct Operands {
  float* y;
  const float *x, *mean, *rstd, *weight, *bias, *other;
  float scale(int64_t c) const { return weight ? rstd[c] * weight[c] : rstd[c]; }
  float shift(int64_t c) const { return bias ? bias[c] : 0; }
};

template <bool RELU, bool OTHER> void normalise(const Operands& o, char** p, const int64_t* v, int part, int parts) {
  const int64_t images = v[0], channels = v[1], places = v[2];
  if (v[3]) {
    const int64_t wide = row_of(channels), floats = images * places * channels, rows = (floats + wide - 1) / wide;
    float *mean = (float*)scratch.of(sizeof(float) * size_t(3 * wide)), *scale = mean + wide, *shift = scale + wide;
    if (mean == nullptr) return no_memory(p);
    spread(channels, wide, mean, [&](int64_t c) { return o.mean[c]; });
    spread(channels, wide, scale, [&](int64_t c) { return o.scale(c); });
    spread(channels, wide, shift, [&](int64_t c) { return o.shift(c); });
    Pieces pieces(p, part, parts, rows, PIECE / wide > 0 ? PIECE / wide : 1);
    for (Share mine; pieces.next(mine);) {
      const int64_t at = mine.first * wide, last = mine.last * wide < floats ? mine.last * wide : floats;
      mapped(o.x + at, (OTHER ? o.other : o.x) + at, o.y + at, last - at, wide, [=](V x, V other, int64_t j) {
        return normal<RELU, OTHER>(x, load(mean + j), load(scale + j), load(shift + j), other);
      });
    }
    return;
  }
  Pieces pieces(p, part, parts, images * channels, PIECE / places > 0 ? PIECE / places : 1);
  for (Share mine; pieces.next(mine);)
    for (int64_t u = mine.first; u < mine.last; ++u) {
      const int64_t c = u % channels, at = u * places;
      const float *x = o.x + at, *other = o.other + at, mean = o.mean[c], scale = o.scale(c), shift = o.shift(c);
      float* y = o.y + at;
#pragma GCC ivdep
      for (int64_t j = 0; j < places; ++j) y[j] = normal<RELU, OTHER>(x[j], mean, scale, shift, OTHER ? other[j] : 0);
    }
}

}  // namespace

// Records of images whose channels come last: of each unit the channels' means, the sums of squared deviations from them, the number of
// pixels. records, x; parameters: the units.
GRADLAB_KERNEL gradlab_channel_records(char** p, const int64_t* v, int part, int parts) {
  const Units s = units_of(v);
  const int64_t wide = row_of(s.channels), length = 2 * s.channels + 16;
  float *mean = (float*)scratch.of(sizeof(float) * size_t(3 * wide + 4 * s.channels)), *sums = mean + wide;
  if (mean == nullptr) return no_memory(p);
  double *sum = (double*)(sums + 2 * wide), *off = sum + s.channels;
  Pieces pieces(p, part, parts, s.count());
  for (Share piece; pieces.next(piece);) {
    int64_t first;
    const int64_t pixels = s.pixels(piece.first, first), floats = pixels * s.channels;
    const double each = 1 / double(pixels);
    const float* x = (const float*)p[1] + first * s.channels;
    float *means = (float*)p[0] + piece.first * length, *squares = means + s.channels;
    totals<1>(x, x, floats, wide, sums, [=](V in, V, int64_t, V* found) { found[0] = in; });
    fold(sums, s.channels, wide, sum);
    spread(s.channels, wide, mean, [=](int64_t c) { return float(sum[c] * each); });
    totals<2>(x, x, floats, wide, sums, [=](V in, V, int64_t j, V* found) {
      const V off = in - load(mean + j);
      found[0] = off, found[1] = off * off;
    });
    fold(sums, s.channels, wide, off);  // what those numbers lack to the means, see sums.h
    fold(sums + wide, s.channels, wide, sum);
    bool lost = false;
    for (int64_t c = 0; c < s.channels; ++c) {
      const double rest = off[c] * off[c] * each;
      means[c] = float(corrected<double>(mean[c], off[c] * each, (sum[c] - rest) * each));
      squares[c] = float(sum[c] < rest ? 0 : sum[c] - rest);
      lost |= squares[c] - squares[c] != 0;
    }
    if (lost) {
      totals<1>(x, x, floats, wide, sums, [=](V in, V, int64_t j, V* found) {
        const V off = (in - load(mean + j)) * LESS;
        found[0] = off * off;
      });
      fold(sums, s.channels, wide, sum);
      for (int64_t c = 0; c < s.channels; ++c)
        if (squares[c] - squares[c] != 0) squares[c] = root_of(sum[c]);
    }
    squares[s.channels] = float(pixels);
  }
}

// The statistics of a batch from those of its units (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979). mean, rstd, var, records; parameters: channels, units, eps.
GRADLAB_KERNEL gradlab_channel_statistics(char** p, const int64_t* v, int part, int parts) {
  const int64_t channels = v[0], units = v[1], length = 2 * channels + 16;
  const float eps = float(real(v[2]));
  const Share mine = share(channels, part, parts, SOME);
  for (int64_t c = mine.first; c < mine.last; c += SOME) {
    const int64_t many = mine.last - c < SOME ? mine.last - c : SOME;
    double mean[SOME] = {}, squares[SOME] = {}, n = 0;
    const float* record = (const float*)p[3] + c;
    for (int64_t u = 0; u < units; ++u, record += length) {
      const double pixels = record[2 * channels - c];
      if (pixels == 0) continue;
      n += pixels;
      for (int64_t j = 0; j < many; ++j) mean[j] += pixels * record[j];
    }
    for (int64_t j = 0; j < many; ++j) mean[j] /= n;
    record = (const float*)p[3] + c;
    for (int64_t u = 0; u < units; ++u, record += length) {
      const double pixels = record[2 * channels - c];
      if (pixels == 0) continue;
      for (int64_t j = 0; j < many; ++j) {
        const double off = record[j] - mean[j];
        squares[j] += squares_of(record[channels + j]) + pixels * (off * off);
      }
    }
    for (int64_t j = 0; j < many; ++j) {
      const float var = float(squares[j] / n);
      ((float*)p[0])[c + j] = float(mean[j]);
      ((float*)p[1])[c + j] = var - var == 0 ? 1 / std::sqrt(var + eps) : float(1 / std::sqrt(squares[j] / n + eps));
      ((float*)p[2])[c + j] = var;
    }
  }
}

// y, x, mean, rstd, weight, bias, what is added; parameters: images, channels, places, whether channels lie last, whether there are a weight
// and a bias, whether a ReLU follows, whether something is added before it
GRADLAB_KERNEL gradlab_normalise(char** p, const int64_t* v, int part, int parts) {
  const auto at = [=](int i) { return (const float*)p[i]; };
  const Operands o = {(float*)p[0], at(1), at(2), at(3), v[4] ? at(4) : nullptr, v[5] ? at(5) : nullptr, at(6)};
  if (v[6]) v[7] ? normalise<true, true>(o, p, v, part, parts) : normalise<true, false>(o, p, v, part, parts);
  else v[7] ? normalise<false, true>(o, p, v, part, parts) : normalise<false, false>(o, p, v, part, parts);
}
