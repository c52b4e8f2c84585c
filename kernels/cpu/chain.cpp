// A chain: tasks that go along a batch, run for a few images at a time, so that what one of them writes is still in the second-level cache
// when the next one reads it (chaining.py).
#include "runtime.h"

namespace {

// Where an operand lies: of the image with number n at `step` · n, or for each part at a place of its own, `apart` from the next part's.
struct Spot {
  int64_t base, offset, step, apart;
};

struct Link {
  Kernel kernel;
  const int64_t *whole, *rest;  // parameters for as many images as are done at a time, and for those that remain
  const Spot* spots;
  int64_t count;
};

}  // namespace

// No operands. Parameters: where the bases lie, where the links lie, how many; the images, and how many are done at a time.
GRADLAB_KERNEL gradlab_chain(char** p, const int64_t* v, int part, int parts) {
  char** const bases = (char**)v[0];
  const Link* const links = (const Link*)v[1];
  char* pointers[MAX_PLACES + 1];
  int64_t missing[2] = {}, &taken = missing[1];  // of the pieces of a task, which are all taken here
  pointers[TAKEN] = (char*)&taken;
  Pieces chunks(p, part, parts, v[3], v[4]);
  for (Share chunk; chunks.next(chunk);)
    for (int64_t i = 0; i < v[2]; ++i) {
      const Link& link = links[i];
      for (int64_t j = 0; j < link.count; ++j) {
        const Spot& s = link.spots[j];
        pointers[j] = bases[s.base] + s.offset + chunk.first * s.step + part * s.apart;
      }
      taken = 0;
      link.kernel(pointers, chunk.last - chunk.first == v[4] ? link.whole : link.rest, 0, 1);
      if (missing[0] != 0) return no_memory(p);
    }
}
