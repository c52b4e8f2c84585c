"""Dual numbers by PyTorch's names, `gl.autograd.forward_ad`: tensors that carry a tangent, which every function carries on.

A tangent is found when it is asked for, by two backward passes through what was recorded, the second over the first (as `gl.func.jvp`). So
a function has one wherever it has a gradient, and nothing needs a rule of its own; it must be recorded, that is not run under `no_grad`. A
dual tensor requires grad for that reason. `gl.func.jvp` and `jacfwd` nest; dual levels do not, as in PyTorch. """

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab import autograd
from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current, enable_grad
from gradlab.dtype import INEXACT
from gradlab.named_errors import named_functions
from gradlab.spec import ShapeError

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class _Level:
    """The dual tensors that were made in it, with their tangents, and whether one of their primals has a graph of its own."""

    def __init__(self) -> None:
        self.duals: list[tuple[Any, Any]] = []
        self.recorded = False


_level: ContextVar[_Level | None] = ContextVar("dual level", default=None)


def enter_dual_level() -> int:
    """Begin a level, in which dual tensors can be made. Returns 0. RuntimeError within another one."""
    if _level.get() is not None:
        raise RuntimeError("Nested forward mode AD is not supported: there is a dual level already; gl.func.jvp nests")
    _level.set(_Level())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: its tensors have no tangents any more."""
    if _level.get() is None or level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created: enter_dual_level() begins one")
    _level.set(None)


class dual_level:
    """A level as a context manager.

    >>> import gradlab as gl
    >>> import gradlab.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(gl.tensor([3.0]), gl.tensor([1.0]))
    ...     print(fwAD.unpack_dual(x * x).tangent)
    tensor([6.])
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: Any) -> None:
        exit_dual_level(level=0)


class UnpackedDualTensor(NamedTuple):
    """A tensor's value and its tangent, None where it does not depend on a dual tensor of this level."""

    primal: Any
    tangent: Any


def _opened(level: int | None) -> _Level:
    found = _level.get()
    if found is None:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first")
    if level not in (None, 0):
        raise RuntimeError(f"there is one dual level, number 0, and no level {level}")
    return found


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A dual tensor of that value and tangent, which have one shape and dtype. RuntimeError outside of a level.

    Gradients go to both where they require any, and tangents of tangents are found by `gl.func.jvp`.
    """
    opened = _opened(level)
    for what, x in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(x, Differentiable):
            raise TypeError(f"make_dual: the {what} is a tensor, not {type(x).__name__}")
        if x._array.dtype not in INEXACT:
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    if tensor._array.shape != tangent._array.shape:
        raise ShapeError(f"make_dual: the tangent has the shape {tangent.shape}, the tensor {tensor.shape}")
    if tensor._array.dtype != tangent._array.dtype:
        raise RuntimeError(f"make_dual: the tangent has dtype {tangent.dtype}, the tensor {tensor.dtype}")
    if not current().recording:
        raise RuntimeError("make_dual: tangents are carried on by recorded functions, and here nothing is recorded; leave no_grad()")
    if tensor._edge is None:
        dual: Any = tensor.detach().requires_grad_()
    else:
        dual, opened.recorded = tensor.clone(), True
    opened.duals.append((dual, tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor's value and tangent; outside of a level, and where it does not depend on a dual tensor, None for the tangent."""
    if not isinstance(tensor, Differentiable):
        raise TypeError(f"unpack_dual: takes a tensor, not {type(tensor).__name__}")
    opened = _level.get()
    if opened is None or not opened.duals or tensor._edge is None:
        return UnpackedDualTensor(tensor, None)
    whole: Any = tensor
    given = next((t for dual, t in opened.duals if dual is tensor), None)
    tangent = given if given is not None else _carried(whole, opened)
    return UnpackedDualTensor(whole if opened.recorded or tangent is None else whole.detach(), tangent)


def _carried(tensor: Any, opened: _Level) -> Any:
    """The tangent of what was computed: the gradient by v of Σ tangent · (v's gradient by the dual tensors), which is linear in v."""
    with enable_grad():
        v = tensor.detach().new_zeros(tensor.shape).requires_grad_()
        duals, tangents = zip(*opened.duals, strict=True)
        slopes = autograd.grad(tensor, duals, v, create_graph=True, retain_graph=True, allow_unused=True)
        pairs = [(slope, tangent) for slope, tangent in zip(slopes, tangents, strict=True) if slope is not None]
        if not pairs:
            return None
        known = [(slope, tangent) for slope, tangent in pairs if slope._edge is not None]
        if not known:
            return tensor.detach().new_zeros(tensor.shape)
        follow = opened.recorded or any(tangent._edge is not None for _, tangent in known)
        found: Any
        outputs, moved = zip(*known, strict=True)
        (found,) = autograd.grad(outputs, (v,), moved, create_graph=follow, retain_graph=True, allow_unused=True)
    return tensor.detach().new_zeros(tensor.shape) if found is None else found


named_functions(__name__)
