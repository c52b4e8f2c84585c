/* ---- convolution of float pictures (1 or 2 dimensions): products with columns gathered a block at a time ---- */
typedef struct {
  int64_t n, inputs, high, wide;                     /* the input */
  int64_t outputs, groups, high_out, wide_out;       /* the output */
  int64_t kh, kw, sh, sw, ph, pw, dh, dw;
  int64_t columns;                                   /* of a block */
} gl_window;

/* The input with zeros around it: (planes, high + 2 ph, wide + 2 pw). */
GL_UNUSED static void gl_pad_planes(const gl_team *team, const gl_window *w, const float *x, float *out) {
  const int64_t planes = w->n * w->inputs, high = w->high + 2 * w->ph, wide = w->wide + 2 * w->pw;
  GL_MANY(planes * high * wide > 100000, team->threads)
  for (int64_t p = 0; p < planes; ++p) {
    float *to = out + p * high * wide;
    const float *from = x + p * w->high * w->wide;
    memset(to, 0, (size_t)(w->ph * wide) * sizeof(float));
    for (int64_t i = 0; i < w->high; ++i) {
      float *row = to + (i + w->ph) * wide;
      for (int64_t j = 0; j < w->pw; ++j) row[j] = row[w->pw + w->wide + j] = 0.0f;
      memcpy(row + w->pw, from + i * w->wide, (size_t)w->wide * sizeof(float));
    }
    memset(to + (high - w->ph) * wide, 0, (size_t)(w->ph * wide) * sizeof(float));
  }
  (void)team;
}

/* 16 places of the output as a panel [inputs of the group * kh * kw][16]. */
GL_UNUSED static void gl_gather_panel(const gl_window *w, const float *x, int64_t first, float *panel) {
  const int64_t wide = w->wide + 2 * w->pw, plane = (w->high + 2 * w->ph) * wide, places = w->high_out * w->wide_out;
  const int64_t per_group = w->inputs / w->groups;
  int64_t at[16];
  bool run = true, halves = true;
  for (int64_t j = 0; j < 16; ++j) {
    const int64_t place = first + j < places ? first + j : places - 1;
    at[j] = place / w->wide_out * w->sh * wide + place % w->wide_out * w->sw;
    run = run && at[j] == at[0] + j;
    halves = halves && at[j] == at[j / 8 * 8] + j % 8;
  }
  for (int64_t c = 0; c < per_group; ++c)
    for (int64_t i = 0; i < w->kh; ++i)
      for (int64_t j = 0; j < w->kw; ++j, panel += 16) {
        const float *from = x + c * plane + i * w->dh * wide + j * w->dw;
        if (run) memcpy(panel, from + at[0], 16 * sizeof(float));
        else if (halves) {
          memcpy(panel, from + at[0], 8 * sizeof(float));
          memcpy(panel + 8, from + at[8], 8 * sizeof(float));
        } else
          for (int64_t l = 0; l < 16; ++l) panel[l] = from[at[l]];
      }
}

GL_UNUSED static void gl_convolve(const gl_team *team, const gl_window *w, const float *x, const float *weight, float *y, gl_finish finish) {
  const int64_t places = w->high_out * w->wide_out, blocks = (places + w->columns - 1) / w->columns;
  const int64_t plane = (w->high + 2 * w->ph) * (w->wide + 2 * w->pw), per_group = w->inputs / w->groups, rows = w->outputs / w->groups;
  const int64_t k = per_group * w->kh * w->kw, jobs = w->n * w->groups * blocks;
  GL_MANY(jobs > 1 && w->n * w->outputs * places * k > 100000, team->threads)
  for (int64_t job = 0; job < jobs; ++job) {
    const int64_t block = job % blocks, group = job / blocks % w->groups, image = job / blocks / w->groups;
    const int64_t first = block * w->columns, width = places - first < w->columns ? places - first : w->columns;
    float *panels = (float *)(void *)(team->own + GL_SELF * team->own_size);
    const float *from = x + (image * w->inputs + group * per_group) * plane;
    for (int64_t j = 0; j < width; j += 16) gl_gather_panel(w, from, first + j, panels + j * k);
    const int64_t start = (image * w->outputs + group * rows) * places + first;
    gl_product q = {rows, width, k, weight + group * rows * k, k, 1, panels, k, y + start, places, finish, NULL, NULL, 1, k};
    if (finish.row_bias != NULL) q.finish.row_bias = finish.row_bias + group * rows;
    if (finish.add != NULL) q.finish.add = finish.add + start;
    gl_multiply_part(&q, 0, rows, 0, width);
  }
}

/* One input for each output channel (depthwise): row after row of the output. */
GL_UNUSED static void gl_convolve_planes(const gl_team *team, const gl_window *w, const float *x, const float *weight, float *y, gl_finish finish) {
  const int64_t wide = w->wide + 2 * w->pw, plane = (w->high + 2 * w->ph) * wide, places = w->high_out * w->wide_out;
  const int64_t each = w->outputs / w->groups, jobs = w->n * w->outputs;
  GL_MANY(jobs * places * w->kh * w->kw > 100000, team->threads)
  for (int64_t job = 0; job < jobs; ++job) {
    const int64_t channel = job % w->outputs;
    const float *from = x + (job / w->outputs * w->inputs + channel / each) * plane, *factors = weight + channel * w->kh * w->kw;
    float *to = y + job * places;
    for (int64_t p = 0; p < places; ++p) to[p] = finish.row_bias != NULL ? finish.row_bias[channel] : 0.0f;
    for (int64_t r = 0; r < w->high_out; ++r)
      for (int64_t i = 0; i < w->kh; ++i)
        for (int64_t j = 0; j < w->kw; ++j) {
          const float factor = factors[i * w->kw + j];
          const float *line = from + (r * w->sh + i * w->dh) * wide + j * w->dw;
          float *out = to + r * w->wide_out;
          if (w->sw == 1)
            for (int64_t p = 0; p < w->wide_out; ++p) out[p] += factor * line[p];
          else
            for (int64_t p = 0; p < w->wide_out; ++p) out[p] += factor * line[p * w->sw];
        }
    if (finish.add != NULL)
      for (int64_t p = 0; p < places; ++p) to[p] += finish.add[job * places + p];
    if (finish.activation != 0) gl_activate(finish.activation, to, places);
  }
  (void)team;
}
