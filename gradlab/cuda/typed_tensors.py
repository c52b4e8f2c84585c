"""The older types of tensors on a GPU, `cuda.FloatTensor` and its kin: see `gradlab.tensor.typed_tensors`."""

from __future__ import annotations

from gradlab.tensor.typed_tensors import CUDA_TYPES

FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, ByteTensor = list(CUDA_TYPES.values())[:5]
CharTensor, ShortTensor, IntTensor, LongTensor, BoolTensor = list(CUDA_TYPES.values())[5:10]
