// Windows over volumes, and adaptive ones over lines, planes and volumes: largest elements, means, their gradient. Row-major.
#include "runtime.h"

namespace {

// One dimension: elements, windows; a window of `kernel` places, or, where that is 0, of what an adaptive pooling gives it.
struct Line {
  int64_t size, count, kernel, stride, padding, dilation;
};
// The elements of a window, from `first` to before `last`, and how many a mean is of.
struct Span {
  int64_t first, last, number;
};
inline Span span(const Line& s, int64_t o, bool include) {
  if (s.kernel == 0) {
    const int64_t first = o * s.size / s.count, last = ((o + 1) * s.size + s.count - 1) / s.count;
    return {first, last, last - first};
  }
  const int64_t start = o * s.stride - s.padding, end = start + (s.kernel - 1) * s.dilation + 1;
  const int64_t first = start < 0 ? start + (-start + s.dilation - 1) / s.dilation * s.dilation : start;
  const int64_t most = end < s.size + s.padding ? end : s.size + s.padding, last = end < s.size ? end : s.size;
  const int64_t number = include ? most - start : last - first;
  return {first, last > first ? last : first, number > 1 ? number : 1};
}

struct Volumes {
  int64_t planes;
  Line line[3];
  int64_t elements() const { return line[0].size * line[1].size * line[2].size; }
  int64_t windows() const { return line[0].count * line[1].count * line[2].count; }
};
constexpr int VOLUMES = 19;  // numbers
inline Volumes volumes(const int64_t* v) {
  Volumes s = {v[0], {}};
  for (int d = 0; d < 3; ++d) s.line[d] = {v[1 + d], v[4 + d], v[7 + d], v[10 + d], v[13 + d], v[16 + d]};
  return s;
}

// Each window of a part's planes in order: f(plane, number of the window, spans).
template <class F> inline void each(const Volumes& s, bool include, int part, int parts, const F& f) {
  const Share mine = share(s.planes, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    int64_t number = 0;
    for (int64_t a = 0; a < s.line[0].count; ++a) {
      const Span z = span(s.line[0], a, include);
      for (int64_t b = 0; b < s.line[1].count; ++b) {
        const Span y = span(s.line[1], b, include);
        for (int64_t c = 0; c < s.line[2].count; ++c) f(u, number++, z, y, span(s.line[2], c, include));
      }
    }
  }
}

template <class T> void largest(char** p, const int64_t* v, int part, int parts) {
  const Volumes s = volumes(v);
  each(s, false, part, parts, [&](int64_t u, int64_t number, Span z, Span y, Span x) {
    const T* plane = (const T*)p[2] + u * s.elements();
    const int64_t start = (z.first * s.line[1].size + y.first) * s.line[2].size + x.first;
    T best = plane[start];
    int64_t winner = start;
    for (int64_t i = z.first; i < z.last; i += s.line[0].dilation)
      for (int64_t j = y.first; j < y.last; j += s.line[1].dilation) {
        const int64_t row = (i * s.line[1].size + j) * s.line[2].size;
        for (int64_t k = x.first; k < x.last; k += s.line[2].dilation) {
          const T found = plane[row + k];
          const bool take = found > best || (found != found && best == best);  // the first one, or the first NaN
          best = take ? found : best, winner = take ? row + k : winner;
        }
      }
    ((T*)p[0])[u * s.windows() + number] = best;
    ((int64_t*)p[1])[u * s.windows() + number] = winner;
  });
}

template <class T> void mean(char** p, const int64_t* v, int part, int parts) {
  const Volumes s = volumes(v);
  const int64_t divisor = v[VOLUMES + 1];
  each(s, v[VOLUMES] != 0, part, parts, [&](int64_t u, int64_t number, Span z, Span y, Span x) {
    const T* plane = (const T*)p[1] + u * s.elements();
    T total = 0;
    for (int64_t i = z.first; i < z.last; ++i)
      for (int64_t j = y.first; j < y.last; ++j) {
        const T* row = plane + (i * s.line[1].size + j) * s.line[2].size;
        for (int64_t k = x.first; k < x.last; ++k) total += row[k];
      }
    ((T*)p[0])[u * s.windows() + number] = total / T(divisor != 0 ? divisor : z.number * y.number * x.number);
  });
}

template <class T> void spread(char** p, const int64_t* v, int part, int parts) {
  const Volumes s = volumes(v);
  const int64_t divisor = v[VOLUMES + 1];
  const Share mine = share(s.planes, part, parts);
  std::memset(p[0] + mine.first * s.elements() * sizeof(T), 0, size_t((mine.last - mine.first) * s.elements()) * sizeof(T));
  each(s, v[VOLUMES] != 0, part, parts, [&](int64_t u, int64_t number, Span z, Span y, Span x) {
    T* plane = (T*)p[0] + u * s.elements();
    const T g = ((const T*)p[1])[u * s.windows() + number] / T(divisor != 0 ? divisor : z.number * y.number * x.number);
    for (int64_t i = z.first; i < z.last; ++i)
      for (int64_t j = y.first; j < y.last; ++j) {
        T* row = plane + (i * s.line[1].size + j) * s.line[2].size;
        for (int64_t k = x.first; k < x.last; ++k) row[k] += g;
      }
  });
}

}  // namespace

// values, indices, x; parameters: planes, then three numbers each: elements, windows, kernel, stride, padding, dilation
GRADLAB_KERNEL gradlab_volume_max_pool(char** p, const int64_t* v, int part, int parts) { largest<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_volume_max_pool_double(char** p, const int64_t* v, int part, int parts) { largest<double>(p, v, part, parts); }
// y, x; likewise, then whether padding counts, and the divisor or 0
GRADLAB_KERNEL gradlab_volume_avg_pool(char** p, const int64_t* v, int part, int parts) { mean<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_volume_avg_pool_double(char** p, const int64_t* v, int part, int parts) { mean<double>(p, v, part, parts); }
// dx, dy; likewise
GRADLAB_KERNEL gradlab_volume_spread(char** p, const int64_t* v, int part, int parts) { spread<float>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_volume_spread_double(char** p, const int64_t* v, int part, int parts) { spread<double>(p, v, part, parts); }
