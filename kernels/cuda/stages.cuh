// Stages of a mega-kernel: one block of MEGA threads runs a whole program of small tensors, one row of the program after the other.
// Sizes, strides and layouts are constants of the generated text; a barrier stands between stages where one reads what another wrote.
#pragma once
#include "fault.cuh"
#include "optim.cuh"
#include "softmax.cuh"
#include "welford.cuh"

namespace gradlab {

// Of complex numbers a warp exchanges the parts.
template <class R>
__device__ __forceinline__ Complex<R> shuffle_across(Complex<R> value, int mask) {
    return {shuffle_across(value.re, mask), shuffle_across(value.im, mask)};
}

enum { MEGA = 256 };

// y = a b (+ bias), each result by L neighbouring lanes. Steps in elements: from row to row and from column to column.
template <int L, class S>
__device__ __forceinline__ void product(const S* a, int a_row, int a_column, const S* b, int b_row, int b_column, const S* bias, int bias_step,
                                        S* y, int rows, int columns, int inner) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x % L;
#pragma unroll 1
    for (int base = 0; base < rows * columns; base += MEGA / L) {
        const int i = base + threadIdx.x / L, row = i / columns, column = i - row * columns;
        const bool mine = i < rows * columns;
        T sum = T(0);
        if (mine) {
#pragma unroll 4
            for (int k = lane; k < inner; k += L) sum += load(a[row * a_row + k * a_column]) * load(b[k * b_row + column * b_column]);
        }
        sum = Team<L>::template total<Plus, 0>(sum);
        if (mine && lane == 0) y[i] = store<S>(bias ? sum + load(bias[column * bias_step]) : sum);
    }
}

// A warp for each row of [rows, count] in row-major order.
template <class S>
__device__ __forceinline__ void softmax(const S* x, S* y, int rows, int count, bool logarithm, bool masked) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int row = threadIdx.x >> 5; row < rows; row += MEGA / 32) {
        const S* const from = x + row * count;
        T top = -infinity<T>(), sum = T(0);
        for (int k = lane; k < count; k += 32) top = maximum(top, load(from[k]));
        top = Team<32>::template total<Maximum, 0>(top);
        if (masked && top == -infinity<T>()) {
            for (int k = lane; k < count; k += 32) y[row * count + k] = store<S>(T(0));
            continue;
        }
        T rest = T(0);
        for (int k = lane; k < count; k += 32) {
            const T value = load(from[k]), e = exp(value - top);
            sum += e;
            rest += value == top ? T(0) : e;
        }
        const Exponentials<T> totals = {top, Team<32>::template total<Plus, 0>(sum), Team<32>::template total<Plus, 0>(rest)};
        const T shift = logarithm ? totals.logarithm() : T(1) / totals.sum;
        for (int k = lane; k < count; k += 32) {
            const T value = load(from[k]) - top;
            y[row * count + k] = store<S>(logarithm ? value - shift : exp(value) * shift);
        }
    }
}

// r is what the softmax gave.
template <class S>
__device__ __forceinline__ void softmax_backward(const S* dy, const S* r, S* y, int rows, int count, bool logarithm) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int row = threadIdx.x >> 5; row < rows; row += MEGA / 32) {
        Relative<T> state = Relative<T>::identity();
        for (int k = row * count + lane; k < (row + 1) * count; k += 32) {
            if (logarithm) state.dot += load(dy[k]);
            else state.add(load(dy[k]), load(r[k]));
        }
        state = Team<32>::template total<Relative<T>, 0>(state);
        for (int k = row * count + lane; k < (row + 1) * count; k += 32) {
            const T g = load(dy[k]), found = load(r[k]);
            y[k] = store<S>(logarithm ? Relative<T>::slope_of_logarithm(g, found, state.dot) : state.slope(g, found));
        }
    }
}

// Writes the probabilities p, and the loss: of each target, or their sum, or their mean over the targets that count.
template <class S>
__device__ __forceinline__ void cross_entropy(const S* x, const int64* target, S* y, S* p, int rows, int classes, int64 ignore_index, bool each,
                                              bool mean, FaultWord* fault, int64 site) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
    T total = T(0);
    int counted = 0;
#pragma unroll 1
    for (int row = threadIdx.x >> 5; row < rows; row += MEGA / 32) {
        const S* const from = x + row * classes;
        T top = -infinity<T>(), sum = T(0);
        for (int k = lane; k < classes; k += 32) top = maximum(top, load(from[k]));
        top = Team<32>::template total<Maximum, 0>(top);
        const T base = top == -infinity<T>() ? T(0) : top;
        T rest = T(0);
        for (int k = lane; k < classes; k += 32) {
            const T value = load(from[k]), e = exp(value - base);
            sum += e;
            rest += value == top ? T(0) : e;
        }
        const Exponentials<T> totals = {top, Team<32>::template total<Plus, 0>(sum), Team<32>::template total<Plus, 0>(rest)};
        const T factor = T(1) / totals.sum;
        for (int k = lane; k < classes; k += 32) p[row * classes + k] = store<S>(exp(load(from[k]) - base) * factor);
        if (lane) continue;
        const int64 k = target[row];
        T loss = T(0);
        if (k != ignore_index) {
            ++counted;
            if (checked(k, classes, false, fault, site) >= 0) loss = totals.logarithm() - (load(from[k]) - top);
        }
        if (each) y[row] = store<S>(loss);
        total += loss;
    }
    if (each) return;
    total = Team<MEGA>::template total<Plus, 0>(total);
    counted = Team<MEGA>::template total<Plus, 1>(counted);
    if (threadIdx.x == 0) y[0] = store<S>(mean ? total / T(counted) : total);
    __syncthreads();  // before another one uses the totals' memory
}

// dy (p - onehot), over the number of targets that count for the mean. dy_step: 0 where it is one number for all rows.
template <class S>
__device__ __forceinline__ void cross_entropy_backward(const S* dy, int dy_step, const S* p, const int64* target, S* y, int rows, int classes,
                                                       int64 ignore_index, bool mean) {
    typedef typename Compute<S>::type T;
    T share = T(1);
    if (mean) {
        int counted = 0;
        for (int row = threadIdx.x & 31; row < rows; row += 32) counted += target[row] != ignore_index;
        counted = Team<32>::template total<Plus, 0>(counted);
        share = T(counted > 0 ? counted : 1);
    }
    for (int i = threadIdx.x; i < rows * classes; i += MEGA) {
        const int row = i / classes;
        const int64 k = target[row];
        const T scale = load(dy[row * dy_step]) / share, chance = load(p[i]);
        const bool wanted = k == i - row * classes;
        T factor = wanted ? chance - T(1) : chance;
        if (wanted && chance > SURE<T>) {
            factor = T(0);
            for (int j = 0; j < classes; ++j) factor -= j == k ? T(0) : load(p[row * classes + j]);
        }
        y[i] = store<S>(k == ignore_index || scale == T(0) ? T(0) : factor * scale);
    }
}

// Statistics of each row in two passes, and the normalised row.
template <class S>
__device__ __forceinline__ void layer_norm(const S* x, const S* weight, const S* bias, S* y, typename Compute<S>::type* mean,
                                           typename Compute<S>::type* rstd, int rows, int count, double eps) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int row = threadIdx.x >> 5; row < rows; row += MEGA / 32) {
        const S* const from = x + row * count;
        const T near = near_of(from);
        double sum = 0, squares = 0;
        for (int k = lane; k < count; k += 32) sum += load(from[k]) - near;
        const double middle = mean_of(Team<32>::template total<Plus, 0>(sum), T(count));
        const Centre<T> centre(middle);
        for (int k = lane; k < count; k += 32) squares += square(static_cast<double>(centre.to(load(from[k]) - near)));
        const T scale = Squares<T>::scale(Team<32>::template total<Plus, 0>(squares), T(count), eps);
        for (int k = lane; k < count; k += 32) {
            T value = centre.to(load(from[k]) - near) * scale;
            if (weight) value *= load(weight[k]);
            if (bias) value += load(bias[k]);
            y[row * count + k] = store<S>(value);
        }
        if (lane == 0) mean[row] = static_cast<T>(near + middle), rstd[row] = scale;
    }
}

template <class S>
__device__ __forceinline__ void layer_norm_backward(const S* dy, const S* x, const S* weight, const typename Compute<S>::type* mean,
                                                    const typename Compute<S>::type* rstd, S* dx, S* dweight, S* dbias, int rows,
                                                    int count) {
    typedef typename Compute<S>::type T;
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int row = threadIdx.x >> 5; row < rows; row += MEGA / 32) {
        const int start = row * count;
        const T centre = mean[row], scale = rstd[row];
        T sum = T(0), dot = T(0);
        for (int k = lane; k < count; k += 32) {
            const T g = weight ? load(dy[start + k]) * load(weight[k]) : load(dy[start + k]);
            sum += g;
            dot += g * (load(x[start + k]) - centre) * scale;
        }
        sum = Team<32>::template total<Plus, 0>(sum) / T(count);
        dot = Team<32>::template total<Plus, 0>(dot) / T(count);
        for (int k = lane; k < count; k += 32) {
            const T g = weight ? load(dy[start + k]) * load(weight[k]) : load(dy[start + k]);
            dx[start + k] = store<S>((g - sum - (load(x[start + k]) - centre) * scale * dot) * scale);
        }
    }
    for (int k = threadIdx.x; k < count; k += MEGA) {
        T slope = T(0), shift = T(0);
#pragma unroll 4
        for (int row = 0; row < rows; ++row) {
            const T g = load(dy[row * count + k]);
            slope += g * (load(x[row * count + k]) - mean[row]) * rstd[row];
            shift += g;
        }
        dweight[k] = store<S>(slope);
        dbias[k] = store<S>(shift);
    }
}

// The counters of one parameter, for `constants`.
template <class E>
struct Counter {
    const E *step[1], *extra[2][1];
    E *new_step[1], *new_extra[2][1];
};

}  // namespace gradlab
