"""Rows that move elements without computing: views, and copies (cat, stack's base, repeat)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Kernel, Movement
from gradlab.op import Op
from gradlab.spec import DimensionError, ShapeError, Spec, broadcast_shapes, cached_sizes, count, expect_shape

Index = tuple[Any, ...]  # canonical: of each dimension an int or (start, stop, step); None makes a new dimension


# ---------------------------------------------------------------- views


def view_rule(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    """Rule: the same number of elements in another shape."""
    if count(shape) != count(x.shape):
        raise ShapeError(f"shape {shape} has {count(shape)} elements, the tensor of shape {x.shape} has {count(x.shape)}")
    return Spec(shape, x.dtype)


view = Op("view", view_rule, params=("shape",), cpu=lambda x, *, shape: x.reshape(shape), cuda=Movement(), view=True,
          inverse=lambda base, value, shape: value.reshape(base.shape),
          grad={"x": lambda g, x_spec: g.reshape(x_spec.shape)})  # fmt: skip


def permute_rule(x: Spec, *, dims: tuple[int, ...]) -> Spec:
    """Rule: dimension i of the output is dimension dims[i] of the input."""
    if sorted(dims) != list(range(len(x.shape))):
        raise ShapeError(f"dims {dims} is not an order of the {len(x.shape)} dimensions of shape {x.shape}")
    return Spec(tuple(x.shape[d] for d in dims), x.dtype)


def inverted(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The order that undoes `dims`."""
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


permute = Op("permute", permute_rule, params=("dims",), cpu=lambda x, *, dims: x.transpose(dims), cuda=Movement(), view=True,
             inverse=lambda base, value, dims: value.permute(inverted(dims)),
             grad={"x": lambda g, dims: g.permute(inverted(dims))})  # fmt: skip


def transpose_rule(x: Spec, *, dim0: int, dim1: int) -> Spec:
    """Rule: two dimensions change places."""
    shape = list(x.shape)
    if shape:
        shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
    return Spec(tuple(shape), x.dtype)


transpose = Op("transpose", transpose_rule, params=("dim0", "dim1"), view=True, cuda=Movement(),
               cpu=lambda x, *, dim0, dim1: x.swapaxes(dim0, dim1) if x.ndim else x[...],
               inverse=lambda base, value, dim0, dim1: value.transpose(dim0, dim1),
               grad={"x": lambda g, dim0, dim1: g.transpose(dim0, dim1)})  # fmt: skip
t = Op("t", lambda x: Spec(x.shape[::-1], x.dtype), view=True, cuda=Movement(), cpu=lambda x: x.T,
       inverse=lambda base, value: value.T, grad={"x": lambda g: g.T})  # fmt: skip


def expand_rule(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    """Rule: sizes of 1 are repeated without a copy; new dimensions come in front."""
    try:
        fits = broadcast_shapes(x.shape, shape) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"shape {x.shape} does not expand to {shape}: only sizes of 1 can grow, new dimensions come in front")
    return Spec(shape, x.dtype)


def expanded(x: Any, *, shape: tuple[int, ...]) -> Any:
    """NumPy marks whatever it broadcasts as read-only; here that is what repeats an element."""
    if x.shape == shape[len(shape) - x.ndim :] and x.size == count(shape):
        return x.reshape(shape)
    if type(x) is not np.ndarray or not x.size or not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    front = len(shape) - x.ndim
    steps: list[Any] = [step if have == size else 0 if have == 1 else None for have, size, step in zip(x.shape, shape[front:], x.strides)]
    if None in steps or len(steps) != x.ndim:
        return np.broadcast_to(x, shape)  # which raises
    found: Any = np.ndarray(shape, x.dtype, x, 0, (*(0,) * front, *steps))  # in a fifth of the time
    found.flags.writeable = False
    return found


def _unexpanded(base: Any, value: Any, shape: tuple[int, ...]) -> Any:
    if count(shape) == count(base.shape):
        return value.reshape(base.shape)
    raise RuntimeError(
        "an expanded tensor cannot be written in place: several of its elements are one memory location; clone() it first"
    )


expand = Op("expand", expand_rule, params=("shape",), cpu=expanded, cuda=Movement(), view=True,
            inverse=_unexpanded, grad={"x": lambda g, x_spec: g.sum_to_size(x_spec.shape)})  # fmt: skip
squeeze = Op("squeeze", lambda x, *, dims: Spec(tuple(s for i, s in enumerate(x.shape) if i not in dims), x.dtype), params=("dims",),
             view=True, cuda=Movement(), cpu=lambda x, *, dims: x.squeeze(dims),
             inverse=lambda base, value, dims: value.reshape(base.shape),
             grad={"x": lambda g, x_spec: g.reshape(x_spec.shape)})  # fmt: skip
unsqueeze = Op("unsqueeze", lambda x, *, dim: Spec((*x.shape[:dim], 1, *x.shape[dim:]), x.dtype), params=("dim",), view=True,
               cuda=Movement(), cpu=lambda x, *, dim: x[(slice(None),) * dim + (None, ...)],
               inverse=lambda base, value, dim: value.squeeze(dim),
               grad={"x": lambda g, dim: g.squeeze(dim)})  # fmt: skip


@cached_sizes(4096)
def numpy_index(index: Index) -> tuple[Any, ...]:
    """A canonical index as NumPy takes it; the trailing Ellipsis makes NumPy give a view also of a single element."""
    return (*(slice(*part) if isinstance(part, tuple) else part for part in index), Ellipsis)


def slice_length(part: tuple[Any, ...], size: int) -> int:
    """How many elements (start, stop, step) takes of `size`; by arithmetic alone where a graph's unknown sizes are among the numbers."""
    start, stop, step = part
    if type(size) is int and type(start) is int and (stop is None or type(stop) is int):
        return len(range(*slice(start, stop, step).indices(size)))
    start = 0 if start is None else start
    first = max(start + size, 0) if start < 0 else min(start, size)
    last = size if stop is None else max(stop + size, 0) if stop < 0 else min(stop, size)
    return -((first - last) // step) if last > first else 0


def slice_rule(x: Spec, *, index: Index) -> Spec:
    """Rule: integers remove a dimension, (start, stop, step) shorten it, None makes one of size 1."""
    shape: list[int] = []
    dim = 0
    for part in index:
        if part is None:
            shape.append(1)
            continue
        if dim >= len(x.shape):
            raise DimensionError(f"too many indices for a tensor of shape {x.shape}")
        if isinstance(part, tuple):
            shape.append(slice_length(part, x.shape[dim]))
        elif not -x.shape[dim] <= part < x.shape[dim]:
            raise DimensionError(f"index {part} is out of range for dimension {dim} of size {x.shape[dim]} (shape {x.shape})")
        dim += 1
    return Spec((*shape, *x.shape[dim:]), x.dtype)


slice_ = Op("slice", slice_rule, params=("index",), view=True, cuda=Movement(), cpu=lambda x, *, index: x[numpy_index(index)],
            inverse=lambda base, value, index: slice_scatter(base, value, index=index),
            grad={"x": lambda g, x_spec, index: slice_backward(g, shape=x_spec.shape, index=index)})  # fmt: skip

# ---------------------------------------------------------------- copies


def slice_backward_cpu(dy: Any, y: Any, *, shape: tuple[int, ...], index: Index) -> None:
    y.fill(0)
    y[numpy_index(index)] = dy


def slice_backward_rule(dy: Spec, *, shape: tuple[int, ...], index: Index) -> Spec:
    """Rule: the shape that was sliced."""
    expect_shape("the gradient", dy, slice_rule(Spec(shape, dy.dtype), index=index).shape)
    return Spec(shape, dy.dtype)


slice_backward: Op = Op("slice_backward", slice_backward_rule, params=("shape", "index"), exact=True,
                    cpu=slice_backward_cpu, cuda=Movement(),
                    grad={"dy": lambda g, index: slice_(g, index=index)})  # fmt: skip


def slice_scatter_cpu(base: Any, value: Any, y: Any, *, index: Index) -> None:
    np.copyto(y, base)
    y[numpy_index(index)] = value


def slice_scatter_rule(base: Spec, value: Spec, *, index: Index) -> Spec:
    """Rule: `base` with the elements at `index` replaced by `value`."""
    target = slice_rule(base, index=index)
    if target.shape != value.shape:
        raise ShapeError(f"a value of shape {value.shape} does not fit the indexed part of shape {target.shape}")
    return base


slice_scatter: Op = Op("slice_scatter", slice_scatter_rule, params=("index",), exact=True, cpu=slice_scatter_cpu, cuda=Movement(),
                   grad={"base": lambda g, value_spec, index: slice_scatter(g, g.new_zeros(value_spec.shape), index=index),
                         "value": lambda g, index: slice_(g, index=index)})  # fmt: skip


def cat_rule(*xs: Spec, dim: int) -> Spec:
    """Rule: sizes along `dim` add up, the others agree."""
    first = xs[0]
    for i, x in enumerate(xs):
        if x.shape[:dim] != first.shape[:dim] or x.shape[dim + 1 :] != first.shape[dim + 1 :] or len(x.shape) != len(first.shape):
            raise ShapeError(f"tensor {i} has shape {x.shape}, tensor 0 has {first.shape}; they may differ in dimension {dim} only")
    return Spec((*first.shape[:dim], sum(x.shape[dim] for x in xs), *first.shape[dim + 1 :]), first.dtype)


def cat_gradient(g: Any, xs_spec: tuple[Spec, ...], dim: int) -> list[Any]:
    """Each input's part of the gradient."""
    parts, start = [], 0
    for spec in xs_spec:
        parts.append(g.narrow(dim, start, spec.shape[dim]))
        start += spec.shape[dim]
    return parts


def cat_cpu(*arrays: Any, dim: int) -> None:
    *xs, y = arrays
    np.concatenate(xs, axis=dim, out=y)


cat = Op("cat", cat_rule, params=("dim",), exact=True, roundings=0, cpu=cat_cpu, cuda=Kernel("movement.cu", "cat", "cat"),
         grad={"xs": lambda g, xs_spec, dim: cat_gradient(g, xs_spec, dim)})  # fmt: skip
flip = Op("flip", lambda x, *, dims: x, params=("dims",), exact=True, cuda=Movement(),
          cpu=lambda x, y, *, dims: np.copyto(y, np.flip(x, dims)), grad={"x": lambda g, dims: g.flip(dims)})  # fmt: skip
