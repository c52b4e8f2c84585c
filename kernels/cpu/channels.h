// Images whose channels come last, as rows of whole vectors: a row is as many pixels as it takes to end with a vector. What belongs to the
// channels is spread along a row.
#ifndef GRADLAB_CHANNELS_H
#define GRADLAB_CHANNELS_H

#include "vectors.h"

namespace {

constexpr int TOGETHER = 8;  // rows that are added up together

// Loads what a compiler would load on a condition alone: memory that is asked for late is waited for.
inline void at_once(V& v) {
#if defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

inline int64_t row_of(int64_t channels) {
  int64_t wide = channels;
  while (wide % L != 0) wide *= 2;
  return wide;
}

// of(c) for each channel c, along a row.
template <typename F> inline void spread(int64_t channels, int64_t wide, float* row, F of) {
  for (int64_t c = 0; c < channels; ++c) row[c] = of(c);
  for (int64_t done = channels; done < wide; done *= 2) std::memcpy(row + done, row, sizeof(float) * size_t(done));
}

// A batch in units of work: some pixels of an image, or all of some images.
struct Units {
  int64_t images, channels, places, group, band;  // images together, or pixels of a band
  int64_t bands() const { return (places + band - 1) / band; }
  int64_t count() const { return (images + group - 1) / group * bands(); }
  // The first pixel of a unit, and how many there are.
  int64_t pixels(int64_t unit, int64_t& first) const {
    const int64_t image = unit / bands() * group, begin = unit % bands() * band, many = images - image < group ? images - image : group;
    first = image * places + begin;
    return many * places - begin < many * band ? many * places - begin : many * band;
  }
};
constexpr int UNITS = 5;
inline Units units_of(const int64_t* v) { return {v[0], v[1], v[2], v[3], v[4]}; }

// y = of(x, other, place in the row), for so many floats.
template <typename F> inline __attribute__((always_inline)) void mapped(const float* x, const float* other, float* y, int64_t floats, int64_t wide, F of) {
  int64_t at = 0;
  for (; at + wide <= floats; at += wide)
#pragma GCC unroll 4
    for (int64_t j = 0; j < wide; j += L) store(y + at + j, of(load(x + at + j), load(other + at + j), j));
  for (int64_t j = 0; at + L <= floats; at += L, j = j + L < wide ? j + L : 0) store(y + at, of(load(x + at), load(other + at), j));
  if (at < floats) {
    const size_t left = sizeof(float) * size_t(floats - at);
    float in[L] = {}, added[L] = {}, found[L];
    std::memcpy(in, x + at, left), std::memcpy(added, other + at, left);
    store(found, of(load(in), load(added), at % wide));
    std::memcpy(y + at, found, left);
  }
}

template <int N, int COUNT = TOGETHER> inline V added(const V (*f)[N], int n) {
  if constexpr (COUNT == 1) return f[0][n];
  else return added<N, COUNT / 2>(f, n) + added<N, COUNT / 2>(f + COUNT / 2, n);
}

// N sums along the columns of the rows: `of` gives what the elements at some places add to each. The rows that come next are fetched in the
// order of memory, which the processor would not find out by itself.
template <int N, typename F>
inline __attribute__((always_inline)) void totals(const float* x, const float* other, int64_t floats, int64_t wide, float* sums, F of) {
  std::memset(sums, 0, sizeof(float) * size_t(N * wide));
  int64_t at = 0;
  for (; at + TOGETHER * wide <= floats; at += TOGETHER * wide)
    for (int64_t j = 0; j < wide; j += L) {
      const int64_t next = at + TOGETHER * (wide + j);
      V found[TOGETHER][N];
#pragma GCC unroll 8
      for (int k = 0; k < TOGETHER; ++k) {
        __builtin_prefetch(x + next + k * L);
        if (other != x) __builtin_prefetch(other + next + k * L);
        of(load(x + at + k * wide + j), load(other + at + k * wide + j), j, found[k]);
      }
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) store(sums + n * wide + j, load(sums + n * wide + j) + added<N>(found, n));
    }
  for (int64_t j = 0; at < floats; at += L, j = j + L < wide ? j + L : 0) {
    const int64_t left = floats - at < L ? floats - at : L;
    float in[L] = {}, added[L] = {}, own[L];
    std::memcpy(in, x + at, sizeof(float) * size_t(left)), std::memcpy(added, other + at, sizeof(float) * size_t(left));
    V found[N];
    of(load(in), load(added), j, found);
    for (int n = 0; n < N; ++n) {
      store(own, found[n]);
      for (int64_t l = 0; l < left; ++l) sums[n * wide + j + l] += own[l];
    }
  }
}

// What a row of sums holds of each channel, added up.
inline void fold(const float* sums, int64_t channels, int64_t wide, double* out) {
  for (int64_t c = 0; c < channels; ++c) out[c] = sums[c];
  for (int64_t at = channels; at < wide; at += channels)
    for (int64_t c = 0; c < channels; ++c) out[c] += sums[at + c];
}

}  // namespace

#endif
