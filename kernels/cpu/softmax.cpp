// Softmax of rows, and its derivative. float, rows contiguous; other dimensions and doubles are in softmax_along.cpp.
#include "exponentials.h"

// y, x; parameters: rows, columns
GRADLAB_KERNEL gradlab_softmax(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[1] + r * n;
    const float scale = 1 / exponentials(x, largest_number(x, n), y, n);
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  }
}

GRADLAB_KERNEL gradlab_log_softmax(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[1] + r * n;
    const float m = largest_number(x, n), sum = total(n, [=](int64_t i) { return exp_below(x[i] - m); });
    if (sum < 1 / SURE) exponentials(x, m, y, n);  // they are asked for
    const float shift = logarithm_of(sum, y, n);
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) - shift;
  }
}

// dx, dy, y; parameters: rows, columns
GRADLAB_KERNEL gradlab_softmax_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* dx = (float*)p[0] + r * n;
    const float *dy = (const float*)p[1] + r * n, *y = (const float*)p[2] + r * n;
    const float top = largest(y, n), base = top > SURE ? dy[place_of(y, top, n)] : 0;
    const float dot = total(n, [=](int64_t i) { return dy[i] == 0 && base == 0 ? 0.0f : (dy[i] - base) * y[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - base == dot ? 0.0f : y[i] * (dy[i] - base - dot);
  }
}

GRADLAB_KERNEL gradlab_log_softmax_backward(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* dx = (float*)p[0] + r * n;
    const float *dy = (const float*)p[1] + r * n, *y = (const float*)p[2] + r * n;
    const float sum = total(n, [=](int64_t i) { return dy[i]; });
    if (sum == 0) {
      std::memmove(dx, dy, sizeof(float) * size_t(n));
      continue;
    }
    const float top = largest(y, n);
    const int64_t at = top > LOG_SURE ? place_of(y, top, n) : n;
    const float sure = at < n ? -dy[at] * gradlab::expm1(top) - gradlab::exp(top) * (sum - dy[at]) : 0;
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - gradlab::exp(y[i]) * sum;
    if (at < n) dx[at] = sure;
  }
}
