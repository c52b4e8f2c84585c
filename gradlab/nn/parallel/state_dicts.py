"""States of models and optimizers by the model's own names, however they are wrapped: `gradlab.distributed.checkpoint.state_dict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradlab.nn.module import Module
from gradlab.nn.parallel.distributed import DistributedDataParallel
from gradlab.nn.parallel.fully_sharded import FullyShardedDataParallel


@dataclass(frozen=True)
class StateDictOptions:
    """full_state_dict: whole tensors, as always here. strict: of loading. cpu_offload: tensors of the host."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _inside(model: Module) -> Module:
    """What loads and gives states by the model's own names: a model in `DistributedDataParallel` itself."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def get_model_state_dict(model: Module, *, submodules: Any = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """The whole state of a model, by its own names. All processes call it."""
    chosen = options or StateDictOptions()
    found = _inside(model).state_dict()
    if chosen.ignore_frozen_params:
        frozen = {name for name, p in _inside(model).named_parameters() if not p.requires_grad}
        found = {name: value for name, value in found.items() if name not in frozen}
    return {name: value.cpu() if chosen.cpu_offload else value for name, value in found.items()}


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> Any:
    """The inverse."""
    return _inside(model).load_state_dict(model_state_dict, strict=options is None or options.strict)


def _optimizers(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


def _names(model: Module) -> dict[int, str]:
    return {id(p): name for name, p in _inside(model).named_parameters()}


def get_optimizer_state_dict(
    model: Module, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state of optimizers, by the names of the parameters instead of their numbers. NotImplementedError for parts of parameters."""
    if isinstance(model, FullyShardedDataParallel):
        raise NotImplementedError("get_optimizer_state_dict: an optimizer of divided parameters has parts; keep optimizer.state_dict()")
    names, state, groups = _names(model), {}, []
    for optimizer in _optimizers(optimizers):
        known = optimizer.state_dict()
        numbers = [p for group in optimizer.param_groups for p in group["params"]]
        by_number = [names[id(p)] for p in numbers]
        state.update({by_number[number]: value for number, value in known["state"].items()})
        groups += [{**group, "params": [by_number[number] for number in group["params"]]} for group in known["param_groups"]]
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> None:
    """The inverse."""
    names = _names(model)
    groups = list(optim_state_dict["param_groups"])
    for optimizer in _optimizers(optimizers):
        by_name = {names[id(p)]: number for number, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
        own, groups = groups[: len(optimizer.param_groups)], groups[len(optimizer.param_groups) :]
        optimizer.load_state_dict({
            "state": {by_name[name]: value for name, value in optim_state_dict["state"].items() if name in by_name},
            "param_groups": [{**group, "params": [by_name[name] for name in group["params"]]} for group in own],
        })  # fmt: skip


def get_state_dict(
    model: Module, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of a model and of its optimizers."""
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(
    model: Module, optimizers: Any, *, model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:  # fmt: skip
    """The inverse."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found
