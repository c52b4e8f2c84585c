"""Rows of layout: diagonals and windows (views), triangles, and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Library, Movement
from gradlab.op import Op
from gradlab.spec import ShapeError, Spec, cached_sizes, expect_shape

# ---------------------------------------------------------------- diagonals


def diagonal_rule(x: Spec, *, offset: int, dim1: int, dim2: int) -> Spec:
    """Rule: two dimensions go, their diagonal comes last."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    return Spec((*(s for d, s in enumerate(x.shape) if d not in (dim1, dim2)), length), x.dtype)


def diagonal_view(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    """NumPy marks its diagonals as read-only; ours may be written as far as `x` may."""
    found = x.diagonal(offset, dim1, dim2)
    if isinstance(found, np.ndarray) and x.flags.writeable:
        found.flags.writeable = True
    return found


diagonal = Op("diagonal", diagonal_rule, params=("offset", "dim1", "dim2"), view=True, cuda=Movement(), cpu=diagonal_view,
              inverse=lambda base, value, offset, dim1, dim2: diagonal_scatter(base, value, offset=offset, dim1=dim1, dim2=dim2),
              grad={"x": lambda g, x_spec, offset, dim1, dim2:
                    diagonal_embed(g, shape=x_spec.shape, offset=offset, dim1=dim1, dim2=dim2)})  # fmt: skip


def diagonal_embed_cpu(values: Any, y: Any, *, shape: Any, offset: int, dim1: int, dim2: int) -> None:
    y.fill(0)
    diagonal_view(y, offset=offset, dim1=dim1, dim2=dim2)[...] = values


def diagonal_embed_rule(values: Spec, *, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Spec:
    """Rule: zeros of `shape` with `values` on that diagonal."""
    expect_shape("the diagonal", values, diagonal_rule(Spec(shape, values.dtype), offset=offset, dim1=dim1, dim2=dim2).shape)
    return Spec(shape, values.dtype)


diagonal_embed: Op = Op("diagonal_embed", diagonal_embed_rule,
                    params=("shape", "offset", "dim1", "dim2"), exact=True, cpu=diagonal_embed_cpu, cuda=Movement(),
                    grad={"values": lambda g, offset, dim1, dim2: diagonal(g, offset=offset, dim1=dim1, dim2=dim2)})  # fmt: skip


def diagonal_scatter_rule(base: Spec, value: Spec, *, offset: int, dim1: int, dim2: int) -> Spec:
    """Rule: `base` with a diagonal replaced by `value`."""
    target = diagonal_rule(base, offset=offset, dim1=dim1, dim2=dim2)
    if target.shape != value.shape:
        raise ShapeError(f"values of shape {value.shape} do not fit a diagonal of shape {target.shape}")
    return base


def diagonal_scatter_cpu(base: Any, value: Any, y: Any, *, offset: int, dim1: int, dim2: int) -> None:
    y[...] = base
    diagonal_view(y, offset=offset, dim1=dim1, dim2=dim2)[...] = value


def _without_diagonal(g: Any, value_spec: Spec, offset: int, dim1: int, dim2: int) -> Any:
    return diagonal_scatter(g, g.new_zeros(value_spec.shape), offset=offset, dim1=dim1, dim2=dim2)


diagonal_scatter: Op = Op("diagonal_scatter", diagonal_scatter_rule, params=("offset", "dim1", "dim2"), exact=True,
                      cpu=diagonal_scatter_cpu, cuda=Movement(),
                      grad={"base": _without_diagonal,
                            "value": lambda g, offset, dim1, dim2: diagonal(g, offset=offset, dim1=dim1, dim2=dim2)})  # fmt: skip

# ---------------------------------------------------------------- triangles


@cached_sizes(32)
def triangle(rows: int, columns: int, diagonal: int, lower: bool) -> Any:
    """Where a matrix's lower triangle is, up to `diagonal`, or its upper one, from there."""
    mask = np.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
    return mask if lower else ~mask


def triangle_cpu(lower: bool) -> Any:
    """A copy of one triangle, 0 elsewhere."""

    def cpu(x: Any, y: Any, *, diagonal: int) -> None:
        y.fill(0)
        np.copyto(y, x, where=triangle(*x.shape[-2:], diagonal, lower))

    return cpu


tril = Op("tril", lambda x, *, diagonal: x, params=("diagonal",), exact=True,
          cpu=triangle_cpu(True),
          cuda=Library(lambda cupy, inputs, params: cupy.tril(inputs[0], params["diagonal"])),
          grad={"x": lambda g, diagonal: g.tril(diagonal)})  # fmt: skip
triu = Op("triu", lambda x, *, diagonal: x, params=("diagonal",), exact=True,
          cpu=triangle_cpu(False),
          cuda=Library(lambda cupy, inputs, params: cupy.triu(inputs[0], params["diagonal"])),
          grad={"x": lambda g, diagonal: g.triu(diagonal)})  # fmt: skip

# ---------------------------------------------------------------- windows


def windows_rule(x: Spec, *, dim: int, size: int, step: int) -> Spec:
    """Rule: along `dim` the number of windows; their elements come last."""
    if not x.shape:
        return Spec((size,), x.dtype)
    if size > x.shape[dim]:
        raise ShapeError(f"windows of size {size} do not fit dimension {dim} of size {x.shape[dim]} (shape {x.shape})")
    return Spec((*x.shape[:dim], (x.shape[dim] - size) // step + 1, *x.shape[dim + 1 :], size), x.dtype)


def windows_view(strided: Any, x: Any, dim: int, size: int, step: int) -> Any:
    """The windows by strides, with the array library's `as_strided`."""
    shape = windows_rule(Spec(x.shape, x.dtype), dim=dim, size=size, step=step).shape
    if not x.ndim:
        return strided(x, shape, (x.dtype.itemsize,))
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return strided(x, shape, strides)


def windows_inverse(base: Any, value: Any, dim: int, size: int, step: int) -> Any:
    """Writing is possible where windows do not overlap."""
    if step < size:
        raise RuntimeError(f"overlapping windows (size {size}, step {step}) cannot be written in place; clone() them first")
    shape = base.shape
    kept = unfold_backward(value.new_ones(value.shape), shape=shape, dim=dim, size=size, step=step)
    return unfold_backward(value, shape=shape, dim=dim, size=size, step=step) + base * (1 - kept)


unfold_view = Op("unfold", windows_rule, params=("dim", "size", "step"), view=True, inverse=windows_inverse,
                 cpu=lambda x, *, dim, size, step: windows_view(np.lib.stride_tricks.as_strided, x, dim, size, step),
                 cuda=Library(lambda cupy, inputs, params: windows_view(cupy.lib.stride_tricks.as_strided, inputs[0], **params)),
                 grad={"x": lambda g, x_spec, dim, size, step:
                       unfold_backward(g, shape=x_spec.shape, dim=dim, size=size, step=step)})  # fmt: skip


def unfold_backward_cpu(windows: Any, y: Any, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> None:
    """Each element is the sum over the windows that hold it."""
    y.fill(0)
    if not shape:
        y[...] = windows.reshape(()) if size else 0
        return
    count = windows.shape[dim]
    lead = (slice(None),) * dim
    for k in range(size):
        y[(*lead, slice(k, k + (count - 1) * step + 1, step))] += windows[..., k]


def unfold_backward_rule(windows: Spec, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> Spec:
    """Rule: the shape that windows were taken of."""
    expect_shape("the gradient", windows, windows_rule(Spec(shape, windows.dtype), dim=dim, size=size, step=step).shape)
    return Spec(shape, windows.dtype)


unfold_backward: Op = Op("unfold_backward", unfold_backward_rule,
                     params=("shape", "dim", "size", "step"), cpu=unfold_backward_cpu, cuda=Movement(),
                     grad={"windows": lambda g, dim, size, step: unfold_view(g, dim=dim, size=size, step=step)})  # fmt: skip

# ---------------------------------------------------------------- repetition by a tensor


def repeated_rule(repeats: Spec) -> Spec:
    """Rule: an index for each repetition; how many there are depends on the values."""
    if repeats.dtype.kind not in "iu" or len(repeats.shape) != 1:
        raise TypeError(f"repeats are a vector of integers, not {repeats.dtype} of shape {repeats.shape}")
    return Spec((0,), np.dtype(np.int64))


def repeated_cpu(repeats: Any) -> Any:
    if (repeats < 0).any():
        raise RuntimeError("repeat_interleave: repeats are not negative")
    return np.repeat(np.arange(repeats.shape[0]), repeats)


repeated = Op("repeated", repeated_rule, exact=True, dynamic=True, cpu=repeated_cpu, instead="a number of repeats, the same for all",
              cuda=Library(lambda cupy, inputs, params: cupy.repeat(cupy.arange(inputs[0].shape[0]), inputs[0].tolist())))  # fmt: skip
