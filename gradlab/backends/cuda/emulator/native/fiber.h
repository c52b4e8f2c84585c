// Fibers: stacks that take turns on one OS thread. A switch is a dozen instructions on x86-64 and a system call elsewhere (ucontext).
// The address and thread sanitizers are told of every switch, or they would take a fiber's frames for a corrupted stack.
#ifndef GRADLAB_EMULATOR_FIBER_H
#define GRADLAB_EMULATOR_FIBER_H

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if GRADLAB_EMULATOR_TSAN  // the runtime itself is compiled without -fsanitize=thread: its accesses are the hardware's
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif
#if !defined(__x86_64__) || GRADLAB_EMULATOR_UCONTEXT
#define GRADLAB_EMULATOR_ASSEMBLY 0
#include <ucontext.h>
#else
#define GRADLAB_EMULATOR_ASSEMBLY 1
#endif

namespace gradlab_emulator {

#if GRADLAB_EMULATOR_ASSEMBLY
// Pushes the registers that a function must preserve, stores the stack pointer, and does the reverse on the other stack.
extern "C" void gradlab_switch_stack(void** save, void* other) __attribute__((visibility("hidden")));
asm(R"(
.text
.type gradlab_switch_stack,@function
gradlab_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size gradlab_switch_stack,.-gradlab_switch_stack
)");
#endif

#if defined(__SANITIZE_ADDRESS__) || GRADLAB_EMULATOR_TSAN
constexpr size_t stack_bytes = 256 << 10;  // instrumented frames are larger
#else
constexpr size_t stack_bytes = 64 << 10;
#endif

// One of the parties that take turns: a fiber, or the OS thread's own stack (without a stack of ours).
struct Fiber {
    char* stack = nullptr;
#if GRADLAB_EMULATOR_ASSEMBLY
    void* pointer = nullptr;
#else
    ucontext_t context;
#endif
    const void* bottom = nullptr;  // of the stack, as the address sanitizer knows it
    size_t size = 0;
    void* frames = nullptr;        // its fake frames
    void* thread = nullptr;        // the thread sanitizer's name for it

    void map() {
        const size_t page = size_t(sysconf(_SC_PAGESIZE));  // the lowest page stays unmapped: a stack that overflows stops there
        void* memory = mmap(nullptr, stack_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return;
        mprotect(memory, page, PROT_NONE);
        stack = static_cast<char*>(memory) + page;
        bottom = stack, size = stack_bytes;
    }
    void unmap() {
        const size_t page = size_t(sysconf(_SC_PAGESIZE));
        if (stack) munmap(stack - page, stack_bytes + page);
        stack = nullptr;
    }
    // Make it start `body` when it is next switched to. `spread` keeps the hot ends of many stacks out of the same cache sets.
    void start(void (*body)(), size_t spread) {
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(stack, stack_bytes);
        frames = nullptr;
#endif
        const size_t usable = stack_bytes - (spread & 63) * 256;
#if GRADLAB_EMULATOR_ASSEMBLY
        void** top = reinterpret_cast<void**>(stack + usable) - 1;  // where a return address would lie: the ABI's alignment
        *top = nullptr;
        *--top = reinterpret_cast<void*>(body);
        for (int i = 0; i < 6; ++i) *--top = nullptr;
        pointer = top;
#else
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = usable;
        context.uc_link = nullptr;
        makecontext(&context, body, 0);
#endif
    }
    // Called on the new stack when it runs for the first time: `from` is who switched here.
    static void arrived(Fiber& from) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, &from.bottom, &from.size);
#else
        (void)from;
#endif
    }
    static void transfer(Fiber& from, Fiber& to, bool for_good = false) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(for_good ? nullptr : &from.frames, to.bottom, to.size);
#else
        (void)for_good;
#endif
#if GRADLAB_EMULATOR_TSAN
        __tsan_switch_to_fiber(to.thread, __tsan_switch_to_fiber_no_sync);
#endif
#if GRADLAB_EMULATOR_ASSEMBLY
        gradlab_switch_stack(&from.pointer, to.pointer);
#else
        swapcontext(&from.context, &to.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(from.frames, nullptr, nullptr);
#endif
    }
};

}  // namespace gradlab_emulator

#endif
