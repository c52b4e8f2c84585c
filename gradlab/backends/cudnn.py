"""The switch for NVIDIA's cuDNN, as in `torch.backends.cudnn`; off unless it is asked for, since gradlab has kernels of its own.

`gl.backends.cudnn.enabled = True` lets cuDNN compute convolutions (one group; bias and ReLU with them) and attention without a mask in
half types on a GPU. It takes the package, `pip install "gradlab-engine[cudnn]"`; without it there is one warning, and gradlab's own
kernels go on. The first result of each new problem is compared with theirs: where the two differ by more than the dtype's rounding there
is a warning, and cuDNN is not asked for that problem again. Imported with gradlab, so it imports nothing of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags", "is_available", "version"]

enabled = False
# What PyTorch's scripts read and set besides. Results are the same in every run, and products keep float32, whatever stands here:
# `gl.use_deterministic_algorithms` and `gl.set_float32_matmul_precision` are asked.
benchmark, benchmark_limit, deterministic, allow_tf32 = False, 10, True, False


def is_available() -> bool:
    """Whether the package of cuDNN's frontend is installed."""
    return importlib.util.find_spec("cudnn") is not None


def version() -> int | None:
    """The number of cuDNN's version, 91300 for 9.13.0; None where it is not installed.

    >>> gl.backends.cudnn.version() is None or gl.backends.cudnn.version() > 90000
    True
    """
    if not is_available():
        return None
    library: Any = importlib.import_module("cudnn")
    try:
        return int(library.backend_version())
    except (RuntimeError, OSError):
        return None


@contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False, allow_tf32: bool = True,
    fp32_precision: Any = "none",
) -> Iterator[None]:  # fmt: skip
    """Set `enabled` within a `with` block; the others change nothing.

    >>> with gl.backends.cudnn.flags(enabled=True):
    ...     gl.backends.cudnn.enabled
    True
    """
    module: Any = sys.modules[__name__]
    before, module.enabled = module.enabled, bool(enabled)
    try:
        yield
    finally:
        module.enabled = before
