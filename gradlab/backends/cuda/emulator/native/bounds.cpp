// What a kernel may not touch, where its accesses are checked: emulator/bounds.py maps the shadow and says which flags put the checks into a
// program. The functions that those call are here, by the names that the compiler gives them.
#include "scheduler.h"

// The address of address 0's shadow; 0 where there is none. Python sets it.
extern "C" __attribute__((visibility("default"))) uint64_t gradlab_emulator_shadow = 0;

namespace gradlab_emulator {

static void mark(const char* from, size_t bytes, int value) {
    memset(reinterpret_cast<char*>(gradlab_emulator_shadow + (reinterpret_cast<uint64_t>(from) >> 3)), value, bytes >> 3);
}

void enclose(const char* storage, size_t bytes) {
    if (!gradlab_emulator_shadow) return;
    const size_t whole = bytes / 8 * 8;
    mark(storage - zone, zone, 0xfa);
    mark(storage + whole, padded(bytes) - whole + zone, 0xfa);
    if (bytes > whole) mark(storage + whole, 8, int(bytes - whole));
}

void release(const char* storage, size_t bytes) {
    if (gradlab_emulator_shadow) mark(storage - zone, padded(bytes) + 2 * zone, 0);
}

void forbid(const char* storage, size_t bytes) {
    if (gradlab_emulator_shadow) mark(storage, padded(bytes), 0xfa);
}

void allow(const char* storage, size_t bytes) {
    if (!gradlab_emulator_shadow) return;
    mark(storage, bytes / 8 * 8, 0);
    enclose(storage, bytes);
}

const char* behind(const char* address) {
    const uint64_t shadow = gradlab_emulator_shadow, at = reinterpret_cast<uint64_t>(address), own = shadow + (shadow >> 3);
    return shadow && at >= own && at < own + (uint64_t(1) << 41) ? reinterpret_cast<const char*>((at - shadow) << 3) : address;
}

static void stop(const char* address, size_t size, const char* access, const void* instruction) {
    Scheduler& s = scheduler;
    const bool flight = touches_flight(address, size, access);
    if (!flight && maybe_in_flight(address)) return;  // what shares eight bytes with it
    if (!s.failed || flight) locate(static_cast<const char*>(instruction) - 1, *s.fault);  // the call, not what follows it
    if (!flight && !beside_shared_memory(address, access)) {
        s.fault->address = reinterpret_cast<uint64_t>(address);
        fail(nullptr, s.current, "%s", access);
    }
    for (;;) to_scheduler();
}

}  // namespace gradlab_emulator

#define GRADLAB_REPORT(access, words, size)                                                                                    \
    extern "C" __attribute__((visibility("default"))) void __asan_report_##access##size##_noabort(const char* address) {       \
        gradlab_emulator::stop(address, size, words, __builtin_return_address(0));                                             \
    }
#define GRADLAB_REPORTS(access, words)                                                                                         \
    GRADLAB_REPORT(access, words, 1)                                                                                           \
    GRADLAB_REPORT(access, words, 2)                                                                                           \
    GRADLAB_REPORT(access, words, 4)                                                                                           \
    GRADLAB_REPORT(access, words, 8)                                                                                           \
    GRADLAB_REPORT(access, words, 16)                                                                                          \
    extern "C" __attribute__((visibility("default"))) void __asan_report_##access##_n_noabort(const char* address, size_t size) { \
        gradlab_emulator::stop(address, size, words, __builtin_return_address(0));                                             \
    }
GRADLAB_REPORTS(load, "a read")
GRADLAB_REPORTS(store, "a write")

#define GRADLAB_NOTHING(name, ...) extern "C" __attribute__((visibility("default"))) void name(__VA_ARGS__) {}
GRADLAB_NOTHING(__asan_handle_no_return)
GRADLAB_NOTHING(__asan_before_dynamic_init, const char*)
GRADLAB_NOTHING(__asan_after_dynamic_init)

// The same for addresses that are no multiple of what a type asks for: what the compiler knows of the access, in its own layout.
struct GradlabAccess {
    const char* file;
    unsigned line, column;
    const struct {
        unsigned short kind, information;
        char name[1];
    }* type;
    unsigned char alignment, kind;  // the logarithm to base 2; 1 and more stores apart from the rest
};
extern "C" __attribute__((visibility("default"), noreturn)) void __ubsan_handle_type_mismatch_v1_abort(const GradlabAccess* access, const char* address) {
    const gradlab_emulator::Site site{access->file, int(access->line), 0};
    const int wanted = 1 << access->alignment, over = int(reinterpret_cast<uint64_t>(address) % wanted);
    gradlab_emulator::fail(&site, gradlab_emulator::scheduler.current, "a misaligned access: %s lies at multiples of %d bytes, not %d beyond one",
                           access->type->name, wanted, over);
    for (;;) gradlab_emulator::to_scheduler();
}
