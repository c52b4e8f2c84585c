"""What `custom_op(…, mutates_args=…)` is told afterwards, by PyTorch's names: its gradient, and kernels for a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradlab.graph.staging.symbol import sized_by_values
from gradlab.library.custom import get
from gradlab.library.tensor_op import TensorOp


def _operation(asked: str, op: Any) -> TensorOp:
    found = get(op) if isinstance(op, str) else op
    if not isinstance(found, TensorOp):
        raise TypeError(f"{asked}: expected an operation that was made with mutates_args=, not {found!r}; give custom_op grad= and cuda=")
    return found


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, lib: Any = None
) -> None:
    """Give an operation (or its name) its gradient.

    backward: `backward(ctx, *grads)` returns a gradient for each argument, None for what is no tensor.
    setup_context: `setup_context(ctx, inputs, output)` keeps what backward needs; where the operation has keyword-only arguments they come
    as `keyword_only_inputs`.
    Raises KeyError for a name that no operation has, TypeError for one that was made without mutates_args, RuntimeError for one that
    writes to its arguments.

    >>> import gradlab as gl
    >>> @gl.library.custom_op("docs::twice", mutates_args=())
    ... def twice(x: gl.Tensor) -> gl.Tensor:
    ...     return x * 2
    >>> gl.library.register_autograd("docs::twice", lambda ctx, g: g * 2)
    >>> x = gl.ones(2, requires_grad=True)
    >>> twice(x).sum().backward(); x.grad
    tensor([2., 2.])
    """
    _operation("register_autograd", op).register_autograd(backward, setup_context=setup_context)


def register_fake(op: Any, fn: Callable[..., Any] | None = None, /, *, lib: Any = None, allow_override: bool = True) -> Any:
    """Say what an operation (or its name) returns for tensors without values: new tensors of the right shapes and dtypes. That is its
    result on the meta device; and where a trace cannot look into the operation, which reads values, it has one call of it, which runs the
    function each time. Without fn: a decorator. KeyError for a name that no operation has."""
    register = _operation("register_fake", op).register_fake
    return register if fn is None else register(fn)


class FakeContext:
    """What a fake form may ask for."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """A size that depends on values: no program has one. Raises TraceError."""
        raise sized_by_values()


def get_ctx() -> FakeContext:
    """What `register_fake`'s function asks for a size that depends on values. Such an operation is in no program: a trace ends in
    TraceError, and `gl.compile(fullgraph=False)` runs the call eagerly."""
    return FakeContext()


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None) -> Any:
    """What an operation (or its name) does under `gl.vmap`: `func(info, in_dims, *args)` returns its results and in which dimension of each
    the samples lie, None where there is none; `info.batch_size` says how many they are. Without one the operation's function is called with
    tensors of all samples, which cannot read values. Without func: a decorator. KeyError for a name that no operation has."""
    return _operation("register_vmap", op).register_vmap(func)


def register_kernel(op: Any, device_types: str | Iterable[str], func: Callable[..., Any] | None = None, /, *, lib: Any = None) -> Any:
    """What an operation (or its name) runs where its first tensor is on one of the devices, "cpu" or "cuda". Without func: a decorator.
    KeyError for a name that no operation has."""
    return _operation("register_kernel", op).register_kernel(device_types, func)
