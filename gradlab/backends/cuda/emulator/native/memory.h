// Shared memory of a block: storage with known bytes around it, so that a write beside it is seen when the block is done.
// It is no better aligned than its declaration says: an access that asks for more is then misaligned, here as it may be on a GPU.
// Where accesses are checked (bounds.cpp) and under the address sanitizer it is seen at once, and a read too. For the thread sanitizer no address is used twice in a launch.
#ifndef GRADLAB_EMULATOR_MEMORY_H
#define GRADLAB_EMULATOR_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fiber.h"

namespace gradlab_emulator {

constexpr size_t zone = 128;               // bytes on each side, and the alignment of what lies between
constexpr unsigned char poison = 0xff;     // NaN in every floating point format, -1 in integers
constexpr unsigned char untouched = 0xa5;  // around the storage

void enclose(const char* storage, size_t bytes);  // bounds.cpp: forbid what is beside it, where accesses are checked
void release(const char* storage, size_t bytes);
void forbid(const char* storage, size_t bytes);  // all of it, and allow it again
void allow(const char* storage, size_t bytes);

inline size_t padded(size_t bytes) { return (bytes + zone - 1) / zone * zone; }

#if GRADLAB_EMULATOR_TSAN
// A stretch of addresses for one launch; the operating system fills pages when they are touched.
struct Arena {
    static constexpr size_t bytes = size_t(1) << 30;
    char *first = nullptr, *next = nullptr;
    void open() {
        first = next = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    }
    void close() { munmap(first, bytes); }
    char* take(size_t size) {
        char* taken = next;
        next += padded(size);
        if (next > first + bytes) abort();  // gigabytes of shared memory in one launch: far beyond what this sanitizer can run
        return taken;
    }
};
extern Arena arena;
#endif

// By a loop, which the thread sanitizer does not see: it would take memset for an access by the kernel.
inline void fill_with_poison(char* storage, size_t bytes) {
    volatile char* byte = storage;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) *reinterpret_cast<volatile uint64_t*>(byte + i) = ~uint64_t(0);
    for (; i < bytes; ++i) byte[i] = char(poison);
}

// `storage` is null or what an earlier call returned for the same size. A multiple of `alignment`, or of 8, and of nothing more.
inline char* fresh_storage(char* storage, size_t bytes, size_t alignment) {
    const size_t beyond = alignment < 8 ? 8 : alignment < zone ? alignment : 0;
#if GRADLAB_EMULATOR_TSAN
    storage = arena.take(bytes + beyond) + beyond;
#else
    if (!storage) {
        const size_t all = padded(bytes) + 3 * zone;
        storage = static_cast<char*>(aligned_alloc(zone, all));
        if (!storage) abort();
        memset(storage, untouched, all);
        storage += zone + beyond;
        enclose(storage, bytes);
#if defined(__SANITIZE_ADDRESS__)
        __asan_poison_memory_region(storage - zone, zone);
        __asan_poison_memory_region(storage + bytes, padded(bytes) - bytes + zone);
#endif
    }
#endif
    fill_with_poison(storage, bytes);
    return storage;
}

inline bool all_untouched(const char* first, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (static_cast<unsigned char>(first[i]) != untouched) return false;
    return true;
}

// Whether nobody wrote beside the storage. Mends the damage, so that it is reported once.
inline bool intact(char* storage, size_t bytes) {
#if GRADLAB_EMULATOR_TSAN || defined(__SANITIZE_ADDRESS__)
    (void)storage, (void)bytes;
    return true;
#else
    const size_t after = padded(bytes) - bytes + zone;
    if (all_untouched(storage - zone, zone) && all_untouched(storage + bytes, after)) return true;
    memset(storage - zone, untouched, zone);
    memset(storage + bytes, untouched, after);
    return false;
#endif
}

inline void release_storage(char* storage, size_t bytes) {
#if GRADLAB_EMULATOR_TSAN
    (void)storage, (void)bytes;
#else
    if (!storage) return;
    release(storage, bytes);
    free(storage - zone - reinterpret_cast<uintptr_t>(storage) % zone);
#endif
}

}  // namespace gradlab_emulator

#endif
