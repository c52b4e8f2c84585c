// Stable sorting along one dimension of (outer, n, inner). NaN counts as the largest value. A template; a program makes its own.
#ifndef GRADLAB_SORTING_H
#define GRADLAB_SORTING_H

#include <algorithm>

#include "aligned.h"
#include "half.h"
#include "runtime.h"

namespace gradlab {

// The first k of n in order: values and places (p[0] and p[1]) of x (p[2])
template <typename S, typename C, bool DOWN>
void sorted(char** p, int64_t outer, int64_t n, int64_t inner, int64_t k, int part, int parts) {
  struct Item {
    C value;
    int at;
  };
  const Share mine = share(outer * inner, part, parts);
  if (mine.first >= mine.last) return;
  S* const values = (S*)p[0];
  int64_t* const places = (int64_t*)p[1];
  const S* const x = (const S*)p[2];
  const Room<Item> room{size_t(n)};
  Item* const items = room.at;
  if (items == nullptr) return no_memory(p);
  const auto before = [](const Item& a, const Item& b) {
    const bool lost_a = a.value != a.value, lost_b = b.value != b.value;
    const bool less = lost_a ? false : lost_b || a.value < b.value, more = lost_b ? false : lost_a || a.value > b.value;
    return less == more ? a.at < b.at : DOWN ? more : less;
  };
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const S* const from = x + u / inner * n * inner + u % inner;
    const int64_t to = u / inner * k * inner + u % inner;
    for (int64_t j = 0; j < n; ++j) items[j] = {C(from[j * inner]), int(j)};
    if (k * 4 < n) std::partial_sort(items, items + k, items + n, before);
    else std::sort(items, items + n, before);
    for (int64_t j = 0; j < k; ++j) {
      const int64_t at = items[j].at;
      places[to + j * inner] = at;
      values[to + j * inner] = from[at * inner];
    }
  }
}

}  // namespace gradlab

#endif
