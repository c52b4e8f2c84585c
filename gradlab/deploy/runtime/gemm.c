/* ---- float products: C = A B, B in panels of 16 columns (panel after panel, each [k][16], the last one filled up with zeros) ---- */

#define GL_PER_PANEL (16 / GL_LANES)
/* gcc would load such a value again for each use instead of keeping it in a register. */
#if defined(__GNUC__) && !defined(__clang__) && (defined(__AVX2__) || defined(__AVX512F__))
#define GL_KEEP(v) __asm__("" : "+v"(v))
#else
#define GL_KEEP(v) (void)0
#endif
/* With AVX-512 a tile takes two lines of B in each step, more than what fetches ahead by itself brings of weights that are in no near cache. */
#if GL_LANES == 16
#define GL_SOON(p) GL_FETCH(p)
#else
#define GL_SOON(p) (void)0
#endif

/* What happens to the result (depth: rows of each panel, of which the first k are used): + bias of its column or row, + another matrix of its layout, then a function of each element. */
typedef struct { const float *column_bias, *row_bias, *add; int activation; } gl_finish;
/* rows: NULL, or where A's rows begin; these then have their numbers in `segments` runs of that length, `jumps` from one to the next. */
typedef struct {
  int64_t m, n, k; const float *a; int64_t a_row, a_column; const float *panels; int64_t depth; float *c; int64_t c_row; gl_finish finish;
  const int32_t *rows, *jumps; int64_t segments, run;
} gl_product;

#define GL_RELU @RELU /* the activation that products compute themselves */
GL_APART void gl_activate(int kind, float *x, int64_t n) {
  (void)x;
  (void)n;
  switch (kind) {
@ACTIVATIONS
  default: break;
  }
}

/* The last columns, which do not fill a panel. */
GL_APART void gl_copy_part(const gl_product *q, int rows, int64_t column, const float *part, int64_t wide, float *c) {
  for (int r = 0; r < rows; ++r)
    for (int64_t j = 0; j < q->n - column; ++j)
      c[r * q->c_row + j] = part[r * wide + j] + (q->finish.column_bias != NULL ? q->finish.column_bias[column + j] : 0.0f);
}
/* What follows the sums of the last columns. */
GL_APART void gl_complete(const gl_product *q, int64_t row, int rows, int64_t column, int64_t width) {
  for (int r = 0; r < rows; ++r) {
    float *c = q->c + (row + r) * q->c_row + column;
    if (q->finish.add != NULL) {
      const float *more = q->finish.add + (row + r) * q->c_row + column;
      for (int64_t j = 0; j < width; ++j) c[j] += more[j];
    }
    if (q->finish.activation == GL_RELU)
      for (int64_t j = 0; j < width; ++j) c[j] = c[j] < 0.0f ? 0.0f : c[j];
  }
}

/* `count` tiles of `rows` rows, one below the other. */
GL_INLINE void gl_tiles(const int rows, const int panels, const gl_product *q, int64_t row, int64_t count, int64_t column) {
  static const float zeros[64] = {0};
  const int64_t step = q->depth * 16, along = q->a_column, a_row = q->a_row, c_row = q->c_row;
  const int64_t segments = q->rows != NULL ? q->segments : 1, run = q->rows != NULL ? q->run : q->k;
  const bool whole = q->n - column >= 16 * panels, positive = q->finish.activation == GL_RELU;
  const float *const panel = q->panels + column * q->depth, *row_bias = q->finish.row_bias;
  const float *const start = whole && q->finish.column_bias != NULL ? q->finish.column_bias + column : zeros;
  const float *from = q->a + row * a_row, *more = q->finish.add != NULL ? q->finish.add + row * c_row + column : NULL;
  const int32_t *places = q->rows != NULL ? q->rows + row : NULL, *const jumps = q->jumps;
  float *c = q->c + row * c_row + column;
  if (row_bias != NULL) row_bias += row;
  for (int64_t t = 0; t < count; ++t, from += rows * a_row, c += rows * c_row) {
    const float *a[GL_ROWS], *b = panel;
    gl_v sum[GL_ROWS][4 * GL_PER_PANEL];
    if (places != NULL) {
      GL_UNROLL for (int r = 0; r < rows; ++r) a[r] = q->a + places[t * rows + r];
    } else
      GL_UNROLL for (int r = 0; r < rows; ++r) a[r] = from + r * a_row;
    if (row_bias != NULL) {
      GL_UNROLL for (int r = 0; r < rows; ++r)
        GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) sum[r][v] = GL_SPREAD(row_bias[t * rows + r]);
    } else
      GL_UNROLL for (int r = 0; r < rows; ++r)
        GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) sum[r][v] = GL_LOAD(start + v * GL_LANES);
    for (int64_t s = 0;;) {
      for (int64_t i = 0; i < run; ++i, b += 16) {
        if (rows == 3 && panels == 2) { /* all numbers but one line stay in registers */
          gl_v factor[GL_ROWS];
          GL_UNROLL for (int r = 0; r < rows; ++r) factor[r] = GL_SPREAD(a[r][i * along]);
          GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) {
            gl_v line = GL_LOAD(b + (v / GL_PER_PANEL) * step + (v % GL_PER_PANEL) * GL_LANES);
            if (rows > 1) GL_KEEP(line);
            GL_UNROLL for (int r = 0; r < rows; ++r) sum[r][v] = GL_FMA(factor[r], line, sum[r][v]);
          }
          continue;
        }
        gl_v line[4 * GL_PER_PANEL];
        if (rows > 6) {
          GL_SOON(b + 128);
          if (panels > 1) GL_SOON(b + step + 128);
        }
        GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) {
          line[v] = GL_LOAD(b + (v / GL_PER_PANEL) * step + (v % GL_PER_PANEL) * GL_LANES);
          if (rows > 1) GL_KEEP(line[v]);
        }
        GL_UNROLL for (int r = 0; r < rows; ++r) {
          const gl_v factor = GL_SPREAD(a[r][i * along]);
          GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) sum[r][v] = GL_FMA(factor, line[v], sum[r][v]);
        }
      }
      if (++s >= segments) break;
      GL_UNROLL for (int r = 0; r < rows; ++r) a[r] += jumps[s];
    }
    if (!whole) {
      float part[GL_ROWS * 16 * GL_PANELS + 64];
      GL_UNROLL for (int r = 0; r < rows; ++r)
        GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) GL_STORE(part + (r * panels * GL_PER_PANEL + v) * GL_LANES, sum[r][v]);
      gl_copy_part(q, rows, column, part, 16 * panels, c);
      gl_complete(q, row + t * rows, rows, column, q->n - column);
      continue;
    }
    if (more != NULL) {
      GL_UNROLL for (int r = 0; r < rows; ++r, more += c_row)
        GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) sum[r][v] = GL_ADD(sum[r][v], GL_LOAD(more + v * GL_LANES));
    }
    if (positive)
      GL_UNROLL for (int r = 0; r < rows; ++r)
        GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) sum[r][v] = GL_POSITIVE(sum[r][v]);
    GL_UNROLL for (int r = 0; r < rows; ++r)
      GL_UNROLL for (int v = 0; v < panels * GL_PER_PANEL; ++v) GL_STORE(c + r * c_row + v * GL_LANES, sum[r][v]);
  }
}

GL_APART void gl_stack(const gl_product *q, int64_t row, int64_t rows, int64_t count, int64_t column) {
#define GL_CASE(n) case n: gl_tiles(n, GL_PANELS, q, row, count, column); break;
#if GL_PANELS == 2
  if (q->n - column <= 16) { /* a panel alone: so many rows side by side that no sum waits for its last step */
    const int64_t all = rows * count, most = all - all % 8, more = most + (all - most) / 4 * 4;
    gl_tiles(8, 1, q, row, most / 8, column);
    gl_tiles(4, 1, q, row + most, (more - most) / 4, column);
    gl_tiles(1, 1, q, row + more, all - more, column);
    return;
  }
#endif
  switch (rows) {
    GL_CASE(1)
    GL_CASE(2)
#if GL_ROWS > 2
    GL_CASE(3)
#endif
#if GL_ROWS > 3
    GL_CASE(4) GL_CASE(5) GL_CASE(6)
#endif
#if GL_ROWS > 6
    GL_CASE(7) GL_CASE(8) GL_CASE(9) GL_CASE(10) GL_CASE(11)
#endif
    default: break;
  }
#undef GL_CASE
}

/* Few rows: wider tiles, so that there are enough sums side by side. */
GL_APART void gl_strip(const gl_product *q, int64_t row, int64_t rows, int64_t column, int64_t end) {
  if (rows == 1)
    for (; column + 64 <= end; column += 64) gl_tiles(1, 4, q, row, 1, column);
  else if (rows == 2)
    for (; column + 32 <= end; column += 32) gl_tiles(2, 2, q, row, 1, column);
#if GL_ROWS == 6 && GL_LANES == 8
  else if (rows == 3)
    for (; column + 32 <= end; column += 32) gl_tiles(3, 2, q, row, 1, column);
#endif
  for (; column < end; column += 16 * GL_PANELS) gl_stack(q, row, rows, 1, column);
}

/* Rows and columns first..last of a product; so many rows at a time that they stay in the second-level cache. */
GL_APART void gl_multiply_part(const gl_product *q, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
  int64_t block = 49152 / (q->k > 0 ? q->k : 1) / GL_ROWS * GL_ROWS;
  if (block < GL_ROWS) block = GL_ROWS;
  for (int64_t i = row; i < row_end; i += block) {
    const int64_t end = i + block < row_end ? i + block : row_end, strips = (end - i + GL_ROWS - 1) / GL_ROWS;
    const int64_t each = (end - i) / strips, higher = (end - i) % strips; /* as even as possible */
    if (strips == 1) gl_strip(q, i, each, column, column_end);
    else
      for (int64_t j = column; j < column_end; j += 16 * GL_PANELS) {
        if (higher > 0) gl_stack(q, i, each + 1, higher, j);
        gl_stack(q, i + higher * (each + 1), each, strips - higher, j);
      }
    if (q->finish.activation != 0 && q->finish.activation != GL_RELU)
      for (int64_t r = i; r < end; ++r) gl_activate(q->finish.activation, q->c + r * q->c_row + column, column_end - column);
  }
}

GL_UNUSED static void gl_multiply(const gl_team *team, const gl_product *q) {
  const int64_t work = q->m * q->n * q->k;
  int64_t row_parts = 1, column_parts = 1;
  if (team->threads > 1 && work > 100000) {
    const int64_t wanted = 4 * team->threads, row_most = (q->m + 2 * GL_ROWS - 1) / (2 * GL_ROWS), column_most = (q->n + 63) / 64;
    row_parts = row_most < wanted ? row_most : wanted;
    column_parts = (wanted + row_parts - 1) / row_parts;
    if (column_parts > column_most) column_parts = column_most;
  }
  const int64_t high = ((q->m + row_parts - 1) / row_parts + GL_ROWS - 1) / GL_ROWS * GL_ROWS;
  const int64_t wide = ((q->n + column_parts - 1) / column_parts + 63) / 64 * 64;
  GL_MANY(row_parts * column_parts > 1, team->threads)
  for (int64_t job = 0; job < row_parts * column_parts; ++job) {
    const int64_t row = job / column_parts * high, column = job % column_parts * wide;
    if (row < q->m && column < q->n)
      gl_multiply_part(q, row, row + high < q->m ? row + high : q->m, column, column + wide < q->n ? column + wide : q->n);
  }
}

/* One panel: columns `column`.. of a matrix with these strides. */
GL_UNUSED static void gl_pack_panel(int64_t k, int64_t n, const float *b, int64_t b_row, int64_t b_column, int64_t column, float *panel) {
  const int64_t have = n - column < 16 ? n - column : 16;
  const float *from = b + column * b_column;
  if (have == 16 && b_column == 1) {
    for (int64_t i = 0; i < k; ++i) memcpy(panel + i * 16, from + i * b_row, 16 * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < have; ++j) panel[i * 16 + j] = from[i * b_row + j * b_column];
    for (int64_t j = have; j < 16; ++j) panel[i * 16 + j] = 0.0f;
  }
}
GL_UNUSED static void gl_pack(const gl_team *team, int64_t k, int64_t n, const float *b, int64_t b_row, int64_t b_column, float *out) {
  const int64_t panels = (n + 15) / 16;
  GL_MANY(k * n > 50000, team->threads)
  for (int64_t p = 0; p < panels; ++p) gl_pack_panel(k, n, b, b_row, b_column, p * 16, out + p * 16 * k);
  (void)team;
}
