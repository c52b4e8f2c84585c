// Cross entropy and selection by class, for x of [outer, classes, inner] and int64 targets of [outer, inner].
#include "fault.cuh"
#include "team.cuh"

namespace gradlab {

// Writes the probabilities and each target's loss (0 for the ignored ones). A class that is not there is reported.
template <class S, bool Alone>
__global__ void __launch_bounds__(512) cross_entropy(const S* __restrict__ x, const int64* __restrict__ target, S* __restrict__ p,
                                                     typename Compute<S>::type* __restrict__ loss, int64 ignore_index, FaultWord* fault, int64 site,
                                                     int64 rows, int64 count, int64 inner) {
    typedef typename Compute<S>::type T;
    Team<Alone> team;
    if (!team.start(rows, count, inner)) return;
    T top = -infinity<T>();
    for (int64 i = team.lane; i < count; i += team.size) top = maximum(top, load(x[team.base + i * team.stride]));
    top = team.max(top);
    T sum = T(0);
    for (int64 i = team.lane; i < count; i += team.size) sum += exp(load(x[team.base + i * team.stride]) - top);
    sum = team.sum(sum);
    for (int64 i = team.lane; i < count; i += team.size) {
        const int64 at = team.base + i * team.stride;
        p[at] = store<S>(exp(load(x[at]) - top) / sum);
    }
    if (team.lane == 0) {
        const int64 k = target[team.row];
        T found = T(0);
        if (k != ignore_index && checked(k, count, false, fault, site) >= 0) found = log(sum) - (load(x[team.base + k * team.stride]) - top);
        loss[team.row] = found;
    }
}

// One block: the sum of all losses, divided by the number of targets that count for the mean.
template <class S>
__global__ void __launch_bounds__(512, 2) total_loss(const typename Compute<S>::type* __restrict__ loss, const int64* __restrict__ target,
                                                  S* __restrict__ y, int64 ignore_index, int64 mean, int64 rows) {
    typedef typename Compute<S>::type T;
    Team<false> team;
    team.start(1, rows, 1);
    T sum = T(0);
    int64 number = 0;
    for (int64 i = team.lane; i < rows; i += team.size) {
        sum += loss[i];
        number += target[i] != ignore_index;
    }
    sum = team.sum(sum);
    number = team.sum(number);
    if (team.lane == 0) y[0] = store<S>(mean ? sum / T(number) : sum);
}

// One block: how many targets count, at least 1.
__global__ void __launch_bounds__(512) count_targets(const int64* __restrict__ target, int64* __restrict__ number, int64 ignore_index,
                                                     int64 rows) {
    Team<false> team;
    team.start(1, rows, 1);
    int64 found = 0;
    for (int64 i = team.lane; i < rows; i += team.size) found += target[i] != ignore_index;
    found = team.sum(found);
    if (team.lane == 0) number[0] = found > 0 ? found : 1;
}

template <class S>
__global__ void __launch_bounds__(256) convert_loss(const typename Compute<S>::type* __restrict__ loss, S* __restrict__ y, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i < count) y[i] = store<S>(loss[i]);
}

// dy (p - onehot), over `number` for the mean (a null pointer otherwise); dy is one number, or one for each target. Exact zeros for the ignored.
template <class S>
__global__ void __launch_bounds__(256) cross_entropy_backward(const S* __restrict__ dy, const S* __restrict__ p,
                                                              const int64* __restrict__ target, S* __restrict__ y,
                                                              const int64* __restrict__ number, int64 each, int64 ignore_index, int64 classes,
                                                              int64 inner, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 row = i / (classes * inner) * inner + i % inner, k = i / inner % classes;
    const int64 wanted = target[row];
    T g = load(dy[each ? row : 0]);
    if (number) g = g / T(number[0]);
    y[i] = store<S>(wanted == ignore_index ? T(0) : load(p[i]) * g - (k == wanted ? g : T(0)));
}

template <class S>
__global__ void __launch_bounds__(256) nll(const S* __restrict__ x, const int64* __restrict__ target, S* __restrict__ y, int64 ignore_index,
                                           int64 classes, int64 inner, FaultWord* fault, int64 site, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    typedef typename Compute<S>::type T;
    const int64 k = target[i];
    T found = T(0);
    if (k != ignore_index && checked(k, classes, false, fault, site) >= 0) found = -load(x[(i / inner * classes + k) * inner + i % inner]);
    y[i] = store<S>(found);
}

template <class S>
__global__ void __launch_bounds__(256) nll_backward(const S* __restrict__ dy, const int64* __restrict__ target, S* __restrict__ y,
                                                    int64 ignore_index, int64 classes, int64 inner, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    typedef typename Compute<S>::type T;
    const int64 row = i / (classes * inner) * inner + i % inner, k = i / inner % classes;
    const int64 wanted = target[row];
    y[i] = store<S>(wanted != ignore_index && wanted == k ? -load(dy[row]) : T(0));
}

}  // namespace gradlab
