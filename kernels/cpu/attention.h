// What attention's forward and backward share: a block of queries against a tile of keys at a time, so that scores live in the first-level
// cache, with the running maximum and sum of online softmax (Milakov and Gimelshein, 2018; Dao et al., "FlashAttention", 2022) where there
// are several tiles. Tiles above the diagonal are left out. One head is one thread's work; backward makes the weights anew from the
// log-sum-exp.
#ifndef GRADLAB_ATTENTION_H
#define GRADLAB_ATTENTION_H

#include "vectors.h"
#include "scalar_math.h"

namespace {

constexpr int64_t P = PANEL<float>;
constexpr int64_t QUERIES = 48, KEYS = 128, SPAN = KEYS + P;  // of a block, of a tile; the distance of a tile's rows
static_assert(KEYS % P == 0 && QUERIES % ROWS == 0 && ROWS + L <= 2 * P, "a tile is whole panels, with room for a group of keys");

thread_local Scratch own;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t upward(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
template <size_t... J> inline Whole numbers(std::index_sequence<J...>) { return Whole{int32_t(J)...}; }
inline Whole numbers() { return numbers(std::make_index_sequence<L>()); }  // 0, 1, 2 ...

// Strides of a tensor of four dimensions whose last has step 1: images, heads, rows.
struct Steps {
  int64_t image, head, row;
};
inline Steps steps(const int64_t* v) { return {v[0], v[1], v[2]}; }
inline float* at(char* base, const Steps& s, int64_t n, int64_t h) { return (float*)base + n * s.image + h * s.head; }

// images heads rows keys width value_width scale causal mask_kind(0 none, 1 bool, 2 float), mask strides (4), then q k v y
struct Sizes {
  int64_t images, heads, rows, keys, width, value_width;
  float scale;
  bool causal;
  int64_t mask, mask_step[4];
  Steps q, k, v, y;
  int64_t wide, value_wide, all_keys;  // rounded up: columns of copies of q and k, of v and y; keys
};
inline Sizes sizes(const int64_t* p) {
  return {p[0], p[1], p[2], p[3], p[4], p[5], float(real(p[6])), p[7] != 0, p[8], {p[9], p[10], p[11], p[12]},
          steps(p + 13), steps(p + 16), steps(p + 19), steps(p + 22), upward(p[4], P), upward(p[5], P), upward(p[3], most(P, ROWS))};
}
// Keys before `end` that queries before `row` may see.
inline int64_t visible(const Sizes& s, int64_t row, int64_t end) { return s.causal ? least(row, end) : end; }

inline float sum_of(V v) {
  float lane[L];
  store(lane, v);
#pragma GCC unroll 8
  for (int half = L / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}
inline float largest_of(V v) {
  float lane[L];
  store(lane, v);
#pragma GCC unroll 8
  for (int half = L / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int j = 0; j < half; ++j) lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
  return lane[0];
}

// `many` rows of `width` elements one behind the other, each filled up with zeros to `wide`; then rows of zeros up to `total`.
void copy_rows(const float* from, int64_t step, int64_t many, int64_t width, int64_t wide, int64_t total, float* to) {
  for (int64_t i = 0; i < many; ++i, from += step, to += wide) {
    int64_t j = 0;
    for (; j + L <= width; j += L) store(to + j, load(from + j));
    for (; j < width; ++j) to[j] = from[j];
    for (; j < wide; ++j) to[j] = 0;
  }
  if (many < total) std::memset(to, 0, sizeof(float) * size_t((total - many) * wide));
}
void copy_back(const float* from, int64_t wide, int64_t many, int64_t width, float* to, int64_t step) {
  for (int64_t i = 0; i < many; ++i, from += wide, to += step) {
    int64_t j = 0;
    for (; j + L <= width; j += L) store(to + j, load(from + j));
    for (; j < width; ++j) to[j] = from[j];
  }
}
// Asks for rows [first, last) of what the head after this one will read: they lie far apart, which no hardware foresees.
void ask(char* base, const Steps& step, const Sizes& s, int64_t next, int64_t end, int64_t first, int64_t last, int64_t width) {
  if (next >= end) return;
  const float* from = at(base, step, next / s.heads, next % s.heads);
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(from + i * step.row + j);
}
// The rows as columns of panels: panel j holds element c of rows jP.. jP+P one behind the other, for each c.
void transposed_rows(const float* from, int64_t step, int64_t many, int64_t width, float* to) {
  for (int64_t j = 0; j < many; j += P, from += P * step, to += P * width) {
    const int64_t have = least(many - j, P);
    int64_t c = 0;
    if (have == P)
      for (; c + L <= width; c += L) transpose(from + c, step, to + c * P), transpose(from + L * step + c, step, to + c * P + L);
    for (; c < width; ++c)
      for (int64_t i = 0; i < P; ++i) to[c * P + i] = i < have ? from[i * step + c] : 0;
  }
}

// total += the product of ROWS rows and `depth` rows of one panel.
using Totals = V[ROWS][2];
inline __attribute__((always_inline)) void product(
    const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t b_row, int64_t depth, Totals& total) {
  for (int64_t k = 0; k < depth; ++k) {
    const V low = load(b + k * b_row), high = load(b + k * b_row + L);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V s = all(a[i * a_row + k * a_column]);
      total[i][0] = fused(s, low, total[i][0]);
      total[i][1] = fused(s, high, total[i][1]);
    }
  }
}

// Where the block of queries and the tile of keys lie.
struct Tile {
  int64_t row, many;         // the first query and how many
  int64_t key, keys;         // the first key and how many
  int64_t groups;            // of ROWS queries
  int64_t reach(const Sizes& s, int64_t group) const {  // the keys of the tile that some query of the group may see
    return s.causal ? least(keys, most(row + (group + 1) * ROWS - key, 0)) : keys;
  }
  int64_t seen(const Sizes& s, int64_t i) const {  // of them, by the block's query i
    return s.causal ? least(keys, most(row + i + 1 - key, 0)) : keys;
  }
  int64_t first_group(const Sizes& s, int64_t j) const {  // that sees the tile's key j
    return s.causal ? most(key + j - row, 0) / ROWS : 0;
  }
};

// out = scale a bᵀ for the rows of the block and the keys of the tile; b in panels.
__attribute__((noinline)) void against(
    const Sizes& s, const Tile& t, const float* a, int64_t wide, const float* panels, int64_t width, float scale, float* out) {
  for (int64_t j = 0; j < t.keys; j += P)
    for (int64_t g = t.first_group(s, j); g < t.groups; ++g) {
      V total[ROWS][2] = {};
      product(a + g * ROWS * wide, wide, 1, panels + j * width, P, width, total);
      float* c = out + g * ROWS * SPAN + j;
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) store(c + i * SPAN, total[i][0] * all(scale)), store(c + i * SPAN + L, total[i][1] * all(scale));
    }
}

// Masks the scores of a block.
void masked(const Sizes& s, const Tile& t, const char* mask, int64_t n, int64_t h, float* out) {
  const int64_t step = s.mask_step[3];
  for (int64_t i = 0; i < t.many; ++i) {
    float* row = out + i * SPAN;
    const int64_t start = n * s.mask_step[0] + h * s.mask_step[1] + (t.row + i) * s.mask_step[2] + t.key * step, seen = t.seen(s, i);
    if (s.mask == 1) {
      const bool* allowed = (const bool*)mask + start;
      if (step == 1) for (int64_t j = 0; j < seen; ++j) row[j] = allowed[j] ? row[j] : -__builtin_inff();
      else for (int64_t j = 0; j < seen; ++j) row[j] = allowed[j * step] ? row[j] : -__builtin_inff();
    } else {
      const float* added = (const float*)mask + start;
      if (step == 1) for (int64_t j = 0; j < seen; ++j) row[j] += added[j];
      else for (int64_t j = 0; j < seen; ++j) row[j] += added[j * step];
    }
  }
}

// Of a group's rows, what lies beyond the last visible key becomes `rest`. Columns before `end`.
inline void cut(const Sizes& s, const Tile& t, int64_t group, float* rows, int64_t end, float rest) {
  const int64_t first = t.seen(s, group * ROWS) / L * L;
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i) {
    const int32_t seen = int32_t(t.seen(s, group * ROWS + i));
    for (int64_t j = first; j < end; j += L) {
      float* at = rows + i * SPAN + j;
      store(at, numbers() + int32_t(j) < seen ? load(at) : all(rest));
    }
  }
}

inline Tile tile_of(const Sizes& s, int64_t row, int64_t many, int64_t key, int64_t end) {
  return {row, many, key, least(KEYS, end - key), (many + ROWS - 1) / ROWS};
}

}  // namespace

#endif
