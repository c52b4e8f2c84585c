/* ---- a stable order by merging; NaN is the largest. keys and order have n elements, spare another n. ---- */
GL_INLINE bool gl_before_@S(@T a, @T b) { return @BEFORE; }
GL_UNUSED static void gl_order_@S(int64_t n, const @T *keys, int descending, int64_t *order, int64_t *spare) {
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t start = 0; start < n; start += 2 * width) {
      const int64_t middle = start + width < n ? start + width : n, end = start + 2 * width < n ? start + 2 * width : n;
      int64_t a = start, b = middle;
      for (int64_t i = start; i < end; ++i) {
        bool second = a >= middle;
        if (!second && b < end)
          second = descending ? gl_before_@S(keys[order[a]], keys[order[b]]) : gl_before_@S(keys[order[b]], keys[order[a]]);
        spare[i] = second ? order[b++] : order[a++];
      }
    }
    memcpy(order, spare, (size_t)n * sizeof *order);
  }
}
