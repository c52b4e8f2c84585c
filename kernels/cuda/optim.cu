// Updates of optimizers: one launch for many parameters.
#include "optim.cuh"

namespace gradlab {

enum { CHUNK = 4096 };     // elements that one block updates
enum { COUNTED = 64 };     // parameters whose counters one launch advances
enum { ROOM = 3800 };      // bytes of a table: a kernel's arguments have 4096 in all

// Hyper-parameters: numbers of the host, or where a static program keeps them on the device their address. skip: a truth value (or a null
// pointer); where it holds everything stays as it is, for which results must be the arrays that they would be computed from.
struct Hypers {
    const double* device;
    double host[8];
    const unsigned char* skip;

    __device__ __forceinline__ double operator[](int i) const { return device ? device[i] : host[i]; }
    __device__ __forceinline__ bool skips() const { return skip && *skip; }
};

// The 0-d counters of some parameters: the step, and what a rule keeps besides. They are not read again after they were written, so a
// new counter may be the old one's memory. The same struct is packed in backends/cuda/launch/optim.py, and so are the next two.
template <class E>
struct Counters {
    const E* step[COUNTED];
    const E* extra[2][COUNTED];
    E* new_step[COUNTED];
    E* new_extra[2][COUNTED];
    int parameters, unused;
};

// The arrays of some parameters, with B buffers each (null pointers where they are not kept); results may be the arrays that they were
// computed from. Blocks first[n] to first[n + 1] work on parameter n.
template <class S, int B>
struct Table {
    enum { LENGTH = ROOM / (8 * (4 + 2 * B) + 4) };
    const S* p[LENGTH];
    const S* gradient[LENGTH];
    const S* buffer[B ? B : 1][LENGTH];
    S* new_p[LENGTH];
    S* new_buffer[B ? B : 1][LENGTH];
    long long size[LENGTH];
    int parameters;
    int first[LENGTH + 1];
};

// One thread for each parameter.
template <class T, class E, int K>
__global__ void __launch_bounds__(COUNTED, 1) advance(T* __restrict__ found, const Counters<E> counters, const Hypers h) {
    if (static_cast<int>(threadIdx.x) < counters.parameters && !h.skips()) constants<T, E, K>(h, counters, threadIdx.x, found + threadIdx.x * CONSTANTS);
}

// found: the constants of each parameter. SGD and Lion count nothing: there it is a null pointer, and h gives them.
template <class S, int K>
__global__ void __launch_bounds__(256, 2) update(const Table<S, Buffers<K>::COUNT> table, const typename Compute<S>::type* __restrict__ found,
                                              const Hypers h, int flag, int maximize) {
    typedef typename Compute<S>::type T;
    constexpr int B = Buffers<K>::COUNT, PACK = sizeof(S) < 8 ? 4 : 2;
    if (h.skips()) return;
    int low = 0, high = table.parameters - 1;  // the last parameter that does not begin after this block
    while (low < high) {
        const int middle = (low + high + 1) >> 1;
        if (table.first[middle] <= static_cast<int>(blockIdx.x)) low = middle;
        else high = middle - 1;
    }
    const long long size = table.size[low], begin = static_cast<long long>(static_cast<int>(blockIdx.x) - table.first[low]) * CHUNK;
    const long long end = begin + CHUNK < size ? begin + CHUNK : size;
    T c[CONSTANTS];
    if constexpr (K == SGD || K == MOMENTUM || K == LION) {
        constants<T, K>(h, c);
    } else {
#pragma unroll
        for (int k = 0; k < CONSTANTS; ++k) c[k] = found[low * CONSTANTS + k];
    }
    const S* const p = table.p[low];
    const S* const gradient = table.gradient[low];
    S* const new_p = table.new_p[low];
    const S* buffer[B ? B : 1];
    S* new_buffer[B ? B : 1];
    unsigned long long together = reinterpret_cast<unsigned long long>(p) | reinterpret_cast<unsigned long long>(gradient) |
                                  reinterpret_cast<unsigned long long>(new_p);
    int kept = 0;
#pragma unroll
    for (int k = 0; k < B; ++k) {
        buffer[k] = table.buffer[k][low];
        new_buffer[k] = table.new_buffer[k][low];
        together |= reinterpret_cast<unsigned long long>(buffer[k]) | reinterpret_cast<unsigned long long>(new_buffer[k]);
        kept |= (buffer[k] != nullptr) << k;
    }
    if ((together & 15) == 0 && end - begin == CHUNK) {
#pragma unroll 1
        for (long long i = begin + threadIdx.x * PACK; i < end; i += 256 * PACK) {
            typedef Pack<S, PACK> P;
            P p_pack = *reinterpret_cast<const P*>(p + i), b_pack[B ? B : 1];
            const P g_pack = *reinterpret_cast<const P*>(gradient + i);
#pragma unroll
            for (int k = 0; k < B; ++k)
                if (buffer[k]) b_pack[k] = *reinterpret_cast<const P*>(buffer[k] + i);
#pragma unroll
            for (int j = 0; j < PACK; ++j) {
                T x = load(p_pack.item[j]), b[B ? B : 1];
#pragma unroll
                for (int k = 0; k < B; ++k) b[k] = kept >> k & 1 ? load(b_pack[k].item[j]) : T(0);
                step<T, K>(c, x, load(g_pack.item[j]), b, flag, maximize, kept);
                p_pack.item[j] = store<S>(x);
#pragma unroll
                for (int k = 0; k < B; ++k) b_pack[k].item[j] = store<S>(b[k]);
            }
            *reinterpret_cast<P*>(new_p + i) = p_pack;
#pragma unroll
            for (int k = 0; k < B; ++k)
                if (new_buffer[k]) *reinterpret_cast<P*>(new_buffer[k] + i) = b_pack[k];
        }
    } else {
#pragma unroll 1
        for (long long i = begin + threadIdx.x; i < end; i += 256) {
            T x = load(p[i]), b[B ? B : 1];
#pragma unroll
            for (int k = 0; k < B; ++k) b[k] = buffer[k] ? load(buffer[k][i]) : T(0);
            step<T, K>(c, x, load(gradient[i]), b, flag, maximize, kept);
            new_p[i] = store<S>(x);
#pragma unroll
            for (int k = 0; k < B; ++k)
                if (new_buffer[k]) new_buffer[k][i] = store<S>(b[k]);
        }
    }
}

}  // namespace gradlab
