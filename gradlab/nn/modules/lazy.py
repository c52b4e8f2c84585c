"""Lazy modules: layers that learn their input's size from their first input."""

from __future__ import annotations

from typing import Any, ClassVar

from gradlab.nn.module import Module
from gradlab.nn.parameter import is_lazy


class Lazy(Module):
    """Mixed into a layer in front of its ordinary class, which it `becomes` at the first call, or at the first one after loading."""

    becomes: ClassVar[type[Module]]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters the shapes that fit these arguments, and their initial values."""
        raise NotImplementedError(f"{type(self).__name__} has no initialize_parameters()")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer still waits for its shape."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.has_uninitialized_params():
            self.initialize_parameters(*args, **kwargs)
        self.__class__ = self.becomes  # type: ignore[assignment]
        return self(*args, **kwargs)
