"""`gradlab.distributed.checkpoint` under PyTorch's name; what it does is in a room above: `gradlab/utils/distributed_checkpoint.py`."""

from __future__ import annotations

from typing import Any

from gradlab.above import above
from gradlab.tensor.missing_names import absent

_NAMES = ("save", "load", "async_save", "FileSystemReader", "FileSystemWriter", "CheckpointException")


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(above("checkpoints of several processes"), name)
    raise absent("gradlab.distributed.checkpoint", name)
