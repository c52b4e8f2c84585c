"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from gradlab.named_errors import named_functions
from gradlab.tensor import Tensor
from gradlab.tensor.shape import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements one after the other, in a vector; gradients pass through."""
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give the parameters their elements from a vector. ValueError where the numbers of elements differ."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: expected a tensor, not {type(vec).__name__}")
    listed = list(parameters)
    total = sum(p.numel() for p in listed)
    if total != vec.numel():
        raise ValueError(f"vector_to_parameters: the vector has {vec.numel()} elements, the parameters {total}")
    start = 0
    for p in listed:
        p.data = vec[start : start + p.numel()].reshape(p.shape).detach().to(p._array.dtype).clone()
        start += p.numel()


named_functions(__name__)
