// Sums, means and extremes of (outer, n, inner) along the middle, the sizes given as parameters: for rows that run by themselves
// (backends/native/general). What is added up is cut into pieces that do not depend on the number of threads.
#include "runtime.h"
#include "scalar_math.h"

namespace {

constexpr int LANES = 32;       // running totals of a row: they vectorise, and keep a long float sum accurate
constexpr int64_t BLOCK = 128;  // elements added up in a running total before it is added to the final one
constexpr int64_t COLUMNS = 256;

template <typename T> struct Sum {
  using Total = double;
  static constexpr T START = 0;
  static T join(T a, T b) { return a + b; }
  static double total(double a, double b) { return a + b; }
};
template <typename T> struct Largest {
  using Total = T;
  static constexpr T START = -T(__builtin_inf());
  static T join(T a, T b) { return gradlab::maximum(a, b); }
  static T total(T a, T b) { return join(a, b); }
};
template <typename T> struct Smallest {
  using Total = T;
  static constexpr T START = T(__builtin_inf());
  static T join(T a, T b) { return gradlab::minimum(a, b); }
  static T total(T a, T b) { return join(a, b); }
};

template <typename T, typename R> typename R::Total of_row(const T* x, int64_t n) {
  using Total = typename R::Total;
  Total result = Total(R::START);
  int64_t i = 0;
  while (n - i >= LANES) {
    T lane[LANES];
    for (int j = 0; j < LANES; ++j) lane[j] = x[i + j];
    i += LANES;
    for (int64_t k = 1; k < BLOCK && n - i >= LANES; ++k, i += LANES)
      for (int j = 0; j < LANES; ++j) lane[j] = R::join(lane[j], x[i + j]);
    for (int half = LANES / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lane[j] = R::join(lane[j], lane[j + half]);
    result = R::total(result, Total(lane[0]));
  }
  if (i < n) {
    T rest = x[i++];
    for (; i < n; ++i) rest = R::join(rest, x[i]);
    result = R::total(result, Total(rest));
  }
  return result;
}

// Parameters: outer, n, inner, pieces, the length of one, and what totals are divided by, or 0 where they stay totals.
template <typename T, typename R> void reduced(char* to, const T* x, const int64_t* v, int part, int parts) {
  using Total = typename R::Total;
  const int64_t outer = v[0], n = v[1], inner = v[2], pieces = v[3], each = v[4];
  const double divisor = double(v[5]);
  const auto put = [&](int64_t at, Total value) {
    if (v[5] == 0) ((Total*)to)[at] = value;
    else ((T*)to)[at] = v[5] == 1 ? T(value) : T(double(value) / divisor);
  };
  if (inner == 1) {
    const Share mine = share(outer * pieces, part, parts);
    for (int64_t u = mine.first; u < mine.last; ++u) {
      const int64_t first = u % pieces * each, last = first + each < n ? first + each : n;
      put(u, of_row<T, R>(x + u / pieces * n + first, last - first));
    }
    return;
  }
  const int64_t blocks = (inner + COLUMNS - 1) / COLUMNS;
  const Share mine = share(outer * pieces * blocks, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t left = u % blocks * COLUMNS, wide = inner - left < COLUMNS ? inner - left : COLUMNS;
    const int64_t o = u / blocks / pieces, piece = u / blocks % pieces;
    const int64_t first = piece * each, last = first + each < n ? first + each : n;
    Total result[COLUMNS];
    T sum[COLUMNS];
    for (int64_t j = 0; j < wide; ++j) result[j] = Total(R::START);
    for (int64_t b = first; b < last; b += BLOCK) {
      const int64_t end = b + BLOCK < last ? b + BLOCK : last;
      const T* row = x + (o * n + b) * inner + left;
      for (int64_t j = 0; j < wide; ++j) sum[j] = row[j];
      for (int64_t r = b + 1; r < end; ++r) {
        row += inner;
        for (int64_t j = 0; j < wide; ++j) sum[j] = R::join(sum[j], row[j]);
      }
      for (int64_t j = 0; j < wide; ++j) result[j] = R::total(result[j], Total(sum[j]));
    }
    for (int64_t j = 0; j < wide; ++j) put((o * pieces + piece) * inner + left + j, result[j]);
  }
}

// Totals (outer, n, inner) put together; parameters: outer, n, inner, the divisor.
template <typename T, typename R> void joined(T* y, const typename R::Total* x, const int64_t* v, int part, int parts) {
  using Total = typename R::Total;
  const int64_t n = v[1], inner = v[2];
  const Share mine = share(v[0] * inner, part, parts, 64);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const Total* const from = x + i / inner * n * inner + i % inner;
    Total result = from[0];
    for (int64_t k = 1; k < n; ++k) result = R::total(result, from[k * inner]);
    y[i] = v[3] == 1 ? T(result) : T(double(result) / double(v[3]));
  }
}

}  // namespace

GRADLAB_KERNEL gradlab_sum_float(char** p, const int64_t* v, int part, int parts) { reduced<float, Sum<float>>(p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_sum_double(char** p, const int64_t* v, int part, int parts) { reduced<double, Sum<double>>(p[0], (double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amax_float(char** p, const int64_t* v, int part, int parts) { reduced<float, Largest<float>>(p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amax_double(char** p, const int64_t* v, int part, int parts) { reduced<double, Largest<double>>(p[0], (double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amin_float(char** p, const int64_t* v, int part, int parts) { reduced<float, Smallest<float>>(p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amin_double(char** p, const int64_t* v, int part, int parts) { reduced<double, Smallest<double>>(p[0], (double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_sum_join_float(char** p, const int64_t* v, int part, int parts) { joined<float, Sum<float>>((float*)p[0], (double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_sum_join_double(char** p, const int64_t* v, int part, int parts) { joined<double, Sum<double>>((double*)p[0], (double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amax_join_float(char** p, const int64_t* v, int part, int parts) { joined<float, Largest<float>>((float*)p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amax_join_double(char** p, const int64_t* v, int part, int parts) { joined<double, Largest<double>>((double*)p[0], (double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amin_join_float(char** p, const int64_t* v, int part, int parts) { joined<float, Smallest<float>>((float*)p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_amin_join_double(char** p, const int64_t* v, int part, int parts) { joined<double, Smallest<double>>((double*)p[0], (double*)p[1], v, part, parts); }
