"""Arrays from values, and of values that repeat, by the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.dtype import get_default_dtype, int64
from gradlab.tensor import assembly, creation, spacing
from gradlab.tensor.creation import from_dlpack as _from_dlpack


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of numbers, nested sequences, arrays of any library or buffers. copy: True: always, False: never (ValueError where one
    would be needed), None: where needed. Sequences may hold arrays, which are stacked.

    >>> gl.array_api.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if copy is False:
        if not (isinstance(obj, (Differentiable, np.ndarray)) or hasattr(obj, "__dlpack__")):
            raise ValueError(f"asarray: of a {type(obj).__name__} an array is a copy, and copy=False")
        found = creation.as_tensor(obj)
        moved = found.to(dtype=dtype, device=device)
        if moved is not found:
            raise ValueError("asarray: another dtype, another device or read-only memory needs a copy, and copy=False")
        return found
    return creation.asarray(obj, dtype=dtype, device=device, copy=copy)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array that shares the memory of another library's, by DLPack: `gl.from_dlpack`.

    >>> gl.array_api.from_dlpack(gl.ones(2))
    tensor([1., 1.])
    """
    return _from_dlpack(x, device=device, copy=copy)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """start, start + step, … below `stop`; `arange(stop)` begins at 0. Empty where the step does not lead there.

    >>> gl.array_api.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    begin, end = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: a step that is not 0")
    if (end - begin) * step <= 0:
        whole = all(isinstance(x, int) for x in (begin, end, step))
        return creation.empty(0, dtype=dtype or (int64 if whole else get_default_dtype()), device=device)
    return creation.arange(begin, end, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array whose values do not matter (zeros).

    >>> gl.array_api.empty((2, 3)).shape
    (2, 3)
    """
    return creation.empty(shape, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of that shape whose values do not matter (zeros).

    >>> gl.array_api.empty_like(gl.ones(2)).shape
    (2,)
    """
    return creation.empty_like(x, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    """Ones on the k-th diagonal of a matrix of zeros.

    >>> gl.array_api.eye(2, k=1)
    tensor([[0., 1.],
            [0., 0.]])
    """
    columns = n_rows if n_cols is None else n_cols
    made = np.eye(n_rows, columns, k, dtype=(get_default_dtype() if dtype is None else dtype).dtype)
    return creation.placed(made, device, False)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One value everywhere, of its own dtype unless another is given.

    >>> gl.array_api.full(2, 7)
    tensor([7, 7])
    """
    return creation.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One value everywhere, in that shape.

    >>> gl.array_api.full_like(gl.ones(2), 7)
    tensor([7., 7.])
    """
    return creation.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Any:
    """`num` numbers from `start` to `stop` at equal distances; without the last one where `endpoint=False`.

    >>> gl.array_api.linspace(0, 1, 4, endpoint=False)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if not endpoint:
        return spacing.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num].clone()
    return spacing.linspace(start, stop, num, dtype=dtype, device=device)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of the points of a grid; "xy" has rows of y, "ij" the order of the arguments.

    >>> [x.shape for x in gl.array_api.meshgrid(gl.ones(2), gl.ones(3))]
    [(3, 2), (3, 2)]
    """
    if not arrays:
        return []
    return list(assembly.meshgrid(*arrays, indexing=indexing))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones.

    >>> gl.array_api.ones(2)
    tensor([1., 1.])
    """
    return creation.ones(shape, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones in that shape.

    >>> gl.array_api.ones_like(gl.zeros(2))
    tensor([1., 1.])
    """
    return creation.ones_like(x, dtype=dtype, device=device)


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The lower triangle of matrices, up to the k-th diagonal.

    >>> gl.array_api.tril(gl.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return x.tril(k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The upper triangle of matrices, from the k-th diagonal on.

    >>> gl.array_api.triu(gl.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return x.triu(k)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros.

    >>> gl.array_api.zeros(2)
    tensor([0., 0.])
    """
    return creation.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros in that shape.

    >>> gl.array_api.zeros_like(gl.ones(2))
    tensor([0., 0.])
    """
    return creation.zeros_like(x, dtype=dtype, device=device)
