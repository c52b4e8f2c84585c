// Cross-entropy of rows, and its derivative. float, rows contiguous.
#include "exponentials.h"

// p, losses (one for each row), x, target, status; parameters: rows, classes, ignore_index
GRADLAB_KERNEL gradlab_cross_entropy_rows(char** q, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const int64_t* target = (const int64_t*)q[3];
  float* losses = (float*)q[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)q[0] + r * n;
    const float* x = (const float*)q[2] + r * n;
    const float m = largest(x, n), sum = exponentials(x, m, y, n), scale = 1 / sum, logarithm = logarithm_of(sum, y, n);
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    const int64_t t = target[r];
    if (t == v[2]) losses[r] = 0;
    else if (t < 0 || t >= n) *(int64_t*)q[4] = 1;
    else losses[r] = logarithm - (x[t] - m);
  }
}

// y, losses, target; parameters: rows, ignore_index, whether to take the mean
GRADLAB_KERNEL gradlab_cross_entropy_total(char** q, const int64_t* v, int, int) {
  const float* losses = (const float*)q[1];
  const int64_t* target = (const int64_t*)q[2];
  double sum = 0;
  int64_t counted = 0;
  for (int64_t r = 0; r < v[0]; ++r)
    if (target[r] != v[1]) sum += losses[r], ++counted;
  *(float*)q[0] = float(v[2] ? sum / double(counted) : sum);
}

// dx, dy, p, target; parameters: rows, classes, ignore_index, whether the mean was taken, whether dy has one element a row
GRADLAB_KERNEL gradlab_cross_entropy_backward(char** q, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const int64_t* target = (const int64_t*)q[3];
  const float* dy = (const float*)q[1];
  float scale = 1;
  if (v[3]) {
    int64_t counted = 0;
    for (int64_t r = 0; r < v[0]; ++r) counted += target[r] != v[2];
    scale = 1 / float(counted > 0 ? counted : 1);
  }
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* dx = (float*)q[0] + r * n;
    const float* y = (const float*)q[2] + r * n;
    const int64_t t = target[r];
    const float g = t == v[2] ? 0 : (v[4] ? dy[r] : dy[0]) * scale;
    if (t == v[2] || g == 0) {
      std::memset(dx, 0, sizeof(float) * size_t(n));
      continue;
    }
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * g;
    dx[t] = y[t] > SURE ? -total(n, [&](int64_t i) { return i == t ? 0.0f : dx[i]; }) : dx[t] - g;
  }
}
