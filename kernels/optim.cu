// Updates of optimizers, one parameter tensor at a launch; formulas as gradlab/ops/optim.py and optim_variants.py state them. What depends on
// hyper-parameters and the step alone is computed once a block, in double, and rounded to the compute type.
#include "reduce.cuh"

namespace gradlab {

enum Kind { SGD, MOMENTUM, ADAM, AMSGRAD, RMSPROP, ADAGRAD, ADADELTA, ADAMAX, NADAM, RADAM, ASGD, RPROP };

template <class S>
struct Buffers {
    const S* in[4];
    S* out[4];
};

// E is the type of the 0-d counters: the step, and what a rule keeps besides (`extra`).
template <class E>
struct Counters {
    const double* h;
    const E* step;
    E* new_step;
    const E* extra[2];
    E* new_extra[2];
};

// Constants from hyper-parameters: c[0] is the weight decay of the gradient. `first` writes the counters.
template <class T, class E, int K>
__device__ __forceinline__ void constants(const Counters<E>& n, T* c, bool first) {
    const double* h = n.h;
    const double done = n.step ? static_cast<double>(load(n.step[0])) + 1.0 : 0.0;
    if (first && n.new_step) n.new_step[0] = store<E>(done);
    if constexpr (K == SGD || K == MOMENTUM) {
        c[0] = T(h[1]); c[1] = T(h[0]); c[2] = T(h[2]); c[3] = T(1.0 - h[3]);
    } else if constexpr (K == ADAM || K == AMSGRAD) {
        const double root = sqrt(1.0 - pow(h[2], done));
        c[0] = T(h[4]); c[1] = T(1.0 - h[1]); c[2] = T(h[2]); c[3] = T(1.0 - h[2]); c[4] = T(h[3] * root);
        c[5] = T(h[0] * root / (1.0 - pow(h[1], done))); c[6] = T(1.0 - h[0] * h[4]);
    } else if constexpr (K == RMSPROP) {
        c[0] = T(h[3]); c[1] = T(h[1]); c[2] = T(1.0 - h[1]); c[3] = T(h[0]); c[4] = T(h[2]); c[5] = T(h[4]);
    } else if constexpr (K == ADAGRAD) {
        c[0] = T(h[2]); c[1] = T(h[3]); c[2] = T(h[0] / (1.0 + (done - 1.0) * h[1]));
    } else if constexpr (K == ADADELTA) {
        c[0] = T(h[3]); c[1] = T(h[1]); c[2] = T(1.0 - h[1]); c[3] = T(h[2]); c[4] = T(h[0]);
    } else if constexpr (K == ADAMAX) {
        c[0] = T(h[4]); c[1] = T(1.0 - h[1]); c[2] = T(h[2]); c[3] = T(h[3]); c[4] = T(h[0] / (1.0 - pow(h[1], done)));
    } else if constexpr (K == NADAM) {
        const double mu = h[1] * (1.0 - 0.5 * pow(0.96, done * h[5])), following = h[1] * (1.0 - 0.5 * pow(0.96, (done + 1.0) * h[5]));
        const E product = store<E>(static_cast<double>(load(n.extra[0][0])) * mu);
        if (first) n.new_extra[0][0] = product;
        const double all = static_cast<double>(load(product)), root = sqrt(1.0 - pow(h[2], done));
        c[0] = T(h[4]); c[1] = T(1.0 - h[1]); c[2] = T(h[2]); c[3] = T(1.0 - h[2]); c[4] = T(h[3] * root);
        c[5] = T(h[0] * (1.0 - mu) / (1.0 - all) * root); c[6] = T(h[0] * following / (1.0 - all * following) * root);
        c[7] = T(1.0 - h[0] * h[4]);
    } else if constexpr (K == RADAM) {
        const double correction1 = 1.0 - pow(h[1], done), power = pow(h[2], done), correction2 = 1.0 - power;
        const double limit = 2.0 / (1.0 - h[2]) - 1.0, length = limit - 2.0 * done * power / correction2;
        double size = h[0] / correction1;
        const bool rectified = length > 5.0;
        if (rectified) size *= sqrt((length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length) * correction2);
        c[0] = T(h[4]); c[1] = T(1.0 - h[1]); c[2] = T(h[2]); c[3] = T(1.0 - h[2]); c[4] = T(h[3]); c[5] = T(size);
        c[6] = T(1.0 - h[0] * h[4]); c[7] = T(rectified ? 1 : 0);
    } else if constexpr (K == ASGD) {
        const double eta = static_cast<double>(load(n.extra[0][0])), mu = static_cast<double>(load(n.extra[1][0]));
        if (first) {
            n.new_extra[0][0] = store<E>(h[0] / pow(1.0 + h[1] * h[0] * done, h[2]));
            n.new_extra[1][0] = store<E>(1.0 / (done - h[3] > 1.0 ? done - h[3] : 1.0));
        }
        c[0] = T(h[4]); c[1] = T(1.0 - h[1] * eta); c[2] = T(eta); c[3] = T(mu);
    } else {
        c[0] = T(0); c[1] = T(h[0]); c[2] = T(h[1]); c[3] = T(h[2]); c[4] = T(h[3]);
    }
}

// flag: nesterov, or decoupled weight decay. Buffers that are null pointers are not kept.
template <class S, class E, int K>
__global__ void __launch_bounds__(256) update(const S* __restrict__ p_in, const S* __restrict__ g_in, S* __restrict__ p_out, const Buffers<S> b,
                                              const Counters<E> n, int64 flag, int64 maximize, int64 count) {
    typedef typename Compute<S>::type T;
    __shared__ T c[8];
    if (threadIdx.x == 0) constants<T, E, K>(n, c, blockIdx.x == 0);
    __syncthreads();
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    T p = load(p_in[i]), g = load(g_in[i]);
    if (maximize) g = -g;
    constexpr bool may_decouple = K == ADAM || K == AMSGRAD || K == NADAM || K == RADAM;
    const bool decoupled = may_decouple && flag;
    if (!decoupled && c[0] != T(0)) g += p * c[0];
    if constexpr (K == SGD) {
        p -= g * c[1];
    } else if constexpr (K == MOMENTUM) {
        const T m = b.in[0] ? load(b.in[0][i]) * c[2] + g * c[3] : g;
        b.out[0][i] = store<S>(m);
        p -= (flag ? m * c[2] + g : m) * c[1];
    } else if constexpr (may_decouple) {
        const T m0 = load(b.in[0][i]), m = m0 + (g - m0) * c[1];
        const T v = load(b.in[1][i]) * c[2] + g * g * c[3];
        b.out[0][i] = store<S>(m);
        b.out[1][i] = store<S>(v);
        T top = v;
        if constexpr (K == AMSGRAD) {
            top = maximum(load(b.in[2][i]), v);
            b.out[2][i] = store<S>(top);
        }
        if constexpr (K == ADAM || K == AMSGRAD) {
            const T step = m / (sqrt(top) + c[4]) * c[5];
            p = (decoupled && c[0] != T(0) ? p * c[6] : p) - step;
        } else if constexpr (K == NADAM) {
            const T step = (g * c[5] + m * c[6]) / (sqrt(v) + c[4]);
            p = (decoupled && c[0] != T(0) ? p * c[7] : p) - step;
        } else {
            const T step = c[7] != T(0) ? m / (sqrt(v) + c[4]) * c[5] : m * c[5];
            p = (decoupled && c[0] != T(0) ? p * c[6] : p) - step;
        }
    } else if constexpr (K == RMSPROP) {
        const T v = load(b.in[0][i]) * c[1] + g * g * c[2];
        b.out[0][i] = store<S>(v);
        T spread = v;
        if (b.in[1]) {  // centred
            const T m0 = load(b.in[1][i]), m = m0 + (g - m0) * c[2];
            b.out[1][i] = store<S>(m);
            spread = maximum(v - m * m, T(0));
        }
        T step = g / (sqrt(spread) + c[4]);
        if (b.in[2]) {  // momentum
            step = load(b.in[2][i]) * c[5] + step;
            b.out[2][i] = store<S>(step);
        }
        p -= step * c[3];
    } else if constexpr (K == ADAGRAD) {
        const T total = load(b.in[0][i]) + g * g;
        b.out[0][i] = store<S>(total);
        p -= g / (sqrt(total) + c[1]) * c[2];
    } else if constexpr (K == ADADELTA) {
        const T v = load(b.in[0][i]) * c[1] + g * g * c[2], d = load(b.in[1][i]);
        const T change = g * sqrt(d + c[3]) / sqrt(v + c[3]);
        b.out[0][i] = store<S>(v);
        b.out[1][i] = store<S>(d * c[1] + change * change * c[2]);
        p -= change * c[4];
    } else if constexpr (K == ADAMAX) {
        const T m0 = load(b.in[0][i]), m = m0 + (g - m0) * c[1];
        const T top = maximum(load(b.in[1][i]) * c[2], abs(g) + c[3]);
        b.out[0][i] = store<S>(m);
        b.out[1][i] = store<S>(top);
        p -= m / top * c[4];
    } else if constexpr (K == ASGD) {
        p = p * c[1] - g * c[2];
        const T m0 = load(b.in[0][i]);
        b.out[0][i] = store<S>(c[3] == T(1) ? p : m0 + (p - m0) * c[3]);
    } else {
        const T turn = g * load(b.in[0][i]);
        T size = load(b.in[1][i]) * (turn < T(0) ? c[1] : turn > T(0) ? c[2] : T(1));
        size = minimum(maximum(size, c[3]), c[4]);
        const T used = turn < T(0) ? T(0) : g;
        b.out[0][i] = store<S>(used);
        b.out[1][i] = store<S>(size);
        p -= sign(used) * size;
    }
    p_out[i] = store<S>(p);
}

}  // namespace gradlab
