// Products of bfloat16: operands of float32 are rounded (to nearest, ties to even) as they are packed, two numbers beside each other along the
// depth in 32 bits, and a lane multiplies both pairs of numbers and adds them up in float32, by `vdpbf16ps` where the processor has it
// (AVX512_BF16: twice the products an instruction; it takes numbers below the normal floats as 0). Elsewhere two float32 products do the same.
//
// Blocks are those of gemm.h, of half the depth; here A is packed too, as it has to be rounded.
#ifndef GRADLAB_PAIRS_H
#define GRADLAB_PAIRS_H

#include "vectors.h"

namespace {

using Pair = int32_t;  // the number of an even place of the depth in the low half, that behind it in the high one

inline int32_t rounded_bits(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const int32_t found = int32_t(uint32_t(bits) + 0x7fff + (uint32_t(bits) >> 16 & 1));
  return x != x ? bits | 0x7fc00000 : found;
}
inline Pair pair_of(float even, float odd) { return Pair(uint32_t(rounded_bits(even)) >> 16 | (uint32_t(rounded_bits(odd)) & 0xffff0000u)); }
inline Whole near_bits(V x) {
  const Whole bits = (Whole)x;
  return x != x ? bits | 0x7fc00000 : bits + 0x7fff + (bits >> 16 & 1);
}
inline V nearest(V x) { return (V)(near_bits(x) & int32_t(0xffff0000)); }
template <size_t... J> inline V every_second(V a, V b, int, std::index_sequence<J...>) { return __builtin_shufflevector(a, b, int(2 * J)...); }
template <size_t... J> inline V every_second(V a, V b, long, std::index_sequence<J...>) { return __builtin_shufflevector(a, b, int(2 * J + 1)...); }

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
// Written as instructions: the compilers' own names for them differ from version to version.
typedef int16_t Shorts __attribute__((vector_size(BYTES)));
inline Whole beside(V low, V high) {  // pairs of numbers that lie beside each other
  Whole found;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(found) : "v"(high), "v"(low));
  return found;
}
inline Whole joined(V even, V odd) {  // a pair of each lane
  const Shorts s = (Shorts)beside(even, odd);
  return (Whole)__builtin_shufflevector(s, s, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline void put(Pair* at, V v) {  // L numbers, as L / 2 pairs
  typedef int32_t Lower __attribute__((vector_size(BYTES / 2)));
  typedef int32_t Loose __attribute__((vector_size(BYTES / 2), aligned(4), may_alias));
  Lower found;
  asm("vcvtneps2bf16 %1, %0" : "=v"(found) : "v"(v));
  *(Loose*)at = found;
}
inline V dot(Whole a, Whole b, V total) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(a), "v"(b));
  return total;
}
#else
inline Whole joined(V even, V odd) { return (near_bits(even) >> 16 & 0xffff) | (near_bits(odd) & int32_t(0xffff0000)); }
inline Whole beside(V low, V high) {
  const auto all_of = std::make_index_sequence<L>();
  return joined(every_second(low, high, 0, all_of), every_second(low, high, 0L, all_of));
}
inline void put(Pair* at, V v) {
  float found[L];
  store(found, v);
  for (int64_t i = 0; i < L / 2; ++i) at[i] = pair_of(found[2 * i], found[2 * i + 1]);
}
inline V dot(Whole a, Whole b, V total) {
  return fused((V)(a << 16), (V)(b << 16), fused((V)(a & int32_t(0xffff0000)), (V)(b & int32_t(0xffff0000)), total));
}
#endif

// The same for numbers that are float, in kernels for either; how many numbers an element has.
template <typename E> constexpr int64_t EACH = 2;
template <> constexpr int64_t EACH<float> = 1;
inline void put(float* at, V v) { store(at, v); }
inline V terms(const float* at) { return load(at); }
inline Whole terms(const Pair* at) { return (Whole)load((const float*)at); }
inline V spread(float x) { return x - V{}; }  // the same in every lane: x - 0 is x
inline Whole spread(Pair x) { return x - Whole{}; }
inline V dot(V a, V b, V total) { return fused(a, b, total); }

inline Whole pairs(const Pair* at) { return (Whole)load((const float*)at); }
inline void store_pairs(Pair* at, Whole v) { store((float*)at, (V)v); }

constexpr int64_t PAIRED = PANEL<float>;  // columns of a panel
constexpr int64_t APART = WHOLE + 16;  // pairs from one packed row of A to the next: an odd number of cache lines
thread_local Scratch pair_scratch;

// L numbers `step` apart, of which the first `have` are there.
inline V some_of(const float* at, int64_t step, int64_t have) {
  float found[L] = {};
  for (int64_t i = 0; i < have && i < L; ++i) found[i] = at[i * step];
  return load(found);
}

// Columns n.. n+width of B's rows 2k.. into panels of `depth` pairs.
inline void pack_pairs(const float* b, const Product& q, int64_t k, int64_t depth, int64_t n, int64_t width, Pair* out) {
  constexpr int64_t TOGETHER = 4;
  const int64_t last = q.k - 1;
  for (int64_t j = 0, some; j < width; j += some * PAIRED) {
    const int64_t have = width - j < PAIRED ? width - j : PAIRED;
    const float* const from = b + (n + j) * q.b_column;
    Pair* const panel = out + j * depth;
    some = 1;
    if (have == PAIRED && q.b_column == 1) {
      some = (width - j) / PAIRED < TOGETHER ? (width - j) / PAIRED : TOGETHER;
      for (int64_t i = 0; i < depth; ++i) {
        const int64_t row = 2 * (k + i);
        const float *even = from + row * q.b_row, *odd = even + q.b_row;
        for (int64_t p = 0; p < some * PAIRED; p += L) {
          __builtin_prefetch(even + p + AHEAD * q.b_row), __builtin_prefetch(odd + p + AHEAD * q.b_row);
          store_pairs(panel + p / PAIRED * PAIRED * depth + i * PAIRED + p % PAIRED, joined(load(even + p), row < last ? load(odd + p) : V{}));
        }
      }
      continue;
    }
    int64_t i = 0;
    if (have == PAIRED && q.b_row == 1)
      for (; i + L <= depth && 2 * (k + i + L) <= q.k; i += L)
        for (int64_t c = 0; c < PAIRED; c += L) {
          V rows[L];
          const float* const column = from + 2 * (k + i) + c * q.b_column;
#pragma GCC unroll 16
          for (int r = 0; r < L; ++r) rows[r] = (V)beside(load(column + r * q.b_column), load(column + r * q.b_column + L));
          turn<float>(rows);
#pragma GCC unroll 16
          for (int r = 0; r < L; ++r) store((float*)panel + (i + r) * PAIRED + c, rows[r]);
        }
    for (; i < depth; ++i) {
      const int64_t row = 2 * (k + i);
      const float *even = from + row * q.b_row, *odd = even + q.b_row;
      for (int64_t c = 0; c < PAIRED; c += L) {
        const int64_t there = have - c;
        const V zero = {};
        store_pairs(panel + i * PAIRED + c, joined(some_of(even + c * q.b_column, q.b_column, there), row < last ? some_of(odd + c * q.b_column, q.b_column, there) : zero));
      }
    }
  }
}

// A row of A whose elements lie beside each other: `count` numbers from `from` on, `depth` pairs.
inline void pack_row(const float* from, int64_t count, int64_t depth, Pair* to) {
  int64_t i = 0;
  for (; 2 * (i + L) <= count; i += L) store_pairs(to + i, beside(load(from + 2 * i), load(from + 2 * i + L)));
  for (; i < depth; ++i) to[i] = pair_of(from[2 * i], 2 * i + 1 < count ? from[2 * i + 1] : 0);
}

// `height` rows of A, others, as panels of ROWS rows, `room` apart: a pair of each row, then the next ones. beyond: rows that there are from the first on.
inline void pack_columns(const float* a, const Product& q, int64_t k, int64_t depth, int64_t height, int64_t beyond, int64_t room, Pair* out) {
  const int64_t last = q.k - 1;
  for (int64_t i = 0; i < depth; ++i) {
    const int64_t row = 2 * (k + i);
    const float *even = a + row * q.a_column, *odd = even + q.a_column;
    Pair* to = out + i * ROWS;
    for (int64_t r = 0; r < height; r += ROWS, to += room)
      for (int64_t s = r; s < r + ROWS; s += L) {
        const bool whole = q.a_row == 1 && s + L <= beyond;
        const V zero = {}, low = whole ? load(even + s) : some_of(even + s * q.a_row, q.a_row, beyond - s);
        store_pairs(to + s - r, joined(low, row >= last ? zero : whole ? load(odd + s) : some_of(odd + s * q.a_row, q.a_row, beyond - s)));
      }
  }
}

// R rows of C times one panel, as `micro` of gemm.h. COLUMNS: A lies as pack_columns leaves it.
template <int R, bool COLUMNS>
inline __attribute__((always_inline)) void micro_pairs(const Pair* a, const Pair* panel, int64_t depth, float* c, int64_t c_row, bool first, const float* bias) {
  constexpr int64_t row = COLUMNS ? 1 : APART, column = COLUMNS ? ROWS : 1;
  V total[R][2];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) total[i][0] = total[i][1] = V{};
  if (!first)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) total[i][0] = load(c + i * c_row), total[i][1] = load(c + i * c_row + L);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) __builtin_prefetch(c + i * c_row, 1), __builtin_prefetch(c + i * c_row + PAIRED - 1, 1);
  for (int64_t k = 0; k < depth; ++k, a += column, panel += PAIRED) {  // not unrolled: GNU's compiler would hold sums in memory
    const Whole low = pairs(panel), high = pairs(panel + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const Whole s = a[i * row] - Whole{};
      total[i][0] = dot(s, low, total[i][0]);
      total[i][1] = dot(s, high, total[i][1]);
    }
  }
  if (bias != nullptr) {
    const V low = load(bias), high = load(bias + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) total[i][0] += low, total[i][1] += high;
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) store(c + i * c_row, total[i][0]), store(c + i * c_row + L, total[i][1]);
}

// All panels, as `rows` of gemm.h.
template <int R, bool COLUMNS>
__attribute__((noinline)) void rows_of_pairs(
    const Pair* a, const Pair* panels, int64_t depth, int64_t width, float* c, int64_t c_row, bool first, const float* bias) {
  GRADLAB_NOTE(COLUMNS ? 9 : 8);
  for (int64_t j = 0; j < width; j += PAIRED) {
    const int64_t have = width - j < PAIRED ? width - j : PAIRED;
    float edge[(R + 1) * PAIRED];
    float* to = c + j;
    const float* b = bias == nullptr ? nullptr : bias + j;
    if (have < PAIRED) {
      std::memset(edge, 0, sizeof edge);
      for (int i = 0; i < R && !first; ++i) std::memcpy(edge + i * PAIRED, to + i * c_row, sizeof(float) * size_t(have));
      if (b != nullptr) b = (const float*)std::memcpy(edge + R * PAIRED, b, sizeof(float) * size_t(have));
      to = edge;
    }
    micro_pairs<R, COLUMNS>(a, panels + j * depth, depth, to, have < PAIRED ? PAIRED : c_row, first, b);
    for (int i = 0; i < R && have < PAIRED; ++i) std::memcpy(c + j + i * c_row, edge + i * PAIRED, sizeof(float) * size_t(have));
  }
}
template <int R, bool COLUMNS>
void some_rows_of_pairs(
    int64_t left, const Pair* a, const Pair* panels, int64_t depth, int64_t width, float* c, int64_t c_row, bool first, const float* bias) {
  if constexpr (R > 0) {
    if (left >= R) rows_of_pairs<R, COLUMNS>(a, panels, depth, width, c, c_row, first, bias);
    else some_rows_of_pairs<R - 1, COLUMNS>(left, a, panels, depth, width, c, c_row, first, bias);
  }
}

struct Pairs {
  // As `multiply` of gemm.h; nothing is ready.
  template <typename Then = Nothing>
  static bool multiply(const float* a, const float* b, float* c, const float* bias, const Product& q, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                       const float* = nullptr, const Then& then = {}) {
    if (m0 >= m1 || n0 >= n1) return true;
    const int64_t all_pairs = (q.k + 1) / 2, blocks = all_pairs <= WHOLE ? 1 : (all_pairs + WHOLE - 1) / WHOLE;
    const int64_t depth = all_pairs == 0 ? 1 : (all_pairs + blocks - 1) / blocks, most = depth <= DEPTH ? WIDTH : WIDTH / 2;
    const int64_t span = (n1 - n0 < most ? n1 - n0 : most) + PAIRED - 1, room = depth * ROWS + L;
    Pair* const panels = (Pair*)scratch.of(sizeof(Pair) * size_t(depth) * size_t(span / PAIRED * PAIRED));
    Pair* const mine = (Pair*)pair_scratch.of(sizeof(Pair) * size_t(HEIGHT * APART > HEIGHT / ROWS * room ? HEIGHT * APART : HEIGHT / ROWS * room));
    if (panels == nullptr || mine == nullptr) return false;
    const bool lies = q.a_column == 1;
    for (int64_t n = n0; n < n1; n += most) {
      const int64_t width = n1 - n < most ? n1 - n : most;
      for (int64_t k = 0; k < all_pairs || k == 0; k += depth) {
        const int64_t deep = all_pairs - k < depth ? all_pairs - k : depth;
        pack_pairs(b, q, k, deep, n, width, panels);
        const bool first = k == 0 && !q.add, last = k + depth >= all_pairs;
        const float* const shift = bias == nullptr || q.add || !last ? nullptr : bias + n;
        for (int64_t low = m0; low < m1; low += HEIGHT) {
          const int64_t height = m1 - low < HEIGHT ? m1 - low : HEIGHT;
          const float* const from = a + low * q.a_row;
          if (lies) GRADLAB_PART(8) for (int64_t i = 0; i < height; ++i) pack_row(from + i * q.a_row + 2 * k, q.k - 2 * k < 2 * deep ? q.k - 2 * k : 2 * deep, deep, mine + i * APART);
          else GRADLAB_PART(9) pack_columns(from, q, k, deep, height, m1 - low, room, mine);
          for (int64_t i = 0, some; i < height; i += some) {
            some = lies ? together(height - i) : height - i < ROWS ? height - i : ROWS;
            float* const to = c + (low + i) * q.c_row + n;
            if (lies) GRADLAB_PART(8) some_rows_of_pairs<ROWS, false>(some, mine + i * APART, panels, deep, width, to, q.c_row, first, shift);
            else GRADLAB_PART(9) some_rows_of_pairs<ROWS, true>(some, mine + i / ROWS * room, panels, deep, width, to, q.c_row, first, shift);
          }
          if (last) then(low, n, height, width);
        }
      }
    }
    return true;
  }
};

}  // namespace

#endif
