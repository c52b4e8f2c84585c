"""Functions that only move elements: NumPy moves the elements' numbers, and the tensor's elements are picked by them, which is recorded.

Number 0 stands for what the function puts in by itself, zeros (`np.tril`, `np.pad`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.interchange.values import Declined, found_in, replaced
from gradlab.tensor.creation import as_tensor
from gradlab.tensor.shape import cat

# By how many of the arguments at the front hold elements; what stands behind them says how they are moved, and so does all of `second`.
CARRIED: dict[Any, int] = {
    **dict.fromkeys((
        np.array_split, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.compress, np.delete, np.diag, np.diagflat, np.diagonal, np.dsplit,
        np.flip, np.fliplr, np.flipud, np.hsplit, np.linalg.diagonal, np.lib.stride_tricks.sliding_window_view, np.pad, np.resize,
        np.repeat, np.roll, np.rollaxis, np.rot90, np.split, np.take, np.tile, np.tril, np.triu, np.vsplit, np.take_along_axis, np.extract,
        np.append, np.insert, np.block, np.trim_zeros,
    ), 1),
}  # fmt: skip
_BOTH = {np.append: (0, 1), np.insert: (0, 2), np.extract: (1,), np.compress: (1,)}  # where the elements stand, if not first alone
_MODES = {"constant", "edge", "reflect", "symmetric", "wrap"}  # of pad, which compute nothing


def carried(function: Any, args: Any, kwargs: Any) -> Any:
    """The function's result on tensors."""
    if function is np.pad and _computes(args, kwargs):
        raise Declined("gradlab pads by elements and by zeros alone; use nn.functional.pad for other numbers")
    if function is np.trim_zeros or (function is np.atleast_1d and len(args) > 1):
        raise Declined("gradlab has no form of it")
    places = _BOTH.get(function, (0,))
    if len(args) <= max(places):
        raise Declined("its elements are given by name; give them by place")
    moved = [args[i] for i in places]
    sources: list[Any] = []
    like = found_in(args)[0]
    count = 1

    def numbers(value: Any) -> Any:
        nonlocal count
        x = value if isinstance(value, Differentiable) else as_tensor(value, device=like.device)
        size = x.numel()  # type: ignore[attr-defined]
        sources.append(x)
        count += size
        return np.arange(count - size, count).reshape(tuple(x.shape))  # type: ignore[attr-defined]

    numbered = [replaced(value, numbers, (Differentiable, np.ndarray, int, float)) for value in moved]
    rest = [numbered[places.index(i)] if i in places else _plain(value) for i, value in enumerate(args)]
    chosen = function(*rest, **{name: _plain(value) for name, value in kwargs.items()})
    dtype = sources[0].dtype
    for x in sources[1:]:
        dtype = (x.new_zeros(1) + sources[0].new_zeros(1)).dtype if x.dtype != dtype else dtype
    flat = cat([sources[0].new_zeros(1, dtype=dtype), *(x.reshape(-1).to(dtype=dtype) for x in sources)])
    return replaced(chosen, lambda array: flat[as_tensor(array, device=flat.device)], np.ndarray)


def _plain(value: Any) -> Any:
    return replaced(value, lambda x: x.detach().cpu().numpy())


def _computes(args: Any, kwargs: Any) -> bool:
    mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
    filled = kwargs.get("constant_values", 0)
    return mode not in _MODES or bool(np.any(np.asarray(filled) != 0)) or kwargs.get("reflect_type", "even") != "even"
