"""`DistributedDataParallel`: one model in each process of a group, whose gradients are averaged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradlab import distributed
from gradlab.autograd.mode import no_grad
from gradlab.autograd.record import bind
from gradlab.device import Device
from gradlab.distributed.grad_bucket import BuiltinCommHookType, GradBucket
from gradlab.nn.module import Module
from gradlab.nn.parallel.joining import Joining
from gradlab.nn.parallel.placing import device_of, on
from gradlab.nn.parallel.reducer import Reducer
from gradlab.ops import collective as rows
from gradlab.tensor.shape import cat


class DistributedDataParallel(Module):
    """Calls `module`, and averages its gradients among the processes of `process_group` (default: all) while `backward()` runs.

    Each process computes with a part of the batch; the loss's mean over a part of equal size gives the gradients of the whole batch. All
    begin with the parameters and buffers of rank 0, which is also whose buffers count: a forward in training gives them to all.

    The module is `.module`, and its names in `state_dict` begin with "module.", whatever the number of processes: a checkpoint that rank
    0 has written loads at another. device_ids: at most one device, where the arguments' tensors are moved; the model is there already.
    bucket_cap_mb: how much travels at a time, default 25 (the first bucket 1). find_unused_parameters: the loss may not depend on all
    parameters; those of which no process has a gradient keep theirs; static_graph allows the same. broadcast_buffers: see above.
    gradient_as_bucket_view changes nothing here.

    ValueError before `gradlab.distributed.init_process_group`, and for several devices; RuntimeError for a module without anything to
    train, or of other parameters in other processes, and in backward for parameters without a gradient.

    >>> import gradlab as gl
    >>> gl.distributed.init_process_group("gloo")
    >>> model = gl.nn.parallel.DistributedDataParallel(gl.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['module.weight', 'module.bias']
    >>> gl.distributed.destroy_process_group()
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: Any = None, bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False,
        static_graph: bool = False, delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None, device_mesh: Any = None, skip_all_reduce_unused_params: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        group: Any = distributed.groups.member(process_group, "DistributedDataParallel")
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel: the module has no parameter that requires a gradient; call it as it is")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(f"DistributedDataParallel: device_ids holds one device, or is None, not {list(device_ids)}")
        if mixed_precision is not None or device_mesh is not None:
            raise NotImplementedError("DistributedDataParallel: no mixed_precision= or device_mesh=; use gl.autocast, and process_group=")
        self.module, self.process_group, self.dim = module, group, dim
        self.device_ids = list(device_ids) if device_ids else None
        self.device: Device = next(p for p in module.parameters()).device
        self.output_device = output_device if output_device is not None or not self.device_ids else self.device_ids[0]
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = True
        self._joining: Joining | None = None
        self._reducer: Reducer | None = None
        self._comm_hook: tuple[Any, Any] | None = None
        self._cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        if group is not None and group.size() > 1:
            self._check_alike(self._averaged())
            if init_sync:
                self.broadcast_from(0, [*module.parameters(), *module.buffers()])
        self._average()

    def _averaged(self) -> list[tuple[str, Any]]:
        """The parameters whose gradients travel, with their names."""
        ignored = set(getattr(self.module, "_ddp_params_and_buffers_to_ignore", ()))
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad and name not in ignored]

    def _average(self) -> None:
        if self.process_group is not None and self.process_group.size() > 1:
            self._reducer = Reducer(self._averaged(), self.process_group, self._cap, self.find_unused_parameters or self.static_graph)

    @property
    def reducer(self) -> Any:
        """What averages the gradients; None in a group of one."""
        return self._reducer

    def _check_alike(self, named: Sequence[tuple[str, Any]]) -> None:
        own = [(name, tuple(p.shape), str(p.dtype)) for name, p in named]
        every: list[Any] = [None] * self.process_group.size()
        distributed.all_gather_object(every, own, self.process_group)
        for rank, other in enumerate(every):
            if other != every[0]:
                differs = next(((a, b) for a, b in zip(every[0], other) if a != b), (f"{len(every[0])} parameters", f"{len(other)}"))
                raise RuntimeError(f"DistributedDataParallel: the models differ: rank 0 has {differs[0]}, rank {rank} {differs[1]}")

    def broadcast_from(self, source: int, tensors: Sequence[Any]) -> None:
        """Write these tensors of the process with that place in the group into those of all: one message for each dtype."""
        kinds: dict[Any, list[Any]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        with no_grad():
            for kind in kinds.values():
                flat = cat([tensor.detach().reshape(-1) for tensor in kind])
                found = bind(rows.broadcast)(flat, by=self.process_group.transport, root=source)
                at = 0
                for tensor in kind:
                    tensor.copy_(found[at : at + tensor.numel()].reshape(tensor.shape))
                    at += tensor.numel()

    def will_sync_buffers(self) -> bool:
        """Whether a forward begins with rank 0's buffers."""
        if self._reducer is None or not self.broadcast_buffers or not self.require_backward_grad_sync:
            return False
        return self.training and any(True for _ in self.module.buffers())

    def sync_buffers(self, source: int = 0) -> None:
        """Give the buffers of one process to all."""
        self.broadcast_from(source, list(self.module.buffers()))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        if self._reducer is not None:
            self._reducer.active = self.require_backward_grad_sync
            if self._joining is not None:
                self._joining.step(True)
            if self.will_sync_buffers():
                self.sync_buffers(0 if self._joining is None else self._joining.source)
        device = device_of(self.device_ids[0]) if self.device_ids else None
        return self.module(*on(device, inputs), **on(device, kwargs))

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it gradients of this process add up, to be averaged with those of the first backward after it."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Iterator[None]:
        """Within it processes may have different numbers of batches: those that have ended give zeros to the others' averages.

        divide_by_initial_world_size: averages are sums over all processes divided by their number; else by that of those with a batch.
        throw_on_early_termination: RuntimeError in all as soon as one has ended. At the end all have the parameters and buffers of the
        last. Collectives of the model's own, as SyncBatchNorm has, cannot be followed, nor can a compiled step.
        """
        if self._reducer is None or not enable:
            yield
            return
        self._joining = Joining(self, divide_by_initial_world_size, throw_on_early_termination)
        try:
            yield
            self._joining.rest()
        finally:
            self._joining = None
            self._reducer.op, self._reducer.scale = "mean", 1.0

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let `hook(state, bucket)` average the gradients of each bucket in place of the mean: it is given a `GradBucket` when its
        gradients are there, and returns a future of the tensor that takes the buffer's place (`Work.get_future()`, `.then(...)`).

        `gradlab.distributed.algorithms.ddp_comm_hooks.default_hooks` has hooks. TypeError for what cannot be called, RuntimeError for a
        second hook.
        """
        if not callable(hook):
            raise TypeError(f"register_comm_hook: hook is a function of a state and a GradBucket, not {type(hook).__name__}")
        if self._comm_hook is not None:
            raise RuntimeError("register_comm_hook: a model takes one hook, and has one already")
        self._comm_hook = (state, hook)
        if self._reducer is not None:
            self._reducer.hook = self._comm_hook

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        """A hook by its name."""
        hooks = distributed.algorithms.ddp_comm_hooks.default_hooks
        chosen = {BuiltinCommHookType.ALLREDUCE: hooks.allreduce_hook, BuiltinCommHookType.FP16_COMPRESS: hooks.fp16_compress_hook}
        self.register_comm_hook(self.process_group, chosen[comm_hook_type])

    def _set_static_graph(self) -> None:
        """As `static_graph=True`."""
        self.static_graph = True
        if self._reducer is not None:
            self._reducer.unused = True

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Sequence[str]) -> None:
        """Name parameters whose gradients stay this process's, before the model is wrapped."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process: a copy from a file is in the default group."""
        return {key: value for key, value in self.__dict__.items() if key not in ("process_group", "_reducer", "_joining", "_comm_hook")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = distributed.groups.member(None, "DistributedDataParallel")
        self._joining = self._comm_hook = self._reducer = None
        self._average()

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """A copy of the model in the same group."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update((key, copy.deepcopy(value, memo)) for key, value in self.__dict__.items())
        return made
