"""Attention: which kernels, which tiles; what lies in shared memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.cudnn_graphs import offered
from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import broadcast_strides, element_strides
from gradlab.backends.cuda.types import STORAGE
from gradlab.dtype import BOOL, FLOAT32, FLOAT64, FLOATING, HALF, float16
from gradlab.spec import Spec, count

SIZES = (16, 32, 64, 96, 128)  # of heads: others are padded to the next
MOST = 2**31 - 1
ENOUGH_BLOCKS = 132  # of 128 queries: one for each of an H100's multiprocessors
FILES = ("attention.cu", "attention_tensor.cu")  # by FMA; on tensor cores


class Tile(NamedTuple):
    """How a kernel divides its work: warps in a block (16 rows each), rows of the other side at a time."""

    warps: int
    others: int


def cell(dtype: np.dtype[Any], tensor: bool) -> int:
    """Bytes of a number in shared memory."""
    return dtype.itemsize if tensor or dtype == FLOAT64 else 4


class ForwardTile(NamedTuple):
    """How the forward kernel divides its work: rows of 16 queries for each of 4 warps, keys at a time, how many of those lie in a ring."""

    rows: int
    others: int
    stages: int


def forward_tile(dtype: np.dtype[Any], size: int, tensor: bool, ring: bool = False, wide: bool = False) -> ForwardTile:
    """Of the forward kernel; what it takes of shared memory fits into the 64 KiB of compute capability 7.5 (tensor cores: 99 KiB, 8.6).

    ring: keys and values come in the background while others are multiplied. wide: 128 queries in a block; what is read of keys and values
    serves twice as many products.
    """
    row = size * cell(dtype, tensor)
    if not tensor:
        return ForwardTile(1, 32 if row <= 384 else 16, 1)
    if ring and dtype in HALF:
        return ForwardTile(2, 32, 3) if wide else ForwardTile(1, 64, 2)
    return ForwardTile(1, 64 if row <= 256 else 32, 1)


def gradient_tile(dtype: np.dtype[Any], size: int, tensor: bool) -> Tile:
    """Of the two backward kernels."""
    if dtype == FLOAT64:
        return Tile(4, 16) if size <= 32 else Tile(2, 8)
    row = size * cell(dtype, tensor)
    if tensor and dtype in HALF:
        return Tile(4, 64 if size <= 64 else 32)
    return Tile(4 if row <= 256 else 2, 32 if row <= 384 else 16 if tensor else 8)  # by FMA the largest heads leave few registers


def forward_bytes(dtype: np.dtype[Any], size: int, tensor: bool, tile: ForwardTile) -> int:
    """Bytes of dynamic shared memory of the forward kernel."""
    per = cell(dtype, tensor)
    lanes = 16 // per
    room = 0 if tensor else 64 * (tile.others + lanes) * per
    return (64 * tile.rows + 2 * tile.stages * tile.others) * (size + lanes) * per + room


def gradient_bytes(dtype: np.dtype[Any], size: int, tensor: bool, tile: Tile) -> int:
    """Bytes of dynamic shared memory of a backward kernel."""
    per = cell(dtype, tensor)
    width, room = size + 16 // per, 0
    if not tensor:
        room = tile.warps * 16 * (tile.others + 16 // per) * per
    stages = 2 if tensor and dtype in HALF else 1
    return 2 * tile.warps * 16 * width * per + stages * 2 * tile.others * (width * per + max(per, 4)) + room


def padded(*sizes: int) -> int:
    """The head size of the kernel for heads of these sizes."""
    return next(s for s in SIZES if s >= max(sizes))


def instances(name: str, tensor: bool) -> list[tuple[Any, ...]]:
    """The template arguments of the kernels `attend` or `attention_gradient` that there may be."""
    found: list[tuple[Any, ...]] = []
    for dtype in sorted(FLOATING, key=str):
        if tensor and dtype == FLOAT64:
            continue
        for size in SIZES if dtype != FLOAT64 else SIZES[:3]:
            if name == "attend":
                choices = dict.fromkeys(forward_tile(dtype, size, tensor, ring, wide) for ring in (False, True) for wide in (False, True))
                found += [(STORAGE[dtype.name], size, *tile) for tile in choices]
            else:
                found += [(STORAGE[dtype.name], size, *gradient_tile(dtype, size, tensor), keys) for keys in ("false", "true")]
    return found


def takes(first: int) -> Any:
    """The rule takes heads of up to 128 numbers (64 in float64) and a grid that counts the blocks. `first`: which input is the query."""

    def check(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
        q, k, v = specs[first : first + 3]
        assert q is not None and k is not None and v is not None
        length = max(q.shape[2], k.shape[2])
        most = SIZES[2] if q.dtype == FLOAT64 else SIZES[-1]
        return max(q.shape[3], v.shape[3]) <= most and length <= MOST - 128 and count(q.shape[:2]) * (length // 16 + 1) <= MOST

    return check


def on_tensor_cores(work: Work, dtype: np.dtype[Any]) -> bool:
    """Whether products are left to tensor cores: half types always, float32 as `set_float32_matmul_precision` says. Those of compute
    capability 7.5 take float16 only."""
    if dtype == FLOAT64 or (dtype == FLOAT32 and SETTINGS.precision == "highest"):
        return False
    return work.driver.capability(work.driver.current_device()) >= ((7, 5) if dtype == float16.dtype else (8, 0))


def _has_room(work: Work, size: int) -> bool:
    """Whether the tiles for tensor cores fit: 64 KiB of shared memory, which compute capability 7.5 has, are enough for heads of 96."""
    return size <= SIZES[3] or work.driver.capability(work.driver.current_device()) >= (8, 0)


def _rows(work: Work, array: Any) -> Any:
    """The array, or a copy, whose last dimension is contiguous."""
    return array if array.shape[3] <= 1 or element_strides(array)[3] == 1 else work.contiguous(array)


def _is_aligned(work: Work, array: Any) -> bool:
    """Whether every row begins at a multiple of 16 bytes and ends at one."""
    numbers = (work.pointer(array), *array.strides[:3], array.shape[3] * array.dtype.itemsize)
    return all(n % 16 == 0 for n in numbers)


def _pairs(work: Work, array: Any) -> bool:
    """Whether two neighbours of a row may be written at once."""
    numbers = (work.pointer(array) // array.dtype.itemsize, *element_strides(array)[:3], array.shape[3])
    return all(n % 2 == 0 for n in numbers)


def _packed(work: Work, inputs: Sequence[Any], results: Sequence[Any], mask: Any, params: dict[str, Any]) -> bytes:
    """The bytes of `Attention`. inputs: q, k, v, g; results: y, dq, dk, dv, of which the first may be read."""
    strides: list[int] = []
    aligned = 0
    for i, array in enumerate((*inputs, *results)):
        strides += (0, 0, 0) if array is None else element_strides(array)[:3]
        if array is not None and array.size:
            aligned |= (_is_aligned(work, array) << i) if i < 4 else (_pairs(work, array) << (12 + i))
    q, k, v, _ = inputs
    shape = (*q.shape[:3], k.shape[2])
    strides += (0, 0, 0, 0) if mask is None else broadcast_strides(mask, shape)
    kind = 0 if mask is None else 2 if mask.dtype == BOOL else 1
    numbers = (q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], kind, bool(params["causal"]), aligned)
    return struct.pack("28qd8i", *strides, params["scale"], *numbers)


def attention(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    q, k, v = (_rows(work, x) for x in inputs[:3])
    mask, (y, lse) = inputs[3], outputs
    if not lse.size:
        return
    dtype, size = q.dtype, padded(q.shape[3], v.shape[3])
    tensor = on_tensor_cores(work, dtype) and _has_room(work, size)
    planes = q.shape[0] * q.shape[1]
    ring = work.driver.capability(work.driver.current_device()) >= (8, 0)
    tile = forward_tile(dtype, size, tensor, ring, -(-q.shape[2] // 128) * planes >= ENOUGH_BLOCKS)
    function = work.kernel(FILES[tensor], "attend", dtype, size, *tile)
    blocks = -(-q.shape[2] // (64 * tile.rows)) * planes
    packed = _packed(work, (q, k, v, None), (y, None, None, None), mask, params)
    work.launch(function, blocks, 128, q, k, v, mask, y, lse, packed, shared=forward_bytes(dtype, size, tensor, tile))


def attention_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    g, q, k, v = (_rows(work, x) for x in (inputs[0], *inputs[2:5]))
    g_lse = None if inputs[1] is None else work.contiguous(inputs[1])
    mask, y, lse = inputs[5], _rows(work, inputs[6]), work.contiguous(inputs[7])
    dq, dk, dv = outputs
    dtype, size = q.dtype, padded(q.shape[3], v.shape[3])
    tensor = on_tensor_cores(work, dtype) and _has_room(work, size)
    packed = _packed(work, (q, k, v, g), (y, dq, dk, dv), mask, params)
    delta, sure = work.empty(lse.shape, lse.dtype), work.empty(lse.shape, lse.dtype)
    if lse.size:
        work.launch(work.kernel("attention.cu", "attention_delta", dtype), -(-lse.size // 8), 256, g, y, g_lse, delta, packed, lse.size)
    tile = gradient_tile(dtype, size, tensor)
    shared = gradient_bytes(dtype, size, tensor, tile)
    for keys, first, second in ((False, dq, None), (True, dk, dv)):  # which reads what that one found of sure weights
        if first.size or (second is not None and second.size):
            function = work.kernel(FILES[tensor], "attention_gradient", dtype, size, *tile, keys)
            blocks = -(-first.shape[2] // (16 * tile.warps)) * q.shape[0] * q.shape[1]
            work.launch(function, blocks, 32 * tile.warps, q, k, v, g, mask, lse, delta, g_lse, sure, first, second, packed, shared=shared)


RULES = {
    ("attention.cu", "attention"): Rule(offered("sdpa", attention), takes(0)),
    ("attention.cu", "attention_backward"): Rule(offered("sdpa_backward", attention_backward), takes(2)),
}
