"""A bar on anything that takes longer than two seconds: compilers at work, files that are written. Nothing where stderr is no terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PATIENCE = 2.0  # seconds in which nothing is shown
TICK = 0.5


class Waiting:
    """What `waiting` gives: `done()` for each part that is finished."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total, self._finished = what, total, 0
        self._over = threading.Event()
        self._bar: Any = None

    def done(self, parts: int = 1) -> None:
        """So many parts more are finished."""
        self._finished += parts

    def show(self) -> None:
        """Draw the bar until all is over, from when patience is at its end; in a thread of its own."""
        if self._over.wait(PATIENCE):
            return
        form = "{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}" if self._total else "{desc} … {elapsed}"
        tqdm = import_module("tqdm").tqdm
        with tqdm(total=self._total, desc=self._what, bar_format=form, leave=False, file=sys.stderr, ncols=_columns(), nrows=20) as bar:
            while not self._over.wait(TICK):
                bar.n = min(self._finished, self._total) if self._total else self._finished
                bar.refresh()

    def over(self) -> None:
        self._over.set()


def _columns() -> int:
    """How wide the terminal is; some say 0, for which tqdm would show nothing."""
    try:
        return min(os.get_terminal_size(sys.stderr.fileno()).columns or 80, 100)
    except (OSError, ValueError):
        return 80


@contextmanager
def waiting(what: str, total: int | None = None) -> Iterator[Waiting]:
    """While the block runs. what: in a few words; total: how many parts there are, where that is known."""
    shown = Waiting(what, total)
    if sys.stderr is None or not sys.stderr.isatty():
        yield shown
        return
    thread = threading.Thread(target=shown.show, name="gradlab progress", daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        shown.over()
        thread.join()
