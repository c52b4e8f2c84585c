"""The DataLoader: batches of a dataset, in an order that can be repeated and resumed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

import numpy as np

from gradlab.named_errors import describe, name_classes
from gradlab.tensor import Tensor
from gradlab.tensor.generator import Generator, default_generator
from gradlab.utils.data.collate import default_collate, default_convert
from gradlab.utils.data.dataset import T_co, is_stream, samples_in
from gradlab.utils.data.fetch import Fetcher, Recipe
from gradlab.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from gradlab.utils.data.workers import Pool, PoolIterator, base_seed


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches.

    dataset: has `__getitem__` and `__len__`, or is an IterableDataset, or any other that can be iterated anew and has no length. Of data
    frames (pandas, polars) samples are rows, as dicts.
    batch_size: samples in a batch; None: no batches, samples one by one. shuffle: a new random order in each epoch.
    sampler: gives the order in place of `shuffle`; batch_sampler: gives lists of indices, in place of the four options for batches.
    num_workers: processes that load ahead (0: the calling process loads). Batches come in the same order for any number, and what datasets,
    transforms and collate_fn draw of gradlab's default generator is the same, too: the epoch and the sample's index decide it.
    collate_fn: makes a batch of a list of samples (default: `default_collate`; see also `pad_collate`).
    drop_last: leave out a last batch that is shorter.
    timeout: seconds to wait for a worker's batch before a RuntimeError (0: for ever). worker_init_fn: called with the id in each worker.
    multiprocessing_context: "fork", "spawn" or a context. generator: where the order comes from (default: the default generator).
    prefetch_factor: batches that each worker loads ahead (2). persistent_workers: keep the processes between epochs.
    pin_memory: accepted; copies to a GPU pass through pinned memory anyway (`Prefetcher` makes them beside other work).

    `state_dict()` during or between epochs, and `load_state_dict()` in another process, continue after the last batch delivered.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if not isinstance(num_workers, (int, np.integer)) or num_workers < 0:
            raise ValueError(f"num_workers option should be non-negative (0: no other processes), not {num_workers!r}")
        if timeout < 0:
            raise ValueError(f"timeout option should be non-negative, not {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing: set num_workers > 0 to enable it")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"prefetch_factor option should be at least 1, not {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if generator is not None and not isinstance(generator, Generator):
            raise TypeError(f"generator: a gradlab.Generator or None, not {type(generator).__name__}")
        if not is_stream(dataset) and not hasattr(dataset, "__getitem__"):
            once = "; it can be gone through once only: make a list of it" if hasattr(dataset, "__next__") else ""
            raise TypeError(f"dataset: an object with __getitem__ and __len__, or an IterableDataset, not {type(dataset).__name__}{once}")
        self.dataset, self.num_workers, self.timeout, self.generator = dataset, num_workers, timeout, generator
        self.worker_init_fn, self.multiprocessing_context = worker_init_fn, multiprocessing_context
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self._streaming = is_stream(dataset)
        self._choose_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self._batched = self.batch_size is not None or batch_sampler is not None
        if not (collate_fn is None or callable(collate_fn)):
            raise TypeError(f"DataLoader: collate_fn is a function of a list of samples, not {describe(collate_fn)}")
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)
        self._pool: Pool | None = None
        self._epoch: Epoch | None = None
        self._resume: dict[str, Any] | None = None

    def _choose_order(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
        if shuffle not in (None, False, True):
            raise ValueError(f"shuffle should be True or False, not {shuffle!r}")
        if self._streaming and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("a stream (IterableDataset) has its own order: shuffle, sampler and batch_sampler do not apply to it")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            self.batch_size, self.drop_last, self.sampler, self.batch_sampler = None, False, None, batch_sampler
            return
        if batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables batching and is mutually exclusive with drop_last")
        if batch_size is not None and (not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size <= 0):
            raise ValueError(f"batch_size should be a positive number, or None for no batches, not {batch_size!r}")
        batch_size = None if batch_size is None else int(batch_size)
        self.batch_size, self.drop_last = batch_size, drop_last
        if sampler is None and not self._streaming:
            sampler = RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)
        self.sampler = sampler
        self.batch_sampler = None if batch_size is None or self._streaming else BatchSampler(sampler, batch_size, drop_last)

    def __getstate__(self) -> dict[str, Any]:
        """A copy or a pickle begins an epoch of its own, with workers of its own."""
        return {**self.__dict__, "_pool": None, "_epoch": None}

    def __len__(self) -> int:
        """Number of batches; TypeError where the dataset or the sampler has no length."""
        if self._streaming:
            count = len(self.dataset)
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        epoch = self._begin()
        self._epoch = epoch
        recipe = Recipe(samples_in(self.dataset), self.collate_fn, self._batched, self.batch_size, self.drop_last, self._repeats())
        if not self.num_workers:
            return LoaderIterator(epoch, Fetcher(recipe, epoch.seed))
        pool = self._pool if self.persistent_workers else None
        if pool is None or not pool.alive:
            pool = Pool(recipe, self.num_workers, self.worker_init_fn, self.multiprocessing_context, self.timeout)
        if self.persistent_workers:
            self._pool = pool
        assert self.prefetch_factor is not None
        return PoolIterator(pool, epoch, self.prefetch_factor, keep=self.persistent_workers)

    def _repeats(self) -> bool:
        """Whether a sample may come twice in an epoch: unless it is known that it does not."""
        sampler = self.sampler if self.sampler is not None else getattr(self.batch_sampler, "sampler", None)
        if type(sampler) is RandomSampler:
            return sampler.replacement or sampler.num_samples > len(self.dataset)
        return type(sampler) not in (SequentialSampler, SubsetRandomSampler)

    # ------------------------------------------------------------ resuming

    def _source(self) -> Generator:
        """The generator that the order comes from."""
        for holder in (self, self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            found = getattr(holder, "generator", None)
            if isinstance(found, Generator):
                return found
        return default_generator

    def _begin(self) -> Epoch:
        """Draw the order of an epoch: a new one, or the one that a loaded state was in the middle of."""
        source, resume = self._source(), self._resume
        self._resume = None
        kept = None
        if resume is not None and resume["generator"] is not None:
            kept = source.get_state() if source is default_generator else None
            source.set_state(resume["generator"])
        start = source.get_state()
        source.advance(4)
        seed = base_seed(start)
        source.advance(4)
        if self._streaming:
            order: Iterator[Any] = itertools.repeat(None)
        else:
            order = iter(self.batch_sampler if self.batch_sampler is not None else self.sampler)  # type: ignore[arg-type]
        if kept is not None:
            source.set_state(kept)  # the order is drawn; what else is drawn from the default generator goes on where it was
        return Epoch(order, start, seed, resume["batch"] if resume is not None else 0, self._streaming)

    def state_dict(self) -> dict[str, Any]:
        """The generator's state as it was when the epoch began, and how many of its batches were delivered.

        Between epochs: the state now, and 0; without a generator of its own the loader then keeps None: see `gradlab.get_rng_state`.
        """
        if self._epoch is not None and not self._epoch.finished:
            return {"generator": self._epoch.start, "batch": self._epoch.delivered}
        if self._resume is not None:
            return dict(self._resume)
        source = self._source()
        return {"generator": None if source is default_generator else source.get_state(), "batch": 0}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration continue where `state_dict` was taken, over the same dataset and with the same options."""
        batch, state = state_dict.get("batch"), state_dict.get("generator")
        if not isinstance(batch, int) or batch < 0 or not (state is None or isinstance(state, Tensor)):
            raise ValueError(f"load_state_dict: a loader's state has a batch number and a generator's state, not {state_dict!r}")
        self._epoch = None
        self._resume = {"generator": state, "batch": batch}


name_classes(DataLoader, "__init__ __iter__")


class Epoch:
    """One pass over the data: its order, where its random numbers began, and how much of it was delivered."""

    def __init__(self, order: Iterator[Any], start: Tensor, seed: int, skip: int, streaming: bool) -> None:
        self.order, self.start, self.seed, self.skip, self.streaming = order, start, seed, skip, streaming
        self.delivered = skip
        self.finished = False
        if not streaming:
            for _ in range(skip):
                next(order, None)


class LoaderIterator(Iterator[Any]):
    """Loads in the calling process."""

    def __init__(self, epoch: Epoch, fetcher: Fetcher) -> None:
        self.epoch, self.fetcher = epoch, fetcher
        if epoch.streaming:
            for _ in range(epoch.skip):
                fetcher.fetch(0, None)

    def __next__(self) -> Any:
        epoch = self.epoch
        try:
            batch = self.fetcher.fetch(epoch.delivered, next(epoch.order))
        except StopIteration:
            epoch.finished = True
            raise
        epoch.delivered += 1
        return batch
