// What blocks of a cluster do together: kernels/cluster.cuh's two functions.
//
// All blocks of a cluster run at a time. A block's shared memory is poisoned when its first thread starts, so that what others wrote into it
// before is lost, and forbidden when its last thread has returned.
#ifndef GRADLAB_EMULATOR_CLUSTERS_H
#define GRADLAB_EMULATOR_CLUSTERS_H

namespace gradlab_emulator {

// The place in the shared memory of the cluster's block `rank` that `own` is in the caller's.
void* in_block(void* own, int rank);
inline void cluster_barrier(Site site) { ask(site, Operation::cluster_barrier); }

}  // namespace gradlab_emulator

#endif
