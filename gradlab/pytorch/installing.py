"""Switching it on, once and for the process and those that it starts with multiprocessing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import spawn
from typing import Any

from gradlab import cuda
from gradlab.device import let_cuda_mean_cpu, set_default_device
from gradlab.distributed.rendezvous import announce
from gradlab.graph.calls.decorator import let_refused_run_eagerly
from gradlab.jit.scripting.function import let_refused_stay_python
from gradlab.pytorch.duck_classes import notice
from gradlab.pytorch.extensions import Without
from gradlab.pytorch.finder import Finder, Standing
from gradlab.pytorch.writing import write_as_pytorch
from gradlab.utils.serialization import set_default_pickle

_told: list[Settings] = []
_plain = spawn.get_preparation_data


@dataclass(frozen=True)
class Settings:
    """What processes that are started have to know, too. device: where new tensors are made and what cuda means, or None."""

    device: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.device,)


def _again(device: str | None) -> Settings:
    """A started process reads its settings, before it imports the program: here it becomes what the first one is."""
    import_module("gradlab.pytorch.installing").install(Settings(device))
    return Settings(device)


def install(settings: Settings | None = None) -> None:
    """From here on `import torch` gives gradlab. Raises ImportError where PyTorch itself has been imported; a second call changes only
    the device."""
    present = sys.modules.get("torch")
    if present is not None and not isinstance(getattr(present, "__loader__", None), Standing):
        place = getattr(present, "__file__", None) or "an unknown place"
        raise ImportError(
            f"gradlab.as_torch: torch has been imported already, from {place}; put `import gradlab.as_torch` before every import "
            "that brings torch in (first line of the script or of conftest.py), or use `gradlab run script.py`"
        )
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path[:0] = [Finder(), Without()]
        notice()
        set_default_pickle(True)
        let_refused_stay_python(True)
        let_refused_run_eagerly(True)
        write_as_pytorch()
        announce()
    if settings is not None and settings.device is not None:
        _settle(settings.device)
    _told.append(settings or Settings())
    if spawn.get_preparation_data is not _prepared:
        spawn.get_preparation_data = _prepared


def _settle(device: str) -> None:
    let_cuda_mean_cpu(device == "cpu")
    set_default_device(device)
    if ":" in device:  # a "cuda" without a number is that one
        cuda.set_device(device)


def _prepared(name: str) -> dict[str, Any]:
    """What multiprocessing tells a process that it starts anew; reading it installs all this there."""
    return {**_plain(name), "gradlab": _told[-1]}
