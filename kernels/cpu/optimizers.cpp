// Updates of parameters, one pass each. The numbers that all elements share are computed in double, as the rows' NumPy functions do.
#include "runtime.h"

#include <cmath>

namespace {

// Without decay p is left out: 0 times an infinite parameter would be no number.
template <typename T> inline T decayed(T g, T p, T decay, T sign) { return decay != T(0) ? sign * g + decay * p : sign * g; }

// new_p, p, grad, h (lr, weight_decay, momentum, dampening); parameters: elements, maximize
template <typename T> void sgd(char** q, const int64_t* v, int part, int parts) {
  T* out = (T*)q[0];
  const T *p = (const T*)q[1], *g = (const T*)q[2];
  const double* h = (const double*)q[3];
  const T lr = T(h[0]), decay = T(h[1]), sign = v[1] ? T(-1) : T(1);
  const Share mine = share(v[0], part, parts, 64);
#pragma GCC ivdep
  for (int64_t i = mine.first; i < mine.last; ++i) out[i] = p[i] - lr * decayed(g[i], p[i], decay, sign);
}

// new_p, new_buffer, p, grad, buffer, h; parameters: elements, maximize, nesterov, whether there is a buffer yet
template <typename T> void momentum(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *kept = (T*)q[1];
  const T *p = (const T*)q[2], *g = (const T*)q[3], *buffer = (const T*)q[4];
  const double* h = (const double*)q[5];
  const T lr = T(h[0]), decay = T(h[1]), keep = T(h[2]), take = T(1 - h[3]), sign = v[1] ? T(-1) : T(1);
  const T own = v[2] ? T(1) : T(0), along = v[2] ? T(h[2]) : T(1);
  const Share mine = share(v[0], part, parts, 64);
#pragma GCC ivdep
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const T d = decayed(g[i], p[i], decay, sign);
    const T b = v[3] ? keep * buffer[i] + take * d : d;  // at first `buffer` stands for nothing: whatever is there, NaN too
    kept[i] = b;
    out[i] = p[i] - lr * (along * b + own * d);
  }
}

// new_p, new_mean, new_square, new_step, p, grad, mean, square, step, h (lr, beta1, beta2, eps, weight_decay);
// parameters: elements, maximize, decoupled
template <typename T> void adam(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_mean = (T*)q[1], *new_square = (T*)q[2];
  const T *p = (const T*)q[4], *g = (const T*)q[5], *mean = (const T*)q[6], *square = (const T*)q[7];
  const double step = double(*(const float*)q[8]) + 1, *h = (const double*)q[9];
  const double lr = h[0], beta1 = h[1], beta2 = h[2];
  const double root = std::sqrt(1 - std::pow(beta2, step));
  const T size = T(lr * root / (1 - std::pow(beta1, step))), eps = T(h[3] * root), sign = v[1] ? T(-1) : T(1);
  const T decay = v[2] ? T(0) : T(h[4]), shrink = v[2] ? T(1 - lr * h[4]) : T(1);
  const T weight1 = T(1 - beta1), keep2 = T(beta2), weight2 = T(1 - beta2);
  const Share mine = share(v[0], part, parts, 64);
#pragma GCC ivdep
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const T d = decayed(g[i], p[i], decay, sign);
    const T m = mean[i] + weight1 * (d - mean[i]);
    const T s = keep2 * square[i] + weight2 * (d * d);
    new_mean[i] = m;
    new_square[i] = s;
    out[i] = shrink * p[i] - size * (m / (std::sqrt(s) + eps));
  }
}

}  // namespace

GRADLAB_KERNEL gradlab_sgd_float(char** q, const int64_t* v, int part, int parts) { sgd<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_sgd_double(char** q, const int64_t* v, int part, int parts) { sgd<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_momentum_float(char** q, const int64_t* v, int part, int parts) { momentum<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_momentum_double(char** q, const int64_t* v, int part, int parts) { momentum<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adam_float(char** q, const int64_t* v, int part, int parts) { adam<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adam_double(char** q, const int64_t* v, int part, int parts) { adam<double>(q, v, part, parts); }
// new_step, step: after the update, which reads the old count on every thread.
GRADLAB_KERNEL gradlab_count_step(char** q, const int64_t*, int, int) { *(float*)q[0] = *(const float*)q[1] + 1; }
