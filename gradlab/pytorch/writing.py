"""Dtypes, shapes and the classes of tensors as PyTorch writes them: programs take these texts apart, and files hold them."""

from __future__ import annotations

from gradlab.dtype import DType
from gradlab.nn.parameter import Buffer, Parameter
from gradlab.tensor import Tensor
from gradlab.tensor.size import Size


def _size(self: Size) -> str:
    return f"torch.Size({list(self)})"


def write_as_pytorch() -> None:
    """`torch.float32`, `torch.Size([2, 3])` and `<class 'torch.Tensor'>` from now on."""
    DType.package = "torch"
    Size.__repr__ = _size  # type: ignore[method-assign, assignment]
    Tensor.__module__, Parameter.__module__, Buffer.__module__ = "torch", "torch.nn.parameter", "torch.nn.parameter"
