"""ONNX's operators in terms of gradlab's functions, one file for each family."""

from __future__ import annotations

from gradlab.onnx.operators import (
    control,
    conv,
    elementwise,
    fourier,
    images,
    indexing,
    losses,
    norms,
    quantized,
    recurrent,
    reductions,
    shapes,
)


def ready() -> int:
    """All operators are registered; their families."""
    return len((control, conv, elementwise, fourier, images, indexing, losses, norms, quantized, recurrent, reductions, shapes))
