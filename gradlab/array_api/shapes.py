"""Arrays in other shapes and orders, and parts of them, by the array API standard."""

from __future__ import annotations

from typing import Any

from gradlab.array_api.types import result_type
from gradlab.autograd.base import Differentiable
from gradlab.tensor import gather, repetition, shape as shapes
from gradlab.tensor.creation import as_tensor


def _axes(axis: Any) -> tuple[int, ...]:
    return axis if isinstance(axis, tuple) else (axis,)


def _checked(name: str, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise IndexError(f"{name}: axis {axis} is out of range for {rank} dimensions")
    return axis % rank


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """The arrays in the shape that they broadcast to.

    >>> [x.shape for x in gl.array_api.broadcast_arrays(gl.ones(2, 1), gl.ones(3))]
    [(2, 3), (2, 3)]
    """
    return list(repetition.broadcast_tensors(*arrays))


def broadcast_to(x: Any, /, shape: Any) -> Any:
    """The array in a shape that it broadcasts to.

    >>> gl.array_api.broadcast_to(gl.ones(1), (2,))
    tensor([1., 1.])
    """
    return x.broadcast_to(shape)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Arrays one behind the other along an axis; None: all their elements in one line.

    >>> gl.array_api.concat([gl.ones(1), gl.zeros(1)])
    tensor([1., 0.])
    """
    dtype = result_type(*arrays)
    parts = [x.to(dtype=dtype) for x in arrays]
    if axis is None:
        return shapes.cat([x.reshape(-1) for x in parts])
    _checked("concat", axis, parts[0].ndim)
    return shapes.cat(parts, dim=axis)


def expand_dims(x: Any, /, axis: Any) -> Any:
    """The array with new axes of size 1 where they are to stand. IndexError for places that there are not.

    >>> gl.array_api.expand_dims(gl.ones(2), axis=0).shape
    (1, 2)
    """
    rank = x.ndim + len(_axes(axis))
    places = sorted(_checked("expand_dims", a, rank) for a in _axes(axis))
    if len(set(places)) != len(places):
        raise ValueError(f"expand_dims: one axis is named twice in {axis}")
    for place in places:
        x = x.unsqueeze(place)
    return x


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """The elements in the reverse order along axes, all unless given.

    >>> gl.array_api.flip(gl.tensor([1, 2]))
    tensor([2, 1])
    """
    return x.flip(tuple(range(x.ndim)) if axis is None else _axes(axis))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """The array with axes at other places, the others in their order.

    >>> gl.array_api.moveaxis(gl.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    return x.moveaxis(source, destination)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """The array with its axes in that order.

    >>> gl.array_api.permute_dims(gl.ones(2, 3), (1, 0)).shape
    (3, 2)
    """
    return x.permute(tuple(axes))


def matrix_transpose(x: Any, /) -> Any:
    """Matrices with rows and columns changed over.

    >>> gl.array_api.matrix_transpose(gl.ones(2, 3)).shape
    (3, 2)
    """
    return x.mT


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element several times, along an axis or (None) in one line.

    >>> gl.array_api.repeat(gl.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    if isinstance(repeats, Differentiable) and repeats.numel() == 1:  # type: ignore[attr-defined]
        repeats = int(repeats.item())  # type: ignore[attr-defined]
    return x.repeat_interleave(repeats, dim=axis)


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    """The elements in another shape, -1 for what is left over. copy: True: always, False: never (ValueError where one is needed).

    >>> gl.array_api.reshape(gl.ones(4), (2, -1)).shape
    (2, 2)
    """
    if copy:
        return x.clone().reshape(shape)
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(f"reshape: copy=False, but {error}") from None
    return x.reshape(shape)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """The elements moved along axes, those that leave at one end come in at the other; None: of the array as one line.

    >>> gl.array_api.roll(gl.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """
    if isinstance(shift, int) and isinstance(axis, tuple):
        shift = (shift,) * len(axis)
    return x.roll(shift) if axis is None else x.roll(shift, axis)


def squeeze(x: Any, /, axis: Any) -> Any:
    """The array without axes of size 1. ValueError where their size is another one.

    >>> gl.array_api.squeeze(gl.ones(1, 2), 0).shape
    (2,)
    """
    places = tuple(_checked("squeeze", a, x.ndim) for a in _axes(axis))
    if wrong := [a for a in places if x.shape[a] != 1]:
        raise ValueError(f"squeeze: axis {wrong[0]} of shape {x.shape} is not of size 1")
    return x.squeeze(places)


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Arrays of one shape along a new axis.

    >>> gl.array_api.stack([gl.ones(2), gl.zeros(2)]).shape
    (2, 2)
    """
    dtype = result_type(*arrays)
    return shapes.stack([x.to(dtype=dtype) for x in arrays], dim=axis)


def tile(x: Any, repetitions: Any, /) -> Any:
    """The array several times along each axis.

    >>> gl.array_api.tile(gl.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    return x.tile(tuple(repetitions))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts along an axis, which they do not have.

    >>> gl.array_api.unstack(gl.tensor([1, 2]))
    (tensor(1), tensor(2))
    """
    if not x.ndim:
        raise ValueError("unstack: a 0-d array has no axis to take apart")
    return tuple(x.unbind(_checked("unstack", axis, x.ndim)))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The parts with these indices along an axis, which may be left out of a 1-D array. Negative ones count from the end.

    >>> gl.array_api.take(gl.tensor([1, 2, 3]), gl.tensor([0, -1]))
    tensor([1, 3])
    """
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: of an array of {x.ndim} dimensions, which axis= is meant?")
        axis = 0
    place = _checked("take", axis, x.ndim)
    return x[(slice(None),) * place + (as_tensor(indices, device=x.device),)]


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """The elements that an array of indices names along an axis, such as `argsort`'s.

    >>> gl.array_api.take_along_axis(gl.tensor([3, 1]), gl.tensor([1, 0]))
    tensor([1, 3])
    """
    place = _checked("take_along_axis", axis, x.ndim)
    indices = indices.to(dtype="int64")
    return gather.take_along_dim(x, indices.where(indices >= 0, indices + x.shape[place]), dim=place)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, `n` times.

    >>> gl.array_api.diff(gl.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    return x.diff(n, axis, prepend, append)

