/* ---- rows of neighbours: softmax and norms. Sixteen partial results side by side become vector instructions. ---- */
#if GL_VECTORS_@S
#define GL_WHOLE_f32(n) ((n) - (n) % GL_LANES) /* of n, those in whole vectors */
GL_UNUSED static float gl_largest_f32(int64_t n, const float *x) {
  float part[GL_LANES], top = -INFINITY;
  int64_t i = 0;
  if (n >= GL_LANES) {
    gl_v most = GL_LOAD(x + n - GL_LANES); /* the last ones, some of them again below */
    gl_whole odd = (gl_w)most != (gl_w)most;
    for (; i + GL_LANES < n; i += GL_LANES) {
      const gl_v here = GL_LOAD(x + i);
      most = GL_MAX(most, here);
      odd |= (gl_w)here != (gl_w)here;
    }
    GL_STORE(part, most);
    for (int l = 0; l < GL_LANES; ++l) top = odd[l] || part[l] > top ? part[l] + (odd[l] ? NAN : 0.0f) : top;
    i = n;
  }
  for (; i < n; ++i) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  return top;
}
/* y = exp(x - top), and the sum of that. */
GL_UNUSED static float gl_exponentials_f32(int64_t n, const float *x, float top, float *y) {
  float part[GL_LANES], total = 0;
  const gl_w down = (gl_w)GL_SPREAD(top);
  gl_w sum = {0};
  int64_t i = 0;
  for (; i + GL_LANES <= n; i += GL_LANES) {
    const gl_w e = gl_exp_of(GL_GET(x + i) - down);
    sum += e;
    GL_PUT(y + i, e);
  }
  if (i < n) { /* a whole vector as well, filled up with exp(-inf) = 0 */
    for (int l = 0; l < GL_LANES; ++l) part[l] = i + l < n ? x[i + l] : -INFINITY;
    const gl_w e = gl_exp_of(GL_GET(part) - down);
    sum += e;
    GL_PUT(part, e);
    for (int l = 0; i + l < n; ++l) y[i + l] = part[l];
  }
  GL_PUT(part, sum);
  for (int l = 0; l < GL_LANES; ++l) total += part[l];
  return total;
}
#else
#define GL_WHOLE_@S(n) 0
GL_UNUSED static @T gl_largest_@S(int64_t n, const @T *x) {
  @T part[16], top = (@T)-INFINITY;
  const int64_t whole = n - n % 16;
  for (int l = 0; l < 16; ++l) part[l] = (@T)-INFINITY;
  for (int64_t i = 0; i < whole; i += 16)
    for (int l = 0; l < 16; ++l) part[l] = x[i + l] > part[l] || x[i + l] != x[i + l] ? x[i + l] : part[l];
  for (int l = 0; l < 16; ++l) top = part[l] > top || part[l] != part[l] ? part[l] : top;
  for (int64_t i = whole; i < n; ++i) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  return top;
}
GL_UNUSED static @T gl_exponentials_@S(int64_t n, const @T *x, @T top, @T *y) {
  @T part[16], total = 0;
  const int64_t whole = n - n % 16;
  for (int l = 0; l < 16; ++l) part[l] = 0;
  for (int64_t i = 0; i < whole; i += 16) {
    GL_IVDEP for (int l = 0; l < 16; ++l) y[i + l] = gl_exp_@S(x[i + l] - top);
    for (int l = 0; l < 16; ++l) part[l] += y[i + l];
  }
  for (int64_t i = whole; i < n; ++i) total += y[i] = gl_exp_@S(x[i] - top);
  for (int l = 0; l < 16; ++l) total += part[l];
  return total;
}
#endif
GL_UNUSED static double gl_total_@S(int64_t n, const @T *x) {
  double part[16], total = 0;
  const int64_t whole = n - n % 16;
  for (int l = 0; l < 16; ++l) part[l] = 0;
  for (int64_t i = 0; i < whole; i += 16)
    for (int l = 0; l < 16; ++l) part[l] += (double)x[i + l];
  for (int64_t i = whole; i < n; ++i) total += (double)x[i];
  for (int l = 0; l < 16; ++l) total += part[l];
  return total;
}
GL_UNUSED static double gl_squares_@S(int64_t n, const @T *x, @T centre) {
  double part[16], total = 0;
  const int64_t whole = n - n % 16;
  for (int l = 0; l < 16; ++l) part[l] = 0;
  for (int64_t i = 0; i < whole; i += 16)
    for (int l = 0; l < 16; ++l) part[l] += (double)(x[i + l] - centre) * (double)(x[i + l] - centre);
  for (int64_t i = whole; i < n; ++i) total += (double)(x[i] - centre) * (double)(x[i] - centre);
  for (int l = 0; l < 16; ++l) total += part[l];
  return total;
}
/* kind: 0 softmax, 1 its logarithm, 2 softmax that gives zeros where all is -inf */
GL_UNUSED static void gl_softmax_@S(int64_t n, const @T *x, @T *y, int kind) {
  @T top = gl_largest_@S(n, x);
  if (kind == 2 && top == (@T)-INFINITY) top = 0;
  if (kind == 1) {
    @T part[16], sum = 0;
    const int64_t whole = n - n % 16;
    GL_IVDEP for (int64_t i = 0; i < n; ++i) y[i] = x[i] - top;
    for (int l = 0; l < 16; ++l) part[l] = 0;
    for (int64_t i = 0; i < whole; i += 16)
      for (int l = 0; l < 16; ++l) part[l] += gl_exp_@S(y[i + l]);
    for (int64_t i = whole; i < n; ++i) sum += gl_exp_@S(y[i]);
    for (int l = 0; l < 16; ++l) sum += part[l];
    const @T shift = gl_log_@S(sum);
    for (int64_t i = 0; i < n; ++i) y[i] -= shift;
  } else {
    const @T total = gl_exponentials_@S(n, x, top, y);
    const @T divisor = kind == 2 && total == 0 ? (@T)1 : total;
    for (int64_t i = 0; i < n; ++i) y[i] /= divisor;
  }
}
GL_UNUSED static void gl_layer_norm_@S(const gl_team *team, int64_t rows, int64_t n, const @T *x, const @T *weight, const @T *bias, double eps, @T *y,
                                       @T *mean, @T *rstd) {
  GL_MANY(rows * n > 50000, team->threads)
  for (int64_t r = 0; r < rows; ++r) {
    const @T *from = x + r * n;
    @T *to = y + r * n;
    const @T centre = mean == NULL ? 0 : (@T)(gl_total_@S(n, from) / (double)n);
    const @T scale = (@T)(1.0 / sqrt(gl_squares_@S(n, from, centre) / (double)n + eps));
    if (mean != NULL) mean[r] = centre;
    rstd[r] = scale;
    if (weight != NULL && bias != NULL) { GL_IVDEP for (int64_t i = 0; i < n; ++i) to[i] = (from[i] - centre) * scale * weight[i] + bias[i]; }
    else if (weight != NULL) { GL_IVDEP for (int64_t i = 0; i < n; ++i) to[i] = (from[i] - centre) * scale * weight[i]; }
    else { GL_IVDEP for (int64_t i = 0; i < n; ++i) to[i] = (from[i] - centre) * scale + (bias != NULL ? bias[i] : 0); }
  }
  (void)team;
}
/* (batch, channels, places), statistics of the batch itself */
GL_UNUSED static void gl_batch_norm_@S(int64_t batch, int64_t channels, int64_t places, const @T *x, const @T *weight, const @T *bias, double eps,
                                       @T *y, @T *mean, @T *rstd, @T *var) {
  const double count = batch * places > 0 ? (double)(batch * places) : 1.0;
  for (int64_t c = 0; c < channels; ++c) {
    double total = 0, squares = 0;
    for (int64_t b = 0; b < batch; ++b) total += gl_total_@S(places, x + (b * channels + c) * places);
    const @T centre = (@T)(total / count);
    for (int64_t b = 0; b < batch; ++b) squares += gl_squares_@S(places, x + (b * channels + c) * places, centre);
    mean[c] = centre;
    var[c] = (@T)(squares / count);
    rstd[c] = (@T)(1.0 / sqrt(squares / count + eps));
    const @T scale = weight != NULL ? rstd[c] * weight[c] : rstd[c], shift = bias != NULL ? bias[c] : 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t p = 0; p < places; ++p) y[(b * channels + c) * places + p] = (x[(b * channels + c) * places + p] - centre) * scale + shift;
  }
}
/* acts: NULL, or where the gates go. */
GL_UNUSED static void gl_lstm_cell_@S(int64_t rows, int64_t size, const @T *gates, int64_t gates_row, const @T *own, int64_t own_row, const @T *c,
                                      int64_t c_row, @T *hidden, @T *cell, @T *acts) {
  for (int64_t r = 0; r < rows; ++r) {
    const @T *a = gates + r * gates_row, *b = own + r * own_row, *old = c + r * c_row;
    @T *g = acts + (acts != NULL ? 4 * r * size : 0), *h = hidden + r * size, *s = cell + r * size;
    const int64_t whole = GL_WHOLE_@S(size);
#if GL_VECTORS_@S
    for (int64_t i = 0; i < whole; i += GL_LANES) {
      gl_w sum[4];
      GL_UNROLL for (int k = 0; k < 4; ++k) sum[k] = GL_GET(a + k * size + i) + GL_GET(b + k * size + i);
      gl_w b_fresh, b_state;
      const gl_w b_in = gl_below_sigmoid(sum[0]), b_keep = gl_below_sigmoid(sum[1]), b_out = gl_below_sigmoid(sum[3]);
      const gl_w fresh = gl_tanh_parts(sum[2], &b_fresh), state = GL_GET(old + i) / b_keep + fresh / (b_fresh * b_in);
      const gl_w shown = gl_tanh_parts(state, &b_state);
      GL_PUT(s + i, state), GL_PUT(h + i, shown / (b_state * b_out));
      if (acts != NULL) GL_PUT(g + i, 1.0f / b_in), GL_PUT(g + size + i, 1.0f / b_keep), GL_PUT(g + 2 * size + i, fresh / b_fresh), GL_PUT(g + 3 * size + i, 1.0f / b_out);
    }
#endif
    GL_IVDEP for (int64_t i = whole; i < size; ++i) {
      const @T in = gl_sigmoid_@S(a[i] + b[i]), keep = gl_sigmoid_@S(a[size + i] + b[size + i]);
      const @T fresh = gl_tanh_@S(a[2 * size + i] + b[2 * size + i]), out = gl_sigmoid_@S(a[3 * size + i] + b[3 * size + i]);
      s[i] = keep * old[i] + in * fresh, h[i] = gl_tanh_@S(s[i]) * out;
      if (acts != NULL) g[i] = in, g[size + i] = keep, g[2 * size + i] = fresh, g[3 * size + i] = out;
    }
  }
}
GL_UNUSED static void gl_gru_cell_@S(int64_t rows, int64_t size, const @T *gates, int64_t gates_row, const @T *own, int64_t own_row, const @T *state,
                                     int64_t state_row, @T *hidden, @T *acts) {
  for (int64_t r = 0; r < rows; ++r) {
    const @T *a = gates + r * gates_row, *b = own + r * own_row, *old = state + r * state_row;
    @T *g = acts + (acts != NULL ? 3 * r * size : 0), *h = hidden + r * size;
    const int64_t whole = GL_WHOLE_@S(size);
#if GL_VECTORS_@S
    for (int64_t i = 0; i < whole; i += GL_LANES) {
      gl_w b_fresh;
      const gl_w b_reset = gl_below_sigmoid(GL_GET(a + i) + GL_GET(b + i)), b_keep = gl_below_sigmoid(GL_GET(a + size + i) + GL_GET(b + size + i));
      const gl_w above = gl_tanh_parts(GL_GET(a + 2 * size + i) + GL_GET(b + 2 * size + i) / b_reset, &b_fresh), fresh = above / b_fresh;
      GL_PUT(h + i, fresh + (GL_GET(old + i) - fresh) / b_keep);
      if (acts != NULL) GL_PUT(g + i, 1.0f / b_reset), GL_PUT(g + size + i, 1.0f / b_keep), GL_PUT(g + 2 * size + i, fresh);
    }
#endif
    GL_IVDEP for (int64_t i = whole; i < size; ++i) {
      const @T reset = gl_sigmoid_@S(a[i] + b[i]), keep = gl_sigmoid_@S(a[size + i] + b[size + i]);
      const @T fresh = gl_tanh_@S(a[2 * size + i] + reset * b[2 * size + i]);
      h[i] = fresh + keep * (old[i] - fresh);
      if (acts != NULL) g[i] = reset, g[size + i] = keep, g[2 * size + i] = fresh;
    }
  }
}
