"""The module `torch`: gradlab's names, with PyTorch's version."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gradlab
from gradlab.pytorch import version


class Facade(ModuleType):
    """`torch`. It is a module of its own, so that `torch.__version__` is PyTorch's and `gradlab.__version__` stays gradlab's."""

    def __init__(self) -> None:
        super().__init__("torch", gradlab.__doc__)
        names = {name: value for name, value in vars(gradlab).items() if not name.startswith("__")}
        self.__dict__.update(names, version=version, __version__=version.__version__, __path__=[])

    def __getattr__(self, name: str) -> Any:
        value = getattr(gradlab, name)
        if not name.startswith("__"):  # looked up once: from now on it is found as quickly as in any module
            self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(gradlab)})
