"""`torch.types` and `torch.nn.common_types`: what arguments may be, for annotations."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from os import PathLike
from typing import IO, Any, TypeVar

from gradlab.device import Device as _device
from gradlab.dtype import DType as _dtype
from gradlab.tensor import Tensor

T = TypeVar("T")
Number = int | float | bool
Device = _device | str | int | None
FileLike = str | PathLike[str] | IO[bytes]
Storage = Any

_int, _float, _bool, _size = builtins.int, builtins.float, builtins.bool, Sequence[int]
_layout = _qscheme = _dispatchkey = _symint = Any
_TensorOrTensors = Tensor | Sequence[Tensor]

_scalar_or_tuple_any_t = _scalar_or_tuple_1_t = _scalar_or_tuple_2_t = _scalar_or_tuple_3_t = int | tuple[int, ...]
_size_any_t = _size_1_t = _size_2_t = _size_3_t = _size_4_t = _size_5_t = _size_6_t = int | tuple[int, ...]
_size_any_opt_t = _size_2_opt_t = _size_3_opt_t = int | None | tuple[int | None, ...]
_ratio_any_t = _ratio_2_t = _ratio_3_t = float | tuple[float, ...]
_tensor_list_t = Tensor | Sequence[Tensor]
_maybe_indices_t = Tensor | tuple[Tensor, Tensor]

__all__ = ["Device", "FileLike", "Number", "Storage", "T", "_dtype"]
