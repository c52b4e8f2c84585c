"""`DistributedDataParallel`: one model in each process of a group, whose gradients are averaged: over one process its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradlab import distributed
from gradlab.device import Device
from gradlab.nn.module import Module
from gradlab.nn.parallel.placing import device_of, on


class DistributedDataParallel(Module):
    """Calls `module`, and averages its gradients among the processes of `process_group` (default: all).

    The module is `.module`, and its names in `state_dict` begin with "module.". device_ids: at most one device, where the arguments'
    tensors are moved; the model is there already. The other arguments say how gradients travel, of which there is nothing over one process.

    ValueError before `gradlab.distributed.init_process_group`, and for several devices; RuntimeError for a module without anything to
    train.

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
        group = distributed.groups.member(process_group, "DistributedDataParallel")
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

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
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
        """Within it processes may have different numbers of batches."""
        yield

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """NotImplementedError: over one process gradients go nowhere that a hook could change them on their way."""
        raise NotImplementedError("register_comm_hook: one process sends no gradients; Tensor.register_hook changes them where they arise")
