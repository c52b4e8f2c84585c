"""Around training: loading data, saving and reading tensors, files that are written whole."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradlab.utils import checkpoint as checkpoint, data as data, dlpack as dlpack, hooks as hooks

if TYPE_CHECKING:
    from gradlab.utils.images import make_grid as make_grid, save_image as save_image
    from gradlab.utils.memory_budget import MemoryPlan as MemoryPlan, fit_memory as fit_memory


def __getattr__(name: str) -> Any:
    if name in ("make_grid", "save_image"):
        return getattr(import_module("gradlab.utils.images"), name)
    if name in ("MemoryPlan", "fit_memory"):
        return getattr(import_module("gradlab.utils.memory_budget"), name)
    if name in ("benchmark", "serialization", "tensorboard"):
        return import_module(f"gradlab.utils.{name}")
    raise AttributeError(f"module 'gradlab.utils' has no attribute {name!r}")
