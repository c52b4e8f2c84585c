"""Indexing with []: integers, slices, None and Ellipsis give views; index tensors, lists and masks copy. Writing with [] =.

The basic part of an index is done first by one view row; then there is at most one advanced step on that view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import ops
from gradlab.autograd import inplace
from gradlab.autograd.base import Differentiable, version_of
from gradlab.autograd.mode import current, widest
from gradlab.autograd.record import bind, finish, refresh, wrap
from gradlab.dispatch import by_kernel
from gradlab.dtype import BOOL, INT64
from gradlab.named_errors import explain, named_functions
from gradlab.op import Op
from gradlab.ops.indexing import picked_shape, place
from gradlab.spec import DimensionError, ShapeError, broadcast_shapes, count, spec_of
from gradlab.tensor.convert import moved
from gradlab.tensor.from_data import SURE, beyond, operand
from gradlab.tensor.in_place_methods import assign, ordinary, outside_graphs, unrepeated
from gradlab.tensor.index_parts import ALL, Parsed, as_index, basic, bounds, checked, joined, known, match_mask, parse, width

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["index_put"]

_slice, _index, _index_put, _nonzero, _where = map(
    bind, (ops.movement.slice_, ops.indexing.index, ops.indexing.index_put, ops.indexing.nonzero, ops.elementwise.where)
)


def plain(basic: list[Any]) -> bool:
    """Whether a basic index changes nothing."""
    return all(part == ALL for part in basic)


def getitem(input: Tensor, index: Any) -> Tensor:
    """input[index]: a view for integers, slices, None and Ellipsis; a copy for index tensors, lists, arrays and masks.

    Raises IndexError for places that do not exist and for what is no index, ValueError for a slice's step that is not positive.
    """
    try:
        kind = type(index)
        if kind is int:
            shape = input._array.shape
            if not shape:
                raise DimensionError("index: a 0-d tensor has no dimension to index; use item() for its number")
            return _slice(input, index=(checked(index, 0, shape),))
        if kind is slice and input._array.shape:
            return _slice(input, index=(bounds(index),))
        if kind is tuple and (parts := basic(index, input._array.shape)) is not None:
            return _slice(input, index=tuple(parts))
        if isinstance(index, Differentiable):  # the commonest, without a list of parts
            at: Any = index._array
            if type(at) is np.ndarray and at.dtype is INT64 and at.ndim and input._array.shape and not current().special:
                if index._meta is not None:
                    refresh(index)
                kept = input._edge is not None and current().recording  # then it is to be known if it is written
                row: Any = index.unsqueeze(0) if kept else wrap(index._array[None])  # type: ignore[attr-defined]
                return _index(input, row, dims=(0,), wrap=True)
        found = parse(index, input)
        advanced = found.advanced
        result: Any = input
        if not (advanced or found.numbers) or not plain(found.basic):
            result = _slice(result, index=tuple(found.basic))
        for dim, number in reversed(found.numbers):
            result = _index(result, number.reshape(1), dims=(dim,), wrap=True)
            advanced = [(d - 1 if d > dim else d, t) for d, t in advanced]
        if not advanced:
            return result
        if len(advanced) == 1 and advanced[0][1]._array.dtype == BOOL:
            return _masked(result, *advanced[0])
        at, dims = joined(advanced)
        return _index(result, at, dims=dims, wrap=True)
    except Exception as error:
        explain(error, "__getitem__", getitem, (input, index))


def _masked(input: Any, dim: int, mask: Any) -> Tensor:
    """input[mask]: the dimensions of the mask are made one, which costs nothing for a contiguous input."""
    shape, rank = input._array.shape, len(mask._array.shape)
    if rank > 1:
        input, mask = input.reshape((*shape[:dim], count(shape[dim : dim + rank]), *shape[dim + rank :])), mask.reshape(-1)
    return _index(input, _nonzero(mask).t(), dims=(dim,), wrap=True)


# ---------------------------------------------------------------- writing


KEPT = 1024  # calls whose rules were asked
KERNEL = 1 << 12  # elements that are written by a kernel and copied, however few of them change
_inferred: set[Any] = set()


def shares(a: Any, b: Any) -> bool:
    """Whether two arrays may have elements in common. Two that own their memory do not."""
    return a is b or ((a.base is not None or b.base is not None) and bool(np.may_share_memory(a, b)))


def write_into(name: str, target: Tensor, op: Op, rest: Sequence[Any], params: dict[str, Any]) -> Any:
    """target = op(target, *rest), in place. Where possible the row writes straight into the memory: its `cpu` takes its input as output."""
    if target._meta is not None:
        refresh(target)
    mode = current()
    inplace.check(name, target, mode)
    for x in rest:
        if x._meta is not None:
            refresh(x)
    array = target._array
    arrays = [x._array for x in rest]
    if mode.special or type(array) is not np.ndarray or {*map(type, arrays)} - {np.ndarray}:
        return assign(name, target, bind(op)(inplace.alias(target), *rest, **params))
    facts: list[Any] = [op, array.shape, array.dtype, *params.items()]
    for a in arrays:
        facts += a.shape, a.dtype
    key = tuple(facts)
    if key not in _inferred:
        op.infer(*map(spec_of, (array, *arrays)), **params)
        if len(_inferred) >= KEPT:
            _inferred.clear()
        _inferred.add(key)
    arrays = [a.copy() if shares(a, array) else a for a in arrays]
    if outside_graphs(target, mode) and not (mode.recording and any(x._edge is not None for x in rest)):
        # A kernel gives a copy, so that nothing is written where an index lies outside; it pays where not much else is copied.
        most = max(KERNEL, 4 * arrays[-1].size)
        found = by_kernel(op, (array, *arrays), params) if op.pays <= array.size <= most else None
        if found is None:
            op.quietly(array, *arrays, array, **params)
        else:
            np.copyto(array, found)
        inplace.written(version_of(target))
        return target
    bind(op)
    twin = inplace.alias(target)
    op.quietly(array, *arrays, array, **params)
    return inplace.write(name, target, finish(op, [twin, *rest], params, array, mode))


def fitted(name: str, value: Any, shape: tuple[int, ...], like: Tensor) -> Any:
    """A value (number, array or tensor) in the dtype of `like`, broadcast to `shape`; sizes of 1 too many in front are dropped."""
    if not isinstance(value, Differentiable):
        value = moved(wrap(np.asarray(value)), like.device) if isinstance(value, (np.ndarray, list, tuple)) else operand(like, value)
    own = value._array.shape
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    try:
        fits = broadcast_shapes(own, shape) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"{name}: a value of shape {value._array.shape} does not fit the indexed part of shape {shape}")
    if own != value._array.shape:
        value = value.reshape(own)
    if value._array.dtype != like._array.dtype:
        value = value.to(like._array.dtype)
    return value if own == shape else value.expand(shape)


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """input[index] = value, in place; the value is broadcast and cast. Of several values for one place the last one stays.

    Raises as `getitem`, ShapeError where the value does not fit, RuntimeError for a leaf that requires grad.
    """
    try:
        if ordinary(input) and _written(input, index, value):
            return
        if unrepeated(input) is None:
            inplace.check("__setitem__", input, current())
        elif one(value):  # which goes to all of an expanded tensor's equal places
            mask = input.new_zeros(input.shape, dtype=BOOL)
            mask[index] = True
            input.masked_fill_(mask, fitted("__setitem__", value, (), input))
            return
        found = parse(index, input)
        advanced = found.advanced + found.numbers
        target: Any = input if advanced and plain(found.basic) else _slice(input, index=tuple(found.basic))
        if _write_directly(target, advanced, value):
            return
        if not advanced:
            target.copy_(fitted("__setitem__", value, target._array.shape, input))
            return
        if len(advanced) == 1 and advanced[0][1]._array.dtype == BOOL and not known(input) and one(value):
            _fill(target, advanced[0], value)
            return
        advanced.sort(key=lambda item: item[0])
        at, dims = joined(advanced)
        shape = picked_shape(target._array.shape, at._array.shape, dims)
        fixed = tuple(d for d, t in advanced if t._array.shape) if found.numbers and found.advanced else ()
        if fixed:
            value = _rearranged(value, shape, at, dims, found, input)
        value = fitted("__setitem__", value, shape, input)
        write_into("__setitem__", target, ops.indexing.index_put, (at, value), {"dims": dims, "accumulate": False, "wrap": True})
    except Exception as error:
        explain(error, "__setitem__", setitem, (input, index, value))


_PLAIN = frozenset({int, type(None)})
_SIMPLE = frozenset({int, type(None), type(Ellipsis)})


def _simple(part: Any) -> bool:
    """Whether NumPy's index means here what ours does, of a tensor's dimension."""
    kind = type(part)
    if kind is slice:
        step = part.step
        return type(part.start) in _PLAIN and type(part.stop) in _PLAIN and (step is None or (type(step) is int and step > 0))
    return kind in _SIMPLE


def _written(target: Any, index: Any, value: Any) -> bool:
    """NumPy's own writing into an `ordinary` target; False where that is not so plain."""
    if type(value) is not float and type(value) is not int:
        found = getattr(value, "_array", None)
        if type(found) is not np.ndarray or found.dtype is not target._array.dtype or (value._edge is not None and current().recording):
            return False
        if value._meta is not None:
            refresh(value)
        value = value._array
        if not value.size or value.ndim > target._array.ndim:
            return False
    elif not -SURE <= value <= SURE and beyond(value, target._array.dtype):
        return False
    if type(index) is tuple:
        for part in index:
            if not _simple(part):
                return False
        if Ellipsis not in index:  # so that a single element is a view, into which no vector goes
            index = (*index, Ellipsis)
    elif type(index) is int:
        index = (index, Ellipsis)
    elif not _simple(index):
        at = getattr(index, "_array", None)
        if type(at) is not np.ndarray or not at.ndim or (at.dtype is not INT64 and at.dtype is not BOOL):
            return False
        if index._meta is not None:
            refresh(index)
        index = index._array
    try:
        target._array[index] = value
    except (ValueError, IndexError, TypeError, OverflowError):
        return False  # the general way says what is wrong
    inplace.written(version_of(target))
    return True


def _write_directly(target: Any, advanced: list[tuple[int, Any]], value: Any) -> bool:
    """NumPy's own writing, where there is nothing to record and nothing to convert; False where that is not so."""
    mode = current()
    meta = target._meta
    if mode.special or target._edge is not None or (meta is not None and meta.base is not None and meta.base._edge is not None):
        return False
    if isinstance(value, Differentiable):
        if value._meta is not None:
            refresh(value)
        if value._edge is not None:
            return False
        value = value._array
        if type(value) is not np.ndarray or value.dtype != target._array.dtype or value.ndim > target._array.ndim or not value.size:
            return False
    elif (type(value) is not float and type(value) is not int and type(value) is not complex) or beyond(value, target._array.dtype):
        return False
    array = target._array
    if type(array) is not np.ndarray or array.dtype.kind not in "fic":
        return False
    key: list[Any] = [slice(None)] * array.ndim
    for dim, places in advanced:
        rank = width(places)
        key[dim : dim + rank] = [places._array, *[None] * (rank - 1)]  # a mask stands for its dimensions
    try:
        array[tuple(k for k in key if k is not None) if advanced else ...] = value
    except (ValueError, IndexError, TypeError, OverflowError):
        return False  # the general way says what is wrong
    inplace.write("__setitem__", target, wrap(array))
    return True


def one(value: Any) -> bool:
    """Whether a value is a single number."""
    shape = value._array.shape if isinstance(value, Differentiable) else np.shape(value)
    return all(size == 1 for size in shape)


def _fill(target: Any, item: tuple[int, Any], value: Any) -> None:
    """Write one value where a mask is true, without knowing how many places that are."""
    dim, mask = item
    shape = target._array.shape
    mask = mask.reshape((*mask._array.shape, *[1] * (len(shape) - dim - len(mask._array.shape))))
    value = fitted("__setitem__", value.reshape(()) if isinstance(value, Differentiable) else value, (), target)  # type: ignore[attr-defined]
    assign("__setitem__", target, _where(mask, value, inplace.alias(target)))


def _rearranged(value: Any, shape: tuple[int, ...], at: Any, dims: tuple[int, ...], found: Parsed, like: Tensor) -> Any:
    """The value's dimensions in the row's order, in a trace, where 0-d index tensors take part and may have moved the others' place.

    Without them the index tensors' dimensions would stand at `start`; the row has them at `place(dims)`.
    """
    removed = [d for d, _ in found.numbers]
    kept = tuple(d - sum(r < d for r in removed) for d in dims if d not in removed)
    start, own, depth = place(kept), place(dims), len(at._array.shape) - 1
    rest = [*shape[:own], *shape[own + depth :]]
    value = fitted("__setitem__", value, (*rest[:start], *at._array.shape[1:], *rest[start:]), like)
    order = [d for d in range(len(shape)) if not start <= d < start + depth]
    return value.permute(*order[:own], *range(start, start + depth), *order[own:])


# ---------------------------------------------------------------- index_put


def _put_arguments(name: str, input: Tensor, indices: Sequence[Any], values: Any) -> tuple[Any, Any, tuple[int, ...]]:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"{name}: indices are a tuple of tensors, not {type(indices).__name__}")
    for i in indices:
        if i is not None and not isinstance(i, Differentiable):
            raise TypeError(f"{name}: indices are tensors, not {type(i).__name__}")
    if not isinstance(values, Differentiable):
        raise TypeError(f"{name}: values are a tensor, not {type(values).__name__}")
    if values._array.dtype != input._array.dtype:
        raise RuntimeError(f"{name}: values of type {values._array.dtype} for a tensor of type {input._array.dtype}; convert one of them")
    shape = input._array.shape
    advanced, dim = [], 0
    for part in indices:
        if part is None:
            dim += 1
            continue
        part = as_index(part, input)
        if part._array.dtype == BOOL:
            match_mask(name, part, shape, dim)
        advanced.append((dim, part))
        dim += width(part)
    if dim > len(shape):
        raise DimensionError(f"{name}: too many indices: {dim} for a tensor of {len(shape)} dimensions (shape {shape})")
    if not advanced:
        raise IndexError(f"{name}: at least one index tensor is needed")
    at, dims = joined(advanced)
    return at, fitted(name, values, picked_shape(shape, at._array.shape, dims), input), dims


def index_put(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` (broadcast, of input's dtype) at `input[indices]`; `indices` is a tuple of index tensors or masks.

    accumulate: add instead of replace; repeated places then add up, in order. Else the last value stays.

    >>> gl.index_put(gl.zeros(3), (gl.tensor([1]),), gl.tensor(5.0))
    tensor([0., 5., 0.])
    """
    if isinstance(values, Differentiable) and values._array.dtype != input._array.dtype:
        found = widest(lambda x, v: index_put(x, indices, v, accumulate), input, values)
        if found is not None:
            return found
    at, values, dims = _put_arguments("index_put", input, indices, values)
    return _index_put(input, at, values, dims=dims, accumulate=bool(accumulate), wrap=True)


getitem.__name__, setitem.__name__ = "__getitem__", "__setitem__"  # as a class that answers for functions is told


named_functions(__name__)


class IndexingMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()
    __getitem__, __setitem__, index_put = getitem, setitem, index_put

    def index_put_(self: Any, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Any:
        """index_put, in place.

        >>> gl.zeros(3).index_put_((gl.tensor([2, 0]),), gl.tensor([1.0, 2.0]))
        tensor([2., 0., 1.])
        """
        at, values, dims = _put_arguments("index_put_", self, indices, values)
        params = {"dims": dims, "accumulate": bool(accumulate), "wrap": True}
        return write_into("index_put_", self, ops.indexing.index_put, (at, values), params)
