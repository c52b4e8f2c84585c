// What the files of the runtime share: the threads of the blocks that run together (one, or a cluster), and how an error is recorded.
#ifndef GRADLAB_EMULATOR_SCHEDULER_H
#define GRADLAB_EMULATOR_SCHEDULER_H

#include <random>
#include <vector>
#include "fiber.h"
#include "memory.h"
#include "runtime.h"

namespace gradlab_emulator {

constexpr int lanes = 32, most_threads = 1024, most_together = most_threads * most_blocks;

enum class State : uint8_t { ready, at_barrier, at_warp, finished };

struct Thread {
    uint3 index;
    State state;
    Fiber* fiber;      // null until it starts and after it has finished
    Request* request;  // what it waits for
    unsigned barriers, warp_barriers, cluster_barriers;  // how many it has passed
};

// One of the blocks that run together.
struct Block {
    uint3 index;
    int finished, waiting;  // threads that have returned, and that wait at a barrier
    bool begun, ended;
    char* dynamic;          // its dynamic shared memory
    size_t static_bytes;
};

struct Warp {
    unsigned exist, finished, waiting;  // masks of lanes
};

// What Python reads after a launch that failed. Layout: emulator/function.py.
struct Fault {
    char message[768];
    char file[256];
    int line;
    int in_thread;  // whether `thread` and `block` say anything: 0 no, 1 the block, 2 both
    unsigned thread[3], block[3];
    long long offset;  // of the instruction in the program's library, where the processor stopped the kernel; else 0
    unsigned long long address;  // of the array's neighbour that it touched; else 0
    unsigned long long raced;    // the address that two threads touched; else 0
};

struct Scheduler {
    Thread threads[most_together];  // those of the first block, then those of the next
    Warp warps[most_together / lanes];
    Block blocks[most_blocks];
    int count = 0, cluster = 1, together = 0;  // threads of a block, blocks that run together, threads of these
    int finished = 0, current = -1;
    std::vector<int> ready;  // threads that can go on, in the order in which they became ready
    std::vector<int> batch;  // those that run now, one after another
    size_t position = 0;
    Fiber own;               // the OS thread's stack
    std::vector<Fiber*> fibers, idle;
    void (*kernel)(void**) = nullptr;
    void** parameters = nullptr;
    int order = 0;
    std::mt19937 random;
    bool flush = false, failed = false;
    Fault* fault = nullptr;

    int warp_of(int thread) const { return thread / lanes; }  // blocks of a cluster have whole warps
    int block_of(int thread) const { return thread / count; }
    void wake(int thread) {
        threads[thread].state = State::ready;
        ready.push_back(thread);
    }
};
extern Scheduler scheduler;

__attribute__((format(printf, 3, 4))) void fail(const Site* site, int thread, const char* format, ...);
void to_scheduler();
const char* name_of(Operation operation);
bool settle();                            // collectives.cpp: what to do when no thread is ready
bool block_barrier(int block);            // collectives.cpp: its threads all wait: whether they go on
void arrive(int thread, Request& request);  // collectives.cpp: a request for the warp
bool beside_shared_memory(const char* address, const char* access);  // runtime.cpp: if it is, the launch fails
bool in_shared_memory(const char* address, size_t bytes);  // runtime.cpp
void copies_forget();                     // async_copies.cpp: a block or a launch begins or ends; a thread ends; an access is or may be to where a copy goes
void copies_left(int thread);
bool touches_flight(const char* address, size_t size, const char* access);  // if so, the launch fails
bool maybe_in_flight(const void* address);
const char* behind(const char* address);  // bounds.cpp: the address whose shadow this is, if there may be none
void races_launched();                    // races.cpp: a launch begins or ends; a barrier or __syncwarp is passed; a fence; fresh shared memory
void races_at_barrier(int block);
void races_at_cluster_barrier();
void races_in_warp(int first, unsigned members);
void races_at_fence();
void races_forget(const void* storage, size_t bytes);
extern Variable* variables;               // clusters.cpp, as what follows: static shared memory that is in use
extern size_t dynamic_bytes;
void check_shared_memory(int block);      // that nobody wrote beside it
void block_begins(int block);
void block_ends(int block);               // while others of its cluster go on
void cluster_ends();
void handle_signals(bool on);             // signals.cpp
void locate(const void* instruction, Fault& fault);  // signals.cpp: where in which library it stands; Python turns that into a line

}  // namespace gradlab_emulator

#endif
