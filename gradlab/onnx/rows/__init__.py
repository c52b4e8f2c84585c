"""How each row is written in ONNX, by family; what no family says is derived from the row. Importing this fills
`gradlab.onnx.registry.CONVERTERS`."""

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
    older,
    pool,
    products,
    quantized,
    random,
    recurrent,
    reduce,
    residual,
    special,
    vision,
)
from gradlab.onnx.rows.derived import derive
from gradlab.ops import ROWS

FAMILIES = (
    control, conv, elementwise, incomplete, index, linalg, loss, movement, older, pool, products, quantized, random, recurrent, reduce,
    residual, special, vision,
)  # fmt: skip
for _row in ROWS.values():
    derive(_row)
