"""A rotating sixth of the tests that are left out by default, chosen by a commit's hash: `pytest --rotating HASH --rotating-seconds 60`.

What is left out are the whole parity suite (--full) and, where PyTorch is installed, the comparisons with it. Six commits in a row with
hashes of all remainders run all of them; a limit of time ends a run early, and each commit has another order.
"""

from __future__ import annotations

import importlib.util
import time
import zlib
from typing import Any

import pytest

PARTS = 6


def part_of(test: str) -> int:
    """The sixth that a test belongs to, in every run."""
    return zlib.crc32(test.encode()) % PARTS


def chosen(tests: list[str], commit: str) -> list[str]:
    """The tests of the commit's sixth, in the commit's order."""
    wanted = zlib.crc32(commit.encode()) % PARTS
    return sorted((t for t in tests if part_of(t) == wanted), key=lambda t: zlib.crc32(f"{commit} {t}".encode()))


def left_out(item: pytest.Item) -> bool:
    """Whether neither the plain nor the slow suite runs a test."""
    compared = item.get_closest_marker("torch") is not None
    return (compared and importlib.util.find_spec("torch") is not None) or (item.get_closest_marker("whole") is not None and not compared)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the commit's sixth."""
    known = {item.nodeid: item for item in items if left_out(item) and item.get_closest_marker("slow") is None}
    found = [known[name] for name in chosen(list(known), config.getoption("--rotating"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(found)])
    items[:] = found


class Clock:
    """Begins no further test after some seconds; what was not begun is not reported, but counted."""

    def __init__(self, seconds: float) -> None:
        self.end, self.not_begun = time.monotonic() + seconds, 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() <= self.end:
            return None
        self.not_begun += 1
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.not_begun:
            terminalreporter.write_line(f"{self.not_begun} tests of this sixth were not begun in time")
