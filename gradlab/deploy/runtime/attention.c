/* ---- attention: a block of queries at a time against all keys of a head ---- */
typedef struct {
  int64_t batch, heads, rows, keys, width, values;
  int64_t q[3], k[3], v[3], y[3];                    /* steps of batch, head and row; the last dimension is without gaps */
  int64_t mask[4];                                   /* steps of batch, head, query and key */
  float scale;
  int causal, mask_kind;                             /* 0 none, 1 bytes that allow, 2 numbers to add */
} gl_attention_shape;
#define GL_QUERIES 48

/* x becomes exp(scale x - top), top being the largest scale x, or 0 where all are -inf; the sum of that. There is room up to whole vectors. */
GL_INLINE float gl_row_of_scores(int64_t n, float *x, float scale, float *top) {
#if GL_VECTORS_f32
  gl_w most = gl_all(-INFINITY), sum = {0};
  float half[GL_LANES];
  int64_t j = 0;
  for (; j + GL_LANES <= n; j += GL_LANES) {
    const gl_w here = GL_GET(x + j) * scale;
    most = (gl_w)GL_MAX((gl_v)here, (gl_v)most); /* passes NaN over, which comes out of the exponentials */
    GL_PUT(x + j, here);
  }
  *top = -INFINITY;
  for (; j < n; ++j) {
    x[j] *= scale;
    *top = x[j] > *top ? x[j] : *top;
  }
  for (; j % GL_LANES != 0; ++j) x[j] = -INFINITY; /* exp(-inf) = 0 */
  for (int l = 0; l < GL_LANES; ++l) *top = most[l] > *top ? most[l] : *top;
  if (*top == -INFINITY) *top = 0.0f;
  for (j = 0; j < n; j += GL_LANES) {
    const gl_w e = gl_exp_of(GL_GET(x + j) - *top);
    sum += e;
    GL_PUT(x + j, e);
  }
  GL_PUT(half, sum);
  for (int l = GL_LANES / 2; l > 0; l /= 2)
    for (int m = 0; m < l; ++m) half[m] += half[m + l];
  return half[0];
#else
  for (int64_t j = 0; j < n; ++j) x[j] *= scale;
  *top = gl_largest_f32(n, x);
  if (*top == -INFINITY) *top = 0.0f;
  return gl_exponentials_f32(n, x, *top, x);
#endif
}

GL_UNUSED static void gl_attention(const gl_team *team, const gl_attention_shape *s, const float *q, const float *k, const float *v,
                                   const void *mask, float *y, float *lse) {
  const int64_t keys = (s->keys + 15) / 16 * 16, values = (s->values + 15) / 16 * 16;
  GL_MANY(s->batch * s->heads > 1 && s->batch * s->heads * s->rows * s->keys * s->width > 50000, team->threads)
  for (int64_t job = 0; job < s->batch * s->heads; ++job) {
    const int64_t n = job / s->heads, h = job % s->heads;
    float *packed_k = (float *)(void *)(team->own + GL_SELF * team->own_size);
    float *packed_v = packed_k + keys * s->width, *scores = packed_v + values * s->keys;
    const float *own_k = k + n * s->k[0] + h * s->k[1], *own_v = v + n * s->v[0] + h * s->v[1];
    for (int64_t j = 0; j < s->keys; j += 16) gl_pack_panel(s->width, s->keys, own_k, 1, s->k[2], j, packed_k + j * s->width);
    for (int64_t j = 0; j < s->values; j += 16) gl_pack_panel(s->keys, s->values, own_v, s->v[2], 1, j, packed_v + j * s->keys);
    for (int64_t i = 0; i < s->rows; i += GL_QUERIES) {
      const int64_t rows = s->rows - i < GL_QUERIES ? s->rows - i : GL_QUERIES;
      int64_t limit = s->keys;
      if (s->causal && i + rows < limit) limit = i + rows;
      const gl_finish plain = {NULL, NULL, NULL, 0};
      const float *own_q = q + n * s->q[0] + h * s->q[1] + i * s->q[2];
      float *own_y = y + n * s->y[0] + h * s->y[1] + i * s->y[2];
      const gl_product first = {rows, (limit + 15) / 16 * 16, s->width, own_q, s->q[2], 1, packed_k, s->width, scores, keys, plain, NULL, NULL, 1, s->width};
      gl_multiply_part(&first, 0, rows, 0, first.n);
      float total[GL_QUERIES];
      for (int64_t r = 0; r < rows; ++r) {
        float *line = scores + r * keys;
        int64_t end = limit;
        if (s->causal && i + r + 1 < end) end = i + r + 1;
        for (int64_t j = end; j < limit; ++j) line[j] = 0.0f;
        for (int64_t j = 0; j < end && s->mask_kind != 0; ++j) line[j] *= s->scale;
        if (s->mask_kind == 1) {
          const uint8_t *allow = (const uint8_t *)mask + n * s->mask[0] + h * s->mask[1] + (i + r) * s->mask[2];
          for (int64_t j = 0; j < end; ++j) line[j] = allow[j * s->mask[3]] ? line[j] : -INFINITY;
        } else if (s->mask_kind == 2) {
          const float *more = (const float *)mask + n * s->mask[0] + h * s->mask[1] + (i + r) * s->mask[2];
          for (int64_t j = 0; j < end; ++j) line[j] += more[j * s->mask[3]];
        }
        float top;
        total[r] = gl_row_of_scores(end, line, s->mask_kind == 0 ? s->scale : 1.0f, &top);
        if (lse != NULL) lse[job * s->rows + i + r] = gl_log_f32(total[r] == 0.0f ? 1.0f : total[r]) + top;
        total[r] = 1.0f / (total[r] == 0.0f ? 1.0f : total[r]);
      }
      const gl_product second = {rows, s->values, limit, scores, keys, 1, packed_v, s->keys, own_y, s->y[2], plain, NULL, NULL, 1, limit};
      gl_multiply_part(&second, 0, rows, 0, s->values);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < s->values; ++j) own_y[r * s->y[2] + j] *= total[r];
    }
  }
}
