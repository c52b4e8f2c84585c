"""What Python's import system asks for `torch` and every `torch.x.y`, and for the version of the package of that name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from gradlab.pytorch import version
from gradlab.pytorch.facade import Facade

_OWN = {"torch.version": version.__name__}


def home(name: str) -> str:
    """The module of gradlab that answers for `torch.x.y`."""
    return _OWN.get(name, "gradlab" + name.removeprefix("torch"))


class Existing(Loader):
    """Gives a module that is there already, and leaves it as it was."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name == "torch":
            return Facade()
        module = import_module(home(spec.name))
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if not isinstance(module, Facade):
            module.__spec__ = self._spec  # the import system has put its own there


class Finder(MetaPathFinder):
    """Answers for `torch` before any finder that would look for an installed PyTorch."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "torch":
            return ModuleSpec(name, Existing(), origin="gradlab", is_package=True)
        if not name.startswith("torch.") or not _exists(home(name)):
            return None
        return ModuleSpec(name, Existing(), origin="gradlab")

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """The package's entry for `importlib.metadata`: `version("torch")` is the module's `__version__`."""
        if getattr(context, "name", None) != "torch":
            return []
        return [import_module("gradlab.pytorch.distribution").Torch()]


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False
