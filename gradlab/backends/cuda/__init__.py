"""The CUDA backend. Importing it imports no cupy: it only says how the backend is loaded when a device "cuda" is first asked for.

`GRADLAB_CUDA=emulated` chooses the emulated GPU, anything else the real one.
"""

from __future__ import annotations

from gradlab import dispatch
from gradlab.backends.cuda.gemm.settings import matmul as matmul
from gradlab.backends.cuda.loading import load as load

dispatch.register_device("cuda", load)


def is_built() -> bool:
    """True: nothing has to be built for GPUs; whether there is one says `gl.cuda.is_available()`."""
    return True
