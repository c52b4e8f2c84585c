// Sums, means, products, extremes and truths over any dimensions. A template; a program makes its own. What is reduced is known when that is
// compiled, or comes as the kernel's parameters; the order of additions, and so the result, is the same.
#ifndef GRADLAB_REDUCTIONS_H
#define GRADLAB_REDUCTIONS_H

#include "half.h"
#include "runtime.h"

#define GRADLAB_REDUCED inline __attribute__((always_inline))

namespace gradlab {

constexpr int REDUCED_DIMS = 12;

struct Reduced {
  int64_t results, count;        // how many, and of how many elements each
  int64_t kept_dims, reduced_dims;
  int64_t kept[REDUCED_DIMS], kept_steps[REDUCED_DIMS];  // innermost dimension first
  int64_t reduced[REDUCED_DIMS], reduced_steps[REDUCED_DIMS];
  // Of results side by side: how many along the innermost dimension and how far apart; rows that are added up as one; so many columns at a
  // time, in so many blocks; pieces of what is reduced, each of so many of the rows.
  int64_t width, step, fold, columns, blocks, units, pieces, each, rows;
};

constexpr int SUMS = 32;       // running totals of a row: they vectorise, and keep a long float sum accurate
constexpr int64_t RUN_OF = 128;  // elements added up in a running total before it is added to the final one
constexpr int64_t WIDEST = 128;  // columns that are reduced side by side, by one thread
constexpr int TOGETHER = 4;      // rows that are added at once where they lie at equal distances
constexpr int64_t EARLY = 16;  // rows: how early they are asked for, since a part of each is too short for the hardware to foresee the next

struct Plus {
  template <typename A, typename B> static GRADLAB_REDUCED A of(A a, B b) { return A(a + b); }
  template <typename T> static constexpr T start() { return T(0); }
};
struct Times {
  template <typename A, typename B> static GRADLAB_REDUCED A of(A a, B b) { return A(a * b); }
  template <typename T> static constexpr T start() { return T(1); }
};
template <typename T> constexpr T least() {
  if constexpr (is_floating<T>) return -T(__builtin_inf());
  else if constexpr (is_signed<T>) return T(T(1) << (sizeof(T) * 8 - 1));
  else return T(0);
}
struct Largest {
  template <typename A, typename B> static GRADLAB_REDUCED A of(A a, B b) { return maximum(a, A(b)); }
  template <typename T> static constexpr T start() { return least<T>(); }
};
struct Smallest {
  template <typename A, typename B> static GRADLAB_REDUCED A of(A a, B b) { return minimum(a, A(b)); }
  template <typename T> static constexpr T start() {
    if constexpr (is_floating<T>) return T(__builtin_inf());
    else return T(~least<T>());
  }
};
struct Any {
  template <typename A, typename B> static GRADLAB_REDUCED A of(A a, B b) { return A(a || bool(b)); }
  template <typename T> static constexpr T start() { return T(0); }
};
struct All {
  template <typename A, typename B> static GRADLAB_REDUCED A of(A a, B b) { return A(a && bool(b)); }
  template <typename T> static constexpr T start() { return T(1); }
};

GRADLAB_REDUCED int64_t offset_of(int64_t index, int64_t dims, const int64_t* sizes, const int64_t* steps) {
  int64_t offset = 0;
#pragma GCC unroll 4
  for (int64_t d = 0; d < dims; ++d) {
    const bool last = d == dims - 1;
    offset += (last ? index : index % sizes[d]) * steps[d];
    if (!last) index /= sizes[d];
  }
  return offset;
}

template <bool MEAN, typename T, typename Total> GRADLAB_REDUCED T finished(Total result, int64_t count) {
  if constexpr (MEAN) return T(result / (long long)count);
  else return T(result);
}

// Elements of one line added to the total; UNIT: they lie beside each other.
template <typename How, typename T, bool UNIT, typename Total, typename Line>
GRADLAB_REDUCED void add_line(Total& result, const Line& line, int64_t inner, int64_t given) {
  const int64_t step = UNIT ? 1 : given, whole = inner - inner % SUMS;
  for (int64_t b = 0; b < whole; b += RUN_OF * SUMS) {
    const int64_t end = b + RUN_OF * SUMS < whole ? b + RUN_OF * SUMS : whole;
    T lane[SUMS];
    for (int j = 0; j < SUMS; ++j) lane[j] = How::template start<T>();
    for (int64_t i = b; i < end; i += SUMS)
      for (int j = 0; j < SUMS; ++j) lane[j] = How::of(lane[j], line[(i + j) * step]);
    for (int half = SUMS / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lane[j] = How::of(lane[j], lane[j + half]);
    result = How::of(result, lane[0]);
  }
  if (whole != inner) {
    T rest = How::template start<T>();
    for (int64_t i = whole; i < inner; ++i) rest = How::of(rest, line[i * step]);
    result = How::of(result, rest);
  }
}

// One result after the other; the innermost dimension in SUMS running totals.
template <typename How, typename T, typename Total, bool MEAN, typename Y, typename X>
GRADLAB_REDUCED void reduce_rows(Y* y, const X& x, const Reduced& q, int part, int parts) {
  const int64_t inner = q.reduced_dims ? q.reduced[0] : 1, step = q.reduced_dims ? q.reduced_steps[0] : 1;
  const int64_t outer = q.count / inner, more = q.reduced_dims > 1 ? q.reduced_dims - 1 : 0;
  const Share mine = share(q.results, part, parts);
  for (int64_t o = mine.first; o < mine.last; ++o) {
    const int64_t offset = offset_of(o, q.kept_dims, q.kept, q.kept_steps);
    Total result = How::template start<Total>();
    for (int64_t r = 0; r < outer; ++r) {
      const auto line = x + (offset + offset_of(r, more, q.reduced + 1, q.reduced_steps + 1));
      if (step == 1) add_line<How, T, true>(result, line, inner, 1);
      else add_line<How, T, false>(result, line, inner, step);
    }
    y[o] = finished<MEAN, Y>(result, q.count);
  }
}

// Many results side by side along the innermost dimension, a block of columns at a time. PLAIN: elements are read, not computed.
template <typename How, typename T, typename Total, bool MEAN, bool PLAIN, bool UNIT, typename Y, typename X>
GRADLAB_REDUCED void reduce_columns_by(Y* y, const X& x, const Reduced& q, int part, int parts) {
  const int64_t step = UNIT ? 1 : q.step, far = q.reduced_steps[0];
  const bool equal = PLAIN && q.reduced_dims == 1 && q.each >= TOGETHER;
  const Share mine = share(q.units * q.pieces, part, parts);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t piece = u / q.units, o = u % q.units / q.blocks, first = u % q.blocks * q.columns;
    const int64_t wide = q.fold > 1 ? q.fold * q.width : q.width - first < q.columns ? q.width - first : q.columns;
    const int64_t from = piece * q.each, to = from + q.each < q.rows ? from + q.each : q.rows;
    const int64_t offset = offset_of(o, q.kept_dims - 1, q.kept + 1, q.kept_steps + 1);
    Total result[WIDEST];
    T part_of[WIDEST];
    for (int64_t j = 0; j < wide; ++j) result[j] = How::template start<Total>();
    for (int64_t b = from; b < to; b += RUN_OF) {
      const int64_t end = b + RUN_OF < to ? b + RUN_OF : to;
      for (int64_t j = 0; j < wide; ++j) part_of[j] = How::template start<T>();
      int64_t r = b;
      if constexpr (PLAIN) {  // TOGETHER at a time, in the same order as one after the other
        for (; equal && r + TOGETHER <= end; r += TOGETHER) {
          const auto row = x + (offset + r * far + first * step);
          if (UNIT)
            for (int64_t j = 0; j < wide; j += 64 / int64_t(sizeof(T) < 4 ? 8 : sizeof(T)))
              for (int k = 0; k < TOGETHER; ++k) __builtin_prefetch(row + j + (EARLY + k) * far);
          for (int64_t j = 0; j < wide; ++j) {
            T sum = part_of[j];
            for (int k = 0; k < TOGETHER; ++k) sum = How::of(sum, row[j * step + k * far]);
            part_of[j] = sum;
          }
        }
      }
      for (; r < end; ++r) {
        const auto row = x + (offset + offset_of(r, q.reduced_dims, q.reduced, q.reduced_steps) + first * step);
        for (int64_t j = 0; j < wide; ++j) part_of[j] = How::of(part_of[j], row[j * step]);
      }
      for (int64_t j = 0; j < wide; ++j) result[j] = How::of(result[j], part_of[j]);
    }
    if (q.fold > 1) {  // what is left behind the last whole rows, then the parts of these put together
      const int64_t whole = q.count / q.fold * q.fold * q.width;
      const auto rest = x + (offset + whole);
      if (piece == q.pieces - 1)
        for (int64_t j = 0; j < q.count * q.width - whole; ++j) result[j % q.width] = How::of(result[j % q.width], rest[j]);
      for (int64_t half = q.fold; half > 1;) {
        const int64_t both = half;
        half = (half + 1) / 2;
        for (int64_t j = half * q.width; j < both * q.width; ++j) result[j - half * q.width] = How::of(result[j - half * q.width], result[j]);
      }
    }
    for (int64_t j = 0; j < (q.fold > 1 ? q.width : wide); ++j)
      y[piece * q.results + o * q.width + first + j] = finished<MEAN, Y>(result[j], q.count);
  }
}
template <typename How, typename T, typename Total, bool MEAN, bool PLAIN, typename Y, typename X>
GRADLAB_REDUCED void reduce_columns(Y* y, const X& x, const Reduced& q, int part, int parts) {
  if (q.step == 1) reduce_columns_by<How, T, Total, MEAN, PLAIN, true>(y, x, q, part, parts);
  else reduce_columns_by<How, T, Total, MEAN, PLAIN, false>(y, x, q, part, parts);
}

// The results of pieces put together.
template <typename How, typename T, typename Total, bool MEAN> void put_together(T* y, const Total* x, const int64_t* v, int part, int parts) {
  const int64_t size = v[0], pieces = v[1], count = v[2];
  const Share mine = share(size, part, parts, 64);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    Total result = x[i];
    for (int64_t k = 1; k < pieces; ++k) result = How::of(result, x[k * size + i]);
    y[i] = finished<MEAN, T>(result, count);
  }
}

}  // namespace gradlab

#endif
