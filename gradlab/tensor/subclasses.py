"""Subclasses of Tensor that users write: how an instance is made, and PyTorch's `__torch_function__`, by which one answers for functions.

What asks is in `gradlab/overrides/`, which is imported when the first such instance is made.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from gradlab.above import above
from gradlab.autograd.base import Differentiable

S = TypeVar("S", bound="SubclassMethods")


def _disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*args, **(kwargs or {}))


disabled: Any = _disabled  # the `__torch_function__` of a class whose instances are computed with as plain tensors, such as Parameter


def of_class(made: Any, cls: type[S]) -> S:
    """A tensor that nobody else has seen yet, as an instance of a subclass."""
    if cls.__torch_function__ is not disabled:
        above("overriding subclass")(cls)
    made.__class__ = cls
    return made


class SubclassMethods(Differentiable):
    """The methods of this family."""

    __slots__ = ()

    def as_subclass(self: Any, cls: type[S]) -> S:
        """This tensor as an instance of a subclass of Tensor: the same memory, in the same graph.

        Functions and methods of it give instances of the subclass, too, unless the class defines `__torch_function__` otherwise.
        TypeError if it is no such class.

        >>> type(gl.ones(2).as_subclass(gl.nn.Parameter)).__name__
        'Parameter'
        """
        if not (isinstance(cls, type) and issubclass(cls, SubclassMethods)):
            raise TypeError(f"as_subclass: takes a subclass of Tensor, not {cls!r}")
        with above("overriding protocol").without():
            made = self.view(self._array.shape)
        return of_class(made, cls)

    @staticmethod
    def _make_subclass(kind: type[S], data: Any, require_grad: bool = False) -> S:
        """A leaf of a subclass that shares a tensor's memory."""
        with above("overriding protocol").without():
            return of_class(data.detach().requires_grad_(require_grad), kind)

    @staticmethod
    def _make_wrapper_subclass(kind: type, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            f"{kind.__name__}: a tensor without memory that answers by __torch_dispatch__ is not offered; keep a tensor in an attribute, "
            "and answer for functions by __torch_function__"
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a subclass answers for a function or method, unless it says otherwise: the plain one's result, as an instance of it."""
        return above("overriding protocol").default(cls, func, types, args, kwargs or {})
