"""The class of shapes: a tuple that knows how many elements there are, and stays one of its kind when it is cut or joined."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from gradlab.spec import all_known, caches, count

_join, _repeat = tuple.__add__, tuple.__mul__


class Size(tuple[int, ...]):
    """What `x.shape` and `x.size()` return: a tuple of integers. Its slices, sums with tuples and multiples are Sizes, too.

    TypeError for what is no integer.

    >>> gl.ones(2, 3, 4).shape[1:].numel()
    12
    >>> type(gl.Size([2]) + (3,)).__name__
    'Size'
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        found: list[Any] = []
        if not hasattr(type(sizes), "__iter__"):
            raise TypeError(f"Size: takes a sequence of integers, not {type(sizes).__name__}")
        try:
            for size in sizes:
                if not hasattr(type(size), "__index__"):
                    raise TypeError(f"Size: takes integers, but item {len(found)} is of type {type(size).__name__}")
                found.append(size if isinstance(size, int) and type(size) is not bool else operator.index(size))  # also sizes of a trace
        except TypeError as error:  # of a tensor, too
            text = str(error)
            raise TypeError(text if text.startswith("Size: ") else f"Size: takes a sequence of integers: {text}") from None
        return tuple.__new__(cls, found)

    def numel(self) -> int:
        """The number of elements of a tensor of this shape.

        >>> gl.Size([2, 3]).numel()
        6
        """
        return count(self)

    def __getitem__(self, key: Any) -> Any:
        found = plain[self][key]
        return known[found] if type(found) is tuple else found

    def __add__(self, other: Any) -> Any:
        return sized(_join(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return sized(_join(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return sized(_repeat(self, times))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


def sized(shape: tuple[int, ...]) -> Size:
    """A tuple of integers as a Size."""
    return tuple.__new__(Size, shape)


_INT = frozenset({int})


class Kept(dict[tuple[int, ...], Any]):
    """Tuples of integers as a class of tuples. They are kept, since to look one up is half as dear as to make it, and half as dear as
    tuple's own `__getitem__` called by its name. From the first size on that is not known, and equals a number, none is."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __missing__(self, shape: tuple[int, ...]) -> Any:
        found: Any = tuple.__new__(self.kind, shape)
        if all_known() and _INT.issuperset(map(type, shape)):
            if len(self) >= 4096:
                self.clear()
            self[shape] = found
        return found


known, plain = Kept(Size), Kept(tuple)
caches += known, plain
