// Block barriers and warp functions. Each is a request that the calling thread lays before the scheduler; it gets the processor back
// when all threads concerned have made theirs. Macros, so that errors name the line of the kernel.
#ifndef GRADLAB_EMULATOR_COLLECTIVES_H
#define GRADLAB_EMULATOR_COLLECTIVES_H

namespace gradlab_emulator {

enum class Operation : uint8_t {
    barrier, barrier_count, barrier_and, barrier_or,  // of the block
    cluster_barrier,
    sync_warp, ballot, shuffle, shuffle_up, shuffle_down, shuffle_xor, match_any, match_all,
    add, minimum, maximum, minimum_unsigned, maximum_unsigned, bit_and, bit_or, bit_xor,
    matrix_product, exchange,  // not of CUDA: what kernels/mma.cuh makes of mma.sync and ldmatrix
};

struct Request {
    Operation operation;
    unsigned mask;
    uint64_t value;
    int argument, width;  // of a shuffle: source lane, distance or lane mask; lanes in a segment
    Site site;
    uint64_t result;
    void* data = nullptr;  // of a matrix product: the lane's Fragments; of an exchange: room for what every lane gave
};

uint64_t collective(Request& request);

inline uint64_t ask(Site site, Operation operation, unsigned mask = 0, uint64_t value = 0, int argument = 0, int width = 32) {
    Request request{operation, mask, value, argument, width, site, 0};
    return collective(request);
}

template <class T>
inline uint64_t widened(const T& value) {
    static_assert(sizeof(T) <= 8, "a warp function takes values of at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
inline T narrowed(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
inline T shuffle(Site site, Operation operation, unsigned mask, T value, int argument, int width = 32) {
    return narrowed<T>(ask(site, operation, mask, widened(value), argument, width));
}
struct SyncWarp {
    Site site;
    void operator()(unsigned mask = 0xffffffffu) const { ask(site, Operation::sync_warp, mask); }
};
inline bool all(Site site, unsigned mask, bool predicate) { return ask(site, Operation::ballot, mask, !predicate) == 0; }
template <class T>
inline unsigned match_any(Site site, unsigned mask, T value) {
    return unsigned(ask(site, Operation::match_any, mask, widened(value)));
}
template <class T>
inline unsigned match_all(Site site, unsigned mask, T value, int* predicate) {
    const unsigned lanes = unsigned(ask(site, Operation::match_all, mask, widened(value)));
    *predicate = lanes != 0;
    return lanes;
}
template <class T>
inline T reduce(Site site, Operation of_signed, Operation of_unsigned, unsigned mask, T value) {
    static_assert(std::is_integral<T>::value && sizeof(T) == 4, "warp reductions take int and unsigned");
    return T(ask(site, std::is_signed<T>::value ? of_signed : of_unsigned, mask, uint32_t(value)));
}

// One lane's registers of mma.sync: a 16 x 8 tile c += a · b over 8 (TensorFloat32) or 16 numbers (half types, two in each register).
enum class Factor : int { tensor_float, half, brain };
struct Fragments {
    uint32_t a[4], b[2];
    float c[4];
};
inline void matrix_product(Site site, Factor factor, Fragments& fragments) {
    Request request{Operation::matrix_product, 0xffffffffu, 0, int(factor), 32, site, 0, &fragments};
    collective(request);
}
// The addresses that ldmatrix is given, of each lane one, for all of the warp. The launch fails where one may not be read so.
void check_row(Site site, uint64_t row);
inline void exchange(Site site, uint64_t row, uint64_t (&all)[32]) {
    check_row(site, row);
    Request request{Operation::exchange, 0xffffffffu, row, 0, 32, site, 0, all};
    collective(request);
}

}  // namespace gradlab_emulator

#define GRADLAB_SITE (::gradlab_emulator::Site{__FILE__, __LINE__, __COUNTER__})
#define GRADLAB_OPERATION(name) ::gradlab_emulator::Operation::name
#define GRADLAB_BARRIER(name, predicate) int(::gradlab_emulator::ask(GRADLAB_SITE, GRADLAB_OPERATION(name), 0, (predicate) != 0))

#define __syncthreads() ((void)GRADLAB_BARRIER(barrier, 0))
#define __syncthreads_count(predicate) GRADLAB_BARRIER(barrier_count, predicate)
#define __syncthreads_and(predicate) GRADLAB_BARRIER(barrier_and, predicate)
#define __syncthreads_or(predicate) GRADLAB_BARRIER(barrier_or, predicate)

#define __syncwarp(...) ::gradlab_emulator::SyncWarp{GRADLAB_SITE}(__VA_ARGS__)

#define GRADLAB_SHUFFLE(name, ...) ::gradlab_emulator::shuffle(GRADLAB_SITE, GRADLAB_OPERATION(name), __VA_ARGS__)
#define __shfl_sync(...) GRADLAB_SHUFFLE(shuffle, __VA_ARGS__)
#define __shfl_up_sync(...) GRADLAB_SHUFFLE(shuffle_up, __VA_ARGS__)
#define __shfl_down_sync(...) GRADLAB_SHUFFLE(shuffle_down, __VA_ARGS__)
#define __shfl_xor_sync(...) GRADLAB_SHUFFLE(shuffle_xor, __VA_ARGS__)

#define __ballot_sync(mask, predicate) unsigned(::gradlab_emulator::ask(GRADLAB_SITE, GRADLAB_OPERATION(ballot), mask, (predicate) != 0))
#define __any_sync(mask, predicate) int(__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) int(::gradlab_emulator::all(GRADLAB_SITE, mask, (predicate) != 0))
#define __match_any_sync(mask, value) ::gradlab_emulator::match_any(GRADLAB_SITE, mask, value)
#define __match_all_sync(mask, value, predicate) ::gradlab_emulator::match_all(GRADLAB_SITE, mask, value, predicate)
// Lanes that have not returned; hardware may report fewer.
#define __activemask() ::gradlab_emulator::active_lanes()

#define GRADLAB_REDUCE(of_signed, of_unsigned, mask, value) \
    ::gradlab_emulator::reduce(GRADLAB_SITE, GRADLAB_OPERATION(of_signed), GRADLAB_OPERATION(of_unsigned), mask, value)
#define __reduce_add_sync(mask, value) GRADLAB_REDUCE(add, add, mask, value)
#define __reduce_min_sync(mask, value) GRADLAB_REDUCE(minimum, minimum_unsigned, mask, value)
#define __reduce_max_sync(mask, value) GRADLAB_REDUCE(maximum, maximum_unsigned, mask, value)
#define __reduce_and_sync(mask, value) GRADLAB_REDUCE(bit_and, bit_and, mask, value)
#define __reduce_or_sync(mask, value) GRADLAB_REDUCE(bit_or, bit_or, mask, value)
#define __reduce_xor_sync(mask, value) GRADLAB_REDUCE(bit_xor, bit_xor, mask, value)

#endif
