// Values written into planes at given indices, which may repeat: [planes, outputs] into [planes, inputs]. Results do not depend on the schedule:
// atomics only build, in integers, the lists of outputs that each input is given; their numbers decide the order, not their places in the list.
#include "fault.cuh"

namespace gradlab {

// head[input] is the number (from 1) of an output with that index, next[output] that of another one; 0 ends the list. heads are 0 at first.
__global__ void __launch_bounds__(256) link_outputs(const int64* __restrict__ indices, int* __restrict__ head, int* __restrict__ next,
                                                    FaultWord* fault, int64 site, int64 outputs, int64 inputs, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 plane = i / outputs, at = checked(indices[i], inputs, false, fault, site);
    if (at >= 0) next[i] = atomicExch(head + plane * inputs + at, static_cast<int>(i - plane * outputs) + 1);
}

// One thread for each input adds what it is given, by ascending numbers; as many walks along the list as it has members: few, the windows that
// hold an element.
template <class S>
__global__ void __launch_bounds__(256) add_linked(const S* __restrict__ dy, const int* __restrict__ head, const int* __restrict__ next,
                                                  S* __restrict__ y, int64 outputs, int64 inputs, int64 count) {
    typedef typename Compute<S>::type T;
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int first = head[i];
    T total = T(0);
    if (first) {
        const int64 base = i / inputs * outputs - 1;
        if (next[base + first] == 0) {
            total = load(dy[base + first]);
        } else {
            for (int last = 0;;) {
                int smallest = 0;
                for (int j = first; j; j = next[base + j])
                    if (j > last && (j < smallest || !smallest)) smallest = j;
                if (!smallest) break;
                total += load(dy[base + smallest]);
                last = smallest;
            }
        }
    }
    y[i] = store<S>(total);
}

// head[input] is the number (from 1) of the last output with that index.
__global__ void __launch_bounds__(256) last_outputs(const int64* __restrict__ indices, int* __restrict__ head, FaultWord* fault, int64 site,
                                                    int64 outputs, int64 inputs, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int64 plane = i / outputs, at = checked(indices[i], inputs, false, fault, site);
    if (at >= 0) atomicMax(head + plane * inputs + at, static_cast<int>(i - plane * outputs) + 1);
}

template <class Word>
__global__ void __launch_bounds__(256) take_last(const Word* __restrict__ x, const int* __restrict__ head, Word* __restrict__ y, int64 outputs,
                                                 int64 inputs, int64 count) {
    const int64 i = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= count) return;
    const int last = head[i];
    y[i] = last ? x[i / inputs * outputs + last - 1] : Word(0);
}

}  // namespace gradlab
