"""How elements lie in memory, as plain data: strides, the memory formats, how results lie beside their operands. PyTorch's rules.

Strides are in bytes, as arrays have them, or in elements (`size=1`): the rules are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.dtype import DType
from gradlab.spec import cached_sizes, count

Strides = tuple[int, ...]
Laid = tuple[tuple[int, ...], Strides]  # a shape, and strides


class MemoryFormat:
    """An order of a tensor's elements in memory: `gradlab.contiguous_format`, `channels_last` of four dimensions, `channels_last_3d` of
    five; `preserve_format`, where a function takes it, is the order that the given tensor has."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{DType.package}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format, preserve_format = MemoryFormat("contiguous_format"), MemoryFormat("preserve_format")
channels_last, channels_last_3d = MemoryFormat("channels_last"), MemoryFormat("channels_last_3d")
RANKS = {channels_last: 4, channels_last_3d: 5}


def row_major(shape: Sequence[int], size: int) -> Strides:
    """The strides of what lies row by row."""
    found: list[int] = []
    for n in reversed(shape):
        found.append(size)
        size = size * max(n, 1)
    return tuple(reversed(found))


def is_row_major(shape: Sequence[int], strides: Strides, size: int) -> bool:
    """Whether elements lie row by row without gaps. The steps of dimensions of one element do not count."""
    if 0 in shape:
        return True
    for n, step in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if step != size:
                return False
            size = size * n
    return True


def in_order(shape: Sequence[int], order: Sequence[int], size: int) -> Strides:
    """Strides without gaps where dimension order[0] has the longest steps and order[-1] the shortest."""
    dense = row_major([shape[d] for d in order], size)
    return tuple(dense[order.index(d)] for d in range(len(shape)))


def channels_order(rank: int) -> tuple[int, ...]:
    """The order of dimensions in which channels, dimension 1, come last."""
    return (0, *range(2, rank), 1)


def formatted(shape: Sequence[int], chosen: MemoryFormat, size: int) -> Strides:
    """The strides of a memory format. RuntimeError for one that needs another number of dimensions."""
    rank = RANKS.get(chosen)
    if rank is None:
        return row_major(shape, size)
    if len(shape) != rank:
        raise RuntimeError(f"{chosen.name} is an order of tensors of {rank} dimensions, not of shape {tuple(shape)}")
    return in_order(shape, channels_order(rank), size)


def has_format(shape: Sequence[int], strides: Strides, chosen: MemoryFormat, size: int) -> bool:
    """Whether elements lie in a memory format without gaps; False for one of another number of dimensions."""
    rank = RANKS.get(chosen)
    if rank is None:
        return is_row_major(shape, strides, size)
    if len(shape) != rank:
        return False
    order = channels_order(rank)
    return is_row_major([shape[d] for d in order], tuple(strides[d] for d in order), size)


def dense_order(shape: Sequence[int], strides: Strides, size: int) -> tuple[int, ...] | None:
    """The order of dimensions in which elements lie row by row; None where there are gaps, or two in one place."""
    order = tuple(sorted(range(len(shape)), key=lambda d: (shape[d] != 1, -strides[d])))
    fits = is_row_major([shape[d] for d in order], tuple(strides[d] for d in order), size)
    return order if fits and 0 not in shape else None


def like_channels_last(shape: Sequence[int], strides: Strides) -> bool:
    """Whether an image's steps grow from channels over the sizes to the batch, gaps or not: what functions on images ask.

    One channel, or one pixel, lies so in row-major order, too; then the batch's steps tell.
    """
    rank = len(shape)
    if rank not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for d in reversed(channels_order(rank)):
        step = strides[d]
        if shape[d] == 0 or step < least or (d == 0 and least == strides[1]):
            return False
        least = step * max(shape[d], 1)
    return True


def suggested(shape: Sequence[int], strides: Strides) -> MemoryFormat:
    """The format in which functions on images give results of such an operand."""
    if not like_channels_last(shape, strides):
        return contiguous_format
    return channels_last if len(shape) == 4 else channels_last_3d


@cached_sizes(4096)
def preserved(shape: tuple[int, ...], strides: Strides, size: int) -> Strides:
    """How a copy lies: as what it is a copy of, where that has no gaps, otherwise in the same order of dimensions without them."""
    return strides if dense_order(shape, strides, size) is not None else beside((((shape), strides),), shape, size)


@cached_sizes(4096)
def beside(operands: tuple[Laid, ...], shape: tuple[int, ...], size: int) -> Strides:
    """How the result of an elementwise function of these operands lies, in elements of `size` bytes: dimensions are sorted by the operands'
    steps, of which the first that tells two apart decides. Operands' strides are in their own units."""
    if all(is_row_major(s, steps, steps_unit(s, steps)) for s, steps in operands):
        return row_major(shape, size)
    first = operands[0]
    unit = min(step for n, step in zip(*first, strict=True) if n != 1) if first[0] == shape and count(shape) > 1 else 0
    if unit and all(operand == first for operand in operands) and dense_order(*first, unit) is not None:
        return tuple(step // unit * size for step in first[1])
    rank = len(shape)
    wide = []
    for s, steps in operands:
        lead = rank - len(s)
        wide.append((*(0,) * lead, *(0 if s[d] == 1 != shape[lead + d] else steps[d] for d in range(len(s)))))

    def swapped(a: int, b: int) -> int:
        """Whether dimension a, which is further in, belongs further out than b: 1, or not: -1; 0 where no operand tells."""
        for steps in wide:
            if steps[a] and steps[b]:
                if steps[a] != steps[b]:
                    return 1 if steps[a] > steps[b] else -1
                if shape[a] > shape[b]:
                    return 1
        return 0

    order = list(range(rank - 1, -1, -1))  # from the innermost dimension
    for i in range(1, rank):
        at = i
        for j in range(i - 1, -1, -1):
            told = swapped(order[j], order[at])
            if told > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif told < 0:
                break
    return in_order(shape, order[::-1], size)


# ---------------------------------------------------------------- how a row's results lie (`Op.lies`)
#
# Each gives the strides of a result of `shape`, of elements of `size` bytes, from how the row's operands lie (None for what is no array).

Operands = tuple[Laid | None, ...]


def like_operands(operands: Operands, shape: tuple[int, ...], size: int, params: dict[str, Any]) -> Strides:
    """Of elementwise rows."""
    return beside(tuple([o for o in operands if o is not None]), shape, size)


def like_first(operands: Operands, shape: tuple[int, ...], size: int, params: dict[str, Any]) -> Strides:
    """Of copies of the first operand, and of results of its shape."""
    first = operands[0]
    if first is None or first[0] != shape:
        return row_major(shape, size)
    kept = beside((first,), shape, size)
    return kept if dense_order(shape, kept, size) else row_major(shape, size)


def like_images(operands: Operands, shape: tuple[int, ...], size: int, params: dict[str, Any]) -> Strides:
    """Of rows on images: channels last where the first operand's are."""
    return _images(operands[:1], any, shape, size)


def like_pictures(operands: Operands, shape: tuple[int, ...], size: int, params: dict[str, Any]) -> Strides:
    """As `like_images`, but volumes lie row by row."""
    return like_images(operands, shape, size, params) if len(shape) == 4 else row_major(shape, size)


def like_image_or_weight(operands: Operands, shape: tuple[int, ...], size: int, params: dict[str, Any]) -> Strides:
    """Of convolutions: channels last where those of the image or of the weight are."""
    return _images(operands[:2], any, shape, size)


def like_all_images(operands: Operands, shape: tuple[int, ...], size: int, params: dict[str, Any]) -> Strides:
    """Of what puts images together: channels last where those of all are."""
    return _images(operands, all, shape, size)


def _images(operands: Operands, which: Any, shape: tuple[int, ...], size: int) -> Strides:
    if len(shape) in (4, 5) and which([o is not None and like_channels_last(*o) for o in operands]):
        return in_order(shape, channels_order(len(shape)), size)
    return row_major(shape, size)


def result_orders(lies: Any, arrays: Sequence[Any], results: Sequence[Any], params: dict[str, Any]) -> list[tuple[int, ...] | None]:
    """Of each result of a row its order of dimensions in memory; None for row-major. results: Specs."""
    operands = tuple([(a.shape, a.strides) if hasattr(a, "strides") else None for a in arrays])
    found: list[tuple[int, ...] | None] = []
    for shape, dtype in results:
        strides = lies(operands, shape, dtype.itemsize, params)
        order = None if is_row_major(shape, strides, dtype.itemsize) else dense_order(shape, strides, dtype.itemsize)
        found.append(order)
    return found


def inverse_order(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def ordered(array: Any, order: tuple[int, ...], rank: int) -> Any:
    """An operand of an elementwise row with its dimensions, aligned to `rank` from the right, in another order."""
    lead = rank - array.ndim
    if lead:
        array = array[(None,) * lead + (...,)]
    return array.transpose(order)


def steps_unit(shape: Sequence[int], strides: Strides) -> int:
    """The unit that an operand's strides count in, if it lies row by row: the step of its last dimension of more than one element."""
    return next((step for n, step in zip(reversed(shape), reversed(strides), strict=True) if n != 1), 1)


def repeated(array: Any) -> tuple[int, ...]:
    """The dimensions along which the elements of an array are one memory location."""
    if 0 in array.shape:
        return ()
    return tuple(d for d, (step, size) in enumerate(zip(getattr(array, "strides", ()), array.shape)) if step == 0 and size > 1)


def is_writable(array: Any) -> bool:
    """Whether an array, which is none of a trace, can be written: its memory can, and no two of its elements lie in one place.

    What was expanded is read-only for NumPy, and so are its parts. A part without such elements may be written as far as its memory may,
    and is marked so here.
    """
    if not isinstance(array, np.ndarray):
        return not repeated(array)
    if array.flags.writeable:
        return True
    if array.flags.owndata or array.base is None or repeated(array):
        return False
    try:
        array.flags.writeable = True
    except ValueError:
        return False
    return True
