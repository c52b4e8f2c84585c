"""Modes that answer for every call of a function of tensors, whatever its arguments are."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from gradlab.overrides import overridable
from gradlab.overrides.protocol import modes


class TorchFunctionMode:
    """`with Mode():` its `__torch_function__(self, func, types, args=(), kwargs=None)` answers for each call of a public function or of a
    Tensor's method in the block, and `func(*args, **kwargs)` in it goes on to the mode outside of it.

    While a mode is on, calls cost microseconds more. What gradlab's own functions call in turn is not asked of.
    """

    inner: TorchFunctionMode | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: define __torch_function__(self, func, types, args=(), kwargs=None)")

    def __enter__(self) -> TorchFunctionMode:
        overridable.activate()
        overridable.ask_of_tensors()
        modes.set((*modes.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        modes.set(modes.get()[:-1])
        overridable.ask_no_more()
