// Connectionist temporal classification (Graves et al., 2006): the losses of sequences, and their gradients.
//
// The path of a sequence is blank, label, blank, …, blank. What arrives in each of its places, alpha, and what leads from there to its end,
// beta, are logarithms about their largest, which is added up beside them in double: so they keep their digits however long a sequence is.
// The share of a place in all alignments is exp(alpha + beta) over the sum of these at its step.
#include "aligned.h"
#include "exponentials.h"

namespace {

constexpr float NEVER = -1e30f;  // the logarithm of what is impossible; finite, so that differences are numbers
constexpr int64_t EDGE = 2;      // places in front of and behind a path, which nothing arrives from

inline float power(float x) { return exp_below(x); }
inline double power(double x) { return gradlab::exp(x); }

// Rows are so many whole vectors: behind a path nothing arrives.
constexpr int64_t BLOCK = 16;
template <class F> inline __attribute__((always_inline)) void all_of(int64_t width, F each) {
  for (int64_t first = 0; first < width; first += BLOCK)
#pragma GCC ivdep
    for (int64_t j = 0; j < BLOCK; ++j) each(first + j, j);
}
template <class T> inline T most(const T* x, int64_t width) {
  T lane[BLOCK];
  for (int64_t j = 0; j < BLOCK; ++j) lane[j] = NEVER;
  all_of(width, [&](int64_t s, int64_t j) { lane[j] = x[s] > lane[j] ? x[s] : lane[j]; });
  for (int64_t half = BLOCK / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
  return lane[0];
}
template <class T> inline T sum_of(const T* x, int64_t width) {
  T lane[BLOCK] = {};
  all_of(width, [&](int64_t s, int64_t j) { lane[j] += x[s]; });
  for (int64_t half = BLOCK / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}

// to = log(exp(from) + exp(the place before) + exp(the one before that, where labels may follow each other)). BACK: places behind.
template <class T, bool BACK> inline void joined(const T* __restrict__ from, const T* __restrict__ skip, T* __restrict__ to, int64_t width) {
  constexpr int64_t D = BACK ? -1 : 1;
  all_of(width, [=](int64_t s, int64_t) {
    const T a = from[s], b = from[s - D], c = from[s - 2 * D] + skip[BACK ? s + 2 : s];
    const T near = a > b ? a : b, m = c > near ? c : near;
    to[s] = m + gradlab::log(power(a - m) + power(b - m) + power(c - m));
  });
}

struct Batch {
  int64_t steps, count, classes, places, blank, infinity_is_zero;  // places: of targets in a row; -1 where all targets lie in one
  const int64_t *targets, *inputs, *labels;
  int64_t all;  // how many targets there are
};
inline Batch batch(const int64_t* v, char** p) {
  return {v[0], v[1], v[2], v[3], v[4], v[5], (const int64_t*)p[0], (const int64_t*)p[1], (const int64_t*)p[2], v[6]};
}

// One sequence: its path, and room for rows of it.
template <class T> struct Sequence {
  const Batch& of;
  const T* x;
  int64_t n, steps, labels, end, width, stride;  // end: of the path; width: of its rows
  const int64_t* target;
  bool sound;

  Sequence(const Batch& of, const T* x, int64_t n) : of(of), x(x + n * of.classes), n(n), steps(of.inputs[n]), labels(of.labels[n]) {
    end = 2 * labels + 1, width = (end + BLOCK - 1) / BLOCK * BLOCK, stride = width + 2 * EDGE;
    int64_t first = of.places * n;
    if (of.places < 0) {
      first = 0;
      for (int64_t i = 0; i < n; ++i) first += of.labels[i] < 0 ? 0 : of.labels[i];
    }
    target = of.targets + first;
    sound = steps >= 0 && steps <= of.steps && labels >= 0 && (of.places < 0 ? labels <= of.all - first : labels <= of.places);
    for (int64_t i = 0; sound && i < labels; ++i) sound = target[i] >= 0 && target[i] < of.classes;
  }
  const T* row(int64_t t) const { return x + t * of.count * of.classes; }

  void edges(T* at) const {
    for (int64_t e = 1; e <= EDGE; ++e) at[-e] = at[width + e - 1] = NEVER;
  }
  // skip[s]: 0 where a label may follow the one before directly. Two more places are read on the way back.
  void skips(T* skip) const {
    for (int64_t s = -EDGE; s < width + EDGE; ++s) skip[s] = NEVER;
    for (int64_t i = 1; i < labels; ++i) skip[2 * i + 1] = target[i] != target[i - 1] ? T(0) : T(NEVER);
  }
  void own(int64_t t, T* to) const {
    const T* const from = row(t);
    const T blank = from[of.blank];
    for (int64_t i = 0; i < labels; ++i) to[2 * i] = blank, to[2 * i + 1] = from[target[i]];
    to[end - 1] = blank;
    for (int64_t s = end; s < width; ++s) to[s] = NEVER;
  }
  // at += what the step itself has; then about their largest, which is given back.
  T settled(T* __restrict__ at, const T* __restrict__ own) const {
    all_of(width, [=](int64_t s, int64_t) {
      const T y = at[s] + own[s];
      at[s] = y < NEVER ? T(NEVER) : y;
    });
    const T m = most(at, width);
    if (!(m > NEVER / 2)) return 0;
    all_of(width, [=](int64_t s, int64_t) { at[s] -= m; });
    return m;
  }
  // The loss. alpha: room for a row of each step, `apart` from each other, or for two in turn. found: where the last one is.
  double forward(T* alpha, int64_t apart, const T* skip, T* taken) const {
    double about = 0;
    T* at = alpha;
    for (int64_t t = 0; t < steps; ++t) {
      T* const next = apart ? alpha + t * apart : alpha + (t & 1) * stride;
      edges(next);
      if (t == 0)
        for (int64_t s = 0; s < width; ++s) next[s] = s < 2 ? T(0) : T(NEVER);
      else joined<T, false>(at, skip, next, width);
      own(t, taken);
      about += settled(next, taken);
      at = next;
    }
    if (steps == 0) return labels == 0 ? 0 : __builtin_inf();
    const T a = at[end - 1], b = labels ? at[end - 2] : T(NEVER), m = a > b ? a : b;
    const double loss = -(about + double(m) + double(gradlab::log(power(a - m) + power(b - m))));
    return loss > -NEVER / 2 ? __builtin_inf() : loss;
  }
  // The gradient, where the loss is g: of a class exp(x), less the shares of its places.
  void backward(T* __restrict__ slope, T g, T* alpha, T* beta, const T* skip, T* taken) const {
    const int64_t step = of.count * of.classes;
    T* const after = beta + stride;
    edges(beta);
    for (int64_t t = steps - 1; t >= 0; --t) {
      if (t == steps - 1)
        for (int64_t s = 0; s < width; ++s) beta[s] = s < end - 2 || s >= end ? T(NEVER) : T(0);
      else {
        own(t + 1, taken);
        settled(beta, taken);
        joined<T, true>(beta, skip, after, width);
        std::memcpy(beta, after, size_t(width) * sizeof(T));
      }
      const T* const a = alpha + t * stride;
      all_of(width, [=](int64_t s, int64_t) { after[s] = a[s] + beta[s]; });
      const T m = most(after, width);
      all_of(width, [=](int64_t s, int64_t) { after[s] = power(after[s] - m); });
      const T each = g / sum_of(after, width);
      T* const to = slope + n * of.classes + t * step;
      const T* const from = row(t);
      const int64_t whole = of.classes / BLOCK * BLOCK;
      all_of(whole, [=](int64_t c, int64_t) { to[c] = g * gradlab::exp(from[c]); });
      T rest[BLOCK] = {};
      for (int64_t c = whole; c < of.classes; ++c) rest[c - whole] = from[c];
      if (whole < of.classes) all_of(BLOCK, [&](int64_t c, int64_t) { rest[c] = g * gradlab::exp(rest[c]); });
      for (int64_t c = whole; c < of.classes; ++c) to[c] = rest[c - whole];
      T blanks = 0;
      for (int64_t i = 0; i < labels; ++i) blanks += after[2 * i], to[target[i]] -= after[2 * i + 1] * each;
      to[of.blank] -= (blanks + after[end - 1]) * each;
    }
  }
};

template <class T> void losses(char** p, const int64_t* v, int part, int parts) {
  const Batch of = batch(v, p + 2);
  Pieces pieces(p, part, parts, of.count);
  for (Share piece; pieces.next(piece);) {
    const Sequence<T> one(of, (const T*)p[1], piece.first);
    if (!one.sound) {
      *(int64_t*)p[5] = 1;
      continue;
    }
    Room<T> room(size_t(4 * one.stride));
    if (room.at == nullptr) return no_memory(p);
    T *const alpha = room.at + EDGE, *const skip = alpha + 2 * one.stride, *const taken = skip + one.stride;
    one.skips(skip);
    const double loss = one.forward(alpha, 0, skip, taken);
    ((T*)p[0])[piece.first] = of.infinity_is_zero && loss == __builtin_inf() ? T(0) : T(loss);
  }
}

template <class T> void slopes(char** p, const int64_t* v, int part, int parts) {
  const Batch of = batch(v, p + 3);
  Pieces pieces(p, part, parts, of.count);
  for (Share piece; pieces.next(piece);) {
    const int64_t n = piece.first;
    const Sequence<T> one(of, (const T*)p[2], n);
    if (!one.sound) {
      *(int64_t*)p[6] = 1;
      continue;
    }
    Room<T> room(size_t((one.steps + 4) * one.stride));
    if (room.at == nullptr) return no_memory(p);
    T *const beta = room.at + EDGE, *const skip = beta + 2 * one.stride, *const taken = skip + one.stride, *const alpha = taken + one.stride;
    one.skips(skip);
    const bool possible = one.forward(alpha, one.stride, skip, taken) != __builtin_inf();
    if (possible) one.backward((T*)p[0], ((const T*)p[1])[n], alpha, beta, skip, taken);
    for (int64_t t = possible ? one.steps : 0; t < of.steps; ++t)
      std::memset((T*)p[0] + (t * of.count + n) * of.classes, 0, size_t(of.classes) * sizeof(T));
  }
}

}  // namespace

// y, x, targets, input lengths, target lengths, status; parameters: steps, sequences, classes, targets in a row (-1: all lie in one), the
// blank, whether infinity is 0, targets
GRADLAB_KERNEL gradlab_ctc_loss(char** p, const int64_t* v, int part, int parts) { losses<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_ctc_loss_double(char** p, const int64_t* v, int part, int parts) { losses<double>(p, v, part, parts); }
// dx, dy, x, and the same
GRADLAB_KERNEL gradlab_ctc_slopes(char** p, const int64_t* v, int part, int parts) { slopes<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_ctc_slopes_double(char** p, const int64_t* v, int part, int parts) { slopes<double>(p, v, part, parts); }
