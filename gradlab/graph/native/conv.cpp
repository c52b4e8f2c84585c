// Convolution of images and its gradients. float; results are contiguous.
//
// An image, or a band of its rows, is spread over scratch memory that fits the second-level cache: with its border of zeros, and with
// every stride-th row and column together, so that all that follows has stride 1. There the element that a kernel's place ("tap") meets
// lies at a fixed distance, and a convolution is a product of matrices: the weights times [taps of channels, pixels], of which a panel
// of pixels is packed at a time (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, with the matrix never formed).
#include "gemm.h"

namespace {

constexpr int64_t WEIGHTS = 1 << 16;  // floats of the weights that stay in the second-level cache
constexpr int64_t DEEPEST = 24576 / sizeof(float) / PANEL<float>;
thread_local Scratch image_scratch;

inline int64_t up(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Images [n, c, h, w] in memory, and how they are spread: planes of every fy < rows_apart-th row and column.
struct Source {
  int64_t n, c, h, w, step[4];  // sizes and strides
  int64_t sy, sx, top, left;    // strides of the convolution; where the first tap of the first pixel lies
  int64_t fy, fx;               // planes that are needed, at most sy and sx
  int64_t width;                // of a spread row
};

inline Source source_of(const int64_t* v) {
  return {v[0], v[1], v[2], v[3], {v[4], v[5], v[6], v[7]}, v[8], v[9], v[10], v[11], v[12], v[13], v[14]};
}
constexpr int SOURCE = 15;

// Of image n, the channels [c0, c1) and `rows` spread rows from `first` on; planes are `plane` apart.
void spread(const float* x, const Source& s, int64_t n, int64_t c0, int64_t c1, int64_t first, int64_t rows, int64_t plane, float* out) {
  for (int64_t c = c0; c < c1; ++c)
    for (int64_t fy = 0; fy < s.fy; ++fy)
      for (int64_t fx = 0; fx < s.fx; ++fx, out += plane) {
        const int64_t from = s.left + fx;  // column t of the plane is column from + t * sx
        const int64_t t0 = least(up(-from, s.sx), s.width), t1 = least(up(s.w - from, s.sx), s.width);
        for (int64_t r = 0; r < rows; ++r) {
          float* row = out + r * s.width;
          const int64_t y = (first + r) * s.sy + fy + s.top;
          if (y < 0 || y >= s.h || t1 <= t0) {
            std::memset(row, 0, sizeof(float) * size_t(s.width));
            continue;
          }
          const float* in = x + n * s.step[0] + c * s.step[1] + y * s.step[2] + from * s.step[3];
          const int64_t step = s.sx * s.step[3];
          for (int64_t t = 0; t < t0; ++t) row[t] = 0;
          if (step == 1) for (int64_t t = t0; t < t1; ++t) row[t] = in[t];
          else if (step == 2) for (int64_t t = t0; t < t1; ++t) row[t] = in[2 * t];
          else for (int64_t t = t0; t < t1; ++t) row[t] = in[t * step];
          for (int64_t t = t1; t < s.width; ++t) row[t] = 0;
        }
      }
}

inline int64_t tap_at(const Source& s, int64_t ty, int64_t tx, int64_t plane) {
  return (ty % s.sy * s.fx + tx % s.sx) * plane + ty / s.sy * s.width + tx / s.sx;
}

// ------------------------------------------------------------ correlation

using V = Wide<float>::type;
constexpr int64_t L = LANES<float>, P = PANEL<float>;

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

// R channels of one panel of pixels. first: they begin with the bias, or with zero.
template <int R>
__attribute__((noinline)) void channels_of(const float* a, int64_t a_row, const float* panel, int64_t depth, float* c, int64_t c_row,
                                           int64_t have, bool first, const float* bias) {
  V total[R][2];
  float edge[P];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    if (first) {
      total[i][0] = total[i][1] = (bias == nullptr ? 0.0f : bias[i]) - V{};
    } else if (have == P) {
      total[i][0] = load(c + i * c_row), total[i][1] = load(c + i * c_row + L);
    } else {
      for (int64_t j = 0; j < P; ++j) edge[j] = j < have ? c[i * c_row + j] : 0;
      total[i][0] = load(edge), total[i][1] = load(edge + L);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const V low = load(panel + k * P), high = load(panel + k * P + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V s = a[i * a_row + k] - V{};
      total[i][0] = fused(s, low, total[i][0]);
      total[i][1] = fused(s, high, total[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    if (have == P) {
      store(c + i * c_row, total[i][0]), store(c + i * c_row + L, total[i][1]);
    } else {
      store(edge, total[i][0]), store(edge + L, total[i][1]);
      for (int64_t j = 0; j < have; ++j) c[i * c_row + j] = edge[j];
    }
  }
}

template <int R>
void some_channels(int64_t r, const float* a, int64_t a_row, const float* panel, int64_t depth, float* c, int64_t c_row, int64_t have,
                   bool first, const float* bias) {
  if constexpr (R > 0) {
    if (r == R) channels_of<R>(a, a_row, panel, depth, c, c_row, have, first, bias);
    else some_channels<R - 1>(r, a, a_row, panel, depth, c, c_row, have, first, bias);
  }
}

// What of the result is computed together: the pixels (start + step * i) of each dimension, all from the same taps.
struct Phase {
  int64_t y, x, rows, columns, weights, count;
  const int64_t* taps;  // (row, column) of each, counted from the first
};

}  // namespace

// target, source, weights, bias. Parameters: the source (15 numbers); channels of the target, groups, its plane's height and width, the
// steps of a phase's pixels there; grid rows of a band, bands, spread rows of a band, bias, phases; of each phase y x rows columns,
// where its weights [channels, source channels of the group × taps] begin, taps, then (row, column) of each tap.
GRADLAB_KERNEL gradlab_correlate(char** p, const int64_t* v, int part, int parts) {
  const Source s = source_of(v);
  const int64_t* w = v + SOURCE;
  const int64_t channels = w[0], groups = w[1], height = w[2], width = w[3], step_y = w[4], step_x = w[5];
  const int64_t band = w[6], bands = w[7], rows = w[8], phases = w[10];
  const int64_t own = channels / groups, given = s.c / groups, plane = rows * s.width, channel = s.fy * s.fx * plane;
  const float *weights = (const float*)p[2], *bias = w[9] ? (const float*)p[3] : nullptr;
  int64_t most_taps = 0, most_pixels = 0;
  const int64_t* at = w + 11;
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
  const Share mine = share(s.n * bands, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / bands, first = u % bands * band;
    spread((const float*)p[1], s, n, 0, s.c, first, rows, plane, spread_to);
    at = w + 11;
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
                                  least(P, pixels - b), k == 0, bias == nullptr ? nullptr : bias + g * own + o);
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

// ------------------------------------------------------------ the weight's gradient

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
#pragma GCC unroll 16
      for (int j = 0; j < L; ++j) rows[j] = load(taps[h + j] + first + i);
      exchange<float, 1>(rows);
      if constexpr (L > 2) exchange<float, 2>(rows);
      if constexpr (L > 4) exchange<float, 4>(rows);
      if constexpr (L > 8) exchange<float, 8>(rows);
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
// else dot products along the pixels. partial sums [blocks, outputs, channels of the group × taps], source, slopes. Parameters: the source (15 numbers), outputs, groups,
// their height and width and four strides; blocks of images, parts of the outputs, images at a time, grid rows of a band, bands,
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
  const Share mine = share(blocks * split, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t b = u / split, n0 = s.n * b / blocks, n1 = s.n * (b + 1) / blocks;
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
