// A kernel that touches an address it may not ends its launch, not the process: the handler leaves the fiber for good.
// The sanitizers have handlers of their own, which know more; theirs stay.
#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>
#include "scheduler.h"
#if !defined(SI_KERNEL)
#define SI_KERNEL 128
#endif

namespace gradlab_emulator {

void locate(const void* instruction, Fault& fault) {
    Dl_info library;
    if (instruction && dladdr(instruction, &library)) {
        fault.offset = static_cast<const char*>(instruction) - static_cast<const char*>(library.dli_fbase);
    }
}

#if defined(__SANITIZE_ADDRESS__) || GRADLAB_EMULATOR_TSAN
void handle_signals(bool) {}
#else
namespace {

constexpr int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];
stack_t stack_before;
char handler_stack[64 << 10];
thread_local bool launching = false;

const void* instruction_of(void* context) {
    const ucontext_t& state = *static_cast<const ucontext_t*>(context);
#if defined(__linux__) && defined(__x86_64__)
    return reinterpret_cast<void*>(state.uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
    return reinterpret_cast<void*>(state.uc_mcontext.pc);
#else
    (void)state;
    return nullptr;
#endif
}

void on_signal(int number, siginfo_t* info, void* context) {
    Scheduler& s = scheduler;
    if (!launching || s.current < 0) {  // none of ours: as if we had not been here
        for (int i = 0; i < 4; ++i)
            if (caught[i] == number) {
                if (before[i].sa_flags & SA_SIGINFO) before[i].sa_sigaction(number, info, context);
                else if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN) before[i].sa_handler(number);
                else signal(number, SIG_DFL);
            }
        return;
    }
    const char* address = behind(static_cast<const char*>(info->si_addr));
    const Fiber* fiber = s.threads[s.current].fiber;
    if (!s.failed) locate(instruction_of(context), *s.fault);
    if (number == SIGFPE) fail(nullptr, s.current, "integer division by zero, or of the smallest integer by -1");
    else if (number == SIGILL) fail(nullptr, s.current, "the kernel ran into code that cannot be reached");
    else if (fiber && address < fiber->stack && address >= fiber->stack - (64 << 10)) {
        fail(nullptr, s.current, "the thread's stack of %zu KiB is full: recursion, or large arrays in it", stack_bytes >> 10);
    } else if (info->si_code == SI_KERNEL) fail(nullptr, s.current, "a misaligned vector access, or an address that cannot exist");
    else if (address < reinterpret_cast<const char*>(4096)) fail(nullptr, s.current, "access through a null pointer");
    else fail(nullptr, s.current, "access to address %p, where there is no memory", static_cast<const void*>(address));
    for (;;) to_scheduler();
}

}  // namespace

void handle_signals(bool on) {
    if (on) {
        stack_t stack{};
        stack.ss_sp = handler_stack;  // an overflowing stack has no room for the handler
        stack.ss_size = sizeof handler_stack;
        sigaltstack(&stack, &stack_before);
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&action.sa_mask);
        for (int i = 0; i < 4; ++i) sigaction(caught[i], &action, &before[i]);
    } else {
        for (int i = 0; i < 4; ++i) sigaction(caught[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
    launching = on;
}
#endif

}  // namespace gradlab_emulator
