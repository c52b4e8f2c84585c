// Memory that begins at a multiple of a power of two. What kernels need for their own use comes from here, and none of it is taken for granted.
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

// Memory for the time of a call, null where there is none.
template <typename T> struct Room {
  T* const at;
  explicit Room(size_t count) : at((T*)aligned_new(64, count > 0 ? count * sizeof(T) : 1)) {}
  Room(const Room&) = delete;
  ~Room() { aligned_delete(at); }
};

#endif
