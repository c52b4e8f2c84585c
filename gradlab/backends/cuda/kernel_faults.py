"""Wrong values that only a kernel can see: an index out of range, a probability above 1.

A kernel cannot raise. It writes what was wrong into a record in host memory that every device can reach (`kernels/fault.cuh`), and
computes something harmless instead: it reads zeros and writes nothing. The host looks at the record without waiting for the device, after
each launch that may report, and once more whenever it has waited for the device anyway (copies to the host, synchronize). So a correct
program pays nothing, and a wrong one gets the CPU's own message: at once on the emulated GPU, at the next of these moments on a real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends.cuda.driver import Driver
from gradlab.spec import DimensionError, count as elements

MOST_SITES = 1 << 16


class Site(NamedTuple):
    """What a report means: the error, and its text, made of the wrong value."""

    error: type[Exception]
    text: Callable[[int], str]


class Faults:
    """The record of one driver, and the sites that kernels may report."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._sites: dict[int, Site] = {}
        self._numbers: dict[Any, int] = {}
        self._next = 0
        self._host: Any = None
        self._words: Any = None  # a look at the same: numbers come out of it in half the time
        self._record: Any = None

    @property
    def record(self) -> Any:
        """The record as an array that is passed to kernels."""
        if self._record is None:
            with self._lock:
                if self._record is None:
                    self._host, self._record = self._driver.shared_words(4)
                    self._words = memoryview(self._host)
        return self._record

    def sites(self, key: Any, *sites: Site) -> int:
        """The number of the first of these sites; the others follow. The same key has the same numbers."""
        with self._lock:
            number = self._numbers.get(key)
            if number is None:
                if len(self._numbers) >= MOST_SITES:
                    self._numbers.clear()  # numbers that are still on their way keep their meaning until the table is full again
                    self._sites = dict(list(self._sites.items())[-MOST_SITES:])
                number = self._numbers[key] = self._next
                for site in sites:
                    self._sites[self._next] = site
                    self._next += 1
            return number

    def index(self, name: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
        """Sites for indices into these dimensions of an array."""

        def site(dim: int) -> Site:
            size = shape[dim] if shape else 1
            return Site(DimensionError, lambda i: f"{name}: index {i} is out of range for dimension {dim} of size {size} (shape {shape})")

        return self.sites((name, shape, dims), *map(site, dims))

    def plane(self, name: str, size: int) -> int:
        """The site for indices into planes of so many elements."""
        text = f"{name}: indices must lie within a plane of {size} elements, found"
        return self.sites((name, size), Site(RuntimeError, lambda i: f"{text} {i}"))

    def values(self, *texts: str) -> int:
        """Sites for values that an operation does not take."""

        def site(text: str) -> Site:
            return Site(RuntimeError, lambda _: text)

        return self.sites(texts, *map(site, texts))

    def count(self, name: str, shape: tuple[int, ...]) -> int:
        """The site for a mask that has more true elements than a source of that shape has elements."""
        size = elements(shape)

        def text(n: int) -> str:
            return f"{name}: the mask has {n} true elements, the source only {size} (shape {shape})"

        return self.sites((name, shape), Site(RuntimeError, text))

    def check(self) -> None:
        """Raise what a kernel has reported. Never waits."""
        words = self._words
        if words is None or words[0] != 2:
            return
        host = self._host
        with self._lock:
            number, value = host.view(np.int64)[1:3].tolist()
            host[0] = 0
            site = self._sites.get(number)
        if site is None:
            raise RuntimeError("a kernel has met a value that it does not take")
        raise site.error(site.text(value))
