"""Convolution: three rows that are bilinear and each other's gradients, so that every order of derivative is covered.

`convolution` is the forward, `convolution_dx` its gradient for the input (and the forward of a transposed convolution), `convolution_dw`
its gradient for the weight; `convolution_transpose` is `convolution_dx` with a bias, which a GPU's kernel adds. Inputs have shape
(N, C, *sizes), weights (O, C/groups, *kernel), outputs (N, O, *outputs), with one, two or three spatial dimensions (any number works).
stride, padding and dilation are tuples with one number for each spatial dimension; padding is the number of zeros on both sides.
"""

from __future__ import annotations

from typing import Any

from gradlab.kernel import Kernel
from gradlab.op import Op
from gradlab.ops.conv_cpu import convolution_cpu, convolution_dw_cpu, convolution_dx_cpu
from gradlab.spec import ShapeError, Spec, cached_sizes

Sizes = tuple[int, ...]
GEOMETRY = ("stride", "padding", "dilation", "groups")


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Number of windows along one dimension."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def check_geometry(rank: int, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Raises ShapeError for numbers that no convolution has."""
    for name, values, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if len(values) != rank or any(v < least for v in values):
            raise ShapeError(f"{name} must have {rank} numbers of at least {least}, got {values}")
    if max((*padding, *dilation), default=0) > 1 << 24:  # kernels make room for what lies between
        raise ShapeError(f"padding and dilation are at most {1 << 24}, got {padding} and {dilation}")
    if groups < 1:
        raise ShapeError(f"groups must be at least 1, got {groups}")


@cached_sizes(1024)
def output_shape(x: Sizes, w: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Sizes:
    """The shape of a convolution of an input of shape `x` with a weight of shape `w`."""
    if len(x) != len(w) or len(x) < 3:
        raise ShapeError(f"the input (N, C, *sizes) and the weight (O, C/groups, *kernel) have the same rank, not shapes {x} and {w}")
    check_geometry(len(x) - 2, stride, padding, dilation, groups)
    if w[0] % groups or w[0] == 0:
        raise ShapeError(f"the number of output channels must be a positive multiple of groups={groups}, but the weight has shape {w}")
    if x[1] != w[1] * groups:
        raise ShapeError(
            f"the weight of shape {w} with groups={groups} expects an input of {w[1] * groups} channels, "
            f"but the input of shape {x} has {x[1]}"
        )
    if 0 in w[2:]:
        raise ShapeError(f"the kernel has no elements: weight of shape {w}")
    sizes = tuple(map(output_size, x[2:], w[2:], stride, padding, dilation))
    if any(s < 1 for s in sizes):
        padded = tuple(s + 2 * p for s, p in zip(x[2:], padding, strict=True))
        reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, w[2:], strict=True))
        raise ShapeError(
            f"the kernel is larger than the input: it reaches over {reach}, the padded input has {padded} "
            f"(input {x}, weight {w}, padding {padding}, dilation {dilation})"
        )
    return (x[0], w[0], *sizes)


def check_transposed(
    name: str, x: Sizes, w: Sizes, stride: Sizes, padding: Sizes, output_padding: Sizes, dilation: Sizes, groups: int
) -> None:
    """Raises ShapeError for what a transposed convolution cannot take; its weight has shape (C, O/groups, *kernel)."""
    try:
        check_geometry(len(x) - 2, stride, padding, dilation, groups)
    except ShapeError as error:
        raise ShapeError(f"{name}: {error}") from None
    if any(not 0 <= e < max(s, d) for e, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise ShapeError(
            f"{name}: output_padding must be at least 0 and smaller than stride or dilation, "
            f"got output_padding {output_padding}, stride {stride}, dilation {dilation}"
        )
    if x[1] != w[0] or w[0] % groups:
        raise ShapeError(
            f"{name}: a weight of shape {w} takes an input of {w[0]} channels, a multiple of groups={groups}, "
            f"but the input of shape {x} has {x[1]}"
        )


def same_dtype(a: Spec, b: Spec) -> None:
    """Raises TypeError: a convolution does not mix dtypes."""
    if a.dtype != b.dtype:
        raise TypeError(f"the inputs have dtypes {a.dtype} and {b.dtype}; convert one of them")


def convolution_rule(x: Spec, w: Spec, b: Spec | None, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Spec:
    """Rule: one output channel for each of the weight's kernels; `b` has one number for each, or is None."""
    same_dtype(x, w)
    shape = output_shape(x.shape, w.shape, stride, padding, dilation, groups)
    if b is not None:
        same_dtype(x, b)
        if b.shape != (w.shape[0],):
            raise ShapeError(f"the bias has shape ({w.shape[0]},), one number for each output channel, not {b.shape} (weight {w.shape})")
    return Spec(shape, x.dtype)


def dx_rule(dy: Spec, w: Spec, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Spec:
    """Rule: the input's shape, whose convolution has the shape of `dy`."""
    same_dtype(dy, w)
    found = output_shape(shape, w.shape, stride, padding, dilation, groups)
    if found != dy.shape:
        raise ShapeError(f"an input of shape {shape} and a weight of shape {w.shape} give {found}, not {dy.shape}")
    return Spec(shape, dy.dtype)


def transposed_rule(
    x: Spec, w: Spec, b: Spec | None, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Spec:
    """Rule: as `convolution_dx`; `b` has one number for each of the result's channels, or is None."""
    found = dx_rule(x, w, shape=shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if b is not None:
        same_dtype(x, b)
        if b.shape != shape[1:2]:
            raise ShapeError(f"the bias has shape ({shape[1]},), one number for each channel of the result, not {b.shape}")
    return found


def transposed_cpu(x: Any, w: Any, b: Any, y: Any, **geometry: Any) -> None:
    convolution_dx_cpu(x, w, y, **geometry)
    if b is not None:
        y += b.reshape(-1, *(1,) * (y.ndim - 2))


def dw_rule(x: Spec, dy: Spec, *, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Spec:
    """Rule: the weight's shape, which makes of `x` the shape of `dy`."""
    same_dtype(x, dy)
    found = output_shape(x.shape, shape, stride, padding, dilation, groups)
    if found != dy.shape:
        raise ShapeError(f"an input of shape {x.shape} and a weight of shape {shape} give {found}, not {dy.shape}")
    return Spec(shape, x.dtype)


def _bias_gradient(g: Any) -> Any:
    return g.sum((0, *range(2, g.ndim)))


convolution: Op = Op(
    "convolution", convolution_rule, params=GEOMETRY, autocast="lower", cpu=convolution_cpu,
    cuda=Kernel("conv.cu", "convolution", "convolution"),
    grad={
        "x": lambda g, w, x_spec, stride, padding, dilation, groups: convolution_dx(
            g, w, shape=x_spec.shape, stride=stride, padding=padding, dilation=dilation, groups=groups),
        "w": lambda g, x, w_spec, stride, padding, dilation, groups: convolution_dw(
            x, g, shape=w_spec.shape, stride=stride, padding=padding, dilation=dilation, groups=groups),
        "b": _bias_gradient,
    },
)  # fmt: skip
convolution_dx: Op = Op(
    "convolution_dx", dx_rule, params=("shape", *GEOMETRY), autocast="lower", cpu=convolution_dx_cpu,
    cuda=Kernel("conv.cu", "convolution_dx", "convolution_dx"),
    grad={
        "dy": lambda g, w, stride, padding, dilation, groups: convolution(
            g, w, None, stride=stride, padding=padding, dilation=dilation, groups=groups),
        "w": lambda g, dy, w_spec, stride, padding, dilation, groups: convolution_dw(
            g, dy, shape=w_spec.shape, stride=stride, padding=padding, dilation=dilation, groups=groups),
    },
)  # fmt: skip
convolution_dw: Op = Op(
    "convolution_dw", dw_rule, params=("shape", *GEOMETRY), autocast="lower", cpu=convolution_dw_cpu,
    cuda=Kernel("conv.cu", "convolution_dw", "convolution_dw"),
    grad={
        "x": lambda g, dy, x_spec, stride, padding, dilation, groups: convolution_dx(
            dy, g, shape=x_spec.shape, stride=stride, padding=padding, dilation=dilation, groups=groups),
        "dy": lambda g, x, stride, padding, dilation, groups: convolution(
            x, g, None, stride=stride, padding=padding, dilation=dilation, groups=groups),
    },
)  # fmt: skip
convolution_transpose: Op = Op(
    "convolution_transpose", transposed_rule, params=("shape", *GEOMETRY), autocast="lower", cpu=transposed_cpu,
    cuda=Kernel("conv.cu", "convolution_transpose", "convolution_dx"),
    grad={
        "x": lambda g, w, stride, padding, dilation, groups: convolution(
            g, w, None, stride=stride, padding=padding, dilation=dilation, groups=groups),
        "w": lambda g, x, w_spec, stride, padding, dilation, groups: convolution_dw(
            g, x, shape=w_spec.shape, stride=stride, padding=padding, dilation=dilation, groups=groups),
        "b": _bias_gradient,
    },
)  # fmt: skip
