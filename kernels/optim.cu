// Updates of optimizers: one launch for many parameters. Formulas as gradlab/ops/optim.py and optim_variants.py state them. What depends on
// hyper-parameters and counters alone is computed once a parameter, in double, and rounded to the compute type.
#include "reduce.cuh"

namespace gradlab {

enum Kind { SGD, MOMENTUM, ADAM, AMSGRAD, RMSPROP, ADAGRAD, ADADELTA, ADAMAX, NADAM, RADAM, ASGD, RPROP, LION };

enum { CONSTANTS = 8 };    // numbers of the compute type that a parameter's update reads
enum { CHUNK = 4096 };     // elements that one block updates
enum { COUNTED = 64 };     // parameters whose counters one launch advances
enum { ROOM = 3800 };      // bytes of a table: a kernel's arguments have 4096 in all

// Hyper-parameters: numbers of the host, or where a static program keeps them on the device their address.
struct Hypers {
    const double* device;
    double host[8];

    __device__ __forceinline__ double operator[](int i) const { return device ? device[i] : host[i]; }
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

template <int K>
struct Buffers {
    enum { COUNT = K == SGD ? 0 : K == MOMENTUM || K == ADAGRAD || K == ASGD || K == LION ? 1 : K == AMSGRAD || K == RMSPROP ? 3 : 2 };
};

// One thread of each parameter calls it: not worth its machine code at each place.
__device__ __noinline__ double power(double base, double exponent) { return pow(base, exponent); }

// c[0] is the weight decay of the gradient.
template <class T, class E, int K>
__device__ __forceinline__ void constants(const Hypers& h, const Counters<E>& n, int i, T* c) {
    const double done = static_cast<double>(load(n.step[i][0])) + 1.0;
    n.new_step[i][0] = store<E>(done);
    if constexpr (K == ADAM || K == AMSGRAD) {
        const double root = sqrt(1.0 - power(h[2], done));
        c[0] = T(h[4]), c[1] = T(1.0 - h[1]), c[2] = T(h[2]), c[3] = T(1.0 - h[2]), c[4] = T(h[3] * root);
        c[5] = T(h[0] * root / (1.0 - power(h[1], done))), c[6] = T(1.0 - h[0] * h[4]);
    } else if constexpr (K == RMSPROP) {
        c[0] = T(h[3]), c[1] = T(h[1]), c[2] = T(1.0 - h[1]), c[3] = T(h[0]), c[4] = T(h[2]), c[5] = T(h[4]);
    } else if constexpr (K == ADAGRAD) {
        c[0] = T(h[2]), c[1] = T(h[3]), c[2] = T(h[0] / (1.0 + (done - 1.0) * h[1]));
    } else if constexpr (K == ADADELTA) {
        c[0] = T(h[3]), c[1] = T(h[1]), c[2] = T(1.0 - h[1]), c[3] = T(h[2]), c[4] = T(h[0]);
    } else if constexpr (K == ADAMAX) {
        c[0] = T(h[4]), c[1] = T(1.0 - h[1]), c[2] = T(h[2]), c[3] = T(h[3]), c[4] = T(h[0] / (1.0 - power(h[1], done)));
    } else if constexpr (K == NADAM) {
        const double mu = h[1] * (1.0 - 0.5 * power(0.96, done * h[5])), following = h[1] * (1.0 - 0.5 * power(0.96, (done + 1.0) * h[5]));
        const auto product = static_cast<typename Compute<E>::type>(static_cast<double>(load(n.extra[0][i][0])) * mu);
        n.new_extra[0][i][0] = store<E>(product);
        const double all = static_cast<double>(product), root = sqrt(1.0 - power(h[2], done));
        c[0] = T(h[4]), c[1] = T(1.0 - h[1]), c[2] = T(h[2]), c[3] = T(1.0 - h[2]), c[4] = T(h[3] * root);
        c[5] = T(h[0] * (1.0 - mu) / (1.0 - all) * root), c[6] = T(h[0] * following / (1.0 - all * following) * root);
        c[7] = T(1.0 - h[0] * h[4]);
    } else if constexpr (K == RADAM) {
        const double correction1 = 1.0 - power(h[1], done), rest = power(h[2], done), correction2 = 1.0 - rest;
        const double limit = 2.0 / (1.0 - h[2]) - 1.0, length = limit - 2.0 * done * rest / correction2;
        double size = h[0] / correction1;
        const bool rectified = length > 5.0;
        if (rectified) size *= sqrt((length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length) * correction2);
        c[0] = T(h[4]), c[1] = T(1.0 - h[1]), c[2] = T(h[2]), c[3] = T(1.0 - h[2]), c[4] = T(h[3]), c[5] = T(size);
        c[6] = T(1.0 - h[0] * h[4]), c[7] = T(rectified ? 1 : 0);
    } else if constexpr (K == ASGD) {
        const double eta = static_cast<double>(load(n.extra[0][i][0])), mu = static_cast<double>(load(n.extra[1][i][0]));
        n.new_extra[0][i][0] = store<E>(h[0] / power(1.0 + h[1] * h[0] * done, h[2]));
        n.new_extra[1][i][0] = store<E>(1.0 / (done - h[3] > 1.0 ? done - h[3] : 1.0));
        c[0] = T(h[4]), c[1] = T(1.0 - h[1] * eta), c[2] = T(eta), c[3] = T(mu);
    } else {
        c[0] = T(0), c[1] = T(h[0]), c[2] = T(h[1]), c[3] = T(h[2]), c[4] = T(h[3]);
    }
}

// One thread for each parameter.
template <class T, class E, int K>
__global__ void __launch_bounds__(COUNTED) advance(T* __restrict__ found, const Counters<E> counters, const Hypers h) {
    if (static_cast<int>(threadIdx.x) < counters.parameters) constants<T, E, K>(h, counters, threadIdx.x, found + threadIdx.x * CONSTANTS);
}

// One element: p and the buffers b become the new ones. flag: nesterov, or decoupled weight decay; kept: which buffers there are, in bits.
template <class T, int K>
__device__ __forceinline__ void step(const T* c, T& p, T g, T* b, bool flag, bool maximize, int kept) {
    if (maximize) g = -g;
    constexpr bool may_decouple = K == ADAM || K == AMSGRAD || K == NADAM || K == RADAM;
    const bool decoupled = may_decouple && flag;
    if (!decoupled && c[0] != T(0)) g += p * c[0];
    if constexpr (K == SGD) {
        p -= g * c[1];
    } else if constexpr (K == MOMENTUM) {
        b[0] = kept & 1 ? b[0] * c[2] + g * c[3] : g;
        p -= (flag ? b[0] * c[2] + g : b[0]) * c[1];
    } else if constexpr (K == LION) {
        p = p * c[1] - sign(b[0] * c[2] + g * c[3]) * c[6];
        b[0] = b[0] * c[4] + g * c[5];
    } else if constexpr (may_decouple) {
        b[0] += (g - b[0]) * c[1];
        b[1] = b[1] * c[2] + g * g * c[3];
        const bool shrinks = decoupled && c[0] != T(0);
        if constexpr (K == ADAM || K == AMSGRAD) {
            T top = b[1];
            if constexpr (K == AMSGRAD) top = b[2] = maximum(b[2], top);
            p = (shrinks ? p * c[6] : p) - b[0] / (sqrt(top) + c[4]) * c[5];
        } else if constexpr (K == NADAM) {
            p = (shrinks ? p * c[7] : p) - (g * c[5] + b[0] * c[6]) / (sqrt(b[1]) + c[4]);
        } else {
            p = (shrinks ? p * c[6] : p) - (c[7] != T(0) ? b[0] / (sqrt(b[1]) + c[4]) : b[0]) * c[5];
        }
    } else if constexpr (K == RMSPROP) {  // buffers: mean of squares, mean, momentum
        b[0] = b[0] * c[1] + g * g * c[2];
        T spread = b[0];
        if (kept & 2) {
            b[1] += (g - b[1]) * c[2];
            spread = maximum(b[0] - b[1] * b[1], T(0));  // rounding may leave a variance of 0 below 0
        }
        T change = g / (sqrt(spread) + c[4]);
        if (kept & 4) change = b[2] = b[2] * c[5] + change;
        p -= change * c[3];
    } else if constexpr (K == ADAGRAD) {
        b[0] += g * g;
        p -= g / (sqrt(b[0]) + c[1]) * c[2];
    } else if constexpr (K == ADADELTA) {
        b[0] = b[0] * c[1] + g * g * c[2];
        const T change = g * sqrt(b[1] + c[3]) / sqrt(b[0] + c[3]);
        b[1] = b[1] * c[1] + change * change * c[2];
        p -= change * c[4];
    } else if constexpr (K == ADAMAX) {
        b[0] += (g - b[0]) * c[1];
        b[1] = maximum(b[1] * c[2], abs(g) + c[3]);
        p -= b[0] / b[1] * c[4];
    } else if constexpr (K == ASGD) {
        p = p * c[1] - g * c[2];
        b[0] = c[3] == T(1) ? p : b[0] + (p - b[0]) * c[3];
    } else {
        const T turn = g * b[0];
        b[1] = minimum(maximum(b[1] * (turn < T(0) ? c[1] : turn > T(0) ? c[2] : T(1)), c[3]), c[4]);
        b[0] = turn < T(0) ? T(0) : g;
        p -= sign(b[0]) * b[1];
    }
}

// found: the constants of each parameter. SGD and Lion count nothing: there it is a null pointer, and h gives them.
template <class S, int K>
__global__ void __launch_bounds__(256, 2) update(const Table<S, Buffers<K>::COUNT> table, const typename Compute<S>::type* __restrict__ found,
                                              const Hypers h, int flag, int maximize) {
    typedef typename Compute<S>::type T;
    constexpr int B = Buffers<K>::COUNT, PACK = sizeof(S) < 8 ? 4 : 2;
    int low = 0, high = table.parameters - 1;  // the last parameter that does not begin after this block
    while (low < high) {
        const int middle = (low + high + 1) >> 1;
        if (table.first[middle] <= static_cast<int>(blockIdx.x)) low = middle;
        else high = middle - 1;
    }
    const long long size = table.size[low], begin = static_cast<long long>(static_cast<int>(blockIdx.x) - table.first[low]) * CHUNK;
    const long long end = begin + CHUNK < size ? begin + CHUNK : size;
    T c[CONSTANTS];
    if constexpr (K == SGD || K == MOMENTUM) {
        c[0] = T(h[1]), c[1] = T(h[0]), c[2] = T(h[2]), c[3] = T(1.0 - h[3]);
    } else if constexpr (K == LION) {
        c[0] = T(0), c[1] = T(1.0 - h[0] * h[3]), c[2] = T(h[1]), c[3] = T(1.0 - h[1]), c[4] = T(h[2]), c[5] = T(1.0 - h[2]), c[6] = T(h[0]);
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
