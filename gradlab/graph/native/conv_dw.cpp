// The gradient of a convolution's weight.
#include "conv.h"

namespace {

constexpr int OUTPUTS = 4, TAPS = ROWS * 2 / OUTPUTS;  // dot products at a time
thread_local Scratch slope_scratch;

template <int STEP> inline V folded(V a, V b) {
  using Lanes = std::make_index_sequence<L>;
  return low<V, STEP>(a, b, Lanes()) + high<V, STEP>(a, b, Lanes());
}
// In lane j the sum of v[j]'s lanes; v has as many vectors as a vector lanes.
template <int STEP = 1> inline V sums(const V* v) {
  if constexpr (STEP == L) return v[0];
  else {
    V half[L / STEP / 2];
#pragma GCC unroll 16
    for (int i = 0; i < L / STEP / 2; ++i) half[i] = folded<STEP>(v[2 * i], v[2 * i + 1]);
    return sums<2 * STEP>(half);
  }
}

// Keeps the compiler from loading a value again for each use.
inline void in_register(V& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

// to[r, s] += Σ over images and places of slope r times tap s.
template <int R, int S>
__attribute__((noinline)) void dots(const float* slopes, int64_t slope_row, int64_t slope_image, const float* const* taps,
                                    int64_t tap_image, int64_t images, int64_t length, float* to, int64_t to_row) {
  constexpr int COUNT = (R * S + L - 1) / L * L;
  V total[COUNT] = {};
  const float* tap[S];
  for (int s = 0; s < S; ++s) tap[s] = taps[s];
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t i = 0; i < length; i += L) {
      V x[S];
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) x[s] = load(tap[s] + i), in_register(x[s]);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V d = load(slopes + r * slope_row + i);
#pragma GCC unroll 8
        for (int s = 0; s < S; ++s) total[r * S + s] = fused(d, x[s], total[r * S + s]);
      }
    }
    slopes += slope_image;
    for (int s = 0; s < S; ++s) tap[s] += tap_image;
  }
  float found[COUNT];
#pragma GCC unroll 16
  for (int i = 0; i < COUNT; i += L) store(found + i, sums(total + i));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) to[r * to_row + s] += found[r * S + s];
}

// P taps' pixels [first, first + deep) as a panel: a row for each pixel.
void pack_taps(const float* const* taps, int64_t first, int64_t deep, float* out) {
  for (int64_t i = 0; i < deep; i += L)
    for (int64_t h = 0; h < P; h += L) {
      V rows[L];
      turned([=](int64_t j) { return taps[h + j] + first + i; }, rows);
#pragma GCC unroll 16
      for (int j = 0; j < L; ++j) store(out + (i + j) * P + h, rows[j]);
    }
}

// The slopes [images, outputs, height, width] with rows as wide as the source's spread ones, zeros between them and behind the last.
struct Slopes {
  const float* from;
  const int64_t* step;
  int64_t width, wide, length, row, image;  // of a row, of a spread row, of what is summed up, between outputs, between images

  void lay(int64_t n, int64_t images, int64_t o, int64_t outputs, int64_t first, int64_t last, float* out) const {
    for (int64_t i = 0; i < outputs; ++i)
      for (int64_t m = 0; m < images; ++m) {
        float *to = out + i * row + m * image, *const end = to + length;
        const float* in = from + (n + m) * step[0] + (o + i) * step[1] + first * step[2];
        for (int64_t y = first; y < last; ++y, to += wide, in += step[2]) {
          if (step[3] == 1) for (int64_t j = 0; j < width; ++j) to[j] = in[j];
          else for (int64_t j = 0; j < width; ++j) to[j] = in[j * step[3]];
          for (int64_t j = width; j < wide; ++j) to[j] = 0;
        }
        for (; to < end; ++to) *to = 0;
      }
  }
};

using Dots = void (*)(const float*, int64_t, int64_t, const float* const*, int64_t, int64_t, int64_t, float*, int64_t);
template <size_t... I> inline Dots dots_of(int64_t r, int64_t s, std::index_sequence<I...>) {
  static const Dots all[] = {dots<int(I) / TAPS + 1, int(I) % TAPS + 1>...};
  return all[(r - 1) * TAPS + s - 1];
}

}  // namespace

// Where there are many outputs, taps are packed into panels, transposed, and the slopes are the other factor of a product of matrices;
// else there are dot products along the pixels.
// partial sums [blocks, outputs, channels of the group × taps], source, slopes. Parameters: the source (15 numbers), outputs, groups,
// the slopes' height and width and four strides; blocks of images, parts of the outputs, images at a time, grid rows of a band, bands,
// spread rows of a band, taps; (row, column) of each tap.
GRADLAB_KERNEL gradlab_conv_dw(char** p, const int64_t* v, int part, int parts) {
  const Source s = source_of(v);
  const int64_t* w = v + SOURCE;
  const int64_t outputs = w[0], groups = w[1], height = w[2], width = w[3], *step = w + 4;
  const int64_t blocks = w[8], split = w[9], together = w[10], band = w[11], bands = w[12], rows = w[13], count = w[14];
  const int64_t* tap = w + 15;
  const int64_t own = outputs / groups, given = s.c / groups, depth = given * count;
  const int64_t image = rows * s.width, plane = together * image, channel = s.fy * s.fx * plane;
  const int64_t padded = up(band * s.width, L) * L, slope_row = together * padded, size = s.c * channel;
  float* x = (float*)image_scratch.of(sizeof(float) * size_t(size + 2 * P) + sizeof(int64_t) * size_t(count));
  std::memset(x + size, 0, sizeof(float) * 2 * P);
  int64_t* taps = (int64_t*)(x + (size + 2 * P) / 2 * 2);
  for (int64_t t = 0; t < count; ++t) taps[t] = tap_at(s, tap[2 * t], tap[2 * t + 1], plane);
  const bool packed = own >= 12 && depth >= 12;  // worth the packing: taps as panels; else dot products
  float* panel = (float*)slope_scratch.of(sizeof(float) * size_t((packed ? own : OUTPUTS) * slope_row + DEPTH * P));
  float* slopes = panel + DEPTH * P;
  Pieces pieces(p, part, parts, blocks * split);
  for (Share piece; pieces.next(piece);) {
    const int64_t u = piece.first, b = u / split, n0 = s.n * b / blocks, n1 = s.n * (b + 1) / blocks;
    const int64_t o0 = outputs * (u % split) / split, o1 = outputs * (u % split + 1) / split;
    float* total = (float*)p[0] + b * outputs * depth;
    std::memset(total + o0 * depth, 0, sizeof(float) * size_t((o1 - o0) * depth));
    for (int64_t n = n0; n < n1; n += together)
      for (int64_t first = 0; first < bands * band; first += band) {
        const int64_t images = least(together, n1 - n), last = least(first + band, height), length = up((last - first) * s.width, L) * L;
        const int64_t c0 = o0 / own * given, c1 = up(o1, own) * given;
        for (int64_t i = 0; i < images; ++i) spread((const float*)p[1], s, n + i, c0, c1, first, rows, plane, x + c0 * channel + i * image);
        for (int64_t i = images; i < together; ++i)  // read, times zero, behind the last image
          for (int64_t c = c0 * s.fy * s.fx; c < c1 * s.fy * s.fx; ++c)
            std::memset(x + c * plane + i * image, 0, sizeof(float) * size_t(image));
        const Slopes laid = {(const float*)p[2], step, width, s.width, length, slope_row, padded};
        const float* met[P];
        for (int64_t o = o0; o < o1;) {
          const int64_t g = o / own, r = least(packed ? own : OUTPUTS, least(o1, (g + 1) * own) - o), groups_at = g * given;
          laid.lay(n, images, o, r, first, last, slopes);
          for (int64_t m = 0; packed && m < images; ++m)
            for (int64_t i = 0; i < length; i += DEPTH)
              for (int64_t k = 0; k < depth; k += P) {
                const int64_t deep = least(DEPTH, length - i), q = up(r, ROWS);
                for (int64_t j = 0; j < P; ++j) {
                  const int64_t l = least(k + j, depth - 1);
                  met[j] = x + (groups_at + l / count) * channel + taps[l % count] + m * image;
                }
                pack_taps(met, i, deep, panel);
                for (int64_t c = 0; c < q; ++c) {
                  const int64_t from = r * c / q, many = r * (c + 1) / q - from;
                  some_channels<ROWS>(many, slopes + from * slope_row + m * padded + i, slope_row, panel, deep,
                                      total + (o + from) * depth + k, depth, least(P, depth - k), false, nullptr);
                }
              }
          for (int64_t k = 0; !packed && k < depth; k += TAPS) {
            const int64_t many = least(TAPS, depth - k);
            for (int64_t j = 0; j < many; ++j) met[j] = x + (groups_at + (k + j) / count) * channel + taps[(k + j) % count];
            dots_of(r, many, std::make_index_sequence<OUTPUTS * TAPS>())(slopes, slope_row, padded, met, image, images, length,
                                                                        total + o * depth + k, depth);
          }
          o += r;
        }
      }
  }
}

// dw, partial sums; parameters: elements, blocks.
GRADLAB_KERNEL gradlab_conv_dw_sum(char** p, const int64_t* v, int part, int parts) {
  const Share mine = share(v[0], part, parts, 64);
  float* y = (float*)p[0];
  for (int64_t first = mine.first; first < mine.last; first += 64) {
    const int64_t last = least(first + 64, mine.last);
    const float* x = (const float*)p[1];
    for (int64_t i = first; i < last; ++i) y[i] = x[i];
    for (int64_t b = 1; b < v[1]; ++b)
      for (int64_t i = first; i < last; ++i) y[i] += x[b * v[0] + i];
  }
}
