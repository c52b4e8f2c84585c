"""Hooks of `DistributedDataParallel`, by name: `register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, model)`."""

from __future__ import annotations

from enum import Enum
from typing import Any

from gradlab.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks as debugging_hooks,
    default_hooks as default_hooks,
    powerSGD_hook as powerSGD_hook,
)


class DDPCommHookType(Enum):
    """What travels: values as they are, in half the bits, nothing, or approximations of low rank."""

    ALLREDUCE = "allreduce"
    FP16_COMPRESS = "fp16_compress"
    BF16_COMPRESS = "bf16_compress"
    NOOP = "noop"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Let a model average by that hook. NotImplementedError for those of low rank."""
    hooks = {
        DDPCommHookType.ALLREDUCE: default_hooks.allreduce_hook, DDPCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
        DDPCommHookType.BF16_COMPRESS: default_hooks.bf16_compress_hook, DDPCommHookType.NOOP: debugging_hooks.noop_hook,
        DDPCommHookType.POWER_SGD: powerSGD_hook.powerSGD_hook,
        DDPCommHookType.BATCHED_POWER_SGD: powerSGD_hook.batched_powerSGD_hook,
    }  # fmt: skip
    if comm_hook_type in (DDPCommHookType.POWER_SGD, DDPCommHookType.BATCHED_POWER_SGD):
        raise powerSGD_hook.refusal()
    model.register_comm_hook(state, hooks[comm_hook_type])
