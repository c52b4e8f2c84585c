"""Operations and CUDA kernels of one's own, which behave like gradlab's: differentiable, on both devices, traced, compiled, vmapped.

`custom_op` makes one; docs/custom-kernels.md goes from an idea to a checked fused kernel. `gl.testing.opcheck` checks what was made.
"""

from __future__ import annotations

from gradlab.library.custom import CustomOp, custom_op, get
from gradlab.library.registering import get_ctx, register_autograd, register_fake, register_kernel, register_vmap
from gradlab.library.source import CudaSource, Launch
from gradlab.spec import Spec

__all__ = [
    "CudaSource", "CustomOp", "Launch", "Spec", "custom_op", "get", "get_ctx", "register_autograd", "register_fake", "register_kernel",
    "register_vmap",
]  # fmt: skip
