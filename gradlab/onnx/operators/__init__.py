"""ONNX's operators in terms of gradlab's functions, one file for each family."""

from __future__ import annotations

from gradlab.onnx.operators import (
    blocks,
    classical,
    contributed,
    control,
    conv,
    decoders,
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
    strings,
    tables,
    transformers,
)


def ready() -> int:
    """All operators are registered; their families."""
    families = (
        blocks, classical, contributed, control, conv, decoders, elementwise, extra, forests, fourier, images, indexing, losses, norms,
        quantized, recurrent, reductions, regions, shapes, strings, tables, transformers,
    )  # fmt: skip
    return len(families)
