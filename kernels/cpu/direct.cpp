// Direct convolution, which is also the gradient for the input: vectors hold outputs of a pixel (see direct.h).
//
// Several pixels times two vectors of outputs stay in registers while the depth is walked; an element that was read is multiplied by the
// weights of all these outputs, which lie in panels. Sums of a part of the depth are added up by themselves: sums of sums are more accurate
// than one long sum.
//
// Parts of the file: 0 two vectors of outputs, 1 a single one, 2 images that are laid as planes, 3 with their channels last, 4 results that are laid
// where they belong, 5 records.
#include "direct.h"
#include "conv_statistics.h"

namespace {

constexpr int FEW = 6, MANY = 10;                       // pixels of a block, times two vectors or one: as many as have their addresses in registers
constexpr int64_t DEEPEST = 192;           // of a panel, which stays in the first-level cache, and of a sum
thread_local LargeScratch direct_scratch;

// What blocks of pixels have in common: where the elements of the depth lie, the weights; the bias, which comes last, or none; whether sums are
// added to what there is; whether results below zero become zero.
struct Walk {
  const int32_t* at;
  int64_t depth;
  const float *panel, *bias;
  bool more, relu;
};

// R pixels, W vectors of outputs each.
template <int R, int W>
inline __attribute__((always_inline)) void block(const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  V total[R][W];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) total[i][j] = V{};
  const float* pixel[R];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) pixel[i] = x + from[i];
  const float* b = w.panel;
#pragma GCC unroll 2
  for (const int32_t *at = w.at, *const end = at + w.depth; at < end; ++at, b += W * L) {
    const int64_t k = *at;
    V row[W];
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) row[j] = load(b + j * L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V s = pixel[i][k] - V{};  // the same in every lane: x - 0 is x
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) total[i][j] = fused(s, row[j], total[i][j]);
    }
  }
  if (w.more)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) total[i][j] += load(y + to[i] + j * L);
  if (w.bias != nullptr)
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) {
      const V shift = load(w.bias + j * L);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) total[i][j] += shift;
    }
  if (w.relu)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < W; ++j) total[i][j] = total[i][j] < V{} ? V{} : total[i][j];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < W; ++j) store(y + to[i] + j * L, total[i][j]);
}

template <int R, int W>
__attribute__((noinline)) void blocks(int64_t count, const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  for (; count > 0; --count, from += R, to += R) block<R, W>(w, x, from, y, to);
}
template <int R, int W>
void some_blocks(int64_t r, int64_t count, const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  if constexpr (R > 0) {
    if (r == R) blocks<R, W>(count, w, x, from, y, to);
    else some_blocks<R - 1, W>(r, count, w, x, from, y, to);
  }
}
// Pixels in blocks as even as possible.
template <int R, int W> void pixels(int64_t m, const Walk& w, const float* x, const int32_t* from, float* y, const int32_t* to) {
  const int64_t count = up(m, R), low = m / count, higher = m - low * count, done = higher * (low + 1);
  if (higher) some_blocks<R, W>(low + 1, higher, w, x, from, y, to);
  some_blocks<R, W>(low, count - higher, w, x, from + done, y, to + done);
}

// Where the elements of a phase's depth lie, counted from a pixel's first tap of all.
void find_depth(const Phase& f, int64_t given, const Steps& s, int32_t* at) {
  for (int64_t a = 0; a < f.count_y; ++a)
    for (int64_t b = 0; b < f.count_x; ++b) {
      const int64_t tap = (f.tap_y + a * f.apart_y) * s.row + (f.tap_x + b * f.apart_x) * s.pixel;
      for (int64_t c = 0; c < given; ++c) *at++ = int32_t(tap + c * s.channel);
    }
}

}  // namespace

// The weights as blocks of pixels read them: for each phase [groups, panels of outputs, depth, P or L outputs], the depth being taps of channels.
// What stands for outputs that there are not is never read. target, weights. Parameters: groups, outputs and channels of a group, the steps of a
// group, an output and a channel in the weights, places of the kernel, phases; of each where it begins, taps, the taps' places.
GRADLAB_KERNEL gradlab_direct_weights(char** p, const int64_t* v, int part, int parts) {
  const int64_t groups = v[0], own = v[1], given = v[2], group_step = v[3], output_step = v[4], channel_step = v[5], places = v[6], wide = up(own, L);
  const float* const last = (const float*)p[1] + groups * group_step - L;  // where the last vector begins
  const UntilTheEnd end(direct_scratch);
  int64_t* const to = (int64_t*)direct_scratch.of(sizeof(int64_t) * size_t(places));  // where the first channel's vector of each place belongs
  if (to == nullptr) return no_memory(p);
  const Share mine = share(groups * wide, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t g = u / wide, j = u % wide, panel = j / 2 * 2, across = L * least(2, wide - panel), have = least(L, own - j * L);
    for (int64_t k = 0; k < places; ++k) to[k] = -1;
    const int64_t* phase = v + 8;
    for (int64_t f = 0; f < v[7]; ++f, phase += 2 + phase[1])
      for (int64_t t = 0; t < phase[1]; ++t) to[phase[2 + t]] = phase[0] + ((g * wide + panel) * phase[1] * given + j - panel) * L + t * given * across;
    // Rows of the matrix [outputs, step] become its columns: channels of one place, or places of one channel.
    const bool flat = places == 1 && channel_step == 1;
    const int64_t length = flat ? given : places;
    const float* const from = (const float*)p[1] + g * group_step + j * L * output_step;
    if (length == 1 && output_step == 1 && have == L) {
      for (int64_t c = 0; c < given; ++c) store((float*)p[0] + to[0] + c * across, load(from + c * channel_step));
      continue;
    }
    for (int64_t c = 0; c < (flat ? 1 : given); ++c)
      for (int64_t t = 0; t < length; t += L) {
        const float* const at = from + c * channel_step + t;
        const auto output = [=](int64_t i) { return at + least(i, have - 1) * output_step; };
        V rows[L];
        if (output(L - 1) <= last) turned(output, rows);
        else for (int64_t i = 0; i < L; ++i)
          for (int64_t k = 0; k < L; ++k) rows[k][i] = t + k < length ? output(i)[k] : 0;
        for (int64_t k = 0; k < least(L, length - t); ++k) {
          const int64_t place = flat ? to[0] + (t + k) * across : to[t + k] + c * across;
          if ((flat ? to[0] : to[t + k]) >= 0) store((float*)p[0] + place, rows[k]);
        }
      }
  }
}

// y, x, weights, bias, records. Parameters: the convolution, its phases; whether there is a bias, whether results below zero become zero,
// whether a record of each unit's results is wanted (conv_statistics.h); into how many parts the outputs are cut, each of which is a piece of work.
GRADLAB_KERNEL gradlab_direct(char** p, const int64_t* v, int part, int parts) {
  const Convolution c = convolution_of(v);
  const int64_t* w = v + CONVOLUTION + c.phases * PHASE;
  const int64_t own = c.own(), given = c.given(), across = up(own, L) * L;
  const bool relu = w[1] != 0, straight = c.y.step[1] == 1 && own == across;  // results are written where they belong
  const int64_t tall = c.band * c.step_y, wide = c.groups * across;
  const Steps steps = c.steps();
  const Steps out = straight ? Steps{c.y.step[0], c.y.step[2], c.y.step[3], 1} : Steps{tall * c.y.w * wide, c.y.w * wide, wide, 1};
  int64_t depths = 0, most = 0, pixels_of_all = 0;
  for (int64_t f = 0; f < c.phases; ++f) {
    const Phase q = c.phase(f);
    depths += q.count_y * q.count_x * given;
    most = q.rows > most ? q.rows : most;
    pixels_of_all += c.together * least(c.band, q.rows) * q.columns;
  }
  const int64_t stage = straight ? 0 : c.together * out.image;
  const UntilTheEnd end(direct_scratch);
  float* const bias = (float*)direct_scratch.of(sizeof(float) * size_t(wide + stage + c.scratch()) + sizeof(int32_t) * size_t(depths + 2 * pixels_of_all));
  if (bias == nullptr) return no_memory(p);
  float *const staged = bias + wide, *const space = staged + stage;
  int32_t *const table = (int32_t*)(space + c.scratch()), *at = table;
  std::memset(bias, 0, sizeof(float) * size_t(wide));
  for (int64_t g = 0; w[0] && g < c.groups; ++g) std::memcpy(bias + g * across, (const float*)p[3] + g * own, sizeof(float) * size_t(own));
  for (int64_t f = 0; f < c.phases; ++f) {
    const Phase q = c.phase(f);
    find_depth(q, given, steps, at);
    int32_t* const from = at += q.count_y * q.count_x * given;
    const int64_t rows = least(c.band, q.rows), many = c.together * rows * q.columns;
    for (int64_t i = 0, k = 0; i < c.together; ++i)
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t a = i * steps.image + r * c.stride_y * steps.row, b = i * out.image + (q.y + r * c.step_y) * out.row + q.x * out.pixel;
        for (int64_t j = 0; j < q.columns; ++j, ++k) {
          from[k] = int32_t(a + j * c.stride_x * steps.pixel);
          from[many + k] = int32_t(b + j * c.step_x * out.pixel);
        }
      }
    at += 2 * many;
  }
  const int64_t cuts = w[3];
  Pieces pieces(p, part, parts, c.units() * cuts);
  for (Share piece; pieces.next(piece);) {
    const int64_t number = piece.first / cuts, cut = piece.first % cuts;
    const Unit u = unit_of(c, number, most);
    const int64_t o0 = up(across, P) * cut / cuts * P, o1 = least(up(across, P) * (cut + 1) / cuts * P, across), channels = least(o1, own) - o0;
    const float* const x = laid(c, u, (const float*)p[1], space);
    const int64_t rows = least(u.rows * c.step_y, c.y.h - u.first * c.step_y);
    float* const y = straight ? (float*)p[0] + u.n * out.image + u.first * c.step_y * out.row : staged;
    at = table;
    for (int64_t f = 0; f < c.phases; ++f) {
      const Phase q = c.phase(f);
      const int64_t height = least(u.rows, q.rows - u.first), here = u.images * height * q.columns;
      const int64_t depth = q.count_y * q.count_x * given, chunk = up(depth, up(depth, DEEPEST)) > 0 ? up(depth, up(depth, DEEPEST)) : 1;
      const int32_t *const deep = at, *const from = at + depth, *const to = from + c.together * least(c.band, q.rows) * q.columns;
      at = (int32_t*)to + (to - from);
      if (height <= 0) continue;
      for (int64_t g = 0; g < c.groups; ++g)
        for (int64_t k = 0; k < depth || k == 0; k += chunk)
          for (int64_t o = o0; o < o1; o += P) {
            const float* const panel = (const float*)p[2] + q.weights + (g * across + o) * depth + k * least(P, across - o);
            const bool last = k + chunk >= depth;
            const Walk walk = {deep + k, least(chunk, depth - k), panel, last && w[0] ? bias + g * across + o : nullptr, k > 0, relu && last};
            float* const target = y + g * across + o;
            if (across - o > L) GRADLAB_PART(0) pixels<FEW, 2>(here, walk, x + g * given * steps.channel, from, target, to);
            else GRADLAB_PART(1) pixels<MANY, 1>(here, walk, x + g * given * steps.channel, from, target, to);
          }
    }
    const Pixels all = {y, u.images, rows, c.y.w, out.image, out.row, out.pixel};
    for (int64_t g = 0; g < c.groups; ++g) {
      const int64_t first = g * own + o0;
      Pixels those = all;
      those.at += g * across + o0;
      float* const notes = (float*)p[4] + number * record_length(c.y.c);
      if (w[2]) GRADLAB_PART(5) record(those, channels, notes + first, notes + c.y.c + first);
      if (straight) continue;
      Images target = c.y;
      target.c = channels;
      GRADLAB_PART(4) for (int64_t i = 0; i < u.images; ++i)
        lay_back(those.at + i * out.image, rows, c.y.w, wide, target, u.n + i, u.first * c.step_y, (float*)p[0] + first * c.y.step[1]);
    }
    if (w[2] && cut == 0) count_pixels(all.images * all.rows * all.columns, (float*)p[4] + number * record_length(c.y.c) + 2 * c.y.c);
  }
}
