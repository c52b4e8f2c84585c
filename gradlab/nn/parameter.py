"""Parameters and buffers: tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

from typing import Any

from gradlab.autograd.base import LEAF, meta_of
from gradlab.autograd.inplace import mark_detached
from gradlab.autograd.mode import current, no_grad
from gradlab.dtype import INEXACT, get_default_dtype
from gradlab.layout import strided
from gradlab.tensor import Tensor
from gradlab.tensor.creation import empty, tensor
from gradlab.tensor.subclasses import disabled


def _taken(cls: type[Tensor], data: Any) -> Any:
    """A parameter or buffer with the memory of a tensor, where a write to one is a write to the other, or values; None is an empty one."""
    made = object.__new__(cls)
    mode = current()
    shared = isinstance(data, Tensor)
    if not shared:
        data = empty(0) if data is None else tensor(data)
        data = data if data.is_floating_point() else data.to(dtype=get_default_dtype())
    if data.layout is not strided:
        raise NotImplementedError(
            "a sparse tensor is no parameter or buffer of this kind: make its values one, and the sparse tensor of them in forward; "
            "register_buffer takes sparse tensors"
        )
    made._array, made._edge, made._meta = data._array, None, None
    if shared and mode.tracer is None and mode.vmap is None:
        mark_detached(made, data, mode)
    if mode.inference:
        meta_of(made).inference = True
    return made


class Parameter(Tensor):
    """A leaf tensor that a Module counts among its parameters.

    data: a tensor, whose memory is shared, or values: those of an array of floats keep their dtype, others get the default one.
    RuntimeError for a tensor of integers that shall require grad.
    """

    __slots__ = ()
    __torch_function__ = disabled

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        made = _taken(cls, data)
        if requires_grad:
            if made._array.dtype not in INEXACT:
                raise RuntimeError(
                    f"Parameter: only floating point tensors can require gradients, not {made.dtype}; pass requires_grad=False"
                )
            made._edge = LEAF
        declare(made)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy without the gradient, as in PyTorch: what trains a copied model does not add to the first one's gradients."""
        twin = super().__deepcopy__(memo)
        twin.grad = None
        return twin

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that a Module counts among its buffers: part of its state, but nothing to train.

    data: a tensor, whose memory is shared (the buffer is a leaf that requires grad where the tensor does), or values.
    persistent: whether `state_dict` holds it.
    """

    __slots__ = ()
    __torch_function__ = disabled
    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        made = _taken(cls, data)
        made._edge = LEAF if isinstance(data, Tensor) and data.requires_grad else None
        made.persistent = persistent
        declare(made)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        twin: Any = super().__deepcopy__(memo)
        twin.persistent = self.persistent
        return twin


class UninitializedParameter(Parameter):
    """A parameter of a lazy module, which gets its shape at the first call."""

    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return super().__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Become an ordinary Parameter of that shape (zeros, until it is initialised), the same object."""
        self._array = self.new_zeros(shape)._array
        self.__class__ = Parameter  # type: ignore[assignment]
        declare(self)

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


class UninitializedBuffer(Buffer):
    """A buffer of a lazy module, which gets its shape at the first call."""

    __slots__ = ()

    def __new__(cls, *, persistent: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return super().__new__(cls, empty(0, device=device, dtype=dtype), persistent=persistent)

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Become an ordinary Buffer of that shape (zeros, until it is initialised), the same object."""
        self._array = self.new_zeros(shape)._array
        self.__class__ = Buffer  # type: ignore[assignment]
        declare(self)


def declare(tensor: Tensor, name: str = "", module: Any = None) -> None:
    """While a gl.Graph is defined, tell it that this tensor is one of its variables (and its name, when a module registers it)."""
    tracer = current().tracer
    if tracer is not None and hasattr(tracer, "declare"):
        tracer.declare(tensor, name, module)


def is_lazy(param: Any) -> bool:
    """Whether the parameter still waits for its shape."""
    return isinstance(param, (UninitializedParameter, UninitializedBuffer))


def zero_gradient(tensor: Tensor) -> None:
    """Fill a tensor's gradient with zeros, in place and outside of any graph."""
    gradient: Any = tensor.grad
    with no_grad():
        if gradient.grad_fn is not None:
            tensor.grad = gradient = gradient.detach()
        else:
            gradient.requires_grad_(False)
        gradient.zero_()
