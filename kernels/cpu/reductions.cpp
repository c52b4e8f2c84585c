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
  template <typename V> static V of(V x) { return x; }
  template <typename V> static V join(V a, V b) { return a + b; }
  static double total(double a, double b) { return a + b; }
};
// In double: squares of float neither overflow nor vanish there.
struct Squares {
  using Lane = double;
  using Total = double;
  static constexpr double START = 0;
  template <typename V> static V of(V x) { return x * x; }
  template <typename V> static V join(V a, V b) { return a + b; }
  static double total(double a, double b) { return a + b; }
};
template <typename T> struct Largest {
  using Lane = T;
  using Total = T;
  static constexpr T START = -T(__builtin_inf());
  static T of(T x) { return x; }
  static T join(T a, T b) { return gradlab::maximum(a, b); }
  static T total(T a, T b) { return join(a, b); }
  template <typename V> static auto beyond(V a, V b) { return a > b; }
};
template <typename T> struct Smallest {
  using Lane = T;
  using Total = T;
  static constexpr T START = T(__builtin_inf());
  static T of(T x) { return x; }
  static T join(T a, T b) { return gradlab::minimum(a, b); }
  static T total(T a, T b) { return join(a, b); }
  template <typename V> static auto beyond(V a, V b) { return a < b; }
};
template <typename R> constexpr bool extreme = false;
template <typename T> constexpr bool extreme<Largest<T>> = true;
template <typename T> constexpr bool extreme<Smallest<T>> = true;

// LANES numbers in vectors of 32 bytes.
template <typename N> struct Lanes {
  typedef N Line __attribute__((vector_size(32)));
  static constexpr int EACH = 32 / sizeof(N), LINES = LANES / EACH;
  Line line[LINES];
};
template <typename N, typename T> inline typename Lanes<N>::Line line_of(const T* x) {
  constexpr int EACH = Lanes<N>::EACH;
  typedef T Given __attribute__((vector_size(EACH * sizeof(T))));
  Given v;
  std::memcpy(&v, x, sizeof v);
  return __builtin_convertvector(v, typename Lanes<N>::Line);
}
// Each of the first half with its fellow of the second, until one is left.
template <typename N, typename How> inline N folded(Lanes<N>& a, How how) {
  for (int half = a.LINES / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) a.line[j] = how(a.line[j], a.line[j + half]);
  auto v = a.line[0];
  if constexpr (Lanes<N>::EACH == 8) {
    v = how(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
    v = how(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    v = how(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  } else {
    v = how(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
    v = how(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
  }
  return v[0];
}

// An extreme of a row: numbers in one instruction each, NaN noted beside them.
template <typename T, typename R> T extreme_of_row(const T* x, int64_t n) {
  using Line = typename Lanes<T>::Line;
  Lanes<T> lane, lost = {};
  for (auto& line : lane.line) line = Line{} + R::START;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < lane.LINES; ++j) {
      const Line v = line_of<T>(x + i + j * lane.EACH);
      lane.line[j] = R::beyond(v, lane.line[j]) ? v : lane.line[j];
      lost.line[j] += v * T(0);  // NaN of an infinity, too
    }
  T result = folded(lane, [](Line a, Line b) { return R::beyond(b, a) ? b : a; });
  const T odd = folded(lost, [](Line a, Line b) { return a + b; });
  for (int64_t k = 0; odd != odd && k < i; ++k) result = R::join(result, x[k]);
  for (; i < n; ++i) result = R::join(result, x[i]);
  return result;
}

template <typename T, typename R> typename R::Total sum_of_row(const T* x, int64_t n) {
  using Total = typename R::Total;
  using Lane = typename R::Lane;
  using Line = typename Lanes<Lane>::Line;
  Total result = Total(R::START);
  int64_t i = 0;
  while (n - i >= LANES) {
    Lanes<Lane> lane;
    for (int j = 0; j < lane.LINES; ++j) lane.line[j] = R::of(line_of<Lane>(x + i + j * lane.EACH));
    i += LANES;
    for (int64_t k = 1; k < BLOCK && n - i >= LANES; ++k, i += LANES)
      for (int j = 0; j < lane.LINES; ++j) lane.line[j] = R::join(lane.line[j], R::of(line_of<Lane>(x + i + j * lane.EACH)));
    result = R::total(result, Total(folded(lane, [](Line a, Line b) { return R::join(a, b); })));
  }
  if (i < n) {
    Lane rest = R::of(Lane(x[i++]));
    for (; i < n; ++i) rest = R::join(rest, R::of(Lane(x[i])));
    result = R::total(result, Total(rest));
  }
  return result;
}

template <typename T, typename R> typename R::Total of_row(const T* x, int64_t n) {
  if constexpr (extreme<R>) return extreme_of_row<T, R>(x, n);
  else return sum_of_row<T, R>(x, n);
}

// The variance of rows: of the distances from a rounded mean the squares' sum, less what the distances' own sum takes from it, over `divisor`.
// Parameters: rows, their length, the divisor.
template <typename T> void variance(T* y, const T* x, const int64_t* v, int part, int parts) {
  using Line = typename Lanes<T>::Line;
  const int64_t n = v[1];
  const double divisor = real(v[2]);
  const auto plus = [](Line a, Line b) { return a + b; };
  const Share mine = share(v[0], part, parts);
  for (int64_t r = mine.first; r < mine.last; ++r) {
    const T* const row = x + r * n;
    const T mean = T(of_row<T, Sum<T>>(row, n) / double(n));
    double rest = 0, squares = 0;
    int64_t i = 0;
    while (n - i >= LANES) {
      Lanes<T> far = {}, far2 = {};
      for (int64_t k = 0; k < BLOCK && n - i >= LANES; ++k, i += LANES)
        for (int j = 0; j < far.LINES; ++j) {
          const Line d = line_of<T>(row + i + j * far.EACH) - mean;
          far.line[j] += d, far2.line[j] += d * d;
        }
      rest += folded(far, plus), squares += folded(far2, plus);
    }
    for (; i < n; ++i) {
      const T d = row[i] - mean;
      rest += d, squares += d * d;
    }
    const double less = squares - rest * (rest / double(n));
    y[r] = T((squares - squares == 0 ? (less < 0 ? 0 : less) : squares) / divisor);
  }
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
      for (int64_t j = 0; j < wide; ++j) sum[j] = R::of(typename R::Lane(row[j]));
      for (int64_t r = b + 1; r < end; ++r) {
        row += inner;
        for (int64_t j = 0; j < wide; ++j) sum[j] = R::join(sum[j], R::of(typename R::Lane(row[j])));
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
GRADLAB_KERNEL gradlab_var_float(char** p, const int64_t* v, int part, int parts) { variance((float*)p[0], (const float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_var_double(char** p, const int64_t* v, int part, int parts) { variance((double*)p[0], (const double*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_euclidean_float(char** p, const int64_t* v, int part, int parts) { reduced<float, Squares>(p[0], (float*)p[1], v, part, parts); }
GRADLAB_KERNEL gradlab_euclidean_join_float(char** p, const int64_t* v, int part, int parts) { joined<float, Squares>((float*)p[0], (double*)p[1], v, part, parts); }
