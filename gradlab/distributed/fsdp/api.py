"""What scripts tell `FullyShardedDataParallel`: names and values of PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class ShardingStrategy(Enum):
    """What is divided. Here parameters, gradients and optimizer state are, whichever of the first three is asked for: the results are the
    same, the memory is that of FULL_SHARD. The hybrid ones are refused."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When parameters come again in backward; here always when they are needed."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """What a state dict holds; here always whole tensors."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class MixedPrecision:
    """dtypes to compute and travel in; refused where one is given: use `gl.autocast`."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True

    def asks(self) -> bool:
        """Whether it asks for anything."""
        return any(dtype is not None for dtype in (self.param_dtype, self.reduce_dtype, self.buffer_dtype))


@dataclass
class CPUOffload:
    """Whether parameters wait in the host's memory; refused where they should."""

    offload_params: bool = False


@dataclass
class StateDictConfig:
    """How state dicts are made."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole tensors; rank0_only: other processes get an empty dict."""

    rank0_only: bool = False


@dataclass
class FullOptimStateDictConfig(FullStateDictConfig):
    """The same of optimizers."""


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Parts as they lie; here whole tensors."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Parts; here whole tensors."""
