"""`gl.relu_(x)` and its kin: the in-place methods as functions, under the names that PyTorch has of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradlab.tensor.common_arguments import only_tensors
from gradlab.tensor.tensor import Tensor


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """The function that calls the in-place method of that name."""

    def in_place(input: Any, *args: Any, **kwargs: Any) -> Any:
        only_tensors(name, input)
        return getattr(input, name)(*args, **kwargs)

    in_place.__name__ = in_place.__qualname__ = name
    in_place.__doc__ = getattr(Tensor, name).__doc__
    return in_place
