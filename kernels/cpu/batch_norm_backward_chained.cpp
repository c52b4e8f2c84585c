// Batch norm's derivative in steps that go along a batch whose channels come last: sums over parts of it, the gradients of weight and bias
// from these, the input's gradient. With a ReLU behind the norm its mask is computed again. float.
#include "channels.h"

namespace {

constexpr int64_t SOME = 16;  // channels whose sums are found together
constexpr int64_t PIECE = 1 << 14;  // floats of a piece of work

// What the norm's result was made of, along a row.
struct Norm {
  float *mean, *scale, *shift;
  Norm(float* at, int64_t channels, int64_t wide, const float* m, const float* rstd, const float* weight, const float* bias)
      : mean(at), scale(at + wide), shift(at + 2 * wide) {
    spread(channels, wide, mean, [=](int64_t c) { return m[c]; });
    spread(channels, wide, scale, [=](int64_t c) { return weight ? rstd[c] * weight[c] : rstd[c]; });
    if (bias != nullptr) spread(channels, wide, shift, [=](int64_t c) { return bias[c]; });
  }
  // The gradient behind the ReLU.
  template <bool RELU> V slope(V in, V dy, int64_t j) const {
    if (!RELU) return dy;
    at_once(dy);
    return (in - load(mean + j)) * load(scale + j) + load(shift + j) <= V{} ? V{} : dy;
  }
};

template <bool RELU> void sums(char** p, const int64_t* v, int part, int parts) {
  const Units s = units_of(v);
  const int64_t wide = row_of(s.channels), length = 2 * s.channels + 16;
  float *own = (float*)scratch.of(sizeof(float) * size_t(5 * wide + 2 * s.channels)), *found = own + 3 * wide;
  if (own == nullptr) return no_memory(p);
  double* sum = (double*)(found + 2 * wide);
  const Norm norm(own, s.channels, wide, (const float*)p[3], (const float*)p[4], v[UNITS] ? (const float*)p[5] : nullptr,
                  RELU ? (const float*)p[6] : nullptr);
  Pieces pieces(p, part, parts, s.count());
  for (Share piece; pieces.next(piece);) {
    int64_t first;
    const int64_t floats = s.pixels(piece.first, first) * s.channels;
    totals<2>((const float*)p[2] + first * s.channels, (const float*)p[1] + first * s.channels, floats, wide, found,
              [=](V in, V dy, int64_t j, V* out) {
                const V g = norm.template slope<RELU>(in, dy, j);
                out[0] = g, out[1] = g * (in - load(norm.mean + j));
              });
    float* record = (float*)p[0] + piece.first * length;
    for (int n = 0; n < 2; ++n) {
      fold(found + n * wide, s.channels, wide, sum);
      for (int64_t c = 0; c < s.channels; ++c) record[n * s.channels + c] = float(sum[c]);
    }
  }
}

template <bool RELU> void gradient(char** p, const int64_t* v, int part, int parts) {
  const int64_t channels = v[1], wide = row_of(channels), floats = v[0] * v[2] * channels, rows = (floats + wide - 1) / wide;
  float *own = (float*)scratch.of(sizeof(float) * size_t(5 * wide)), *along = own + 3 * wide, *off = own + 4 * wide;
  if (own == nullptr) return no_memory(p);
  const float *dweight = (const float*)p[3], *dbias = (const float*)p[4], *rstd = (const float*)p[6], n = float(v[3]);
  const Norm norm(own, channels, wide, (const float*)p[5], rstd, v[4] ? (const float*)p[7] : nullptr, RELU ? (const float*)p[8] : nullptr);
  spread(channels, wide, along, [=](int64_t c) { return dweight[c] * rstd[c] / n; });
  spread(channels, wide, off, [=](int64_t c) { return dbias[c] / n; });
  Pieces pieces(p, part, parts, rows, PIECE / wide > 0 ? PIECE / wide : 1);
  for (Share mine; pieces.next(mine);) {
    const int64_t at = mine.first * wide, last = mine.last * wide < floats ? mine.last * wide : floats;
    mapped((const float*)p[2] + at, (const float*)p[1] + at, (float*)p[0] + at, last - at, wide, [=](V in, V dy, int64_t j) {
      return (norm.template slope<RELU>(in, dy, j) - (in - load(norm.mean + j)) * load(along + j) - load(off + j)) * load(norm.scale + j);
    });
  }
}

}  // namespace

// Of each unit the channels' sums of the gradients, and of these times the deviations from the mean. records, dy, x, mean, rstd, weight, bias;
// parameters: the units, whether there is a weight, whether a ReLU stands behind the norm
GRADLAB_KERNEL gradlab_norm_sums(char** p, const int64_t* v, int part, int parts) {
  if (v[UNITS + 1]) sums<true>(p, v, part, parts);
  else sums<false>(p, v, part, parts);
}

// dweight, dbias, rstd, records; parameters: channels, units
GRADLAB_KERNEL gradlab_norm_slopes(char** p, const int64_t* v, int part, int parts) {
  const int64_t channels = v[0], length = 2 * channels + 16;
  const Share mine = share(channels, part, parts, SOME);
  for (int64_t c = mine.first; c < mine.last; c += SOME) {
    const int64_t many = mine.last - c < SOME ? mine.last - c : SOME;
    double sum[SOME] = {}, dot[SOME] = {};
    const float* record = (const float*)p[3] + c;
    for (int64_t u = 0; u < v[1]; ++u, record += length)
      for (int64_t j = 0; j < many; ++j) sum[j] += record[j], dot[j] += record[channels + j];
    for (int64_t j = 0; j < many; ++j) {
      ((float*)p[0])[c + j] = float(dot[j]) * ((const float*)p[2])[c + j];
      ((float*)p[1])[c + j] = float(sum[j]);
    }
  }
}

// dx, dy, x, dweight, dbias, mean, rstd, weight, bias; parameters: images, channels, places, how many elements a channel has in the whole batch,
// whether there is a weight, whether a ReLU stands behind the norm
GRADLAB_KERNEL gradlab_norm_gradient(char** p, const int64_t* v, int part, int parts) {
  if (v[5]) gradient<true>(p, v, part, parts);
  else gradient<false>(p, v, part, parts);
}
