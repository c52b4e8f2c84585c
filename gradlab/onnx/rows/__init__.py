"""How each row is written in ONNX, by family. Importing this fills `gradlab.onnx.registry.CONVERTERS`."""

from __future__ import annotations

from gradlab.onnx.rows import (
    control,
    conv,
    elementwise,
    incomplete,
    index,
    linalg,
    loss,
    movement,
    pool,
    products,
    random,
    recurrent,
    reduce,
    residual,
    special,
    vision,
)

FAMILIES = (
    control, conv, elementwise, incomplete, index, linalg, loss, movement, pool, products, random, recurrent, reduce, residual, special,
    vision,
)  # fmt: skip
