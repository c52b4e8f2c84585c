"""Pooling rows: x (N, C, *sizes), with any number of spatial dimensions; kernel, stride, padding, dilation: one number for each.

Indices of maxima (int64) count within the flattened plane of one channel, as in PyTorch. `max_pool_backward` (scatter) and
`max_pool_gather` are each other's gradients, and so are `avg_pool` and `avg_pool_backward`.
"""

from __future__ import annotations

from typing import Any

from gradlab.dtype import FLOATING, INT64
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops import pool_cpu
from gradlab.spec import ShapeError, Spec, cached_sizes

Sizes = tuple[int, ...]
MAX_GEOMETRY = ("kernel", "stride", "padding", "dilation", "ceil_mode")
AVG_GEOMETRY = ("kernel", "stride", "padding", "ceil_mode", "include", "divisor")


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Number of windows along one dimension. With `ceil_mode` a last window may reach beyond the input, if it starts within it."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    found = -(span // -stride) + 1
    return found - 1 if (found - 1) * stride >= size + padding else found


@cached_sizes(1024)
def output_sizes(x: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool) -> Sizes:
    """The shape of a pooling of an input of shape `x`."""
    rank = len(kernel)
    if len(x) != rank + 2:
        raise ShapeError(f"the input has shape (N, C, *sizes) with {rank} sizes, not {x}")
    for name, values, least in (("kernel_size", kernel, 1), ("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if len(values) != rank or any(v < least for v in values):
            raise ShapeError(f"{name} must have {rank} numbers of at least {least}, got {values}")
    if any(p > k // 2 for p, k in zip(padding, kernel, strict=True)):
        raise ShapeError(f"padding must be at most half of kernel_size, got padding {padding} and kernel_size {kernel}")
    sizes = tuple(output_size(*numbers, ceil_mode) for numbers in zip(x[2:], kernel, stride, padding, dilation, strict=True))
    if 0 in x[1:] or any(s < 1 for s in sizes):
        raise ShapeError(f"an input of shape {x} is too small for kernel {kernel}, stride {stride}, padding {padding}, dilation {dilation}")
    return (*x[:2], *sizes)


def max_pool_rule(
    x: Spec, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Spec, Spec]:
    """Rule: the largest element of each window, and its index."""
    shape = output_sizes(x.shape, kernel, stride, padding, dilation, ceil_mode)
    return Spec(shape, x.dtype), Spec(shape, INT64)


def _scattered(g: Any, indices: Any, shape: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Any:
    overlap = any(s < d * (k - 1) + 1 for k, s, d in zip(kernel, stride, dilation, strict=True))
    return max_pool_backward(g, indices, shape=shape, overlap=overlap)


max_pool: Op = Op(
    "max_pool", max_pool_rule, params=MAX_GEOMETRY, outputs=("values", "indices"), exact=False, cpu=pool_cpu.max_pool_cpu,
    cuda=Kernel("pool.cu", "max_pool", "max_pool"), roundings=1,
    grad={"x": lambda g_values, indices, x_spec, kernel, stride, dilation:
          _scattered(g_values, indices, x_spec.shape, kernel, stride, dilation)},
)  # fmt: skip


def _matching(values: Spec, indices: Spec, shape: Sizes) -> None:
    if indices.dtype != INT64:
        raise TypeError(f"indices are int64, not {indices.dtype}")
    if values.shape != indices.shape:
        raise ShapeError(f"values of shape {values.shape} and indices of shape {indices.shape} do not match")
    if values.shape[:2] != shape[:2] or len(values.shape) != len(shape):
        raise ShapeError(f"values of shape {values.shape} do not belong to planes of shape {shape}")


def scatter_rule(dy: Spec, indices: Spec, *, shape: Sizes, overlap: bool) -> Spec:
    """Rule: the shape whose planes the indices point into."""
    _matching(dy, indices, shape)
    return Spec(shape, dy.dtype)


def unpool_rule(x: Spec, indices: Spec, *, shape: Sizes) -> Spec:
    """Rule: the shape whose planes the indices point into."""
    _matching(x, indices, shape)
    return Spec(shape, x.dtype)


def gather_rule(x: Spec, indices: Spec) -> Spec:
    """Rule: one element for each index."""
    _matching(indices, indices, x.shape)
    return Spec(indices.shape, x.dtype)


def _gathered(g: Any, indices: Any) -> Any:
    return max_pool_gather(g, indices)


max_pool_backward: Op = Op(
    "max_pool_backward", scatter_rule, params=("shape", "overlap"), cpu=pool_cpu.max_pool_backward_cpu,
    cuda=Kernel("pool.cu", "max_pool_backward", "plane_scatter"), grad={"dy": _gathered},
)  # fmt: skip
max_pool_gather: Op = Op(
    "max_pool_gather", gather_rule, exact=True, cpu=pool_cpu.max_pool_gather_cpu, cuda=Kernel("pool.cu", "max_pool_gather", "plane_gather"),
    grad={"x": lambda g, indices, x_spec: max_pool_backward(g, indices, shape=x_spec.shape, overlap=True)},
)  # fmt: skip
max_unpool: Op = Op(
    "max_unpool", unpool_rule, params=("shape",), exact=True, cpu=pool_cpu.max_unpool_cpu,
    cuda=Kernel("pool.cu", "max_unpool", "plane_scatter"),
    grad={"x": _gathered},
)  # fmt: skip


def adaptive_rule(x: Spec, *, size: Sizes) -> tuple[Spec, Spec]:
    """Rule: the output's spatial sizes are given."""
    if len(x.shape) != len(size) + 2 or 0 in x.shape[1:]:
        raise ShapeError(f"the input has shape (N, C, *sizes) with {len(size)} positive sizes, not {x.shape}")
    if any(s < 0 for s in size):
        raise ShapeError(f"output_size must not be negative, got {size}")
    shape = (*x.shape[:2], *size)
    return Spec(shape, x.dtype), Spec(shape, INT64)


adaptive_max_pool: Op = Op(
    "adaptive_max_pool", adaptive_rule, params=("size",), outputs=("values", "indices"), cpu=pool_cpu.adaptive_max_pool_cpu,
    cuda=Kernel("pool.cu", "adaptive_max_pool", "adaptive_max_pool"),
    grad={"x": lambda g_values, indices, x_spec: max_pool_backward(g_values, indices, shape=x_spec.shape, overlap=True)},
)  # fmt: skip


def avg_pool_rule(
    x: Spec, *, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> Spec:
    """Rule: the mean of each window; `include` counts padding as elements, `divisor` replaces their number."""
    if x.dtype not in FLOATING:
        raise TypeError(f"works on floating point, not on {x.dtype}")
    if divisor == 0:
        raise ShapeError("divisor_override must not be zero")
    return Spec(output_sizes(x.shape, kernel, stride, padding, (1,) * len(kernel), ceil_mode), x.dtype)


def avg_pool_backward_rule(
    dy: Spec, *, shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, include: bool, divisor: int | None
) -> Spec:
    """Rule: the shape of the input whose pooling has the shape of `dy`."""
    found = output_sizes(shape, kernel, stride, padding, (1,) * len(kernel), ceil_mode)
    if found != dy.shape:
        raise ShapeError(f"pooling an input of shape {shape} gives {found}, not {dy.shape}")
    return Spec(shape, dy.dtype)


avg_pool: Op = Op(
    "avg_pool", avg_pool_rule, params=AVG_GEOMETRY, cpu=pool_cpu.avg_pool_cpu, cuda=Kernel("pool.cu", "avg_pool", "avg_pool"),
    grad={"x": lambda g, x_spec, kernel, stride, padding, ceil_mode, include, divisor: avg_pool_backward(
        g, shape=x_spec.shape, kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode, include=include, divisor=divisor)},
)  # fmt: skip
avg_pool_backward: Op = Op(
    "avg_pool_backward", avg_pool_backward_rule, params=("shape", *AVG_GEOMETRY), cpu=pool_cpu.avg_pool_backward_cpu,
    cuda=Kernel("pool.cu", "avg_pool_backward", "avg_pool_backward"),
    grad={"dy": lambda g, kernel, stride, padding, ceil_mode, include, divisor: avg_pool(
        g, kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode, include=include, divisor=divisor)},
)  # fmt: skip
