// Direct convolution with few outputs of a group, where vectors hold pixels: those of a plane, one row behind the other (see direct.h).
//
// A band is laid channel by channel, with its border and with every stride-th row and column in a plane of its own. There the pixels that a tap
// meets lie one behind the other, whatever their rows; results between two rows are thrown away.
#include "direct.h"
#include "conv_statistics.h"

namespace {

#if defined(__AVX512F__)
constexpr int MOST = 8;  // outputs of a block
#else
constexpr int MOST = 6;
#endif
constexpr int64_t DEEPEST = 512;  // of a sum: sums of sums are more accurate than one long sum
thread_local LargeScratch plane_scratch;

// Vectors of a block of R outputs: enough sums that none waits for another, few enough for the registers.
template <int R> constexpr int VECTORS = R == 1 ? 10 : R == 2 ? 5 : R > 4 ? 2 : BYTES == 64 ? 4 : 3;

// What blocks of pixels have in common: where the elements of the depth lie, the weights of a block of outputs; the bias, which comes last, or none;
// whether sums are added to what there is; whether results below zero become zero; the distance of outputs.
struct Walk {
  const int32_t* at;
  int64_t depth;
  const float *weights, *bias;
  bool more, relu;
  int64_t far;
};

// R outputs, W vectors of pixels.
template <int R, int W>
inline __attribute__((always_inline)) void block(const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  V total[R][W];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < W; ++j) total[i][j] = V{};
  const float* pixels[W];
#pragma GCC unroll 16
  for (int j = 0; j < W; ++j) pixels[j] = x + from[j];
  const float* b = w.weights;
  for (const int32_t *at = w.at, *const end = at + w.depth; at < end; ++at, b += R) {
    const int64_t k = *at;
    V some[W];
#pragma GCC unroll 16
    for (int j = 0; j < W; ++j) some[j] = load(pixels[j] + k);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V s = b[i] - V{};  // the same in every lane: x - 0 is x
#pragma GCC unroll 16
      for (int j = 0; j < W; ++j) total[i][j] = fused(s, some[j], total[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < W; ++j) {
    float* at = y + to[j];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i, at += w.far) {
      V v = w.more ? load(at) + total[i][j] : total[i][j];
      if (w.bias != nullptr) v += w.bias[i] - V{};
      if (w.relu) v = v < V{} ? V{} : v;
      store(at, v);
    }
  }
}

// `count` vectors of pixels.
template <int R, int W = VECTORS<R>>
__attribute__((noinline)) void blocks(int64_t count, const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  for (; count >= W; count -= W, from += W, to += W) block<R, W>(w, x, from, y, to);
  if constexpr (W > 1) {
    if (count > 0) blocks<R, W / 2>(count, w, x, from, y, to);
  }
}
template <int R = MOST>
void some_outputs(int64_t r, int64_t count, const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  if constexpr (R > 0) {
    if (r == R) GRADLAB_PART(8 + R) blocks<R>(count, w, x, from, y, to);
    else some_outputs<R - 1>(r, count, w, x, from, y, to);
  }
}

// Outputs of a group in blocks as even as possible: where block b begins.
inline int64_t block_at(int64_t own, int64_t b) { return own * b / up(own, MOST); }

// The planes of a channel: `fy` by `fx`, each of `images` times `rows` by `width`; the distances of channels, planes, images and rows.
struct Planes {
  int64_t fy, fx, rows, width, channel, plane, image, row;

  Planes(const Convolution& c, bool in_place) {
    fy = least(c.stride_y, c.reach_y + 1), fx = least(c.stride_x, c.reach_x + 1);
    rows = c.band + c.reach_y / c.stride_y, width = c.columns + c.reach_x / c.stride_x;
    row = in_place ? c.x.step[2] : width, image = in_place ? c.x.step[0] : rows * width;
    plane = (up(c.together * rows * width, L) | 1) * L;  // an odd number of vectors: planes do not compete for the same lines of the cache
    channel = in_place ? c.x.step[1] : fy * fx * plane;
  }
  int64_t tap(const Convolution& c, int64_t y, int64_t x) const {
    return (y % c.stride_y * fx + x % c.stride_x) * plane + y / c.stride_y * row + x / c.stride_x;
  }

  // Channels of image n, which is the i-th of the unit, from row `first` on. What a vector writes behind a row is written again with the next one.
  void lay(const Convolution& c, const float* x, int64_t n, int64_t i, int64_t first, int64_t channels, float* out) const {
    const Images& s = c.x;
    for (int64_t f = 0; f < fy * fx; ++f) {
      const int64_t from = c.left + f % fx, step = c.stride_x * s.step[3];  // column t of the plane is column from + t * stride
      const int64_t a = least(up(-from, c.stride_x), width), end = least(up(s.w - from, c.stride_x), width), b = end > a ? end : a;
      for (int64_t r = 0; r < rows; ++r) {
        float* const to = out + f * plane + i * image + r * row;
        const int64_t y = (first + r) * c.stride_y + c.top + f / fx;
        const bool room = (rows - 2 - r) * width >= L, inside = y >= 0 && y < s.h && b > a;
        const float* const in = x + n * s.step[0] + y * s.step[2] + from * s.step[3];
        int64_t j = 0;
        if (inside && s.step[1] == 1 && (room || b - a >= L))
          for (; j + L <= channels; j += L)
            for (int64_t t = a; t < b; t += L) {
              const int64_t at = b - a >= L ? least(t, b - L) : t;
              V some[L];
              turned([=](int64_t k) { return in + least(at + k, b - 1) * step + j; }, some);
#pragma GCC unroll 16
              for (int k = 0; k < L; ++k) store(to + (j + k) * channel + at, some[k]);
            }
        const bool more = room && (s.h - 1 - y) * s.step[2] >= 2 * L;  // there is something behind the row that can be read
        for (; inside && j < channels; ++j) lay_row(in + j * s.step[1], step, a, b, more, to + j * channel);
        const int64_t right = inside ? b : 0, left = inside && (r == 0 || !room) ? a : 0;
        for (j = 0; j < channels; ++j) {
          float* const own = to + j * channel;
          for (int64_t t = 0; t < left; ++t) own[t] = 0;
          if (room) for (int64_t t = right; t < width + a; t += L) store(own + t, V{});  // and what the next row begins with
          else for (int64_t t = right; t < width; ++t) own[t] = 0;
        }
      }
    }
  }
};

// The tables of a phase: where the elements of its depth lie; then, of each vector of pixels, where it comes from and where it goes to.
struct Tables {
  const Convolution& c;
  const Planes& planes;
  bool straight;

  int64_t depth(const Phase& q) const { return q.count_y * q.count_x * c.given(); }
  // Vectors of so many images and rows: of each row by itself, or of all of them in line.
  int64_t vectors(const Phase& q, int64_t images, int64_t rows) const {
    if (straight) return images * rows * up(q.columns, L);
    return up(((images - 1) * planes.rows + rows - 1) * planes.width + q.columns, L);
  }
  int64_t most(const Phase& q) const { return vectors(q, c.together, least(c.band, q.rows)); }
  int64_t size(const Phase& q) const { return depth(q) + 2 * most(q); }

  void find(const Phase& q, int32_t* at) const {
    for (int64_t i = 0; i < c.given(); ++i)
      for (int64_t a = 0; a < q.count_y; ++a)
        for (int64_t b = 0; b < q.count_x; ++b)
          *at++ = int32_t(i * planes.channel + planes.tap(c, q.tap_y + a * q.apart_y, q.tap_x + b * q.apart_x));
    const int64_t many = most(q);
    if (!straight) {
      for (int64_t k = 0; k < many; ++k) at[k] = at[many + k] = int32_t(k * L);
      return;
    }
    for (int64_t i = 0; i < c.together; ++i)
      for (int64_t r = 0; r < least(c.band, q.rows); ++r)
        for (int64_t j = 0; j < q.columns; j += L, ++at) {
          const int64_t column = least(j, q.columns - L);
          at[0] = int32_t(i * planes.image + r * planes.row + column);
          at[many] = int32_t(i * c.y.step[0] + (q.y + r * c.step_y) * c.y.step[2] + q.x + column);
        }
  }
};

// Results of a phase into an image: rows of `columns` pixels; what is staged has rows that are `width` apart, and channels that are `far` apart.
// The distances of rows, pixels and channels in the image.
void write_back(const float* from, int64_t far, int64_t width, int64_t channels, int64_t rows, int64_t columns, int64_t row, int64_t pixel,
                int64_t channel, float* y) {
  int64_t c = 0;
  if (channel == 1)
    for (; c + L <= channels; c += L)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < columns; i += L) {
          const int64_t at = columns >= L ? least(i, columns - L) : i;
          V some[L];
          turned(from + c * far + r * width + at, far, some);
          float* const to = y + r * row + at * pixel + c;
          if (columns >= L)
#pragma GCC unroll 16
            for (int j = 0; j < L; ++j) store(to + j * pixel, some[j]);
          else
            for (int64_t j = 0; j < columns; ++j) store(to + j * pixel, some[j]);
        }
  for (; c < channels; ++c)
    for (int64_t r = 0; r < rows; ++r) {
      const float* const in = from + c * far + r * width;
      float* const to = y + c * channel + r * row;
      const int64_t end = columns - L;
      if (pixel == 1 && end >= 0) for (int64_t i = 0; i < columns; i += L) store(to + least(i, end), load(in + least(i, end)));
      else if (pixel == 1 && row == columns && (rows - r) * row >= L) store(to, load(in));  // what is behind the row is the next one
      else for (int64_t i = 0; i < columns; ++i) to[i * pixel] = in[i];
    }
}

// Mean and squared deviations of a channel; the distances of images, channels, rows and pixels.
void record_channel(const float* x, int64_t images, int64_t rows, int64_t columns, const int64_t* step, float* mean, float* deviations) {
  if (step[3] == 1 && step[2] == columns) columns *= rows, rows = 1;
  const auto sum = [=](auto f) {
    V many = {};
    float few = 0;
    for (int64_t n = 0; n < images * rows; ++n) {
      const float* const at = x + n / rows * step[0] + n % rows * step[2];
      V some[4] = {};
      int64_t i = 0;
      for (; step[3] == 1 && i + 4 * L <= columns; i += 4 * L)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) some[j] += f(load(at + i + j * L));
      for (; step[3] == 1 && i + L <= columns; i += L) some[0] += f(load(at + i));
      for (; i < columns; ++i) few += f(at[i * step[3]]);
      many += (some[0] + some[1]) + (some[2] + some[3]);
    }
    for (int j = 0; j < L; ++j) few += many[j];
    return few;
  };
  const float near = x[0] - x[0] == 0 ? x[0] : 0;  // sums of small differences are exact, far from zero too
  const float m = near + sum([=](auto v) { return v - near; }) / float(images * rows * columns);
  *mean = m;
  *deviations = sum([=](auto v) { return (v - m) * (v - m); });
}

}  // namespace

// The weights as blocks read them: for each phase [groups, blocks of outputs, depth, outputs of the block], the depth being channels of taps.
// target, weights. Parameters: as those of gradlab_direct_weights.
GRADLAB_KERNEL gradlab_planes_weights(char** p, const int64_t* v, int part, int parts) {
  const int64_t groups = v[0], own = v[1], given = v[2], group_step = v[3], output_step = v[4], channel_step = v[5], many = up(own, MOST);
  const Share mine = share(groups * many, part, parts);
  const int64_t* at = v + 8;
  for (int64_t f = 0; f < v[7]; ++f, at += 2 + at[1]) {
    const int64_t count = at[1], depth = count * given;
    for (int64_t u = mine.first; u < mine.last; ++u) {
      const int64_t g = u / many, o = block_at(own, u % many), have = block_at(own, u % many + 1) - o;
      const float* const from = (const float*)p[1] + g * group_step + o * output_step;
      float* to = (float*)p[0] + at[0] + (g * own + o) * depth;
      for (int64_t c = 0; c < given; ++c)
        for (int64_t t = 0; t < count; ++t, to += have)
          for (int64_t i = 0; i < have; ++i) to[i] = from[i * output_step + c * channel_step + at[2 + t]];
    }
  }
}

// y, x, weights, bias, records. Parameters: as those of gradlab_direct, then how many groups are done together.
GRADLAB_KERNEL gradlab_planes(char** p, const int64_t* v, int part, int parts) {
  const Convolution c = convolution_of(v);
  const int64_t* w = v + CONVOLUTION + c.phases * PHASE;
  const int64_t own = c.own(), given = c.given(), batch = w[3], many = up(own, MOST);
  const bool relu = w[1] != 0, last = c.y.step[1] == 1 && c.y.c > 1;
  // Where whole vectors of a row are not many more than its pixels they are written where they belong, the last one over the one before.
  bool straight = !last && c.step_x == 1 && c.y.step[3] == 1;
  int64_t most = 0;
  for (int64_t f = 0; f < c.phases; ++f) {
    const Phase q = c.phase(f);
    most = q.rows > most ? q.rows : most;
    straight = straight && q.count_y * q.count_x * given <= DEEPEST && q.columns >= L;
    straight = straight && 7 * up(q.columns, L) * L <= 8 * (q.columns + c.reach_x / c.stride_x);
  }
  const bool in_place = straight && c.laying == IN_PLACE && c.stride_y == 1 && c.stride_x == 1 && c.x.step[3] == 1;
  const Planes planes(c, in_place);
  const Tables tables = {c, planes, straight};
  int64_t size = 0;
  for (int64_t f = 0; f < c.phases; ++f) size += tables.size(c.phase(f));
  const int64_t far = straight ? c.y.step[1] : planes.plane, beyond = 17 * L;  // what vectors may read behind the last plane
  const int64_t stage = straight ? 0 : (last ? batch * own : MOST) * far + L, laid = in_place ? 0 : batch * given * planes.channel + beyond;
  const UntilTheEnd end(plane_scratch);
  float* const bias = (float*)plane_scratch.of(sizeof(float) * size_t(c.y.c + stage + laid) + sizeof(int32_t) * size_t(size));
  if (bias == nullptr) return no_memory(p);
  float *const staged = bias + c.y.c, *const space = staged + stage;
  int32_t *const table = (int32_t*)(space + laid), *at = table;
  if (!in_place) std::memset(space + laid - beyond, 0, sizeof(float) * size_t(beyond));
  if (w[0]) std::memcpy(bias, p[3], sizeof(float) * size_t(c.y.c));
  else std::memset(bias, 0, sizeof(float) * size_t(c.y.c));
  for (int64_t f = 0; f < c.phases; ++f) tables.find(c.phase(f), at), at += tables.size(c.phase(f));
  Pieces pieces(p, part, parts, c.units());
  for (Share piece; pieces.next(piece);) {
    const Unit u = unit_of(c, piece.first, most);
    float* const y = (float*)p[0] + u.n * c.y.step[0] + u.first * c.step_y * c.y.step[2];
    const float* const from = (const float*)p[1] + u.n * c.x.step[0] + (u.first + c.top) * c.x.step[2] + c.left;  // in place
    for (int64_t g = 0; g < c.groups; g += batch) {
      const int64_t groups = least(batch, c.groups - g);
      for (int64_t i = 0; !in_place && i < u.images; ++i)
        planes.lay(c, (const float*)p[1] + g * given * c.x.step[1], u.n + i, i, u.first, groups * given, space);
      const float* const x = in_place ? from + g * given * c.x.step[1] : space;
      at = table;
      for (int64_t f = 0; f < c.phases; ++f) {
        const Phase q = c.phase(f);
        const int64_t height = least(u.rows, q.rows - u.first), depth = tables.depth(q), count = tables.vectors(q, u.images, height);
        const int32_t *const deep = at, *const starts = at + depth, *const ends = starts + tables.most(q);
        at += tables.size(q);
        if (height <= 0) continue;
        const auto write = [&](const float* from, int64_t o, int64_t channels) {
          for (int64_t i = 0; i < u.images; ++i)
            write_back(from + i * planes.image, far, planes.width, channels, height, q.columns, c.step_y * c.y.step[2], c.step_x * c.y.step[3], c.y.step[1],
                       y + i * c.y.step[0] + o * c.y.step[1] + q.y * c.y.step[2] + q.x * c.y.step[3]);
        };
        for (int64_t h = 0; h < groups; ++h)
          for (int64_t b = 0; b < many; ++b) {
            const int64_t o = block_at(own, b), have = block_at(own, b + 1) - o, first = (g + h) * own + o;
            float* const to = straight ? y + first * far : staged + (last ? h * own + o : 0) * far;
            const float* const weights = (const float*)p[2] + q.weights + first * depth;
            for (int64_t k = 0; k < depth || k == 0; k += DEEPEST) {
              const bool begins = k == 0, ends_here = k + DEEPEST >= depth;
              const float* const shift = ends_here && w[0] ? bias + first : nullptr;
              const Walk walk = {deep + k, least(DEEPEST, depth - k), weights + k * have, shift, !begins, relu && ends_here, far};
              some_outputs(have, count, walk, x + h * given * planes.channel, starts, to, ends);
            }
            if (!last && !straight) write(to, first, have);
          }
        if (last) write(staged, g * own, groups * own);
      }
    }
    if (w[2]) GRADLAB_PART(5) {
      float* const notes = (float*)p[4] + piece.first * record_length(c.y.c);
      const int64_t rows = least(u.rows, c.y.h - u.first), whole = last ? c.y.c / L * L : 0;
      record({y, u.images, rows, c.y.w, c.y.step[0], c.y.step[2], c.y.step[3]}, whole, notes, notes + c.y.c);
      for (int64_t i = whole; i < c.y.c; ++i)
        record_channel(y + i * c.y.step[1], u.images, rows, c.y.w, c.y.step, notes + i, notes + c.y.c + i);
      count_pixels(u.images * rows * c.y.w, notes + 2 * c.y.c);
    }
  }
}
