"""CuPy without a GPU: the CUDA that CuPy calls, answered by the emulated GPU. `python -m gradlab.testing.emulated_cuda script.py` runs a
program so; `GRADLAB_CUDA=real` is then the real driver over CuPy itself.

CuPy's files stay as they are. What it calls is answered at three places:

driver     `libcuda.so.1` is a library of ours: contexts, modules, functions, launches (`driver_functions.py`).
compiler   `libnvrtc.so` is a library of ours: a cubin is the program's source, which the emulator builds (`nvrtc.py`, `machine_code.py`).
runtime    CUDA's runtime is part of CuPy's module `cupy_backends.cuda.api.runtime`, as machine code, and starts only over NVIDIA's own
           driver: it asks an unpublished table of that one (`cuGetExportTable`, d4082055-bde6-704b-8d34-ba123c66e1f2) for a proof, and
           answers error 103, "integrity checks failed", to another. We do not forge that. What other modules of CuPy use of it stands in
           a table of the module, by name and signature; there our functions take the place of its own (`runtime_functions.py`).

cuBLASLt and cuFFT, which gradlab calls itself, are libraries of ours too, over the emulated GPU's stand-ins.
"""

from __future__ import annotations

from gradlab.testing.emulated_cuda.installing import Installed, install

__all__ = ["Installed", "install"]
