"""Reading and writing by index tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.layout import element_strides
from gradlab.backends.cuda.work import WORD_TYPES, Work
from gradlab.dtype import INT64
from gradlab.spec import Spec, count


def word(array: Any) -> str:
    """The C++ type of words of an array's element size."""
    return WORD_TYPES[array.dtype.itemsize]


def _front(dims: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The order that brings `dims` to the front."""
    return (*dims, *(d for d in range(rank) if d not in dims))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _place(dims: tuple[int, ...]) -> int:
    """Where the index's dimensions lie in the result: where the indexed ones were if they are neighbours, else in front."""
    return dims[0] if dims[-1] - dims[0] + 1 == len(dims) else 0


def _places(work: Work, at: Any, sizes: tuple[int, ...]) -> Any:
    """One place in the flattened indexed dimensions for each set of places."""
    number = count(at.shape[1:])
    places = work.empty((number,), INT64)
    dims = struct.pack("ii8q", len(sizes), 0, *sizes, *[1] * (8 - len(sizes)))
    work.each(work.kernel("index.cu", "linear_places"), number, work.contiguous(at), places, dims)
    return places


def _rows_order(at_rank: int, value_rank: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The order of the value's dimensions that brings those of the index to the front."""
    start = _place(dims)
    inner = range(start, start + at_rank)
    return (*inner, *(d for d in range(value_rank) if d not in inner))


def index(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at), (y,), dims = inputs, outputs, params["dims"]
    if not y.size:
        return
    sizes = tuple(x.shape[d] for d in dims)
    places = _places(work, at, sizes)
    if dims[-1] - dims[0] + 1 == len(dims):
        outer, inner = count(x.shape[: dims[0]]), count(x.shape[dims[-1] + 1 :])
        work.each(
            work.kernel("index.cu", "take", word(x)), outer * places.size * inner, work.contiguous(x), places, y, places.size, count(sizes), inner
        )
        return
    moved = work.contiguous(x.transpose(_front(dims, len(x.shape))))
    inner = count(moved.shape[len(dims) :])
    work.each(work.kernel("index.cu", "take", word(x)), places.size * inner, moved, places, y, places.size, count(sizes), inner)


def _add(work: Work, old: Any, places: Any, rows: Any, y: Any, width: int, targets: int, skip: int = -1) -> None:
    """y[places] = old (or zeros) + rows, for y as [targets, width]."""
    function = work.kernel("index.cu", "add_rows", y.dtype)
    work.launch(function, -(-targets // 4), 128, old, places, rows, y, places.size, width, skip, targets, rows=-(-width // 32))


def index_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy, at), (y,) = inputs, outputs
    _accumulate(work, None, at, dy, y, params["dims"])


def _accumulate(work: Work, x: Any, at: Any, value: Any, y: Any, dims: tuple[int, ...]) -> None:
    if not y.size:
        return
    shape, rank = y.shape, len(y.shape)
    sizes = tuple(shape[d] for d in dims)
    order = _front(dims, rank)
    targets, width = count(sizes), count(shape) // count(sizes)
    rows = work.contiguous(value.transpose(_rows_order(len(at.shape) - 1, len(value.shape), dims))) if len(value.shape) > 1 else work.contiguous(value)
    places = _places(work, at, sizes)
    straight = order == tuple(range(rank))
    old = None if x is None else work.contiguous(x if straight else x.transpose(order))
    total = y if straight else work.empty(tuple(shape[d] for d in order), y.dtype)
    _add(work, old, places, rows, total, width, targets)
    if not straight:
        work.copy(y, total.transpose(_inverse(order)))


def index_put(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, value), (y,), dims = inputs, outputs, params["dims"]
    if params["accumulate"]:
        _accumulate(work, x, at, value, y, dims)
        return
    if not value.size:
        work.copy(y, x)
        return
    shape, rank = y.shape, len(y.shape)
    sizes = tuple(shape[d] for d in dims)
    order = _front(dims, rank)
    straight = order == tuple(range(rank))
    total = y if straight else work.empty(tuple(shape[d] for d in order), y.dtype)
    work.copy(total, x if straight else x.transpose(order))
    targets, width = count(sizes), count(shape) // count(sizes)
    rows = work.contiguous(value.transpose(_rows_order(len(at.shape) - 1, len(value.shape), dims))) if len(value.shape) > 1 else work.contiguous(value)
    places = _places(work, at, sizes)
    function = work.kernel("index.cu", "put_rows", word(y))
    work.launch(function, -(-targets // 4), 128, places, rows, total, places.size, width, targets)
    if not straight:
        work.copy(y, total.transpose(_inverse(order)))


def embedding(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (weight, at), (y,) = inputs, outputs
    if y.size:
        rows, width = weight.shape
        work.each(work.kernel("index.cu", "take", word(y)), y.size, work.contiguous(weight), work.contiguous(at), y, at.size, rows, width)


def embedding_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy, at), (y,) = inputs, outputs
    if y.size:
        padding = params["padding_idx"]
        skip = -1 if padding is None else padding % y.shape[0]
        _add(work, None, work.contiguous(at), work.contiguous(dy), y, y.shape[1], y.shape[0], skip)


# ---------------------------------------------------------------- along one dimension


def _lines(shape: tuple[int, ...], index_shape: tuple[int, ...], source: Any, dim: int) -> bytes:
    """`Lines` of scatter.cu, for a row-major target of `shape`, a row-major index and any source (or None) that is read at the index's places."""

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
        "ii37q", len(others), 0, *row(index_shape), *row(index), *row(target), *row(origin), index[dim], target[dim], origin[dim], index_shape[dim],
        shape[dim],
    )  # fmt: skip


def gather(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at), (y,) = inputs, outputs
    if y.size:
        lines = _lines(x.shape, at.shape, None, params["dim"])
        work.each(work.kernel("scatter.cu", "gather", word(y)), y.size, work.contiguous(x), work.contiguous(at), y, lines)


def _scatter(work: Work, y: Any, at: Any, source: Any, dim: int, mode: int, keep: bool = True) -> None:
    if not at.size:
        return
    targets = at.size // at.shape[dim] * y.shape[dim]
    lines = _lines(y.shape, at.shape, source, dim)
    work.each(work.kernel("scatter.cu", "scatter", y.dtype, mode), targets, y, work.contiguous(at), source, lines, int(keep))


def gather_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy, at), (y,) = inputs, outputs
    if y.size:
        work.driver.fill_zero(y)
        _scatter(work, y, at, dy, params["dim"], 0)


def scatter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, source), (y,) = inputs, outputs
    work.copy(y, x)
    _scatter(work, y, at, source, params["dim"], 1)


def scatter_add(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, source), (y,) = inputs, outputs
    work.copy(y, x)
    _scatter(work, y, at, source, params["dim"], 0)


def scatter_reduce(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x, at, source), (y,) = inputs, outputs
    work.copy(y, x)
    mode = {"prod": 2, "amax": 3, "amin": 4}[params["reduce"]]
    _scatter(work, y, at, source, params["dim"], mode, params["include_self"])


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
