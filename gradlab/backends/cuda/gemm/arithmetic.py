"""What the stand-in computes: a product and its epilogue on raw addresses, in NumPy."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.gemm.binding import DATA_TYPES, ComputeType, Epilogue

DTYPES = {number: dtype for dtype, number in DATA_TYPES.items()}
BIASED = {Epilogue.BIAS, Epilogue.RELU_BIAS, Epilogue.GELU_BIAS, Epilogue.RELU_AUX_BIAS, Epilogue.GELU_AUX_BIAS}
BIAS_GRADIENT = {Epilogue.DRELU_BGRAD, Epilogue.DGELU_BGRAD, Epilogue.BGRADA, Epilogue.BGRADB}
BITS = {Epilogue.RELU_AUX, Epilogue.RELU_AUX_BIAS, Epilogue.DRELU, Epilogue.DRELU_BGRAD}
INPUTS = {Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS, Epilogue.DGELU, Epilogue.DGELU_BGRAD}
GRADIENTS = {Epilogue.DRELU, Epilogue.DRELU_BGRAD, Epilogue.DGELU, Epilogue.DGELU_BGRAD}


class Layout(NamedTuple):
    """A batch of stored matrices, column by column (row by row where `by_rows`), strides in elements."""

    dtype: np.dtype[Any]
    rows: int
    columns: int
    ld: int
    batch: int
    stride: int
    by_rows: bool = False

    def extent(self) -> int:
        """Elements from the first to the last that belong to it."""
        lines, length = (self.rows, self.columns) if self.by_rows else (self.columns, self.rows)
        return (self.batch - 1) * self.stride + (lines - 1) * self.ld + length

    def view(self, address: int) -> np.ndarray[Any, Any]:
        """As an array (batch, rows, columns) over the memory."""
        size = self.dtype.itemsize
        row, column = (self.ld, 1) if self.by_rows else (1, self.ld)
        strides = (self.stride * size, row * size, column * size)
        return np.lib.stride_tricks.as_strided(memory(address, self.extent(), self.dtype), (self.batch, self.rows, self.columns), strides)


def memory(address: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Elements at an address."""
    raw: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype)


class Task(NamedTuple):
    """All that one product needs."""

    compute: ComputeType
    transpose_a: bool
    transpose_b: bool
    alpha: float
    beta: float
    a: Layout
    b: Layout
    c: Layout
    d: Layout
    at_a: int
    at_b: int
    at_c: int
    at_d: int
    epilogue: Epilogue
    bias: int
    bias_stride: int
    aux: int
    aux_ld: int
    aux_stride: int


def bias_count(task: Task) -> int:
    """Elements of the bias or its gradient for one matrix: one for each row of D; BGRADB one for each column."""
    return task.d.columns if task.epilogue is Epilogue.BGRADB else task.d.rows


def tensorfloat(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 rounded to 10 bits behind the binary point."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def _gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_slope(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)


def compute(task: Task) -> None:
    """D = epilogue(alpha op(A) op(B) + beta C)."""
    wide: Any = np.float64 if task.compute is ComputeType.F64 else np.float32
    a, b, d = (layout.view(at).astype(wide) for layout, at in ((task.a, task.at_a), (task.b, task.at_b), (task.d, task.at_d)))
    if task.compute is ComputeType.F32_FAST_TF32:
        a, b = tensorfloat(a), tensorfloat(b)
    if task.transpose_a:
        a = a.swapaxes(1, 2)
    if task.transpose_b:
        b = b.swapaxes(1, 2)
    with np.errstate(all="ignore"):
        d = np.matmul(a, b)
        if task.alpha != 1:
            d *= task.alpha
        if task.beta:
            d += task.beta * task.c.view(task.at_c).astype(wide)
        task.d.view(task.at_d)[...] = _finished(task, a, b, d)


def _vector(task: Task) -> np.ndarray[Any, Any]:
    """The bias, or where its gradient goes: (batch, count)."""
    number, size = bias_count(task), task.d.dtype.itemsize
    whole = memory(task.bias, (task.d.batch - 1) * task.bias_stride + number, task.d.dtype)
    return np.lib.stride_tricks.as_strided(whole, (task.d.batch, number), (task.bias_stride * size, size))


def _aux_inputs(task: Task) -> np.ndarray[Any, Any]:
    """What GELU is taken of: stored like D."""
    return Layout(task.d.dtype, task.d.rows, task.d.columns, task.aux_ld, task.d.batch, task.aux_stride).view(task.aux)


def _aux_bits(task: Task) -> np.ndarray[Any, Any]:
    """The bytes that hold the bits of x > 0: (batch, columns, bytes of a column)."""
    step, between = task.aux_ld // 8, task.aux_stride // 8
    whole = memory(task.aux, (task.d.batch - 1) * between + task.d.columns * step, np.dtype(np.uint8))
    return np.lib.stride_tricks.as_strided(whole, (task.d.batch, task.d.columns, step), (between, step, 1))


def _finished(task: Task, a: Any, b: Any, d: Any) -> Any:
    epilogue, rows = task.epilogue, task.d.rows
    if epilogue in BIASED:
        d = d + _vector(task)[:, :, None].astype(d.dtype)
    if epilogue in {Epilogue.RELU_AUX, Epilogue.RELU_AUX_BIAS}:
        bits = _aux_bits(task)
        packed = np.packbits(d.swapaxes(1, 2) > 0, axis=2, bitorder="little")
        bits[:, :, : packed.shape[2]] = packed
    if epilogue in {Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS}:
        _aux_inputs(task)[...] = d
    if epilogue in {Epilogue.RELU, Epilogue.RELU_BIAS, Epilogue.RELU_AUX, Epilogue.RELU_AUX_BIAS}:
        d = np.maximum(d, 0)
    if epilogue in {Epilogue.GELU, Epilogue.GELU_BIAS, Epilogue.GELU_AUX, Epilogue.GELU_AUX_BIAS}:
        d = _gelu(d)
    if epilogue in {Epilogue.DRELU, Epilogue.DRELU_BGRAD}:
        kept = np.unpackbits(np.ascontiguousarray(_aux_bits(task)), axis=2, bitorder="little")[:, :, :rows]
        d = d * kept.swapaxes(1, 2)
    if epilogue in {Epilogue.DGELU, Epilogue.DGELU_BGRAD}:
        d = d * _gelu_slope(_aux_inputs(task).astype(d.dtype))
    if epilogue in {Epilogue.DRELU_BGRAD, Epilogue.DGELU_BGRAD}:
        _vector(task)[...] = d.sum(2)
    if epilogue is Epilogue.BGRADA:
        _vector(task)[...] = a.sum(2)
    if epilogue is Epilogue.BGRADB:
        _vector(task)[...] = b.sum(1)
    return d
