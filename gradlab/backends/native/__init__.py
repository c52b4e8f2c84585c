"""Machine code for the CPU: C++ kernels (`kernels/cpu/`) and generated loops, compiled by the machine's compiler and kept on disk."""
