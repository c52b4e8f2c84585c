// Convolutions of one or two dimensions by FMA, in float (double).
#include "conv_tile.cuh"

namespace gradlab {

template <class S, class Out, int Mode, int BM, bool Last>
__global__ void __launch_bounds__(2 * BM, 1) convolve_planes(const S* __restrict__ first, const S* __restrict__ second, const S* __restrict__ bias,
                                                             Out* __restrict__ result, Out* __restrict__ sums, const Planes planes, int share,
                                                             int64 part) {
    convolve_tile<FmaTile<S>, S, Out, Mode, BM, Last>(first, second, bias, result, sums, planes, share, part);
}

}  // namespace gradlab
