"""What an installed torchvision asks of its compiled operators: they are linked against PyTorch's library and cannot be loaded.

The modules of torchvision that load them and tell PyTorch's dispatcher of them hold nothing here; all else of it is Python, and is used
as it is installed: data sets, transforms, models, `make_grid`. What needs an operator (`ops.nms`, `ops.roi_align`, reading of videos)
raises RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn


def _has_ops() -> bool:
    return False


def _load_library(name: str) -> bool:
    return False


def _check_cuda_version() -> int:
    return -1


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _assert_has_ops() -> NoReturn:
    raise RuntimeError(
        "torchvision's compiled operators (nms, roi_align, deform_conv2d, …) are linked against PyTorch, and are not there under gradlab; "
        "write the operation with tensors, or as gl.library.custom_op"
    )


_OPERATORS: dict[str, Any] = {
    f.__name__: f for f in (_has_ops, _load_library, _check_cuda_version, _assert_has_ops)
}  # fmt: skip
MODULES: dict[str, dict[str, Callable[..., Any]]] = {
    "torchvision.extension": _OPERATORS,
    "torchvision._autograd_registrations": {},
    "torchvision._meta_registrations": {},
    "torchvision.io._load_gpu_decoder": {},
    "torchvision.models.quantization": {},
    "torchvision.ops._register_onnx_ops": {"_register_custom_op": _nothing},
}


class Without(MetaPathFinder, Loader):
    """Answers for those modules before any finder that would look for their files."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, origin="gradlab") if name in MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(MODULES[module.__name__])
