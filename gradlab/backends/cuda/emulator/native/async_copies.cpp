// Which copies of which threads are in flight, and who may not touch what meanwhile (async_copies.h). Where there is a shadow (bounds.cpp) the
// places that they go to are forbidden in it, by 0xe0 and how many of them share the eight bytes; an access is then looked at byte by byte.
//
// They lie in one store of a fixed size, linked by numbers: nothing is moved or freed while threads take turns. The thread sanitizer, which is
// not told of this file's accesses, would see those of the library's functions, and take a vector that several threads grow for a race.
#include "scheduler.h"

extern "C" uint64_t gradlab_emulator_shadow;

namespace gradlab_emulator {
namespace {

struct Flight {
    Landing landing;
    Site site;
    const char* from;
    unsigned taken, group, next;  // next: the thread's next one, or the next free place
};

constexpr unsigned most_flights = 1u << 16;  // a block has at most 227 KiB to copy four bytes at a time to
Flight flights[most_flights];                // the first is none
unsigned first_of[most_together], last_of[most_together];
unsigned fresh = 1, returned = 0;  // the first place that was never taken; the last one that was given back
unsigned groups[most_together];  // committed so far
unsigned due[most_together];     // groups before this one land now
int known = 0;                   // threads that may have used them
size_t in_flight = 0;

void mark(const Flight& flight, int step) {
    in_flight = size_t(int64_t(in_flight) + step);
#if defined(__SANITIZE_ADDRESS__)
    if (flight.landing.bytes >= 8) {
        if (step > 0) __asan_poison_memory_region(flight.landing.to, flight.landing.bytes);
        else __asan_unpoison_memory_region(flight.landing.to, flight.landing.bytes);
    }
#endif
    if (!gradlab_emulator_shadow) return;
    const uint64_t first = reinterpret_cast<uint64_t>(flight.landing.to) >> 3;
    for (uint64_t cell = first; cell < first + (flight.landing.bytes + 7) / 8; ++cell) {
        unsigned char& shadow = *reinterpret_cast<unsigned char*>(gradlab_emulator_shadow + cell);
        if (shadow && (shadow < 0xe0 || shadow > 0xe2)) continue;  // the last, incomplete eight bytes
        const int count = (shadow ? shadow - 0xe0 : 0) + step;
        shadow = static_cast<unsigned char>(count > 0 ? 0xe0 + count : 0);
    }
}

}  // namespace

void copies_forget() {
    if (in_flight) {
        for (unsigned first : first_of)
            for (unsigned at = first; at; at = flights[at].next) mark(flights[at], -1);
        memset(first_of, 0, sizeof first_of);
    }
    fresh = 1, returned = 0;
    if (known < scheduler.together) known = scheduler.together;
    memset(groups, 0, size_t(known) * sizeof groups[0]);
    memset(due, 0, size_t(known) * sizeof due[0]);
    known = scheduler.together;
}

void copies_left(int thread) {
    unsigned count = 0;
    for (unsigned at = first_of[thread]; at; at = flights[at].next) ++count;
    if (!count) return;
    fail(&flights[first_of[thread]].site, thread, "the thread returns while %u of its asynchronous copies are in flight; it has to await them", count);
}

bool touches_flight(const char* address, size_t size, const char* access) {
    if (!in_flight) return false;
    Scheduler& s = scheduler;
    for (int thread = 0; thread < s.together; ++thread)
        for (unsigned at = first_of[thread]; at; at = flights[at].next) {
            const Flight& flight = flights[at];
            if (address + size <= flight.landing.to || address >= flight.landing.to + flight.landing.bytes) continue;
            const uint3 other = s.threads[thread].index;
            char whose[64] = "its own";
            if (thread != s.current) snprintf(whose, sizeof whose, "thread (%u, %u, %u)'s", other.x, other.y, other.z);
            fail(nullptr, s.current, "%s of shared memory where %s asynchronous copy (%s:%d) has not landed: %s", access, whose, flight.site.file,
                 flight.site.line, thread == s.current ? "it is not awaited, or too few groups are" : "a wait in that thread, and then a barrier, are missing");
            return true;
        }
    return false;
}

bool maybe_in_flight(const void* address) {
    if (!in_flight) return false;
    if (!gradlab_emulator_shadow) return true;
    const unsigned char shadow = *reinterpret_cast<const unsigned char*>(gradlab_emulator_shadow + (reinterpret_cast<uint64_t>(address) >> 3));
    return shadow > 0xe0 && shadow <= 0xe2;
}

void copy_begins(Site site, const void* to, const void* from, unsigned bytes, unsigned taken) {
    Scheduler& s = scheduler;
    const auto refuse = [&](const char* why) {
        fail(&site, s.current, "an asynchronous copy of %u bytes: %s", bytes, why);
        for (;;) to_scheduler();
    };
    if (bytes != 4 && bytes != 8 && bytes != 16) refuse("it has 4, 8 or 16");
    if (reinterpret_cast<uint64_t>(to) % bytes || reinterpret_cast<uint64_t>(from) % bytes) refuse("both addresses are multiples of its size");
    if (!in_shared_memory(static_cast<const char*>(to), bytes)) refuse("it goes into shared memory");
    if (taken && in_shared_memory(static_cast<const char*>(from), 1)) refuse("it comes from global memory");
}

void check_row(Site site, uint64_t row) {
    const bool outside = !in_shared_memory(reinterpret_cast<const char*>(row), 16);
    if (row % 16 == 0 && !outside) return;
    const char* const why = row % 16 ? "it is no multiple of 16" : "not all of it is in the block's shared memory";
    fail(&site, scheduler.current, "ldmatrix takes from each lane the address of 16 bytes of shared memory: %s", why);
    for (;;) to_scheduler();
}

void copy_begun(Site site, const Landing& landing, const void* from, unsigned taken) {
    const int thread = scheduler.current;
    unsigned at = returned;
    if (at) returned = flights[at].next;
    else if (fresh < most_flights) at = fresh++;
    else {
        fail(&site, thread, "%u asynchronous copies of one block are in flight; await some of them first", most_flights - 1);
        for (;;) to_scheduler();
    }
    flights[at] = {landing, site, static_cast<const char*>(from), taken, groups[thread], 0};
    if (first_of[thread]) flights[last_of[thread]].next = at;
    else first_of[thread] = at;
    last_of[thread] = at;
    mark(flights[at], 1);
}

void copies_committed() { ++groups[scheduler.current]; }

void copies_awaited(unsigned most) {
    const int thread = scheduler.current;
    due[thread] = groups[thread] > most ? groups[thread] - most : 0;
}

bool next_landing(Landing& landing) {
    Scheduler& s = scheduler;
    const unsigned at = first_of[s.current];
    if (!at || flights[at].group >= due[s.current]) return false;
    const Flight first = flights[at];
    first_of[s.current] = first.next;
    flights[at].next = returned;
    returned = at;
    mark(first, -1);
    if (memcmp(first.from, first.landing.words, first.taken) != 0) {
        fail(&first.site, s.current, "what an asynchronous copy reads has changed before it was awaited");
        for (;;) to_scheduler();
    }
    landing = first.landing;
    return true;
}

}  // namespace gradlab_emulator
