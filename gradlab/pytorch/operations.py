"""`torch.ops`: operations by namespace. Those of `gl.library.custom_op` are found under their names; ATen's call gradlab's functions."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

import gradlab
from gradlab.pytorch.extensions import OPERATORS
from gradlab.tensor import Tensor


class Aten:
    """An operation of ATen's, or one of its overloads, such as `torch.ops.aten.add.Tensor`. Programs keep them as keys of tables."""

    def __init__(self, name: str, overload: str = "") -> None:
        self.__name__ = name
        self._overload = overload

    def __getattr__(self, overload: str) -> Aten:
        if overload.startswith("_"):
            raise AttributeError(overload)
        found = self.__dict__[overload] = Aten(self.__name__, overload)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = getattr(gradlab, self.__name__, None) or getattr(Tensor, self.__name__, None)
        if function is None:
            raise NotImplementedError(f"torch.ops.aten.{self.__name__}: gradlab has no function of that name")
        return function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"aten.{self.__name__}" + (f".{self._overload}" if self._overload else "")


class Namespace:
    """`torch.ops.name`. What is not in it raises AttributeError, so that programs can ask whether an extension is there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name in ("aten", "prims"):
            found = self.__dict__[name] = Aten(name)
            return found
        known = import_module("gradlab.pytorch.libraries").made(f"{self._name}::{name}")
        if known is None and self._name == "torchvision":
            known = OPERATORS.get(name)
        if known is not None:
            return known
        try:
            return import_module("gradlab.library").get(f"{self._name}::{name}")
        except KeyError as error:
            raise AttributeError(f"torch.ops.{self._name} has no operation {name!r}: {error.args[0]}") from None


class Operations:
    """`torch.ops`."""

    loaded_libraries: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self.__dict__[name] = Namespace(name)
        return found

    def load_library(self, path: str) -> NoReturn:
        """OSError: libraries of PyTorch's operations need PyTorch itself."""
        raise OSError(f"torch.ops.load_library: {path} is compiled for PyTorch; make the operation by gl.library.custom_op")


ops = Operations()
