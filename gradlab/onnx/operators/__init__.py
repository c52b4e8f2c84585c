"""ONNX's operators in terms of gradlab's functions, one file for each family."""

from __future__ import annotations

from gradlab.onnx.operators import (
    control,
    conv,
    elementwise,
    extra,
    fourier,
    images,
    indexing,
    losses,
    norms,
    quantized,
    recurrent,
    reductions,
    regions,
    shapes,
)


def ready() -> int:
    """All operators are registered; their families."""
    families = (
        control, conv, elementwise, extra, fourier, images, indexing, losses, norms,
        quantized, recurrent, reductions, regions, shapes,
    )  # fmt: skip
    return len(families)
