"""Datasets: what can be asked for sample number i, or gives its samples one after another."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from gradlab.autograd.record import wrap
from gradlab.named_errors import name_classes, named
from gradlab.tensor import Tensor
from gradlab.tensor.creation import as_tensor, tensor
from gradlab.tensor.generator import Generator
from gradlab.tensor.random import randperm

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from indices to samples: a subclass gives `__getitem__` and `__len__`. `Dataset[T]` says what its samples are."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name_classes(cls, "__init__ __getitem__")

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__: a dataset returns the sample of an index")

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """A stream of samples: a subclass gives `__iter__`. Each worker of a DataLoader runs all of it: split it by `get_worker_info()`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


def rows(source: Tensor, indices: Sequence[int]) -> Tensor:
    """Entries of the first dimension, copied at once."""
    array = source._array
    if type(array) is np.ndarray and source._edge is None:
        return wrap(array.take(indices, axis=0))
    return source.index_select(0, tensor(list(indices), device=source.device))


class Rows(Dataset[dict[str, Any]]):
    """The rows of a data frame as samples: dicts of what each column holds."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        names = frame.dtype.names if isinstance(frame, np.ndarray) else frame.columns
        self.columns = {str(name): np.asarray(frame[name]) for name in names}

    def __getitem__(self, index: Any) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}

    def __len__(self) -> int:
        return len(self.frame)


def samples_in(source: Any) -> Any:
    """What can be asked for sample number i: the source itself, or the rows of a data frame (of pandas, polars and their like, which have
    columns and a shape; of a structured array), or the values of a pandas Series, whose indices are labels."""
    if isinstance(source, (Dataset, Tensor, list, tuple)):
        return source
    frame = hasattr(source, "columns") and hasattr(source, "shape") and hasattr(source, "dtypes")
    if frame or (isinstance(source, np.ndarray) and source.dtype.names):
        return Rows(source)
    return np.asarray(source) if hasattr(source, "iloc") else source


def is_stream(source: Any) -> bool:
    """Whether a dataset gives its samples one after another: an IterableDataset, or what can be iterated anew but has no length."""
    other = hasattr(source, "__iter__") and not hasattr(source, "__len__") and not hasattr(source, "__next__")
    return isinstance(source, IterableDataset) or (other and not isinstance(source, Dataset))


def _as_tensor(source: Any) -> Tensor:
    if isinstance(source, Tensor):
        return source
    if not (hasattr(source, "__array__") or hasattr(source, "__array_interface__") or hasattr(source, "__dlpack__")):
        raise TypeError(f"TensorDataset: expected tensors, arrays, data frames or columns, got {type(source).__name__}; use tensor(...)")
    return as_tensor(source)


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Samples are the entries of the first dimension of each tensor, as a tuple. Batches are taken at once, without stacking samples.

    NumPy arrays, data frames of numbers and their columns become tensors (arrays share their memory), whatever library they are of.
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ValueError("TensorDataset: at least one tensor is needed")
        tensors = tuple(map(_as_tensor, tensors))
        for t in tensors:
            if not t.ndim:
                raise ValueError("TensorDataset: a 0-d tensor has no samples")
        sizes = [len(t) for t in tensors]
        if len(set(sizes)) > 1:
            raise ValueError(f"TensorDataset: Size mismatch between tensors: their first dimensions are {', '.join(map(str, sizes))}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def take_batch(self, indices: Sequence[int]) -> list[Any]:
        """The batch of those samples: what collating them would give."""
        return [rows(t, indices) for t in self.tensors]


class Subset(Dataset[T_co]):
    """Some samples of another dataset, in the given order."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = samples_in(dataset)
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    def take_batch(self, indices: Sequence[int]) -> Any:
        """The batch of those samples; only where the underlying dataset takes batches at once."""
        return self.dataset.take_batch([self.indices[i] for i in indices])


def takes_batches(dataset: Any) -> bool:
    """Whether a batch can be taken at once: not where a subclass has its own `__getitem__`."""
    while type(dataset).__getitem__ is Subset.__getitem__ and isinstance(dataset, Subset):
        dataset = dataset.dataset
    return isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__


class ConcatDataset(Dataset[T_co]):
    """Datasets one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(map(samples_in, datasets))
        if not self.datasets:
            raise ValueError("ConcatDataset: at least one dataset is needed")
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise TypeError("ConcatDataset: a stream has no indices; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        part = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[part][place - (self.cumulative_sizes[part - 1] if part else 0)]


class ChainDataset(IterableDataset[T_co]):
    """Streams one after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise TypeError(f"ChainDataset: joins streams (IterableDataset), not {type(d).__name__}; use ConcatDataset")

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class StackDataset(Dataset[T_co]):
    """Datasets side by side: a sample is a tuple of their samples, or a dict where they are given by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: datasets are given either by position (samples are tuples) or by name (samples are dicts)")
        self.datasets: Any = tuple(map(samples_in, args)) or {name: samples_in(d) for name, d in kwargs.items()}
        sizes = [len(d) for d in (args or kwargs.values())]
        if len(set(sizes)) > 1:
            raise ValueError(f"StackDataset: Size mismatch between datasets: {', '.join(map(str, sizes))}")
        self._length = sizes[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: d[index] for name, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self) -> int:
        return self._length


@named
def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset[Any]]:
    """Split a dataset at random into parts of the given lengths, or of the given fractions (which add up to 1).

    Fractions are rounded down, and what remains goes to the first parts one by one. ValueError where lengths do not add up.
    """
    total = len(dataset)
    if any(isinstance(n, float) for n in lengths) and math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        if any(not 0 <= f <= 1 for f in lengths):
            raise ValueError(f"random_split: each fraction must be from 0 to 1: {list(lengths)}")
        sizes = [math.floor(total * f) for f in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    elif any(isinstance(n, float) for n in lengths):
        raise ValueError(f"random_split: the fractions {list(lengths)} add up to {sum(lengths)}, not to 1")
    else:
        sizes = [operator.index(n) for n in lengths]  # type: ignore[arg-type]
    if sum(sizes) != total or any(n < 0 for n in sizes):
        raise ValueError(f"random_split: Sum of input lengths does not equal the length of the input dataset: {list(lengths)} and {total}")
    order = randperm(total, generator=generator).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
