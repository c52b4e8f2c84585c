/* ---- attention: a block of queries at a time against all keys of a head ---- */
typedef struct {
  int64_t batch, heads, rows, keys, width, values;
  int64_t q[3], k[3], v[3], y[3];                    /* steps of batch, head and row; the last dimension is without gaps */
  int64_t mask[4];                                   /* steps of batch, head, query and key */
  float scale;
  int causal, mask_kind;                             /* 0 none, 1 bytes that allow, 2 numbers to add */
} gl_attention_shape;
#define GL_QUERIES 48

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
        for (int64_t j = 0; j < end; ++j) line[j] *= s->scale;
        if (s->mask_kind == 1) {
          const uint8_t *allow = (const uint8_t *)mask + n * s->mask[0] + h * s->mask[1] + (i + r) * s->mask[2];
          for (int64_t j = 0; j < end; ++j) line[j] = allow[j * s->mask[3]] ? line[j] : -INFINITY;
        } else if (s->mask_kind == 2) {
          const float *more = (const float *)mask + n * s->mask[0] + h * s->mask[1] + (i + r) * s->mask[2];
          for (int64_t j = 0; j < end; ++j) line[j] += more[j * s->mask[3]];
        }
        float top = gl_largest_f32(end, line);
        if (top == -INFINITY) top = 0.0f;
        total[r] = gl_exponentials_f32(end, line, top, line);
        for (int64_t j = end; j < limit; ++j) line[j] = 0.0f;
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
