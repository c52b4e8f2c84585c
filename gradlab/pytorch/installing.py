"""Switching it on, once and for the process."""

from __future__ import annotations

import sys

from gradlab.pytorch.facade import Facade
from gradlab.pytorch.finder import Finder


def install() -> None:
    """From here on `import torch` gives gradlab. Raises ImportError where PyTorch itself has been imported; a second call does nothing."""
    present = sys.modules.get("torch")
    if present is not None and not isinstance(present, Facade):
        place = getattr(present, "__file__", None) or "an unknown place"
        raise ImportError(
            f"gradlab.as_torch: torch has been imported already, from {place}; put `import gradlab.as_torch` before every import "
            "that brings torch in (first line of the script or of conftest.py), or use `gradlab run script.py`"
        )
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
