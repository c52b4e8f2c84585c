// The gradient of a 3×3 convolution's weight by Winograd's algorithm (see winograd.h): its transforms the other way round.
#include "winograd.h"

namespace {

// A run of tiles of four by two slopes each: six numbers down, four across.
inline void slopes(const float* dy, int64_t pixel, int64_t row, int64_t wide, int64_t many, float* out, int64_t place, int64_t tile) {
  for (int64_t t = 0; t < many; ++t, dy += WIDE * pixel, out += tile)
    for (int64_t c = 0; c < wide; c += L) {
      V half[WIDE][DOWN];
#pragma GCC unroll 2
      for (int j = 0; j < WIDE; ++j) {
        const float* in = dy + c + j * pixel;
        const V a = load(in), b = load(in + row), d = load(in + 2 * row), e = load(in + 3 * row);
        const V near = a + NEAR2 * d, near_odd = NEAR * (b + NEAR2 * e), far = a + FAR2 * d, far_odd = FAR * (b + FAR2 * e);
        V* to = half[j];
        to[0] = a, to[1] = near + near_odd, to[2] = near - near_odd, to[3] = far + far_odd, to[4] = far - far_odd, to[5] = e;
      }
#pragma GCC unroll 6
      for (int i = 0; i < DOWN; ++i) {
        float* to = out + c + ACROSS * i * place;
        const V left = half[0][i], right = half[1][i];
        store(to, left), store(to + place, left + right), store(to + 2 * place, left - right), store(to + 3 * place, -right);
      }
    }
}

// G of the algorithm, transposed: four numbers across, or six down, become three.
inline void taps_of(V a, V b, V c, V d, V* out) {
  const V sum = (b + c) * 0.5f, difference = (b - c) * 0.5f;
  out[0] = a + sum, out[1] = difference, out[2] = sum + d;
}
inline void taps_down(const float* x, int64_t step, V* out) {
  const V b = load(x + step), c = load(x + 2 * step), d = load(x + 3 * step), e = load(x + 4 * step);
  const V near = (b + c) * NEAR_PART, near_odd = (b - c) * (NEAR * NEAR_PART), far = (d + e) * FAR_PART, far_odd = (d - e) * (FAR * FAR_PART);
  out[0] = load(x) * ZERO_PART + (near + far), out[1] = near_odd + far_odd, out[2] = NEAR2 * near + FAR2 * far + load(x + 5 * step);
}

}  // namespace

// Partial sums [blocks, outputs, 9, channels (up to whole vectors)], x, dy, indices. Parameters: the images x, the images dy; row and column of the
// first tap; tile rows of a band, bands, images laid together, tiles of a block of them, blocks of images; whether dy are the elements that
// windows of two by two have chosen, and where they lie (see `lay_pooled`).
GRADLAB_KERNEL gradlab_winograd_dw(char** p, const int64_t* v, int part, int parts) {
  const Images x = images_of(v), y = images_of(v + IMAGES);
  const int64_t* w = v + 2 * IMAGES;
  const int64_t top = w[0], left = w[1], band = w[2], bands = w[3], group = w[4], most = w[5], blocks_of = w[6];
  const int64_t width = up(y.w, WIDE), height = up(y.h, TALL), columns = WIDE * width + 2;
  const int64_t wide = up(x.c, L) * L, panels = up(x.c, P), across = panels * P, own = up(y.c, L) * L;
  const int64_t in_place = most * across + GAP, slope_place = most * own + GAP, total_place = y.c * across + GAP;
  const int64_t laid = (TALL * band + 2) * columns * wide, given = TALL * band * WIDE * width * own;
  float* from = (float*)tile_scratch.of(sizeof(float) * size_t(group * (laid + given) + PLACES * (in_place + slope_place + total_place)));
  float *slope = from + group * laid, *in = slope + group * given, *out = in + PLACES * in_place, *total = out + PLACES * slope_place;
  if (wide != across) std::memset(in, 0, sizeof(float) * size_t(PLACES * in_place));
  Pieces pieces(p, part, parts, blocks_of);
  for (Share piece; pieces.next(piece);) {
    const int64_t u = piece.first, last = x.n * (u + 1) / blocks_of;
    bool add = false;
    for (int64_t n = x.n * u / blocks_of; n < last; n += group)
      for (int64_t begin = 0; begin < height; begin += band) {
        const int64_t images = least(group, last - n), tall = least(band, height - begin);
        for (int64_t i = 0; i < images; ++i) {
          lay((const float*)p[1], x, n + i, top + TALL * begin, TALL * tall + 2, left, columns, wide, from + i * laid);
          if (w[7]) lay_pooled((const float*)p[2], (const int64_t*)p[3], y, n + i, TALL * begin, TALL * tall, 0, WIDE * width, own, slope + i * given);
          else lay((const float*)p[2], y, n + i, TALL * begin, TALL * tall, 0, WIDE * width, own, slope + i * given);
        }
        const int64_t tiles = images * tall * width;
        for (int64_t first = 0; first < tiles; first += most) {
          const int64_t count = least(most, tiles - first);
          runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
            transform(from + i * laid + (TALL * r * columns + WIDE * c) * wide, wide, columns * wide, wide, many, in + t * P, in_place, P, most * P);
            slopes(slope + i * given + (TALL * r * WIDE * width + WIDE * c) * own, own, WIDE * width * own, own, many, out + t * own, slope_place, own);
          });
          const Matrices product = {1, own, most * P, x.c, count, across, add};
          for (int f = 0; f < PLACES; ++f) product.multiply(y.c, out + f * slope_place, in + f * in_place, total + f * total_place);
          add = true;
        }
      }
    float* to = (float*)p[0] + u * y.c * 9 * wide;
    for (int64_t o = 0; o < y.c; ++o, to += 9 * wide)
      for (int64_t c = 0; c < wide; c += L) {
        const float* at = total + o * across + c;
        V half[3][ACROSS];
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; ++j) {
          V found[3];
          taps_down(at + j * total_place, ACROSS * total_place, found);
          for (int i = 0; i < 3; ++i) half[i][j] = found[i];
        }
#pragma GCC unroll 4
        for (int i = 0; i < 3; ++i) {
          V found[3];
          taps_of(half[i][0], half[i][1], half[i][2], half[i][3], found);
          for (int j = 0; j < 3; ++j) store(to + (3 * i + j) * wide + c, found[j]);
        }
      }
  }
}

// dw [outputs, channels, 3, 3], partial sums. Parameters: outputs, channels, blocks.
GRADLAB_KERNEL gradlab_winograd_dw_sum(char** p, const int64_t* v, int part, int parts) {
  const int64_t outputs = v[0], channels = v[1], wide = up(channels, L) * L;
  const Share mine = share(outputs, part, parts);
  float* sum = (float*)tile_scratch.of(sizeof(float) * size_t(9 * wide));
  for (int64_t o = mine.first; o < mine.last; ++o) {
    const float* from = (const float*)p[1] + o * 9 * wide;
    std::memcpy(sum, from, sizeof(float) * size_t(9 * wide));
    for (int64_t b = 1; b < v[2]; ++b) {
      from += outputs * 9 * wide;
      for (int64_t i = 0; i < 9 * wide; i += L) store(sum + i, load(sum + i) + load(from + i));
    }
    float* to = (float*)p[0] + o * channels * 9;
    for (int64_t c = 0; c < channels; ++c)
      for (int k = 0; k < 9; ++k) to[9 * c + k] = sum[k * wide + c];
  }
}
