"""Rows of padding, resampling along one dimension (interpolation, adaptive averages, reflecting borders), and im2col."""

from __future__ import annotations

from gradlab.dtype import FLOATING
from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops import vision_cpu
from gradlab.ops.conv import check_geometry, output_size
from gradlab.spec import ShapeError, Spec, count
from gradlab.taps import Table

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]
WINDOWS = ("kernel", "stride", "padding", "dilation", "outputs")


def pad_rule(x: Spec, *, pads: Pads, value: float) -> Spec:
    """Rule: `pads` gives (before, after) for each dimension; negative numbers crop."""
    sizes = tuple(s + low + high for s, (low, high) in zip(x.shape, pads, strict=True))
    if any(s < 0 for s in sizes):
        raise ShapeError(f"padding {pads} makes of shape {x.shape} the negative sizes {sizes}")
    return Spec(sizes, x.dtype)


pad: Op = Op(
    "pad", pad_rule, params=("pads", "value"), exact=True, roundings=0, cpu=vision_cpu.pad_cpu, cuda=Kernel("vision.cu", "pad", "pad"),
    grad={"x": lambda g, pads: pad(g, pads=tuple((-low, -high) for low, high in pads), value=0)},
)  # fmt: skip


def _weighted(x: Spec, table: Table) -> None:
    if table[0] in ("area", "linear", "cubic", "linear-antialias", "cubic-antialias") and x.dtype not in FLOATING:
        raise TypeError(f"weighted means need floating point, not {x.dtype}")


def resample_rule(x: Spec, *, dim: int, table: Table) -> Spec:
    """Rule: dimension `dim` of the table's input size gets its output size."""
    _, inputs, outputs, *_ = table
    if x.shape[dim] != inputs or outputs < 1 or inputs < 1:
        raise ShapeError(f"dimension {dim} of shape {x.shape} is not resampled from {inputs} to {outputs} elements")
    _weighted(x, table)
    return Spec((*x.shape[:dim], outputs, *x.shape[dim + 1 :]), x.dtype)


def resample_backward_rule(dy: Spec, *, dim: int, table: Table) -> Spec:
    """Rule: the shape before resampling."""
    _, inputs, outputs, *_ = table
    if dy.shape[dim] != outputs:
        raise ShapeError(f"dimension {dim} of shape {dy.shape} is not the result of resampling to {outputs} elements")
    return Spec((*dy.shape[:dim], inputs, *dy.shape[dim + 1 :]), dy.dtype)


resample: Op = Op(
    "resample", resample_rule, params=("dim", "table"), cpu=vision_cpu.resample_cpu, cuda=Kernel("resample.cu", "resample", "resample"),
    autocast="float32",
    grad={"x": lambda g, dim, table: resample_backward(g, dim=dim, table=table)},
)  # fmt: skip
resample_backward: Op = Op(
    "resample_backward", resample_backward_rule, params=("dim", "table"), cpu=vision_cpu.resample_backward_cpu,
    cuda=Kernel("resample.cu", "resample_backward", "resample"), grad={"dy": lambda g, dim, table: resample(g, dim=dim, table=table)},
)  # fmt: skip


def window_counts(sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    """How many windows lie along each dimension. Raises ShapeError where there are none."""
    check_geometry(len(sizes), stride, padding, dilation, 1)
    found = tuple(map(output_size, sizes, kernel, stride, padding, dilation))
    if any(k < 1 for k in kernel) or any(n < 1 for n in found):
        raise ShapeError(
            f"windows of kernel_size {kernel}, stride {stride}, padding {padding}, dilation {dilation} do not fit into sizes {sizes}"
        )
    return found


def im2col_rule(x: Spec, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes) -> Spec:
    """Rule: (N, C, *sizes) to (N, C · kernel, windows)."""
    if window_counts(x.shape[2:], kernel, stride, padding, dilation) != outputs:
        raise ShapeError(f"an input of shape {x.shape} does not have {outputs} windows")
    return Spec((x.shape[0], x.shape[1] * count(kernel), count(outputs)), x.dtype)


def col2im_rule(
    x: Spec, *, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Sizes
) -> Spec:
    """Rule: (N, C · kernel, windows) to (N, C, *size)."""
    if window_counts(size, kernel, stride, padding, dilation) != outputs or x.shape[2] != count(outputs):
        raise ShapeError(
            f"output_size {size} with kernel_size {kernel}, stride {stride}, padding {padding}, dilation {dilation} has "
            f"{count(outputs)} windows, but the input of shape {x.shape} has {x.shape[2]} columns"
        )
    if x.shape[1] % count(kernel):
        raise ShapeError(f"dimension 1 of shape {x.shape} is not a multiple of {count(kernel)} (kernel_size {kernel})")
    return Spec((x.shape[0], x.shape[1] // count(kernel), *size), x.dtype)


im2col: Op = Op(
    "im2col", im2col_rule, params=WINDOWS, cpu=vision_cpu.im2col_cpu, exact=True, cuda=Kernel("vision.cu", "im2col", "im2col"),
    grad={"x": lambda g, x_spec, kernel, stride, padding, dilation, outputs: col2im(
        g, size=x_spec.shape[2:], kernel=kernel, stride=stride, padding=padding, dilation=dilation, outputs=outputs)},
)  # fmt: skip
col2im: Op = Op(
    "col2im", col2im_rule, params=("size", *WINDOWS), cpu=vision_cpu.col2im_cpu, cuda=Kernel("vision.cu", "col2im", "col2im"),
    grad={"x": lambda g, kernel, stride, padding, dilation, outputs: im2col(
        g, kernel=kernel, stride=stride, padding=padding, dilation=dilation, outputs=outputs)},
)  # fmt: skip
