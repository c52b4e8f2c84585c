"""`DataParallel`: one process, whose batches PyTorch splits among several GPUs. Here the first of them computes the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlab import cuda
from gradlab.advice import GradlabWarning, warn
from gradlab.nn.module import Module
from gradlab.nn.parallel.placing import device_of, on


class DataParallel(Module):
    """Calls `module` on one device: the first of `device_ids` (default: the first GPU), where the arguments' tensors are moved, or wherever
    they are if there is no GPU. The module is `.module`, and its names in `state_dict` begin with "module.".

    A warning says so where several devices are asked for: results are those of the whole batch, which no device splits.
    RuntimeError in a call where a parameter or buffer of the module is on another device.

    >>> import gradlab as gl
    >>> model = gl.nn.DataParallel(gl.nn.Linear(2, 1))
    >>> list(model.state_dict()), model(gl.ones(5, 2)).shape
    (['module.weight', 'module.bias'], (5, 1))
    """

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.dim, self.module = dim, module
        count = cuda.device_count() if cuda.is_available() else 0
        chosen = list(range(count)) if device_ids is None else list(device_ids)
        if not count:
            chosen = []
        if len(chosen) > 1:
            warn(GradlabWarning, f"DataParallel: batches are not split: {device_of(chosen[0])} computes them, of the devices {chosen}")
        self.device_ids = chosen[:1]
        self.src_device_obj = device_of(chosen[0]) if chosen else None
        self.output_device = chosen[0] if output_device is None and chosen else output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        device = self.src_device_obj
        if device is None:
            return self.module(*inputs, **kwargs)
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            if tensor.device != device:
                raise RuntimeError(f"DataParallel: the module belongs on {device}, device_ids[0], but a tensor of it is on {tensor.device}")
        found = self.module(*on(device, inputs), **on(device, kwargs))
        return on(device_of(self.output_device), found)


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """`DataParallel(module, …)(*inputs, **module_kwargs)`."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*given, **(module_kwargs or {}))
