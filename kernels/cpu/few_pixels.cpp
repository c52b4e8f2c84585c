// Convolutions whose results have few pixels, as those of one small picture: each weight is needed a few times alone, so weights stay as they are.
// What a pixel meets is laid in their order, and a result is the product of two lines, walked by vectors.
#include "images.h"

namespace {

constexpr int64_t OUTPUTS = L < 4 ? L : 4, PIXELS = L / OUTPUTS;  // of a block: as many sums as a vector has places

// Sums along `k` of so many outputs' weights times so many pixels' lines, in one vector, the pixels of an output
// side by side. There is at least a vector of each. Weights come from far: those `ahead` are fetched.
template <int MANY>
inline __attribute__((always_inline)) V block(const float* const* w, const float* const* x, int64_t k, int64_t ahead) {
  V sums[OUTPUTS][MANY] = {}, line[MANY];
  int64_t i = 0;
  for (; i + L <= k; i += L) {
#pragma GCC unroll 4
    for (int p = 0; p < MANY; ++p) line[p] = load(x[p] + i);
#pragma GCC unroll 4
    for (int o = 0; o < OUTPUTS; ++o) {
      __builtin_prefetch(w[o] + i + ahead, 0, 2);
      const V factor = load(w[o] + i);
#pragma GCC unroll 4
      for (int p = 0; p < MANY; ++p) sums[o][p] = fused(factor, line[p], sums[o][p]);
    }
  }
  if (i < k) {  // the last vector begins sooner, and what was there before is left out
    V order, before = float(L - (k - i)) - V{};
    for (int64_t j = 0; j < L; ++j) order[j] = float(j);
    for (int p = 0; p < MANY; ++p) line[p] = order < before ? V{} : load(x[p] + k - L);
    for (int o = 0; o < OUTPUTS; ++o) {
      const V factor = order < before ? V{} : load(w[o] + k - L);
      for (int p = 0; p < MANY; ++p) sums[o][p] = fused(factor, line[p], sums[o][p]);
    }
  }
  V parts[L];
#pragma GCC unroll 16
  for (int j = 0; j < L; ++j) parts[j] = j % PIXELS < MANY ? sums[j / PIXELS][j % PIXELS < MANY ? j % PIXELS : 0] : V{};
  exchange<float, 1>(parts);
  if constexpr (L > 2) exchange<float, 2>(parts);
  if constexpr (L > 4) exchange<float, 4>(parts);
  if constexpr (L > 8) exchange<float, 8>(parts);
#pragma GCC unroll 4
  for (int half = L / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int j = 0; j < half; ++j) parts[j] += parts[j + half];
  return parts[0];
}

}  // namespace

// What pixels meet: for each of them [channels, rows, columns of the kernel], zeros beyond the edges. target, images. Parameters: the images; rows and
// columns of the result and of the kernel, stride, padding and dilation, each of both.
GRADLAB_KERNEL gradlab_few_pixels_laid(char** p, const int64_t* v, int part, int parts) {
  const Images x = images_of(v);
  const int64_t *w = v + IMAGES, high = w[0], wide = w[1], kh = w[2], kw = w[3], taps = kh * kw, depth = x.c * taps;
  const Share mine = share(x.n * high * wide, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t top = u / wide % high * w[4] - w[6], left = u % wide * w[5] - w[7];
    const float* const from = (const float*)p[1] + u / (high * wide) * x.step[0] + top * x.step[2] + left * x.step[3];
    float* const to = (float*)p[0] + u * depth;
    if (top < 0 || left < 0 || top + (kh - 1) * w[8] >= x.h || left + (kw - 1) * w[9] >= x.w) std::memset(to, 0, sizeof(float) * size_t(depth));
    for (int64_t a = 0; a < kh; ++a)
      for (int64_t b = 0; b < kw; ++b) {
        const int64_t i = top + a * w[8], j = left + b * w[9];
        if (i < 0 || i >= x.h || j < 0 || j >= x.w) continue;
        const float* const tap = from + a * w[8] * x.step[2] + b * w[9] * x.step[3];
        for (int64_t c = 0; c < x.c; ++c) to[c * taps + a * kw + b] = tap[c * x.step[1]];
      }
  }
}

// y, lines of pixels, weights, bias. Parameters: the images of the result; the depth; whether there is a bias, whether results below zero become zero.
GRADLAB_KERNEL gradlab_few_pixels(char** p, const int64_t* v, int part, int parts) {
  const Images y = images_of(v);
  const int64_t k = v[IMAGES], pixels = y.n * y.h * y.w;
  const bool relu = v[IMAGES + 2] != 0;
  const float *const lines = (const float*)p[1], *const weights = (const float*)p[2], *const bias = v[IMAGES + 1] ? (const float*)p[3] : nullptr;
  const Share mine = share(y.c, part, parts, OUTPUTS);
  for (int64_t o = mine.first; o < mine.last; o += OUTPUTS) {
    const int64_t outputs = least(OUTPUTS, mine.last - o);
    const float* w[OUTPUTS];
    for (int64_t i = 0; i < OUTPUTS; ++i) w[i] = weights + (o + least(i, outputs - 1)) * k;
    for (int64_t u = 0; u < pixels; u += PIXELS) {
      const int64_t many = least(PIXELS, pixels - u), ahead = u == 0 ? OUTPUTS * k : 0;
      const float* x[PIXELS];
      for (int64_t i = 0; i < PIXELS; ++i) x[i] = lines + (u + least(i, many - 1)) * k;
      float found[L];
      store(found, many == 1 ? block<1>(w, x, k, ahead) : block<PIXELS>(w, x, k, ahead));
      for (int64_t j = 0; j < many; ++j) {
        const int64_t at = u + j;
        float* const to = (float*)p[0] + at / (y.h * y.w) * y.step[0] + at / y.w % y.h * y.step[2] + at % y.w * y.step[3] + o * y.step[1];
        for (int64_t i = 0; i < outputs; ++i) {
          const float value = found[i * PIXELS + j] + (bias != nullptr ? bias[o + i] : 0.0f);
          to[i * y.step[1]] = relu && value < 0 ? 0 : value;
        }
      }
    }
  }
}
