// Kernels that move memory, and that fill it.
#include "runtime.h"
#include "transpose.h"

namespace {

constexpr int64_t MOVED_DIMS = 12;

// Innermost dimension first. across: the dimension along which the source's rows lie beside each other, to become columns; 0 for none.
struct Moved {
  int64_t dims, across, sizes[MOVED_DIMS], to[MOVED_DIMS], from[MOVED_DIMS];
};

// A row of elements.
template <typename W> inline void move_row(W* y, const W* x, int64_t n, int64_t to, int64_t from) {
  if (to == 1 && from == 1) {
    if (n < 32) for (int64_t i = 0; i < n; ++i) y[i] = x[i];
    else std::memcpy(y, x, sizeof(W) * size_t(n));
  } else if (to == 1 && from == 0) {
    const W one = *x;
    for (int64_t i = 0; i < n; ++i) y[i] = one;
  } else if (to == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i * from];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * to] = x[i * from];
  }
}

// The outermost dimension is shared by the threads.
template <typename W> void move(W* y, const W* x, const Moved& q, int part, int parts) {
  const int64_t last = q.dims - 1, inner = q.sizes[0];
  const Share mine = last > 0 && q.sizes[last] > 1 ? share(q.sizes[last], part, parts) : share(inner, part, parts, 64);
  if (mine.first >= mine.last) return;
  if (last == 0) return move_row(y + mine.first * q.to[0], x + mine.first * q.from[0], mine.last - mine.first, q.to[0], q.from[0]);
  Moved own = q;
  own.sizes[last] = mine.last - mine.first;
  y += mine.first * q.to[last], x += mine.first * q.from[last];
  int64_t index[MOVED_DIMS] = {};
  for (;;) {
    if (own.across) gradlab::turn(y, own.to[own.across], x, own.from[0], own.sizes[own.across], inner);
    else move_row(y, x, inner, own.to[0], own.from[0]);
    int64_t d = 1;
    for (; d < own.dims; ++d) {
      if (d == own.across) continue;
      y += own.to[d], x += own.from[d];
      if (++index[d] < own.sizes[d]) break;
      y -= own.sizes[d] * own.to[d], x -= own.sizes[d] * own.from[d];
      index[d] = 0;
    }
    if (d == own.dims) return;
  }
}

template <typename W> void fill(W* y, int64_t n, int64_t bits, int part, int parts) {
  const Share mine = share(n, part, parts, 64);
  const W one = W(bits);
  for (int64_t i = mine.first; i < mine.last; ++i) y[i] = one;
}

}  // namespace

// target, source; parameters: bytes.
GRADLAB_KERNEL gradlab_copy(char** p, const int64_t* q, int part, int parts) {
  const Share mine = share(q[0], part, parts, 4096);
  std::memmove(p[0] + mine.first, p[1] + mine.first, mine.last - mine.first);
}

// target, source; parameters: a Moved
GRADLAB_KERNEL gradlab_move_1(char** p, const int64_t* v, int part, int parts) { move((uint8_t*)p[0], (const uint8_t*)p[1], *(const Moved*)v, part, parts); }
GRADLAB_KERNEL gradlab_move_2(char** p, const int64_t* v, int part, int parts) { move((uint16_t*)p[0], (const uint16_t*)p[1], *(const Moved*)v, part, parts); }
GRADLAB_KERNEL gradlab_move_4(char** p, const int64_t* v, int part, int parts) { move((uint32_t*)p[0], (const uint32_t*)p[1], *(const Moved*)v, part, parts); }
GRADLAB_KERNEL gradlab_move_8(char** p, const int64_t* v, int part, int parts) { move((uint64_t*)p[0], (const uint64_t*)p[1], *(const Moved*)v, part, parts); }

// target; parameters: elements, the bits of each
GRADLAB_KERNEL gradlab_fill_1(char** p, const int64_t* v, int part, int parts) { fill((uint8_t*)p[0], v[0], v[1], part, parts); }
GRADLAB_KERNEL gradlab_fill_2(char** p, const int64_t* v, int part, int parts) { fill((uint16_t*)p[0], v[0], v[1], part, parts); }
GRADLAB_KERNEL gradlab_fill_4(char** p, const int64_t* v, int part, int parts) { fill((uint32_t*)p[0], v[0], v[1], part, parts); }
GRADLAB_KERNEL gradlab_fill_8(char** p, const int64_t* v, int part, int parts) { fill((uint64_t*)p[0], v[0], v[1], part, parts); }
