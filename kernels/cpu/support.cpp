// What C++ asks of its library, in terms of C, so that prebuilt libraries bring none along: memory, the end of threads, the end of it all.
#include <stddef.h>

namespace std {
enum class align_val_t : size_t {};
inline namespace __1 {
[[noreturn]] __attribute__((visibility("hidden"))) void __libcpp_verbose_abort(const char*, ...) noexcept { __builtin_trap(); }
}  // namespace __1
}  // namespace std

extern "C" {
void* malloc(size_t);
void free(void*);
#if defined(_WIN32)
void* _aligned_malloc(size_t, size_t);
void _aligned_free(void*);
#else
void* aligned_alloc(size_t, size_t);
#endif
#if defined(__linux__)
int __cxa_thread_atexit_impl(void (*)(void*), void*, void*);
__attribute__((visibility("hidden"))) int __cxa_thread_atexit(void (*end)(void*), void* object, void* library) {
  return __cxa_thread_atexit_impl(end, object, library);
}
#endif
}

void* operator new(size_t n) { return malloc(n ? n : 1); }
void* operator new[](size_t n) { return malloc(n ? n : 1); }
void operator delete(void* p) noexcept { free(p); }
void operator delete[](void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete[](void* p, size_t) noexcept { free(p); }
#if defined(_WIN32)
void* operator new(size_t n, std::align_val_t to) { return _aligned_malloc(n, size_t(to)); }
void operator delete(void* p, std::align_val_t) noexcept { _aligned_free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { _aligned_free(p); }
#else
void* operator new(size_t n, std::align_val_t to) { return aligned_alloc(size_t(to), (n + size_t(to) - 1) / size_t(to) * size_t(to)); }
void operator delete(void* p, std::align_val_t) noexcept { free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { free(p); }
#endif
