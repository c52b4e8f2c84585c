// What every kernel of a compiled CPU program looks like, and the thread pool that runs them.
//
// A program is a table of tasks. A task is a kernel with its operands: pointer i is `bases[place.base] + place.offset`. Kernels take
// (pointers, parameters, part, parts) and do their share of the work: parts of one task run at once, tasks run one after the other.
#ifndef GRADLAB_RUNTIME_H
#define GRADLAB_RUNTIME_H

#include <cstdint>
#include <cstring>

using Kernel = void (*)(char** pointers, const int64_t* parameters, int part, int parts);

struct Place {
  int64_t base, offset;
};

struct Task {
  Kernel kernel;
  const int64_t* parameters;
  const Place* places;
  int64_t count;   // of places
  int64_t widest;  // the most parts worth making: 1 runs on the calling thread alone
};

constexpr int MAX_PLACES = 64;
constexpr int TAKEN = MAX_PLACES;  // this pointer leads to the numbers of pieces of a task that have been taken
constexpr int MISSING = -1;  // in front of these numbers: whether a kernel found no memory
constexpr int COUNTERS = 64, COUNTER = 64 / sizeof(int64_t);  // how many numbers, and how far apart: each has its cache line

// A kernel that finds no memory for its own use says so, and returns: its results are not made, and the run ends with NO_MEMORY.
constexpr int64_t NO_MEMORY = -4;
inline void no_memory(char** pointers) { __atomic_store_n((int64_t*)pointers[TAKEN] + MISSING, 1, __ATOMIC_RELAXED); }

// Parameters are 64 bits wide; a double travels as its bits.
inline double real(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The share of `count` things that a part does, in steps of `grain`.
struct Share {
  int64_t first, last;
};
inline Share share(int64_t count, int part, int parts, int64_t grain = 1) {
  const int64_t units = (count + grain - 1) / grain;
  const int64_t first = units * part / parts * grain, last = units * (part + 1) / parts * grain;
  return {first < count ? first : count, last < count ? last : count};
}

// `count` things in pieces of `size`: each part takes those of its own share one after the other, then what is left of the others', so that none
// waits for one whose core is busy elsewhere. For work whose result does not depend on who does it.
struct Pieces {
  int64_t* taken;
  int64_t count, size;
  int own, ranges, tried = 0;

  Pieces(char** pointers, int part, int parts, int64_t count, int64_t size = 1) : taken((int64_t*)pointers[TAKEN]), count(count), size(size) {
    ranges = parts < COUNTERS ? parts : COUNTERS;
    own = part % ranges;
  }
  bool next(Share& piece) {
    for (; tried < ranges; ++tried) {
      const int range = (own + tried) % ranges;
      const Share all = share(count, range, ranges, size);
      piece.first = all.first + __atomic_fetch_add(taken + range * COUNTER, 1, __ATOMIC_RELAXED) * size;
      if (piece.first >= all.last) continue;
      piece.last = piece.first + size < all.last ? piece.first + size : all.last;
      return true;
    }
    return false;
  }
};

#define GRADLAB_KERNEL extern "C" void

#endif
