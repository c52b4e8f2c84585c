// Convolutions of one or two dimensions on tensor cores from compute capability 8.0, their tiles copied in the background.
#include "conv_ring.cuh"

namespace gradlab {

template <class S, class Out, int Mode, int BM, int BN, int Stages, bool Last>
__global__ void __launch_bounds__(BM * BN / 32, BM == 128 ? 2 : 3) convolve_ahead(const S* __restrict__ first, const S* __restrict__ second,
                                                                                  const S* __restrict__ bias, Out* __restrict__ result,
                                                                                  Out* __restrict__ sums, const Planes planes, int share, int64 part) {
    convolve_ring<S, Out, Mode, BM, BN, Stages, Last>(first, second, bias, result, sums, planes, share, part);
}

}  // namespace gradlab
