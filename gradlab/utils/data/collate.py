"""From a list of samples to one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError
from gradlab.tensor import Tensor
from gradlab.tensor.creation import from_numpy, tensor
from gradlab.tensor.shape import stack
from gradlab.utils.pillow import is_pillow, pixels

Stack = Callable[[list[Tensor]], Tensor]


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples: tensors, NumPy arrays and numbers along a new first dimension; strings stay a list; dicts, tuples and lists by entry.

    Images of Pillow's of one size and mode become uint8 (n, height, width, channels).
    Python floats become float64, integers int64. A tuple gives a list, a named tuple its own kind.
    Raises ValueError where tensors have different shapes (see `pad_collate`), RuntimeError where sequences have different lengths,
    TypeError for what cannot be collated.
    """
    return _collate(batch, _stack, "")


def pad_collate(batch: Sequence[Any], padding_value: float = 0, return_lengths: bool = False) -> Any:
    """As `default_collate`, but tensors whose first dimensions differ are first padded at their end to the longest.

    return_lengths: give (batch, lengths), `lengths` an int64 tensor with the first padded entry's lengths before padding (of the first
    tensor with dimensions where nothing was padded).
    To choose the value: `collate_fn=lambda batch: pad_collate(batch, padding_value=-1)`.
    """
    lengths: list[list[int]] = []
    padded: list[list[int]] = []

    def pad(tensors: list[Tensor]) -> Tensor:
        if not tensors[0].ndim or any(t.ndim != tensors[0].ndim for t in tensors):
            return _stack(tensors)
        sizes = [len(t) for t in tensors]
        lengths.append(sizes)
        longest = max(sizes)
        if min(sizes) == longest:
            return _stack(tensors)
        padded.append(sizes)
        wide = []
        for t in tensors:
            array = np.full((longest, *t.shape[1:]), padding_value, t._array.dtype)
            array[: len(t)] = t.detach().cpu().numpy()
            wide.append(from_numpy(array))
        return _stack(wide)

    found = _collate(batch, pad, "")
    if not return_lengths:
        return found
    if not lengths:
        raise TypeError("pad_collate: return_lengths=True, but the samples hold no tensor with dimensions")
    return found, tensor((padded or lengths)[0])


def _stack(tensors: list[Tensor]) -> Tensor:
    shapes = [t.shape for t in tensors]
    if len(set(shapes)) > 1:
        other = next(i for i, s in enumerate(shapes) if s != shapes[0])
        raise ShapeError(
            f"samples of different shapes do not stack: sample 0 of the batch has {shapes[0]}, sample {other} has {shapes[other]}; "
            f"pass collate_fn=gradlab.utils.data.pad_collate to pad them, or a collate_fn of your own"
        )
    return stack(tensors)


def _different(batch: Sequence[Any], where: str) -> TypeError:
    """What is said of a batch whose samples are not of one kind."""
    other = next((i for i, sample in enumerate(batch) if type(sample) is not type(batch[0])), 0)
    kinds = f"sample 0 of the batch is a {type(batch[0]).__name__}, sample {other} a {type(batch[other]).__name__}"
    return TypeError(f"default_collate: {f'entry {where}: ' if where else ''}{kinds}; pass a collate_fn of your own")


def _collate(batch: Sequence[Any], join: Stack, where: str) -> Any:
    first = batch[0]
    if is_pillow(first):
        return _collate_images(batch, join, where)
    try:
        if isinstance(first, Tensor):
            return join(list(batch))
        if isinstance(first, (np.ndarray, np.generic)) and first.dtype.kind not in "USO":
            return join([from_numpy(np.asarray(x)) for x in batch])
    except ShapeError as error:
        raise ShapeError(f"default_collate: {f'entry {where}: ' if where else ''}{error}") from None
    except AttributeError:
        raise _different(batch, where) from None
    if isinstance(first, float):
        return tensor(batch, dtype="float64")
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        found = {key: _collate([sample[key] for sample in batch], join, f"{where}[{key!r}]") for key in first}
        return _rebuilt(first, found)
    if isinstance(first, Sequence):
        if not all(isinstance(sample, Sequence) for sample in batch):
            raise _different(batch, where)
        sizes = [len(sample) for sample in batch]
        if len(set(sizes)) > 1:
            other = next(i for i, n in enumerate(sizes) if n != sizes[0])
            raise RuntimeError(
                f"default_collate: {f'entry {where}: ' if where else ''}each element in list of batch should be of equal size: "
                f"sample 0 of the batch has {sizes[0]} entries, sample {other} has {sizes[other]}; make tensors of them and pass "
                f"collate_fn=gradlab.utils.data.pad_collate to pad them, or a collate_fn of your own"
            )
        parts = [_collate([sample[i] for sample in batch], join, f"{where}[{i}]") for i in range(sizes[0])]
        return type(first)(*parts) if isinstance(first, tuple) and hasattr(first, "_fields") else parts
    raise TypeError(
        f"default_collate: a batch holds tensors, NumPy arrays, images, numbers, strings, dicts, tuples and lists, "
        f"not {type(first).__name__}{f' (entry {where})' if where else ''}; pass a collate_fn of your own"
    )


def _collate_images(batch: Sequence[Any], join: Stack, where: str) -> Tensor:
    """Images of Pillow's as uint8 (n, height, width, channels), or what else their modes hold."""
    arrays = [pixels(image) for image in batch]
    if len({a.shape for a in arrays}) > 1:
        found = ", ".join(dict.fromkeys(f"{image.width} x {image.height} {image.mode}" for image in batch))
        raise ShapeError(
            f"default_collate: {f'entry {where}: ' if where else ''}images of several sizes or modes do not stack: {found}; resize or "
            f"convert them in the dataset (gradlab.transforms.Resize((height, width)), image.convert('RGB')), or pass your own collate_fn"
        )
    return join([from_numpy(a) for a in arrays])


def default_convert(data: Any) -> Any:
    """NumPy arrays in a sample as tensors; all else as it is. What a DataLoader without batches does."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "USO":
        return from_numpy(np.asarray(data))
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple):
        parts = [default_convert(value) for value in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    if isinstance(data, list):
        return [default_convert(value) for value in data]
    return data


def _rebuilt(like: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    """The entries in the mapping's own type, where that takes a dict."""
    if type(like) is dict:
        return entries
    try:
        return type(like)(entries)  # type: ignore[call-arg]
    except TypeError:
        return entries


named_functions(__name__)
