"""Convolution and its gradients: which kernel, which tiles, how the sum of a weight's gradient is shared.

Every kernel of a forward pass or an input's gradient (which is a transposed convolution's forward pass) ends with the bias and the
activation, where there are any; a second output, where given, gets what the activation was taken of.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.cudnn_graphs import offered
from gradlab.backends.cuda.launch.attention import cell as cell_bytes, on_tensor_cores
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch.windows import geometry
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import broadcast_strides, element_strides
from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import FLOAT32, FLOAT64, FLOATING, HALF
from gradlab.spec import Spec, count

FORWARD, INPUT, WEIGHT = 0, 1, 2
PLANES = ("conv_tile.cu", "conv_tensor.cu")  # of one or two dimensions: by FMA; on tensor cores
RING = "conv_ring.cu"  # on tensor cores, with tiles that are copied in the background
RINGS = {32: (128, 3), 64: (64, 4), 128: (64, 3)}  # by rows of a tile: its columns, and how many tiles lie in the ring
ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
NARROW = 16  # rows of the result, up to which its tiles have no more
FEW = 4  # channels of a group (and outputs) that make its tiles nearly empty
MULTIPROCESSORS = 132  # of an H100
TARGET_BLOCKS = 1056  # eight for each of an H100's 132 multiprocessors
LARGEST = 2**31 - 1
MOST_PARTIAL = 1 << 26  # elements of partial sums


def pack_convolution(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], params: dict[str, Any]) -> bytes:
    """The bytes of `Convolution`."""
    windows = geometry(x[2:], y[2:], w[2:], params["stride"], params["padding"], params["dilation"])
    return windows + struct.pack("5i", x[0], x[1], w[0], params["groups"], ACTIVATIONS[params.get("activation")])


def index_type(size: int) -> str:
    """The C++ type that counts so many elements."""
    return "unsigned int" if size <= LARGEST else "long long"


def takes(at: int) -> Any:
    """The rule takes floating point of few enough elements. `at`: which of x, w, y are the two inputs' shapes."""

    def check(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        first, second, third = specs[0], specs[1], outs[0]
        assert first is not None and second is not None
        x, w, y = {FORWARD: (first, second, third), INPUT: (third, second, first), WEIGHT: (first, third, second)}[at]
        reach = (2 * p + s + d * k for p, s, d, k in zip(params["padding"], params["stride"], params["dilation"], w.shape[2:], strict=True))
        sizes = (x.shape[0] * count(x.shape[2:]), y.shape[0] * count(y.shape[2:]), count(w.shape), *reach)
        return third.dtype in FLOATING and len(x.shape) <= 5 and max(sizes) <= LARGEST // 4 and params["groups"] <= 65535

    return check


def _tiled(
    work: Work, mode: int, first: Any, second: Any, bias: Any, result: Any, sums: Any, packed: bytes, sizes: tuple[int, int, int],
    groups: int,
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
        work.launch_grid(function, (tiles, groups, 1), 256, first, second, bias, result, sums, packed, max(k, 1))
        return
    total = m * n * groups
    share = -(-k // parts)
    share = -(-share // 16) * 16
    parts = -(-k // share)
    partial = work.empty((parts, total), work.wide(dtype))
    function = work.kernel("conv.cu", "convolve", dtype, work.wide(dtype), mode, rows)
    work.launch_grid(function, (tiles, groups, parts), 256, first, second, bias, partial, None, packed, share)
    work.launch(work.kernel("conv.cu", "add_shares", dtype), -(-total // 256), 256, partial, result, parts, total)


class Operands(NamedTuple):
    """A product of `launch_planes`: the array that is gathered, the other one, the result, and their steps in elements."""

    first: Any
    first_steps: tuple[int, int, int]  # image, row, group
    gathered: Any
    channels: int  # of a group in the gathered array
    result: Any
    result_steps: tuple[int, int, int, int]  # image, row, position, group
    last: bool = False  # the gathered array's channels lie beside one another; a weight in `first` has its places before its channels


def fits_planes(
    work: Work, mode: int, gathered: Any, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], params: dict[str, Any]
) -> bool:  # fmt: skip
    """Whether the kernels of one or two dimensions take the problem: their offsets have 32 bits, places in space 16. What has few rows is
    for them where their tiles may have few."""
    rows = w[1] if mode == INPUT else w[0] // params["groups"]
    if len(x) > 4 or (rows <= NARROW and not (rows > FEW and in_a_ring(work, gathered, True, True))):
        return False
    reach = (n + 2 * p + d * k for n, p, d, k in zip(x[2:], params["padding"], params["dilation"], w[2:], strict=True))
    sizes = (count(x), count(y), count(w))
    return max(sizes) <= LARGEST // 2 and max((*reach, *params["stride"])) < 1 << 15


def in_a_ring(work: Work, gathered: Any, last: bool, aligned: bool) -> bool:
    """Whether tiles may be copied in the background: from compute capability 8.0, in pieces of at least 4 bytes. aligned: so is `first`."""
    pieces = gathered.dtype == FLOAT32 or (last and aligned and element_strides(gathered)[1] == 1)
    return bool(pieces) and on_tensor_cores(work, gathered.dtype) and work.driver.capability(work.driver.current_device()) >= (8, 0)


def two(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Numbers for height and width; of one dimension the width."""
    return (*(fill,) * (2 - len(values)), *values)


def launch_planes(
    work: Work, mode: int, sizes: tuple[int, int, int], x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], o: Operands, bias: Any,
    params: dict[str, Any], sums: Any = None,
) -> None:  # fmt: skip
    """One launch of `convolve_planes`, or for a long sum of `dw` one for its shares and one to add them. sizes: of a group's product."""
    m, n, k = sizes
    groups, dtype = params["groups"], o.result.dtype
    tensor = on_tensor_cores(work, dtype)
    cell = cell_bytes(dtype, tensor)
    # The rows of `first` are read 16 bytes of cells at a time where they all begin and end at such places.
    lanes = 16 // cell
    along = count(y[2:]) if mode == WEIGHT else k
    aligned = all(s % lanes == 0 for s in (*o.first_steps, along)) and work.pointer(o.first) % (lanes * dtype.itemsize) == 0
    ring = in_a_ring(work, o.gathered, o.last, aligned)
    tall = m > 64 and dtype != FLOAT64 and -(-m // 128) * -(-n // 64) * groups >= TARGET_BLOCKS // 8
    rows = 128 if tall else 32 if ring and m <= 32 else 64
    columns, stages = RINGS[rows] if ring else (64, 0)
    step = 64 // cell
    tiles = -(-m // rows) * -(-n // columns)
    parts = 1
    if mode == WEIGHT:
        parts = max(1, min(TARGET_BLOCKS // (tiles * groups), k // 256, MOST_PARTIAL // (m * n * groups), 1024))
    elif ring and 2 * tiles * groups <= MULTIPROCESSORS:  # most multiprocessors would have nothing to do
        parts = max(1, min(MULTIPROCESSORS // (tiles * groups), k // 128))
    share = -(-max(k, 1) // (parts * step)) * step
    parts = max(1, -(-k // share))
    gathered = o.gathered
    strides = broadcast_strides(gathered, gathered.shape)  # 0 of what has one element: its own may be larger than 32 bits hold
    space = two(strides[2:], 0)
    stride = two(params["stride"], 1)
    packed = struct.pack(
        "5i2i2i2i2i2i2i2I13i",
        groups, m, n, k, aligned, *two(gathered.shape[2:], 1), *two(w[2:], 1), *two((x if mode == INPUT else y)[2:], 1), *stride,
        *two(params["padding"], 0), *two(params["dilation"], 1), *(0 if s == 1 else -(-(1 << 32) // s) for s in stride),
        strides[0], strides[1], *space, *o.result_steps, *o.first_steps, o.channels * strides[1],
        ACTIVATIONS[params.get("activation") if parts == 1 else None],
    )  # fmt: skip

    def kernel(out: Any) -> Any:
        if ring:
            return work.kernel(RING, "convolve_ahead", dtype, out, mode, rows, columns, stages, o.last)
        return work.kernel(PLANES[tensor], "convolve_planes", dtype, out, mode, rows, o.last)

    threads = rows * columns // 32
    if parts == 1:
        work.launch_grid(kernel(dtype), (tiles, groups, 1), threads, o.first, gathered, bias, o.result, sums, packed, np.int32(share), 0)
        return
    total, wide = o.result.size, work.wide(dtype)
    partial = work.empty((parts, total), wide)
    work.launch_grid(kernel(wide), (tiles, groups, parts), threads, o.first, gathered, None, partial, None, packed, np.int32(share), total)
    blocks = -(-total // 256)
    if mode == WEIGHT:
        work.launch(work.kernel("conv.cu", "add_shares", dtype), blocks, 256, partial, o.result, parts, total)
        return
    ending = (parts, total, m * groups, o.result_steps[1], np.int32(ACTIVATIONS[params.get("activation")]))
    work.launch(work.kernel("conv.cu", "finish_shares", dtype), blocks, 256, partial, bias, o.result, sums, *ending)


def convolution(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """The forward pass. `activation`, where the parameters have it, names what is done with the sum and the bias."""
    x, w = inputs[0], work.contiguous(inputs[1])
    bias = None if inputs[2] is None else work.contiguous(inputs[2])
    (y, *rest), groups = outputs, params["groups"]
    sums = rest[0] if rest else None
    if not y.size:
        return
    m, positions, k = w.shape[0] // groups, count(y.shape[2:]), count(w.shape[1:])
    sizes = (m, x.shape[0] * positions, k)
    if fits_planes(work, FORWARD, x, x.shape, w.shape, y.shape, params):
        steps, gathered = (w.shape[0] * positions, positions, 1, m * positions), small_strides(work, x)
        last = channels_last(work, gathered, w.shape[1])
        if last:  # a small array; in channels-last memory itself it is no copy
            w = work.contiguous(inputs[1].transpose(0, *range(2, len(w.shape)), 1)).reshape(w.shape)
        operands = Operands(w, (0, k, m * k), gathered, w.shape[1], y, steps, last)
        launch_planes(work, FORWARD, sizes, x.shape, w.shape, y.shape, operands, bias, params, sums)
        return
    x = work.contiguous(x)
    packed = pack_convolution(x.shape, w.shape, y.shape, params)
    if groups > 1 and m <= FEW:
        work.each(work.kernel("conv.cu", "narrow_forward", y.dtype, index_type(y.size)), y.size, x, w, bias, y, sums, packed)
    else:
        _tiled(work, FORWARD, w, x, bias, y, sums, packed, sizes, groups)


def convolution_dx(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """The input's gradient, or a transposed convolution, which may have a bias and an activation."""
    dy, w = inputs[0], work.contiguous(inputs[1])
    bias = None if len(inputs) == 2 or inputs[2] is None else work.contiguous(inputs[2])
    (dx, *rest), groups = outputs, params["groups"]
    sums = rest[0] if rest else None
    if not dx.size:
        return
    m, outs, positions, places = w.shape[1], w.shape[0] // groups, count(dx.shape[2:]), count(w.shape[2:])
    sizes = (m, dx.shape[0] * positions, outs * places)
    if fits_planes(work, INPUT, dy, dx.shape, w.shape, dy.shape, params):
        gathered = small_strides(work, dy)
        last = channels_last(work, gathered, outs)
        order = (0, 2, 3, 1) if last else (0, 2, 1, 3)
        turned = work.contiguous(w.reshape((groups, outs, m, places)).transpose(order))  # a small array, read many times
        steps = (dx.shape[1] * positions, positions, 1, m * positions)
        operands = Operands(turned, (0, sizes[2], m * sizes[2]), gathered, outs, dx, steps, last)
        launch_planes(work, INPUT, sizes, dx.shape, w.shape, dy.shape, operands, bias, params, sums)
        return
    dy = work.contiguous(dy)
    packed = pack_convolution(dx.shape, w.shape, dy.shape, params)
    if groups > 1 and m <= FEW:
        work.each(work.kernel("conv.cu", "narrow_input", dx.dtype, index_type(dx.size)), dx.size, dy, w, bias, dx, sums, packed)
        return
    _tiled(work, INPUT, w, dy, bias, dx, sums, packed, sizes, groups)


def convolution_dw(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """The weight's gradient."""
    x, dy = inputs[0], work.contiguous(inputs[1])
    (dw,), groups = outputs, params["groups"]
    if not dw.size:
        return
    m, n, positions = dw.shape[0] // groups, count(dw.shape[1:]), count(dy.shape[2:])
    sizes = (m, n, x.shape[0] * positions)
    if sizes[2] and fits_planes(work, WEIGHT, x, x.shape, dw.shape, dy.shape, params):
        steps, gathered = (dy.shape[1] * positions, positions, m * positions), small_strides(work, x)
        operands = Operands(dy, steps, gathered, dw.shape[1], dw, (0, n, 1, m * n), channels_last(work, gathered, dw.shape[1]))
        launch_planes(work, WEIGHT, sizes, x.shape, dw.shape, dy.shape, operands, None, params)
        return
    x = work.contiguous(x)
    packed = pack_convolution(x.shape, dw.shape, dy.shape, params)
    if groups > 1 and m <= FEW and dw.shape[1] <= FEW:
        work.launch(work.kernel("conv.cu", "narrow_weight", dw.dtype), dw.size, 256, x, dy, dw, packed)
        return
    _tiled(work, WEIGHT, dy, x, None, dw, None, packed, sizes, groups)


def channels_last(work: Work, array: Any, channels: int) -> bool:
    """Whether the channels of a group lie beside one another, in pieces that are read at once: 16 bytes of cells."""
    lanes = 16 // cell_bytes(array.dtype, on_tensor_cores(work, array.dtype))
    image, channel, *space = element_strides(array)
    aligned = work.pointer(array) % (lanes * array.dtype.itemsize) == 0
    return channel == 1 and aligned and all(s % lanes == 0 for s in (channels, image, *space))


def small_strides(work: Work, array: Any) -> Any:
    """The array in whatever layout, or a copy where its offsets do not fit into 31 bits or are negative."""
    strides = element_strides(array)
    reach = sum(s * (n - 1) for s, n in zip(strides, array.shape, strict=True))
    return array if min(strides, default=0) >= 0 and reach <= LARGEST // 2 else work.contiguous(array)


def instances(tensor: bool) -> list[tuple[Any, ...]]:
    """The template arguments of `convolve_planes` that there may be."""
    found: list[tuple[Any, ...]] = []
    for dtype in sorted(FLOATING, key=str):
        if tensor and dtype not in HALF:  # float32 goes through a ring on all devices that have tensor cores for it
            continue
        name = STORAGE[dtype.name]
        wide = "float" if dtype in HALF else name
        for rows in (64,) if dtype == FLOAT64 else (64, 128):
            outs = {FORWARD: (name,), INPUT: (name,), WEIGHT: dict.fromkeys((name, wide))}
            found += [(name, out, mode, rows, last) for mode, kinds in outs.items() for out in kinds for last in ("false", "true")]
    return found


def ring_instances() -> list[tuple[Any, ...]]:
    """The template arguments of `convolve_ahead` that there may be: large tiles are not for sums in shares, half types come in pieces."""
    found: list[tuple[Any, ...]] = []
    for dtype in sorted((*HALF, FLOAT32), key=str):
        name = STORAGE[dtype.name]
        for rows, (columns, stages) in RINGS.items():
            for mode in (FORWARD, INPUT, WEIGHT):
                outs = dict.fromkeys((name, "float") if rows < 128 or mode == WEIGHT else (name,))
                lasts = ("true",) if dtype in HALF else ("false", "true")
                found += [(name, out, mode, rows, columns, stages, last) for out in outs for last in lasts]
    return found


RULES = {
    ("conv.cu", "convolution"): Rule(offered("fprop", convolution), takes(FORWARD)),
    ("conv.cu", "convolution_act"): Rule(offered("fprop", convolution), takes(FORWARD)),
    ("conv.cu", "convolution_act_sums"): Rule(convolution, takes(FORWARD)),  # cuDNN is not asked for two results
    ("conv.cu", "convolution_dx"): Rule(offered("dgrad", convolution_dx), takes(INPUT)),
    ("conv.cu", "convolution_transpose"): Rule(offered("dgrad", convolution_dx), takes(INPUT)),
    ("conv.cu", "convolution_dw"): Rule(offered("wgrad", convolution_dw), takes(WEIGHT)),
}
