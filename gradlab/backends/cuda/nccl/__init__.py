"""NCCL, which carries arrays between GPUs, by CuPy's names (`cupy.cuda.nccl`); on the emulated GPU a stand-in behind the same names."""
