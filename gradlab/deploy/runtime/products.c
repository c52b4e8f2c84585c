/* ---- products of other types: plain loops over rows of B ---- */
GL_UNUSED static void gl_product_@S(int64_t m, int64_t n, int64_t k, const @T *a, int64_t a_row, int64_t a_column, const @T *b, int64_t b_row,
                                    int64_t b_column, const @T *bias, @T *c) {
  for (int64_t i = 0; i < m; ++i) {
    @T *out = c + i * n;
    for (int64_t j = 0; j < n; ++j) out[j] = bias != NULL ? bias[j] : 0;
    for (int64_t p = 0; p < k; ++p) {
      const @T factor = a[i * a_row + p * a_column];
      const @T *line = b + p * b_row;
      for (int64_t j = 0; j < n; ++j) out[j] = (@T)(out[j] + (@U)factor * (@U)line[j * b_column]);
    }
  }
}
