// Random numbers that need a loop, a search or a sort: poisson, permutation, multinomial. See gradlab/ops/random.py.
#include "fault.cuh"
#include "philox.cuh"

namespace gradlab {

__device__ __forceinline__ int64 thread_number() { return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Inversion: probabilities are taken off u from the mode outwards, see `poisson_cpu`.
template <class S>
__global__ void __launch_bounds__(256) poisson(const S* __restrict__ rate, const int64* __restrict__ state, S* __restrict__ y, int64 offset,
                                               FaultWord* fault, int64 site, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const double lambda = static_cast<double>(load(rate[i]));
    if (!(lambda >= 0.0)) {
        report(fault, site, 0);
        y[i] = store<S>(0.0f);
        return;
    }
    double u = Stream(state, offset).unit(i), up = 0.0, start = -lambda;
    if (lambda >= 32.0) {
        const double m = ::floor(lambda), m3 = __dmul_rn(__dmul_rn(m, m), m), m5 = __dmul_rn(m3, __dmul_rn(m, m));
        const double series = __dadd_rn(__dadd_rn(__ddiv_rn(1.0, __dmul_rn(12.0, m)), -__ddiv_rn(1.0, __dmul_rn(360.0, m3))),
                                        __ddiv_rn(1.0, __dmul_rn(1260.0, m5)));
        up = m;
        start = __dadd_rn(__dmul_rn(m, ::log(__ddiv_rn(lambda, m))), __dadd_rn(m, -lambda));
        start = __dadd_rn(start, -__dmul_rn(0.5, ::log(__dmul_rn(6.283185307179586, m))));
        start = __dadd_rn(start, -series);
    }
    const double tiny = 8.673617379884035e-19;  // 2^-60
    double p_up = ::exp(start), p_down = p_up, down = up, result = up;
    u = __dadd_rn(u, -p_up);
    while (u >= 0.0) {
        up += 1.0;
        p_up = __dmul_rn(p_up, __ddiv_rn(lambda, up));
        result = up;
        u = __dadd_rn(u, -p_up);
        if (u < 0.0) break;
        if (down > 0.0) {
            p_down = __dmul_rn(p_down, __ddiv_rn(down, lambda));
            down -= 1.0;
            result = down;
            u = __dadd_rn(u, -p_down);
        }
        if (!(p_up > tiny || (down > 0.0 && p_down > tiny))) break;
    }
    y[i] = store<S>(result);
}

__global__ void __launch_bounds__(256) permutation_keys(const int64* __restrict__ state, Word64* __restrict__ key, unsigned* __restrict__ order,
                                                        int64 offset, int64 count) {
    const int64 group = thread_number(), first = group * 4;
    if (first >= count) return;
    const Words words = Stream(state, offset).quad(group);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i >= count) break;
        key[first + i] = words.word[i];
        order[first + i] = static_cast<unsigned>(first + i);
    }
}

// One warp for each row of weights: their sums from left to right, in float64 and in that very order, as the CPU adds them. `last` is the last
// category that is possible. Reports rows that are no distribution, and rows with fewer than `least` possible categories.
template <class S>
__global__ void __launch_bounds__(32) running_weights(const S* __restrict__ weight, double* __restrict__ sums, int64* __restrict__ last,
                                                      FaultWord* fault, int64 site, int64 least, int64 count) {
    const int64 base = static_cast<int64>(blockIdx.x) * count;
    const int lane = threadIdx.x;
    double running = 0.0;
    int64 possible = 0, final = -1;
    bool wrong = false;
    for (int64 start = 0; start < count; start += 32) {
        const int64 i = start + lane;
        const double mine = i < count ? static_cast<double>(load(weight[base + i])) : 0.0;
        wrong |= !(mine >= 0.0 && mine < infinity<double>());
        const unsigned positive = __ballot_sync(0xffffffffu, mine > 0.0);
        possible += __popc(positive);
        if (positive) final = start + 31 - __clz(static_cast<int>(positive));
        double here = 0.0;
#pragma unroll
        for (int k = 0; k < 32; ++k) {
            running = __dadd_rn(running, __shfl_sync(0xffffffffu, mine, k));
            if (k == lane) here = running;
        }
        if (i < count) sums[base + i] = here;
    }
    if (wrong || !(running > 0.0)) report(fault, site, 0);
    else if (possible < least) report(fault, site + 1, 0);
    if (lane == 0) last[blockIdx.x] = final;
}

// The first category whose running sum exceeds U total.
__global__ void __launch_bounds__(256) pick_category(const double* __restrict__ sums, const int64* __restrict__ last,
                                                     const int64* __restrict__ state, int64* __restrict__ y, int64 offset, int64 samples,
                                                     int64 categories, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const int64 row = i / samples;
    const double* sum = sums + row * categories;
    const double wanted = __dmul_rn(Stream(state, offset).unit(i), sum[categories - 1]);
    int64 low = 0, high = categories;
    while (low < high) {
        const int64 middle = (low + high) >> 1;
        if (sum[middle] <= wanted) low = middle + 1;
        else high = middle;
    }
    y[i] = low < last[row] ? low : last[row];
}

// How long each category is waited for: exponential with its weight as rate. The smallest come first.
template <class S>
__global__ void __launch_bounds__(256) waiting_times(const S* __restrict__ weight, const int64* __restrict__ state, double* __restrict__ time,
                                                     int64 offset, int64 count) {
    const int64 i = thread_number();
    if (i >= count) return;
    const double rate = static_cast<double>(load(weight[i]));
    time[i] = rate > 0.0 ? __ddiv_rn(-::log1p(-Stream(state, offset).unit(i)), rate) : infinity<double>();
}

}  // namespace gradlab
