// Attention: a block of queries at a time, so that scores live in the cache. One head is one thread's work.
#include "gemm.h"
#include "scalar_math.h"

namespace {

constexpr int64_t BLOCK = 64;  // queries
thread_local Scratch own;

// Strides of a tensor of four dimensions whose last has step 1: images, heads, rows.
struct Steps {
  int64_t image, head, row;
};
inline Steps steps(const int64_t* v) { return {v[0], v[1], v[2]}; }
inline const float* at(const char* base, const Steps& s, int64_t n, int64_t h) { return (const float*)base + n * s.image + h * s.head; }

// images heads rows keys width value_width scale causal mask_kind(0 none, 1 bool, 2 float), mask strides (4), then q k v
struct Sizes {
  int64_t images, heads, rows, keys, width, value_width;
  float scale;
  bool causal;
  int64_t mask, mask_step[4];
  Steps q, k, v;
};
inline Sizes sizes(const int64_t* p) {
  return {p[0], p[1], p[2], p[3], p[4], p[5], float(real(p[6])), p[7] != 0, p[8], {p[9], p[10], p[11], p[12]},
          steps(p + 13), steps(p + 16), steps(p + 19)};
}

// scale q kᵀ of rows [first, last) and the keys [0, keys), masked.
void scores(const float* q, const float* k, const char* mask, const Sizes& s, int64_t n, int64_t h, int64_t first, int64_t last, int64_t keys,
            float* out) {
  const Product product = {last - first, keys, s.width, s.q.row, 1, 1, s.k.row, keys, false, false};
  multiply<float>(q + first * s.q.row, k, out, nullptr, product, 0, product.m, 0, keys);
  for (int64_t i = first; i < last; ++i) {
    float* row = out + (i - first) * keys;
    for (int64_t j = 0; j < keys; ++j) row[j] *= s.scale;
    if (s.mask != 0) {
      const int64_t start = n * s.mask_step[0] + h * s.mask_step[1] + i * s.mask_step[2], step = s.mask_step[3];
      if (s.mask == 1) {
        const bool* allowed = (const bool*)mask + start;
        for (int64_t j = 0; j < keys; ++j) row[j] = allowed[j * step] ? row[j] : -__builtin_inff();
      } else {
        const float* added = (const float*)mask + start;
        for (int64_t j = 0; j < keys; ++j) row[j] += added[j * step];
      }
    }
    if (s.causal) for (int64_t j = i + 1; j < keys; ++j) row[j] = -__builtin_inff();
  }
}

inline int64_t visible(const Sizes& s, int64_t last) { return s.causal && last < s.keys ? last : s.keys; }

template <typename F> inline float folded(int64_t n, F of) {
  float lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lane[j] += of(i + j);
  float sum = 0;
  for (; i < n; ++i) sum += of(i);
  for (int j = 0; j < 16; ++j) sum += lane[j];
  return sum;
}

}  // namespace

// y, lse, q, k, v, mask; the sizes above. y and lse are contiguous.
GRADLAB_KERNEL gradlab_attention(char** p, const int64_t* v, int part, int parts) {
  const Sizes s = sizes(v);
  const Share mine = share(s.images * s.heads, part, parts);
  float* weights = (float*)own.of(sizeof(float) * size_t(BLOCK * s.keys + 1));
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / s.heads, h = u % s.heads;
    const float *q = at(p[2], s.q, n, h), *k = at(p[3], s.k, n, h), *value = at(p[4], s.v, n, h);
    float *y = (float*)p[0] + u * s.rows * s.value_width, *lse = (float*)p[1] + u * s.rows;
    for (int64_t first = 0; first < s.rows; first += BLOCK) {
      const int64_t last = first + BLOCK < s.rows ? first + BLOCK : s.rows, keys = visible(s, last);
      scores(q, k, p[5], s, n, h, first, last, keys, weights);
      for (int64_t i = first; i < last; ++i) {
        float* row = weights + (i - first) * keys;
        float top = -__builtin_inff();
        for (int64_t j = 0; j < keys; ++j) top = row[j] > top || row[j] != row[j] ? row[j] : top;
        if (top == -__builtin_inff()) top = 0;
        for (int64_t j = 0; j < keys; ++j) row[j] = gradlab::exp(row[j] - top);
        float total = folded(keys, [&](int64_t j) { return row[j]; });
        if (total == 0) total = 1;
        const float share_of = 1 / total;
        for (int64_t j = 0; j < keys; ++j) row[j] *= share_of;
        lse[i] = gradlab::log(total) + top;
      }
      const Product product = {last - first, s.value_width, keys, keys, 1, s.v.row, 1, s.value_width, false, false};
      multiply<float>(weights, value, y + first * s.value_width, nullptr, product, 0, product.m, 0, s.value_width);
    }
  }
}

// dq, dk, dv, g, g_lse, q, k, v, mask, y, lse; the sizes above, the steps of g, whether there is g_lse. All but g, q, k, v are contiguous.
GRADLAB_KERNEL gradlab_attention_backward(char** p, const int64_t* v, int part, int parts) {
  const Sizes s = sizes(v);
  const Steps g_steps = steps(v + 22);
  const float* g_lse = v[25] ? (const float*)p[4] : nullptr;
  const Share mine = share(s.images * s.heads, part, parts);
  float* weights = (float*)own.of(sizeof(float) * size_t(2 * BLOCK * s.keys + 1));
  float* slopes = weights + BLOCK * s.keys;
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / s.heads, h = u % s.heads;
    const float *q = at(p[5], s.q, n, h), *k = at(p[6], s.k, n, h), *value = at(p[7], s.v, n, h), *g = at(p[3], g_steps, n, h);
    const float *y = (const float*)p[9] + u * s.rows * s.value_width, *lse = (const float*)p[10] + u * s.rows;
    float *dq = (float*)p[0] + u * s.rows * s.width, *dk = (float*)p[1] + u * s.keys * s.width, *dv = (float*)p[2] + u * s.keys * s.value_width;
    std::memset(dk, 0, sizeof(float) * size_t(s.keys * s.width));
    std::memset(dv, 0, sizeof(float) * size_t(s.keys * s.value_width));
    for (int64_t first = 0; first < s.rows; first += BLOCK) {
      const int64_t last = first + BLOCK < s.rows ? first + BLOCK : s.rows, many = last - first, keys = visible(s, last);
      scores(q, k, p[8], s, n, h, first, last, keys, weights);
      const Product above = {many, keys, s.value_width, g_steps.row, 1, 1, s.v.row, keys, false, false};
      multiply<float>(g + first * g_steps.row, value, slopes, nullptr, above, 0, many, 0, keys);
      for (int64_t i = first; i < last; ++i) {
        float *row = weights + (i - first) * keys, *slope = slopes + (i - first) * keys;
        const float *grad = g + i * g_steps.row, *out = y + i * s.value_width;
        const float delta = folded(s.value_width, [&](int64_t j) { return grad[j] * out[j]; }) - (g_lse ? g_lse[u * s.rows + i] : 0);
        const float shift = lse[i];
        for (int64_t j = 0; j < keys; ++j) {
          row[j] = gradlab::exp(row[j] - shift);
          slope[j] = (slope[j] - delta) * row[j] * s.scale;
        }
      }
      const Product to_q = {many, s.width, keys, keys, 1, s.k.row, 1, s.width, false, false};
      multiply<float>(slopes, k, dq + first * s.width, nullptr, to_q, 0, many, 0, s.width);
      const Product to_k = {keys, s.width, many, 1, keys, s.q.row, 1, s.width, false, true};
      multiply<float>(slopes, q + first * s.q.row, dk, nullptr, to_k, 0, keys, 0, s.width);
      const Product to_v = {keys, s.value_width, many, 1, keys, g_steps.row, 1, s.value_width, false, true};
      multiply<float>(weights, g + first * g_steps.row, dv, nullptr, to_v, 0, keys, 0, s.value_width);
    }
  }
}
