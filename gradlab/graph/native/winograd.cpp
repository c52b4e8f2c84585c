// 3×3 convolution of stride 1 by Winograd's algorithm, which is also the gradient for its input (see winograd.h).
#include "winograd.h"

namespace {

// G of the algorithm: three numbers become four across, or six down.
inline void weigh(V a, V b, V c, V* out) {
  const V outer = (a + c) * 0.5f, middle = b * 0.5f;
  out[0] = a, out[1] = outer + middle, out[2] = outer - middle, out[3] = c;
}
inline void weigh_down(V a, V b, V c, V* out) {
  const V near = (a + NEAR2 * c) * NEAR_PART, near_odd = b * (NEAR * NEAR_PART), far = (a + FAR2 * c) * FAR_PART, far_odd = b * (FAR * FAR_PART);
  out[0] = a * ZERO_PART, out[1] = near + near_odd, out[2] = near - near_odd, out[3] = far + far_odd, out[4] = far - far_odd, out[5] = c;
}

// What becomes of results: those of a channel are far from one another in memory, `row` between rows, and `wide` between columns. plane: 0;
// or the width of the results' plane, of whose windows of two by two the largest element remains, and how far it lies behind the first.
struct Ending {
  int64_t wide, row, plane;
  const float* bias;
  bool relu;
};

inline void beat(V x, int32_t at, V& best, I& winner) {
  const I take = ~(x <= best) & (best == best);  // a NaN is not less than or equal to anything
  best = take ? x : best;
  winner = take ? at - I{} : winner;
}

// A run of tiles: the products M of all places become four by two results each.
inline void results(const float* m, int64_t place, int64_t outputs, int64_t many, const Ending& e, float* out, int32_t* winners) {
  const int64_t next = e.plane ? e.wide : WIDE * e.wide;
  for (int64_t t = 0; t < many; ++t, m += e.wide, out += next, winners += next)
    for (int64_t c = 0; c < outputs; c += L) {
      const float* in = m + c;
      V half[ACROSS][TALL], left[TALL], right[TALL];
#pragma GCC unroll 4
      for (int j = 0; j < ACROSS; ++j) {
        const auto at = [=](int i) { return load(in + (ACROSS * i + j) * place); };
        const V near = at(1) + at(2), near_odd = at(1) - at(2), far = at(3) + at(4), far_odd = at(3) - at(4);
        half[j][0] = at(0) + (near + far);
        half[j][1] = NEAR * near_odd + FAR * far_odd;
        half[j][2] = NEAR2 * near + FAR2 * far;
        half[j][3] = at(5) + (NEAR * NEAR2 * near_odd + FAR * FAR2 * far_odd);
      }
      const V shift = e.bias == nullptr ? V{} : load(e.bias + c);
#pragma GCC unroll 4
      for (int i = 0; i < TALL; ++i) {
        left[i] = half[0][i] + (half[1][i] + half[2][i]) + shift, right[i] = (half[1][i] - half[2][i]) - half[3][i] + shift;
        if (e.relu) left[i] = left[i] < V{} ? V{} : left[i], right[i] = right[i] < V{} ? V{} : right[i];
      }
      if (e.plane == 0) {
#pragma GCC unroll 4
        for (int i = 0; i < TALL; ++i) store(out + c + i * e.row, left[i]), store(out + c + i * e.row + e.wide, right[i]);
        continue;
      }
#pragma GCC unroll 2
      for (int i = 0; i < TALL / 2; ++i) {
        V best = left[2 * i];
        I winner = {};
        beat(right[2 * i], 1, best, winner);
        beat(left[2 * i + 1], int32_t(e.plane), best, winner);
        beat(right[2 * i + 1], int32_t(e.plane) + 1, best, winner);
        store(out + c + i * e.row, best);
        store(winners + c + i * e.row, winner);
      }
    }
}

// The largest elements of windows into image n, their rows `row` apart, and where in the plane each lies.
void lay_back_pooled(const float* from, const int32_t* winners, int64_t rows, int64_t row, int64_t wide, const Images& s, int64_t n, int64_t top,
                     float* y, int64_t* indices) {
  const int64_t columns = s.w / 2;
  for (int64_t r = 0; r < rows; ++r, from += row, winners += row) {
    const int64_t at = n * s.step[0] + (top + r) * s.step[2], first = 2 * (top + r) * s.w;
    int64_t c = 0;
    if (columns >= L)
      for (; c + L <= s.c; c += L)
        for (int64_t i = 0; i < columns; i += L) {
          const int64_t x = least(i, columns - L);
          V some[L];
          turned(from + x * wide + c, wide, some);
#pragma GCC unroll 16
          for (int j = 0; j < L; ++j) store(y + at + (c + j) * s.step[1] + x, some[j]);
          turned((const float*)winners + x * wide + c, wide, some);
          for (int j = 0; j < L; ++j) {
            int32_t found[L];
            store((float*)found, some[j]);
            int64_t* to = indices + at + (c + j) * s.step[1] + x;
            for (int64_t k = 0; k < L; ++k) to[k] = first + 2 * (x + k) + found[k];
          }
        }
    for (; c < s.c; ++c)
      for (int64_t x = 0; x < columns; ++x) {
        y[at + c * s.step[1] + x] = from[x * wide + c];
        indices[at + c * s.step[1] + x] = first + 2 * x + winners[x * wide + c];
      }
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
      V half[DOWN][3];
      for (int j = 0; j < 3; ++j) {
        V found[DOWN];
        weigh_down(load(some[j]), load(some[3 + j]), load(some[6 + j]), found);
        for (int i = 0; i < DOWN; ++i) half[i][j] = found[i];
      }
      for (int i = 0; i < DOWN; ++i) {
        V found[ACROSS];
        weigh(half[i][0], half[i][1], half[i][2], found);
        for (int j = 0; j < ACROSS; ++j) store((float*)p[0] + (((ACROSS * i + j) * panels + q) * channels + c) * P + o % P, found[j]);
      }
    }
  }
}

// y, x, weights, bias, indices. Parameters: the images x, the images y; the row and column of the first tap; tile rows of a band, bands, images
// of a unit of work, tiles of a block; whether there is a bias, whether results below zero become zero; whether y are the largest elements of
// windows of two by two, whose strides are then those of y and of the indices, or (2) x are such elements, the rest being zero.
GRADLAB_KERNEL gradlab_winograd(char** p, const int64_t* v, int part, int parts) {
  const Images x = images_of(v), y = images_of(v + IMAGES);
  const int64_t* w = v + 2 * IMAGES;
  const int64_t top = w[0], left = w[1], band = w[2], bands = w[3], group = w[4], most = w[5];
  const int64_t width = up(y.w, WIDE), height = up(y.h, TALL), columns = WIDE * width + 2;
  const int64_t wide = up(x.c, L) * L, panels = up(y.c, P), across = panels * P;
  const int64_t in_place = most * wide + GAP, out_place = most * across + GAP;
  const int64_t laid = (TALL * band + 2) * columns * wide, made = TALL * band * WIDE * width * across;
  float* from = (float*)tile_scratch.of(sizeof(float) * size_t(group * (laid + made) + PLACES * (in_place + out_place) + across));
  float *to = from + group * laid, *in = to + group * made, *out = in + PLACES * in_place, *bias = out + PLACES * out_place;
  if (w[6]) {
    std::memset(bias, 0, sizeof(float) * size_t(across));
    std::memcpy(bias, p[3], sizeof(float) * size_t(y.c));
  }
  const bool pooled = w[8] == 1;
  const Ending ending = {across, (pooled ? width : WIDE * width) * across, pooled ? y.w : 0, w[6] ? bias : nullptr, w[7] != 0};
  int64_t* const indices = (int64_t*)p[4];
  Pieces pieces(p, part, parts, up(x.n, group) * bands);
  for (Share piece; pieces.next(piece);) {
    const int64_t u = piece.first, n = u / bands * group, images = least(group, x.n - n), begin = u % bands * band, tall = least(band, height - begin);
    if (tall <= 0) continue;
    for (int64_t i = 0; i < images; ++i) {
      const int64_t first = top + TALL * begin, rows = TALL * tall + 2;
      if (w[8] == 2) lay_pooled((const float*)p[1], indices, x, n + i, first, rows, left, columns, wide, from + i * laid);
      else lay((const float*)p[1], x, n + i, first, rows, left, columns, wide, from + i * laid);
    }
    const int64_t tiles = images * tall * width;
    for (int64_t first = 0; first < tiles; first += most) {
      const int64_t count = least(most, tiles - first);
      runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
        transform(from + i * laid + (TALL * r * columns + WIDE * c) * wide, wide, columns * wide, wide, many, in + t * wide, in_place, wide, P);
      });
      const Matrices product = {wide, 1, x.c * P, y.c, x.c, across, false};
      for (int f = 0; f < PLACES; ++f) product.multiply(count, in + f * in_place, (const float*)p[2] + f * panels * x.c * P, out + f * out_place);
      runs(first, count, tall, width, [&](int64_t t, int64_t many, int64_t i, int64_t r, int64_t c) {
        float* const at = to + i * made + (pooled ? 2 * r * width + c : TALL * r * WIDE * width + WIDE * c) * across;
        results(out + t * across, out_place, y.c, many, ending, at, (int32_t*)at + made / 2);
      });
    }
    for (int64_t i = 0; i < images; ++i) {
      const float* const at = to + i * made;
      if (pooled)
        lay_back_pooled(at, (const int32_t*)at + made / 2, least(2 * tall, y.h / 2 - 2 * begin), ending.row, across, y, n + i, 2 * begin,
                        (float*)p[0], indices);
      else lay_back(at, least(TALL * tall, y.h - TALL * begin), WIDE * width, across, y, n + i, TALL * begin, (float*)p[0]);
    }
  }
}
