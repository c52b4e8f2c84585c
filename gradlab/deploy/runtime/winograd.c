/* ---- 3x3 convolutions of stride 1 by Winograd's algorithm F(tall x 2, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
 * 2015): tall by two results come from a tile of tall + 2 by four numbers. Down it is F(4, 3) at the points 0, +-3/4, +-3/2 and infinity (or F(2, 3)),
 * whose errors are 1.4 to 2.4 times those of the sum that defines a convolution. The weights are transformed when the program is built. An infinity
 * would become NaN in a whole tile, as its transformation is a difference: a row of tiles that holds what is not finite is summed up plainly. ---- */
#define GL_NEAR 0.75f
#define GL_FAR 1.5f
#define GL_NEAR2 (GL_NEAR * GL_NEAR)
#define GL_FAR2 (GL_FAR * GL_FAR)

/* A column of a tile, `row` floats from one number to the next. */
GL_INLINE void gl_spread_down(const int tall, const float *x, int64_t row, gl_w *out) {
  const gl_w a = GL_GET(x), b = GL_GET(x + row), c = GL_GET(x + 2 * row), d = GL_GET(x + 3 * row);
  if (tall == 2) {
    out[0] = a - c, out[1] = b + c, out[2] = c - b, out[3] = b - d;
    return;
  }
  const gl_w e = GL_GET(x + 4 * row), f = GL_GET(x + 5 * row);
  const gl_w near = e - GL_FAR2 * c, near_odd = GL_NEAR * (d - GL_FAR2 * b), far = e - GL_NEAR2 * c, far_odd = GL_FAR * (d - GL_NEAR2 * b);
  out[0] = GL_NEAR2 * GL_FAR2 * a + (e - (GL_NEAR2 + GL_FAR2) * c);
  out[1] = near + near_odd, out[2] = near - near_odd;
  out[3] = far + far_odd, out[4] = far - far_odd;
  out[5] = GL_NEAR2 * GL_FAR2 * b + (f - (GL_NEAR2 + GL_FAR2) * d);
}
/* A row of tiles from x on, as tiles of `wide` floats in places `place` apart. */
GL_INLINE void gl_spread(const int tall, const float *x, int64_t row, int64_t wide, int64_t many, float *out, int64_t place) {
  for (int64_t c = 0; c < wide; c += GL_LANES) {
    gl_w had[2][6], own[2][6];
    const float *at = x + c;
    gl_spread_down(tall, at, row, had[0]), gl_spread_down(tall, at + wide, row, had[1]);
    for (int64_t t = 0; t < many; ++t) {
      float *to = out + t * wide + c;
      at += 2 * wide;
      gl_spread_down(tall, at, row, own[0]), gl_spread_down(tall, at + wide, row, own[1]);
      GL_UNROLL for (int i = 0; i < tall + 2; ++i, to += 4 * place) {
        GL_PUT(to, had[0][i] - own[0][i]), GL_PUT(to + place, had[1][i] + own[0][i]);
        GL_PUT(to + 2 * place, own[0][i] - had[1][i]), GL_PUT(to + 3 * place, had[1][i] - own[1][i]);
        had[0][i] = own[0][i], had[1][i] = own[1][i];
      }
    }
  }
}
GL_INLINE void gl_gather_down(const int tall, const float *m, int64_t place, gl_w *out) {
  const gl_w a = GL_GET(m), b = GL_GET(m + 4 * place), c = GL_GET(m + 8 * place), d = GL_GET(m + 12 * place);
  if (tall == 2) {
    out[0] = a + (b + c), out[1] = (b - c) - d;
    return;
  }
  const gl_w e = GL_GET(m + 16 * place), f = GL_GET(m + 20 * place);
  const gl_w near = b + c, near_odd = b - c, far = d + e, far_odd = d - e;
  out[0] = a + (near + far), out[1] = GL_NEAR * near_odd + GL_FAR * far_odd;
  out[2] = GL_NEAR2 * near + GL_FAR2 * far, out[3] = f + (GL_NEAR * GL_NEAR2 * near_odd + GL_FAR * GL_FAR2 * far_odd);
}
/* Where a row of tiles goes: `rows` by `columns` results that are wanted, of `channels` each (whole vectors). */
typedef struct { float *y; const float *add, *bias; int64_t row, pixel, rows, columns, channels; bool positive; } gl_ending;
/* The results; whether all of them are finite before anything follows them. */
GL_INLINE bool gl_gather(const int tall, const float *m, int64_t place, int64_t across, int64_t many, const gl_ending *to) {
  gl_w lefts = {0}, rights = {0};
  for (int64_t t = 0; t < many; ++t, m += across)
    for (int64_t c = 0; c < to->channels; c += GL_LANES) {
      gl_w half[4][4];
      GL_UNROLL for (int j = 0; j < 4; ++j) gl_gather_down(tall, m + c + j * place, place, half[j]);
      const gl_w shift = to->bias != NULL ? GL_GET(to->bias + c) : (gl_w){0};
      const int64_t at = 2 * t * to->pixel + c;
      const bool both = 2 * t + 1 < to->columns;
      GL_UNROLL for (int i = 0; i < tall; ++i) {
        if (i >= to->rows) break;
        gl_w left = half[0][i] + (half[1][i] + half[2][i]) + shift, right = (half[1][i] - half[2][i]) - half[3][i] + shift;
        lefts += left, rights += right;
        if (to->add != NULL) {
          left += GL_GET(to->add + at + i * to->row);
          if (both) right += GL_GET(to->add + at + i * to->row + to->pixel);
        }
        if (to->positive) { /* a NaN stays one */
          gl_v l, r;
          memcpy(&l, &left, sizeof l), memcpy(&r, &right, sizeof r);
          l = GL_POSITIVE(l), r = GL_POSITIVE(r);
          memcpy(&left, &l, sizeof l), memcpy(&right, &r, sizeof r);
        }
        GL_PUT(to->y + at + i * to->row, left);
        if (both) GL_PUT(to->y + at + i * to->row + to->pixel, right);
      }
    }
  float rest[GL_LANES];
  lefts += rights, lefts -= lefts;
  memcpy(rest, &lefts, sizeof rest);
  bool finite = true;
  for (int i = 0; i < GL_LANES; ++i) finite = finite && rest[i] == 0.0f;
  return finite;
}
/* The same rows as the sum that defines a convolution. laid: the row of tiles; panels: the weights as [3][3][inputs][16]. */
GL_APART void gl_sum_row(const int tall, const float *laid, int64_t columns, int64_t wide, int64_t inputs, int64_t outputs, const float *panels, const gl_ending *to) {
  int32_t at[16], jumps[9];
  for (int64_t t = 0; t < 16; ++t) at[t] = (int32_t)(t * wide);
  for (int t = 0; t < 9; ++t) jumps[t] = (int32_t)(t % 3 == 0 ? (columns - 2) * wide : wide);
  for (int64_t i = 0; i < gl_least(tall, to->rows); ++i)
    for (int64_t j = 0; j < to->columns; j += 16) {
      const int64_t many = gl_least(16, to->columns - j), shift = i * to->row + j * to->pixel;
      const gl_product q = {many, outputs, 9 * inputs, laid + (i * columns + j) * wide, 0, 1, panels, 9 * inputs, to->y + shift, to->pixel,
        {to->bias, NULL, to->add == NULL ? NULL : to->add + shift, to->positive ? GL_RELU : 0}, at, jumps, 9, inputs};
      gl_multiply_part(&q, 0, many, 0, outputs);
    }
}

/* A piece of work. Weights: of each of the (tall + 2) x 4 places panels of 16 outputs, [inputs][16]; `plain` as they were; the bias with zeros up to
 * whole panels. */
GL_INLINE void gl_winograd_piece(const int tall, float *space, gl_piece p, const gl_pictures *w, const float *x, const float *weight, const float *plain, float *y, const gl_finish *finish) {
  const int64_t c = w->inputs, wide = gl_up(c, GL_LANES), across = gl_up(w->outputs, 16), places = (tall + 2) * 4;
  const int64_t width = (w->wide_out + 1) / 2, columns = 2 * width + 2, high = (p.rows + tall - 1) / tall, tiles = p.pictures * high * width;
  const int64_t laid = (tall * high + 2) * columns * wide, in_place = tiles * wide + 16, out_place = tiles * across + 16;
  const bool direct = w->y_last && w->outputs % GL_LANES == 0;
  float *const in = space + gl_up(p.pictures * laid, 16), *const out = in + places * in_place, *const made = out + places * out_place;
  for (int64_t i = 0; i < p.pictures; ++i) {
    gl_lay(w, x, p.picture + i, p.first - w->ph, tall * high + 2, columns, wide, space + i * laid);
    for (int64_t r = 0; r < high; ++r)
      gl_spread(tall, space + i * laid + tall * r * columns * wide, columns * wide, wide, width, in + (i * high + r) * width * wide, in_place);
  }
  for (int64_t f = 0; f < places; ++f) {
    const gl_product q = {tiles, across, c, in + f * in_place, wide, 1, weight + f * c * across, c, out + f * out_place, across, {NULL, NULL, NULL, 0}, NULL, NULL, 1, c};
    gl_multiply_part(&q, 0, tiles, 0, across);
  }
  for (int64_t i = 0; i < p.pictures; ++i) {
    const int64_t pixel = direct ? w->outputs : across, start = ((p.picture + i) * w->high_out + p.first) * w->wide_out * w->outputs;
    for (int64_t r = 0; r < high; ++r) {
      const int64_t shift = tall * r * w->wide_out * pixel;
      const gl_ending to = {(direct ? y + start : made) + shift, direct && finish->add != NULL ? finish->add + start + shift : NULL, finish->column_bias,
        w->wide_out * pixel, pixel, p.rows - tall * r, w->wide_out, direct ? w->outputs : across, direct && finish->activation == GL_RELU};
      if (!gl_gather(tall, out + (i * high + r) * width * across, out_place, across, width, &to))
        gl_sum_row(tall, space + i * laid + tall * r * columns * wide, columns, wide, c, w->outputs, plain, &to);
    }
    if (!direct) gl_lay_back(w, made, across, p.picture + i, p.first, p.rows, y, finish);
    else if (finish->activation != 0 && finish->activation != GL_RELU) gl_activate(finish->activation, y + start, p.rows * w->wide_out * w->outputs);
  }
}
#define GL_WINOGRAD(tall) \
  const int64_t work = w->n * w->outputs * w->high_out * w->wide_out * w->inputs; \
  (void)work; \
  GL_MANY(work > 20000, team->threads) \
  for (int64_t job = 0; job < gl_pieces(w); ++job) \
    gl_winograd_piece(tall, (float *)(void *)(team->own + GL_SELF * team->own_size), gl_piece_of(w, job), w, x, weight, plain, y, &finish);
GL_UNUSED static void gl_winograd_2(const gl_team *team, const gl_pictures *w, const float *x, const float *weight, const float *plain, float *y, gl_finish finish) { GL_WINOGRAD(2) }
GL_UNUSED static void gl_winograd_4(const gl_team *team, const gl_pictures *w, const float *x, const float *weight, const float *plain, float *y, gl_finish finish) { GL_WINOGRAD(4) }
