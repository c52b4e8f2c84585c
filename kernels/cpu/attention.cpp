// Attention's outputs. See attention.h.
#include "attention.h"

namespace {

// What is known of each query of a block so far.
struct Running {
  float top[QUERIES], total[QUERIES], fade[QUERIES];  // fade: what the outputs so far are to be multiplied by
};

// Scores become weights relative to the largest so far. A group's rows go side by side: none waits for its own sum.
__attribute__((noinline)) void weigh(const Sizes& s, const Tile& t, float* scores, Running& run) {
  for (int64_t g = 0; g < t.groups; ++g) {
    float *rows = scores + g * ROWS * SPAN, *top = run.top + g * ROWS, *total = run.total + g * ROWS, *fade = run.fade + g * ROWS;
    const int64_t end = upward(t.reach(s, g), L);
    cut(s, t, g, rows, end, -__builtin_inff());
    V most_of[ROWS], sum[ROWS] = {};
    float shift[ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) most_of[i] = all(-__builtin_inff());
    for (int64_t j = 0; j < end; j += L)
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) most_of[i] = larger(load(rows + i * SPAN + j), most_of[i]);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const float before = top[i], now = largest_of(most_of[i]);
      top[i] = now > before ? now : before;
      shift[i] = top[i] == -__builtin_inff() ? 0 : top[i];  // nothing is visible yet
      fade[i] = t.key == 0 || before == -__builtin_inff() ? 0 : gradlab::exp(before - shift[i]);
    }
    for (int64_t j = 0; j < end; j += L)
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) {
        const V x = exponential(load(rows + i * SPAN + j) - all(shift[i]));
        store(rows + i * SPAN + j, x);
        sum[i] += x;
      }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) total[i] = total[i] * fade[i] + sum_of(sum[i]);
  }
}

// out = out fade + weights v of the block's groups. `out` has rows of value_wide.
__attribute__((noinline)) void gather(
    const Sizes& s, const Tile& t, const float* weights, const float* value, const Running& run, float* out) {
  for (int64_t c = 0; c < s.value_wide; c += P)
    for (int64_t g = 0; g < t.groups; ++g) {
      float* y = out + g * ROWS * s.value_wide + c;
      V total[ROWS][2];
      if (t.key == 0) {
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) total[i][0] = total[i][1] = V{};
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
          const V fade = all(run.fade[g * ROWS + i]);
          total[i][0] = load(y + i * s.value_wide) * fade, total[i][1] = load(y + i * s.value_wide + L) * fade;
        }
      }
      product(weights + g * ROWS * SPAN, SPAN, 1, value + t.key * s.value_wide + c, s.value_wide, t.reach(s, g), total);
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) store(y + i * s.value_wide, total[i][0]), store(y + i * s.value_wide + L, total[i][1]);
    }
}

}  // namespace

// y, lse, q, k, v, mask; the sizes above. lse is contiguous.
GRADLAB_KERNEL gradlab_attention(char** p, const int64_t* v, int part, int parts) {
  const Sizes s = sizes(v);
  const Share mine = share(s.images * s.heads, part, parts);
  float* keys = (float*)own.of(sizeof(float) * size_t(s.all_keys * (s.width + s.value_wide) + QUERIES * (s.wide + s.value_wide + SPAN)));
  if (keys == nullptr) return no_memory(p);
  float *values = keys + s.all_keys * s.width, *query = values + s.all_keys * s.value_wide, *out = query + QUERIES * s.wide;
  float* weights = out + QUERIES * s.value_wide;
  Running run;
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / s.heads, h = u % s.heads;
    const float* q = at(p[2], s.q, n, h);
    float *y = at(p[0], s.y, n, h), *lse = (float*)p[1] + u * s.rows;
    transposed_rows(at(p[3], s.k, n, h), s.k.row, s.keys, s.width, keys);
    copy_rows(at(p[4], s.v, n, h), s.v.row, s.keys, s.value_width, s.value_wide, s.keys, values);
    for (int64_t row = 0; row < s.rows; row += QUERIES) {
      const int64_t many = least(QUERIES, s.rows - row), end = visible(s, row + many, s.keys);
      copy_rows(q + row * s.q.row, s.q.row, many, s.width, s.wide, upward(many, ROWS), query);
      ask(p[2], s.q, s, u + 1, mine.last, row, row + many, s.width);
      ask(p[3], s.k, s, u + 1, mine.last, row, least(row + many, s.keys), s.width);
      ask(p[4], s.v, s, u + 1, mine.last, row, least(row + many, s.keys), s.value_width);
      for (int64_t i = 0; i < many; ++i) run.top[i] = -__builtin_inff(), run.total[i] = 0;
      for (int64_t i = many; i < QUERIES; ++i) run.fade[i] = 0;
      for (int64_t key = 0; key < end; key += KEYS) {
        const Tile t = tile_of(s, row, many, key, end);
        against(s, t, query, s.wide, keys + key * s.width, s.width, s.scale, weights);
        if (s.mask != 0) masked(s, t, p[5], n, h, weights);
        weigh(s, t, weights, run);
        gather(s, t, weights, values, run, out);
      }
      for (int64_t i = 0; i < many; ++i) {
        const float total = run.total[i] == 0 ? 1 : run.total[i], share_of = 1 / total;
        const float *from = out + i * s.value_wide;
        float* to = y + (row + i) * s.y.row;
        int64_t j = 0;
        for (; j + L <= s.value_width; j += L) store(to + j, load(from + j) * all(share_of));
        for (; j < s.value_width; ++j) to[j] = from[j] * share_of;
        lse[row + i] = gradlab::log(total) + (run.top[i] == -__builtin_inff() ? 0 : run.top[i]);
      }
    }
  }
}
