// The core of matrix products: C = A B (+ bias along the rows of C), any strides. float and double.
//
// B is packed, a block at a time, into panels as wide as two vectors; a micro-kernel keeps ROWS of them in registers and reads A one element
// for each row and step (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). A is read where it lies, and so
// comes from the farther caches while products are computed; it is packed only where that would miss. Each thread packs what it needs itself,
// so there is nothing to wait for.
#ifndef GRADLAB_GEMM_H
#define GRADLAB_GEMM_H

#include "aligned.h"
#include "needs.h"
#include "runtime.h"

#include <cstdlib>
#include <utility>

// Which ways A may lie: 1 the elements of its rows beside each other, 2 any other. A file that knows which of them it needs says so.
#ifndef GRADLAB_ROWS
#define GRADLAB_ROWS 3
#endif

namespace {

#if defined(__AVX512F__)
constexpr int BYTES = 64, ROWS = 12;
#elif defined(__AVX__)
constexpr int BYTES = 32, ROWS = 6;
#else
constexpr int BYTES = 16, ROWS = 6;
#endif
constexpr int64_t DEPTH = 256;   // of a block: a panel of it stays in the first-level cache
constexpr int64_t WIDTH = 256;   // of a block: the packed block stays in the second-level cache
// The depth of a block of half the width: one block is enough for more products, whose C is then written once and never read. But rows of A
// that have to be packed are packed for each block of columns; these are wide where there are several blocks anyway.
constexpr int64_t WHOLE = 512;

constexpr int64_t SMALL = DEPTH * WIDTH / 2;  // a block of which half the second-level cache, and more, is left

constexpr int64_t AHEAD = 8;  // rows that are fetched before they are packed
constexpr int64_t HEIGHT = 8 * ROWS;  // rows of A that are packed at once, where their elements lie apart
constexpr size_t PAGE = 4096;  // what lies so many bytes apart has the same place in the first-level cache

template <typename T> struct Wide { typedef T type __attribute__((vector_size(BYTES))); };
template <typename T> struct Loose { typedef T type __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias)); };
template <typename T> constexpr int LANES = BYTES / sizeof(T);
template <typename T> constexpr int PANEL = 2 * LANES<T>;

template <typename T> inline typename Wide<T>::type load(const T* at) { return *(const typename Loose<T>::type*)at; }
template <typename T> inline void store(T* at, typename Wide<T>::type v) { *(typename Loose<T>::type*)at = v; }

// a b + c, rounded once where the machine can. Other compilers make that of the last form by -ffp-contract=fast; GNU's does not for all
// processors. Its own names stand here because <immintrin.h> takes it longer to read than a kernel to compile.
#if defined(__AVX512F__) && !defined(__clang__)
inline Wide<float>::type fused(Wide<float>::type a, Wide<float>::type b, Wide<float>::type c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); }
inline Wide<double>::type fused(Wide<double>::type a, Wide<double>::type b, Wide<double>::type c) { return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4); }
#elif defined(__AVX__) && defined(__FMA__) && !defined(__clang__)
inline Wide<float>::type fused(Wide<float>::type a, Wide<float>::type b, Wide<float>::type c) { return __builtin_ia32_vfmaddps256(a, b, c); }
inline Wide<double>::type fused(Wide<double>::type a, Wide<double>::type b, Wide<double>::type c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
#else
template <typename V> inline V fused(V a, V b, V c) { return a * b + c; }
#endif

// What a product is: sizes, strides in elements (rows, columns), the first of the result's.
struct Product {
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, c_row;
  bool bias, add;
};

// Scratch memory of a thread, kept from call to call.
struct Scratch {
  void* memory = nullptr;
  size_t size = 0;
  ~Scratch() { aligned_delete(memory); }
  void* of(size_t wanted) {
    if (wanted > size) {
      aligned_delete(memory);
      size = (wanted + 4095) / 4096 * 4096;
      memory = aligned_new(64, size);
      if (memory == nullptr) size = 0;
    }
    return memory;
  }
};
thread_local Scratch row_scratch;  // of `multiply` too: packed rows of A
thread_local Scratch scratch;  // of `multiply`; its callers have scratch of their own

template <typename V, int STEP, size_t... J> inline V low(V a, V b, std::index_sequence<J...>) {
  return __builtin_shufflevector(a, b, ((J & STEP) ? int(sizeof...(J) + J - STEP) : int(J))...);
}
template <typename V, int STEP, size_t... J> inline V high(V a, V b, std::index_sequence<J...>) {
  return __builtin_shufflevector(a, b, ((J & STEP) ? int(sizeof...(J) + J) : int(J + STEP))...);
}
template <typename T, int STEP> inline void exchange(typename Wide<T>::type* rows) {
  using V = typename Wide<T>::type;
  constexpr int L = LANES<T>;
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) {
    if (i & STEP) continue;
    const V a = rows[i], b = rows[i + STEP];
    rows[i] = low<V, STEP>(a, b, std::make_index_sequence<L>());
    rows[i + STEP] = high<V, STEP>(a, b, std::make_index_sequence<L>());
  }
}
template <typename T> inline void turn(typename Wide<T>::type* rows) {
  exchange<T, 1>(rows);
  if constexpr (LANES<T> > 2) exchange<T, 2>(rows);
  if constexpr (LANES<T> > 4) exchange<T, 4>(rows);
  if constexpr (LANES<T> > 8) exchange<T, 8>(rows);
}
// LANES rows of LANES elements, `stride` apart, transposed into target, whose rows are PANEL apart.
template <typename T> inline void transpose(const T* source, int64_t stride, T* target) {
  typename Wide<T>::type rows[LANES<T>];
#pragma GCC unroll 16
  for (int i = 0; i < LANES<T>; ++i) rows[i] = load(source + i * stride);
  turn<T>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < LANES<T>; ++i) store(target + i * PANEL<T>, rows[i]);
}

// Columns n.. n+width of rows k.. k+depth of B into panels; the last panel is filled up with zeros.
template <typename T> void pack(const T* b, const Product& q, int64_t k, int64_t depth, int64_t n, int64_t width, T* out) {
  constexpr int64_t P = PANEL<T>, L = LANES<T>, TOGETHER = 4;  // panels that are filled side by side, as rows are read along
  int64_t j = 0;
  for (; q.b_column == 1 && j + TOGETHER * P <= width; j += TOGETHER * P)
    for (int64_t i = 0; i < depth; ++i) {
      const T* row = b + (k + i) * q.b_row + n + j;
      T* to = out + j * depth + i * P;
#pragma GCC unroll 4
      for (int64_t p = 0; p < TOGETHER; ++p) {
        __builtin_prefetch(row + p * P + AHEAD * q.b_row);
        store(to + p * P * depth, load(row + p * P));
        store(to + p * P * depth + L, load(row + p * P + L));
      }
    }
  for (; j < width; j += P) {
    T* panel = out + j * depth;
    const int64_t have = width - j < P ? width - j : P;
    const T* from = b + k * q.b_row + (n + j) * q.b_column;
    if (have == P && q.b_column == 1) {
      for (int64_t i = 0; i < depth; ++i) {
        store(panel + i * P, load(from + i * q.b_row));
        store(panel + i * P + L, load(from + i * q.b_row + L));
      }
    } else if (have == P && q.b_row == 1) {
      int64_t i = 0;
      for (; i + L <= depth; i += L) {
        transpose(from + i, q.b_column, panel + i * P);
        transpose(from + i + L * q.b_column, q.b_column, panel + i * P + L);
      }
      for (; i < depth; ++i)
        for (int64_t c = 0; c < P; ++c) panel[i * P + c] = from[i + c * q.b_column];
    } else {
      for (int64_t i = 0; i < depth; ++i) {
        for (int64_t c = 0; c < have; ++c) panel[i * P + c] = from[i * q.b_row + c * q.b_column];
        for (int64_t c = have; c < P; ++c) panel[i * P + c] = T(0);
      }
    }
  }
}

// Rows m.. m+height of A, whose elements of one row lie apart, as panels of ROWS: micro-kernels then read them one after the other.
template <typename T> void pack_rows(const T* a, const Product& q, int64_t height, int64_t depth, T* out) {
  constexpr int64_t TOGETHER = 8;  // panels, as above
  int64_t i = 0, some;
  for (; q.a_row == 1 && i + ROWS <= height; i += some * ROWS) {
    some = (height - i) / ROWS < TOGETHER ? (height - i) / ROWS : TOGETHER;
    for (int64_t k = 0; k < depth; ++k) {
      const T* from = a + i + k * q.a_column;
      T* to = out + i * depth + k * ROWS;
      for (int64_t r = 0; r < some * ROWS; r += 64 / sizeof(T)) __builtin_prefetch(from + AHEAD * q.a_column + r);
      for (int64_t p = 0; p < some; ++p) std::memcpy(to + p * ROWS * depth, from + p * ROWS, ROWS * sizeof(T));
    }
  }
  for (; i < height; i += ROWS) {
    const int64_t have = height - i < ROWS ? height - i : ROWS;
    const T* from = a + i * q.a_row;
    T* to = out + i * depth;
    int64_t k = 0;
    if (q.a_row == 1 && q.a_column >= ROWS)  // what lies behind these rows is there as well, but for the last time
      for (; k + 1 < depth; ++k) std::memcpy(to + k * ROWS, from + k * q.a_column, ROWS * sizeof(T));
    for (; k < depth; ++k)
      for (int64_t r = 0; r < have; ++r) to[k * ROWS + r] = from[r * q.a_row + k * q.a_column];
  }
}

// R rows of C times one panel. first: C is not read. The bias, if there is one, comes last: sums of small products keep their digits beside it.
template <typename T, int R>
inline __attribute__((always_inline)) void micro(
    const T* a, int64_t a_row, int64_t a_column, const T* panel, int64_t depth, T* c, int64_t c_row, bool first, const T* bias) {
  using V = typename Wide<T>::type;
  constexpr int L = LANES<T>, P = PANEL<T>;
  V total[R][2];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) total[i][0] = total[i][1] = V{};
  if (!first)
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) total[i][0] = load(c + i * c_row), total[i][1] = load(c + i * c_row + L);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {  // what is written at the end is on its way meanwhile
    __builtin_prefetch(c + i * c_row, 1);
    __builtin_prefetch(c + i * c_row + P - 1, 1);
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    const V low = load(panel + k * P), high = load(panel + k * P + L);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const V s = a[i * a_row + k * a_column] - V{};  // the same in every lane: x - 0 is x
      total[i][0] = fused(s, low, total[i][0]);
      total[i][1] = fused(s, high, total[i][1]);
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

// All panels; the last one may have fewer columns, which are computed beside C.
template <typename T, int R, bool PACKED>
__attribute__((noinline)) void rows(
    const T* a, int64_t a_row, int64_t a_column, const T* panels, int64_t step, int64_t depth, int64_t width, T* c, int64_t c_row, bool first,
    const T* bias) {
  constexpr int64_t P = PANEL<T>;
  for (int64_t j = 0; j < width; j += P) {
    const int64_t have = width - j < P ? width - j : P;
    T edge[(R + 1) * P];  // such columns, and their bias
    T* to = c + j;
    const T* b = bias == nullptr ? nullptr : bias + j;
    if (have < P) {
      std::memset(edge, 0, sizeof edge);
      for (int i = 0; i < R && !first; ++i) std::memcpy(edge + i * P, to + i * c_row, sizeof(T) * size_t(have));
      if (b != nullptr) b = (const T*)std::memcpy(edge + R * P, b, sizeof(T) * size_t(have));
      to = edge;
    }
    const auto made = [=](int64_t row, int64_t column) __attribute__((always_inline)) {
      micro<T, R>(a, row, column, panels + j * step, depth, to, have < P ? P : c_row, first, b);
    };
    GRADLAB_NOTE(!PACKED && a_column == 1 ? 8 : 9);
    if constexpr (PACKED) made(1, ROWS);
    else if constexpr (GRADLAB_ROWS == 1) made(a_row, 1);
    else if constexpr (GRADLAB_ROWS == 2) made(a_row, a_column);
    else if (a_column == 1) made(a_row, 1);
    else made(a_row, a_column);
    for (int i = 0; i < R && have < P; ++i) std::memcpy(c + j + i * c_row, edge + i * P, sizeof(T) * size_t(have));
  }
}

template <typename T, int R>
void some_rows(int64_t left, const T* a, const Product& q, const T* panels, int64_t step, int64_t depth, int64_t width, T* c, bool first, const T* bias) {
  if constexpr (R > 0) {
    if constexpr (R == ROWS && GRADLAB_ROWS > 1) {
      if (left >= R && q.a_row == 1 && q.a_column == ROWS)
        return rows<T, R, true>(a, 1, ROWS, panels, step, depth, width, c, q.c_row, first, bias);
    }
    if (left >= R) rows<T, R, false>(a, q.a_row, q.a_column, panels, step, depth, width, c, q.c_row, first, bias);
    else some_rows<T, R - 1>(left, a, q, panels, step, depth, width, c, first, bias);
  }
}

// How many of the rows that are left go together: what would be few at the end is shared with those before, as few rows wait for each other.
inline int64_t together(int64_t left) { return left <= ROWS || left >= 2 * ROWS ? (left < ROWS ? left : ROWS) : (left + 1) / 2; }

struct Nothing {
  void operator()(int64_t, int64_t, int64_t, int64_t) const {}
};

// The part [m0, m1) x [n0, n1) of C. ready: all of B in panels as deep as B, packed before; n0 is then a multiple of PANEL.
// then(m, n, rows, columns): is called for every part of C when it is complete. False where there is no memory to work in.
template <typename T, typename Then = Nothing>
bool multiply(
    const T* a, const T* b, T* c, const T* bias, const Product& q, int64_t m0, int64_t m1, int64_t n0, int64_t n1, const T* ready = nullptr,
    const Then& then = {}) {
  if (m0 >= m1 || n0 >= n1) return true;
  const bool lies = GRADLAB_ROWS == 1 || (GRADLAB_ROWS == 3 && q.a_column == 1);
  const int64_t deepest = lies || q.k <= WHOLE ? WHOLE : DEPTH, blocks = q.k <= deepest ? 1 : (q.k + deepest - 1) / deepest;
  const int64_t depth = q.k == 0 ? 1 : (q.k + blocks - 1) / blocks, most = depth <= DEPTH ? WIDTH : WIDTH / 2;  // blocks of equal depth
  const int64_t span = n1 - n0 < most ? n1 - n0 : most;
  T* panels = ready != nullptr ? nullptr : (T*)scratch.of(sizeof(T) * size_t(depth + 1) * size_t((span + PANEL<T>) / PANEL<T> * PANEL<T>));
  if (ready == nullptr && panels == nullptr) return false;
  for (int64_t n = n0; n < n1; n += most) {
    const int64_t width = n1 - n < most ? n1 - n : most;
    for (int64_t k = 0; k < q.k || k == 0; k += depth) {
      const int64_t deep = q.k - k < depth ? q.k - k : depth;
      const T* block = ready == nullptr ? panels : ready + n * q.k + k * PANEL<T>;
      if (ready == nullptr) pack(b, q, k, deep, n, width, panels);
      const bool first = k == 0 && !q.add, last = k + depth >= q.k;
      const T* shift = bias == nullptr || q.add || !last ? nullptr : bias + n;
      const int64_t step = ready == nullptr ? deep : q.k;
      // Of a large block a panel goes to the first-level cache once for many rows; of a small one few rows go there once for all panels.
      const int64_t across = ready != nullptr || (q.k > WHOLE && deep * width > SMALL) ? PANEL<T> : width;
      // A is read where it lies, also where a row's elements lie apart and the rows beside each other, unless these are so far apart that
      // most of them would have to share a place in the cache.
      const bool direct = lies || width < 2 * PANEL<T> || (q.a_row == 1 && q.a_column * sizeof(T) % PAGE != 0);
      Product ours = q;
      if (!direct) ours.a_row = 1, ours.a_column = ROWS;
      for (int64_t low = m0; low < m1; low += HEIGHT) {
        const int64_t height = m1 - low < HEIGHT ? m1 - low : HEIGHT;
        const T* from = a + low * q.a_row + k * q.a_column;
        if (GRADLAB_ROWS > 1 && !direct) {
          T* mine = (T*)row_scratch.of(sizeof(T) * size_t(HEIGHT * depth));
          if (mine == nullptr) return false;
          pack_rows(from, q, height, deep, mine);
          from = mine;
        }
        for (int64_t j = 0; j < width; j += across) {
          const int64_t have = width - j < across ? width - j : across;
          for (int64_t i = 0, some; i < height; i += some) {
            some = direct ? together(height - i) : height - i < ROWS ? height - i : ROWS;
            some_rows<T, ROWS>(some, from + i * (direct ? q.a_row : deep), ours, block + j * step, step, deep, have, c + (low + i) * q.c_row + n + j, first,
                               shift == nullptr ? shift : shift + j);
          }
        }
        if (last) then(low, n, height, width);
      }
    }
  }
  return true;
}

}  // namespace

#endif
