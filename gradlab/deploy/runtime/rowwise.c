/* ---- rows of neighbours: softmax and norms. Sixteen partial results side by side become vector instructions. ---- */
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
/* y = exp(x - top), and the sum of that. */
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
GL_UNUSED static void gl_lstm_cell_@S(int64_t rows, int64_t size, const @T *gates, int64_t gates_row, const @T *own, int64_t own_row, const @T *c,
                                      int64_t c_row, @T *hidden, @T *cell, @T *acts) {
  for (int64_t r = 0; r < rows; ++r) {
    const @T *a = gates + r * gates_row, *b = own + r * own_row, *old = c + r * c_row;
    @T *g = acts + 4 * r * size, *h = hidden + r * size, *s = cell + r * size;
    GL_IVDEP for (int64_t i = 0; i < 2 * size; ++i) g[i] = (@T)1 / ((@T)1 + gl_exp_@S(-(a[i] + b[i])));
    GL_IVDEP for (int64_t i = 2 * size; i < 3 * size; ++i) g[i] = gl_tanh_@S(a[i] + b[i]);
    GL_IVDEP for (int64_t i = 3 * size; i < 4 * size; ++i) g[i] = (@T)1 / ((@T)1 + gl_exp_@S(-(a[i] + b[i])));
    GL_IVDEP for (int64_t i = 0; i < size; ++i) {
      s[i] = g[size + i] * old[i] + g[i] * g[2 * size + i];
      h[i] = gl_tanh_@S(s[i]) * g[3 * size + i];
    }
  }
}
GL_UNUSED static void gl_gru_cell_@S(int64_t rows, int64_t size, const @T *gates, int64_t gates_row, const @T *own, int64_t own_row, const @T *state,
                                     int64_t state_row, @T *hidden, @T *acts) {
  for (int64_t r = 0; r < rows; ++r) {
    const @T *a = gates + r * gates_row, *b = own + r * own_row, *old = state + r * state_row;
    @T *g = acts + 3 * r * size, *h = hidden + r * size;
    GL_IVDEP for (int64_t i = 0; i < 2 * size; ++i) g[i] = (@T)1 / ((@T)1 + gl_exp_@S(-(a[i] + b[i])));
    GL_IVDEP for (int64_t i = 0; i < size; ++i) g[2 * size + i] = gl_tanh_@S(a[2 * size + i] + g[i] * b[2 * size + i]);
    GL_IVDEP for (int64_t i = 0; i < size; ++i) h[i] = g[2 * size + i] + g[size + i] * (old[i] - g[2 * size + i]);
  }
}
