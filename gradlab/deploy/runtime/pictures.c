/* ---- convolution of float pictures whose channels lie together (channels last), or are laid so first: vectors hold channels ---- */
typedef struct {
  int64_t n, inputs, high, wide;               /* the input */
  int64_t outputs, groups, high_out, wide_out; /* the output */
  int64_t kh, kw, sh, sw, ph, pw, dh, dw;
  int x_last, y_last;                          /* whether channels come last in memory, else the dimensions are in order */
  int64_t together, band;                      /* pictures, and rows of the output, of a piece of work */
} gl_pictures;

GL_INLINE int64_t gl_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
GL_INLINE int64_t gl_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows [top, top + rows) of a picture, `columns` wide from the padding on the left, `across` floats for a pixel; zeros where nothing is. */
GL_APART void gl_lay(const gl_pictures *w, const float *x, int64_t picture, int64_t top, int64_t rows, int64_t columns, int64_t across, float *out) {
  const int64_t c = w->inputs, first = gl_least(w->pw, columns), have = gl_least(columns - first, w->wide), plane = w->high * w->wide;
  for (int64_t r = 0; r < rows; ++r, out += columns * across) {
    const int64_t i = top + r;
    float *const line = out + first * across;
    if (i < 0 || i >= w->high) {
      memset(out, 0, (size_t)(columns * across) * sizeof *out);
      continue;
    }
    memset(out, 0, (size_t)(first * across) * sizeof *out);
    memset(line + have * across, 0, (size_t)((columns - first - have) * across) * sizeof *out);
    if (w->x_last || c == 1) {
      const float *from = x + (picture * plane + i * w->wide) * c;
      if (across == c) memcpy(line, from, (size_t)(have * c) * sizeof *out);
      else
        for (int64_t j = 0; j < have; ++j) {
          memcpy(line + j * across, from + j * c, (size_t)c * sizeof *out);
          for (int64_t k = c; k < across; ++k) line[j * across + k] = 0.0f;
        }
      continue;
    }
    const float *from = x + picture * c * plane + i * w->wide;
    for (int64_t j = 0; j < have; j += 16)
      for (int64_t k = 0; k < across; ++k)
        for (int64_t l = j; l < gl_least(j + 16, have); ++l) line[l * across + k] = k < c ? from[k * plane + l] : 0.0f;
  }
}

/* Rows [first, first + rows) of results laid with `across` floats for a pixel, to where they belong; then what follows the sums. */
GL_APART void gl_lay_back(const gl_pictures *w, const float *from, int64_t across, int64_t picture, int64_t first, int64_t rows, float *y, const gl_finish *finish) {
  const int64_t places = w->high_out * w->wide_out, many = rows * w->wide_out;
  if (w->y_last) {
    const int64_t at = (picture * places + first * w->wide_out) * w->outputs;
    for (int64_t p = 0; p < many; ++p) {
      float *const to = y + at + p * w->outputs;
      for (int64_t o = 0; o < w->outputs; ++o) to[o] = from[p * across + o];
      if (finish->add != NULL)
        for (int64_t o = 0; o < w->outputs; ++o) to[o] += finish->add[at + p * w->outputs + o];
    }
    if (finish->activation != 0) gl_activate(finish->activation, y + at, many * w->outputs);
    return;
  }
  const int64_t start = picture * w->outputs * places + first * w->wide_out;
  for (int64_t p = 0; p < many; p += 16)
    for (int64_t o = 0; o < w->outputs; ++o)
      for (int64_t l = p; l < gl_least(p + 16, many); ++l) y[start + o * places + l] = from[l * across + o];
  for (int64_t o = 0; o < w->outputs && (finish->add != NULL || finish->activation != 0); ++o) {
    float *const to = y + start + o * places;
    if (finish->add != NULL)
      for (int64_t p = 0; p < many; ++p) to[p] += finish->add[start + o * places + p];
    if (finish->activation != 0) gl_activate(finish->activation, to, many);
  }
}

/* A piece of work: pictures from `picture` on, rows from `first` on. */
typedef struct { int64_t picture, pictures, first, rows; } gl_piece;
GL_INLINE int64_t gl_pieces(const gl_pictures *w) { return (w->n + w->together - 1) / w->together * ((w->high_out + w->band - 1) / w->band); }
GL_INLINE gl_piece gl_piece_of(const gl_pictures *w, int64_t job) {
  const int64_t bands = (w->high_out + w->band - 1) / w->band;
  gl_piece p = {job / bands * w->together, 0, job % bands * w->band, 0};
  p.pictures = gl_least(w->together, w->n - p.picture);
  p.rows = gl_least(w->band, w->high_out - p.first);
  return p;
}

/* The sum that defines a convolution, as products of matrices whose rows are the windows of pixels. Weights: of each group panels of 16 outputs, each
 * [kh][kw][inputs of the group][16]. `segments` runs of a window lie together, `run` floats each; `jumps` from the beginning of one to the next. */
GL_UNUSED static void gl_convolve_direct(const gl_team *team, const gl_pictures *w, int64_t segments, int64_t run, const int32_t *jumps, const float *x, const float *panels, float *y, gl_finish finish) {
  const bool laid = !w->x_last || w->ph > 0 || w->pw > 0;
  const int64_t own = w->inputs / w->groups, rows = w->outputs / w->groups, k = own * w->kh * w->kw, wide = w->outputs;
  const int64_t columns = laid ? w->wide + 2 * w->pw : w->wide, c = w->inputs, reach = (w->kh - 1) * w->dh + 1;
  const int64_t most_rows = laid ? (w->band - 1) * w->sh + reach : 0, picture_size = laid ? most_rows * columns * c : w->high * w->wide * c;
  GL_MANY(w->n * w->outputs * w->high_out * w->wide_out * k > 100000, team->threads)
  for (int64_t job = 0; job < gl_pieces(w); ++job) {
    const gl_piece p = gl_piece_of(w, job);
    float *const space = (float *)(void *)(team->own + GL_SELF * team->own_size);
    float *const made = space + (laid ? gl_up(w->together * picture_size, 16) : 0);
    int32_t *const at = (int32_t *)(void *)(made + (w->y_last ? 0 : gl_up(w->together * w->band * w->wide_out * wide, 16)));
    const float *from = x + (p.picture * w->high + p.first * w->sh) * w->wide * c;
    if (laid) {
      from = space;
      for (int64_t i = 0; i < p.pictures; ++i) gl_lay(w, x, p.picture + i, p.first * w->sh - w->ph, (p.rows - 1) * w->sh + reach, columns, c, space + i * picture_size);
    }
    int32_t *next = at;
    for (int64_t i = 0; i < p.pictures; ++i)
      for (int64_t r = 0; r < p.rows; ++r)
        for (int64_t j = 0; j < w->wide_out; ++j) *next++ = (int32_t)(i * picture_size + (r * w->sh * columns + j * w->sw) * c);
    const int64_t start = (p.picture * w->high_out + p.first) * w->wide_out * wide, m = p.pictures * p.rows * w->wide_out;
    for (int64_t g = 0; g < w->groups; ++g) {
      const int64_t shift = g * rows;
      gl_product q = {m, rows, k, from + g * own, 0, 1, panels + g * gl_up(rows, 16) * k, k, (w->y_last ? y + start : made) + shift, wide, {NULL, NULL, NULL, 0}, at, jumps, segments, run};
      if (finish.column_bias != NULL) q.finish.column_bias = finish.column_bias + shift;
      if (w->y_last) {
        q.finish.add = finish.add == NULL ? NULL : finish.add + start + shift;
        q.finish.activation = finish.activation;
      }
      gl_multiply_part(&q, 0, m, 0, rows);
    }
    for (int64_t i = 0; i < p.pictures && !w->y_last; ++i) gl_lay_back(w, made + i * p.rows * w->wide_out * wide, wide, p.picture + i, p.first, p.rows, y, &finish);
  }
  (void)team;
}

/* Depthwise: `many` pixels of the output side by side, from `rows` by `columns` taps that all lie in the picture. wide: columns where that is known
 * at compile time, else 0. The pointers are those of the first tap, weight and result. */
GL_INLINE void gl_depthwise_pixels(const int many, const int wide, const gl_pictures *w, const float *x, int64_t rows, int64_t columns, const float *weight, const gl_finish *finish, int64_t at, float *y) {
  const int64_t c = w->inputs, own = gl_up(c, 16), row = w->dh * w->wide * c, tap = w->dw * c, step = w->sw * c;
  if (wide > 0) columns = wide;
  for (int64_t l = 0; l < c; l += GL_LANES) {
    gl_w sum[4];
    GL_UNROLL for (int m = 0; m < many; ++m) sum[m] = finish->column_bias != NULL ? GL_GET(finish->column_bias + l) : gl_all(0.0f);
    for (int64_t i = 0; i < rows; ++i) {
      const float *const from = x + i * row + l, *const factors = weight + i * w->kw * own + l;
      GL_UNROLL for (int64_t t = 0; t < columns; ++t) {
        const gl_w factor = GL_GET(factors + t * own);
        GL_UNROLL for (int m = 0; m < many; ++m) sum[m] = gl_fused(GL_GET(from + t * tap + m * step), factor, sum[m]);
      }
    }
    GL_UNROLL for (int m = 0; m < many; ++m) {
      if (finish->add != NULL) sum[m] += GL_GET(finish->add + at + m * c + l);
      if (finish->activation == GL_RELU) sum[m] = (gl_w)GL_POSITIVE((gl_v)sum[m]);
      GL_PUT(y + at + m * c + l, sum[m]);
    }
  }
}
/* Depthwise, three taps wide, as wide as the input: a row of the output, which `rows` rows of the input make. Each pixel is read once, and adds to
 * three results. */
GL_INLINE void gl_depthwise_row(const int rows, const gl_pictures *w, const float *x, const float *weight, const gl_finish *finish, int64_t at, float *y) {
  const int64_t c = w->inputs, own = gl_up(c, 16), row = w->dh * w->wide * c, line = w->kw * own, wide = w->wide;
  const float *const bias = finish->column_bias, *const more = finish->add;
  const bool positive = finish->activation == GL_RELU;
  for (int64_t l = 0; l < c; l += GL_LANES) {
    gl_w factor[3][3], next = gl_all(0.0f), shift = bias != NULL ? GL_GET(bias + l) : next, here = shift, last = shift;
    GL_UNROLL for (int i = 0; i < rows; ++i)
      GL_UNROLL for (int t = 0; t < 3; ++t) factor[i][t] = GL_GET(weight + i * line + t * own + l);
    const float *from = x + l;
    int64_t to = at + l;
    for (int64_t j = 0; j <= wide; ++j, from += c, last = here, here = next) {
      if (j < wide) {
        next = shift;
        GL_UNROLL for (int i = 0; i < rows; ++i) {
          gl_v pixel = GL_LOAD(from + i * row);
          GL_KEEP(pixel);
          last = gl_fused((gl_w)pixel, factor[i][2], last), here = gl_fused((gl_w)pixel, factor[i][1], here), next = gl_fused((gl_w)pixel, factor[i][0], next);
        }
      }
      if (j == 0) continue;
      if (more != NULL) last += GL_GET(more + to);
      if (positive) last = (gl_w)GL_POSITIVE((gl_v)last);
      GL_PUT(y + to, last);
      to += c;
    }
  }
}
GL_APART void gl_depthwise_rows(int64_t rows, const gl_pictures *w, const float *x, const float *weight, const gl_finish *finish, int64_t at, float *y) {
  if (rows == 3) gl_depthwise_row(3, w, x, weight, finish, at, y);
  else if (rows == 2) gl_depthwise_row(2, w, x, weight, finish, at, y);
  else gl_depthwise_row(1, w, x, weight, finish, at, y);
}
/* The first of n taps, `apart` from each other, that is not before the picture; and how many from the first lie before its end. */
GL_INLINE int64_t gl_first_tap(int64_t start, int64_t apart) { return start < 0 ? (apart - 1 - start) / apart : 0; }
GL_INLINE int64_t gl_end_of_taps(int64_t start, int64_t apart, int64_t n, int64_t size) { return start >= size ? 0 : gl_least(n, (size - start + apart - 1) / apart); }
/* Where channels are last in both and fill vectors: nothing is laid, the taps outside are left out. */
GL_UNUSED static void gl_depthwise_in_place(const gl_team *team, const gl_pictures *w, const float *x, const float *weight, float *y, const gl_finish *finish) {
  const int64_t c = w->inputs, own = gl_up(c, 16), reach = (w->kw - 1) * w->dw;
  const int64_t begin = gl_least((w->pw + w->sw - 1) / w->sw, w->wide_out); /* the pixels whose taps are all inside */
  int64_t end = w->wide - 1 - reach + w->pw < 0 ? 0 : gl_least((w->wide - 1 - reach + w->pw) / w->sw + 1, w->wide_out);
  if (end < begin) end = begin;
  GL_MANY(w->n * c * w->high_out * w->wide_out * w->kh * w->kw > 100000, team->threads)
  for (int64_t job = 0; job < w->n * w->high_out; ++job) {
    const int64_t top = job % w->high_out * w->sh - w->ph, low = gl_first_tap(top, w->dh), high = gl_end_of_taps(top, w->dh, w->kh, w->high);
    const int64_t rows = high > low ? high - low : 0, start = job * w->wide_out * c;
    const float *const line = x + (job / w->high_out * w->high + top + low * w->dh) * w->wide * c, *const factors = weight + low * w->kw * own;
    const bool three = w->kw == 3 && w->sw == 1 && w->dw == 1 && w->pw == 1 && rows > 0 && rows <= 3;
    if (three) gl_depthwise_rows(rows, w, line, factors, finish, start, y);
    for (int64_t j = three ? w->wide_out : 0; j < w->wide_out;) {
      if (j > begin && j < end && j + 4 > end && end - 4 >= begin && finish->add == NULL) j = end - 4; /* some of them again */
      const int64_t left = j * w->sw - w->pw, at = start + j * c;
      if (j >= begin && j + 4 <= end) {
        const float *const from = line + left * c;
        if (w->kw == 3) gl_depthwise_pixels(4, 3, w, from, rows, 3, factors, finish, at, y);
        else gl_depthwise_pixels(4, 0, w, from, rows, w->kw, factors, finish, at, y);
        j += 4;
        continue;
      }
      const int64_t first = gl_first_tap(left, w->dw), last = gl_end_of_taps(left, w->dw, w->kw, w->wide), columns = last > first ? last - first : 0;
      const bool some = rows > 0 && columns > 0;
      const float *const from = some ? line + (left + first * w->dw) * c : x, *const own_factors = some ? factors + first * own : weight;
      if (columns == 2) gl_depthwise_pixels(1, 2, w, from, some ? rows : 0, 2, own_factors, finish, at, y);
      else gl_depthwise_pixels(1, 0, w, from, some ? rows : 0, columns, own_factors, finish, at, y);
      ++j;
    }
    if (finish->activation != 0 && finish->activation != GL_RELU) gl_activate(finish->activation, y + start, w->wide_out * c);
  }
  (void)team;
}

/* One input for each output (depthwise). Weights [kh][kw][inputs], they and the bias with zeros up to 16. */
GL_UNUSED static void gl_convolve_depthwise(const gl_team *team, const gl_pictures *w, const float *x, const float *weight, float *y, gl_finish finish) {
  const int64_t c = w->inputs, across = gl_up(c, GL_LANES), own = gl_up(c, 16), reach = (w->kh - 1) * w->dh + 1;
  if (w->x_last && w->y_last && across == c) {
    gl_depthwise_in_place(team, w, x, weight, y, &finish);
    return;
  }
  const bool laid = !w->x_last || w->ph > 0 || w->pw > 0 || across != c, direct = w->y_last && across == c;
  const int64_t columns = laid ? w->wide + 2 * w->pw : w->wide, most_rows = (w->band - 1) * w->sh + reach;
  GL_MANY(w->n * c * w->high_out * w->wide_out * w->kh * w->kw > 100000, team->threads)
  for (int64_t job = 0; job < gl_pieces(w); ++job) {
    const gl_piece p = gl_piece_of(w, job);
    float *const space = (float *)(void *)(team->own + GL_SELF * team->own_size), *const made = space + gl_up(most_rows * columns * across, 16);
    const float *from = x + (p.picture * w->high + p.first * w->sh) * w->wide * c;
    const int64_t start = (p.picture * w->high_out + p.first) * w->wide_out * c;
    if (laid) gl_lay(w, x, p.picture, p.first * w->sh - w->ph, (p.rows - 1) * w->sh + reach, columns, across, space), from = space;
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t l = 0; l < across; l += GL_LANES)
        for (int64_t j = 0; j < w->wide_out;) {
          const float *const line = from + (r * w->sh * columns + j * w->sw) * across + l;
          float *const to = (direct ? y + start : made) + (r * w->wide_out + j) * across + l;
          const int64_t step = w->sw * across;
          const gl_w shift = finish.column_bias != NULL ? GL_GET(finish.column_bias + l) : (gl_w){0};
          if (j + 4 <= w->wide_out) {
            gl_w a = shift, b = shift, d = shift, e = shift;
            for (int64_t i = 0; i < w->kh; ++i)
              for (int64_t t = 0; t < w->kw; ++t) {
                const float *const at = line + (i * w->dh * columns + t * w->dw) * across;
                const gl_w factor = GL_GET(weight + (i * w->kw + t) * own + l);
                a += GL_GET(at) * factor, b += GL_GET(at + step) * factor;
                d += GL_GET(at + 2 * step) * factor, e += GL_GET(at + 3 * step) * factor;
              }
            GL_PUT(to, a), GL_PUT(to + across, b), GL_PUT(to + 2 * across, d), GL_PUT(to + 3 * across, e);
            j += 4;
            continue;
          }
          gl_w a = shift;
          for (int64_t i = 0; i < w->kh; ++i)
            for (int64_t t = 0; t < w->kw; ++t)
              a += GL_GET(line + (i * w->dh * columns + t * w->dw) * across) * GL_GET(weight + (i * w->kw + t) * own + l);
          GL_PUT(to, a);
          ++j;
        }
    if (!direct) gl_lay_back(w, made, across, p.picture, p.first, p.rows, y, &finish);
    else {
      const int64_t many = p.rows * w->wide_out * c;
      if (finish.add != NULL)
        for (int64_t i = 0; i < many; ++i) y[start + i] += finish.add[start + i];
      if (finish.activation != 0) gl_activate(finish.activation, y + start, many);
    }
  }
  (void)team;
}
