"""Batches on a GPU before they are asked for: copied in a stream of their own, while the batch before is worked with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from gradlab.cuda.streams import Stream, current_stream, stream
from gradlab.device import Device
from gradlab.tensor import Tensor
from gradlab.utils.data.collate import default_collate
from gradlab.utils.data.dataset import is_stream, samples_in, takes_batches
from gradlab.utils.data.loader import DataLoader


class Prefetcher:
    """The batches of a loader, with their tensors on a device; on a GPU each is copied there while the one before is worked with.

    A copy goes through pinned memory in a stream of its own, and the stream that the batch is given to waits for it alone. One batch is
    fetched ahead of a DataLoader that has workers, or that takes its batches out of tensors: of others what they draw would come in another
    order, and their copies only begin early. On the CPU nothing is fetched ahead.

    `state_dict` is that of the loader, as of the batches that were given.

        for images, labels in gl.utils.data.Prefetcher(loader, "cuda"):
            loss = criterion(model(images), labels)
    """

    def __init__(self, loader: Iterable[Any], device: Any) -> None:
        self.loader, self.device = loader, Device(device)
        self._stream: Stream | None = None
        self._state: dict[str, Any] | None = None  # of the loader, before it went ahead

    @property
    def ahead(self) -> int:
        """How many batches are fetched before they are asked for."""
        loader = self.loader
        if self.device.type != "cuda" or not isinstance(loader, DataLoader):
            return 0
        at_once = loader.collate_fn is default_collate and not is_stream(loader.dataset) and takes_batches(samples_in(loader.dataset))
        return int(bool(loader.num_workers) or at_once)

    def __iter__(self) -> Iterator[Any]:
        if self.device.type != "cuda":
            return (placed(batch, lambda x: x.to(self.device)) for batch in self.loader)
        return self._on_gpu()

    def _on_gpu(self) -> Iterator[Any]:
        if self._stream is None:
            self._stream = Stream(self.device)
        aside, batches, states = self._stream, iter(self.loader), hasattr(self.loader, "state_dict")
        waiting: deque[tuple[Any, Any, Any]] = deque()

        def fetch() -> bool:
            try:
                batch = next(batches)
            except StopIteration:
                return False
            state = self.loader.state_dict() if states else None  # type: ignore[attr-defined]
            with stream(aside):
                there = placed(batch, lambda x: x.to(self.device, non_blocking=True))
                waiting.append((there, aside.record_event(), state))
            return True

        ahead = self.ahead
        try:
            more = True
            while True:
                while more and len(waiting) <= ahead:
                    more = fetch()
                if not waiting:
                    return
                batch, arrived, self._state = waiting.popleft()
                here = current_stream(self.device)
                here.wait_event(arrived)
                placed(batch, partial(Tensor.record_stream, s=here))  # its memory is not given out again before this stream is done with it
                yield batch
        finally:
            self._state = self._state if waiting else None

    def __getattr__(self, name: str) -> Any:
        """What else there is, is the loader's."""
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """The loader's, after the batches that were given so far."""
        return self.loader.state_dict() if self._state is None else self._state  # type: ignore[attr-defined]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self._state = None
        self.loader.load_state_dict(state_dict)  # type: ignore[attr-defined]


def placed(batch: Any, function: Callable[[Tensor], Any]) -> Any:
    """A batch with `function` of each of its tensors, in whatever lists, tuples and dicts they are."""
    if isinstance(batch, Tensor):
        found = function(batch)
        return batch if found is None else found
    if isinstance(batch, Mapping):
        return {key: placed(value, function) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [placed(value, function) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
