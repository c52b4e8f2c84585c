"""What Python's import system asks for `torch` and every `torch.x.y`, and for the version of the package of that name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any

from gradlab.pytorch import report, table
from gradlab.pytorch.answering import stands_for
from gradlab.pytorch.table import Verdict


class Standing(Loader):
    """Gives the module that stands for one of PyTorch's, and leaves what was there already as it was."""

    _spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made = stands_for(spec.name)
        self._spec = made.__spec__
        return made

    def exec_module(self, module: ModuleType) -> None:
        if self._spec is not None:
            spec, module.__spec__ = module.__spec__, self._spec  # the import system has put its own there
        else:
            spec = module.__spec__
        self._go_on(spec.name if spec else module.__name__, module)

    def _go_on(self, name: str, module: ModuleType) -> None:
        """The modules in it that are there already stand for PyTorch's, too. A function of a module's name (`nn.utils.spectral_norm`)
        stays: what would be imported later is not put in its place."""
        for child in sorted(table.children(name)):
            value, path = vars(module).get(child), f"{name}.{child}"
            if isinstance(value, ModuleType):
                import_module(path)
            elif value is not None and table.verdict(path) is not Verdict.REFUSED:
                sys.modules[path] = stands_for(path)


class Finder(MetaPathFinder):
    """Answers for `torch` before any finder that would look for an installed PyTorch."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch" and not name.startswith("torch."):
            return None
        found = Verdict.HERE if name == "torch" else table.verdict(name)
        asker = asking(sys._getframe(1))
        if name not in table.modules() and name not in table.OLDER and asker == "_handle_fromlist":
            found = None  # `from package import name`: it is asked for as a name afterwards
        if found in (None, Verdict.REFUSED):
            if asker == "find_spec":
                return None
            known = f"gradlab does not offer it: {table.refused(name)}" if found else "neither has PyTorch, or it is its own"
            if not (report.active and asker != "_handle_fromlist" and report.missing_module(name, known, sys._getframe(1))):
                raise ModuleNotFoundError(f"No module named {name!r}: {known}", name=name)
        return ModuleSpec(name, Standing(), origin="gradlab", is_package=name == "torch" or bool(table.children(name) or table.inert(name)))

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """The package's entry for `importlib.metadata`: `version("torch")` is the module's `__version__`."""
        if getattr(context, "name", None) != "torch":
            return []
        return [import_module("gradlab.pytorch.distribution").Torch()]


def asking(frame: FrameType | None) -> str:
    """On whose behalf the import system asks: `find_spec` wants None for what is not there, `_handle_fromlist` tries whether a name is one
    of a module. Nothing for an import."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code is find_spec.__code__ or frame.f_code.co_name == "_handle_fromlist":
            return frame.f_code.co_name
        frame = frame.f_back
    return ""
