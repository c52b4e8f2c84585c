"""`gradlab.distributed.fsdp` under PyTorch's name; the module is in a room above: `gradlab/nn/parallel/fully_sharded.py`."""

from __future__ import annotations

from typing import Any

from gradlab.above import above
from gradlab.distributed.fsdp import wrap as wrap
from gradlab.distributed.fsdp.api import (
    BackwardPrefetch as BackwardPrefetch,
    CPUOffload as CPUOffload,
    FullOptimStateDictConfig as FullOptimStateDictConfig,
    FullStateDictConfig as FullStateDictConfig,
    LocalStateDictConfig as LocalStateDictConfig,
    MixedPrecision as MixedPrecision,
    ShardedStateDictConfig as ShardedStateDictConfig,
    ShardingStrategy as ShardingStrategy,
    StateDictConfig as StateDictConfig,
    StateDictType as StateDictType,
)
from gradlab.tensor.missing_names import absent


def __getattr__(name: str) -> Any:
    if name in ("FullyShardedDataParallel", "FSDP"):
        return above("modules in several processes")
    raise absent("gradlab.distributed.fsdp", name)
