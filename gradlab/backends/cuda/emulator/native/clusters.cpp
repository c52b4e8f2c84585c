// Shared memory of the blocks that run together: one, or those of a cluster (clusters.h).
#include "scheduler.h"

namespace gradlab_emulator {

Variable* variables = nullptr;  // static shared memory that the running blocks have used
size_t dynamic_bytes = 0;

namespace {

bool within(const char* storage, size_t size, const char* address, size_t bytes) {
    return storage && address >= storage && address + bytes <= storage + size;
}

// What to call a shared variable, or dynamic shared memory.
struct Name {
    char text[256] = "dynamic shared memory";
    explicit Name(const Variable* variable) {
        if (variable) snprintf(text, sizeof text, "the shared variable `%s`", variable->name);
    }
};

// Each piece of a block's shared memory, its bytes, and which variable it is (null: the dynamic one).
template <class Each>
void each_of(int block, Each each) {
    const Block& its = scheduler.blocks[block];
    if (its.dynamic) each(its.dynamic, dynamic_bytes, static_cast<Variable*>(nullptr));
    for (Variable* variable = variables; variable; variable = variable->next)
        if (variable->entered[block] == Variable::current_block) each(variable->storage[block], variable->size, variable);
}

bool all_poison(const char* storage, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
        if (static_cast<unsigned char>(storage[i]) != poison) return false;
    return true;
}

}  // namespace

bool beside_shared_memory(const char* address, const char* access) {
    Scheduler& s = scheduler;
    for (int block = 0; block < s.cluster && !s.failed; ++block)
        each_of(block, [&](const char* storage, size_t bytes, const Variable* variable) {
            if (s.failed || address < storage - zone || address >= storage + padded(bytes) + zone) return;
            const uint3 at = s.blocks[block].index;
            if (s.blocks[block].ended)
                fail(nullptr, s.current, "%s of %s of block (%u, %u, %u) of the cluster, which has returned: a barrier of the cluster is missing before "
                     "its end", access, Name(variable).text, at.x, at.y, at.z);
            else fail(nullptr, s.current, "%s beside %s (%zu bytes)", access, Name(variable).text, bytes);
        });
    return s.failed;
}

bool in_shared_memory(const char* address, size_t bytes) {
    bool found = false;
    each_of(Variable::rank, [&](const char* storage, size_t size, const Variable*) { found = found || within(storage, size, address, bytes); });
    return found;
}

void check_shared_memory(int block) {
    Scheduler& s = scheduler;
    blockIdx = s.blocks[block].index;
    each_of(block, [&](char* storage, size_t bytes, const Variable* variable) {
        if (!intact(storage, bytes)) fail(nullptr, -2, "a write beside %s (%zu bytes)", Name(variable).text, bytes);
    });
}

void block_begins(int block) {
    Block& its = scheduler.blocks[block];
    its.begun = true;
    each_of(block, [](char* storage, size_t bytes, const Variable*) {
        fill_with_poison(storage, bytes);
        races_forget(storage, bytes);
    });
}

void block_ends(int block) {
    Scheduler& s = scheduler;
    if (s.failed) return;
    check_shared_memory(block);
    s.blocks[block].ended = true;
    each_of(block, [](char* storage, size_t bytes, const Variable*) {
        fill_with_poison(storage, bytes);
        forbid(storage, bytes);
    });
}

void cluster_ends() {
    Scheduler& s = scheduler;
    for (int block = 0; block < s.cluster; ++block) {
        if (!s.blocks[block].ended) {
            if (!s.failed) check_shared_memory(block);
            continue;
        }
        blockIdx = s.blocks[block].index;
        each_of(block, [](char* storage, size_t bytes, const Variable* variable) {
            allow(storage, bytes);
            if (!all_poison(storage, bytes))
                fail(nullptr, -2, "a write to %s of the block when it had returned: a barrier of the cluster is missing before its end", Name(variable).text);
        });
    }
}

void* in_block(void* own, int rank) {
    Scheduler& s = scheduler;
    const char* const address = static_cast<char*>(own);
    const int mine = Variable::rank;
    if (rank < 0 || rank >= s.cluster) {
        char words[96];
        snprintf(words, sizeof words, "shared memory of block %d of a cluster of %d is asked for", rank, s.cluster);
        trap(words, "", 0);
    }
    if (within(s.blocks[mine].dynamic, dynamic_bytes, address, 0)) return s.blocks[rank].dynamic + (address - s.blocks[mine].dynamic);
    for (Variable* variable = variables; variable; variable = variable->next)
        if (variable->entered[mine] == Variable::current_block && within(variable->storage[mine], variable->size, address, 0)) {
            if (variable->entered[rank] != Variable::current_block) variable->enter(variable->name, variable->size, variable->alignment, rank);
            return variable->storage[rank] + (address - variable->storage[mine]);
        }
    trap("the place of an address in another block is asked for, but it is none in the block's own shared memory", "", 0);
}

}  // namespace gradlab_emulator
