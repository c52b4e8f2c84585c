// Updates of the less common optimizers, one pass each. What all elements share is computed in double, as the rows' NumPy functions do.
// Pointers: the new parameter and its new buffers, then parameter, gradient and buffers, then what is one number, then h. Parameters:
// elements, maximize, then what the kernel says. Counts of steps are put forward behind the update, which all threads read.
#include "runtime.h"

#include <cmath>

namespace {

template <typename T> struct Update {
  Share mine;
  T sign;
  Update(const int64_t* v, int part, int parts) : mine(share(v[0], part, parts, 64)), sign(v[1] ? T(-1) : T(1)) {}
  // Without decay p is left out: 0 times an infinite parameter would be no number.
  T decayed(T g, T p, T decay) const { return decay != T(0) ? sign * g + decay * p : sign * g; }
};

inline double next(const char* step) { return double(*(const float*)step) + 1; }

// p, mean, square, largest | p, g, mean, square, largest | step, h (lr, beta1, beta2, eps, weight_decay); decoupled
template <typename T> void amsgrad(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_mean = (T*)q[1], *new_square = (T*)q[2], *new_largest = (T*)q[3];
  const T *p = (const T*)q[4], *g = (const T*)q[5], *mean = (const T*)q[6], *square = (const T*)q[7], *largest = (const T*)q[8];
  const double step = next(q[9]), *h = (const double*)q[10], root = std::sqrt(1 - std::pow(h[2], step));
  const T size = T(h[0] * root / (1 - std::pow(h[1], step))), eps = T(h[3] * root);
  const T decay = v[2] ? T(0) : T(h[4]), shrink = v[2] ? T(1 - h[0] * h[4]) : T(1);
  const T share1 = T(1 - h[1]), keep = T(h[2]), share2 = T(1 - h[2]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), m = mean[i] + share1 * (d - mean[i]), s = keep * square[i] + share2 * (d * d);
    const T most = s > largest[i] || s != s ? s : largest[i];
    new_mean[i] = m, new_square[i] = s, new_largest[i] = most;
    out[i] = shrink * p[i] - size * (m / (std::sqrt(most) + eps));
  }
}

// p, square, mean, buffer | p, g, square, mean, buffer | h (lr, alpha, eps, weight_decay, momentum); whether there is a mean, a buffer
template <typename T> void rmsprop(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_square = (T*)q[1], *new_mean = (T*)q[2], *new_buffer = (T*)q[3];
  const T *p = (const T*)q[4], *g = (const T*)q[5], *square = (const T*)q[6], *mean = (const T*)q[7], *buffer = (const T*)q[8];
  const double* h = (const double*)q[9];
  const T lr = T(h[0]), keep = T(h[1]), share2 = T(1 - h[1]), eps = T(h[2]), decay = T(h[3]), momentum = T(h[4]);
  const bool centred = v[2], along = v[3];
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), s = keep * square[i] + share2 * (d * d);
    T under = s;
    if (centred) {
      const T m = mean[i] + share2 * (d - mean[i]), rest = s - m * m;
      new_mean[i] = m, under = rest < T(0) ? T(0) : rest;
    }
    T change = d / (std::sqrt(under) + eps);
    if (along) new_buffer[i] = change = momentum * buffer[i] + change;
    new_square[i] = s;
    out[i] = p[i] - lr * change;
  }
}

// p, total | p, g, total | step, h (lr, lr_decay, weight_decay, eps)
template <typename T> void adagrad(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_total = (T*)q[1];
  const T *p = (const T*)q[2], *g = (const T*)q[3], *total = (const T*)q[4];
  const double step = next(q[5]), *h = (const double*)q[6];
  const T lr = T(h[0] / (1 + (step - 1) * h[1])), decay = T(h[2]), eps = T(h[3]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), s = total[i] + d * d;
    new_total[i] = s;
    out[i] = p[i] - lr * (d / (std::sqrt(s) + eps));
  }
}

// p, square, delta | p, g, square, delta | h (lr, rho, eps, weight_decay)
template <typename T> void adadelta(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_square = (T*)q[1], *new_delta = (T*)q[2];
  const T *p = (const T*)q[3], *g = (const T*)q[4], *square = (const T*)q[5], *delta = (const T*)q[6];
  const double* h = (const double*)q[7];
  const T lr = T(h[0]), keep = T(h[1]), share2 = T(1 - h[1]), eps = T(h[2]), decay = T(h[3]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), s = keep * square[i] + share2 * (d * d);
    const T change = d * std::sqrt(delta[i] + eps) / std::sqrt(s + eps);
    new_square[i] = s, new_delta[i] = keep * delta[i] + share2 * (change * change);
    out[i] = p[i] - lr * change;
  }
}

// p, mean, largest | p, g, mean, largest | step, h (lr, beta1, beta2, eps, weight_decay)
template <typename T> void adamax(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_mean = (T*)q[1], *new_largest = (T*)q[2];
  const T *p = (const T*)q[3], *g = (const T*)q[4], *mean = (const T*)q[5], *largest = (const T*)q[6];
  const double step = next(q[7]), *h = (const double*)q[8];
  const T size = T(h[0] / (1 - std::pow(h[1], step))), share1 = T(1 - h[1]), keep = T(h[2]), eps = T(h[3]), decay = T(h[4]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), m = mean[i] + share1 * (d - mean[i]);
    const T near = std::fabs(d) + eps, far = keep * largest[i], most = far > near || far != far ? far : near;
    new_mean[i] = m, new_largest[i] = most;
    out[i] = p[i] - size * (m / most);
  }
}

// p, mean, square | p, g, mean, square | product, step, h (lr, beta1, beta2, eps, weight_decay, momentum_decay); decoupled
template <typename T> void nadam(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_mean = (T*)q[1], *new_square = (T*)q[2];
  const T *p = (const T*)q[3], *g = (const T*)q[4], *mean = (const T*)q[5], *square = (const T*)q[6];
  const double step = next(q[8]), *h = (const double*)q[9], lr = h[0], root = std::sqrt(1 - std::pow(h[2], step));
  const double mu = h[1] * (1 - 0.5 * std::pow(0.96, step * h[5])), following = h[1] * (1 - 0.5 * std::pow(0.96, (step + 1) * h[5]));
  const double done = double(float(double(*(const float*)q[7]) * mu));
  const T by_gradient = T(lr * (1 - mu) / (1 - done) * root), by_mean = T(lr * following / (1 - done * following) * root);
  const T eps = T(h[3] * root), decay = v[2] ? T(0) : T(h[4]), shrink = v[2] ? T(1 - lr * h[4]) : T(1);
  const T share1 = T(1 - h[1]), keep = T(h[2]), share2 = T(1 - h[2]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), m = mean[i] + share1 * (d - mean[i]), s = keep * square[i] + share2 * (d * d);
    new_mean[i] = m, new_square[i] = s;
    out[i] = shrink * p[i] - (by_gradient * d + by_mean * m) / (std::sqrt(s) + eps);
  }
}

// p, mean, square | p, g, mean, square | step, h (lr, beta1, beta2, eps, weight_decay); decoupled
template <typename T> void radam(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_mean = (T*)q[1], *new_square = (T*)q[2];
  const T *p = (const T*)q[3], *g = (const T*)q[4], *mean = (const T*)q[5], *square = (const T*)q[6];
  const double step = next(q[7]), *h = (const double*)q[8], far = std::pow(h[2], step), limit = 2 / (1 - h[2]) - 1;
  const double length = limit - 2 * step * far / (1 - far);
  const bool rectified = length > 5;
  double size = h[0] / (1 - std::pow(h[1], step));
  if (rectified) size *= std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length) * (1 - far));
  const T by = T(size), eps = T(h[3]), decay = v[2] ? T(0) : T(h[4]), shrink = v[2] ? T(1 - h[0] * h[4]) : T(1);
  const T share1 = T(1 - h[1]), keep = T(h[2]), share2 = T(1 - h[2]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.decayed(g[i], p[i], decay), m = mean[i] + share1 * (d - mean[i]), s = keep * square[i] + share2 * (d * d);
    new_mean[i] = m, new_square[i] = s;
    out[i] = shrink * p[i] - by * (rectified ? m / (std::sqrt(s) + eps) : m);
  }
}

// p, mean | p, g, mean | h (lr, beta1, beta2, weight_decay)
template <typename T> void lion(char** q, const int64_t* v, int part, int parts) {
  T *out = (T*)q[0], *new_mean = (T*)q[1];
  const T *p = (const T*)q[2], *g = (const T*)q[3], *mean = (const T*)q[4];
  const double* h = (const double*)q[5];
  const T lr = T(h[0]), keep1 = T(h[1]), share1 = T(1 - h[1]), keep2 = T(h[2]), share2 = T(1 - h[2]), shrink = T(1 - h[0] * h[3]);
  const Update<T> u(v, part, parts);
#pragma GCC ivdep
  for (int64_t i = u.mine.first; i < u.mine.last; ++i) {
    const T d = u.sign * g[i], c = keep1 * mean[i] + share1 * d, way = c > T(0) ? T(1) : c < T(0) ? T(-1) : c;
    new_mean[i] = keep2 * mean[i] + share2 * d;
    out[i] = shrink * p[i] - lr * way;
  }
}

}  // namespace

GRADLAB_KERNEL gradlab_amsgrad_float(char** q, const int64_t* v, int part, int parts) { amsgrad<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_amsgrad_double(char** q, const int64_t* v, int part, int parts) { amsgrad<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_rmsprop_float(char** q, const int64_t* v, int part, int parts) { rmsprop<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_rmsprop_double(char** q, const int64_t* v, int part, int parts) { rmsprop<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adagrad_float(char** q, const int64_t* v, int part, int parts) { adagrad<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adagrad_double(char** q, const int64_t* v, int part, int parts) { adagrad<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adadelta_float(char** q, const int64_t* v, int part, int parts) { adadelta<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adadelta_double(char** q, const int64_t* v, int part, int parts) { adadelta<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adamax_float(char** q, const int64_t* v, int part, int parts) { adamax<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_adamax_double(char** q, const int64_t* v, int part, int parts) { adamax<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_nadam_float(char** q, const int64_t* v, int part, int parts) { nadam<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_nadam_double(char** q, const int64_t* v, int part, int parts) { nadam<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_radam_float(char** q, const int64_t* v, int part, int parts) { radam<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_radam_double(char** q, const int64_t* v, int part, int parts) { radam<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_lion_float(char** q, const int64_t* v, int part, int parts) { lion<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_lion_double(char** q, const int64_t* v, int part, int parts) { lion<double>(q, v, part, parts); }
// NAdam's new product of momenta, new_step | product, step, h
GRADLAB_KERNEL gradlab_count_nadam(char** q, const int64_t*, int, int) {
  const double step = next(q[3]), *h = (const double*)q[4];
  *(float*)q[0] = float(double(*(const float*)q[2]) * (h[1] * (1 - 0.5 * std::pow(0.96, step * h[5]))));
  *(float*)q[1] = float(step);
}
