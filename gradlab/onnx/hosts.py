"""Operators on plain numbers: what files compute from shapes, with NumPy and without tensors.

Sizes that a trace leaves open (`gradlab.graph.dims`) stand in arrays of objects, on which arithmetic keeps their expressions. Whatever is
not here runs as a tensor operation on the CPU (`importing.on_host`), or on the device where open sizes are among its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.onnx.importing import DATA_TYPES, Node, is_dynamic
from gradlab.quiet import quietly

Array = np.ndarray[Any, Any]
HOST: dict[str, Callable[..., Any]] = {}
OPEN: set[str] = set()  # those that take open sizes
LARGEST = 1 << 22  # elements of what is computed here: larger data are tensors'


class NotHere(Exception):
    """This case is for tensors."""


def hosted(*names: str, open_sizes: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register `function(node, *arrays)`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        HOST.update((name, function) for name in names)
        if open_sizes:
            OPEN.update(names)
        return function

    return register


def packed(values: Sequence[Any], dtype: Any = np.int64) -> Array:
    """A vector: of a plain dtype unless open sizes are in it."""
    if not any(map(is_dynamic, values)):
        return np.array(values, dtype)
    found = np.empty(len(values), object)
    found[:] = values
    return found


def settled(value: Any) -> Array:
    """An array of objects as one of numbers, where no open size is left in it."""
    if is_dynamic(value):
        array = np.empty((), object)
        array[()] = value
        return array
    array = np.asarray(value)
    if array.dtype != object or any(map(is_dynamic, array.reshape(-1))):
        return array
    return array.astype(np.float32 if any(isinstance(v, float) for v in array.reshape(-1)) else np.int64)


def arithmetic(function: Callable[[Array, Array], Any]) -> Callable[..., Any]:
    """An operator on two arrays, in the dtype that both have."""

    def run(node: Node, a: Array, b: Array) -> Any:
        if node.opset < 7 and "axis" in node.attributes:
            raise NotHere
        if a.dtype != b.dtype and object not in (a.dtype, b.dtype):
            raise NotHere  # an invalid file, for tensors to say
        return settled(quietly(function, a, b))

    return run


def divided(a: Array, b: Array) -> Any:
    """Integers towards zero."""
    if a.dtype == object or b.dtype == object:
        return np.frompyfunc(_divided, 2, 1)(a, b)
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    if (b == 0).any():
        raise NotHere
    whole = np.floor_divide(a, b)
    return (whole + ((whole < 0) & (whole * b != a))).astype(a.dtype)


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def compared(function: Callable[[Array, Array], Any]) -> Callable[..., Any]:
    """A comparison; of an open size its hint is compared, as everywhere in a trace."""

    def run(node: Node, a: Array, b: Array) -> Any:
        if node.opset < 7 and "axis" in node.attributes:
            raise NotHere
        return np.asarray(function(a, b)).astype(bool)

    return run


_ARITHMETIC: dict[str, Callable[[Array, Array], Any]] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divided}
for _name, _function in _ARITHMETIC.items():
    hosted(_name)(arithmetic(_function))
for _name, _function in {
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal,
}.items():  # fmt: skip
    hosted(_name)(compared(_function))
for _name, _function in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.items():
    hosted(_name, open_sizes=False)(compared(_function))


@hosted("Mod")
def mod(node: Node, a: Array, b: Array) -> Any:
    if object not in (a.dtype, b.dtype) and (node.get("fmod", 0) or a.dtype.kind not in "iu" or (b == 0).any()):
        raise NotHere
    return settled(a % b)


@hosted("Neg")
def neg(node: Node, a: Array) -> Any:
    return settled(-a)


@hosted("Max", "Min")
def extreme(node: Node, *xs: Array) -> Any:
    found = xs[0]
    for x in xs[1:]:
        found = (np.maximum if node.kind == "Max" else np.minimum)(found, x)
    return settled(found)


@hosted("Not", open_sizes=False)
def not_(node: Node, a: Array) -> Any:
    return np.logical_not(a)


@hosted("Abs", "Sqrt", "Exp", "Log", "Reciprocal", open_sizes=False)
def functions(node: Node, a: Array) -> Any:
    if a.dtype.kind != "f" and node.kind != "Abs":
        raise NotHere
    function = {"Abs": np.abs, "Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Reciprocal": np.reciprocal}[node.kind]
    return np.asarray(quietly(function, a)).astype(a.dtype)


_ROUNDED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "Floor": (np.floor, math.floor), "Ceil": (np.ceil, math.ceil), "Round": (np.round, lambda v: math.floor(v + 0.5)),
}  # fmt: skip


@hosted(*_ROUNDED)
def rounded(node: Node, a: Array) -> Any:
    whole, one = _ROUNDED[node.kind]
    if a.dtype != object:
        return whole(a)
    return settled(np.frompyfunc(lambda v: one(v) * 1.0 if isinstance(v, float) else v, 1, 1)(a))


@hosted("Cast")
def cast(node: Node, a: Array) -> Any:
    name = DATA_TYPES.get(node.get("to"), "")
    if a.dtype != object:
        odd = a.dtype.kind == "f" and name[:1] in ("i", "u") and not np.isfinite(a).all()
        if odd or name not in ("float32", "float64", "int64", "int32", "bool", "uint8", "int8", "float16"):
            raise NotHere
        return a.astype(name)
    if name in ("int64", "int32"):
        return settled(np.frompyfunc(lambda v: math.trunc(v) if isinstance(v, float) else v, 1, 1)(a))
    if name in ("float32", "float64", "float16"):
        return settled(np.frompyfunc(lambda v: v * 1.0, 1, 1)(a))
    raise NotHere


@hosted("Identity")
def identity(node: Node, a: Array) -> Any:
    return a


@hosted("Gather")
def gather(node: Node, a: Array, at: Array) -> Any:
    axis = node.get("axis", 0)
    if at.dtype.kind not in "iu" or (at.size and (at.max() >= a.shape[axis] or at.min() < -a.shape[axis])):
        raise NotHere
    return settled(np.take(a, at, axis))


@hosted("Concat")
def concat(node: Node, *xs: Array) -> Any:
    return settled(np.concatenate(xs, node.get("axis", 1)))


@hosted("Unsqueeze")
def unsqueeze(node: Node, a: Array, axes: Any = None) -> Any:
    return np.expand_dims(a, tuple(int(v) for v in np.asarray(node.get("axes") if axes is None else axes).reshape(-1)))


@hosted("Squeeze")
def squeeze(node: Node, a: Array, axes: Any = None) -> Any:
    axes = node.get("axes") if axes is None else axes
    return np.squeeze(a, None if axes is None else tuple(int(v) for v in np.asarray(axes).reshape(-1)))


@hosted("Reshape")
def reshape(node: Node, a: Array, wanted: Any = None) -> Any:
    sizes = [int(v) for v in np.asarray(node.get("shape") if wanted is None else settled(wanted)).reshape(-1)]
    return a.reshape([a.shape[i] if n == 0 and not node.get("allowzero", 0) else n for i, n in enumerate(sizes)])


@hosted("Transpose")
def transpose(node: Node, a: Array) -> Any:
    return a.transpose(node.get("perm"))


@hosted("Slice")
def slice_(node: Node, a: Array, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    begin, end, which, step = (
        None if v is None else [int(n) for n in np.asarray(v).reshape(-1)]
        for v in (node.get("starts") if starts is None else starts, node.get("ends") if ends is None else ends,
                  node.get("axes") if axes is None else axes, steps)
    )  # fmt: skip
    assert begin is not None and end is not None
    at: list[Any] = [slice(None)] * a.ndim
    for axis, first, last, by in zip(range(len(begin)) if which is None else which, begin, end, step or [1] * len(begin), strict=True):
        places = range(*slice(first, last, by).indices(a.shape[axis]))
        at[axis] = np.arange(places.start, places.stop, places.step) if by < 0 else slice(first, last, by)
    if sum(not isinstance(s, slice) for s in at) > 1:
        raise NotHere
    return settled(a[tuple(at)])


@hosted("Split")
def split(node: Node, a: Array, sizes: Any = None) -> Any:
    wanted = node.get("split") if sizes is None else sizes
    axis = node.get("axis", 0)
    if wanted is None:
        each = -(-a.shape[axis] // len(node.outputs))
        places = [each * (i + 1) for i in range(len(node.outputs) - 1)]
    else:
        places = np.cumsum([int(v) for v in np.asarray(wanted).reshape(-1)])[:-1].tolist()
    return tuple(map(settled, np.split(a, places, axis)))


@hosted("Where")
def where(node: Node, condition: Array, a: Array, b: Array) -> Any:
    return settled(np.where(condition.astype(bool), a, b))


@hosted("Expand")
def expand(node: Node, a: Array, wanted: Array) -> Any:
    sizes = np.broadcast_shapes(a.shape, tuple(int(v) for v in settled(wanted).reshape(-1)))
    small(sizes)
    return settled(np.broadcast_to(a, sizes).copy())


def small(sizes: Sequence[int]) -> None:
    """NotHere for arrays that are large."""
    if math.prod(sizes) > LARGEST or any(n < 0 for n in sizes):
        raise NotHere


@hosted("ConstantOfShape", open_sizes=False)
def constant_of_shape(node: Node, wanted: Array) -> Any:
    sizes = [int(v) for v in wanted.reshape(-1)]
    small(sizes)
    value = node.get("value", np.zeros(1, np.float32)).reshape(-1)
    return np.full(sizes, value[0], value.dtype)


@hosted("Range", open_sizes=False)
def range_(node: Node, start: Array, limit: Array, delta: Array) -> Any:
    first, last, step = (v.reshape(-1)[0].item() for v in (start, limit, delta))
    count = max(math.ceil((last - first) / step), 0)
    small([count])
    return (first + np.arange(count) * step).astype(start.dtype)


_REDUCED: dict[str, Callable[..., Any]] = {"ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}


@hosted("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def reduced(node: Node, a: Array, axes: Any = None) -> Any:
    axes = node.get("axes") if axes is None else axes
    if axes is not None and not np.size(axes):
        axes = None
        if node.get("noop_with_empty_axes", 0):
            return a
    if not a.size:
        raise NotHere
    function = _REDUCED[node.kind]
    dims = None if axes is None else tuple(int(v) for v in np.asarray(axes).reshape(-1))
    found = function(a, axis=dims, keepdims=bool(node.get("keepdims", 1)))
    return settled(found) if a.dtype == object else np.asarray(found, a.dtype)


@hosted("Shape")
def shape(node: Node, x: Any) -> Any:
    """Of a tensor, or of plain numbers."""
    return packed(list(x.shape)[slice(node.get("start", 0), node.get("end"))])


@hosted("Size")
def size(node: Node, x: Any) -> Any:
    return packed([math.prod(x.shape)]).reshape(())
