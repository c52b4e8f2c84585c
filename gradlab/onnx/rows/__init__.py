"""How each row is written in ONNX, by family. Importing this fills `gradlab.onnx.registry.CONVERTERS`."""

from __future__ import annotations

from gradlab.onnx.rows import control, conv, elementwise, index, loss, movement, pool, products, random, recurrent, reduce, special, vision

__all__ = [
    "control", "conv", "elementwise", "index", "loss", "movement", "pool", "products", "random", "recurrent", "reduce", "special", "vision",
]  # fmt: skip
