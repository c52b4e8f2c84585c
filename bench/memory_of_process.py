"""The memory that a process takes at its peak from a moment on: resident, by Linux's own count."""

import ctypes
import gc
from pathlib import Path

STATUS = Path("/proc/self/status")


class Peak:
    """Counts from when it is made: what is there then is not counted."""

    def __init__(self):
        self.again()
        if STATUS.exists():
            self.before = self._now("VmRSS")

    def again(self):
        """Forget the peak so far, and what was freed: of a compiled step's first calls, which run eagerly and trace."""
        gc.collect()
        if STATUS.exists():
            ctypes.CDLL(None).malloc_trim(0)  # or memory that the preparation left counts for one engine and not for another
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on

    def _now(self, key):
        return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(key)) / 1024

    def megabytes(self):
        """None where the system does not say."""
        return self._now("VmHWM") - self.before if STATUS.exists() else None
