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

// The high words of word · size, from `low` on; `size` 0 stands for 2^64.
template <typename T>
void integers(T* y, const void* state, int64_t count, int64_t offset, uint64_t size, int64_t low, int part, int parts) {
  draw<false>(Stream(state, offset), count, part, parts, [&](int64_t i, uint64_t word) {
    const uint64_t found = size == 0 ? word : uint64_t(((unsigned __int128)word * size) >> 64);
    y[i] = T(int64_t(found + uint64_t(low)));
  });
}

inline double double_of(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
// What lies below 2^52, without an instruction that most processors have for single numbers alone.
inline double real_of(uint64_t n) { return double_of(n | 0x4330000000000000ULL) - 0x1p52; }
// A word's uniform number in [0, 1).
inline double unit_of(uint64_t word) { return (real_of(word >> 43) * 0x1p32 + real_of((word >> 11) & 0xffffffffULL)) * 0x1p-53; }

// log of 0 < x <= 1, normal, to one unit in the last place: the mantissa m between sqrt(1/2) and sqrt(2), s = (m - 1) / (m + 1), and a
// polynomial of s^2 for what lacks (log m - 2 s) / s.
inline double logarithm(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint64_t shifted = bits + (0x3ff0000000000000ULL - 0x3fe6a09e667f3bcdULL);  // the exponent counts from sqrt(1/2) on
  const double k = real_of(shifted >> 52) - 1023, f = double_of((shifted & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL) - 1;
  const double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
  double p = 0.1479819860511658591;
  p = p * z + 0.1531383769920937332, p = p * z + 0.1818357216161805012, p = p * z + 0.2222219843214978396;
  p = p * z + 0.2857142874366239149, p = p * z + 0.3999999999940941908, p = p * z + 0.6666666666666735130;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + p * z) + k * 1.90821492927058770002e-10)) - f);
}

// Pairs of standard normal numbers, by Box and Muller: sqrt(-2 log(1 - u)) times cos and sin of 2 pi v; times `deviation`, from `mean` on.
// With the numbers of NumPy's functions they agree to some units in the last place of a double.
inline void normal(float* y, const void* state, int64_t count, int64_t offset, double mean, double deviation, int part, int parts) {
  const Stream stream(state, offset);
  const Share mine = share(count, part, parts, DRAWN);
  uint64_t words[DRAWN + 4];
  double made[DRAWN];
  for (int64_t first = mine.first; first < mine.last; first += DRAWN) {
    const int64_t left = mine.last - first < DRAWN ? mine.last - first : DRAWN, pairs = (left + 1) / 2;
    const uint64_t start = stream.position + uint64_t(first), shift = start & 3;
    for (int64_t b = 0; b < (int64_t(shift) + 2 * pairs + 3) / 4; ++b) stream.block(start / 4 + uint64_t(b), words + 4 * b);
    const uint64_t* const from = words + shift;
    for (int64_t i = 0; i < pairs; ++i) {
      const double radius = __builtin_sqrt(-2.0 * logarithm(1.0 - unit_of(from[2 * i])));
      const double turn = 4 * unit_of(from[2 * i + 1]), quarter = (turn + 0x1.8p52) - 0x1.8p52;
      const double r = (turn - quarter) * 1.5707963267948966, z = r * r;
      double sine = 1.58969099521155010221e-10, cosine = -1.13596475577881948265e-11;
      sine = sine * z - 2.50507602534068634195e-08, sine = sine * z + 2.75573137070700676789e-06;
      sine = sine * z - 1.98412698298579493134e-04, sine = sine * z + 8.33333333332248946124e-03;
      sine = sine * z - 1.66666666666666324348e-01, sine = sine * z * r + r;
      cosine = cosine * z + 2.08757232129817482790e-09, cosine = cosine * z - 2.75573143513906633035e-07;
      cosine = cosine * z + 2.48015872894767294178e-05, cosine = cosine * z - 1.38888888888741095749e-03;
      cosine = cosine * z + 4.16666666666666019037e-02, cosine = cosine * z * z - 0.5 * z + 1;
      const bool odd = quarter == 1 || quarter == 3, below = quarter == 1 || quarter == 2, under = quarter == 2 || quarter == 3;
      const double across = odd ? sine : cosine, up = odd ? cosine : sine;
      made[2 * i] = radius * (below ? -across : across), made[2 * i + 1] = radius * (under ? -up : up);
    }
    for (int64_t i = 0; i < left; ++i) y[first + i] = float(made[i] * deviation + mean);
  }
}

}  // namespace gradlab

#endif
