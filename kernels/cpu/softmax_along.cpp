// Softmax, cross-entropy and their derivatives along the middle dimension of [outer, n, inner], of floats and doubles. Columns go side by side.
#include "exponentials.h"

namespace {

constexpr int COLUMNS = 32;

// Neighbouring columns, `Most` of them (where they are full, which the compiler then knows) or fewer: element k of column j lies at
// `begin` + k · step + j.
template <int Most, bool Full> struct Columns {
  static constexpr int most = Most;
  int64_t n, step, begin, row;  // row: the first one's number
  int number;
  int width() const { return Full ? Most : number; }
};

// Calls of(columns) for a part's share of [outer, n, inner].
template <typename F> inline void each_columns(int64_t outer, int64_t n, int64_t inner, int part, int parts, F of) {
  if (inner == 1) {
    const Share mine = share(outer, part, parts);
    for (int64_t o = mine.first; o < mine.last; ++o) of(Columns<1, true>{n, 1, o * n, o, 1});
    return;
  }
  const int64_t blocks = (inner + COLUMNS - 1) / COLUMNS;
  const Share mine = share(outer * blocks, part, parts);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const int64_t o = i / blocks, first = i % blocks * COLUMNS;
    if (inner - first >= COLUMNS)
      of(Columns<COLUMNS, true>{n, inner, o * n * inner + first, o * inner + first, COLUMNS});
    else
      of(Columns<COLUMNS, false>{n, inner, o * n * inner + first, o * inner + first, int(inner - first)});
  }
}

template <typename T, int Most> struct Totals {
  T top[Most];
  double sum[Most];  // of exponentials relative to the largest one

  // y: the exponentials.
  template <typename C> Totals(const C& c, const T* x, T* y) {
    for (int j = 0; j < c.width(); ++j) top[j] = T(-__builtin_inf()), sum[j] = 0;
    if constexpr (Most == 1) of_row(c.n, x, y);
    else of_columns(c, x, y);
  }
  template <typename C> void of_columns(const C& c, const T* x, T* y) {
    for (int64_t k = 0; k < c.n; ++k) {
      const T* const line = x + k * c.step;
      for (int j = 0; j < c.width(); ++j) top[j] = line[j] > top[j] || line[j] != line[j] ? line[j] : top[j];
    }
    for (int64_t k = 0; k < c.n; ++k) {
      const T* const line = x + k * c.step;
      T* const out = y + k * c.step;
      for (int j = 0; j < c.width(); ++j) {
        const T e = gradlab::exp(line[j] - top[j]);
        out[j] = e;
        sum[j] += double(e);
      }
    }
  }
  // In running totals, which vectorise.
  void of_row(int64_t n, const T* x, T* y) {
    T most[ADDENDS];
    double lane[ADDENDS] = {};
    for (int j = 0; j < ADDENDS; ++j) most[j] = top[0];
    int64_t k = 0;
    for (; k + ADDENDS <= n; k += ADDENDS)
      for (int j = 0; j < ADDENDS; ++j) most[j] = x[k + j] > most[j] || x[k + j] != x[k + j] ? x[k + j] : most[j];
    for (; k < n; ++k) most[0] = x[k] > most[0] || x[k] != x[k] ? x[k] : most[0];
    for (int j = 0; j < ADDENDS; ++j) top[0] = most[j] > top[0] || most[j] != most[j] ? most[j] : top[0];
    for (k = 0; k < n; ++k) y[k] = gradlab::exp(x[k] - top[0]);
    for (k = 0; k + ADDENDS <= n; k += ADDENDS)
      for (int j = 0; j < ADDENDS; ++j) lane[j] += double(y[k + j]);
    for (; k < n; ++k) sum[0] += double(y[k]);
    for (int j = 0; j < ADDENDS; ++j) sum[0] += lane[j];
  }
  // Where the others are little beside the largest, by their own sum. y: the exponentials.
  template <typename C> T logarithm(const C& c, const T* y, int j) const {
    if (!(sum[j] < 1 / double(SURE))) return T(std::log(sum[j]));
    double rest = 0;
    for (int64_t k = 0; k < c.n; ++k) rest += y[k * c.step + j] == T(1) ? 0.0 : double(y[k * c.step + j]);
    return T(std::log1p(rest));
  }
};

// y, x; parameters: outer, n, inner
template <typename T> inline void softmax(char** p, const int64_t* v, int part, int parts) {
  each_columns(v[0], v[1], v[2], part, parts, [&](auto c) {
    T* const y = (T*)p[0] + c.begin;
    const Totals<T, c.most> totals(c, (const T*)p[1] + c.begin, y);
    T scale[c.most];
    for (int j = 0; j < c.width(); ++j) scale[j] = T(1 / totals.sum[j]);
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) y[k * c.step + j] *= scale[j];
  });
}

template <typename T> inline void log_softmax(char** p, const int64_t* v, int part, int parts) {
  each_columns(v[0], v[1], v[2], part, parts, [&](auto c) {
    T* const y = (T*)p[0] + c.begin;
    const T* const x = (const T*)p[1] + c.begin;
    const Totals<T, c.most> totals(c, x, y);
    T shift[c.most];
    for (int j = 0; j < c.width(); ++j) shift[j] = totals.logarithm(c, y, j);
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) y[k * c.step + j] = (x[k * c.step + j] - totals.top[j]) - shift[j];
  });
}

// dx, dy, y; parameters: outer, n, inner. r·(dy - Σ dy·r), relative to the likeliest element's dy.
template <typename T> inline void softmax_backward(char** p, const int64_t* v, int part, int parts) {
  each_columns(v[0], v[1], v[2], part, parts, [&](auto c) {
    T* const dx = (T*)p[0] + c.begin;
    const T *const dy = (const T*)p[1] + c.begin, *const r = (const T*)p[2] + c.begin;
    T top[c.most] = {}, base[c.most] = {}, dot[c.most];
    double sum[c.most] = {};
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) {
        const bool more = r[k * c.step + j] > top[j];
        base[j] = more ? dy[k * c.step + j] : base[j];
        top[j] = more ? r[k * c.step + j] : top[j];
      }
    for (int j = 0; j < c.width(); ++j) base[j] = top[j] > T(SURE) ? base[j] : T(0);
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) {
        const T gap = dy[k * c.step + j] - base[j];
        sum[j] += gap == 0 ? 0.0 : double(gap) * double(r[k * c.step + j]);
      }
    for (int j = 0; j < c.width(); ++j) dot[j] = T(sum[j]);
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) {
        const T gap = dy[k * c.step + j] - base[j] - dot[j];
        dx[k * c.step + j] = gap == 0 ? T(0) : gap * r[k * c.step + j];
      }
  });
}

template <typename T> inline void log_softmax_backward(char** p, const int64_t* v, int part, int parts) {
  each_columns(v[0], v[1], v[2], part, parts, [&](auto c) {
    T* const dx = (T*)p[0] + c.begin;
    const T *const dy = (const T*)p[1] + c.begin, *const r = (const T*)p[2] + c.begin;
    T sum[c.most], top[c.most], most = T(-__builtin_inf());
    double total[c.most] = {};
    for (int j = 0; j < c.width(); ++j) top[j] = most;
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) total[j] += double(dy[k * c.step + j]);
    for (int j = 0; j < c.width(); ++j) sum[j] = T(total[j]);
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) {
        const T g = dy[k * c.step + j], found = r[k * c.step + j];
        top[j] = found > top[j] ? found : top[j];
        dx[k * c.step + j] = sum[j] == 0 ? g : g - gradlab::exp(found) * sum[j];
      }
    for (int j = 0; j < c.width(); ++j) most = top[j] > most ? top[j] : most;
    for (int64_t k = 0; k < c.n && most > T(LOG_SURE); ++k)
      for (int j = 0; j < c.width(); ++j) {
        const T g = dy[k * c.step + j], found = r[k * c.step + j];
        if (found > T(LOG_SURE) && sum[j] != 0) dx[k * c.step + j] = -g * gradlab::expm1(found) - gradlab::exp(found) * T(total[j] - double(g));
      }
  });
}

// p, losses, x (which may be p), target, status; parameters: outer, classes, inner, ignore_index
template <typename T> inline void cross_entropy(char** q, const int64_t* v, int part, int parts) {
  each_columns(v[0], v[1], v[2], part, parts, [&](auto c) {
    T *const y = (T*)q[0] + c.begin, *const losses = (T*)q[1] + c.row;
    const T* const x = (const T*)q[2] + c.begin;
    const int64_t* const target = (const int64_t*)q[3] + c.row;
    for (int j = 0; j < c.width(); ++j) {
      const int64_t t = target[j];
      const bool there = t >= 0 && t < c.n;
      losses[j] = there ? x[t * c.step + j] : T(0);
      if (!there && t != v[3]) *(int64_t*)q[4] = 1;
    }
    const Totals<T, c.most> totals(c, x, y);
    T scale[c.most];
    for (int j = 0; j < c.width(); ++j) {
      scale[j] = T(1 / totals.sum[j]);
      losses[j] = target[j] == v[3] ? T(0) : totals.logarithm(c, y, j) - (losses[j] - totals.top[j]);
    }
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) y[k * c.step + j] *= scale[j];
  });
}

// dx, dy, p, target; parameters: outer, classes, inner, ignore_index, whether the mean was taken, whether dy has one element a target
template <typename T> inline void cross_entropy_backward(char** q, const int64_t* v, int part, int parts) {
  const T share_of_each = v[4] ? 1 / T(counting((const int64_t*)q[3], v[0] * v[2], v[3])) : T(1);
  each_columns(v[0], v[1], v[2], part, parts, [&](auto c) {
    T* const dx = (T*)q[0] + c.begin;
    const T *const dy = (const T*)q[1], *const r = (const T*)q[2] + c.begin;
    const int64_t* const target = (const int64_t*)q[3] + c.row;
    T g[c.most];
    for (int j = 0; j < c.width(); ++j) g[j] = target[j] == v[3] ? T(0) : dy[v[5] ? c.row + j : 0] * share_of_each;
    for (int64_t k = 0; k < c.n; ++k)
      for (int j = 0; j < c.width(); ++j) dx[k * c.step + j] = g[j] == 0 ? T(0) : r[k * c.step + j] * g[j];
    for (int j = 0; j < c.width(); ++j) {
      if (g[j] == 0) continue;
      T* const own = dx + target[j] * c.step + j;
      if (!(r[target[j] * c.step + j] > T(SURE))) {
        *own -= g[j];
        continue;
      }
      double others = 0;
      *own = 0;
      for (int64_t k = 0; k < c.n; ++k) others += double(dx[k * c.step + j]);
      *own = T(-others);
    }
  });
}

}  // namespace

GRADLAB_KERNEL gradlab_softmax_along(char** p, const int64_t* v, int part, int parts) { softmax<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_softmax_along_double(char** p, const int64_t* v, int part, int parts) { softmax<double>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_log_softmax_along(char** p, const int64_t* v, int part, int parts) { log_softmax<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_log_softmax_along_double(char** p, const int64_t* v, int part, int parts) { log_softmax<double>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_softmax_backward_along(char** p, const int64_t* v, int part, int parts) { softmax_backward<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_softmax_backward_along_double(char** p, const int64_t* v, int part, int parts) {
  softmax_backward<double>(p, v, part, parts);
}
GRADLAB_KERNEL gradlab_log_softmax_backward_along(char** p, const int64_t* v, int part, int parts) {
  log_softmax_backward<float>(p, v, part, parts);
}
GRADLAB_KERNEL gradlab_log_softmax_backward_along_double(char** p, const int64_t* v, int part, int parts) {
  log_softmax_backward<double>(p, v, part, parts);
}
GRADLAB_KERNEL gradlab_cross_entropy_along(char** q, const int64_t* v, int part, int parts) { cross_entropy<float>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_cross_entropy_along_double(char** q, const int64_t* v, int part, int parts) { cross_entropy<double>(q, v, part, parts); }
GRADLAB_KERNEL gradlab_cross_entropy_backward_along(char** q, const int64_t* v, int part, int parts) {
  cross_entropy_backward<float>(q, v, part, parts);
}
GRADLAB_KERNEL gradlab_cross_entropy_backward_along_double(char** q, const int64_t* v, int part, int parts) {
  cross_entropy_backward<double>(q, v, part, parts);
}
