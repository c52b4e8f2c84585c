// Cross-entropy of rows, and its derivative. float, rows contiguous; more dimensions and doubles are in softmax_along.cpp.
#include "exponentials.h"

// p, losses (one for each row), x (which may be p), target, status; parameters: rows, classes, ignore_index
GRADLAB_KERNEL gradlab_cross_entropy_rows(char** q, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const int64_t* target = (const int64_t*)q[3];
  float* losses = (float*)q[1];
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)q[0] + r * n;
    const float* x = (const float*)q[2] + r * n;
    const int64_t t = target[r];
    const bool there = t >= 0 && t < n;
    const float own = there ? x[t] : 0, m = largest_number(x, n), sum = exponentials(x, m, y, n), scale = 1 / sum, logarithm = logarithm_of(sum, y, n);
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    losses[r] = t == v[2] ? 0 : logarithm - (own - m);
    if (!there && t != v[2]) *(int64_t*)q[4] = 1;
  }
}

// y, losses, target; parameters: targets, ignore_index, whether to take the mean
template <typename T> inline void total_loss(char** q, const int64_t* v) {
  const T* losses = (const T*)q[1];
  const int64_t* target = (const int64_t*)q[2];
  double sum = 0;
  int64_t counted = 0;
  for (int64_t r = 0; r < v[0]; ++r)
    if (target[r] != v[1]) sum += losses[r], ++counted;
  *(T*)q[0] = T(v[2] ? sum / double(counted) : sum);
}
GRADLAB_KERNEL gradlab_cross_entropy_total(char** q, const int64_t* v, int, int) { total_loss<float>(q, v); }
GRADLAB_KERNEL gradlab_cross_entropy_total_double(char** q, const int64_t* v, int, int) { total_loss<double>(q, v); }

// dx, dy, p, target; parameters: rows, classes, ignore_index, whether the mean was taken, whether dy has one element a row
GRADLAB_KERNEL gradlab_cross_entropy_backward(char** q, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const int64_t* target = (const int64_t*)q[3];
  const float* dy = (const float*)q[1];
  const float scale = v[3] ? 1 / float(counting(target, v[0], v[2])) : 1;
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
    dx[t] = y[t] > SURE ? -total(n, [=](int64_t i) { return i == t ? 0.0f : dx[i]; }) : dx[t] - g;
  }
}
