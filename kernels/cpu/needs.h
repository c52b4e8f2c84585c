// What of a file a program needs. A file's parts have numbers, from 0 on; where the compiler is told GRADLAB_NEEDS, a bit for each of them
// (backends/native/needs.py), the others are left out, which takes it half the time. Otherwise all are made.
#ifndef GRADLAB_NEEDS_H
#define GRADLAB_NEEDS_H

#include <cstdint>

#ifndef GRADLAB_NEEDS
#define GRADLAB_NEEDS -1
#endif

namespace {

constexpr bool needed(int part) { return (int64_t(GRADLAB_NEEDS) >> part & 1) != 0; }

}  // namespace

#ifdef GRADLAB_REACHED  // for tests: which parts have run
extern "C" __attribute__((visibility("default"))) int64_t gradlab_reached = 0;
#define GRADLAB_NOTE(part) __atomic_fetch_or(&gradlab_reached, int64_t(1) << (part), __ATOMIC_RELAXED)
#else
#define GRADLAB_NOTE(part) (void)0
#endif

// Runs what follows where that part is needed; a program that was compiled without it, and wants it all the same, ends here.
#define GRADLAB_PART(part) if constexpr (!needed(part)) __builtin_trap(); else if (GRADLAB_NOTE(part), false) {} else

#endif
