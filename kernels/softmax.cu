// Softmax, its logarithm and their derivatives over the middle dimension of [outer, count, inner].
#include "team.cuh"

namespace gradlab {

// Masked: a row of nothing but -inf gives zeros.
template <class S, bool Alone, bool Masked>
__global__ void __launch_bounds__(512) softmax(const S* __restrict__ x, S* __restrict__ y, int64 rows, int64 count, int64 inner) {
    typedef typename Compute<S>::type T;
    Team<Alone> team;
    if (!team.start(rows, count, inner)) return;
    T top = -infinity<T>();
    for (int64 i = team.lane; i < count; i += team.size) top = maximum(top, load(x[team.base + i * team.stride]));
    top = team.max(top);
    if (Masked && top == -infinity<T>()) top = T(0);
    T sum = T(0);
    for (int64 i = team.lane; i < count; i += team.size) sum += exp(load(x[team.base + i * team.stride]) - top);
    sum = team.sum(sum);
    const T scale = Masked && sum == T(0) ? T(0) : T(1) / sum;
    for (int64 i = team.lane; i < count; i += team.size) {
        const int64 at = team.base + i * team.stride;
        y[at] = store<S>(exp(load(x[at]) - top) * scale);
    }
}

template <class S, bool Alone>
__global__ void __launch_bounds__(512) softmax_backward(const S* __restrict__ dy, const S* __restrict__ r, S* __restrict__ y, int64 rows,
                                                        int64 count, int64 inner) {
    typedef typename Compute<S>::type T;
    Team<Alone> team;
    if (!team.start(rows, count, inner)) return;
    T dot = T(0);
    for (int64 i = team.lane; i < count; i += team.size) {
        const int64 at = team.base + i * team.stride;
        dot += load(dy[at]) * load(r[at]);
    }
    dot = team.sum(dot);
    for (int64 i = team.lane; i < count; i += team.size) {
        const int64 at = team.base + i * team.stride;
        y[at] = store<S>((load(dy[at]) - dot) * load(r[at]));
    }
}

template <class S, bool Alone>
__global__ void __launch_bounds__(512, 2) log_softmax(const S* __restrict__ x, S* __restrict__ y, int64 rows, int64 count, int64 inner) {
    typedef typename Compute<S>::type T;
    Team<Alone> team;
    if (!team.start(rows, count, inner)) return;
    T top = -infinity<T>();
    for (int64 i = team.lane; i < count; i += team.size) top = maximum(top, load(x[team.base + i * team.stride]));
    top = team.max(top);
    T sum = T(0);
    for (int64 i = team.lane; i < count; i += team.size) sum += exp(load(x[team.base + i * team.stride]) - top);
    const T shift = log(team.sum(sum));
    for (int64 i = team.lane; i < count; i += team.size) {
        const int64 at = team.base + i * team.stride;
        y[at] = store<S>(load(x[at]) - top - shift);
    }
}

template <class S, bool Alone>
__global__ void __launch_bounds__(512) log_softmax_backward(const S* __restrict__ dy, const S* __restrict__ r, S* __restrict__ y,
                                                            int64 rows, int64 count, int64 inner) {
    typedef typename Compute<S>::type T;
    Team<Alone> team;
    if (!team.start(rows, count, inner)) return;
    T sum = T(0);
    for (int64 i = team.lane; i < count; i += team.size) sum += load(dy[team.base + i * team.stride]);
    sum = team.sum(sum);
    for (int64 i = team.lane; i < count; i += team.size) {
        const int64 at = team.base + i * team.stride;
        y[at] = store<S>(load(dy[at]) - exp(load(r[at])) * sum);
    }
}

}  // namespace gradlab
