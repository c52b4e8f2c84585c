// Two threads of a launch that touch the same byte, at least one of them writing, with nothing that orders the two: an error, whatever
// the result. Programs that are compiled with -fsanitize=thread (emulator/build.py) call the functions at the end before each access,
// by the names that compilers give them; the sanitizer's own library is not there, so no process has to be started for it.
//
// What orders accesses: a barrier those of a block, __syncwarp those of its lanes, a fence on each side those of any two threads, if the
// first thread's comes first (as in "the last block adds up"). Atomic functions do not race with each other; they order nothing else.
// For each byte the last write and two reads are kept, each as a segment: what one thread did between two things that order.
#include <memory>
#include <unordered_map>
#include <vector>
#include "scheduler.h"

#if !GRADLAB_EMULATOR_TSAN
namespace gradlab_emulator {
namespace {

struct Segment {
    uint64_t block;           // Variable::current_block
    unsigned barriers;        // of the block, before it
    unsigned together;        // barriers of the cluster, before it
    unsigned clock, fences;   // its thread's, before it
    uint3 place, thread;      // the block's and the thread's indices
    int index;
};
struct Fence {
    int index;
    unsigned barriers, together, order, clocks[lanes];
};
struct Cell {
    unsigned write, reads[2];  // segments; 0 for none
};
constexpr unsigned by_atomic = 1u << 31;
constexpr size_t page_bytes = 1024;
struct Page {
    Cell cells[page_bytes];
};

bool tracking = false;  // whether this launch runs a program that tells its accesses
uint64_t begun_block = 0;
unsigned barriers[most_blocks], together = 0, fence_count = 0;
std::vector<Segment> segments;
unsigned current[most_together];         // each thread's segment; 0 where a new one begins
unsigned clocks[most_together][lanes];   // what each thread knows of the lanes of its warp
unsigned fences_of[most_together];
std::unordered_map<uint64_t, std::vector<Fence>> fences;  // by block
std::unordered_map<uint64_t, std::unique_ptr<Page>> pages;
uint64_t recent_number = ~uint64_t(0);
Page* recent = nullptr;

void begin_block() {
    begun_block = Variable::current_block;
    memset(barriers, 0, sizeof barriers);
    together = 0;
    const size_t count = size_t(scheduler.together);
    memset(current, 0, count * sizeof current[0]);
    memset(clocks, 0, count * sizeof clocks[0]);
    memset(fences_of, 0, count * sizeof fences_of[0]);
    for (size_t i = 0; i < count; ++i) clocks[i][i % lanes] = 1;
}

unsigned segment_of(int thread) {
    if (!current[thread]) {
        current[thread] = unsigned(segments.size());
        const Scheduler& s = scheduler;
        const int block = s.block_of(thread);
        segments.push_back({begun_block, barriers[block], together, clocks[thread][thread % lanes], fences_of[thread], s.blocks[block].index,
                            s.threads[thread].index, thread});
    }
    return current[thread];
}

// Whether fences order what the segment did before what `thread` does now.
bool fenced(const Segment& a, int thread) {
    const Scheduler& s = scheduler;
    const auto there = fences.find(a.block), here = fences.find(begun_block);
    if (there == fences.end() || here == fences.end()) return false;
    unsigned first = ~0u, own = 0;
    for (const Fence& fence : there->second) {
        const bool after = fence.index == a.index ? own++ >= a.fences
                         : fence.together > a.together || (fence.barriers > a.barriers && s.block_of(fence.index) == s.block_of(a.index)) ||
                           (fence.index / lanes == a.index / lanes && fence.clocks[a.index % lanes] >= a.clock);
        if (after && fence.order < first) first = fence.order;
    }
    if (first == ~0u) return false;
    for (const Fence& fence : here->second) {
        const int block = s.block_of(thread);
        const bool before = fence.index == thread || fence.together < together || (s.block_of(fence.index) == block && fence.barriers < barriers[block]) ||
            (fence.index / lanes == thread / lanes && clocks[thread][fence.index % lanes] >= fence.clocks[fence.index % lanes]);
        if (before && fence.order > first) return true;
    }
    return false;
}

bool ordered(const Segment& a, int thread) {
    if (a.block == begun_block) {
        const int block = scheduler.block_of(thread);
        if (a.index == thread || a.together < together || (scheduler.block_of(a.index) == block && a.barriers < barriers[block])) return true;
        if (a.index / lanes == thread / lanes && clocks[thread][a.index % lanes] >= a.clock) return true;
    }
    return fenced(a, thread);
}

[[noreturn]] void report(const Segment& a, const char* before, const char* now, uint64_t address, const void* instruction) {
    Scheduler& s = scheduler;
    if (!s.failed) {
        locate(static_cast<const char*>(instruction) - 1, *s.fault);
        s.fault->raced = address;
    }
    char of[64] = "of the same block";
    const bool same = a.block == begun_block && s.block_of(a.index) == s.block_of(s.current);
    if (!same) snprintf(of, sizeof of, "of block (%u, %u, %u)", a.place.x, a.place.y, a.place.z);
    fail(nullptr, s.current, "a race: it %s what thread (%u, %u, %u) %s %s, and nothing orders the two: %s", now, a.thread.x, a.thread.y,
         a.thread.z, of, before, same ? "an atomic function, or a barrier between them, is missing"
         : a.block == begun_block ? "an atomic function, or a barrier of the cluster between them, is missing"
         : "blocks run in any order, so it takes an atomic function");
    for (;;) to_scheduler();
}

Page& page_of(uint64_t address) {
    const uint64_t number = address / page_bytes;
    if (number != recent_number) {
        std::unique_ptr<Page>& found = pages[number];
        if (!found) found.reset(new Page());
        recent = found.get();
        recent_number = number;
    }
    return *recent;
}

enum Kind { read, write, atomic_read, atomic_write };

void touch(const void* at, size_t size, Kind kind, const void* instruction) {
    Scheduler& s = scheduler;
    if (s.current < 0 || s.failed) return;
    const int thread = s.current;
    const char* place = static_cast<const char*>(at);
    const Fiber* fiber = s.threads[thread].fiber;
    if (fiber && place >= fiber->stack && place < fiber->stack + stack_bytes) return;  // the thread's own
    if (!tracking) {
        tracking = true;
        segments.assign(1, Segment{});
        fence_count = 0;
    }
    if (begun_block != Variable::current_block) begin_block();
    if (maybe_in_flight(place) && touches_flight(place, size, kind == read || kind == atomic_read ? "a read" : "a write")) {
        locate(static_cast<const char*>(instruction) - 1, *s.fault);
        for (;;) to_scheduler();
    }
    const unsigned mine = segment_of(thread), writes = kind == atomic_write ? mine | by_atomic : mine;
    const bool atomic = kind >= atomic_read;
    const char* now = kind == read ? "reads" : kind == write ? "writes" : kind == atomic_read ? "reads, atomically," : "changes, atomically,";
    for (uint64_t address = reinterpret_cast<uint64_t>(at), end = address + size; address < end; ++address) {
        Cell& cell = page_of(address).cells[address % page_bytes];
        const unsigned last = cell.write & ~by_atomic;
        if (last && last != mine && !(atomic && cell.write & by_atomic) && !ordered(segments[last], thread))
            report(segments[last], cell.write & by_atomic ? "has changed atomically" : "has written", now, address, instruction);
        if (kind == write || kind == atomic_write) {
            for (unsigned reader : cell.reads)
                if (reader && reader != mine && !ordered(segments[reader], thread)) report(segments[reader], "has read", now, address, instruction);
            cell = Cell{writes, {0, 0}};
        } else if (kind == read) {
            const auto free = [&](unsigned reader) { return !reader || (segments[reader].block == begun_block && segments[reader].index == thread); };
            cell.reads[free(cell.reads[0]) ? 0 : 1] = mine;
        }
    }
}

}  // namespace

void races_launched() {
    if (tracking) pages.clear(), fences.clear(), segments.clear();
    tracking = false;
    recent_number = ~uint64_t(0);
    begun_block = 0;
}

void races_at_barrier(int block) {
    if (!tracking || begun_block != Variable::current_block) return;
    ++barriers[block];
    memset(current + block * scheduler.count, 0, size_t(scheduler.count) * sizeof current[0]);
}

void races_at_cluster_barrier() {
    if (!tracking || begun_block != Variable::current_block) return;
    ++together;
    memset(current, 0, size_t(scheduler.together) * sizeof current[0]);
}

void races_in_warp(int first, unsigned members) {
    if (!tracking) return;
    if (begun_block != Variable::current_block) begin_block();
    unsigned joined[lanes] = {};
    for (int lane = 0; lane < lanes; ++lane)
        if (members >> lane & 1)
            for (int i = 0; i < lanes; ++i) joined[i] = joined[i] < clocks[first + lane][i] ? clocks[first + lane][i] : joined[i];
    for (int lane = 0; lane < lanes; ++lane)
        if (members >> lane & 1) {
            memcpy(clocks[first + lane], joined, sizeof joined);
            ++clocks[first + lane][lane];
            current[first + lane] = 0;
        }
}

void races_at_fence() {
    Scheduler& s = scheduler;
    if (!tracking || s.current < 0) return;
    if (begun_block != Variable::current_block) begin_block();
    Fence fence{s.current, barriers[s.block_of(s.current)], together, fence_count++, {}};
    memcpy(fence.clocks, clocks[s.current], sizeof fence.clocks);
    fences[begun_block].push_back(fence);
    ++fences_of[s.current];
    current[s.current] = 0;
    ++clocks[s.current][s.current % lanes];
}

// Shared memory of another block that lies where the last one's lay.
void races_forget(const void* storage, size_t bytes) {
    if (!tracking) return;
    const uint64_t begin = reinterpret_cast<uint64_t>(storage);
    for (uint64_t address = begin; address < begin + bytes; ++address) page_of(address).cells[address % page_bytes] = Cell{};
}

}  // namespace gradlab_emulator

#define GRADLAB_HOOK(result) extern "C" __attribute__((visibility("default"))) result
#define GRADLAB_TOUCH(size, kind) gradlab_emulator::touch(address, size, gradlab_emulator::kind, __builtin_return_address(0))
#define GRADLAB_ACCESS(prefix, size)                                                                \
    GRADLAB_HOOK(void) __tsan_##prefix##read##size(void* address) { GRADLAB_TOUCH(size, read); }    \
    GRADLAB_HOOK(void) __tsan_##prefix##write##size(void* address) { GRADLAB_TOUCH(size, write); }
#define GRADLAB_ACCESSES(size) GRADLAB_ACCESS(, size) GRADLAB_ACCESS(unaligned_, size) GRADLAB_ACCESS(volatile_, size)
GRADLAB_ACCESSES(1) GRADLAB_ACCESSES(2) GRADLAB_ACCESSES(4) GRADLAB_ACCESSES(8) GRADLAB_ACCESSES(16)
GRADLAB_HOOK(void) __tsan_read_range(void* address, size_t size) { GRADLAB_TOUCH(size, read); }
GRADLAB_HOOK(void) __tsan_write_range(void* address, size_t size) { GRADLAB_TOUCH(size, write); }
GRADLAB_HOOK(void) __tsan_func_entry(void*) {}
GRADLAB_HOOK(void) __tsan_func_exit() {}
GRADLAB_HOOK(void) __tsan_init() {}
GRADLAB_HOOK(void) __tsan_vptr_update(void**, void*) {}
GRADLAB_HOOK(void) __tsan_vptr_read(void**) {}
GRADLAB_HOOK(void) __tsan_atomic_thread_fence(int) { gradlab_emulator::fence(); }
GRADLAB_HOOK(void) __tsan_atomic_signal_fence(int) {}

#define GRADLAB_CHANGE(bits, word, name)                                                                    \
    GRADLAB_HOOK(word) __tsan_atomic##bits##_fetch_##name(volatile word* a, word value, int) {              \
        void* address = const_cast<word*>(a);                                                               \
        GRADLAB_TOUCH(sizeof(word), atomic_write);                                                          \
        return __atomic_fetch_##name(a, value, __ATOMIC_SEQ_CST);                                           \
    }
#define GRADLAB_COMPARE(bits, word, how, weak)                                                              \
    GRADLAB_HOOK(int) __tsan_atomic##bits##_compare_exchange_##how(volatile word* a, word* old, word value, int, int) { \
        void* address = const_cast<word*>(a);                                                               \
        GRADLAB_TOUCH(sizeof(word), atomic_write);                                                          \
        return __atomic_compare_exchange_n(a, old, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }
#define GRADLAB_ATOMICS_OF(bits, word)                                                                      \
    GRADLAB_HOOK(word) __tsan_atomic##bits##_load(const volatile word* a, int) {                            \
        const void* address = const_cast<const word*>(a);                                                   \
        GRADLAB_TOUCH(sizeof(word), atomic_read);                                                           \
        return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                        \
    }                                                                                                       \
    GRADLAB_HOOK(void) __tsan_atomic##bits##_store(volatile word* a, word value, int) {                     \
        void* address = const_cast<word*>(a);                                                               \
        GRADLAB_TOUCH(sizeof(word), atomic_write);                                                          \
        __atomic_store_n(a, value, __ATOMIC_SEQ_CST);                                                       \
    }                                                                                                       \
    GRADLAB_HOOK(word) __tsan_atomic##bits##_exchange(volatile word* a, word value, int) {                  \
        void* address = const_cast<word*>(a);                                                               \
        GRADLAB_TOUCH(sizeof(word), atomic_write);                                                          \
        return __atomic_exchange_n(a, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                                       \
    GRADLAB_HOOK(word) __tsan_atomic##bits##_compare_exchange_val(volatile word* a, word old, word value, int, int) { \
        void* address = const_cast<word*>(a);                                                               \
        GRADLAB_TOUCH(sizeof(word), atomic_write);                                                          \
        __atomic_compare_exchange_n(a, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
        return old;                                                                                         \
    }                                                                                                       \
    GRADLAB_COMPARE(bits, word, strong, false) GRADLAB_COMPARE(bits, word, weak, true)                      \
    GRADLAB_CHANGE(bits, word, add) GRADLAB_CHANGE(bits, word, sub) GRADLAB_CHANGE(bits, word, and)         \
    GRADLAB_CHANGE(bits, word, or) GRADLAB_CHANGE(bits, word, xor) GRADLAB_CHANGE(bits, word, nand)
GRADLAB_ATOMICS_OF(8, uint8_t)
GRADLAB_ATOMICS_OF(16, uint16_t)
GRADLAB_ATOMICS_OF(32, uint32_t)
GRADLAB_ATOMICS_OF(64, uint64_t)

#else
namespace gradlab_emulator {
void races_launched() {}
void races_at_barrier(int) {}
void races_at_cluster_barrier() {}
void races_in_warp(int, unsigned) {}
void races_at_fence() {}
void races_forget(const void*, size_t) {}
}  // namespace gradlab_emulator
#endif
