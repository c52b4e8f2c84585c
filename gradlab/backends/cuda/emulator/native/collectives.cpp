// When a barrier or a warp function is complete, what each thread gets from it, and what is wrong when it can never be complete.
#include "scheduler.h"

namespace gradlab_emulator {

const char* name_of(Operation operation) {
    static const char* const names[] = {
        "__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or", "__syncwarp", "__ballot_sync", "__shfl_sync",
        "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__match_any_sync", "__match_all_sync", "__reduce_add_sync",
        "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",
        "__reduce_xor_sync",
    };
    return names[int(operation)];
}

namespace {

bool same_place(const Request& a, const Request& b) {
    return a.operation == b.operation && a.site.id == b.site.id && a.site.line == b.site.line;
}

bool is_shuffle(Operation operation) { return operation >= Operation::shuffle && operation <= Operation::shuffle_xor; }

int source_lane(const Request& request, int lane) {
    const int first = lane & ~(request.width - 1), last = first + request.width - 1;
    int source = lane;
    switch (request.operation) {
        case Operation::shuffle: return first + (request.argument & (request.width - 1));
        case Operation::shuffle_up: source = lane - request.argument; return source < first ? lane : source;
        case Operation::shuffle_down: source = lane + request.argument; return source > last ? lane : source;
        default: source = lane ^ request.argument; return source > last ? lane : source;
    }
}

uint64_t merged(Operation operation, uint64_t a, uint64_t b) {
    const int x = int(a), y = int(b);
    switch (operation) {
        case Operation::add: return uint32_t(a + b);
        case Operation::minimum: return uint32_t(x < y ? x : y);
        case Operation::maximum: return uint32_t(x < y ? y : x);
        case Operation::minimum_unsigned: return a < b ? a : b;
        case Operation::maximum_unsigned: return a < b ? b : a;
        case Operation::bit_and: return a & b;
        case Operation::bit_or: return a | b;
        default: return a ^ b;
    }
}

// The results of the lanes in `members`, whose requests agree.
void answer(int first_thread, unsigned members) {
    Scheduler& s = scheduler;
    auto request_of = [&](int lane) -> Request& { return *s.threads[first_thread + lane].request; };
    unsigned votes = 0;
    uint64_t total = 0;
    bool begun = false, equal = true;
    for (int lane = 0; lane < lanes; ++lane) {
        if (!(members >> lane & 1)) continue;
        const Request& request = request_of(lane);
        if (request.value) votes |= 1u << lane;
        equal = equal && (!begun || request.value == request_of(__builtin_ctz(members)).value);
        total = begun ? merged(request.operation, total, request.value) : request.value;
        begun = true;
    }
    for (int lane = 0; lane < lanes; ++lane) {
        if (!(members >> lane & 1)) continue;
        Request& request = request_of(lane);
        if (is_shuffle(request.operation)) {
            const int source = source_lane(request, lane);
            if (!(members >> source & 1)) {
                return fail(&request.site, first_thread + lane, "%s: lane %d reads lane %d, which %s (mask %08x)", name_of(request.operation),
                            lane, source, request.mask >> source & 1 ? "has returned" : "is not in the mask", request.mask);
            }
            request.result = request_of(source).value;
        } else if (request.operation == Operation::match_any) {
            request.result = 0;
            for (int other = 0; other < lanes; ++other)
                if (members >> other & 1 && request_of(other).value == request.value) request.result |= 1u << other;
        } else if (request.operation == Operation::match_all) request.result = equal ? members : 0;
        else request.result = request.operation == Operation::ballot ? votes : total;
    }
}

// Whether all lanes that a lane waits for have come with the same request; then they go on.
bool complete(int thread) {
    Scheduler& s = scheduler;
    const int first = thread / lanes * lanes;
    Warp& warp = s.warps[s.warp_of(thread)];
    const Request& request = *s.threads[thread].request;
    const unsigned members = request.mask & warp.exist & ~warp.finished;
    if (members & ~warp.waiting) return false;
    for (int lane = 0; lane < lanes; ++lane) {
        if (!(members >> lane & 1)) continue;
        const Request& other = *s.threads[first + lane].request;
        if (!same_place(request, other) || other.mask != request.mask) return false;
    }
    answer(first, members);
    if (s.failed) return false;
    warp.waiting &= ~members;
    for (int lane = 0; lane < lanes; ++lane)
        if (members >> lane & 1) s.wake(first + lane);
    return true;
}

// A warp function that waits for ever: name a lane that it waits for, and where that lane is.
void blame(int thread) {
    Scheduler& s = scheduler;
    const int first = thread / lanes * lanes;
    const Request& request = *s.threads[thread].request;
    const Warp& warp = s.warps[s.warp_of(thread)];
    for (int lane = 0; lane < lanes; ++lane) {
        if (!((request.mask & warp.exist & ~warp.finished) >> lane & 1) || first + lane == thread) continue;
        const Thread& other = s.threads[first + lane];
        const Request& its = *other.request;
        if (other.state == State::at_warp && same_place(request, its) && its.mask == request.mask) continue;
        char mask[32] = "";
        if (other.state == State::at_warp) snprintf(mask, sizeof mask, " with mask %08x", its.mask);
        return fail(&request.site, thread, "warp divergence: lane %d waits in %s with mask %08x for lane %d, which waits in %s%s (%s:%d)",
                    thread - first, name_of(request.operation), request.mask, lane, name_of(its.operation), mask, its.site.file,
                    its.site.line);
    }
    fail(&request.site, thread, "lane %d waits in %s for ever", thread - first, name_of(request.operation));
}

// All threads that have not returned wait at a barrier of the block.
void block_barrier() {
    Scheduler& s = scheduler;
    int first = -1, holds = 0;
    for (int i = 0; i < s.count; ++i) {
        if (s.threads[i].state != State::at_barrier) continue;
        if (first < 0) first = i;
        const Request &request = *s.threads[i].request, &expected = *s.threads[first].request;
        if (!same_place(request, expected)) {
            const uint3 other = s.threads[first].index;
            return fail(&request.site, i, "divergent barrier: the thread waits in %s, while thread (%u, %u, %u) waits in %s (%s:%d)",
                        name_of(request.operation), other.x, other.y, other.z, name_of(expected.operation), expected.site.file,
                        expected.site.line);
        }
        holds += request.value != 0;
    }
    const Request& request = *s.threads[first].request;
    if (s.finished) {
        return fail(&request.site, first, "the thread waits in %s, but %d of the block's %d threads have returned", name_of(request.operation),
                    s.finished, s.count);
    }
    for (int i = 0; i < s.count; ++i) {
        Request& its = *s.threads[i].request;
        its.result = its.operation == Operation::barrier_count ? uint64_t(holds)
                   : its.operation == Operation::barrier_and   ? holds == s.count
                                                               : holds > 0;
        s.wake(i);
    }
}

}  // namespace

void arrive(int thread, Request& request) {
    Scheduler& s = scheduler;
    const int lane = thread % lanes;
    Thread& caller = s.threads[thread];
    if (!(request.mask >> lane & 1)) {
        return fail(&request.site, thread, "%s: lane %d is not in its own mask %08x", name_of(request.operation), lane, request.mask);
    }
    if (is_shuffle(request.operation) && (request.width < 1 || request.width > lanes || request.width & (request.width - 1))) {
        return fail(&request.site, thread, "%s: width %d is no power of two up to 32", name_of(request.operation), request.width);
    }
    caller.state = State::at_warp;
    s.warps[s.warp_of(thread)].waiting |= 1u << lane;
    complete(thread);
}

// No thread is ready. Complete what can be completed; false when the block is done or will never be.
bool settle() {
    Scheduler& s = scheduler;
    int stuck = -1;
    for (int i = 0; i < s.count && !s.failed; ++i) {
        if (s.threads[i].state != State::at_warp) continue;
        if (!complete(i) && stuck < 0) stuck = i;
    }
    if (s.failed || (s.ready.empty() && s.finished == s.count)) return false;
    if (!s.ready.empty()) return true;
    if (stuck >= 0) blame(stuck);
    else block_barrier();
    return !s.failed;
}

}  // namespace gradlab_emulator
