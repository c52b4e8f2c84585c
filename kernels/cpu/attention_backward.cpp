// Attention's gradients. See attention.h.
#include "attention.h"
#include "exponentials.h"

namespace {

// What backward knows of each query of a block.
struct Known {
  float lse[QUERIES], delta[QUERIES];
  V others[QUERIES];      // the sum of its slopes so far, without that of the key that has nearly all the weight
  int64_t sure[QUERIES];  // that key, or -1
};

// A query's slopes add up to its gradient of lse. Where one key has nearly all the weight, weight · (gradient - delta) is all rounding: its slope
// is 0 here, and in the end what the others' sum lacks. `sure`: some query of the group may have such a key in this tile.
inline void add_up(const Tile& t, int64_t query, int64_t reach, bool sure, Known& known, const float* weights, float* slopes) {
  int64_t at = sure ? 0 : reach;
  while (at < reach && !(weights[at] > SURE)) ++at;
  if (at < reach) known.sure[query] = t.key + at, slopes[at] = 0;
  V sum = known.others[query];
  for (int64_t j = 0; j < reach; j += L) sum += load(slopes + j);
  known.others[query] = sum;
}

// Scores become weights, and the weights' gradients those of the scores before they were scaled. What lies beyond the last visible key is
// 0: where a group of keys meets the diagonal, `to_keys` reads it. `several`: there are several tiles.
__attribute__((noinline)) void weigh(const Sizes& s, const Tile& t, bool several, Known& known, float* weights, float* slopes) {
  const V scale = all(s.scale);
  for (int64_t g = 0; g < t.groups; ++g) {
    float *w = weights + g * ROWS * SPAN, *slope = slopes + g * ROWS * SPAN;
    const float *lse = known.lse + g * ROWS, *delta = known.delta + g * ROWS;
    const int64_t reach = t.reach(s, g), end = upward(reach + ROWS, L);
    V top = {};
    for (int64_t j = 0; j < reach; j += L)
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) {
        const V x = exponential(load(w + i * SPAN + j) - all(lse[i]));
        top = larger(x, top), store(w + i * SPAN + j, x), store(slope + i * SPAN + j, (load(slope + i * SPAN + j) - all(delta[i])) * (x * scale));
      }
    cut(s, t, g, w, end, 0), cut(s, t, g, slope, end, 0);
    const bool sure = largest_of(top) > SURE;
    if (sure || several)
      for (int64_t q = g * ROWS; q < least((g + 1) * ROWS, t.many); ++q) add_up(t, q, reach, sure, known, weights + q * SPAN, slopes + q * SPAN);
  }
}
// out += slopes k, for the block's queries.
__attribute__((noinline)) void to_queries(const Sizes& s, const Tile& t, const float* slopes, const float* k, float* out) {
  for (int64_t c = 0; c < s.wide; c += P)
    for (int64_t g = 0; g < t.groups; ++g) {
      float* y = out + g * ROWS * s.wide + c;
      V total[ROWS][2] = {};
      if (t.key != 0) {
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) total[i][0] = load(y + i * s.wide), total[i][1] = load(y + i * s.wide + L);
      }
      product(slopes + g * ROWS * SPAN, SPAN, 1, k + t.key * s.wide + c, s.wide, t.reach(s, g), total);
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) store(y + i * s.wide, total[i][0]), store(y + i * s.wide + L, total[i][1]);
    }
}
// out += rowsᵀ x, for the tile's keys: rows are weights or slopes, x the block's gradients or queries.
__attribute__((noinline)) void to_keys(const Sizes& s, const Tile& t, const float* rows, const float* x, int64_t wide, float* out) {
  for (int64_t c = 0; c < wide; c += P)
    for (int64_t j = 0; j < t.keys; j += ROWS) {
      const int64_t first = s.causal ? most(t.key + j - t.row, 0) : 0;  // queries before that see none of these keys
      if (first >= t.many) break;
      float* y = out + (t.key + j) * wide + c;
      V total[ROWS][2];
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) total[i][0] = load(y + i * wide), total[i][1] = load(y + i * wide + L);
      product(rows + first * SPAN + j, 1, SPAN, x + first * wide + c, wide, t.many - first, total);
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) store(y + i * wide, total[i][0]), store(y + i * wide + L, total[i][1]);
    }
}

}  // namespace

// dq, dk, dv, g, g_lse, q, k, v, mask, y, lse; the sizes above, then the steps of g, dq, dk, dv, whether there is g_lse. lse and g_lse are
// contiguous.
GRADLAB_KERNEL gradlab_attention_backward(char** p, const int64_t* v, int part, int parts) {
  const Sizes s = sizes(v);
  const Steps g_steps = steps(v + 25), dq_steps = steps(v + 28), dk_steps = steps(v + 31), dv_steps = steps(v + 34);
  const float* g_lse = v[37] ? (const float*)p[4] : nullptr;
  const Share mine = share(s.images * s.heads, part, parts);
  const int64_t deep = s.all_keys + ROWS, both = s.wide + s.value_wide;
  const int64_t block = QUERIES * (both + s.wide + 2 * SPAN);
  float* panels = (float*)own.of(sizeof(float) * size_t(s.all_keys * (s.width + s.value_width + s.wide) + deep * both + block));
  if (panels == nullptr) return no_memory(p);
  float *value_panels = panels + s.all_keys * s.width, *keys = value_panels + s.all_keys * s.value_width;
  float *dk = keys + s.all_keys * s.wide, *dv = dk + deep * s.wide, *query = dv + deep * s.value_wide;
  float *dq = query + QUERIES * s.wide, *grad = dq + QUERIES * s.wide;
  float *weights = grad + QUERIES * s.value_wide, *slopes = weights + QUERIES * SPAN;
  Known known;
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / s.heads, h = u % s.heads;
    const float *q = at(p[5], s.q, n, h), *k = at(p[6], s.k, n, h), *g = at(p[3], g_steps, n, h), *y = at(p[9], s.y, n, h);
    const float* lse = (const float*)p[10] + u * s.rows;
    transposed_rows(k, s.k.row, s.keys, s.width, panels);
    transposed_rows(at(p[7], s.v, n, h), s.v.row, s.keys, s.value_width, value_panels);
    copy_rows(k, s.k.row, s.keys, s.width, s.wide, s.keys, keys);
    std::memset(dk, 0, sizeof(float) * size_t(deep * both));
    for (int64_t row = 0; row < s.rows; row += QUERIES) {
      const int64_t many = least(QUERIES, s.rows - row), end = visible(s, row + many, s.keys), whole = upward(many, ROWS);
      copy_rows(q + row * s.q.row, s.q.row, many, s.width, s.wide, whole, query);
      copy_rows(g + row * g_steps.row, g_steps.row, many, s.value_width, s.value_wide, whole, grad);
      ask(p[5], s.q, s, u + 1, mine.last, row, row + many, s.width);
      ask(p[6], s.k, s, u + 1, mine.last, row, least(row + many, s.keys), s.width);
      ask(p[7], s.v, s, u + 1, mine.last, row, least(row + many, s.keys), s.value_width);
      ask(p[3], g_steps, s, u + 1, mine.last, row, row + many, s.value_width);
      ask(p[9], s.y, s, u + 1, mine.last, row, row + many, s.value_width);
      for (int64_t i = 0; i < whole; ++i) {
        known.lse[i] = i < many ? lse[row + i] : 0;
        float delta = 0;
        if (i < many) {
          const float *a = grad + i * s.value_wide, *b = y + (row + i) * s.y.row;
          V sum = {};
          int64_t j = 0;
          for (; j + L <= s.value_width; j += L) sum = fused(load(a + j), load(b + j), sum);
          for (; j < s.value_width; ++j) delta += a[j] * b[j];
          delta += sum_of(sum) - (g_lse ? g_lse[u * s.rows + row + i] : 0);
        }
        known.delta[i] = delta, known.others[i] = V{}, known.sure[i] = -1;
      }
      for (int64_t key = 0; key < end; key += KEYS) {
        const Tile t = tile_of(s, row, many, key, end);
        against(s, t, query, s.wide, panels + key * s.width, s.width, s.scale, weights);
        if (s.mask != 0) masked(s, t, p[8], n, h, weights);
        against(s, t, grad, s.value_wide, value_panels + key * s.value_width, s.value_width, 1, slopes);
        weigh(s, t, end > KEYS, known, weights, slopes);
        to_queries(s, t, slopes, keys, dq);
        to_keys(s, t, slopes, query, s.wide, dk);
        to_keys(s, t, weights, grad, s.value_wide, dv);
      }
      for (int64_t i = 0; i < many; ++i) {
        if (known.sure[i] < 0) continue;
        const float slope = (g_lse ? g_lse[u * s.rows + row + i] * s.scale : 0) - sum_of(known.others[i]);
        float *y = dq + i * s.wide, *of_key = dk + known.sure[i] * s.wide;
        for (int64_t c = 0; c < s.width; ++c) y[c] += slope * keys[known.sure[i] * s.wide + c], of_key[c] += slope * query[i * s.wide + c];
      }
      copy_back(dq, s.wide, many, s.width, at(p[0], dq_steps, n, h) + row * dq_steps.row, dq_steps.row);
    }
    copy_back(dk, s.wide, s.keys, s.width, at(p[1], dk_steps, n, h), dk_steps.row);
    copy_back(dv, s.value_wide, s.keys, s.value_width, at(p[2], dv_steps, n, h), dv_steps.row);
  }
}
