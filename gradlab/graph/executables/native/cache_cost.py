"""What it costs to have at hand what tasks touch that go along a batch: how far apart the uses of a byte are, by how many images are done
at a time."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import NamedTuple

from gradlab.backends.native.cache_sizes import Caches

SECOND, THIRD = 0.75, 0.5  # parts of the caches that a program may count on; of what is twice as far apart they keep nothing
CALL = 1 << 16  # bytes from the third-level cache that take as long as a kernel's beginning and end, some 0.4 microseconds
FAR = 9  # how much longer than from the third-level cache a byte takes from memory, compared with the second-level cache

Key = tuple[tuple[int, int], int]  # which base, and where in it
Sizes = dict[Key, int]


class _Reuse(NamedTuple):
    """Bytes of an image that were touched before. since: how many others have been touched since by image, and how many that all images
    share; of the first and the last task either the one or the other."""

    size: int
    ends: tuple[tuple[int, int], tuple[int, int]]
    between: tuple[int, int]

    def distance(self, chunk: int) -> int:
        """The bytes in between if so many images are done at a time."""
        (a, b), (c, d), (e, f) = *self.ends, self.between
        # Read in the order in which it was written: of the first and the last task together as much as one of them touches.
        return max(chunk * a + b, chunk * c + d) + chunk * e + f


class Traffic:
    """Tasks that run one after the other for some images, then for the next ones."""

    def __init__(self, images: int, known: Caches) -> None:
        self._images = images
        self._near, self._far = SECOND * known.second, THIRD * known.third
        self._tasks: list[tuple[Sizes, int]] = []
        self._every: Sizes = {}
        self._first: dict[Key, int] = {}
        self._last: dict[Key, int] = {}
        self._reuses: list[_Reuse] = []

    def add(self, stepped: Sizes, shared: int) -> None:
        """One more task: bytes that it touches of an image, and those that all images share."""
        k = len(self._tasks)
        self._tasks.append((stepped, shared))
        own = sum(stepped.values()), shared
        for key, size in stepped.items():
            if key in self._last:
                i = self._last[key]
                before, tasks = self._tasks[i], self._tasks[i + 1 : k]
                between = {other: n for sizes, _ in tasks for other, n in sizes.items()}
                ends = (sum(before[0].values()), before[1]), own
                self._reuses.append(_Reuse(size, ends, (sum(between.values()), sum(n for _, n in tasks))))
            self._every[key] = max(size, self._every.get(key, 0))
            self._first.setdefault(key, k)
            self._last[key] = k

    def cost(self, chunk: int, threads: int, local: Container[int] = ()) -> float:
        """Of one of the threads, with so many images at a time, in bytes from the third-level cache. local: bases whose memory is only for
        the images under way."""
        far = self._far / threads

        def price(since: float) -> float:
            """Of a byte between whose uses so many others are touched."""
            return min(max(since / self._near - 1, 0), 1) + FAR * min(max(since / far - 1, 0), 1)

        each = self._images / threads
        shared = sum(n for _, n in self._tasks)
        inside = [key for key in self._every if key[0][0] in local]
        outside = sum(self._every.values()) - sum(self._every[key] for key in inside)
        again = price(chunk * (outside + self._alive(inside)) + shared)  # of what the next images find there
        pieces = max(each / chunk, 1)
        total = len(self._tasks) * CALL * pieces + shared * (price(math.inf) + again * (pieces - 1))
        total += each * sum(r.size * price(r.distance(chunk)) for r in self._reuses)
        known = set(inside)
        return total + each * sum(size * (again if key in known else price(each * size)) for key, size in self._every.items())

    def _alive(self, keys: Sequence[Key]) -> int:
        """The most bytes of an image that are needed at once."""
        change = [0] * (len(self._tasks) + 1)
        for key in keys:
            change[self._first[key]] += self._every[key]
            change[self._last[key] + 1] -= self._every[key]
        most = alive = 0
        for n in change:
            alive += n
            most = max(most, alive)
        return most
