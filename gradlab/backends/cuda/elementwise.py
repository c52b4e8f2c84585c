"""Elementwise rows: which kernel fits the operands, and a plan that launches it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.backends.cpu import immediate
from gradlab.backends.cuda.arguments import KINDS, Packer
from gradlab.backends.cuda.generate import MAX_OPERANDS, Operand, Signature, main_dtype, reads
from gradlab.backends.cuda.layout import MAX_RANK, broadcast_strides, merged, pack_layout_of
from gradlab.backends.cuda.types import compute_type
from gradlab.backends.cuda.work import Work
from gradlab.dtype import FLOAT32, FLOAT64, HALF
from gradlab.op import Op
from gradlab.spec import Spec, count

BLOCK = 256
_LARGEST_FLOAT = 3.4028235677973366e38  # what still rounds to a finite float32


def fits(out: Spec, specs: list[Spec | None]) -> bool:
    """Whether the kernels take these operands."""
    return None not in specs and len(specs) <= MAX_OPERANDS and len(out.shape) <= MAX_RANK


def _single(value: float) -> float:
    """What struct packs as a float32: beyond the largest one infinity."""
    return value if -_LARGEST_FLOAT < value < _LARGEST_FLOAT or math.isnan(value) else math.copysign(math.inf, value)


def _converter(dtype: np.dtype[Any]) -> tuple[str, Callable[[float], Any]]:
    """How a Python number becomes an immediate of a dtype: its kind, and the conversion. Halves are rounded, then computed in float32."""
    if dtype == FLOAT64:
        return "d", float
    if dtype == FLOAT32:
        return "f", _single
    if dtype in HALF:
        return "f", lambda v: float(immediate(v, dtype))
    return KINDS[dtype.type], lambda v: immediate(v, dtype).item()


def _parameter(op: Op, name: str, value: Any, main: np.dtype[Any]) -> tuple[str, str, Any] | None:
    """A parameter that the expression reads: its C++ type, its kind, its value. Limits (`lo`, `hi`) may be None: no limit."""
    if name in ("lo", "hi"):
        low = name == "lo"
        kind, convert = _converter(main)
        if main.kind in "iu":
            info = np.iinfo(main)
            value = (info.min if low else info.max) if value is None else min(max(value, info.min), info.max)
            return compute_type(main), kind, int(value)
        if main.kind == "b":
            return "bool", "?", (not low) if value is None else bool(value)
        return compute_type(main), kind, convert((-math.inf if low else math.inf) if value is None else value)
    if isinstance(value, int):
        return "long long", "q", ((int(value) + 2**63) % 2**64) - 2**63
    return ("double", "d", value) if isinstance(value, float) else None


def plan(work: Work, op: Op, arrays: list[Any], specs: list[Any], out: Spec, params: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """A plan for operands of these shapes, strides and dtypes."""
    shape, size = out.shape, count(out.shape)
    driver = work.driver
    empty, pointer, launch = driver.empty, driver.pointer, driver.launch
    if size == 0:
        return lambda _: empty(shape, out.dtype)
    numbers = [isinstance(a, (int, float)) for a in arrays]
    operands = tuple(Operand(name, spec.dtype, number) for name, spec, number in zip(op.inputs, specs, numbers, strict=True))
    main = main_dtype(operands, out.dtype)
    read = []
    for name, value in params.items():
        if reads(op.cuda.expression, name):
            found = _parameter(op, name, value, main)
            if found is not None:
                read.append((name, *found))
    names = tuple((name, kind) for name, kind, _, _ in read)
    constants = [value for _, _, _, value in read]
    real = [a for a, number in zip(arrays, numbers, strict=True) if not number]
    strides = [broadcast_strides(a, shape) for a in real]
    sizes, steps = merged(shape, strides)
    flat = len(sizes) <= 1 and all(s == [1] or (size == 1 and s == []) for s in steps)
    layout, widest = pack_layout_of(shape, strides)
    wide = max(size, widest) > 2**31 - 1
    kinds: list[str | int] = ["P"]
    converters: list[Any] = []
    for operand in operands:
        if operand.immediate:
            kind, convert = _converter(operand.dtype)
            kinds.append(kind)
            converters.append(convert)
        else:
            kinds.append("P")
            converters.append(None)
    kinds += [kind for _, _, kind, _ in read]
    compiler = work.compiler
    strided_function: list[Any] = []
    strided_packer = Packer([*kinds, len(layout), "q"])
    strided_blocks = (-(-size // BLOCK), 1, 1)
    strided_tail = (*constants, layout, size)

    def strided() -> Any:
        if not strided_function:
            strided_function.append(compiler.elementwise(op, Signature(op.name, operands, out.dtype, names, False, wide)))
        return strided_function[0]

    block = (BLOCK, 1, 1)
    dtype = out.dtype
    if flat:
        signature = Signature(op.name, operands, out.dtype, names, True, False)
        function = compiler.elementwise(op, signature)
        packer = Packer([*kinds, "q"])
        blocks = (-(-size // (BLOCK * signature.pack)), 1, 1)
        tail = (*constants, size)

    def run(inputs: list[Any]) -> Any:
        made = empty(shape, dtype)
        values = [pointer(made)]
        together = 0
        for a, convert in zip(inputs, converters):
            if convert is None:
                address = pointer(a)
                together |= address
                values.append(address)
            else:
                values.append(convert(a))
        if flat and not together & 15:
            packet = packer.fill(*values, *tail)
            launch(function, blocks, block, packet.address, 0)
            packer.done(packet)
        else:
            packet = strided_packer.fill(*values, *strided_tail)
            launch(strided(), strided_blocks, block, packet.address, 0)
            strided_packer.done(packet)
        return made

    return run
