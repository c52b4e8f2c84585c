"""What an index means: taking apart what stands in x[...].

An index is taken apart into a basic part (integers, slices, None, Ellipsis), done first by one view row, and what remains: index tensors
and masks by dimension of that view. As in PyTorch (and unlike NumPy) integers belong to the basic part, so they do not move the
dimensions that index tensors make. Used by `indexing.py` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import dispatch, ops
from gradlab.advice import warn
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.autograd.record import bind, wrap
from gradlab.dtype import BOOL, INT64, uint8
from gradlab.spec import DimensionError, ShapeError, broadcast_shapes
from gradlab.tensor.convert import moved

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

_nonzero, _cat = map(bind, (ops.indexing.nonzero, ops.movement.cat))
ALL = (0, None, 1)
UINT8 = uint8.dtype
_WHOLE = (np.dtype(np.int32), INT64)
_PARTS = (Differentiable, slice, list, tuple, range, np.ndarray)


class Parsed:
    """An index taken apart: the canonical basic index, and index tensors (and masks) by dimension of what the basic index leaves."""

    __slots__ = ("advanced", "basic", "numbers")

    def __init__(self) -> None:
        self.basic: list[Any] = []
        self.advanced: list[tuple[int, Any]] = []
        self.numbers: list[tuple[int, Any]] = []  # 0-d index tensors whose value is not known: in a trace


def kind_error(part: Any) -> IndexError:
    """What to say of something that is no index."""
    if isinstance(part, Differentiable):
        return IndexError(f"index: a tensor of type {part._array.dtype} is no index: index tensors are int64, int32 or bool")
    allowed = "integers, slices, None, Ellipsis, and lists, arrays or tensors of integers or bools"
    return IndexError(f"index: {type(part).__name__} is no index: use {allowed}")


def as_index(part: Any, like: Tensor) -> Any:
    """A list, tuple, range, NumPy array or tensor as an index tensor or mask; one of uint8 is a mask, with a UserWarning."""
    if not isinstance(part, Differentiable):
        if not isinstance(part, (list, tuple, range, np.ndarray)):
            raise kind_error(part)
        array = np.asarray([_plain(p) for p in part] if isinstance(part, (list, tuple)) else part)
        if array.size == 0 and not isinstance(part, np.ndarray):
            array = array.astype(INT64)
        elif array.dtype.kind in "iu" and array.dtype != np.uint8:
            array = array.astype(INT64)
        if array.dtype not in (BOOL, INT64, UINT8):
            raise kind_error(part if isinstance(part, np.ndarray) else wrap(array) if array.dtype.kind in "fiub" else part)
        part = moved(wrap(array), like.device)
    dtype = part._array.dtype
    if dtype != INT64 and dtype != BOOL:
        if dtype == UINT8:
            warn(UserWarning, "index: a uint8 tensor is taken for a mask, as PyTorch's older scripts mean it; say so: .bool(), or .long()")
        elif dtype not in _WHOLE and (dtype.kind != "i" or part._array.shape):  # without dimensions any integer is one
            raise kind_error(part)
        part = part.to(BOOL if dtype == UINT8 else INT64)
    return part


def _plain(part: Any) -> Any:
    """An element of a list that serves as an index."""
    if isinstance(part, Differentiable):
        return part.detach().cpu().numpy()  # type: ignore[attr-defined]
    return [_plain(p) for p in part] if isinstance(part, (list, tuple)) else part


def known(tensor: Any) -> bool:
    """Whether the values can be looked at now: not in a trace."""
    return current().tracer is None and not dispatch.backend_of(tensor._array).staged and tensor.device.type != "meta"


def at_hand(tensor: Any) -> bool:
    """Whether a check may read the values: known, and not where a CUDA graph is captured, which a read would end."""
    driver = getattr(dispatch.backend_of(tensor._array), "driver", None)
    return known(tensor) and not (driver is not None and driver.capturing())


def checked(number: int, dim: int, shape: tuple[int, ...]) -> int:
    """An integer index. Raises DimensionError where the dimension has no such place."""
    if not -shape[dim] <= number < shape[dim]:
        raise DimensionError(f"index: {number} is out of range for dimension {dim} of size {shape[dim]} (shape {shape})")
    return number


def bounds(part: slice) -> tuple[Any, ...]:
    """A slice as the slice row takes it. Raises ValueError for a step that is not positive."""
    start, stop, step = part.start, part.stop, part.step
    try:
        start = 0 if start is None else start.__index__()
        stop = None if stop is None else stop.__index__()
        step = 1 if step is None else step.__index__()
    except AttributeError:
        raise TypeError(f"index: the bounds of a slice are integers or None, in {part}") from None
    if step <= 0:
        raise ValueError(f"index: a slice's step must be positive, not {step}; use flip")
    return (start, stop, step)


def basic(index: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any] | None:
    """The parts of an index of integers, slices, None and one Ellipsis, as the slice row takes them; None for any other."""
    found: list[Any] = []
    dim, seen = 0, False
    for part in index:
        kind = type(part)
        if kind is int or kind is slice:
            if dim >= len(shape):
                return None
            found.append(checked(part, dim, shape) if kind is int else bounds(part))
            dim += 1
        elif part is None:
            found.append(None)
        elif part is Ellipsis:
            left = len(shape) - sum([p is not None and p is not Ellipsis for p in index])
            if left < 0 or seen:
                return None
            found += [ALL] * left
            dim, seen = dim + left, True
        else:
            return None
    return found


def width(part: Any) -> int:
    """How many dimensions a part of an index (already an index tensor where it is one) takes."""
    if part is None or part is Ellipsis or part is True or part is False:
        return 0
    return len(part._array.shape) if isinstance(part, Differentiable) and part._array.dtype == BOOL else 1


def _several(index: list[Any]) -> bool:
    """Whether a list is a tuple of indices, as in PyTorch: of fewer than 32 parts of which one is no number. Where NumPy would take it for
    one index tensor (it holds sequences alone), a UserWarning says so."""
    if len(index) >= 32 or not any(p is None or p is Ellipsis or isinstance(p, _PARTS) for p in index):
        return False
    if all(isinstance(part, (list, tuple, range, np.ndarray)) for part in index):
        warn(UserWarning, "index: a list of sequences is a tuple of indices, as in PyTorch (in NumPy it is one); write x[tuple(index)]")
    return True


def parse(index: Any, tensor: Tensor) -> Parsed:
    """Take an index apart. Raises IndexError (and ValueError, TypeError for slices) where it does not fit the tensor."""
    shape = tensor._array.shape
    several = type(index) is tuple or (type(index) is list and _several(index))
    parts = list(index) if several else [index]
    for i, part in enumerate(parts):
        if isinstance(part, (bool, np.bool_)):
            parts[i] = bool(part)
        elif not (part is None or part is Ellipsis or isinstance(part, (int, slice))):
            parts[i] = int(part) if isinstance(part, np.integer) else as_index(part, tensor)
    used = sum(map(width, parts))
    if used > len(shape):
        raise DimensionError(f"index: too many indices: {used} for a tensor of {len(shape)} dimensions (shape {shape})")
    found = Parsed()
    basic = found.basic
    dim = out = 0  # the dimension of the tensor, and of what the basic index leaves
    ellipsis = False
    for part in parts:
        if part is Ellipsis:
            if ellipsis:
                raise IndexError("index: an index can have only one Ellipsis (...)")
            ellipsis = True
            basic += [ALL] * (len(shape) - used)
            dim, out = dim + len(shape) - used, out + len(shape) - used
        elif part is None:
            basic.append(None)
            out += 1
        elif isinstance(part, slice):
            basic.append(bounds(part))
            dim, out = dim + 1, out + 1
        elif part is True or part is False:
            basic.append(None)
            found.advanced.append((out, moved(wrap(np.array([part])), tensor.device)))
            out += 1
        elif isinstance(part, int):
            basic.append(checked(part, dim, shape))
            dim += 1
        elif part._array.dtype == BOOL:
            dim, out = _mask(found, part, dim, out, shape)
        elif not part._array.shape and known(part):
            basic.append(checked(int(part.item()), dim, shape))
            dim += 1
        else:
            basic.append(ALL)
            (found.advanced if part._array.shape else found.numbers).append((out, part))
            dim, out = dim + 1, out + 1
    return found


def match_mask(name: str, mask: Any, shape: tuple[int, ...], dim: int) -> None:
    """Raise DimensionError unless the mask has the shape of the dimensions that it selects from."""
    own = mask._array.shape
    if own != shape[dim : dim + len(own)]:
        raise DimensionError(f"{name}: the mask of shape {own} does not match the tensor of shape {shape} at dimension {dim}")


def _mask(found: Parsed, mask: Any, dim: int, out: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Add a mask to an index; a 0-d one applies to a new dimension of size 1."""
    rank = len(mask._array.shape)
    if not rank:
        found.basic.append(None)
        found.advanced.append((out, mask.reshape(1)))
        return dim, out + 1
    match_mask("index", mask, shape, dim)
    found.basic += [ALL] * rank
    found.advanced.append((out, mask))
    return dim + rank, out + rank


def joined(advanced: list[tuple[int, Any]]) -> tuple[Any, tuple[int, ...]]:
    """Index tensors and masks as one index tensor (k, *s) and the k dimensions. Raises IndexError where they do not broadcast."""
    if len(advanced) == 1:
        dim, tensor = advanced[0]
        if tensor._array.dtype == BOOL:
            return _nonzero(tensor).t(), tuple(range(dim, dim + len(tensor._array.shape)))
        return tensor.unsqueeze(0), (dim,)
    columns: list[Any] = []
    dims: list[int] = []
    for dim, tensor in advanced:
        if tensor._array.dtype == BOOL:
            columns += _nonzero(tensor).unbind(1)
            dims += range(dim, dim + len(tensor._array.shape))
        else:
            columns.append(tensor)
            dims.append(dim)
    shapes = [c._array.shape for c in columns]
    try:
        shape = broadcast_shapes(*shapes)
    except ShapeError:
        raise IndexError(f"index: index tensors of shapes {', '.join(map(str, shapes))} do not broadcast together") from None
    if known(columns[0]) and all(type(c._array) is np.ndarray for c in columns):
        at = np.empty((len(columns), *shape), INT64)
        for i, column in enumerate(columns):
            at[i] = column._array
        return wrap(at), tuple(dims)
    return _cat(*(c.expand(shape).unsqueeze(0) for c in columns), dim=0), tuple(dims)
