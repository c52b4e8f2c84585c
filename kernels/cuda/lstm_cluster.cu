// All time steps of a layer of LSTM units, Rows sequences by each cluster of eight blocks, from compute capability 9.0: see lstm_steps.cuh.
#include "lstm_steps.cuh"

namespace gradlab {

template <class S, int Rows>
__global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(256, 1)
    lstm_cluster(const S* gates, const S* weight, const typename Compute<S>::type* first, const typename Compute<S>::type* begun, S* hidden,
                 typename Compute<S>::type* cells, typename Compute<S>::type* acts, Steps p) {
    lstm_forward<8, Rows, S>(gates, weight, first, begun, hidden, cells, acts, p);
}

template <class S, int Rows>
__global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(256, 1)
    lstm_cluster_backward(const S* slopes, const typename Compute<S>::type* first, const typename Compute<S>::type* arrived,
                          const typename Compute<S>::type* acts, const typename Compute<S>::type* cells, const typename Compute<S>::type* begun,
                          const S* weight, typename Compute<S>::type* dgates, typename Compute<S>::type* dcell, Steps p) {
    lstm_backward<8, Rows, S>(slopes, first, arrived, acts, cells, begun, weight, dgates, dcell, p);
}

}  // namespace gradlab
