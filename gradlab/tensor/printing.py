"""Tensors as text, laid out as PyTorch lays them out, and the options for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd.mode import current
from gradlab.dtype import BOOL, COMPLEX, COMPLEX128, FLOAT64, FLOATING, INT64, complex_of, from_numpy, get_default_dtype
from gradlab.spec import count
from gradlab.tensor.values import check_readable

__all__ = ["printoptions", "set_printoptions"]


@dataclass(frozen=True)
class Options:
    """precision: digits after the point. threshold: elements from which only the edges are shown. edgeitems: how many at each edge.
    linewidth: characters in a line. sci_mode: True or False for scientific notation always or never, None where the numbers need it."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES = {"default": Options(), "short": Options(precision=2, edgeitems=2), "full": Options(threshold=math.inf)}
_options = PROFILES["default"]


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; what is None stays (sci_mode=None: as `profile` says, or as it is).

    precision: digits after the point (4). threshold: tensors of more elements are shown by their edges (1000). edgeitems: how many at
    each edge (3). linewidth: characters in a line (80). profile: "default", "short" or "full", to start from. sci_mode: scientific notation
    always (True) or never (False). Raises ValueError for numbers below 0 and other profiles.

    >>> gl.set_printoptions(precision=2)
    >>> gl.tensor([3.14159])
    tensor([3.14])
    >>> gl.set_printoptions(profile="default")
    """
    global _options
    if profile is not None and not (isinstance(profile, str) and profile.lower() in PROFILES):
        raise ValueError(f"set_printoptions: profile is one of {', '.join(PROFILES)}, not {profile!r}")
    changes: dict[str, Any] = {
        "precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth, "sci_mode": sci_mode,
    }  # fmt: skip
    changes = {name: value for name, value in changes.items() if value is not None}
    for name, value in changes.items():
        if not isinstance(value, (int, float)) or math.isnan(value) or value < (1 if name in ("edgeitems", "linewidth") else 0):
            raise ValueError(f"set_printoptions: {name} cannot be {value!r}")
        if name != "threshold" and not isinstance(value, int):
            raise TypeError(f"set_printoptions: {name} is a whole number, not {value!r}")
        if name == "precision" and value > 2000:
            raise ValueError(f"set_printoptions: no number has more than 1100 digits; precision cannot be {value!r}")
    _options = replace(_options if profile is None else PROFILES[profile.lower()], **changes)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`set_printoptions` for a block.

    >>> with gl.printoptions(precision=2):
    ...     print(gl.tensor([1 / 3]))
    tensor([0.33])
    """
    global _options
    kept = _options
    try:
        set_printoptions(**options)
        yield
    finally:
        _options = kept


# ---------------------------------------------------------------- one element


class Formatter:
    """How the elements of a tensor are written: all in one notation and width, chosen by the finite values other than 0."""

    def __init__(self, values: Any, options: Options) -> None:
        self.floating = values.dtype == FLOAT64
        self.precision = options.precision
        self.width = 1
        self.whole, self.scientific = True, False
        if not self.floating:
            self.width = max((len(str(v)) for v in values.ravel().tolist()), default=1)
            return
        shown = values[np.isfinite(values) & (values != 0)]
        if shown.size:
            sizes = np.abs(shown)
            smallest, largest = float(sizes.min()), float(sizes.max())
            self.whole = bool((shown == np.ceil(shown)).all())
            self.scientific = largest / smallest > 1000.0 or largest > 1.0e8 or (not self.whole and smallest < 1.0e-4)
            if options.sci_mode is not None:
                self.scientific = options.sci_mode
            self.width = max(len(self._text(v)) for v in shown.tolist())

    def _text(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.whole:
            return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        return f"{value:.{self.precision}f}"

    def __call__(self, value: Any) -> str:
        return (self._text(value) if self.floating else str(value)).rjust(self.width)


class PairFormatter:
    """How complex numbers are written: real and imaginary parts each in a notation and width of their own."""

    def __init__(self, values: Any, options: Options) -> None:
        self.parts = Formatter(values.real, options), Formatter(values.imag, options)
        self.width = sum(part.width for part in self.parts) + 1

    def __call__(self, value: Any) -> str:
        first, second = self.parts
        imag = second(value.imag).lstrip() + "j"
        return first(value.real) + ("" if imag[0] in "+-" else "+") + imag


# ---------------------------------------------------------------- the whole


def shown_part(array: Any, edge: int) -> Any:
    """The elements that are shown, as a NumPy array: of dimensions longer than two edges and one only the edges and one element between.

    Corner by corner, so that of a large array on a GPU only those are copied.
    """
    backend = dispatch.backend_of(array)
    pieces, shape = [], []
    for size in array.shape:
        cut = size > 2 * edge
        shape.append(2 * edge if cut else size)
        start, end = (slice(0, edge), slice(0, edge)), (slice(size - edge, size), slice(edge, 2 * edge))
        pieces.append([start, end] if cut else [(slice(size), slice(size))])
    found = np.empty(shape, array.dtype)
    for choice in itertools.product(*pieces):
        found[tuple(to for _, to in choice)] = backend.to_numpy(array[tuple(source for source, _ in choice)])
    return found


def nested(values: Any, shape: tuple[int, ...], write: Formatter | PairFormatter, indent: int, edge: int, width: int) -> str:
    """The values in brackets. `shape`: that of the whole, of which `values` may hold only the edges (`edge` > 0)."""
    if not shape:
        return write(values.item())
    cut = 0 < 2 * edge < shape[0]
    if len(shape) == 1:
        items = [write(v) for v in values.tolist()]
        if cut:
            items.insert(edge, " ...")
        in_line = max(1, (width - indent) // (write.width + 2))
        lines = [", ".join(items[i : i + in_line]) for i in range(0, len(items), in_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [nested(v, shape[1:], write, indent + 1, edge, width) for v in values]
    if cut:
        parts.insert(edge, "...")
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(parts) + "]"


def body(array: Any, indent: int, options: Options) -> str:
    """An array's elements as text."""
    shape = array.shape
    edge = options.edgeitems if count(shape) > options.threshold else 0
    values = shown_part(array, edge) if edge else dispatch.backend_of(array).to_numpy(array)
    if values.dtype in FLOATING:
        values = values.astype(FLOAT64)
    elif values.dtype in COMPLEX:
        values = values.astype(COMPLEX128)
    write = PairFormatter(values, options) if values.dtype in COMPLEX else Formatter(values, options)
    return nested(values, shape, write, indent, edge, options.linewidth)


def elements(tensor: Any, indent: int) -> str:
    """A tensor's elements as text, in the options that are set; lines but the first are indented."""
    return body(tensor._array, indent, _options)


def has_values(array: Any) -> bool:
    """Whether there is something to show; a traced tensor has none."""
    try:
        return not dispatch.backend_of(array).staged
    except TypeError:
        return False


def suffixes(tensor: Any, shown: bool) -> Iterator[str]:
    """What stands behind the elements: what is not as usual about the tensor."""
    array = tensor._array
    dtype, default = array.dtype, get_default_dtype().dtype
    usual = (default, complex_of(default))
    if not shown:
        yield f"shape={tuple(array.shape)}"
    elif tensor.device.type != "cpu":
        yield f"device='{tensor.device}'"
        if tensor.device.type == "meta":
            yield f"size={tuple(array.shape)}"
    empty = shown and not count(array.shape) and tensor.device.type != "meta"
    if empty and len(array.shape) != 1:
        yield f"size={tuple(array.shape)}"
    bare = empty or (shown and tensor.device.type == "meta")  # no values that tell
    if not shown or dtype not in ((default,) if bare else (*usual, INT64, BOOL)):
        yield f"dtype={from_numpy(dtype)!r}"
    node = tensor.grad_fn
    if node is not None:
        yield f"grad_fn=<{node.name()}>"
    elif tensor.requires_grad:
        yield "requires_grad=True"


def describe(tensor: Any, prefix: str = "tensor(") -> str:
    """A tensor's repr: its elements, and what is not as usual: device, size of an empty tensor, dtype, grad_fn or requires_grad.

    A traced tensor shows its shape and dtype. prefix: what stands in front; the lines are indented by its length.
    """
    options, array = _options, tensor._array
    shown = has_values(array)
    if not shown:
        refuse = getattr(current().tracer, "unprintable", None)
        if refuse is not None:
            raise refuse(array)
        text = prefix + "<traced>"
    elif tensor.device.type == "meta":
        text = prefix + "..."
    elif not count(array.shape):
        text = prefix + "[]"
    else:
        check_readable(tensor)
        text = prefix + body(array, len(prefix), options)
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes(tensor, shown):
        if column + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * len(prefix) + suffix
            column = len(prefix) + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"
