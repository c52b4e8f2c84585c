"""What other libraries' functions come to on tensors: NumPy's ufuncs and functions, and einops'."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_BACKENDS, _LAYERS = "einops._backends", "einops.layers.gradlab"


class _Watcher:
    """Sees einops being imported, and tells it of tensors then; and answers for `einops.layers.gradlab`.

    einops has no other door: its backends are the subclasses of a class of its own. Each other import costs one comparison.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As every finder of `sys.meta_path`."""
        if name not in (_BACKENDS, _LAYERS):
            return None
        if name == _LAYERS:
            return _of_layers()
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                import_module("gradlab.interchange.einops_backend")

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 - a method of this one loader
        return spec


def _of_layers() -> Any:
    layers: Any = import_module("gradlab.interchange.einops_layers")
    return layers.spec(_LAYERS)


def watch() -> None:
    """Let einops know tensors, now or when it is imported."""
    if _BACKENDS in sys.modules:
        import_module("gradlab.interchange.einops_backend")
    sys.meta_path.insert(0, _Watcher())
