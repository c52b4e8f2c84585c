"""Tensors: the class, functions on tensors by family, creation, random numbers."""

from __future__ import annotations

from gradlab.tensor.tensor import Tensor

__all__ = ["Tensor"]
