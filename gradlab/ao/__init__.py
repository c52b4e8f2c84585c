"""What makes models smaller: `gl.ao.quantization`, under PyTorch's names."""

from __future__ import annotations

from gradlab.ao import quantization as quantization

__all__ = ["quantization"]
