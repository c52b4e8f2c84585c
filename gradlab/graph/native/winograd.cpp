// 3×3 convolution of stride 1 by Winograd's algorithm, which is also the gradient for its input (see winograd.h).
#include "winograd.h"

namespace {

// G of the algorithm along one dimension: three numbers become four.
inline void weigh(V a, V b, V c, V* out) {
  const V outer = (a + c) * 0.5f, middle = b * 0.5f;
  out[0] = a, out[1] = outer + middle, out[2] = outer - middle, out[3] = c;
}

// A run of tiles: the products M of all places become two by two results each.
inline void results(const float* m, int64_t place, int64_t tile, int64_t outputs, int64_t many, const float* bias, bool relu, float* out, int64_t row) {
  const int64_t wide = tile;
  for (int64_t t = 0; t < many; ++t, m += tile, out += 2 * wide)
    for (int64_t c = 0; c < outputs; c += L) {
      const float* in = m + c;
      V above[4], below[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const V a = load(in + j * place), b = load(in + (4 + j) * place), d = load(in + (8 + j) * place), e = load(in + (12 + j) * place);
        above[j] = a + (b + d), below[j] = (b - d) - e;
      }
      const V shift = bias == nullptr ? V{} : load(bias + c);
      V y[4] = {above[0] + (above[1] + above[2]) + shift, (above[1] - above[2]) - above[3] + shift,
                below[0] + (below[1] + below[2]) + shift, (below[1] - below[2]) - below[3] + shift};
      if (relu)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) y[j] = y[j] < V{} ? V{} : y[j];
      store(out + c, y[0]), store(out + c + wide, y[1]);
      store(out + c + row, y[2]), store(out + c + row + wide, y[3]);
    }
}

}  // namespace

// The weights as the algorithm multiplies by them: [places, panels of outputs, channels, P]. target, weights [a, b, 3, 3]. Parameters:
// a, b, whether it is for the input's gradient: b are then the outputs, and the weights are turned; else a are the outputs.
GRADLAB_KERNEL gradlab_winograd_weights(char** p, const int64_t* v, int part, int parts) {
  const int64_t a = v[0], b = v[1], back = v[2];
  const int64_t outputs = back ? b : a, channels = back ? a : b, panels = up(outputs, P);
  const int64_t o_step = back ? 9 : b * 9, c_step = back ? b * 9 : 9;
  const Share mine = share(panels * channels, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t q = u / channels, c = u % channels;
    for (int64_t o = q * P; o < q * P + P; o += L) {
      float some[9][L] = {};
      for (int64_t j = 0; j < L && o + j < outputs; ++j) {
        const float* w = (const float*)p[1] + (o + j) * o_step + c * c_step;
        for (int k = 0; k < 9; ++k) some[k][j] = w[back ? 8 - k : k];
      }
      V half[4][3];
      for (int j = 0; j < 3; ++j) {
        V found[4];
        weigh(load(some[j]), load(some[3 + j]), load(some[6 + j]), found);
        for (int i = 0; i < 4; ++i) half[i][j] = found[i];
      }
      for (int i = 0; i < 4; ++i) {
        V found[4];
        weigh(half[i][0], half[i][1], half[i][2], found);
        for (int j = 0; j < 4; ++j) store((float*)p[0] + (((4 * i + j) * panels + q) * channels + c) * P + o % P, found[j]);
      }
    }
  }
}

// y, x, weights, bias. Parameters: the images x, the images y; the row and column of the first tap; tile rows of a band, bands, images of a
// unit of work, tiles of a block; whether there is a bias, whether results below zero become zero.
GRADLAB_KERNEL gradlab_winograd(char** p, const int64_t* v, int part, int parts) {
  const Images x = images_of(v), y = images_of(v + IMAGES);
  const int64_t* w = v + 2 * IMAGES;
  const int64_t top = w[0], left = w[1], band = w[2], bands = w[3], group = w[4], most = w[5];
  const int64_t width = up(y.w, 2), height = up(y.h, 2), columns = 2 * width + 2;
  const int64_t wide = up(x.c, L) * L, panels = up(y.c, P), across = panels * P;
  const int64_t in_place = most * wide + GAP, out_place = most * across + GAP;
  const int64_t laid = (2 * band + 2) * columns * wide, made = 2 * band * 2 * width * across;
  float* from = (float*)tile_scratch.of(sizeof(float) * size_t(group * (laid + made) + PLACES * (in_place + out_place) + across));
  float *to = from + group * laid, *in = to + group * made, *out = in + PLACES * in_place, *bias = out + PLACES * out_place;
  if (w[6]) {
    std::memset(bias, 0, sizeof(float) * size_t(across));
    std::memcpy(bias, p[3], sizeof(float) * size_t(y.c));
  }
  const Share mine = share(up(x.n, group) * bands, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / bands * group, images = least(group, x.n - n), begin = u % bands * band, tall = least(band, height - begin);
    if (tall <= 0) continue;
    for (int64_t i = 0; i < images; ++i)
      lay((const float*)p[1], x, n + i, top + 2 * begin, 2 * tall + 2, left, columns, wide, from + i * laid);
    const int64_t tiles = images * tall * width;
    for (int64_t first = 0; first < tiles; first += most) {
      const int64_t count = least(most, tiles - first);
      runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
        transform(from + i * laid + (2 * r * columns + 2 * c) * wide, wide, columns * wide, wide, many, in + t * wide, in_place, wide, P);
      });
      const Matrices product = {wide, 1, x.c * P, y.c, x.c, across, false};
      for (int f = 0; f < PLACES; ++f) product.multiply(count, in + f * in_place, (const float*)p[2] + f * panels * x.c * P, out + f * out_place);
      runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
        results(out + t * across, out_place, across, y.c, many, w[6] ? bias : nullptr, w[7] != 0,
                to + i * made + (2 * r * 2 * width + 2 * c) * across, 2 * width * across);
      });
    }
    for (int64_t i = 0; i < images; ++i)
      lay_back(to + i * made, least(2 * tall, y.h - 2 * begin), 2 * width, across, y, n + i, 2 * begin, (float*)p[0]);
  }
}
