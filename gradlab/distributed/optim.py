"""`gradlab.distributed.optim` under PyTorch's name; the optimizer is in a room above: `gradlab/optim/zero_redundancy.py`."""

from __future__ import annotations

from typing import Any

from gradlab.above import above
from gradlab.tensor.missing_names import absent


def __getattr__(name: str) -> Any:
    if name == "ZeroRedundancyOptimizer":
        return above("optimizers in several processes")
    raise absent("gradlab.distributed.optim", name)
