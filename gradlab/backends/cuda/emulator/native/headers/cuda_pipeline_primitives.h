// CUDA's own functions for copies that go on in the background, for users' kernels (CUDA C++ Programming Guide, "Pipeline Primitives Interface").
#ifndef GRADLAB_EMULATOR_PIPELINE_H
#define GRADLAB_EMULATOR_PIPELINE_H

#define __pipeline_memcpy_async(...) ::gradlab_emulator::copy_async(GRADLAB_SITE, __VA_ARGS__)
#define __pipeline_commit() ::gradlab_emulator::copies_committed()
#define __pipeline_wait_prior(most) ::gradlab_emulator::await_copies(most)

#endif
