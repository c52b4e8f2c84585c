"""`torch.__config__`: what the library was built with, as text."""

from __future__ import annotations

import numpy as np

from gradlab._version import __version__
from gradlab.backends.threads import get_num_threads
from gradlab.cuda import is_available


def show() -> str:
    """Versions of what computes."""
    return f"gradlab {__version__}\n  - NumPy {np.__version__}\n  - CUDA {'available' if is_available() else 'not available'}\n"


def parallel_info() -> str:
    """How many threads compute."""
    return f"gradlab {__version__}\n  threads: {get_num_threads()}\n"
