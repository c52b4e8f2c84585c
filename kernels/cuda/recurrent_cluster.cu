// All time steps of a layer of recurrent units, Rows sequences by each cluster of eight blocks, from compute capability 9.0: see
// recurrent_steps.cuh.
#include "recurrent_steps.cuh"

namespace gradlab {

template <class S, int Unit, int Rows>
__global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(256, 1)
    recurrent_cluster(const S* gates, const S* weight, const typename Compute<S>::type* first, const typename Compute<S>::type* begun,
           S* hidden, typename Compute<S>::type* values, typename Compute<S>::type* acts, Steps p) {
    forward_steps<Unit, 8, Rows, S>(gates, weight, first, begun, hidden, values, acts, p);
}

template <class S, int Unit, int Rows>
__global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(256, 1)
    recurrent_cluster_backward(const S* slopes, const typename Compute<S>::type* first, const typename Compute<S>::type* arrived,
                    const typename Compute<S>::type* acts, const typename Compute<S>::type* values, const S* states,
                    const typename Compute<S>::type* begun, const S* weight, typename Compute<S>::type* dgates,
                    typename Compute<S>::type* down, typename Compute<S>::type* carried, Steps p) {
    backward_steps<Unit, 8, Rows, S>(slopes, first, arrived, acts, values, states, begun, weight, dgates, down, carried, p);
}

}  // namespace gradlab
