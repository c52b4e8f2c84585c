// One time step of recurrent units between the matrix products: see gradlab/ops/recurrent.py for the formulas. One thread for each number of
// the state; rows of gates are k times as long. Half types are computed in float, and every element is written by one thread alone.
#include "common.cuh"

namespace gradlab {

// Where a thread's element lies: in the state, and the first of its gates, which are `size` apart.
template <class Index>
struct Place {
    Index state, gate;

    // False beyond the end.
    __device__ __forceinline__ bool find(int64 size, int64 count, int gates) {
        const int64 i = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
        if (i >= count) return false;
        state = static_cast<Index>(i);
        gate = state + state / static_cast<Index>(size) * static_cast<Index>(size) * static_cast<Index>(gates - 1);
        return true;
    }
};

template <class S, class Index>
__global__ void __launch_bounds__(256) lstm_cell(const S* __restrict__ gates, const S* __restrict__ own, const S* __restrict__ c,
                                                 S* __restrict__ hidden, S* __restrict__ cell, S* __restrict__ acts, int64 size, int64 count) {
    typedef typename Compute<S>::type T;
    Place<Index> at;
    if (!at.find(size, count, 4)) return;
    const Index gi = at.gate, step = static_cast<Index>(size), gf = gi + step, gg = gf + step, go = gg + step;
    const T i = sigmoid(load(gates[gi]) + load(own[gi])), f = sigmoid(load(gates[gf]) + load(own[gf]));
    const T g = tanh(load(gates[gg]) + load(own[gg])), o = sigmoid(load(gates[go]) + load(own[go]));
    const T next = f * load(c[at.state]) + i * g;
    acts[gi] = store<S>(i);
    acts[gf] = store<S>(f);
    acts[gg] = store<S>(g);
    acts[go] = store<S>(o);
    cell[at.state] = store<S>(next);
    hidden[at.state] = store<S>(o * tanh(next));
}

template <class S, class Index>
__global__ void __launch_bounds__(256) lstm_cell_backward(const S* __restrict__ dh, const S* __restrict__ dc, const S* __restrict__ acts,
                                                          const S* __restrict__ c, const S* __restrict__ cell, S* __restrict__ dgates,
                                                          S* __restrict__ dold, int64 size, int64 count) {
    typedef typename Compute<S>::type T;
    Place<Index> at;
    if (!at.find(size, count, 4)) return;
    const Index gi = at.gate, step = static_cast<Index>(size), gf = gi + step, gg = gf + step, go = gg + step;
    const T i = load(acts[gi]), f = load(acts[gf]), g = load(acts[gg]), o = load(acts[go]), dhidden = load(dh[at.state]);
    const T t = tanh(load(cell[at.state]));
    const T arrived = (T(1) - t * t) * o * dhidden + load(dc[at.state]);
    dgates[gi] = store<S>((T(1) - i) * i * g * arrived);
    dgates[gf] = store<S>((T(1) - f) * f * load(c[at.state]) * arrived);
    dgates[gg] = store<S>((T(1) - g * g) * i * arrived);
    dgates[go] = store<S>((T(1) - o) * o * t * dhidden);
    dold[at.state] = store<S>(arrived * f);
}

template <class S, class Index>
__global__ void __launch_bounds__(256) gru_cell(const S* __restrict__ gates, const S* __restrict__ own, const S* __restrict__ h,
                                                S* __restrict__ hidden, S* __restrict__ acts, int64 size, int64 count) {
    typedef typename Compute<S>::type T;
    Place<Index> at;
    if (!at.find(size, count, 3)) return;
    const Index gr = at.gate, step = static_cast<Index>(size), gz = gr + step, gn = gz + step;
    const T r = sigmoid(load(gates[gr]) + load(own[gr])), z = sigmoid(load(gates[gz]) + load(own[gz]));
    const T n = tanh(r * load(own[gn]) + load(gates[gn]));
    acts[gr] = store<S>(r);
    acts[gz] = store<S>(z);
    acts[gn] = store<S>(n);
    hidden[at.state] = store<S>((load(h[at.state]) - n) * z + n);
}

template <class S, class Index>
__global__ void __launch_bounds__(256) gru_cell_backward(const S* __restrict__ dh, const S* __restrict__ acts, const S* __restrict__ own,
                                                         const S* __restrict__ h, S* __restrict__ dgates, S* __restrict__ down,
                                                         S* __restrict__ dold, int64 size, int64 count) {
    typedef typename Compute<S>::type T;
    Place<Index> at;
    if (!at.find(size, count, 3)) return;
    const Index gr = at.gate, step = static_cast<Index>(size), gz = gr + step, gn = gz + step;
    const T r = load(acts[gr]), z = load(acts[gz]), n = load(acts[gn]), dhidden = load(dh[at.state]);
    const T dn = (T(1) - n * n) * (T(1) - z) * dhidden;
    const T dr = (T(1) - r) * r * dn * load(own[gn]), dz = (T(1) - z) * z * (load(h[at.state]) - n) * dhidden;
    dgates[gr] = down[gr] = store<S>(dr);
    dgates[gz] = down[gz] = store<S>(dz);
    dgates[gn] = store<S>(dn);
    down[gn] = store<S>(dn * r);
    dold[at.state] = store<S>(dhidden * z);
}

}  // namespace gradlab
