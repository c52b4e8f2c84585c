// Normalisations: statistics of rows (layer, rms) and of channels (batch), in two passes over the data.
#include "team.cuh"

namespace gradlab {

// Rows of `count` neighbouring elements. Centred: layer norm; otherwise rms norm. weight and bias may be null pointers.
template <class S, bool Centred>
__global__ void __launch_bounds__(512) row_norm(const S* __restrict__ x, const S* __restrict__ weight, const S* __restrict__ bias,
                                                S* __restrict__ y, S* __restrict__ mean, S* __restrict__ rstd, double eps, int64 rows,
                                                int64 count) {
    typedef typename Compute<S>::type T;
    Team<false> team;
    team.start(rows, count, 1);
    T centre = T(0);
    if (Centred) {
        for (int64 i = team.lane; i < count; i += team.size) centre += load(x[team.base + i]);
        centre = team.sum(centre) / T(count > 0 ? count : 1);
    }
    T square_sum = T(0);
    for (int64 i = team.lane; i < count; i += team.size) {
        const T d = load(x[team.base + i]) - centre;
        square_sum += d * d;
    }
    const T scale = T(1) / sqrt(team.sum(square_sum) / T(count > 0 ? count : 1) + T(eps));
    for (int64 i = team.lane; i < count; i += team.size) {
        T v = (load(x[team.base + i]) - centre) * scale;
        if (weight) v *= load(weight[i]);
        if (bias) v += load(bias[i]);
        y[team.base + i] = store<S>(v);
    }
    if (team.lane == 0) {
        if (Centred) mean[team.row] = store<S>(centre);
        rstd[team.row] = store<S>(scale);
    }
}

template <class S, bool Centred>
__global__ void __launch_bounds__(512) row_norm_backward(const S* __restrict__ dy, const S* __restrict__ x, const S* __restrict__ weight,
                                                         const S* __restrict__ mean, const S* __restrict__ rstd, S* __restrict__ dx, int64 rows,
                                                         int64 count) {
    typedef typename Compute<S>::type T;
    Team<false> team;
    team.start(rows, count, 1);
    const T centre = Centred ? load(mean[team.row]) : T(0), scale = load(rstd[team.row]), n = T(count > 0 ? count : 1);
    T dot = T(0), sum = T(0);
    for (int64 i = team.lane; i < count; i += team.size) {
        const T u = weight ? load(dy[team.base + i]) * load(weight[i]) : load(dy[team.base + i]);
        dot += u * ((load(x[team.base + i]) - centre) * scale);
        sum += u;
    }
    dot = team.sum(dot) / n;
    sum = Centred ? team.sum(sum) / n : T(0);
    for (int64 i = team.lane; i < count; i += team.size) {
        const T u = weight ? load(dy[team.base + i]) * load(weight[i]) : load(dy[team.base + i]);
        const T normal = (load(x[team.base + i]) - centre) * scale;
        dx[team.base + i] = store<S>((u - (normal * dot + sum)) * scale);
    }
}

// One thread for each column walks down a share of the rows (blockIdx.y): partial sums of dy·normal and dy, [parts, 2, count].
template <class S, bool Centred>
__global__ void __launch_bounds__(256) row_norm_columns(const S* __restrict__ dy, const S* __restrict__ x, const S* __restrict__ mean,
                                                        const S* __restrict__ rstd, typename Compute<S>::type* __restrict__ partial, int64 rows,
                                                        int64 parts, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 share = (rows + parts - 1) / parts, begin = blockIdx.y * share;
    const int64 end = begin + share < rows ? begin + share : rows;
    T a = T(0), b = T(0);
    for (int64 row = begin; row < end; ++row) {
        const T g = load(dy[row * count + i]);
        a += g * ((load(x[row * count + i]) - (Centred ? load(mean[row]) : T(0))) * load(rstd[row]));
        b += g;
    }
    partial[(blockIdx.y * 2) * count + i] = a;
    partial[(blockIdx.y * 2 + 1) * count + i] = b;
}

// The shares of each column, in order. dbias may be a null pointer.
template <class S>
__global__ void __launch_bounds__(256) row_norm_parts(const typename Compute<S>::type* __restrict__ partial, S* __restrict__ dweight,
                                                      S* __restrict__ dbias, int64 parts, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    T a = T(0), b = T(0);
    for (int64 part = 0; part < parts; ++part) {
        a += partial[part * 2 * count + i];
        b += partial[(part * 2 + 1) * count + i];
    }
    dweight[i] = store<S>(a);
    if (dbias) dbias[i] = store<S>(b);
}

// x of [batch, channels, inner]; one block for each channel.
template <class S>
__global__ void __launch_bounds__(512) batch_norm(const S* __restrict__ x, const S* __restrict__ weight, const S* __restrict__ bias,
                                                  S* __restrict__ y, S* __restrict__ mean, S* __restrict__ rstd, S* __restrict__ var, double eps,
                                                  int64 batch, int64 channels, int64 inner) {
    typedef typename Compute<S>::type T;
    Team<false> team;
    team.start(channels, 1, 1);
    const int64 channel = team.row, size = batch * inner;
    const T n = T(size > 0 ? size : 1);
    T sum = T(0);
    for (int64 i = team.lane; i < size; i += team.size) sum += load(x[(i / inner * channels + channel) * inner + i % inner]);
    const T centre = team.sum(sum) / n;
    T squares = T(0);
    for (int64 i = team.lane; i < size; i += team.size) {
        const T d = load(x[(i / inner * channels + channel) * inner + i % inner]) - centre;
        squares += d * d;
    }
    const T variance = team.sum(squares) / n;
    const T scale = T(1) / sqrt(variance + T(eps));
    const T factor = weight ? scale * load(weight[channel]) : scale, shift = bias ? load(bias[channel]) : T(0);
    for (int64 i = team.lane; i < size; i += team.size) {
        const int64 at = (i / inner * channels + channel) * inner + i % inner;
        y[at] = store<S>((load(x[at]) - centre) * factor + shift);
    }
    if (team.lane == 0) {
        mean[channel] = store<S>(centre);
        rstd[channel] = store<S>(scale);
        var[channel] = store<S>(variance);
    }
}

template <class S>
__global__ void __launch_bounds__(512) batch_norm_backward(const S* __restrict__ dy, const S* __restrict__ x, const S* __restrict__ weight,
                                                           const S* __restrict__ mean, const S* __restrict__ rstd, S* __restrict__ dx,
                                                           S* __restrict__ dweight, S* __restrict__ dbias, int64 batch, int64 channels,
                                                           int64 inner) {
    typedef typename Compute<S>::type T;
    Team<false> team;
    team.start(channels, 1, 1);
    const int64 channel = team.row, size = batch * inner;
    const T n = T(size > 0 ? size : 1), centre = load(mean[channel]), r = load(rstd[channel]);
    T sum = T(0), dot = T(0);
    for (int64 i = team.lane; i < size; i += team.size) {
        const int64 at = (i / inner * channels + channel) * inner + i % inner;
        const T g = load(dy[at]);
        sum += g;
        dot += g * (load(x[at]) - centre);
    }
    sum = team.sum(sum);
    dot = team.sum(dot) * r;
    const T scale = weight ? r * load(weight[channel]) : r;
    for (int64 i = team.lane; i < size; i += team.size) {
        const int64 at = (i / inner * channels + channel) * inner + i % inner;
        dx[at] = store<S>((load(dy[at]) - (load(x[at]) - centre) * (dot * r / n) - sum / n) * scale);
    }
    if (team.lane == 0) {
        dweight[channel] = store<S>(dot);
        dbias[channel] = store<S>(sum);
    }
}

}  // namespace gradlab
