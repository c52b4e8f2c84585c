// Random rows: NumPy's Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), word by word as `ops/random.py` says.
#ifndef GRADLAB_RANDOM_H
#define GRADLAB_RANDOM_H

#include "half.h"
#include "runtime.h"

namespace gradlab {

struct Stream {
  uint64_t seed, position;
  Stream(const void* state, int64_t offset) {
    const uint64_t* s = (const uint64_t*)state;
    seed = s[0], position = s[1] + uint64_t(offset);
  }
  // The four words of block n, which hold words 4n to 4n + 3 of the stream.
  void block(uint64_t n, uint64_t* words) const {
    uint64_t a = n + 1, b = a == 0, c = 0, d = 0, k0 = seed, k1 = 0;
    for (int round = 0; round < 10; ++round) {
      const unsigned __int128 first = (unsigned __int128)0xD2E7470EE14C6C93ULL * a, second = (unsigned __int128)0xCA5A826395121157ULL * c;
      a = uint64_t(second >> 64) ^ b ^ k0, b = uint64_t(second);
      c = uint64_t(first >> 64) ^ d ^ k1, d = uint64_t(first);
      k0 += 0x9E3779B97F4A7C15ULL, k1 += 0xBB67AE8584CAA73BULL;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
  }
};

constexpr int64_t DRAWN = 256;  // words at a time

// Calls each(i, word or half word) for elements of a share; HALVES: an element takes half a word.
template <bool HALVES, typename F> inline void draw(const Stream& stream, int64_t count, int part, int parts, F each) {
  const int64_t per = HALVES ? 2 : 1;
  const Share mine = share(count, part, parts, per * DRAWN);
  uint64_t words[DRAWN + 4];
  for (int64_t first = mine.first; first < mine.last; first += per * DRAWN) {
    const int64_t last = first + per * DRAWN < mine.last ? first + per * DRAWN : mine.last;
    const uint64_t start = stream.position + uint64_t(first / per), shift = start & 3;
    const int64_t blocks = (int64_t(shift) + (last - first + per - 1) / per + 3) / 4;
    for (int64_t b = 0; b < blocks; ++b) stream.block(start / 4 + uint64_t(b), words + 4 * b);
    const uint64_t* const from = words + shift;
    for (int64_t i = first; i < last; ++i) {
      const int64_t k = i - first;
      if (HALVES) each(i, uint64_t(uint32_t(from[k >> 1] >> (k & 1 ? 32 : 0))));
      else each(i, from[k]);
    }
  }
}

// y = x · scale where the half word is at least the limit, else 0
template <typename T>
void dropout(T* y, const T* x, const void* state, int64_t count, int64_t offset, uint64_t limit, double scale, int part, int parts) {
  const T factor = T(scale);
  draw<true>(Stream(state, offset), count, part, parts, [&](int64_t i, uint64_t h) { y[i] = h >= limit ? x[i] * factor : T(0); });
}

template <typename To, typename From>
void bernoulli(To* y, const From* p, const void* state, int64_t* status, int64_t count, int64_t offset, int part, int parts) {
  bool fine = true;
  draw<true>(Stream(state, offset), count, part, parts, [&](int64_t i, uint64_t h) {
    const double chance = double(p[i]);
    fine &= chance >= 0 && chance <= 1;
    y[i] = cast<To>(double(h) < chance * 4294967296.0);
  });
  if (!fine) *status = 1;
}

// Between low and high; `below`: the largest number of the type below high.
inline void uniform(float* y, const void* state, int64_t count, int64_t offset, double low, double high, double below, int part, int parts) {
  const bool unit = low == 0 && high == 1;
  draw<true>(Stream(state, offset), count, part, parts, [&](int64_t i, uint64_t h) {
    const double u = double(h >> 8) * 0x1p-24;
    const float found = float(unit ? u : u * (high - low) + low);
    y[i] = unit || found < float(below) ? found : float(below);
  });
}
inline void uniform(double* y, const void* state, int64_t count, int64_t offset, double low, double high, double below, int part, int parts) {
  const bool unit = low == 0 && high == 1;
  draw<false>(Stream(state, offset), count, part, parts, [&](int64_t i, uint64_t word) {
    const double u = double(word >> 11) * 0x1p-53, found = unit ? u : u * (high - low) + low;
    y[i] = unit || found < below ? found : below;
  });
}

}  // namespace gradlab

#endif
