// What a kernel tells the host when a value is not what it may be: an index out of range, a probability above 1.
//
// The record lies in host memory that the device writes directly. So the host looks at it without waiting, and a correct program pays nothing:
// see backends/cuda/kernel_faults.py. The first fault stays until the host has read it.
#pragma once
#include "common.cuh"

namespace gradlab {

typedef unsigned long long FaultWord;  // four of them: taken, site, value, unused

// `site` says which operation it was, `value` what was wrong.
__device__ __forceinline__ void report(FaultWord* fault, int64 site, int64 value) {
    if (atomicCAS_system(fault, FaultWord(0), FaultWord(1)) == 0) {
        fault[1] = static_cast<FaultWord>(site);
        fault[2] = static_cast<FaultWord>(value);
        __threadfence_system();
        atomicExch_system(fault, FaultWord(2));  // complete: another block may be asking whether it is taken
    }
}

// The index counted from 0, or -1 (after a report) where it is out of range.
__device__ __forceinline__ int64 checked(int64 index, int64 size, bool wrap, FaultWord* fault, int64 site) {
    const int64 place = wrap && index < 0 ? index + size : index;
    if (place >= 0 && place < size) return place;
    report(fault, site, index);
    return -1;
}

}  // namespace gradlab
