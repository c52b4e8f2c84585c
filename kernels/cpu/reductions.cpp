// Sums, means and extremes of (outer, n, inner) along the middle, the sizes given as parameters: for rows that run by themselves
// (backends/native/general). What is added up is cut into pieces that do not depend on the number of threads.
#include "runtime.h"
#include "scalar_math.h"

namespace {

constexpr int LANES = 32;       // running totals of a row: they vectorise, and keep a long float sum accurate
constexpr int64_t BLOCK = 128;  // elements added up in a running total before it is added to the final one
constexpr int64_t COLUMNS = 256;

template <typename T> struct Sum {
  using Lane = T;
  using Total = double;
  static constexpr T START = 0;
  static T of(T x) { return x; }
  static T join(T a, T b) { return a + b; }
  static double total(double a, double b) { return a + b; }
};
// In double: squares of float neither overflow nor vanish there.
struct Squares {
  using Lane = double;
  using Total = double;
  static constexpr double START = 0;
  static double of(float x) { return double(x) * double(x); }
  static double join(double a, double b) { return a + b; }
  static double total(double a, double b) { return a + b; }
};
template <typename T> struct Largest {
  using Lane = T;
  using Total = T;
  static constexpr T START = -T(__builtin_inf());
  static T of(T x) { return x; }
  static T join(T a, T b) { return gradlab::maximum(a, b); }
  static T total(T a, T b) { return join(a, b); }
  static bool beyond(T a, T b) { return a > b; }
};
template <typename T> struct Smallest {
  using Lane = T;
  using Total = T;
  static constexpr T START = T(__builtin_inf());
  static T of(T x) { return x; }
  static T join(T a, T b) { return gradlab::minimum(a, b); }
  static T total(T a, T b) { return join(a, b); }
  static bool beyond(T a, T b) { return a < b; }
};
template <typename R> constexpr bool extreme = false;
template <typename T> constexpr bool extreme<Largest<T>> = true;
template <typename T> constexpr bool extreme<Smallest<T>> = true;

// An extreme of a row: numbers in one instruction each, NaN noted beside them.
template <typename T, typename R> T extreme_of_row(const T* x, int64_t n) {
  T lane[LANES], lost[LANES];
  for (int j = 0; j < LANES; ++j) lane[j] = R::START, lost[j] = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; ++j) {
      const T v = x[i + j];
      lane[j] = R::beyond(v, lane[j]) ? v : lane[j];
      lost[j] += v * T(0);  // NaN of an infinity, too
    }
  T result = R::START;
  bool odd = false;
  for (int j = 0; j < LANES; ++j) result = R::join(result, lane[j]), odd |= lost[j] != lost[j];
  for (int64_t k = 0; odd && k < i; ++k) result = R::join(result, x[k]);
  for (; i < n; ++i) result = R::join(result, x[i]);
  return result;
}

template <typename T, typename R> typename R::Total of_row(const T* x, int64_t n) {
  if constexpr (extreme<R>) return extreme_of_row<T, R>(x, n);
  using Total = typename R::Total;
  using Lane = typename R::Lane;
  Total result = Total(R::START);
  int64_t i = 0;
  while (n - i >= LANES) {
    Lane lane[LANES];
    for (int j = 0; j < LANES; ++j) lane[j] = R::of(x[i + j]);
    i += LANES;
    for (int64_t k = 1; k < BLOCK && n - i >= LANES; ++k, i += LANES)
      for (int j = 0; j < LANES; ++j) lane[j] = R::join(lane[j], R::of(x[i + j]));
    for (int half = LANES / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lane[j] = R::join(lane[j], lane[j + half]);
    result = R::total(result, Total(lane[0]));
  }
  if (i < n) {
    Lane rest = R::of(x[i++]);
    for (; i < n; ++i) rest = R::join(rest, R::of(x[i]));
    result = R::total(result, Total(rest));
  }
  return result;
}

// What becomes of a total: it is divided by a number, or its root is taken.
constexpr int64_t ROOT = -1;
template <typename T, typename Total> T finished(Total value, int64_t divisor) {
  return divisor == 1 ? T(value) : divisor == ROOT ? T(__builtin_sqrt(double(value))) : T(double(value) / double(divisor));
}

// Parameters: outer, n, inner, pieces, the length of one, and what totals are divided by, or ROOT, or 0 where they stay totals.
template <typename T, typename R> void reduced(char* to, const T* x, const int64_t* v, int part, int parts) {
  using Total = typename R::Total;
  const int64_t outer = v[0], n = v[1], inner = v[2], pieces = v[3], each = v[4];
  const auto put = [&](int64_t at, Total value) {
    if (v[5] == 0) ((Total*)to)[at] = value;
    else ((T*)to)[at] = finished<T>(value, v[5]);
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
    typename R::Lane sum[COLUMNS];
    for (int64_t j = 0; j < wide; ++j) result[j] = Total(R::START);
    for (int64_t b = first; b < last; b += BLOCK) {
      const int64_t end = b + BLOCK < last ? b + BLOCK : last;
      const T* row = x + (o * n + b) * inner + left;
      for (int64_t j = 0; j < wide; ++j) sum[j] = R::of(row[j]);
      for (int64_t r = b + 1; r < end; ++r) {
        row += inner;
        for (int64_t j = 0; j < wide; ++j) sum[j] = R::join(sum[j], R::of(row[j]));
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
    y[i] = finished<T>(result, v[3]);
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
GRADLAB_KERNEL gradlab_euclidean_float(char** p, const int64_t* v, int part, int parts) { reduced<float, Squares>(p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_euclidean_join_float(char** p, const int64_t* v, int part, int parts) { joined<float, Squares>((float*)p[0], (double*)p[1], v, part, parts); }
