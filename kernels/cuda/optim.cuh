// The formulas of the optimizers' updates, as gradlab/ops/optim.py and optim_variants.py state them. What depends on hyper-parameters and
// counters alone is computed once a parameter, in double, and rounded to the compute type.
#pragma once
#include "reduce.cuh"

namespace gradlab {

enum Kind { SGD, MOMENTUM, ADAM, AMSGRAD, RMSPROP, ADAGRAD, ADADELTA, ADAMAX, NADAM, RADAM, ASGD, RPROP, LION };

enum { CONSTANTS = 8 };  // numbers of the compute type that a parameter's update reads

template <int K>
struct Buffers {
    enum { COUNT = K == SGD ? 0 : K == MOMENTUM || K == ADAGRAD || K == ASGD || K == LION ? 1 : K == AMSGRAD || K == RMSPROP ? 3 : 2 };
};

// One thread of each parameter calls it: not worth its machine code at each place.
__device__ __noinline__ double power(double base, double exponent) { return pow(base, exponent); }

// What parameter i's update needs of hyper-parameters and counters; the counters move on. c[0] is the weight decay of the gradient.
template <class T, class E, int K, class H, class N>
__device__ __forceinline__ void constants(const H& h, const N& n, int i, T* c) {
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

// The same for the rules that count nothing.
template <class T, int K, class H>
__device__ __forceinline__ void constants(const H& h, T* c) {
    if constexpr (K == LION) {
        c[0] = T(0), c[1] = T(1.0 - h[0] * h[3]), c[2] = T(h[1]), c[3] = T(1.0 - h[1]), c[4] = T(h[2]), c[5] = T(1.0 - h[2]), c[6] = T(h[0]);
    } else {
        c[0] = T(h[1]), c[1] = T(h[0]);
        if constexpr (K == MOMENTUM) c[2] = T(h[2]), c[3] = T(1.0 - h[3]);
    }
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

}  // namespace gradlab
