"""Elementwise rows: which kernel fits the operands, and its launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cuda.arguments import Arguments
from gradlab.backends.cuda.compiler import Compiler
from gradlab.backends.cuda.driver import Driver
from gradlab.backends.cuda.generate import Operand, Signature, compute_type, reads
from gradlab.backends.cuda.layout import is_contiguous, pack_layout
from gradlab.op import Op

BLOCK = 256
_NUMPY = {"float": np.float32, "double": np.float64}


class ElementwiseLauncher:
    """Runs rows that are described by an expression."""

    def __init__(self, driver: Driver, compiler: Compiler) -> None:
        self.driver, self.compiler = driver, compiler

    def run(self, op: Op, arrays: list[Any], specs: list[Any], out: Any, params: dict[str, Any]) -> None:
        """Compute `out` (contiguous) from arrays and Python numbers."""
        shape, count = out.shape, out.size
        if count == 0:
            return
        operands = tuple(
            Operand(name, spec.dtype, isinstance(a, (int, float))) for name, spec, a in zip(op.inputs, specs, arrays, strict=True)
        )
        real = [a for a in arrays if not isinstance(a, (int, float))]
        pointers = [self.driver.pointer(a) for a in real]
        contiguous = all(is_contiguous(a, shape) for a in real) and not any(p & 15 for p in pointers)
        read = tuple(
            (name, "double" if isinstance(value, float) else "long long")
            for name, value in params.items()
            if isinstance(value, (int, float)) and reads(op.cuda.expression, name)
        )
        widest = max((1 + sum(abs(s) // a.dtype.itemsize * (n - 1) for s, n in zip(a.strides, a.shape, strict=True)) for a in real), default=count)
        signature = Signature(op.name, operands, out.dtype, read, contiguous, not contiguous and max(count, widest) > 2**31 - 1)
        function = self.compiler.elementwise(op, signature)
        values: list[Any] = [self.driver.pointer(out)]
        waiting = iter(pointers)
        for a, operand in zip(arrays, operands, strict=True):
            values.append(self._number(a, operand) if operand.immediate else next(waiting))
        values += [np.float64(params[name]) if kind == "double" else np.int64(params[name]) for name, kind in read]
        if contiguous:
            per_block = BLOCK * signature.pack
        else:
            per_block = BLOCK
            values.append(pack_layout(shape, real))
        values.append(np.int64(count))
        arguments = Arguments(values)
        self.driver.launch(function, (-(-count // per_block), 1, 1), (BLOCK, 1, 1), arguments.address, 0)

    def _number(self, value: float, operand: Operand) -> Any:
        kind = compute_type(operand.dtype)
        if kind in _NUMPY:
            return _NUMPY[kind](value)
        return np.asarray(value).astype(operand.dtype)[()]
