"""A profile of some steps of a run, for its report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gradlab.profiler import profile
from gradlab.train import Callback
from gradlab.utils.atomic import write_text

FIRST, STEPS = 2, 10  # what the first batches do is not what the others do: they fill caches, and compile
ROWS = 25


class Profiled(Callback):
    """Looks at ten steps from the third on, or as many as the first epoch has, and writes tables, a trace and the timeline of memory.

    Files: profile.txt, trace.json and memory.svg.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.profile: Any = None
        self.done = False
        self.steps = 0

    def batch_end(self, run: Any) -> None:
        if self.profile is not None:
            self.steps += 1
            if self.steps == STEPS:
                self.end(run)
        elif not self.done and run.batch >= min(FIRST, max(len_of(run.loader) - 1, 0)):
            self.profile = profile(profile_memory=True)
            self.profile.start()

    def epoch_end(self, run: Any) -> None:
        if self.steps:
            self.end(run)

    def end(self, run: Any) -> None:
        found, self.profile = self.profile, None
        if found is None:
            return
        found.stop()
        self.done = True
        operations = found.key_averages().table(row_limit=ROWS, header=f"Operations of {self.steps} steps")
        modules = found.module_averages().table(sort_by=None, row_limit=ROWS, header="Modules, with what is in them")
        write_text(self.folder / "profile.txt", f"{operations}\n\n{modules}\n")
        found.export_memory_timeline(self.folder / "memory.svg")
        found.export_chrome_trace(self.folder / "trace.json")


def len_of(loader: Any) -> int:
    """Batches of an epoch; many, where that is not known."""
    return len(loader) if hasattr(loader, "__len__") else FIRST + STEPS
