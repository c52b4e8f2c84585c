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

#define GRADLAB_KERNEL extern "C" void

#endif
