"""The optional packages: imported when something is exported, so that `import gradlab.onnx` works without them."""

from __future__ import annotations

from typing import Any

ADVICE = 'pip install "gradlab-engine[onnx]"'


def format_package() -> Any:
    """The package `onnx`. ImportError with what to install where it is missing."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
    except ImportError as error:
        raise ImportError(f"gradlab.onnx needs the packages onnx and onnxruntime: {ADVICE} ({error})") from error
    return onnx


def runtime_package() -> Any:
    """The package `onnxruntime`. ImportError with what to install where it is missing."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"gradlab.onnx needs the packages onnx and onnxruntime: {ADVICE} ({error})") from error
    return onnxruntime


def reference_evaluator() -> Any:
    """The class of ONNX's own, slow interpreter."""
    format_package()
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator
