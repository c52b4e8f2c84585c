// Included before every kernel that the emulated GPU runs: what CUDA C++ has and C++17 has not.
//
// A block's threads are fibers of one OS thread (runtime.cpp); blocks run one after another. Barriers, shuffles and votes are
// requests to the scheduler, atomics are real, shared memory belongs to the scheduler: emulator/source.py rewrites the declarations.
// `__CUDAEMU__` tells a kernel that it is emulated; `__CUDACC__` and `__CUDA_ARCH__` are not defined.
#ifndef GRADLAB_EMULATOR_RUNTIME_H
#define GRADLAB_EMULATOR_RUNTIME_H

// Before the words below are macros: libstdc++ has attributes of these names.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmath>
#include <type_traits>
#include <utility>

#if GRADLAB_EMULATOR_TOOLKIT  // CUDA's own headers are on the include path
#include <vector_types.h>
#include <vector_functions.h>
#else
#include "vectors.h"
#endif
#include "words.h"

#define __CUDAEMU__ 1

namespace gradlab_emulator {

// Where a barrier or a warp function stands. `id` tells apart two that share a line.
struct Site {
    const char* file;
    int line, id;
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

[[noreturn]] void trap(const char* what, const char* file, int line);
void fence();
void interrupt();  // a point where the orders "random" and "warps" may switch threads
void* dynamic_shared(const char* name, size_t alignment);
unsigned active_lanes();
long long ticks();

constexpr int most_blocks = 16;  // of a cluster

// A static __shared__ variable: storage that is fresh and poisoned in each block.
struct Variable {
    const char* name;
    size_t size, alignment;
    char* storage[most_blocks];
    uint64_t entered[most_blocks], linked;  // when it was last used, as `current_block`: by each block of the cluster, by any
    Variable* next;
    void* of_block(const char* its_name, size_t bytes, size_t its_alignment) {
        if (entered[rank] != current_block) enter(its_name, bytes, its_alignment, rank);
        return storage[rank];
    }
    void enter(const char* its_name, size_t bytes, size_t its_alignment, int its_rank);
    static uint64_t current_block;  // counts blocks, or clusters
    static int rank;                // of the block in its cluster
};

template <class To, class From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

}  // namespace gradlab_emulator

using gradlab_emulator::threadIdx;
using gradlab_emulator::blockIdx;
using gradlab_emulator::blockDim;
using gradlab_emulator::gridDim;
static const int warpSize = 32;

#undef assert
#define assert(condition) \
    ((condition) ? (void)0 : ::gradlab_emulator::trap("assertion failed: " #condition, __FILE__, __LINE__))
#define __trap() ::gradlab_emulator::trap("__trap() was called", __FILE__, __LINE__)

#include "async_copies.h"
#include "collectives.h"
#include "clusters.h"
#include "atomics.h"
#include "device_math.h"
#include "signature.h"

#endif
