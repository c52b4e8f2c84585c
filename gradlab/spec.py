"""Shapes and dtypes without data, and the shape rules that many rows share.

A `Spec` is what a row's rule sees and returns. Rules raise `ShapeError` without the operation's name; `Op.infer` adds it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np


class Spec(NamedTuple):
    """A tensor's shape (tuple of int) and dtype (`numpy.dtype`), with no data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class ShapeError(ValueError, RuntimeError):
    """Shapes or dimensions that an operation cannot take. Both a ValueError (NumPy's habit) and a RuntimeError (PyTorch's)."""


class DimensionError(IndexError, RuntimeError):
    """A dimension index outside a tensor's range."""


class LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """A matrix that an operation cannot take for its values: singular, not positive definite. A RuntimeError as in PyTorch."""


def spec_of(array: Any) -> Spec:
    """The Spec of anything with `shape` and `dtype`."""
    return Spec(array.shape, array.dtype)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """NumPy's broadcasting of shapes; raises ShapeError naming all of them.

    >>> gl.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    if int in map(type, shapes):  # one size is a shape, too
        shapes = tuple([(shape,) if isinstance(shape, int) else shape for shape in shapes])
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, size in enumerate(shape):
            if size != 1:
                if out[offset + i] == 1:
                    out[offset + i] = size
                elif out[offset + i] != size:
                    listed = " and ".join(map(str, shapes))
                    raise ShapeError(
                        f"shapes {listed} do not broadcast: aligned from the right, sizes must be equal or 1, "
                        f"but there are {out[offset + i]} and {size}"
                    )
    return tuple(out)


def expect_shape(what: str, found: Spec | None, shape: tuple[int, ...]) -> None:
    """Raises ShapeError unless an operand, where it is given, has this shape: what a rule takes, kernels read without another look."""
    if found is not None and found.shape != shape:
        raise ShapeError(f"{what} has shape {found.shape}, expected {shape}")


def same(x: Spec, **_: Any) -> Spec:
    """Rule: the output is like the one input."""
    return x


def broadcast(a: Spec, b: Spec, **_: Any) -> Spec:
    """Rule: two inputs of one dtype, broadcast."""
    return a if a.shape == b.shape else Spec(broadcast_shapes(a.shape, b.shape), a.dtype)


def broadcast_bool(a: Spec, b: Spec, **_: Any) -> Spec:
    """Rule: two inputs, broadcast, compared."""
    return Spec(broadcast_shapes(a.shape, b.shape), np.dtype(bool))


def gradient_of(dy: Spec, result: Spec, **_: Any) -> Spec:
    """Rule: a gradient and the result it belongs to, broadcast."""
    return broadcast(dy, result)


def same_bool(x: Spec, **_: Any) -> Spec:
    """Rule: one input, a truth value for each element."""
    return Spec(x.shape, np.dtype(bool))


def order_of_ends(size: int) -> str:
    """What is said of ends that make no groups in a dimension of that size."""
    return f"grouped_mm: the ends of the groups (offs) do not grow from 0 to at most {size}"


def product(a: Spec, b: Spec) -> Spec:
    """Rule of the matrix product (`numpy.matmul`), for inputs of one dtype and at least two dimensions."""
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"inner sizes differ: {a.shape} @ {b.shape} multiplies {a.shape[-1]} columns with {b.shape[-2]} rows"
        )
    batch = a.shape[:-2] if a.shape[:-2] == b.shape[:-2] else broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Spec((*batch, a.shape[-2], b.shape[-1]), a.dtype)


class NoInteger(TypeError):
    """What stands in the place of an integer; whoever was called says of which parameter (`named_errors`)."""

    def __init__(self, text: str, value: Any = None) -> None:
        super().__init__(text)
        self.value = value


def whole(value: Any) -> int:
    """An integer argument as an int (an unknown size of a graph stays one). Raises TypeError for what is no integer, and for a bool, which
    stands in another's place."""
    if type(value) is int:
        return value
    try:
        number: int = value.__index__()
    except AttributeError:
        raise NoInteger(f"expected an integer, not {value!r}", value) from None
    if isinstance(value, bool):
        raise NoInteger(f"expected an integer, not {value!r}", value)
    return number


def is_number(value: Any) -> bool:
    """Whether a value stands for one number, not for several: a Python or NumPy integer, or an array or a tensor without dimensions."""
    return isinstance(value, (int, np.integer)) or getattr(value, "ndim", None) == 0


def as_number(value: Any) -> Any:
    """A number that may have come as an array or a tensor without dimensions, as Python's; what is none as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def none(dims: Any) -> bool:
    """Whether `dims` names dimensions, but none of them."""
    return isinstance(dims, (tuple, list)) and not dims


def normalize_dim(dim: int, rank: int) -> int:
    """`dim` as a number from 0; raises DimensionError. A 0-d tensor counts as having one dimension, as in PyTorch."""
    if type(dim) is not int:
        dim = _dimension(dim)
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise DimensionError(
            f"dimension out of range: dim={dim} for a tensor of {rank} dimensions (expected {-limit} to {limit - 1})"
        )
    return dim % limit


def _dimension(dim: Any) -> int:
    try:
        return whole(dim)
    except TypeError:
        raise NoInteger(f"a dimension is an integer, not {type(dim).__name__}: {dim!r}", dim) from None


def normalize_dims(dim: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """`dim` (None or () is every dimension) as a sorted tuple of distinct numbers from 0."""
    if dim is None:
        return tuple(range(rank))
    if isinstance(dim, (tuple, list)):
        if not dim:
            return tuple(range(rank))
        dims = tuple(sorted(normalize_dim(d, rank) for d in dim))
        if len(set(dims)) != len(dims):
            raise ShapeError(f"dim {tuple(dim)} names a dimension twice")
    else:
        dims = (normalize_dim(dim, rank),)  # type: ignore[arg-type]
    return dims if rank else ()


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape after reducing `dims` (normalised)."""
    if keepdim is not False and keepdim is not True:
        raise TypeError(f"keepdim is True or False, not {keepdim!r}; several dimensions are a tuple: dim=(0, 1)")
    if len(dims) == len(shape):
        return (1,) * len(shape) if keepdim else ()
    if keepdim:
        return tuple(1 if i in dims else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in dims)


R = TypeVar("R")
_PLAIN = frozenset({int, bool, str, type(None)})
_unknown = False
caches: list[dict[Any, Any]] = []  # by sizes, of known ones only; they keep nothing from when there are others


def unknown_sizes() -> None:
    """From now on there are sizes that are not known (`gradlab.graph.ir.dims`): they equal a number, and are none."""
    global _unknown
    _unknown = True
    for cache in caches:
        cache.clear()


def all_known() -> bool:
    """Whether there has been no size that is not known."""
    return not _unknown


def cached_sizes(most: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """As `functools.lru_cache(most)`, for functions of sizes: what is found for a size that is not known is not kept, nor is what was kept
    for the number that it equals given for it."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        kept = functools.lru_cache(most)(function)

        def call(*args: Any) -> R:
            return function(*args) if _unknown and not _all_plain(args) else kept(*args)

        functools.update_wrapper(call, function, updated=())
        call.by_sizes = kept  # type: ignore[attr-defined]
        return call

    return decorate


def _all_plain(values: tuple[Any, ...]) -> bool:
    return _PLAIN.issuperset(map(type, values)) or all(
        _all_plain(v) if type(v) is tuple else not hasattr(v, "expr") for v in values
    )


def count(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    total = 1
    for size in shape:
        total *= size
    return total
