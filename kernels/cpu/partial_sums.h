// A weight's gradient as partial sums of blocks of images, which do not depend on the number of threads.
#ifndef GRADLAB_PARTIAL_H
#define GRADLAB_PARTIAL_H

#include "images.h"

namespace {

thread_local Scratch sum_scratch;

// Target [outputs, channels, 3, 3], partial sums [blocks, outputs, 9, channels (up to whole vectors)]. Parameters: outputs, channels, blocks.
inline void add_blocks(char** p, const int64_t* v, int part, int parts) {
  const int64_t outputs = v[0], channels = v[1], wide = up(channels, L) * L;
  const Share mine = share(outputs, part, parts);
  float* sum = (float*)sum_scratch.of(sizeof(float) * size_t(9 * wide));
  if (sum == nullptr) return no_memory(p);
  for (int64_t o = mine.first; o < mine.last; ++o) {
    const float* from = (const float*)p[1] + o * 9 * wide;
    std::memcpy(sum, from, sizeof(float) * size_t(9 * wide));
    for (int64_t b = 1; b < v[2]; ++b) {
      from += outputs * 9 * wide;
      for (int64_t i = 0; i < 9 * wide; i += L) store(sum + i, load(sum + i) + load(from + i));
    }
    float* to = (float*)p[0] + o * channels * 9;
    for (int64_t c = 0; c < channels; ++c)
      for (int k = 0; k < 9; ++k) to[9 * c + k] = sum[k * wide + c];
  }
}

}  // namespace

#endif
