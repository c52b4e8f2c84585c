"""Lazy modules: layers that learn their input's size from their first input."""

from __future__ import annotations

from typing import Any, ClassVar

from gradlab.nn.module import Module
from gradlab.nn.parameter import is_lazy


class LazyModuleMixin(Module):
    """Mixed into a layer in front of its ordinary class, `cls_to_become`, which it is from the first call
    on, or from the first one after loading; None: it keeps its class."""

    cls_to_become: ClassVar[type[Module] | None] = None

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters the shapes that fit these arguments, and their initial values."""
        raise NotImplementedError(f"{type(self).__name__} has no initialize_parameters()")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer still waits for its shape."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.has_uninitialized_params():
            self.initialize_parameters(*args, **kwargs)
        if self.cls_to_become is None:
            return super().__call__(*args, **kwargs)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        return self(*args, **kwargs)
