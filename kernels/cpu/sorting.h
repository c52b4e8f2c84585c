// What needs an order: stable sorting, medians and modes along one dimension of (outer, n, inner), searches in what is sorted. NaN counts as the
// largest value. Templates; a program makes its own.
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

// The lower median: values, places (or null) and x. A NaN is the median of a line with one, unless `pass_nan` leaves them out where there are
// numbers. Of equal elements the one that stable sorting would put there.
template <typename S, typename C>
void medians(char** p, S* values, int64_t* places, const S* x, int64_t outer, int64_t n, int64_t inner, bool pass_nan, int part, int parts) {
  const Share mine = share(outer * inner, part, parts);
  if (mine.first >= mine.last) return;
  const Room<C> room{size_t(n)};
  C* const numbers = room.at;
  if (numbers == nullptr) return no_memory(p);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const S* const from = x + u / inner * n * inner + u % inner;
    int64_t count = 0, lost = n, at = 0;  // lost: the first NaN
    for (int64_t j = 0; j < n; ++j) {
      const C v = C(from[j * inner]);
      if (v == v) numbers[count++] = v;
      else if (lost == n) lost = j;
    }
    if (lost < n && (!pass_nan || count == 0)) {
      at = lost;
    } else {
      C* const middle = numbers + (count - 1) / 2;
      std::nth_element(numbers, middle, numbers + count);
      const C found = *middle;
      int64_t before = middle - numbers;  // equal ones that come before
      for (C* v = numbers; v < middle; ++v) before -= *v < found;
      while (C(from[at * inner]) != found || before-- > 0) ++at;
    }
    values[u] = from[at * inner];
    if (places) places[u] = at;
  }
}

// The most frequent element, of equally frequent ones the smallest, and where it is last: values and places (p[0] and p[1]) of x (p[2]). No two
// NaN are equal.
template <typename S, typename C> void modes(char** p, int64_t outer, int64_t n, int64_t inner, int part, int parts) {
  const Share mine = share(outer * inner, part, parts);
  if (mine.first >= mine.last) return;
  const Room<C> room{size_t(n)};
  C* const numbers = room.at;
  if (numbers == nullptr) return no_memory(p);
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const S* const from = (const S*)p[2] + u / inner * n * inner + u % inner;
    int64_t count = 0, best = 0, at = 0;
    for (int64_t j = 0; j < n; ++j)
      if (const C v = C(from[j * inner]); v == v) numbers[count++] = v;
    std::sort(numbers, numbers + count);
    C found = count ? numbers[0] : C(0);
    for (int64_t j = 1, start = 0; j < count; ++j) {
      if (numbers[j] != numbers[j - 1]) start = j;
      if (j - start > best) best = j - start, found = numbers[j];
    }
    if (count)
      for (at = n - 1; C(from[at * inner]) != found;) --at;
    ((S*)p[0])[u] = from[at * inner];
    ((int64_t*)p[1])[u] = at;
  }
}

// How many of n elements in order come before v, or are not after it.
template <typename T> inline int64_t sought(const T* sorted, int64_t n, T v, bool right) {
  const auto less = [](T a, T b) { return a < b || (b != b && a == a); };
  return (right ? std::upper_bound(sorted, sorted + n, v, less) : std::lower_bound(sorted, sorted + n, v, less)) - sorted;
}

// Places among boundaries: y of each of `count` lines' `m` elements of x; one line of n boundaries for all of them, or one for each.
template <typename T, typename I>
void searches(I* y, const T* boundaries, const T* x, int64_t count, int64_t m, int64_t n, bool one, bool right, int part, int parts) {
  const Share mine = share(count * m, part, parts);
  for (int64_t i = mine.first; i < mine.last; ++i) y[i] = I(sought(boundaries + (one ? 0 : i / m * n), n, x[i], right));
}

// The numbers among n in order, and how many they are.
template <typename T> void ordered_numbers(T* y, int64_t* count, const T* x, int64_t n) {
  T* const end = std::copy_if(x, x + n, y, [](T v) { return v == v; });
  std::sort(y, end);
  *count = end - y;
}

// Whether each of m elements is among them, or is not.
template <typename T>
void memberships(bool* y, const T* x, const T* sorted, const int64_t* count, int64_t m, bool invert, int part, int parts) {
  const Share mine = share(m, part, parts);
  for (int64_t i = mine.first; i < mine.last; ++i) {
    const T* const at = std::lower_bound(sorted, sorted + *count, x[i]);
    y[i] = (at < sorted + *count && *at == x[i]) != invert;
  }
}

}  // namespace gradlab

#endif
