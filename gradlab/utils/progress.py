"""A stand-in for the package tqdm where it is not installed: it counts, and shows nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class tqdm:
    """What goes through `iterable`, or what `update` is told of. Everything else that tqdm shows is taken and left."""

    def __init__(self, iterable: Iterable[Any] | None = None, *_: Any, total: Any = None, **__: Any) -> None:
        self.iterable, self.total, self.n = iterable, total, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable or ():
            yield item
            self.n += 1

    def update(self, n: int = 1) -> None:
        """n more."""
        self.n += n

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
