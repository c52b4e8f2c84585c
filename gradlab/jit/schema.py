"""What the parameters and inputs of a row may be, beyond what its rule checks. Rules see what gradlab's own functions give them; a file may
say anything.

`PARAMETERS` tells by name what a parameter is. A test runs every sample of every row through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.device import Device
from gradlab.dtype import COMPLEX, INEXACT, INT64
from gradlab.graph.ir.dims import hint
from gradlab.jit.portable import LoadError, short
from gradlab.op import Op
from gradlab.spec import Spec
from gradlab.taps import taps

Check = Callable[[Any, "Place"], bool]

# Rows whose inputs' shapes the rule does not relate to one another. In a program from a stranger they run in NumPy, which checks.
LOOSE_ENDINGS = ("_backward", "_update")
LOOSE = frozenset({
    "convolution_dx", "convolution_dw", "convolution_transpose", "masked_gather", "masked_scatter", "diagonal_embed", "diagonal_scatter",
    "col2im", "max_unpool", "max_pool_gather", "solve_triangular", "solve", "searchsorted", "histc", "scatter_reduce",
})  # fmt: skip
# Inputs that hold places in another input, or a random state.
PLACES = frozenset({"at", "index", "indices", "state"})
# Rows whose tensors have one dtype, though nothing promotes them.
ALIKE = {
    "where": ("a", "b"), "cat": ("xs",), "slice_scatter": ("base", "value"), "diagonal_scatter": ("base", "value"),
    "recurrence": ("a", "b"), "index_put": ("x", "value"), "masked_scatter": ("x", "source"),
    **dict.fromkeys(("layer_norm_backward", "rms_norm_backward", "batch_norm_backward"), ("dy", "x", "weight")),
    **dict.fromkeys(("layer_norm_residual_backward", "rms_norm_residual_backward"), ("dy", "ds", "s", "weight")),
}  # fmt: skip


class Place:
    """A call whose parameters are looked at."""

    def __init__(self, op: Op, specs: Sequence[Any], params: dict[str, Any]) -> None:
        self.op, self.specs, self.params = op, specs, params
        first = next((s for s in specs if isinstance(s, Spec)), None)
        shape = params.get("shape")
        backward = op.name.endswith("_backward") and isinstance(shape, tuple)
        self.shape: tuple[Any, ...] = tuple(shape) if backward and isinstance(shape, tuple) else () if first is None else first.shape
        self.rank = len(self.shape)


def loose(op: Op) -> bool:
    """Whether a row from a file runs in NumPy only, which checks what its rule does not."""
    return op.name in LOOSE or op.name.endswith(LOOSE_ENDINGS)


def check_call(op: Op, specs: Sequence[Any], params: dict[str, Any]) -> None:
    """LoadError for parameters or inputs that no program of gradlab has. specs: of each input a Spec, a number, or None."""
    if set(params) != set(op.params):
        raise LoadError(f"it has parameters {sorted(params)}, and the row has {sorted(op.params)}")
    _check_inputs(op, specs)
    place = Place(op, specs, params)
    for name, value in params.items():
        check = OVERRIDES.get((op.name, name)) or PARAMETERS.get(name, _plain)
        if not check(value, place):
            raise LoadError(f"its parameter {name} is {short(value)}")
    spatial = [v for n, v in params.items() if n in _SPATIAL and isinstance(v, tuple) and (op.name, n) not in OVERRIDES]
    if len({len(v) for v in spatial}) > 1 or any(len(v) >= max(place.rank, 1) for v in spatial):
        raise LoadError(f"its parameters {short(params)} are of different numbers of dimensions")
    extra = CALLS.get(op.name)
    if extra is not None and not extra(place):
        raise LoadError(f"its parameters {short(params)} do not fit its inputs")


def _check_inputs(op: Op, specs: Sequence[Any]) -> None:
    tensors = [s for s in specs if isinstance(s, Spec)]
    if not op.variadic and len(specs) > len(op.inputs):
        raise LoadError(f"it has {len(specs)} inputs, and the row has {len(op.inputs)}")
    if op.variadic and len(specs) < len(op.inputs):
        raise LoadError(f"it has {len(specs)} inputs")
    if (op.inputs and not tensors) or (specs and isinstance(specs[0], float) and len(op.inputs) == 1):
        raise LoadError("none of its inputs is a tensor")
    if op.promote is not None and len({s.dtype for s in tensors}) > 1:
        raise LoadError(f"its inputs have dtypes {', '.join(sorted({s.dtype.name for s in tensors}))}, and the row takes one")
    if op.promote == "float" and any(s.dtype not in INEXACT for s in tensors):
        raise LoadError("its inputs are not of floating point")
    if type(op.complex) is not str and any(s.dtype in COMPLEX for s in tensors):
        raise LoadError("its inputs are complex, and the row takes real ones")
    names = [op.inputs[min(i, len(op.inputs) - 1)] for i in range(len(specs))]
    for name, spec in zip(names, specs, strict=True):
        if not isinstance(spec, Spec):
            continue
        if name in PLACES and spec.dtype != INT64 and not (op.name.endswith("_backward") and name == "state"):
            raise LoadError(f"its input {name} is {spec.dtype.name}, and holds places: int64")
        if name == "target" and op.name.startswith(("nll", "cross_entropy")) and spec.dtype != INT64:
            raise LoadError(f"its target is {spec.dtype.name}, and holds classes: int64")
    alike = ALIKE.get(op.name, ())
    if len({s.dtype for n, s in zip(names, specs, strict=True) if n in alike and isinstance(s, Spec)}) > 1:
        raise LoadError("its inputs have different dtypes")


# ---------------------------------------------------------------- kinds of parameters


def _bool(value: Any, _: Place) -> bool:
    return type(value) is bool


def _int(value: Any, _: Place) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any, _: Place) -> bool:
    return isinstance(value, (int, float))


def _count(value: Any, place: Place) -> bool:
    return _int(value, place) and 0 <= hint(value) < 1 << 48


def _positive(value: Any, place: Place) -> bool:
    return _count(value, place) and value >= 1


def _dim(value: Any, place: Place) -> bool:
    return type(value) is int and 0 <= value < max(place.rank, 1)


def _dims(value: Any, place: Place) -> bool:
    inside = type(value) is tuple and all(_dim(d, place) and d < place.rank for d in value)
    return inside and list(value) == sorted(set(value))


def _dims_in_any_order(value: Any, place: Place) -> bool:
    return type(value) is tuple and all(type(d) is int for d in value) and _dims(tuple(sorted(value)), place)


def _dim_or_dims(value: Any, place: Place) -> bool:
    return _dims(value, place) if type(value) is tuple else _dim(value, place)


def _shape(value: Any, place: Place) -> bool:
    return type(value) is tuple and len(value) <= 64 and all(_count(s, place) for s in value)


def _spatial(least: int) -> Check:
    """As many whole numbers as there are dimensions behind the first ones (batch, channels)."""

    def check(value: Any, place: Place) -> bool:
        good = type(value) is tuple and 1 <= len(value) <= 3 and all(_count(v, place) and v >= least and hint(v) < 1 << 31 for v in value)
        return good and len(value) <= place.rank

    return check


def _one_of(*texts: str) -> Check:
    return lambda value, _: type(value) is str and value in texts


def _optional(check: Check) -> Check:
    return lambda value, place: value is None or check(value, place)


def _slices(value: Any, place: Place) -> bool:
    def part(p: Any) -> bool:
        if p is None or _int(p, place):
            return True
        good = type(p) is tuple and len(p) == 3 and (p[0] is None or _int(p[0], place)) and (p[1] is None or _int(p[1], place))
        return good and _positive(p[2], place)

    return type(value) is tuple and len(value) <= 128 and all(map(part, value)) and sum(p is not None for p in value) <= place.rank


def _pads(value: Any, place: Place) -> bool:
    good = type(value) is tuple and len(value) <= place.rank
    return good and all(type(p) is tuple and len(p) == 2 and all(_int(n, place) and abs(hint(n)) < 1 << 40 for n in p) for p in value)


def _table(value: Any, place: Place) -> bool:
    dim: Any = place.params.get("dim")
    if type(value) is not tuple or len(value) < 3 or not _dim(dim, place) or not place.rank:
        return False
    kind, source, target, *rest = value
    size = source if place.op.name == "resample" else target
    numbers = _count(source, place) and _count(target, place) and all(type(r) is bool or _number(r, place) for r in rest)
    finite = all(not isinstance(r, float) or math.isfinite(r) for r in rest)
    return type(kind) is str and numbers and finite and hint(source) < 1 << 31 and hint(target) < 1 << 31 and size == place.shape[dim]


def _resampled(kind: str, inputs: Any, outputs: Any, *rest: Any) -> bool:
    """Whether a table takes from inside of its input. (Looked at again where its sizes become known.)"""
    known: dict[str, tuple[int, ...]] = {"nearest": (1,), "nearest-exact": (1,), "area": (0,), "linear": (2,), "cubic": (2,)}
    known |= {"linear-antialias": (1, 2), "cubic-antialias": (1, 2), "reflect": (1,), "replicate": (1,), "circular": (1,)}
    if len(rest) not in known.get(kind, ()):
        return False
    if any(hasattr(v, "expr") for v in (inputs, outputs, *rest)):
        return True
    wide = abs(rest[0]) if rest else inputs / max(outputs, 1)
    if inputs < 1 or outputs < 1 or wide > 1 << 31 or outputs * min(inputs, 4 * wide + 4) > 1 << 24:
        return False
    places = np.asarray(taps((kind, inputs, outputs, *rest))[0])
    return bool(((places >= 0) & (places < inputs)).all())


def _plain(value: Any, place: Place) -> bool:
    """A parameter of a row that is not gradlab's own."""
    if isinstance(value, tuple):
        return all(_plain(v, place) for v in value)
    return value is None or isinstance(value, (bool, int, float, complex, str, np.dtype, Device))


def _squeezed(place: Place) -> bool:
    return all(place.shape[d] == 1 for d in place.params["dims"])


_SPATIAL = frozenset({"dilation", "kernel", "stride", "padding", "outputs", "size"})
_KINDS: dict[Check, str] = {
    _bool: "accumulate aligned causal ceil_mode consecutive decoupled descending full include include_self inverse invert keepdim largest "
           "lower maximize nesterov overlap pass_nan replacement reverse right rounds unitriangular upper wrap zero_infinity",
    _number: "alpha atol beta eps exponent hi high lo low p rate rtol scale slope start std step take keep threshold value mean",
    _int: "offset ignore_index diagonal",
    _count: "blank first k minlength n samples rows kind derivative",
    _positive: "bins classes groups",
    _dim_or_dims: "dim",
    _dim: "dim0 dim1 dim2",
    _dims: "dims",
    _shape: "shape steps",
    _spatial(1): "dilation kernel stride",
    _spatial(0): "padding outputs size",
    _slices: "index",
    _pads: "pads",
    _table: "table",
    _one_of("none", "mean", "sum"): "reduction",
    _one_of("prod", "amax", "amin", "sum", "mean"): "reduce",
    _one_of("reduced", "complete"): "mode",
    _one_of("relu", "gelu", "gelu_tanh", "silu"): "activation",
    _one_of("tanh", "relu"): "nonlinearity",
    _optional(_positive): "divisor",
    _optional(_count): "padding_idx",
    lambda value, _: isinstance(value, np.dtype): "dtype",
    lambda value, _: isinstance(value, Device): "device source",
}  # fmt: skip
PARAMETERS: dict[str, Check] = {name: check for check, names in _KINDS.items() for name in names.split()}
_GRIDS = ("grid_sample", "grid_sample_backward")
OVERRIDES: dict[tuple[str, str], Check] = {
    ("about_mean", "divisor"): _number,
    ("var", "divisor"): _number,
    ("mse", "mean"): _bool,
    ("arange", "size"): _count,
    ("unfold", "size"): _count,
    ("unfold_backward", "size"): _count,
    ("unfold", "step"): _positive,
    ("unfold_backward", "step"): _positive,
    ("dropout", "p"): lambda value, place: _number(value, place) and 0 <= value <= 1,
    ("unsqueeze", "dim"): lambda value, place: type(value) is int and 0 <= value <= place.rank,
    ("diagonal_embed", "dim1"): lambda value, place: type(value) is int and 0 <= value <= place.rank,
    ("diagonal_embed", "dim2"): lambda value, place: type(value) is int and 0 <= value <= place.rank,
    ("permute", "dims"): lambda value, place: _dims_in_any_order(value, place) and len(value) == place.rank,
    **{(name, "mode"): _one_of("bilinear", "nearest", "bicubic") for name in _GRIDS},
    **{(name, "padding"): _one_of("zeros", "border", "reflection") for name in _GRIDS},
    ("flip", "dims"): lambda value, place: _dims_in_any_order(value, place),
}
CALLS: dict[str, Callable[[Place], bool]] = {
    "diagonal": lambda place: place.params["dim1"] != place.params["dim2"],
    "layer_norm": lambda place: 1 <= place.params["k"] <= place.rank,
    "rms_norm": lambda place: 1 <= place.params["k"] <= place.rank,
    "layer_norm_residual": lambda place: 1 <= place.params["k"] <= place.rank,
    "rms_norm_residual": lambda place: 1 <= place.params["k"] <= place.rank,
    "random_integers": lambda place: place.params["low"] < place.params["high"],
    "random_permutation": lambda place: len(place.params["shape"]) == 1,
    "resample": lambda place: _resampled(*place.params["table"]),
    "polygamma": lambda place: hint(place.params["n"]) <= 100,
    "squeeze": _squeezed,
    "index": lambda place: len(place.params["dims"]) > 0,
    "index_put": lambda place: len(place.params["dims"]) > 0,
    "topk": lambda place: place.params["k"] <= (place.shape[place.params["dim"]] if place.rank else 1),
}
