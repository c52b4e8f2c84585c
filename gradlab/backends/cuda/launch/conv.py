"""Convolution and its gradients: which kernel, which tiles, how the sum of a weight's gradient is shared."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch.windows import geometry
from gradlab.backends.cuda.work import Work
from gradlab.dtype import FLOATING
from gradlab.spec import Spec, count

FORWARD, INPUT, WEIGHT = 0, 1, 2
FEW = 4  # channels of a group (and outputs) that make its tiles nearly empty
TARGET_BLOCKS = 1056  # eight for each of an H100's 132 multiprocessors
LARGEST = 2**31 - 1
MOST_PARTIAL = 1 << 26  # elements of partial sums


def pack_convolution(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], params: dict[str, Any]) -> bytes:
    """The bytes of `Convolution`."""
    windows = geometry(x[2:], y[2:], w[2:], params["stride"], params["padding"], params["dilation"])
    return windows + struct.pack("4i", x[0], x[1], w[0], params["groups"])


def index_type(size: int) -> str:
    """The C++ type that counts so many elements."""
    return "unsigned int" if size <= LARGEST else "long long"


def takes(at: int) -> Any:
    """The rule takes floating point of few enough elements. `at`: which of x, w, y are the two inputs' shapes."""

    def check(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        first, second, third = specs[0], specs[1], outs[0]
        assert first is not None and second is not None
        x, w, y = {FORWARD: (first, second, third), INPUT: (third, second, first), WEIGHT: (first, third, second)}[at]
        reach = (d * k for d, k in zip(params["dilation"], w.shape[2:], strict=True))
        sizes = (x.shape[0] * count(x.shape[2:]), y.shape[0] * count(y.shape[2:]), count(w.shape), *reach)
        return third.dtype in FLOATING and len(x.shape) <= 5 and max(sizes) <= LARGEST // 4 and params["groups"] <= 65535

    return check


def _tiled(
    work: Work, mode: int, first: Any, second: Any, bias: Any, result: Any, packed: bytes, sizes: tuple[int, int, int], groups: int
) -> None:  # fmt: skip
    """One launch of `convolve`, or for a long sum of `dw` one for its shares and one to add them."""
    m, n, k = sizes
    rows = 16 if m <= 16 else 64
    tiles = -(-m // rows) * -(-n // (4096 // rows))
    dtype, parts = result.dtype, 1
    if mode == WEIGHT:
        parts = max(1, min(TARGET_BLOCKS // (tiles * groups), k // 256, MOST_PARTIAL // (m * n * groups), 1024))
    if parts == 1:
        function = work.kernel("conv.cu", "convolve", dtype, dtype, mode, rows)
        work.launch_grid(function, (tiles, groups, 1), 256, first, second, bias, result, packed, max(k, 1))
        return
    total = m * n * groups
    share = -(-k // parts)
    share = -(-share // 16) * 16
    parts = -(-k // share)
    partial = work.empty((parts, total), work.wide(dtype))
    function = work.kernel("conv.cu", "convolve", dtype, work.wide(dtype), mode, rows)
    work.launch_grid(function, (tiles, groups, parts), 256, first, second, bias, partial, packed, share)
    work.launch(work.kernel("conv.cu", "add_shares", dtype), -(-total // 256), 256, partial, result, parts, total)


def convolution(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, w = work.contiguous(inputs[0]), work.contiguous(inputs[1])
    bias = None if inputs[2] is None else work.contiguous(inputs[2])
    (y,), groups = outputs, params["groups"]
    if not y.size:
        return
    packed = pack_convolution(x.shape, w.shape, y.shape, params)
    m, places = w.shape[0] // groups, count(w.shape[2:])
    if groups > 1 and m <= FEW:
        work.each(work.kernel("conv.cu", "narrow_forward", y.dtype, index_type(y.size)), y.size, x, w, bias, y, packed)
        return
    sizes = (m, x.shape[0] * count(y.shape[2:]), w.shape[1] * places)
    _tiled(work, FORWARD, w, x, bias, y, packed, sizes, groups)


def convolution_dx(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    dy, w = work.contiguous(inputs[0]), work.contiguous(inputs[1])
    (dx,), groups = outputs, params["groups"]
    if not dx.size:
        return
    packed = pack_convolution(dx.shape, w.shape, dy.shape, params)
    m = w.shape[1]
    if groups > 1 and m <= FEW:
        work.each(work.kernel("conv.cu", "narrow_input", dx.dtype, index_type(dx.size)), dx.size, dy, w, dx, packed)
        return
    sizes = (m, dx.shape[0] * count(dx.shape[2:]), w.shape[0] // groups * count(w.shape[2:]))
    _tiled(work, INPUT, w, dy, None, dx, packed, sizes, groups)


def convolution_dw(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    x, dy = work.contiguous(inputs[0]), work.contiguous(inputs[1])
    (dw,), groups = outputs, params["groups"]
    if not dw.size:
        return
    packed = pack_convolution(x.shape, dw.shape, dy.shape, params)
    m, n = dw.shape[0] // groups, count(dw.shape[1:])
    if groups > 1 and m <= FEW and dw.shape[1] <= FEW:
        work.launch(work.kernel("conv.cu", "narrow_weight", dw.dtype), dw.size, 256, x, dy, dw, packed)
        return
    _tiled(work, WEIGHT, dy, x, None, dw, packed, (m, n, x.shape[0] * count(dy.shape[2:])), groups)


RULES = {
    ("conv.cu", "convolution"): Rule(convolution, takes(FORWARD)),
    ("conv.cu", "convolution_dx"): Rule(convolution_dx, takes(INPUT)),
    ("conv.cu", "convolution_dw"): Rule(convolution_dw, takes(WEIGHT)),
}
