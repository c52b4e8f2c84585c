"""Hooks by which rooms below use what rooms above offer: the one place where a thread runs upwards. Each has a name and says what it stands
for, which is imported when it is asked for first. This module imports nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOOKS = {  # "package.module" or "package.module:name"
    "kernels of eager code": "gradlab.backends.native.eager",  # rows on NumPy arrays, as machine code
    "product by one thread": "gradlab.backends.openblas:product_by_one_thread",  # of two matrices, by NumPy's BLAS
    "table in a notebook": "gradlab.viz.html_table:of_module",  # Module._repr_html_
    "slopes of grid_sample": "gradlab.nn.functional.grid:slopes",  # the row's gradient, also where it is differentiated
    "slopes of ctc_loss": "gradlab.nn.functional.ctc:slopes",  # likewise
    "compile": "gradlab.graph.calls.decorator:compile",  # Module.compile
    "vmap": "gradlab.func.mapping:vmap",  # the generated rule of a Function inside vmap
    "gradients of several vectors": "gradlab.func.batched_gradients:batched",  # grad(is_grads_batched=True)
    "autograd.functional": "gradlab.func.functional",  # a public module of PyTorch's lower room, made of func
    "autograd.forward_ad": "gradlab.func.forward_ad",  # likewise
    "rows on overriding classes": "gradlab.overrides.overridable:row",  # a class that answers for functions is among the inputs
    "overriding subclass": "gradlab.overrides.overridable:prepare",  # a subclass of Tensor with __torch_function__ is defined
    "overriding protocol": "gradlab.overrides.protocol",
    "NumPy's ufuncs": "gradlab.interchange.numpy_ufuncs:run",  # Tensor.__array_ufunc__
    "NumPy's functions": "gradlab.interchange.numpy_functions:run",  # Tensor.__array_function__
    "array API": "gradlab.array_api",  # Tensor.__array_namespace__
    "shared memory": "gradlab.multiprocessing.memory",  # Tensor.share_memory_, is_shared
    "sparse": "gradlab.sparse",  # methods of dense tensors that make sparse ones
    "shapes of sparse tensors": "gradlab.sparse.shapes",
    "constructors of sparse tensors": "gradlab.sparse.making:old_constructor",  # torch.cuda.sparse
    "optimizers in several processes": "gradlab.optim.zero_redundancy:ZeroRedundancyOptimizer",  # distributed.optim
    "modules in several processes": "gradlab.nn.parallel.fully_sharded:FullyShardedDataParallel",  # distributed.fsdp
    "checkpoints of several processes": "gradlab.utils.distributed_checkpoint",  # distributed.checkpoint
    "states in several processes": "gradlab.nn.parallel.state_dicts",  # distributed.checkpoint.state_dict
    "mixed precision of devices": "gradlab.amp.deprecated",  # torch.cuda.amp, torch.cpu.amp
}


def above(hook: str) -> Any:
    """The function, or the module, that an upper room gives a hook. Raises KeyError for a hook that no room has."""
    module, _, name = HOOKS[hook].partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
