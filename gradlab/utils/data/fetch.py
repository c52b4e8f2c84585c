"""From a list of indices to a batch, in the process that loads: the user's, or a worker.

What a dataset, its transforms and a collate_fn draw of the default generator depends on the epoch's seed and the sample's index (the
batch's number) alone, and moves nothing outside: so any number of workers, and an epoch that is resumed, give the same samples. Where a
sampler may name a sample twice, its place in the epoch counts, too.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from gradlab.tensor.generator import apart
from gradlab.utils.data.collate import default_collate, default_convert
from gradlab.utils.data.dataset import is_stream, takes_batches


class Recipe(NamedTuple):
    """How batches are made. `batch_size` matters for streams only; None leaves samples single."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    batch_size: int | None
    drop_last: bool
    repeats: bool = False  # whether a sample may come twice in an epoch


SAMPLE = 24  # bits: so many words are a sample's own in its epoch's stream
BATCH = 20  # bits: so many samples, at most, are told apart by their places in a batch
TURN, COLLATING = 0x9E3779B97F4A7C15, 0x632BE59BD9B4E019  # apart from one another: a sample's second turn, and what joins samples


class Fetcher:
    """Makes the batches of an epoch by a recipe. An exception of the dataset gets a note that names the sample.

    seed: the epoch's. stream: which of the streams this is, where the dataset is one: the worker's number.
    """

    def __init__(self, recipe: Recipe, seed: int, stream: int = 0) -> None:
        self.recipe, self.seed, self.number = recipe, seed, stream
        self.stream: Iterator[Any] | None = iter(recipe.dataset) if is_stream(recipe.dataset) else None
        self.at_once = self.stream is None and recipe.batched and recipe.collate is default_collate and takes_batches(recipe.dataset)
        self.count = 0  # samples taken from the stream

    def fetch(self, number: int, indices: Any) -> Any:
        """Batch `number`, of those indices; of a stream the next one, whatever both are. StopIteration at the stream's end."""
        recipe = self.recipe
        if self.stream is not None:
            return apart(self.seed + self.number, (self.count + 1) << SAMPLE, self._next_of, self.stream)
        if self.at_once:
            try:
                return finished(recipe.dataset.take_batch, indices)
            except (IndexError, ValueError, OverflowError, TypeError) as error:
                if isinstance(error, OverflowError):
                    raise IndexError(f"DataLoader: no sample has such an index: {shortened(indices)}") from None
                error.args = (f"DataLoader: {error}",)
                error.add_note(f"while loading the samples {shortened(indices)}")
                raise
        if not recipe.batched:
            samples = self._sample(indices, number << BATCH)
        elif (whole := getattr(recipe.dataset, "__getitems__", None)) is not None:
            samples = apart(self.seed, number << SAMPLE, lambda wanted: finished(whole, wanted), indices)
        else:
            samples = [self._sample(index, (number << BATCH) + i) for i, index in enumerate(indices)]
        if recipe.collate in (default_collate, default_convert):  # neither draws
            return recipe.collate(samples)
        return apart(self.seed ^ COLLATING, number << SAMPLE, lambda found: finished(recipe.collate, found), samples)

    def _sample(self, index: Any, turn: int) -> Any:
        known = isinstance(index, (int, np.integer))
        seed = self.seed if known and not self.recipe.repeats else self.seed + (turn + 1) * TURN
        try:
            return apart(seed, (int(index) + 1) << SAMPLE if known else 0, self._finished_sample, index)
        except Exception as error:
            entry = " of a dict: samples are asked for by number, so give a list of its values" if self._lacks(error) else ""
            error.add_note(f"while loading sample {index!r}{entry}")
            raise

    def _lacks(self, error: Exception) -> bool:
        return isinstance(error, KeyError) and isinstance(self.recipe.dataset, Mapping)

    def _finished_sample(self, index: Any) -> Any:
        return finished(self.recipe.dataset.__getitem__, index)

    def _next_of(self, stream: Iterator[Any]) -> Any:
        recipe = self.recipe
        try:
            if not recipe.batched:
                sample = next(stream)
                self.count += 1
                return finished(recipe.collate, sample)
            samples = list(itertools.islice(stream, min(recipe.batch_size or sys.maxsize, sys.maxsize)))
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
