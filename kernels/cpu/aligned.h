// Memory that begins at a multiple of a power of two.
#ifndef GRADLAB_ALIGNED_H
#define GRADLAB_ALIGNED_H

#include <stdlib.h>

#if defined(_WIN32)
#include <malloc.h>
#endif

// Null where there is none.
inline void* aligned_new(size_t to, size_t size) {
#if defined(_WIN32)
  return _aligned_malloc(size, to);
#else
  void* found = nullptr;
  return posix_memalign(&found, to, size) == 0 ? found : nullptr;
#endif
}
inline void aligned_delete(void* memory) {
#if defined(_WIN32)
  _aligned_free(memory);
#else
  free(memory);
#endif
}

#endif
