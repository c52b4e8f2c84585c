// When a barrier or a warp function is complete, what each thread gets from it, and what is wrong when it can never be complete.
#include "scheduler.h"
#include "small_floats.h"

namespace gradlab_emulator {

const char* name_of(Operation operation) {
    static const char* const names[] = {
        "__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or",
        "cluster_barrier", "__syncwarp", "__ballot_sync", "__shfl_sync",
        "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__match_any_sync", "__match_all_sync", "__reduce_add_sync",
        "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",
        "__reduce_xor_sync", "mma.sync", "ldmatrix.sync",
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

// Element `at` of a lane's registers as a number. TensorFloat32 has 10 bits of fraction: the hardware leaves the lower 13 unread.
float number_in(const uint32_t* registers, int at, Factor factor) {
    if (factor == Factor::tensor_float) return bits_as<float>(registers[at] & ~0x1fffu);
    const uint16_t bits = uint16_t(registers[at / 2] >> 16 * (at & 1));
    return factor == Factor::half ? decoded<Half>(bits) : decoded<Brain>(bits);
}

// mma.sync.aligned.m16n8k8 (TensorFloat32) and m16n8k16 (half types). Where elements lie: PTX ISA, "Matrix Fragments for mma.m16n8k8" and
// "... for mma.m16n8k16". Products are exact and the sum is rounded once; the hardware's order and rounding of the sum are not documented.
void multiply(int first_thread, Factor factor) {
    const int pack = factor == Factor::tensor_float ? 1 : 2, depth = 8 * pack;
    double a[16][16], b[16][8];
    Fragments* of_lane[lanes];
    for (int lane = 0; lane < lanes; ++lane) {
        const int group = lane / 4, member = lane % 4;
        const Fragments& f = *(of_lane[lane] = static_cast<Fragments*>(scheduler.threads[first_thread + lane].request->data));
        for (int i = 0; i < 4 * pack; ++i) {  // registers: (row, k), (row + 8, k), (row, k + half), (row + 8, k + half)
            const int number = i / pack, k = member * pack + i % pack + (number / 2) * depth / 2;
            a[group + 8 * (number % 2)][k] = double(number_in(f.a, i, factor));
        }
        for (int i = 0; i < 2 * pack; ++i) b[member * pack + i % pack + (i / pack) * depth / 2][group] = double(number_in(f.b, i, factor));
    }
    for (int lane = 0; lane < lanes; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
            double total = double(of_lane[lane]->c[i]);
            for (int k = 0; k < depth; ++k) total += a[row][k] * b[k][column];
            of_lane[lane]->c[i] = float(total);
        }
    }
}

// Instructions of whole warps. Returns false for the others.
bool answer_whole(int first_thread, unsigned members) {
    Scheduler& s = scheduler;
    const Request& request = *s.threads[first_thread + __builtin_ctz(members)].request;
    if (request.operation < Operation::matrix_product) return false;
    if (members != ~0u) {
        fail(&request.site, first_thread + __builtin_ctz(members), "%s: all 32 lanes of the warp must take part, not only %08x",
             name_of(request.operation), members);
    } else if (request.operation == Operation::matrix_product) {
        multiply(first_thread, Factor(request.argument));
    } else {
        for (int lane = 0; lane < lanes; ++lane)
            for (int other = 0; other < lanes; ++other)
                static_cast<uint64_t*>(s.threads[first_thread + lane].request->data)[other] = s.threads[first_thread + other].request->value;
    }
    return true;
}

// The results of the lanes in `members`, whose requests agree.
void answer(int first_thread, unsigned members) {
    if (answer_whole(first_thread, members)) return;
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
    if (request.operation == Operation::sync_warp) races_in_warp(first, members);
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

bool same_barrier(const Request& a, const Request& b) {
    return same_place(a, b) || (a.operation == b.operation && a.operation == Operation::cluster_barrier);
}

// All threads of the cluster that have not returned wait at a barrier of the cluster. Those of a warp have to come to the same one.
void cluster_barrier() {
    Scheduler& s = scheduler;
    int before = -1;
    for (int i = 0; i < s.together; ++i) {
        if (s.threads[i].state != State::at_barrier) continue;
        if (before >= 0 && s.warp_of(before) == s.warp_of(i) && !same_place(*s.threads[before].request, *s.threads[i].request)) {
            const Site &here = s.threads[i].request->site, &there = s.threads[before].request->site;
            return fail(&here, i, "divergent cluster barrier: all lanes of a warp come to the same one, and lane %d came to that at %s:%d",
                        before % lanes, there.file, there.line);
        }
        before = i;
    }
    races_at_cluster_barrier();
    for (int block = 0; block < s.cluster; ++block) s.blocks[block].waiting = 0;
    for (int i = 0; i < s.together; ++i)
        if (s.threads[i].state == State::at_barrier) s.wake(i);
}

}  // namespace

// All threads of a block that have not returned wait at a barrier. Whether they go on: those that wait for the cluster do not.
bool block_barrier(int block) {
    Scheduler& s = scheduler;
    int first = -1, holds = 0;
    const int begin = block * s.count, end = begin + s.count;
    for (int i = begin; i < end; ++i) {
        if (s.threads[i].state != State::at_barrier) continue;
        if (first < 0) first = i;
        const Request &request = *s.threads[i].request, &expected = *s.threads[first].request;
        if (!same_barrier(request, expected)) {
            const uint3 other = s.threads[first].index;
            fail(&request.site, i, "divergent barrier: the thread waits in %s, while thread (%u, %u, %u) waits in %s (%s:%d)",
                 name_of(request.operation), other.x, other.y, other.z, name_of(expected.operation), expected.site.file, expected.site.line);
            return false;
        }
        holds += request.value != 0;
    }
    const Request& request = *s.threads[first].request;
    if (request.operation == Operation::cluster_barrier) return false;
    if (s.blocks[block].finished) {
        fail(&request.site, first, "the thread waits in %s, but %d of the block's %d threads have returned", name_of(request.operation),
             s.blocks[block].finished, s.count);
        return false;
    }
    races_at_barrier(block);
    s.blocks[block].waiting = 0;
    for (int i = begin; i < end; ++i) {
        Request& its = *s.threads[i].request;
        its.result = its.operation == Operation::barrier_count ? uint64_t(holds)
                   : its.operation == Operation::barrier_and   ? holds == s.count
                                                               : holds > 0;
        s.wake(i);
    }
    return true;
}

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
    for (int i = 0; i < s.together && !s.failed; ++i) {
        if (s.threads[i].state != State::at_warp) continue;
        if (!complete(i) && stuck < 0) stuck = i;
    }
    if (s.failed || (s.ready.empty() && s.finished == s.together)) return false;
    if (!s.ready.empty()) return true;
    if (stuck >= 0) blame(stuck);
    bool moved = false;
    for (int block = 0; block < s.cluster && !s.failed; ++block) moved = (s.blocks[block].waiting && block_barrier(block)) || moved;
    if (!moved && !s.failed) cluster_barrier();
    return !s.failed;
}

}  // namespace gradlab_emulator
