"""Samplers: in which order the samples of a dataset are visited.

An order is settled when an iterator is made: the words that it takes of the random stream are set apart then, and the numbers made of them
when they are asked for. So ten thousand million draws take no memory, and what else is drawn meanwhile changes none of them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from gradlab.named_errors import name_classes
from gradlab.tensor import Tensor
from gradlab.tensor.generator import Generator, set_apart
from gradlab.tensor.random import rand, randint, randperm

_CHUNK = 1024  # numbers at a time; the words of a draw start at multiples of 4


def _drawn(count: int, generator: Generator | None, draw: Callable[[int, Generator], list[int]]) -> Iterator[int]:
    """`draw(count, generator)`, which takes a word for each number, made in chunks."""
    own = set_apart(generator, count)
    chunks = (draw(min(_CHUNK, count - start), own) for start in range(0, count, _CHUNK))
    return itertools.chain.from_iterable(chunks)


T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base class. A subclass gives `__iter__` over indices, and `__len__` where it is known."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name_classes(cls, "__init__ __iter__")

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …"""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A new random order each time; with `replacement`, each sample drawn from all.

    num_samples: how many to draw (default: as many as there are; more of them without replacement: one order after another).
    generator: where the numbers come from (default: the default generator, see `gradlab.manual_seed`).
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement should be True or False, not {replacement!r}")
        if num_samples is not None and (not isinstance(num_samples, (int, np.integer)) or num_samples < 0 or isinstance(num_samples, bool)):
            raise ValueError(f"RandomSampler: num_samples should be a number from 0 up, not {num_samples!r}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """How many indices one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        if not n or not wanted:
            return iter(())
        if self.replacement:
            return _drawn(wanted, self.generator, lambda count, own: randint(0, n, (count,), generator=own).tolist())
        times = -(-wanted // n)
        own = set_apart(self.generator, times * -(-n // 4) * 4)
        orders = (randperm(n, generator=own).tolist() for _ in range(times))
        return itertools.islice(itertools.chain.from_iterable(orders), wanted)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a new random order each time."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        return iter([self.indices[i] for i in randperm(len(self.indices), generator=self.generator).tolist()])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities proportional to `weights` (any sum), with replacement or without."""

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None) -> None:
        if not isinstance(num_samples, (int, np.integer)) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"WeightedRandomSampler: num_samples should be a positive number, not {num_samples!r}")
        if not isinstance(replacement, bool):
            raise ValueError(f"WeightedRandomSampler: replacement should be True or False, not {replacement!r}")
        array = np.asarray(weights.tolist() if isinstance(weights, Tensor) else weights, np.float64)
        if array.ndim != 1 or not array.size:
            raise ValueError(f"WeightedRandomSampler: weights should be a list of numbers, got shape {array.shape}")
        if not np.isfinite(array).all() or (array < 0).any() or not array.any():
            raise ValueError("WeightedRandomSampler: weights should be finite, not negative, and not all 0")
        if not replacement and num_samples > np.count_nonzero(array):
            raise ValueError(
                f"WeightedRandomSampler: {num_samples} samples without replacement, but only {np.count_nonzero(array)} weights above 0"
            )
        self.weights, self.num_samples, self.replacement, self.generator = array, num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        if self.replacement:  # by inversion of the distribution function
            totals, last = np.cumsum(self.weights), np.flatnonzero(self.weights)[-1]

            def draw(count: int, own: Generator) -> list[int]:
                drawn = rand(count, dtype="float64", generator=own).numpy() * totals[-1]
                return np.minimum(np.searchsorted(totals, drawn, side="right"), last).tolist()

            return _drawn(self.num_samples, self.generator, draw)
        # Each index waits for an exponentially distributed time of its rate; the first ones are the sample (Efraimidis and Spirakis, 2006).
        uniform = rand(len(self.weights), dtype="float64", generator=self.generator).numpy()
        waits = np.full(len(self.weights), np.inf)
        positive = self.weights > 0
        waits[positive] = -np.log1p(-uniform[positive]) / self.weights[positive]
        return iter(np.argsort(waits, kind="stable")[: self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last one may be shorter, or is left out with `drop_last`."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"BatchSampler: batch_size should be a positive number, not {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last should be True or False, not {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        return batched(iter(self.sampler), self.batch_size, self.drop_last)  # iter() here, so that an order is drawn now

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def batched(items: Iterator[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    """Lists of `size` items."""
    while batch := list(itertools.islice(items, min(size, sys.maxsize))):
        if len(batch) < size and drop_last:
            return
        yield batch
