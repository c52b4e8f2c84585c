// Images read at the points of a grid, and the gradients of images and grid. The steps and roundings are those of gradlab/ops/grid_cpu.py.
#include <cmath>

#include "runtime.h"

namespace {

constexpr int64_t BLOCK = 64;  // points at a time: their taps lie on the stack
enum { ZEROS, BORDER, REFLECTION };

struct Sampling {
  int64_t images, channels, points, rank, size[3], taps, padding, aligned;
  int64_t pixels() const { return size[0] * size[1] * size[2]; }
};
inline Sampling sampling(const int64_t* v) { return {v[0], v[1], v[2], v[3], {v[4], v[5], v[6]}, v[7], v[8], v[9]}; }

// Coordinates brought into the image; `slope` is multiplied by the slope of that.
template <class T> inline void inside(const Sampling& s, T* __restrict__ place, int64_t n, T* __restrict__ slope) {
  const T last = T(n - 1), low = s.aligned ? T(0) : T(-0.5), span = s.aligned ? last : T(n);
  if (s.padding == ZEROS) return;
  if (s.padding == REFLECTION)
    for (int64_t b = 0; b < BLOCK; ++b) {
      const T shifted = place[b] - low, distance = std::fabs(shifted), turns = std::floor(distance / span), rest = distance - turns * span;
      const bool odd = turns - std::floor(turns / T(2)) * T(2) == T(1);
      place[b] = span == 0 ? place[b] * T(0) : (odd ? span - rest : rest) + low;
      slope[b] *= span == 0 || shifted == 0 ? T(0) : (shifted < 0) != odd ? T(-1) : T(1);
    }
  for (int64_t b = 0; b < BLOCK; ++b) {
    const T at = place[b];
    slope[b] = at >= 0 && at <= last ? slope[b] : T(0);
    place[b] = at < 0 ? T(0) : at > last ? last : at;
  }
}

// Of a block of points along one dimension: the taps' pixels (-1 outside), shares, and the shares' slopes.
template <class T, int TAPS> struct Axis {
  int32_t pixel[TAPS][BLOCK];
  T share[TAPS][BLOCK], slope[TAPS][BLOCK];

  void find(const Sampling& s, const T* __restrict__ at, int64_t n) {
    const T half = T(double(n - 1) / 2);
    T place[BLOCK], by[BLOCK], whole[TAPS][BLOCK];
    if (s.aligned)
      for (int64_t b = 0; b < BLOCK; ++b) place[b] = (at[b] + T(1)) * half, by[b] = half;
    else
      for (int64_t b = 0; b < BLOCK; ++b) place[b] = T(double(at[b] + T(1)) * (double(n) / 2) - 0.5), by[b] = T(double(n) / 2);
    if (TAPS < 4) inside(s, place, n, by);
    if (TAPS == 1) {
      for (int64_t b = 0; b < BLOCK; ++b) whole[0][b] = std::rint(place[b]), share[0][b] = 1, slope[0][b] = 0;
    } else if (TAPS == 2) {
      for (int64_t b = 0; b < BLOCK; ++b) {
        const T floor = std::floor(place[b]), t = place[b] - floor;
        whole[0][b] = floor, whole[TAPS - 1][b] = floor + T(1);
        share[0][b] = T(1) - t, share[TAPS - 1][b] = t, slope[0][b] = -by[b], slope[TAPS - 1][b] = by[b];
      }
    } else {
      for (int k = 0; k < TAPS; ++k) {
        const bool near = k == 1 || k == 2;
        for (int64_t b = 0; b < BLOCK; ++b) {
          const T floor = std::floor(place[b]), t = place[b] - floor, d = k == 0 ? t + T(1) : k == 1 ? t : k == 2 ? T(1) - t : T(2) - t;
          whole[k][b] = floor + T(k - 1);
          share[k][b] = near ? (T(1.25) * d - T(2.25)) * d * d + T(1) : ((T(-0.75) * d - T(-3.75)) * d + T(-6)) * d - T(-3);
          const T found = near ? (T(3.75) * d - T(4.5)) * d : (T(-2.25) * d + T(7.5)) * d - T(6);
          slope[k][b] = (k < 2 ? found : -found) * by[b];
        }
      }
      T none[BLOCK] = {};
      for (int k = 0; k < TAPS; ++k) inside(s, whole[k], n, none);
    }
    const T last = T(n - 1);
    for (int k = 0; k < TAPS; ++k)
      for (int64_t b = 0; b < BLOCK; ++b) {
        const T found = whole[k][b], low = found > 0 ? found : T(0);
        const int32_t near = int32_t(low < last ? low : last);
        pixel[k][b] = s.padding == ZEROS && (found < 0 || found > last) ? -1 : near;
      }
  }
};

constexpr int power(int root, int exponent) {
  return exponent == 0 ? 1 : root * power(root, exponent - 1);
}

// The corners of a block of points: pixels (-1 outside) and weights; with slopes, the weights' slopes along each dimension.
template <class T, int TAPS, int RANK, bool SLOPES> struct Corners {
  static constexpr int COUNT = power(TAPS, RANK);
  int32_t pixel[COUNT][BLOCK];
  bool outside;  // whether any pixel is
  T weight[COUNT][BLOCK];
  T slope[SLOPES ? RANK : 1][SLOPES ? COUNT : 1][BLOCK];

  void find(const Sampling& s, const T* grid, int64_t count) {
    Axis<T, TAPS> axis[RANK];
    for (int d = 0; d < RANK; ++d) {
      T at[BLOCK] = {};
      for (int64_t b = 0; b < count; ++b) at[b] = grid[b * RANK + RANK - 1 - d];
      axis[d].find(s, at, s.size[3 - RANK + d]);
    }
    int32_t least = 0;
    for (int corner = 0; corner < COUNT; ++corner) {
      int tap[RANK];
      for (int d = RANK - 1, rest = corner; d >= 0; --d, rest /= TAPS) tap[d] = rest % TAPS;
      for (int64_t b = 0; b < BLOCK; ++b) pixel[corner][b] = axis[0].pixel[tap[0]][b], weight[corner][b] = axis[0].share[tap[0]][b];
      for (int d = 1; d < RANK; ++d) {
        const int32_t along = int32_t(s.size[3 - RANK + d]);
        for (int64_t b = 0; b < BLOCK; ++b) {
          const int32_t before = pixel[corner][b], own = axis[d].pixel[tap[d]][b];
          pixel[corner][b] = (before | own) < 0 ? -1 : before * along + own;
          weight[corner][b] *= axis[d].share[tap[d]][b];
        }
      }
      for (int64_t b = 0; b < count; ++b) least |= pixel[corner][b];
      if (!SLOPES) continue;
      for (int d = 0; d < RANK; ++d) {
        T* const to = slope[SLOPES ? d : 0][SLOPES ? corner : 0];
        for (int64_t b = 0; b < BLOCK; ++b) to[b] = axis[d].slope[tap[d]][b];
        for (int other = 0; other < RANK; ++other)
          if (other != d)
            for (int64_t b = 0; b < BLOCK; ++b) to[b] *= axis[other].share[tap[other]][b];
      }
    }
    outside = least < 0;
  }
};

template <class T, int TAPS, int RANK> void sample(char** p, const Sampling& s, int part, int parts) {
  const int64_t blocks = (s.points + BLOCK - 1) / BLOCK, pixels = s.pixels();
  const Share mine = share(s.images * blocks, part, parts);
  Corners<T, TAPS, RANK, false> corners;
  for (int64_t u = mine.first; u < mine.last; ++u) {
    const int64_t n = u / blocks, first = (u - n * blocks) * BLOCK, count = first + BLOCK < s.points ? BLOCK : s.points - first;
    corners.find(s, (const T*)p[2] + (n * s.points + first) * RANK, count);
    const T* x = (const T*)p[1] + n * s.channels * pixels;
    T* y = (T*)p[0] + n * s.channels * s.points + first;
    for (int64_t c = 0; c < s.channels; ++c, x += pixels, y += s.points) {
      for (int64_t b = 0; b < count; ++b) {
        T total = 0;
        for (int k = 0; k < corners.COUNT; ++k) {
          const int32_t at = corners.pixel[k][b];
          const T value = (corners.outside && at < 0 ? T(0) : x[at]) * corners.weight[k][b];
          total = k == 0 ? value : total + value;
        }
        y[b] = total;
      }
    }
  }
}

// Each part has images of its own.
template <class T, int TAPS, int RANK> void slopes(char** p, const Sampling& s, int part, int parts) {
  const int64_t pixels = s.pixels();
  const Share mine = share(s.images, part, parts);
  Corners<T, TAPS, RANK, (TAPS > 1)> corners;
  std::memset(p[0] + mine.first * s.channels * pixels * sizeof(T), 0, size_t((mine.last - mine.first) * s.channels * pixels) * sizeof(T));
  for (int64_t n = mine.first; n < mine.last; ++n)
    for (int64_t first = 0; first < s.points; first += BLOCK) {
      const int64_t count = first + BLOCK < s.points ? BLOCK : s.points - first;
      corners.find(s, (const T*)p[4] + (n * s.points + first) * RANK, count);
      const T* x = (const T*)p[3] + n * s.channels * pixels;
      const T* g = (const T*)p[2] + n * s.channels * s.points + first;
      T* dx = (T*)p[0] + n * s.channels * pixels;
      T dot[corners.COUNT][BLOCK] = {};
      for (int64_t c = 0; c < s.channels; ++c, x += pixels, dx += pixels, g += s.points)
        for (int k = 0; k < corners.COUNT; ++k)
          for (int64_t b = 0; b < count; ++b) {
            const int32_t at = corners.pixel[k][b];
            if (at < 0) continue;
            dx[at] += g[b] * corners.weight[k][b];
            if (TAPS > 1) dot[k][b] += g[b] * x[at];
          }
      T* dgrid = (T*)p[1] + (n * s.points + first) * RANK;
      for (int64_t b = 0; b < count; ++b)
        for (int d = 0; d < RANK; ++d) {
          T total = 0;
          if (TAPS > 1)
            for (int k = 0; k < corners.COUNT; ++k) total += dot[k][b] * corners.slope[TAPS > 1 ? d : 0][TAPS > 1 ? k : 0][b];
          dgrid[b * RANK + RANK - 1 - d] = total;
        }
    }
}

template <class T, bool BACK> void run(char** p, const int64_t* v, int part, int parts) {
  const Sampling s = sampling(v);
  if (s.rank == 2) {
    if (s.taps == 1) BACK ? slopes<T, 1, 2>(p, s, part, parts) : sample<T, 1, 2>(p, s, part, parts);
    else if (s.taps == 2) BACK ? slopes<T, 2, 2>(p, s, part, parts) : sample<T, 2, 2>(p, s, part, parts);
    else BACK ? slopes<T, 4, 2>(p, s, part, parts) : sample<T, 4, 2>(p, s, part, parts);
  } else if (s.taps == 1) BACK ? slopes<T, 1, 3>(p, s, part, parts) : sample<T, 1, 3>(p, s, part, parts);
  else BACK ? slopes<T, 2, 3>(p, s, part, parts) : sample<T, 2, 3>(p, s, part, parts);
}

}  // namespace

// y, x, grid; parameters: images, channels, points, rank, three sizes, taps, padding, whether corners are aligned
GRADLAB_KERNEL gradlab_grid_sample(char** p, const int64_t* v, int part, int parts) { run<float, false>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_grid_sample_double(char** p, const int64_t* v, int part, int parts) { run<double, false>(p, v, part, parts); }
// dx, dgrid, dy, x, grid; likewise
GRADLAB_KERNEL gradlab_grid_slopes(char** p, const int64_t* v, int part, int parts) { run<float, true>(p, v, part, parts); }
GRADLAB_KERNEL gradlab_grid_slopes_double(char** p, const int64_t* v, int part, int parts) { run<double, true>(p, v, part, parts); }
