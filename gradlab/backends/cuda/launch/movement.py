"""Copies: slices written into zeros or into a copy, concatenation, flips, diagonals, windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradlab.backends.cuda.launch.rule import Rule
from gradlab.backends.cuda.launch_context import WORD_TYPES, Work
from gradlab.spec import count


def numpy_index(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row's canonical index as arrays take it."""
    return (*(slice(*part) if isinstance(part, tuple) else part for part in index), Ellipsis)


def diagonal_view(y: Any, params: dict[str, Any]) -> Any:
    """The diagonal that a row writes."""
    return y.diagonal(params["offset"], params["dim1"], params["dim2"])


def slice_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (dy,), (y,) = inputs, outputs
    if y.size:
        work.driver.fill_zero(y)
        work.copy(y[numpy_index(params["index"])], dy)


def slice_scatter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (base, value), (y,) = inputs, outputs
    work.copy(y, base)
    work.copy(y[numpy_index(params["index"])], value)


def cat(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (y,), dim = outputs, params["dim"]
    start = 0
    for x in inputs:
        size = x.shape[dim]
        if size:
            work.copy(y[(*(slice(None),) * dim, slice(start, start + size), Ellipsis)], x)
        start += size


def flip(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,), dims = inputs, outputs, params["dims"]
    index = tuple(slice(None, None, -1) if d in dims else slice(None) for d in range(len(x.shape)))
    work.copy(y, x[(*index, Ellipsis)])


def diagonal_embed(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (values,), (y,) = inputs, outputs
    if y.size:
        work.driver.fill_zero(y)
        work.copy(diagonal_view(y, params), values)


def diagonal_scatter(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (base, value), (y,) = inputs, outputs
    work.copy(y, base)
    work.copy(diagonal_view(y, params), value)


def unfold_backward(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (windows,), (y,) = inputs, outputs
    shape, dim, size, step = y.shape, params["dim"], params["size"], params["step"]
    length, inner = (shape[dim], count(shape[dim + 1 :])) if shape else (1, 1)
    number = windows.shape[dim] if shape else 1
    function = work.kernel("movement.cu", "unfold_backward", y.dtype)
    work.each(function, y.size, y, work.contiguous(windows), length, inner, number, size, step)


def pad(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
    (x,), (y,), pads = inputs, outputs, params["pads"]
    if not y.size:
        return
    fill(work, y, params["value"])
    inside = tuple(slice(max(low, 0), max(low, 0) + s + min(low, 0) + min(high, 0)) for s, (low, high) in zip(x.shape, pads, strict=True))
    source = tuple(slice(max(-low, 0), s - max(-high, 0)) for s, (low, high) in zip(x.shape, pads, strict=True))
    if all(part.stop > part.start for part in inside):
        work.copy(y[(*inside, Ellipsis)], x[(*source, Ellipsis)])


def fill(work: Work, y: Any, value: float) -> None:
    """One value everywhere."""
    if not y.size:
        return
    number = np.asarray(value).astype(y.dtype)
    if not number.tobytes().strip(b"\0"):
        work.driver.fill_zero(y)
        return
    word = number.reshape(1).view(f"u{y.dtype.itemsize}")[0]
    work.each(work.kernel("movement.cu", "fill", WORD_TYPES[y.dtype.itemsize]), y.size, y, word)


BY_ROW = {
    "slice_backward": Rule(slice_backward), "slice_scatter": Rule(slice_scatter), "flip": Rule(flip),
    "diagonal_embed": Rule(diagonal_embed), "diagonal_scatter": Rule(diagonal_scatter), "unfold_backward": Rule(unfold_backward),
}  # fmt: skip
RULES = {("movement.cu", "cat"): Rule(cat), ("vision.cu", "pad"): Rule(pad)}
