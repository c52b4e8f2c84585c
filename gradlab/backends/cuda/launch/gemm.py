"""Matrix products: `matmul` and `linear` by cuBLASLt (`backends/cuda/gemm`), and a kernel of our own, correct everywhere, for what cuBLASLt
does not do: integers, sums over two levels, a machine without the library."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.backends.cuda.gemm.rows import plan_linear, plan_linear_gelu, plan_matmul
from gradlab.backends.cuda.launch.activation import activate
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import broadcast_strides, element_strides
from gradlab.dtype import FLOAT64, FLOATING
from gradlab.spec import Spec, count, order_of_ends

MAX_BATCH_RANK = 4


class Matrix(NamedTuple):
    """An operand: the array that holds it, its strides in elements along m (or n) and the two levels of k, and those of the batch."""

    array: Any
    outer: int
    k1: int
    k2: int
    batch: tuple[int, ...] = ()


def product(
    work: Work, a: Matrix, b: Matrix, c: Any, c_strides: tuple[int, int], sizes: tuple[int, int, int], k2: int | None = None,
    batch: tuple[int, ...] = (), c_batch: tuple[int, ...] = (), bias: Any = None,
) -> None:  # fmt: skip
    """c[batch, m, n] = sum over k of a[batch, m, k] · b[batch, k, n] (+ bias[n]). Batch dimensions outermost first."""
    m, n, k = sizes
    number = count(batch)
    if not (m and n and number):
        return

    def four(values: Sequence[int], fill: int) -> list[int]:
        return [*reversed(values), *[fill] * (MAX_BATCH_RANK - len(values))]

    shape = struct.pack(
        "28q", m, n, k, k2 or max(k, 1), a.outer, a.k1, a.k2, b.outer, b.k1, b.k2, *c_strides,
        *four(batch, 1), *four(a.batch or (0,) * len(batch), 0), *four(b.batch or (0,) * len(batch), 0), *four(c_batch, 0),
    )  # fmt: skip
    stride = 0 if bias is None or bias.size == 1 else element_strides(bias)[-1]
    tiles = -(-m // 64) * -(-n // 64)
    function = work.kernel("gemm.cu", "gemm", a.array.dtype, c.dtype)
    work.launch(function, tiles, 256, a.array, b.array, bias, c, stride, shape, rows=number)


def matmul(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (a, b), (c,) = inputs, outputs
    batch = c.shape[:-2]
    if len(batch) > MAX_BATCH_RANK:
        a, b = work.contiguous(a), work.contiguous(b)
    a_strides, b_strides = element_strides(a), element_strides(b)
    m, k, n = c.shape[-2], a.shape[-1], c.shape[-1]
    a_batch = broadcast_strides(a, (*batch, *a.shape[-2:]))[:-2]
    b_batch = broadcast_strides(b, (*batch, *b.shape[-2:]))[:-2]
    product(
        work,
        Matrix(a, a_strides[-2], 0, a_strides[-1], a_batch),
        Matrix(b, b_strides[-1], 0, b_strides[-2], b_batch),
        c, (n, 1), (m, n, k),
        batch=batch, c_batch=element_strides(c)[:-2],
    )  # fmt: skip


def linear(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, w, bias), (y,) = inputs, outputs
    if len(x.shape) > 2:
        x = work.contiguous(x)
        x_rows = x.shape[-1]
    else:
        x_rows = element_strides(x)[0] if len(x.shape) == 2 else 0
    w_strides = element_strides(w)
    m, n, k = count(y.shape[:-1]), y.shape[-1], x.shape[-1]
    product(work, Matrix(x, x_rows, 0, element_strides(x)[-1]), Matrix(w, w_strides[0], 0, w_strides[1]), y, (n, 1), (m, n, k), bias=bias)


def grouped_gemm(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """Groups of columns are groups of rows of the transposed product."""
    (a, b, ends), (c,) = inputs, outputs
    between = len(c.shape) == 3
    x = (len(a.shape), a, *element_strides(a)[-2:])
    y = (len(b.shape), b, *reversed(element_strides(b)[-2:]))
    of_c = [*element_strides(c)[-2:]]
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if x[0] > y[0]:
        x, y, m, n = y, x, n, m
        of_c.reverse()
    number = ends.shape[0]
    b_group, c_group = (0, element_strides(c)[0]) if between else (element_strides(y[1])[0], 0)
    shape = struct.pack("13q", m, n, k, number, *x[2:], 0, *y[2:], b_group, *of_c, c_group)
    if c.size:
        size = k if between else m
        site = work.faults.values(order_of_ends(size))
        tiles = -(-m // 64) + (0 if between else number + 1)
        work.launch(
            work.kernel("gemm.cu", "grouped_gemm", c.dtype, between), tiles * -(-n // 64), 256, x[1], y[1], work.contiguous(ends), c,
            work.faults.record, site, shape, rows=number if between else 1,
        )  # fmt: skip
        work.faults.check()


def takes(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point (integers too, for matmul) with few batch dimensions and nothing empty but the result."""
    return (
        outs[0].dtype.kind != "b" and len(outs[0].shape) <= MAX_BATCH_RANK + 2 and all(s is not None or i == 2 for i, s in enumerate(specs))
    )


def takes_floating(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """Floating point."""
    return outs[0].dtype in FLOATING


def prepare_matmul(work: Work, arrays: list[Any], outs: Sequence[Spec]) -> Any:
    """By cuBLASLt where it takes the dtype."""
    return plan_matmul(work, arrays, outs[0], matmul) if outs[0].dtype in FLOATING else None


def prepare_linear(work: Work, arrays: list[Any], outs: Sequence[Spec]) -> Any:
    """By cuBLASLt."""
    return plan_linear(work, arrays, outs[0], linear)


def sums(work: Work, inputs: list[Any], z: Any) -> None:
    """The layer without its activation."""
    plan = plan_linear(work, inputs, Spec(z.shape, z.dtype), linear)
    if plan is None:
        linear(work, inputs, [z], {})
    else:
        plan(inputs, [z])


def linear_relu(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """Two launches, where the library has no epilogue for the problem."""
    z = work.empty(outputs[0].shape, outputs[0].dtype)
    sums(work, inputs, z)
    activate(work, "relu", z, outputs[0])


def linear_gelu_tanh(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    """The same; both results are kept anyway."""
    y, z = outputs
    sums(work, inputs, z)
    activate(work, "gelu_tanh", z, y)


def prepare_linear_relu(work: Work, arrays: list[Any], outs: Sequence[Spec]) -> Any:
    """By cuBLASLt's epilogue; float64 has none."""
    return None if outs[0].dtype == FLOAT64 else plan_linear(work, arrays, outs[0], linear_relu, relu=True)


def prepare_linear_gelu(work: Work, arrays: list[Any], outs: Sequence[Spec]) -> Any:
    """By cuBLASLt's epilogue; float64 has none."""
    return None if outs[0].dtype == FLOAT64 else plan_linear_gelu(work, arrays, outs[0], linear_gelu_tanh)


BY_ROW = {
    **dict.fromkeys(("matmul", "wide_matmul"), Rule(matmul, takes, prepare_matmul)),
    "linear": Rule(linear, takes_floating, prepare_linear),
    "linear_relu": Rule(linear_relu, takes_floating, prepare_linear_relu),
    "linear_gelu_tanh": Rule(linear_gelu_tanh, takes_floating, prepare_linear_gelu),
}
RULES = {("gemm.cu", "grouped_gemm"): Rule(grouped_gemm, repeats=True)}
