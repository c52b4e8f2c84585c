// The scheduler of the emulated GPU: runs a grid block by block, or cluster by cluster, and their threads as fibers in a chosen order.
// Compiled once into a library that every program links to, so that all programs share the stacks.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <stdarg.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#include "scheduler.h"

namespace gradlab_emulator {

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
Scheduler scheduler;
uint64_t Variable::current_block = 0;
int Variable::rank = 0;

namespace {

enum Order { forward, reverse, random_order, warps_apart };

std::mutex one_launch;
bool running = false;
const char* misplaced = nullptr;     // shared memory declared outside a function
size_t dynamic_alignment = 16;       // what hardware gives, unless a declaration asks for more
bool dynamic_used = false;           // in this launch

// Subnormals count as zero, as in code that CuPy compiles (-ftz=true). The processor's switch is for float and double together.
struct Subnormals {
#if defined(__SSE__)
    unsigned before = _mm_getcsr();
    explicit Subnormals(bool flush) { if (flush) _mm_setcsr(before | 0x8040); }
    ~Subnormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;
    explicit Subnormals(bool flush) {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        if (flush) asm volatile("msr fpcr, %0" : : "r"(before | uint64_t(1) << 24));
    }
    ~Subnormals() { asm volatile("msr fpcr, %0" : : "r"(before)); }
#else
    explicit Subnormals(bool) {}
#endif
};

#if GRADLAB_EMULATOR_TSAN
// Addresses that stand for barriers: two for each block, two for the cluster and two for each warp, used in turn, because a thread that
// runs ahead must not release into the barrier that others are still leaving.
char* block_sync = nullptr;
constexpr int of_cluster = 16 * most_blocks, of_warps = of_cluster + 16, sync_bytes = of_warps + 16 * most_together / lanes;
char launch_sync, fence_sync;
void* sync_object(Thread& thread, int index, const Request& request) {
    if (request.operation == Operation::cluster_barrier) return block_sync + of_cluster + 8 * (thread.cluster_barriers++ & 1);
    if (request.operation < Operation::sync_warp) return block_sync + 16 * scheduler.block_of(index) + 8 * (thread.barriers++ & 1);
    if (request.operation != Operation::sync_warp) return nullptr;  // shuffles and votes order no memory
    return block_sync + of_warps + 16 * (index / lanes) + 8 * (thread.warp_barriers++ & 1);
}
#endif

void start_thread(int index) {
    Scheduler& s = scheduler;
    s.current = index;
    threadIdx = s.threads[index].index;
    const int block = Variable::rank = s.block_of(index);
    blockIdx = s.blocks[block].index;
    if (!s.blocks[block].begun) block_begins(block);
}

// What a fiber does: it runs threads to their end, one after another, as long as the next one has not started elsewhere.
void fiber_body() {
    Scheduler& s = scheduler;
    Fiber::arrived(s.own);
    for (;;) {
        const int index = s.current;
        Fiber* fiber = s.threads[index].fiber;
        {
#if !GRADLAB_EMULATOR_ASSEMBLY
            Subnormals mode(s.flush);  // ucontext keeps the floating point mode of each context
#endif
            s.kernel(s.parameters);
        }
        copies_left(s.current);
        Thread& done = s.threads[s.current];
        done.state = State::finished;
        done.fiber = nullptr;
        s.warps[s.warp_of(s.current)].finished |= 1u << s.current % lanes;
        ++s.finished;
        const int block = s.block_of(s.current);
        if (++s.blocks[block].finished == s.count && s.cluster > 1) block_ends(block);
#if GRADLAB_EMULATOR_TSAN
        __tsan_release(&launch_sync);
#else
        if (s.position < s.batch.size() && !s.threads[s.batch[s.position]].fiber) {
            start_thread(s.batch[s.position++]);
            s.threads[s.current].fiber = fiber;
            continue;
        }
        s.idle.push_back(fiber);
#endif
        Fiber::transfer(*fiber, s.own);
    }
}

Fiber* new_fiber() {
    Scheduler& s = scheduler;
    Fiber* fiber = new Fiber;
    fiber->map();
    if (!fiber->stack) {
        delete fiber;
        return nullptr;
    }
    fiber->start(fiber_body, s.fibers.size());
    s.fibers.push_back(fiber);
    return fiber;
}

void run(int index) {
    Scheduler& s = scheduler;
    start_thread(index);
    Thread& thread = s.threads[index];
    if (!thread.fiber) {
        if (s.idle.empty()) thread.fiber = new_fiber();
        else {
            thread.fiber = s.idle.back();
            s.idle.pop_back();
        }
        if (!thread.fiber) return fail(nullptr, -1, "no memory for the stack of another thread");
#if GRADLAB_EMULATOR_TSAN
        thread.fiber->thread = __tsan_create_fiber(0);
#endif
    }
    Fiber::transfer(s.own, *thread.fiber);
    s.current = -1;
}

// After an error some fibers stand in the middle of a kernel; the thread sanitizer wants stacks that no thread has used before.
void renew_fibers(bool unmap) {
    Scheduler& s = scheduler;
    s.idle.clear();
    for (size_t i = 0; i < s.fibers.size(); ++i) {
        Fiber* fiber = s.fibers[i];
#if GRADLAB_EMULATOR_TSAN
        if (fiber->thread) __tsan_destroy_fiber(fiber->thread);
        fiber->thread = nullptr;
#endif
        if (unmap) {
            fiber->unmap();
            delete fiber;
        } else {
            fiber->start(fiber_body, i);
            s.idle.push_back(fiber);
        }
    }
    if (unmap) s.fibers.clear();
}

void choose_batch(std::vector<int>& priority) {
    Scheduler& s = scheduler;
    s.batch.clear();
    s.position = 0;
    if (s.order == random_order) {  // any thread that can run
        const size_t pick = s.random() % s.ready.size();
        s.batch.push_back(s.ready[pick]);
        s.ready[pick] = s.ready.back();
        s.ready.pop_back();
    } else if (s.order == warps_apart) {  // one warp runs as far as it can, then the next
        int first = most_together;
        for (int index : s.ready) first = std::min(first, priority[size_t(s.warp_of(index))]);
        auto other = [&](int index) { return priority[size_t(s.warp_of(index))] != first; };
        auto middle = std::stable_partition(s.ready.begin(), s.ready.end(), other);
        s.batch.assign(middle, s.ready.end());
        s.ready.erase(middle, s.ready.end());
        if (s.random() & 1) std::reverse(s.batch.begin(), s.batch.end());
    } else {
        s.batch.swap(s.ready);
        if (s.order == reverse) std::reverse(s.batch.begin(), s.batch.end());
    }
}

// Which warps go first where they run apart: those of one block as far as they can, then those of the next.
void choose_priorities(std::vector<int>& priority, int warp_count) {
    Scheduler& s = scheduler;
    std::vector<int> places(size_t(s.cluster)), own(size_t(warp_count / s.cluster));
    priority.resize(size_t(warp_count));
    std::iota(places.begin(), places.end(), 0);
    std::iota(own.begin(), own.end(), 0);
    if (s.cluster > 1) std::shuffle(places.begin(), places.end(), s.random);
    for (size_t block = 0; block < places.size(); ++block) {
        std::shuffle(own.begin(), own.end(), s.random);
        for (size_t w = 0; w < own.size(); ++w) priority[block * own.size() + w] = places[block] * int(own.size()) + own[w];
    }
}

// The block that begins at (first), or the cluster.
void run_together(const uint3& first, const dim3& cluster) {
    Scheduler& s = scheduler;
    ++Variable::current_block;
    s.together = s.cluster * s.count;
    copies_forget();
    variables = nullptr;
    s.finished = 0;
    s.batch.reserve(most_together);  // before threads take turns: what they grow, the thread sanitizer would take for a race of theirs
    s.ready.reserve(most_together);
    s.ready.resize(size_t(s.together));
    std::iota(s.ready.begin(), s.ready.end(), 0);
    for (int b = 0; b < s.cluster; ++b) {
        const unsigned n = unsigned(b), x = cluster.x, y = cluster.y;
        s.blocks[b] = Block{uint3{first.x + n % x, first.y + n / x % y, first.z + n / (x * y)}, 0, 0, false, false, s.blocks[b].dynamic, 0};
        if (dynamic_bytes) s.blocks[b].dynamic = fresh_storage(s.blocks[b].dynamic, dynamic_bytes, dynamic_alignment);
    }
    for (int i = 0; i < s.together; ++i) {
        const unsigned n = unsigned(i % s.count), x = blockDim.x, y = blockDim.y;
        s.threads[i] = Thread{uint3{n % x, n / x % y, n / (x * y)}, State::ready, nullptr, nullptr, 0, 0, 0};
    }
    const int warp_count = (s.together + lanes - 1) / lanes;
    for (int w = 0; w < warp_count; ++w) {
        const int live = std::min(lanes, s.together - w * lanes);
        s.warps[w] = Warp{live == lanes ? ~0u : (1u << live) - 1, 0, 0};
    }
    std::vector<int> priority;
    if (s.order == warps_apart) choose_priorities(priority, warp_count);
#if GRADLAB_EMULATOR_TSAN
    renew_fibers(true);
    block_sync = arena.take(sync_bytes);
#endif
    while (!s.failed) {
        for (int b = 0; b < s.cluster && s.cluster > 1 && !s.failed; ++b)  // a block goes on without the others
            if (s.blocks[b].waiting == s.count) block_barrier(b);
        if (s.failed) break;
        if (s.ready.empty()) {
            if (settle()) continue;
            break;
        }
        choose_batch(priority);
        while (s.position < s.batch.size() && !s.failed) run(s.batch[s.position++]);
    }
    cluster_ends();
}

void run_grid(const dim3& cluster) {
    Scheduler& s = scheduler;
    const unsigned x = gridDim.x / cluster.x, y = gridDim.y / cluster.y;
    const uint64_t blocks = uint64_t(x) * y * (gridDim.z / cluster.z);  // or clusters
    std::vector<uint64_t> shuffled;
    if (s.order >= random_order && blocks <= (uint64_t(1) << 22)) {
        shuffled.resize(blocks);
        std::iota(shuffled.begin(), shuffled.end(), uint64_t(0));
        std::shuffle(shuffled.begin(), shuffled.end(), s.random);
    }
    for (uint64_t i = 0; i < blocks && !s.failed; ++i) {
        const uint64_t block = !shuffled.empty() ? shuffled[i] : s.order == reverse ? blocks - 1 - i : i;
        run_together(uint3{unsigned(block % x) * cluster.x, unsigned(block / x % y) * cluster.y, unsigned(block / x / y) * cluster.z}, cluster);
    }
}

}  // namespace

// `thread`: the index of the one concerned, -1 for none, -2 for the block as a whole. The first error of a launch counts.
void fail(const Site* site, int thread, const char* format, ...) {
    Scheduler& s = scheduler;
    if (s.failed) return;
    s.failed = true;
    Fault& fault = *s.fault;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault.message, sizeof fault.message, format, arguments);
    va_end(arguments);
    snprintf(fault.file, sizeof fault.file, "%s", site ? site->file : "");
    fault.line = site ? site->line : 0;
    fault.in_thread = thread >= 0 ? 2 : thread == -2 ? 1 : 0;
    const uint3 where = thread >= 0 ? s.threads[thread].index : uint3{0, 0, 0};
    fault.thread[0] = where.x, fault.thread[1] = where.y, fault.thread[2] = where.z;
    const uint3 block = thread >= 0 ? s.blocks[s.block_of(thread)].index : blockIdx;
    fault.block[0] = block.x, fault.block[1] = block.y, fault.block[2] = block.z;
#if GRADLAB_EMULATOR_TSAN
    if (s.current >= 0) __tsan_release(&launch_sync);  // the thread does not come to its end: what it wrote here the host reads
#endif
}

void to_scheduler() {
    Scheduler& s = scheduler;
    Fiber::transfer(*s.threads[s.current].fiber, s.own, s.failed);
}

void trap(const char* what, const char* file, int line) {
    const Site site{file, line, 0};
    fail(&site, scheduler.current, "%s", what);
    for (;;) to_scheduler();  // which does not come back to a failed launch
}

uint64_t collective(Request& request) {
    Scheduler& s = scheduler;
    const int index = s.current;
    Thread& thread = s.threads[index];
    thread.request = &request;
#if GRADLAB_EMULATOR_TSAN
    void* object = sync_object(thread, index, request);
    if (object) __tsan_release(object);
#endif
    if (request.operation < Operation::sync_warp) {
        thread.state = State::at_barrier;
        ++s.blocks[s.block_of(index)].waiting;
    } else arrive(index, request);
    to_scheduler();
#if GRADLAB_EMULATOR_TSAN
    if (object) __tsan_acquire(object);
#endif
    return request.result;
}

void interrupt() {
    Scheduler& s = scheduler;
    if (s.order < random_order || (s.random() & 7) != 0) return;
    s.ready.push_back(s.current);
    to_scheduler();
}

void fence() {
    races_at_fence();
#if GRADLAB_EMULATOR_TSAN
    __tsan_acquire(&fence_sync);
    __tsan_release(&fence_sync);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

unsigned active_lanes() {
    const Warp& warp = scheduler.warps[scheduler.warp_of(scheduler.current)];
    return warp.exist & ~warp.finished;
}

long long ticks() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void Variable::enter(const char* its_name, size_t bytes, size_t its_alignment, int its_rank) {
    if (!running) {
        misplaced = its_name;
        return;
    }
    name = its_name;
    size = bytes, alignment = its_alignment;
    storage[its_rank] = fresh_storage(storage[its_rank], bytes, alignment);
    races_forget(storage[its_rank], bytes);
    entered[its_rank] = current_block;
    if (linked != current_block) {
        linked = current_block;
        next = variables;
        variables = this;
    }
    size_t& all = scheduler.blocks[its_rank].static_bytes;
    all += bytes;
    if (all > 48 << 10) {
        fail(nullptr, scheduler.current, "%zu bytes of static shared memory, with `%s`; the hardware has 48 KiB", all, its_name);
        for (;;) to_scheduler();
    }
}

void* dynamic_shared(const char* name, size_t alignment) {
    if (!running) misplaced = name;
    else if (!dynamic_bytes) trap("dynamic shared memory is used, but the launch asked for 0 bytes of it", "", 0);
    if (running && alignment > dynamic_alignment) {
        if (dynamic_used) trap("dynamic shared memory is declared again, with a larger alignment than the kernel has used it with", "", 0);
        dynamic_alignment = alignment;
        for (int b = 0; b < scheduler.cluster; ++b) {
            release_storage(scheduler.blocks[b].dynamic, dynamic_bytes);
            scheduler.blocks[b].dynamic = fresh_storage(nullptr, dynamic_bytes, alignment);
        }
    }
    dynamic_used = true;
    return scheduler.blocks[Variable::rank].dynamic;
}

#if GRADLAB_EMULATOR_TSAN
Arena arena;
#endif

}  // namespace gradlab_emulator

using namespace gradlab_emulator;

#define GRADLAB_PUBLIC extern "C" __attribute__((visibility("default")))

// The name of shared memory that a program declares outside a function, or null; asked once after a program is loaded.
GRADLAB_PUBLIC const char* gradlab_emulator_misplaced() {
    const char* name = misplaced;
    misplaced = nullptr;
    return name;
}

GRADLAB_PUBLIC int gradlab_emulator_launch(void (*kernel)(void**), void** parameters, const unsigned* grid, const unsigned* block,
                                           const unsigned* cluster, size_t shared, int order, unsigned seed, int flush, Fault* fault) {
    std::lock_guard<std::mutex> lock(one_launch);
    Scheduler& s = scheduler;
    s.kernel = kernel, s.parameters = parameters, s.order = order, s.flush = flush != 0, s.fault = fault, s.failed = false, s.current = -1;
    if (order >= random_order) s.random.seed(seed);
    s.count = int(block[0] * block[1] * block[2]);
    s.cluster = int(cluster[0] * cluster[1] * cluster[2]);
    gridDim = dim3(grid[0], grid[1], grid[2]);
    blockDim = dim3(block[0], block[1], block[2]);
    dynamic_bytes = shared, dynamic_alignment = 16, dynamic_used = false;
    for (Block& one : s.blocks) one.dynamic = nullptr;
#if GRADLAB_EMULATOR_TSAN
    s.own.thread = __tsan_get_current_fiber();
    arena.open();
#endif
    running = true;
    races_launched();
    handle_signals(true);
    {
        Subnormals mode(s.flush);
        run_grid(dim3(cluster[0], cluster[1], cluster[2]));
    }
    handle_signals(false);
    copies_forget();
    races_launched();
    running = false;
    for (Block& one : s.blocks) {
        release_storage(one.dynamic, dynamic_bytes);
        one.dynamic = nullptr;
    }
    Variable::rank = 0;
#if GRADLAB_EMULATOR_TSAN
    __tsan_acquire(&launch_sync);  // the launch is over: the host sees all of it
    renew_fibers(true);
    arena.close();
#else
    if (s.failed) renew_fibers(false);
#endif
    return s.failed;
}
