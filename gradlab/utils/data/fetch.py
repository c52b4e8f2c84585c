"""From a list of indices to a batch, in the process that loads: the user's, or a worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gradlab.utils.data.collate import default_collate
from gradlab.utils.data.dataset import IterableDataset, takes_batches


class Recipe(NamedTuple):
    """How batches are made. `batch_size` matters for streams only; None leaves samples single."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    batch_size: int | None
    drop_last: bool


class Fetcher:
    """Makes batches by a recipe. An exception of the dataset gets a note that names the sample."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.stream: Iterator[Any] | None = iter(recipe.dataset) if isinstance(recipe.dataset, IterableDataset) else None
        self.at_once = recipe.batched and recipe.collate is default_collate and takes_batches(recipe.dataset)
        self.count = 0  # samples taken from the stream

    def fetch(self, indices: Any) -> Any:
        """The batch of those indices; of a stream the next one, whatever the indices. StopIteration at the stream's end."""
        recipe = self.recipe
        if self.stream is not None:
            return self._next_of(self.stream)
        if self.at_once:
            try:
                return finished(recipe.dataset.take_batch, indices)
            except IndexError as error:
                error.add_note(f"while loading the samples {shortened(indices)}")
                raise
        if not recipe.batched:
            return finished(recipe.collate, self._sample(indices))
        whole = getattr(recipe.dataset, "__getitems__", None)
        return finished(recipe.collate, finished(whole, indices) if whole is not None else [self._sample(i) for i in indices])

    def _sample(self, index: Any) -> Any:
        try:
            return finished(self.recipe.dataset.__getitem__, index)
        except Exception as error:
            error.add_note(f"while loading sample {index!r}")
            raise

    def _next_of(self, stream: Iterator[Any]) -> Any:
        recipe = self.recipe
        try:
            if not recipe.batched:
                sample = next(stream)
                self.count += 1
                return finished(recipe.collate, sample)
            samples = list(itertools.islice(stream, recipe.batch_size))
        except StopIteration:
            raise
        except Exception as error:
            error.add_note(f"while loading the stream's samples from number {self.count} on")
            raise
        self.count += len(samples)
        if not samples or (recipe.drop_last and recipe.batch_size is not None and len(samples) < recipe.batch_size):
            raise StopIteration
        return finished(recipe.collate, samples)


def finished(function: Callable[[Any], Any], given: Any) -> Any:
    """What a user's function makes of it. A StopIteration out of it would end the epoch in silence: it is an error, as in a generator."""
    try:
        return function(given)
    except StopIteration as error:
        raise RuntimeError(f"{getattr(function, '__qualname__', function)} raised StopIteration: no end of the data") from error


def shortened(indices: Any) -> str:
    """Indices as text, of a long list only the first ones."""
    if not isinstance(indices, list) or len(indices) <= 8:
        return str(indices)
    return f"[{', '.join(map(str, indices[:8]))}, … {len(indices)} in all]"
