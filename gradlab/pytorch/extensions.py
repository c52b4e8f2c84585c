"""What an installed torchvision asks of its compiled operators: they are linked against PyTorch's library and cannot be loaded.

Those of boxes and regions (`ops.nms`, `ops.roi_align`, …) are `gl.detection`'s. The modules of torchvision that load them and tell
PyTorch's dispatcher of them hold nothing here; all else of it is Python, and is used as it is installed: data sets, transforms, models,
detectors, `make_grid`. What decodes images and videos raises AttributeError or RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from gradlab import detection


def _has_ops() -> bool:
    return True


def _load_library(name: str) -> bool:
    return False


def _check_cuda_version() -> int:
    return -1


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _roi_align(input: Any, rois: Any, scale: float, high: int, wide: int, ratio: int, aligned: bool) -> Any:
    return detection.roi_align(input, rois, (high, wide), scale, ratio, aligned)


def _ps_roi_align(input: Any, rois: Any, scale: float, high: int, wide: int, ratio: int) -> Any:
    return detection.ps_roi_align(input, rois, (high, wide), scale, ratio), None


def _roi_pool(input: Any, rois: Any, scale: float, high: int, wide: int) -> Any:
    return detection.largest(input, rois, (high, wide), scale)


def _ps_roi_pool(input: Any, rois: Any, scale: float, high: int, wide: int) -> Any:
    return detection.ps_roi_pool(input, rois, (high, wide), scale), None


def _deform_conv2d(input: Any, weight: Any, offset: Any, mask: Any, bias: Any, *numbers: Any) -> Any:
    stride, padding, dilation = numbers[0:2], numbers[2:4], numbers[4:6]
    return detection.deform_conv2d(input, offset, weight, bias, stride, padding, dilation, mask if numbers[-1] else None)


OPERATORS: dict[str, Callable[..., Any]] = {
    "nms": detection.nms, "roi_align": _roi_align, "roi_pool": _roi_pool, "ps_roi_align": _ps_roi_align, "ps_roi_pool": _ps_roi_pool,
    "deform_conv2d": _deform_conv2d,
}  # fmt: skip
"""`torch.ops.torchvision`, as torchvision's Python calls it."""

_LOADING: dict[str, Any] = {
    "_has_ops": _has_ops, "_load_library": _load_library, "_check_cuda_version": _check_cuda_version, "_assert_has_ops": _nothing,
}  # fmt: skip
MODULES: dict[str, dict[str, Callable[..., Any]]] = {
    "torchvision.extension": _LOADING,
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
