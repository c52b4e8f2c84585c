"""Elementwise rows: which kernel fits the operands, and a plan that launches it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.arguments import KINDS, Packer
from gradlab.backends.cuda.generate import MAX_OPERANDS, Operand, Signature, blocks_of, contiguous_form, main_dtype, reads
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import MAX_RANK, broadcast_strides, merged, pack_layout_of, row_major
from gradlab.backends.cuda.types import compute_type
from gradlab.dtype import COMPLEX, FLOAT32, FLOAT64, immediate, wide
from gradlab.op import Op
from gradlab.spec import Spec, count

BLOCK = 256
MOST = 2**31 - 1  # elements of one launch of the strided form, which counts in 32 bits
_LARGEST_FLOAT = 3.4028235677973366e38  # what still rounds to a finite float32


def fits(out: Spec, specs: list[Spec | None]) -> bool:
    """Whether the kernels take these operands."""
    return None not in specs and len(specs) <= MAX_OPERANDS and len(out.shape) <= MAX_RANK


def _single(value: float) -> float:
    """What struct packs as a float32: beyond the largest one infinity."""
    return value if -_LARGEST_FLOAT < value < _LARGEST_FLOAT or math.isnan(value) else math.copysign(math.inf, value)


def _converter(dtype: np.dtype[Any]) -> tuple[str | int, Callable[[Any], Any]]:
    """How a Python number becomes an immediate beside arrays of a dtype: its kind, and the conversion."""
    if dtype == FLOAT64:
        return "d", float
    if wide(dtype) == FLOAT32:
        return "f", _single
    if dtype in COMPLEX:
        return dtype.itemsize, lambda v: dtype.type(v).tobytes()
    return KINDS[dtype.type], lambda v: immediate(v, dtype).item()


def _parameter(op: Op, name: str, value: Any, main: np.dtype[Any]) -> tuple[str, str | int, Any] | None:
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
    if isinstance(value, complex):
        return "Complex<double>", 16, np.complex128(value).tobytes()
    return ("double", "d", value) if isinstance(value, float) else None


class _Piece(NamedTuple):
    """One launch of the strided form. shifts: bytes to add to each address, or None. tail: constants, layout, first element, count."""

    shifts: tuple[int, ...] | None
    tail: tuple[Any, ...]
    blocks: tuple[int, int, int]


def _pieces(
    operands: tuple[Operand, ...], out: Spec, sizes: list[int], steps: list[list[int]], constants: list[Any]
) -> Iterator[_Piece]:
    """The launches that make up an output, each of at most `MOST` elements. Sizes and each array's strides as `merged` gives them."""
    for box, place in boxes(sizes, MOST):
        first = sum(p * prod(sizes[:d]) for d, p in enumerate(place))
        starts = iter([sum(p * s for p, s in zip(place, mine, strict=True)) for mine in steps])
        shifts = (first * out.dtype.itemsize, *(0 if o.immediate else next(starts) * o.dtype.itemsize for o in operands))
        layout, _ = pack_layout_of(box[::-1], [tuple(mine[::-1]) for mine in steps])
        number = prod(box)
        yield _Piece(shifts if any(shifts) else None, (*constants, layout, first, number), (-(-number // BLOCK), 1, 1))


def boxes(sizes: Sequence[int], most: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """An array of these sizes (innermost first) cut into boxes of at most `most` elements, each a stretch of the array in row-major order:
    the sizes of each, and the place where it begins."""
    split, inner = 0, 1  # the outermost dimension whose whole extent is too much, and the elements of one step along it
    while split < len(sizes) and inner * sizes[split] <= most:
        inner *= sizes[split]
        split += 1
    if split == len(sizes):
        yield tuple(sizes), (0,) * len(sizes)
        return
    ones = (1,) * (len(sizes) - split - 1)
    for outer in itertools.product(*(range(n) for n in reversed(sizes[split + 1 :]))):
        for begin in range(0, sizes[split], most // inner):
            length = min(most // inner, sizes[split] - begin)
            yield (*sizes[:split], length, *ones), (*(0,) * split, begin, *outer[::-1])


def _copying(copy: Callable[[Any, Any], None], make: Callable[[], Any]) -> Callable[..., Any]:
    """The plan of a row that only copies."""

    def copying(arrays: list[Any], outs: Sequence[Any] | None = None) -> Any:
        made = make() if outs is None else outs[0]
        copy(made, arrays[0])
        return made

    return copying


def plan(work: Work, op: Op, arrays: list[Any], specs: list[Any], out: Spec, params: dict[str, Any]) -> Callable[..., Any]:
    """A plan for operands of these shapes, strides and dtypes."""
    shape, size = out.shape, count(out.shape)
    driver = work.driver
    empty, pointer = driver.empty, driver.pointer
    if size == 0:
        return lambda _, outs=None: empty(shape, out.dtype) if outs is None else outs[0]
    numbers = [isinstance(a, (int, float, complex)) for a in arrays]
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
    if op.name == "clone" and not real[0].flags.c_contiguous:
        turned = work.turned_copy(shape, [row_major(shape), broadcast_strides(real[0], shape)], out.dtype)
        if turned is not None:
            return _copying(turned, driver.maker(shape, out.dtype))
    sizes, steps = merged(shape, [broadcast_strides(a, shape) for a in real])
    flat = len(sizes) <= 1 and all(s == [1] or (size == 1 and s == []) for s in steps)
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
    pieces = list(_pieces(operands, out, sizes, steps, constants))
    strided_packer = Packer([*kinds, len(pieces[0].tail[-3]), "q", "q"])
    block = (BLOCK, 1, 1)

    def strided(values: Sequence[Any]) -> None:
        """Launch the strided form. values: the output's address, and what the operands are."""
        if not strided_function:
            function = compiler.elementwise(op, Signature(op.name, operands, out.dtype, names, False))
            strided_function.extend(strided_packer.sender(driver.launcher(function, piece.blocks, block, 0)) for piece in pieces)
        for piece, send in zip(pieces, strided_function, strict=True):
            moved = values if piece.shifts is None else [v + shift if shift else v for v, shift in zip(values, piece.shifts, strict=True)]
            send(*moved, *piece.tail)

    make = driver.maker(shape, out.dtype)
    if flat:
        signature = Signature(op.name, operands, out.dtype, names, True)
        blocks = (blocks_of(size, *contiguous_form(signature, op.cuda.expression)), 1, 1)
        send = Packer([*kinds, "q"]).sender(driver.launcher(compiler.elementwise(op, signature), blocks, block, 0))
        tail = (*constants, size)
    number: Any = converters[-1] if converters else None

    def run(inputs: list[Any], outs: Sequence[Any] | None = None) -> Any:
        made = make() if outs is None else outs[0]
        values = [pointer(made)]
        together = 0 if outs is None else values[0]
        for a, convert in zip(inputs, converters):
            if convert is None:
                address = pointer(a)
                together |= address
                values.append(address)
            else:
                values.append(convert(a))
        if flat and not together & 15:
            send(*values, *tail)
        else:
            strided(values)
        return made

    # The commonest forms of the same, without the loop: one array, two arrays, an array and a number.

    def run_one(inputs: list[Any], outs: Sequence[Any] | None = None) -> Any:
        if outs is not None:
            return run(inputs, outs)
        made, address = make(), pointer(inputs[0])
        if address & 15:
            strided((pointer(made), address))
        else:
            send(pointer(made), address, *tail)
        return made

    def run_two(inputs: list[Any], outs: Sequence[Any] | None = None) -> Any:
        if outs is not None:
            return run(inputs, outs)
        a, b = inputs
        made, first, second = make(), pointer(a), pointer(b)
        if (first | second) & 15:
            strided((pointer(made), first, second))
        else:
            send(pointer(made), first, second, *tail)
        return made

    def run_number(inputs: list[Any], outs: Sequence[Any] | None = None) -> Any:
        if outs is not None:
            return run(inputs, outs)
        made, address, value = make(), pointer(inputs[0]), number(inputs[1])
        if address & 15:
            strided((pointer(made), address, value))
        else:
            send(pointer(made), address, value, *tail)
        return made

    if flat and len(operands) == 1 and not numbers[0]:
        return run_one
    if flat and len(operands) == 2 and not numbers[0]:
        return run_number if numbers[1] else run_two
    return run
