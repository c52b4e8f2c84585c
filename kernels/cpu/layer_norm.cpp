// Norms of rows. float, contiguous.
#include "sums.h"

// y, mean, rstd, x, weight, bias; parameters: rows, columns, eps, whether there is a weight, a bias
GRADLAB_KERNEL gradlab_layer_norm(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const float each = 1 / float(n), eps = float(real(v[2]));
  const float *weight = v[3] ? (const float*)p[4] : nullptr, *bias = v[4] ? (const float*)p[5] : nullptr;
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[3] + r * n;
    const float about = total(n, [=](int64_t i) { return x[i]; }) / float(n);
    float square = total(n, [=](int64_t i) { return (x[i] - about) * (x[i] - about); }) * each, off = 0;
    if (about * about > square) off = total(n, [=](int64_t i) { return x[i] - about; }) * each, square -= off * off;
    float mean = about + off, rstd = 1 / __builtin_sqrtf((square < 0 ? 0 : square) + eps);
    if (!(rstd > 0)) in_more_range(n, eps, true, &mean, &rstd, [=](int64_t i) { return x[i]; });
    ((float*)p[1])[r] = mean;
    ((float*)p[2])[r] = rstd;
    if (weight && bias) for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    else if (weight) for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
    else if (bias) for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd + bias[i];
    else for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd;
  }
}

// y, rstd, x, weight; parameters: rows, columns, eps, whether there is a weight
GRADLAB_KERNEL gradlab_rms_norm(char** p, const int64_t* v, int part, int parts) {
  const int64_t n = v[1];
  const float eps = float(real(v[2]));
  const float* weight = v[3] ? (const float*)p[3] : nullptr;
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    float* y = (float*)p[0] + r * n;
    const float* x = (const float*)p[2] + r * n;
    float none, rstd = 1 / __builtin_sqrtf(total(n, [=](int64_t i) { return x[i] * x[i]; }) / float(n) + eps);
    if (!(rstd > 0)) in_more_range(n, eps, false, &none, &rstd, [=](int64_t i) { return x[i]; });
    ((float*)p[1])[r] = rstd;
    if (weight) for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * weight[i];
    else for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd;
  }
}
