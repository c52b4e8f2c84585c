"""Reading and writing by index tensors.

Few sources: each place looks through them for its own. Many: they are sorted by place (`segments.py`), so the work grows with their
number alone. Both take sums in the order of the sources.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch import segments
from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import WORD_TYPES, Work
from gradlab.backends.cuda.layout import element_strides
from gradlab.dtype import INT64
from gradlab.spec import Spec, count

FEW = 64  # sources that each place can look through


def word(array: Any) -> str:
    """The C++ type of words of an array's element size."""
    return WORD_TYPES[array.dtype.itemsize]


def index_type(size: int) -> str:
    """The C++ type that counts the elements."""
    return "unsigned int" if size < 2**31 else "long long"


def _front(dims: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The order that brings `dims` to the front."""
    return (*dims, *(d for d in range(rank) if d not in dims))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _place(dims: tuple[int, ...]) -> int:
    """Where the index's dimensions lie in the result: where the indexed ones were if they are neighbours, else in front."""
    return dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0


def _places(work: Work, name: str, at: Any, shape: tuple[int, ...], dims: tuple[int, ...], wrap: bool) -> Any:
    """One place in the flattened indexed dimensions for each set of places, -1 for what lies outside."""
    number = count(at.shape[1:])
    places = work.empty((number,), INT64)
    sizes = [shape[d] for d in dims]
    packed = struct.pack("ii8q", len(sizes), int(wrap), *sizes, *[1] * (8 - len(sizes)))
    site = work.faults.index(name, shape, dims)
    work.each(work.kernel("index.cu", "linear_places"), number, work.contiguous(at), places, packed, work.faults.record, site)
    work.faults.check()
    return places


def _take(work: Work, x: Any, places: Any, y: Any, size: int, inner: int, site: int | None = None) -> None:
    """y[outer, n, inner] = x[outer, places[n], inner] of contiguous arrays, 16 bytes at a time where rows allow it. With a site, places
    are checked."""
    item = y.dtype.itemsize
    wide = inner * item % 16 == 0 and (work.pointer(x) | work.pointer(y)) % 16 == 0
    scale = 16 // item if wide else 1
    function = work.kernel("index.cu", "take", "uint4" if wide else word(y), index_type(y.size))
    record = None if site is None else work.faults.record
    work.each(function, y.size // scale, x, places, y, record, site or 0, places.size, size, inner // scale)


def _rows_order(at_rank: int, value_rank: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The order of the value's dimensions that brings those of the index to the front."""
    start = _place(dims)
    inner = range(start, start + at_rank)
    return (*inner, *(d for d in range(value_rank) if d not in inner))


def index(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at), (y,), dims = inputs, outputs, params["dims"]
    places = _places(work, "index", at, x.shape, dims, params["wrap"])  # a wrong index is an error also where nothing is read
    if not y.size:
        return
    size = count(tuple(x.shape[d] for d in dims))
    if dims[-1] - dims[0] + 1 == len(dims):
        _take(work, work.contiguous(x), places, y, size, count(x.shape[dims[-1] + 1 :]))
        return
    moved = work.contiguous(x.transpose(_front(dims, len(x.shape))))
    _take(work, moved, places, y, size, count(moved.shape[len(dims) :]))


def _add(work: Work, old: Any, places: Any, rows: Any, y: Any, width: int, targets: int, skip: int = -1) -> None:
    """y[places] = old (or zeros) + rows, for y as [targets, width]."""
    if places.size > FEW and segments.fits(places.size, targets):
        if old is None:
            work.driver.fill_zero(y)
        else:
            work.copy(y, old)
        segments.add(work, y, places, rows, width, targets, skip=skip)
        return
    function = work.kernel("index.cu", "add_rows", y.dtype)
    work.launch(function, -(-targets // 4), 128, old, places, rows, y, places.size, width, skip, targets, rows=-(-width // 32))


def index_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy, at), (y,) = inputs, outputs
    _accumulate(work, "index_backward", None, at, dy, y, params["dims"], True)


def _accumulate(work: Work, name: str, x: Any, at: Any, value: Any, y: Any, dims: tuple[int, ...], wrap: bool) -> None:
    shape, rank = y.shape, len(y.shape)
    places = _places(work, name, at, shape, dims, wrap)  # a wrong index is an error also where there is nothing to add
    if not y.size:
        return
    sizes = tuple(shape[d] for d in dims)
    order = _front(dims, rank)
    targets, width = count(sizes), count(shape) // count(sizes)
    rows = work.contiguous(value.transpose(_rows_order(len(at.shape) - 1, len(value.shape), dims)))
    straight = order == tuple(range(rank))
    old = None if x is None else work.contiguous(x if straight else x.transpose(order))
    total = y if straight else work.empty(tuple(shape[d] for d in order), y.dtype)
    _add(work, old, places, rows, total, width, targets)
    if not straight:
        work.copy(y, total.transpose(_inverse(order)))


def index_put(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, value), (y,), dims = inputs, outputs, params["dims"]
    if params["accumulate"]:
        _accumulate(work, "index_put", x, at, value, y, dims, params["wrap"])
        return
    shape, rank = y.shape, len(y.shape)
    places = _places(work, "index_put", at, shape, dims, params["wrap"])
    if not value.size or not y.size:
        work.copy(y, x)
        return
    sizes = tuple(shape[d] for d in dims)
    order = _front(dims, rank)
    straight = order == tuple(range(rank))
    total = y if straight else work.empty(tuple(shape[d] for d in order), y.dtype)
    work.copy(total, x if straight else x.transpose(order))
    targets, width = count(sizes), count(shape) // count(sizes)
    rows = work.contiguous(value.transpose(_rows_order(len(at.shape) - 1, len(value.shape), dims)))
    if places.size > FEW and segments.fits(places.size, targets):
        segments.put(work, total, places, rows, targets)
    else:
        function = work.kernel("index.cu", "put_rows", word(y))
        work.launch(function, -(-targets // 4), 128, places, rows, total, places.size, width, targets)
    if not straight:
        work.copy(y, total.transpose(_inverse(order)))


def embedding(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (weight, at), (y,) = inputs, outputs
    if not y.size:  # as in `index`
        _places(work, "embedding", at.reshape((1, -1 if at.size else 0)), weight.shape, (0,), False)
    else:
        rows, width = weight.shape
        site = work.faults.index("embedding", weight.shape, (0,))
        _take(work, work.contiguous(weight), work.contiguous(at), y, rows, width, site)
        work.faults.check()


def embedding_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy, at), (y,) = inputs, outputs
    if y.size:
        padding = params["padding_idx"]
        skip = -1 if padding is None else padding % y.shape[0]
        _add(work, None, work.contiguous(at), work.contiguous(dy), y, y.shape[1], y.shape[0], skip)


# ---------------------------------------------------------------- along one dimension


def _lines(shape: tuple[int, ...], index_shape: tuple[int, ...], source: Any, dim: int) -> bytes:
    """`Lines` of scatter.cu, for a row-major target of `shape`, a row-major index and any source (or None) that is read at the index's
    places."""

    def steps(sizes: tuple[int, ...]) -> list[int]:
        found, step = [], 1
        for size in reversed(sizes):
            found.append(step)
            step *= size
        return found[::-1]

    target, index = steps(shape), steps(index_shape)
    origin = (0,) * len(shape) if source is None or not source.shape else element_strides(source)
    others = [d for d in reversed(range(len(shape))) if d != dim]
    pad = [0] * (8 - len(others))

    def row(values: Sequence[int]) -> list[int]:
        return [*(values[d] for d in others), *pad]

    return struct.pack(
        "ii37q", len(others), 0, *row(index_shape), *row(index), *row(target), *row(origin),
        index[dim], target[dim], origin[dim], index_shape[dim], shape[dim],
    )  # fmt: skip


def gather(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at), (y,), dim = inputs, outputs, params["dim"]
    if y.size:
        lines, site = _lines(x.shape, at.shape, None, dim), work.faults.index("gather", x.shape, (dim,))
        function = work.kernel("scatter.cu", "gather", word(y), index_type(y.size))
        work.each(function, y.size, work.contiguous(x), work.contiguous(at), y, lines, work.faults.record, site)
        work.faults.check()


def _one_for_each_row(y: Any, at: Any, dim: int) -> bool:
    """Whether the index is one vector, repeated along all dimensions but `dim` of a target of those sizes."""
    return all(at.shape[d] == y.shape[d] and (at.shape[d] == 1 or at.strides[d] == 0) for d in range(len(y.shape)) if d != dim)


def _scatter(work: Work, name: str, y: Any, at: Any, source: Any, dim: int, mode: int, keep: bool = True) -> None:
    """mode: 0 add, 1 the last wins, 2 product, 3 maximum, 4 minimum; y holds the old values."""
    if not at.size:
        return
    number, site, record = at.shape[dim], work.faults.index(name, y.shape, (dim,)), work.faults.record
    if (number <= FEW or not segments.fits(at.size, y.size)) and y.size:
        targets = at.size // number * y.shape[dim]
        lines = _lines(y.shape, at.shape, source, dim)
        function = work.kernel("scatter.cu", "scatter", y.dtype, index_type(targets))
        work.each(function, targets, y, work.contiguous(at), source, lines, mode, int(keep), record, site)
    elif mode != 1 and _one_for_each_row(y, at, dim):
        vector = work.contiguous(at[tuple(slice(None) if d == dim else 0 for d in range(len(y.shape)))]).reshape((1, number))
        places = _places(work, name, vector, (y.shape[dim],), (0,), False)
        segments.add(work, y, places, work.contiguous(source), count(y.shape[dim + 1 :]), y.shape[dim], mode=mode, keep=keep)
    else:
        places = work.empty(at.shape, INT64)
        lines = _lines(y.shape, at.shape, None, dim)
        work.each(work.kernel("scatter.cu", "line_places", index_type(at.size)), at.size, work.contiguous(at), places, lines, record, site)
        if mode == 1:
            segments.put(work, y, places, work.contiguous(source), y.size)
        else:
            segments.add(work, y, places, work.contiguous(source), 1, y.size, mode=mode, keep=keep)
    work.faults.check()


def gather_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy, at), (y,) = inputs, outputs
    if y.size:
        work.driver.fill_zero(y)
        _scatter(work, "gather_backward", y, at, dy, params["dim"], 0)


def scatter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, source), (y,) = inputs, outputs
    work.copy(y, x)
    _scatter(work, "scatter", y, at, source, params["dim"], 1)


def scatter_add(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, source), (y,) = inputs, outputs
    work.copy(y, x)
    _scatter(work, "scatter_add", y, at, source, params["dim"], 0)


def scatter_reduce(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, source), (y,) = inputs, outputs
    work.copy(y, x)
    mode = {"prod": 2, "amax": 3, "amin": 4}[params["reduce"]]
    _scatter(work, "scatter_reduce", y, at, source, params["dim"], mode, params["include_self"])


def few_dims(specs: Sequence[Spec | None], outs: Sequence[Spec], params: dict[str, Any]) -> bool:
    """At most nine dimensions."""
    return len(outs[0].shape) <= 9


RULES = {
    ("index.cu", "index"): Rule(index, few_dims),
    ("index.cu", "index_backward"): Rule(index_backward, few_dims),
    ("index.cu", "index_put"): Rule(index_put, few_dims),
    ("index.cu", "embedding"): Rule(embedding),
    ("index.cu", "embedding_backward"): Rule(embedding_backward),
    ("scatter.cu", "gather"): Rule(gather, few_dims),
    ("scatter.cu", "gather_backward"): Rule(gather_backward, few_dims),
    ("scatter.cu", "scatter"): Rule(scatter, few_dims),
    ("scatter.cu", "scatter_add"): Rule(scatter_add, few_dims),
    ("scatter.cu", "scatter_reduce"): Rule(scatter_reduce, few_dims),
}
