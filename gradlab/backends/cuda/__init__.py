"""The CUDA backend. Importing it imports no cupy: it only says how the backend is loaded when a device "cuda" is first asked for.

`GRADLAB_CUDA=emulated` chooses the emulated GPU, anything else the real one.
"""

from __future__ import annotations

from gradlab import dispatch
from gradlab.backends.cuda.attention import (
    cudnn_sdp_enabled as cudnn_sdp_enabled,
    enable_cudnn_sdp as enable_cudnn_sdp,
    enable_flash_sdp as enable_flash_sdp,
    enable_math_sdp as enable_math_sdp,
    enable_mem_efficient_sdp as enable_mem_efficient_sdp,
    flash_sdp_enabled as flash_sdp_enabled,
    math_sdp_enabled as math_sdp_enabled,
    mem_efficient_sdp_enabled as mem_efficient_sdp_enabled,
    sdp_kernel as sdp_kernel,
)
from gradlab.backends.cuda.gemm.settings import matmul as matmul
from gradlab.backends.cuda.loading import load as load

dispatch.register_device("cuda", load)


def is_built() -> bool:
    """True: nothing has to be built for GPUs; whether there is one says `gl.cuda.is_available()`."""
    return True
