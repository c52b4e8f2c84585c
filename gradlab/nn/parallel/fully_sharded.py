"""`FullyShardedDataParallel`: parameters, gradients and optimizer state are divided among processes (ZeRO-3; Rajbhandari et al., 2020)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from gradlab import distributed
from gradlab.autograd.graph import saved_tensors_hooks
from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import bind, wrap
from gradlab.autograd.walk import watchers
from gradlab.distributed.groups import member
from gradlab.nn.module import Module
from gradlab.nn.modules.container import ModuleDict, ModuleList
from gradlab.nn.parallel.placing import device_of
from gradlab.nn.parameter import Parameter
from gradlab.ops import collective as rows
from gradlab.tensor import Tensor
from gradlab.tensor.creation import zeros
from gradlab.tensor.shape import cat, stack

_POLICY = Collection[type] | Callable[[Module], bool]


class Unit:
    """Parameters that come together: those of a module, apart from those of units within it. Each process has an N-th of their values."""

    def __init__(self, name: str, module: Module, places: list[tuple[Module, str, str]], by: Any) -> None:
        self.name, self.module, self.by, self.places = name, module, by, places
        values = [owner._parameters[key] for owner, key, _ in places]
        self.shapes = [tuple(p.shape) for p in values if p is not None]
        self.names = [full for _, _, full in places]
        self.count = sum(p.numel() for p in values if p is not None)
        self.share = -(-self.count // by.size)
        flat = cat([p.detach().reshape(-1) for p in values if p is not None])
        with no_grad():
            flat = bind(rows.broadcast)(flat, by=by, root=0)  # all begin with those of the first
        self.shard = Parameter(self.cut(flat))
        self.shard.register_hook(self._arrived)
        self.values: list[Tensor] = []  # while they are here, as parameters were
        for i, (owner, key, full) in enumerate(places):
            del owner._parameters[key]
            owner.__class__ = self._looking(type(owner), key, full, i)
        self.whole: Any = None  # the array of all values, while they are here
        self.bytes = self.count * self.shard.element_size()

    def cut(self, flat: Tensor) -> Tensor:
        """This process's part of all values, as long in each."""
        padded = cat([flat, zeros(self.share * self.by.size - self.count, dtype=flat.dtype, device=flat.device)])
        return padded[self.by.rank * self.share : (self.by.rank + 1) * self.share].clone()

    def gather(self) -> list[Tensor]:
        """All values, as parameters were, recorded: their gradients are added up over the processes, and each takes its part."""
        flat = bind(rows.all_gather)(self.shard, by=self.by).reshape(-1)
        self.whole = flat._array
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return [flat[int(end) - int(np.prod(shape)) : int(end)].reshape(shape) for shape, end in zip(self.shapes, ends, strict=True)]

    def _looking(self, kind: type, key: str, full: str, i: int) -> type:
        """A module's class with an attribute that is a value while there is one."""

        def value(module: Any) -> Tensor:
            if not self.values:
                raise RuntimeError(f"{full} is divided among the processes; look at it within summon_full_params()")
            return self.values[i]

        return type(kind.__name__, (kind,), {key: property(value), "__module__": kind.__module__, "__qualname__": kind.__qualname__})

    def put(self) -> None:
        """Let the module's attributes be the values."""
        self.values = self.gather()

    def drop(self) -> None:
        """Let them go."""
        self.values, self.whole = [], None

    def _arrived(self, gradient: Tensor) -> Tensor:
        return gradient / self.by.size

    # ---------------------------------------------------------------- what backward keeps

    def place_of(self, array: Any) -> tuple[int, Any, Any] | None:
        """Where an array lies within the values, its shape and strides; None for another's memory."""
        if type(self.whole) is not np.ndarray or type(array) is not np.ndarray:
            return None
        offset = array.__array_interface__["data"][0] - self.whole.__array_interface__["data"][0]
        return (offset, array.shape, array.strides) if 0 <= offset < self.whole.nbytes and array.size else None

    def at(self, place: tuple[int, Any, Any]) -> Tensor:
        """The values there; they come again where they are gone, once for a backward."""
        if self.whole is None:
            with no_grad():
                self.whole = bind(rows.all_gather)(self.shard.detach(), by=self.by).reshape(-1)._array
        offset, shape, strides = place
        return wrap(np.ndarray(shape, self.whole.dtype, self.whole, offset, strides))


class _Leaving:
    """Watches backward passes: when a unit's gradient is complete, nothing that follows asks for its parameters."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = {unit.shard: unit for unit in units}
        watchers.append(weakref.ref(self))

    def begin(self, leaves: Container[Any]) -> Iterable[Any]:
        """All parts that the pass reaches."""
        return [shard for shard in self.units if shard in leaves]

    def ready(self, leaf: Any) -> None:
        """Let the whole parameters go."""
        self.units[leaf].whole = None

    def end(self) -> None:
        """Likewise of all."""
        for unit in self.units.values():
            unit.whole = None

    failed = end


class FullyShardedDataParallel(Module):
    """Calls `module`, whose parameters come to each process when a unit of it is called, and are gone behind it; as `backward` needs them
    they come again, and gradients are averaged and divided at once. A process keeps 1/N of parameters, gradients and optimizer state, and
    beside that the largest unit's parameters for a moment; what travels is one and a half times what `DistributedDataParallel` sends.

    auto_wrap_policy: classes of modules, or a function of a module, that say what is a unit of its own, besides the whole; default: each
    direct child that has parameters. process_group: default all processes. The optimizer is made of `parameters()` afterwards: one flat
    part for each unit. `state_dict()` is that of `module`, whole, in every process, and loads in any number of them: all processes call it.
    In a compiled step, and on a GPU, parameters stay from forward to backward. device_id: where the module is moved first.
    sync_module_states, backward_prefetch, forward_prefetch, limit_all_gathers and use_orig_params change nothing here: all begin with the
    parameters of the first process, and the module's own are there within `summon_full_params`.

    ValueError before `gradlab.distributed.init_process_group`; NotImplementedError for parameters that two modules share, for hybrid
    strategies, and for cpu_offload, mixed_precision, ignored_modules, ignored_states, param_init_fn and device_mesh.
    """

    def __init__(
        self, module: Module, process_group: Any = None, sharding_strategy: Any = None, cpu_offload: Any = None,
        auto_wrap_policy: _POLICY | None = None, backward_prefetch: Any = None, mixed_precision: Any = None, ignored_modules: Any = None,
        param_init_fn: Any = None, device_id: Any = None, sync_module_states: bool = False, forward_prefetch: bool = False,
        limit_all_gathers: bool = True, use_orig_params: bool = False, ignored_states: Any = None, device_mesh: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _refuse(sharding_strategy, cpu_offload, mixed_precision, ignored_modules or ignored_states, param_init_fn, device_mesh)
        if device_id is not None:
            module.to(device_of(device_id))
        group: Any = member(process_group, "FullyShardedDataParallel")
        self.module, self.process_group, self._rank0_only = module, group, False
        self._units = _units(module, auto_wrap_policy, group.transport)
        if not self._units:
            raise RuntimeError("FullyShardedDataParallel: the module has no parameters")
        for number, unit in enumerate(self._units):
            self.register_parameter(f"flat_{number}", unit.shard)
            unit.module.register_forward_pre_hook(lambda *_, unit=unit: unit.put())
            unit.module.register_forward_hook(lambda *_, unit=unit: unit.drop(), always_call=True)
        self._leaving = _Leaving(self._units)
        with no_grad():
            for buffer in module.buffers():
                buffer.copy_(bind(rows.broadcast)(buffer, by=group.transport, root=0))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        with saved_tensors_hooks(self._pack, self._unpack):
            return self.module(*inputs, **kwargs)

    def _pack(self, tensor: Tensor) -> Any:
        for unit in self._units:
            if (place := unit.place_of(tensor._array)) is not None:
                return unit, place
        return tensor

    def _unpack(self, kept: Any) -> Tensor:
        return kept[0].at(kept[1]) if type(kept) is tuple else kept

    @contextmanager
    def summon_full_params(
        self, module: Any = None, recurse: bool = True, writeback: bool = True, rank0_only: bool = False, offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        """Within it the module has its parameters, to look at: `module.weight`; what is written there is kept where `writeback` is true.
        All processes enter it. Also called as `FullyShardedDataParallel.summon_full_params(model)`."""
        with no_grad():
            for unit in self._units:
                unit.put()
            try:
                yield
            finally:
                for unit in self._units:
                    if writeback:
                        unit.shard.copy_(unit.cut(cat([value.detach().reshape(-1) for value in unit.values])))
                    unit.drop()

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Any, state_dict_type: Any, state_dict_config: Any = None, optim_state_dict_config: Any = None
    ) -> Iterator[None]:
        """Within it `state_dict()` is that of whole tensors, as ever; with `FullStateDictConfig(rank0_only=True)` an empty one besides in
        the first process."""
        wrapped = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        for each in wrapped:
            each._rank0_only = bool(getattr(state_dict_config, "rank0_only", False))
        try:
            yield
        finally:
            for each in wrapped:
                each._rank0_only = False

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The whole state of `module`, by its own names."""
        found = self.module.state_dict(*args, **kwargs)
        with no_grad():
            for unit in self._units:
                found.update((name, value.clone()) for name, value in zip(unit.names, unit.gather(), strict=True))
                unit.whole = None
        return type(found)() if self._rank0_only and self.process_group.rank() else found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """The inverse. RuntimeError for names that are missing or that the module has not, KeyError never."""
        rest = dict(state_dict)
        missing = [name for unit in self._units for name in unit.names if name not in rest]
        if missing and strict:
            raise RuntimeError(f"FullyShardedDataParallel.load_state_dict: missing keys: {', '.join(missing)}")
        with no_grad():
            for unit in self._units:
                if any(name in missing for name in unit.names):
                    continue
                values = [rest.pop(name) for name in unit.names]
                for name, value, shape in zip(unit.names, values, unit.shapes, strict=True):
                    if tuple(value.shape) != shape:
                        raise RuntimeError(f"FullyShardedDataParallel.load_state_dict: {name} is {tuple(value.shape)}, not {shape}")
                unit.shard.copy_(unit.cut(cat([value.to(unit.shard.device, unit.shard.dtype).reshape(-1) for value in values])))
        return self.module.load_state_dict(rest, strict=strict)

    def clip_grad_norm_(self, max_norm: float, norm_type: float | str = 2.0) -> Tensor:
        """`nn.utils.clip_grad_norm_` over all processes' parts. Returns the norm before."""
        norm_type, parts = float(norm_type), [unit.shard.grad for unit in self._units if unit.shard.grad is not None]
        with no_grad():
            if norm_type == float("inf"):
                total = stack([g.float().abs().amax() for g in parts]).amax() if parts else zeros(())
                total = distributed.nn.all_reduce(total, distributed.ReduceOp.MAX, self.process_group)
            else:
                total = zeros(()) if not parts else sum((g.float().abs() ** norm_type).sum() for g in parts)
                total = distributed.nn.all_reduce(total, group=self.process_group) ** (1 / norm_type)
            scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
            for g in parts:
                g.mul_(scale.to(g.dtype))
        return total


def _units(module: Module, policy: _POLICY | None, by: Any) -> list[Unit]:
    """The units, the innermost first, so that each takes what those within it have left."""
    chosen = [(name, m) for name, m in module.named_modules() if m is not module and _is_unit(module, m, policy)]
    owners: dict[int, str] = {}
    found = []
    for name, m in [*reversed(chosen), ("", module)]:
        places = []
        for inner, owner in m.named_modules():
            prefix = ".".join(part for part in (name, inner) if part)
            for key, p in owner._parameters.items():
                if p is None:
                    continue
                full = f"{prefix}.{key}" if prefix else key
                if owners.setdefault(id(p), full) != full:
                    raise NotImplementedError(f"FullyShardedDataParallel: {owners[id(p)]} and {full} are one parameter; use separate ones")
                places.append((owner, key, full))
        kinds = {(p.dtype, p.device, p.requires_grad) for owner, key, _ in places for p in (owner._parameters[key],) if p is not None}
        if len(kinds) > 1:
            raise NotImplementedError(f"FullyShardedDataParallel: the parameters of {name or 'the module'} are not of one kind: {kinds}")
        if places:
            found.append(Unit(name, m, places, by))
    return found


def _children(module: Module) -> Iterator[Module]:
    """Those that are called: of lists and dicts what is in them."""
    for child in module.children():
        if isinstance(child, (ModuleList, ModuleDict)):
            yield from _children(child)
        else:
            yield child


def _is_unit(whole: Module, module: Module, policy: Any) -> bool:
    if policy is None:
        return any(child is module for child in _children(whole))
    if isinstance(policy, Collection):
        return isinstance(module, tuple(policy))
    if isinstance(module, (ModuleList, ModuleDict)):  # which nobody calls
        return False
    if not _asks_for_sizes(policy):
        return bool(policy(module))
    return bool(policy(module=module, recurse=False, nonwrapped_numel=sum(p.numel() for p in module.parameters())))


def _asks_for_sizes(policy: Any) -> bool:
    """Whether it is a policy as PyTorch's are, of a module, of recursion and of sizes."""
    function = policy.func if isinstance(policy, partial) else policy
    return "recurse" in signature(function).parameters or function.__name__ == "always_wrap_policy"


def _refuse(strategy: Any, offload: Any, mixed: Any, ignored: Any, init: Any, mesh: Any) -> None:
    """NotImplementedError for what is asked for and not offered."""
    why = {
        "a hybrid sharding_strategy; give process_group=": "HYBRID" in getattr(strategy, "name", ""),
        "cpu_offload; see gl.optim.offload_state": bool(getattr(offload, "offload_params", offload)),
        "mixed_precision; use gl.autocast": mixed is not None and mixed.asks(),
        "ignored_modules and ignored_states": bool(ignored),
        "param_init_fn; make the module with its values": init is not None,
        "device_mesh; give process_group=": mesh is not None,
    }
    for text, asked in why.items():
        if asked:
            raise NotImplementedError(f"FullyShardedDataParallel: no {text}")
