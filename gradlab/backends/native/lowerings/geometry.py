"""The geometry of convolutions with one or two spatial dimensions, always written with two."""

from __future__ import annotations

from typing import Any, NamedTuple

from gradlab.backends.native.lowering import Unsupported
from gradlab.backends.native.place import Place
from gradlab.dtype import FLOAT32

Pair = tuple[int, int]


class Geometry(NamedTuple):
    """The parameters of a convolution row, in two dimensions."""

    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int


def geometry(params: dict[str, Any]) -> Geometry:
    """The geometry of a row with these parameters."""
    rank = len(params["stride"])
    if rank not in (1, 2):
        raise Unsupported
    lead = 2 - rank
    return Geometry(
        (*(1,) * lead, *params["stride"]), (*(0,) * lead, *params["padding"]), (*(1,) * lead, *params["dilation"]), params["groups"]
    )


def results(x: tuple[int, ...], w: tuple[int, ...], g: Geometry) -> tuple[int, ...]:
    """The shape of a convolution's results."""
    sizes = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(x[2:], w[2:], g.stride, g.padding, g.dilation))
    return (x[0], w[0], *sizes)


def images(place: Place) -> Place:
    """A place of float32 with two spatial dimensions."""
    if place.dtype != FLOAT32 or place.size == 0:
        raise Unsupported
    if len(place.shape) == 3:
        n, c, w = place.shape
        return Place(place.base, place.offset, (n, c, 1, w), (*place.strides[:2], 0, place.strides[2]), place.dtype)
    return place


def sampled(x: Place, kernel: tuple[int, ...], g: Geometry) -> tuple[Place, Geometry]:
    """Images of which a kernel of one row or column meets every stride-th row or column alone: just those."""
    for d in (0, 1):
        step, before, size = g.stride[d], g.padding[d], x.shape[2 + d]
        first = -before % step
        if kernel[d] != 1 or step == 1 or first >= size:
            continue
        shape, strides = list(x.shape), list(x.strides)
        offset = x.offset + first * strides[2 + d] * x.dtype.itemsize
        shape[2 + d], strides[2 + d] = -(-(size - first) // step), strides[2 + d] * step
        x = Place(x.base, offset, tuple(shape), tuple(strides), x.dtype)
        stride, padding = list(g.stride), list(g.padding)
        stride[d], padding[d] = 1, -(-before // step)
        g = Geometry((stride[0], stride[1]), (padding[0], padding[1]), g.dilation, g.groups)
    return x, g
