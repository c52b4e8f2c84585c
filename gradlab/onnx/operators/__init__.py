"""ONNX's operators in terms of gradlab's functions, one file for each family."""

from __future__ import annotations

from gradlab.onnx.operators import (
    classical,
    control,
    conv,
    elementwise,
    extra,
    forests,
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
    tables,
)


def ready() -> int:
    """All operators are registered; their families."""
    families = (
        classical, control, conv, elementwise, extra, forests, fourier, images, indexing, losses, norms,
        quantized, recurrent, reductions, regions, shapes, tables,
    )  # fmt: skip
    return len(families)
