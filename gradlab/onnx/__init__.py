"""ONNX: `export` writes a module, a function or a traced program as an ONNX file, and checks it with ONNX Runtime.

The packages onnx and onnxruntime are needed when something is exported, not to import this room: pip install "gradlab-engine[onnx]".
"""

from __future__ import annotations

from gradlab.onnx.checking import ExportError, ExportWarning
from gradlab.onnx.emitter import Unsupported
from gradlab.onnx.exporting import Exported, export
from gradlab.onnx.importing import OnnxLoadError
from gradlab.onnx.loading import OnnxModel, load
from gradlab.onnx.lowering import UnsupportedError
from gradlab.onnx.registry import exports

__all__ = [
    "ExportError",
    "ExportWarning",
    "Exported",
    "OnnxLoadError",
    "OnnxModel",
    "Unsupported",
    "UnsupportedError",
    "export",
    "exports",
    "load",
]
