"""How the tensors of a trace lie in memory: what they stand for will lie somewhere, and that decides whether `reshape`, `contiguous` and
their like give views or copies, as eagerly. Rows make their results row by row; what comes from outside, and views, may not lie so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradlab.op import Op
from gradlab.ops.complex import imag, real, view_as_complex, view_as_real
from gradlab.ops.layout import diagonal, unfold_view
from gradlab.ops.memory import as_strided, bits
from gradlab.ops.movement import Index, expand, permute, slice_, squeeze, t, transpose, unsqueeze, view
from gradlab.spec import Spec
from gradlab.strides import Strides, row_major

if TYPE_CHECKING:
    from gradlab.graph.staging.symbol import Symbol

class Flags(NamedTuple):
    """What arrays say of how they lie."""

    c_contiguous: bool


class Layout:
    """A symbol's strides, in bytes, worked out when they are asked for: mostly nobody does.

    find     gives them
    asked    called each time: what the trace does may depend on how an array from outside lies
    sources  the values whose strides `find` asks for
    """

    __slots__ = ("_asked", "_find", "_found", "_sources")

    def __init__(self, find: Callable[[], Strides], asked: Callable[[], Any] | None = None, sources: Sequence[Any] = ()) -> None:
        self._find, self._asked, self._sources = find, asked, sources
        self._found: Strides | None = None

    def strides(self) -> Strides:
        """Found out once, asked for as often as the caller likes. Sources come first, so that long chains need no deep recursion."""
        if self._asked is not None:
            self._asked()
        waiting = [self]
        while self._found is None:
            layout = waiting[-1]
            open_ = [s for s in (getattr(x, "layout", None) for x in layout._sources) if s is not None and s._found is None]
            if open_:
                waiting += open_
                continue
            if layout._found is None:
                layout._found = layout._find()
                layout._sources = ()
            waiting.pop()
        return self._found


def outside(array: Any, shape: tuple[int, ...], asked: Callable[[], Any] | None = None) -> Layout:
    """The layout of an array from before the trace. shape: the array's, or one in which some sizes are not known."""

    def find() -> Strides:
        strides: Strides = tuple(array.strides)
        if shape == array.shape:
            return strides
        order = sorted(range(len(shape)), key=lambda d: -strides[d])  # as dense as it is, whatever its sizes
        dense = row_major([shape[d] for d in order], array.dtype.itemsize)
        return tuple(dense[order.index(d)] for d in range(len(shape)))

    return Layout(find, asked)


def viewed(op: Op, params: dict[str, Any], source: Any) -> Layout | None:
    """The layout of a view; None for row by row."""
    if source.layout is None and op in (view, squeeze, unsqueeze):
        return None
    return Layout(lambda: VIEWS[op](source, source.strides, **params), sources=(source,))


def made(op: Op, params: dict[str, Any], inputs: Sequence[Any], result: Spec) -> Layout:
    """The layout of a row's result that lies as its inputs do."""

    def find() -> Strides:
        operands = tuple([(x.shape, x.strides) if hasattr(x, "strides") else None for x in inputs])
        assert op.lies is not None
        found: Strides = op.lies(operands, result.shape, result.dtype.itemsize, params)
        return found

    return Layout(find, sources=inputs)


def distance(array: Any, chain: Sequence[tuple[Op, dict[str, Any]]]) -> int:
    """Bytes from an array's first element to that of the view to which these rows lead. No memory is touched."""
    shape, strides = tuple(map(int.__int__, array.shape)), tuple(map(int.__int__, array.strides))
    memory: Any = np.empty(array.dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)), np.uint8)
    start = found = np.ndarray(shape, array.dtype, memory, 0, strides)
    for op, params in chain:
        found = op.cpu(found, **params)
    there: int = found.__array_interface__["data"][0]
    return there - int(start.__array_interface__["data"][0])


def _view(x: Symbol, strides: Strides, shape: tuple[int, ...]) -> Strides:
    array = np.empty((), f"V{x.dtype.itemsize}")
    array = np.lib.stride_tricks.as_strided(array, tuple(map(int.__int__, x.shape)), tuple(map(int.__int__, strides)))  # none is touched
    found: Strides = np.reshape(array, shape, copy=False).strides
    return found


def _transpose(x: Symbol, strides: Strides, dim0: int, dim1: int) -> Strides:
    found = list(strides)
    if found:
        found[dim0], found[dim1] = found[dim1], found[dim0]
    return tuple(found)


def _expand(x: Symbol, strides: Strides, shape: tuple[int, ...]) -> Strides:
    lead = len(shape) - len(strides)
    return (*(0,) * lead, *(s if old == new else 0 for s, old, new in zip(strides, x.shape, shape[lead:], strict=True)))


def _slice(x: Symbol, strides: Strides, index: Index) -> Strides:
    left, found = list(strides), []
    for part in index:
        step = 0 if part is None else left.pop(0)
        if part is None or isinstance(part, tuple):
            found.append(step * part[2] if part is not None and part[2] is not None else step)
    return (*found, *left)


def _diagonal(x: Symbol, strides: Strides, offset: int, dim1: int, dim2: int) -> Strides:
    return (*(s for d, s in enumerate(strides) if d not in (dim1, dim2)), strides[dim1] + strides[dim2])


def _unfold(x: Symbol, strides: Strides, dim: int, size: int, step: int) -> Strides:
    if not strides:
        return (x.dtype.itemsize,)
    return (*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim])


# Of each view row the strides of its result, from what it looks at and that one's strides.
VIEWS: dict[Op, Callable[..., Strides]] = {
    view: _view,
    permute: lambda x, strides, dims: tuple(strides[d] for d in dims),
    transpose: _transpose,
    t: lambda x, strides: strides[::-1],
    expand: _expand,
    squeeze: lambda x, strides, dims: tuple(s for d, s in enumerate(strides) if d not in dims),
    unsqueeze: lambda x, strides, dim: (*strides[:dim], 0, *strides[dim:]),
    slice_: _slice,
    diagonal: _diagonal,
    unfold_view: _unfold,
    as_strided: lambda x, strides, shape, steps, first: tuple(s * x.dtype.itemsize for s in steps),
    real: lambda x, strides: strides,
    imag: lambda x, strides: strides,
    view_as_real: lambda x, strides: (*strides, x.dtype.itemsize // 2),
    view_as_complex: lambda x, strides: strides[:-1],
    bits: lambda x, strides, dtype: strides if dtype.itemsize == x.dtype.itemsize else (*strides[:-1], dtype.itemsize),
}
