"""Where a run was trained, and what that took."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import numpy as np

from gradlab._version import __version__

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]


def environment() -> dict[str, Any]:
    """Versions and machine."""
    return {
        "python": platform.python_version(), "numpy": np.__version__, "gradlab": __version__, "machine": platform.machine(),
        "system": platform.system(), "processors": os.cpu_count(),
    }  # fmt: skip


def most_memory() -> int | None:
    """The most bytes that this process has held so far; None where the system does not say."""
    if resource is None:
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
