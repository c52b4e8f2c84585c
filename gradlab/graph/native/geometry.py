"""The geometry of convolutions with one or two spatial dimensions, always written with two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradlab.dtype import FLOAT32
from gradlab.graph.native.lower import Unsupported
from gradlab.graph.native.place import Place

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


def images(place: Place) -> Place:
    """A place of float32 with two spatial dimensions."""
    if place.dtype != FLOAT32 or place.size == 0:
        raise Unsupported
    if len(place.shape) == 3:
        n, c, w = place.shape
        return Place(place.base, place.offset, (n, c, 1, w), (*place.strides[:2], 0, place.strides[2]), place.dtype)
    return place


def kernel_places(kernel: Sequence[int]) -> list[Pair]:
    """Rows and columns of a kernel's places."""
    return [(y, x) for y in range(kernel[0]) for x in range(kernel[1])]
