"""Rows of memory: elements in any steps (`as_strided`), bits as another dtype; and the memory that an array is a part of."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.kernel import Library
from gradlab.op import Op
from gradlab.ops.indexing import index_put
from gradlab.spec import ShapeError, Spec, cached_sizes, count

Sizes = tuple[int, ...]


def reach(shape: Sizes, steps: Sizes) -> int:
    """How many elements from its first one a tensor of that shape and those steps reaches; 0 for one without elements."""
    if 0 in shape:
        return 0
    last = 0
    for size, step in zip(shape, steps, strict=True):
        last += (size - 1) * step
    return last + 1


# ---------------------------------------------------------------- elements in any steps


def strided_rule(x: Spec, *, shape: Sizes, steps: Sizes, first: int) -> Spec:
    """Rule: the shape asked for, none of whose elements lies beside those of `x`."""
    if len(shape) != len(steps) or first < 0 or any(s < 0 for s in (*shape, *steps)):
        raise ShapeError(f"shape {shape}, steps {steps} and the first element {first} do not fit together")
    last = reach(shape, steps)
    if last and first + last > count(x.shape):
        raise ShapeError(f"shape {shape} in steps {steps} reaches element {first + last - 1} of {count(x.shape)}")
    return Spec(shape, x.dtype)


def strided_view(x: Any, *, shape: Sizes, steps: Sizes, first: int) -> Any:
    """A view where the elements of `x` lie row by row. NumPy looks at the bounds of the bytes it is given."""
    line = np.ascontiguousarray(x).reshape(-1)
    size = x.dtype.itemsize
    if 0 in shape:
        first = 0
    elif not line.size:  # NumPy takes a buffer without bytes for one of any size
        raise ShapeError(f"shape {shape} in steps {steps} reaches beside a tensor without elements")
    found: Any = np.ndarray(shape, x.dtype, line.view(np.uint8), first * size, [s * size for s in steps])
    if 0 in steps and 0 not in shape and any(n > 1 and not s for n, s in zip(shape, steps, strict=True)):
        found.flags.writeable = False  # as what `expand` repeats
    return found


def _strided_library(cupy: Any, inputs: Any, params: Any) -> Any:
    (x,), shape, steps = inputs, params["shape"], tuple(s * inputs[0].dtype.itemsize for s in params["steps"])
    start = x if 0 in shape else x.reshape(-1)[params["first"] :]  # no element is reached: it matters not how `x` lies
    return cupy.lib.stride_tricks.as_strided(start, shape, steps)


@cached_sizes(64)
def places(shape: Sizes, steps: Sizes, first: int) -> Any:
    """Which element of the memory each element is."""
    found: Any = np.full(shape, first, np.int64)
    for dim, (size, step) in enumerate(zip(shape, steps, strict=True)):
        found += (np.arange(size) * step).reshape(-1, *(1,) * (len(shape) - 1 - dim))
    return found.reshape(-1)


def _summed(g: Any, x_spec: Spec, shape: Sizes, steps: Sizes, first: int) -> Any:
    """What arrives at an element adds up over all places where it is seen."""
    at = g.new_tensor(places(shape, steps, first), dtype=np.dtype(np.int64)).reshape(1, -1)
    zeros = g.new_zeros((count(x_spec.shape),))
    return index_put(zeros, at, g.reshape(-1), dims=(0,), accumulate=True, wrap=True).reshape(x_spec.shape)


def _written(base: Any, value: Any, shape: Sizes, steps: Sizes, first: int) -> Any:
    at = value.new_tensor(places(shape, steps, first), dtype=np.dtype(np.int64)).reshape(1, -1)
    return index_put(base.reshape(-1), at, value.reshape(-1), dims=(0,), accumulate=False, wrap=True).reshape(base.shape)


def _batched(op: Op, size: int, mapped: Any, values: Any, params: Any) -> Any:
    (x,) = values
    steps = (count(x.shape[1:]), *params["steps"])
    return op(x.contiguous(), shape=(size, *params["shape"]), steps=steps, first=params["first"])


as_strided: Op = Op("as_strided", strided_rule, params=("shape", "steps", "first"), view=True, inverse=_written,
                    cpu=strided_view, cuda=Library(_strided_library), batch=_batched, grad={"x": _summed})  # fmt: skip

# ---------------------------------------------------------------- the memory around


class Foreign:
    """Memory of somebody else's array, for an array whose memory is no more than that: what lies around it is not ours."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.kept = array
        self.__array_interface__ = {**array.__array_interface__, "typestr": f"|V{array.itemsize}"}
        self.__array_interface__.pop("descr", None)


def root(x: Any) -> Any:
    """The array whose memory `x` is a part of."""
    kind = np.ndarray if isinstance(x, np.ndarray) else type(x)
    while True:
        base = getattr(x, "base", None)
        if kind is np.ndarray and base is not None and not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # NumPy's as_strided puts an object between
        if not isinstance(base, kind):
            return x
        x = base


def line_of(x: Any) -> Any:
    """All the memory that `x` is a part of, as one line of elements of its dtype; None where it has gaps, or elements of another size."""
    owner = root(x)
    order = sorted(range(owner.ndim), key=lambda d: -owner.strides[d])
    ordered = owner.transpose(order)
    if not ordered.flags.c_contiguous:
        return None
    line = ordered.reshape(-1)
    if line.dtype == x.dtype:
        return line
    size, wanted = line.dtype.itemsize, x.dtype.itemsize
    return None if size * line.shape[0] % wanted else line.view(x.dtype)


# ---------------------------------------------------------------- bits


def bits_rule(x: Spec, *, dtype: np.dtype[Any]) -> Spec:
    """Rule: the last size counts elements of another width."""
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return Spec(x.shape, dtype)
    if not x.shape:
        raise ShapeError(f"a 0-d tensor of {x.dtype} cannot be seen as {dtype}, whose elements have another size")
    if x.shape[-1] * old % new:
        raise ShapeError(f"the last size of {x.shape} is no multiple of {new // old}, the number of {x.dtype} that make one {dtype}")
    return Spec((*x.shape[:-1], x.shape[-1] * old // new), dtype)


def bits_cpu(x: Any, *, dtype: np.dtype[Any]) -> Any:
    return x.view(dtype)


def _batched_bits(op: Op, size: int, mapped: Any, values: Any, params: Any) -> Any:
    (x,) = values
    if len(x.shape) == 1:  # numbers of one sample each
        bits_rule(Spec((), x._array.dtype), **params)
    return op(x.contiguous(), **params)


bits: Op = Op("bits", bits_rule, params=("dtype",), view=True, cpu=bits_cpu, batch=_batched_bits,
              inverse=lambda base, value, dtype: bits(value, dtype=base._array.dtype))  # fmt: skip
