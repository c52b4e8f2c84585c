// Norms of rows. float, contiguous.
#include "sums.h"

// y, mean, rstd, x, weight, bias; parameters: rows, columns, eps, whether there is a weight, a bias
GRADLAB_KERNEL gradlab_layer_norm(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const float eps = float(real(v[2]));
  const float *weight = v[3] ? (const float*)p[4] : nullptr, *bias = v[4] ? (const float*)p[5] : nullptr;
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[3] + r * n;
    const float near = x[0] - x[0] == 0 ? x[0] : 0;  // sums of distances from it are exact far from zero too
    const float off = total(n, [&](int64_t i) { return x[i] - near; }) / float(n), mean = near + off, rest = off - (mean - near);
    const float square = total(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / float(n) - rest * rest;
    const float rstd = 1 / __builtin_sqrtf((square < 0 ? 0 : square) + eps);
    ((float*)p[1])[r] = mean;
    ((float*)p[2])[r] = rstd;
    if (weight && bias) for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    else for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
  }
}
