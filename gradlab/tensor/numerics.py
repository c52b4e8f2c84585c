"""Numbers taken apart and counted: mantissas and exponents, histograms, finite differences, distances within a set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import wrap
from gradlab.dtype import FLOATING, HALF, INEXACT, get_default_dtype, needs_floating
from gradlab.named_errors import named_functions
from gradlab.spec import normalize_dim, whole
from gradlab.tensor.common_arguments import functions_take_axis, into, only_real, only_tensors
from gradlab.tensor.convert import moved
from gradlab.tensor.creation import tensor
from gradlab.tensor.norms import norm
from gradlab.tensor.rounding import rounds_once
from gradlab.tensor.shape import cat
from gradlab.tensor.spacing import linspace
from gradlab.tensor.values import values_of

if TYPE_CHECKING:
    from gradlab.tensor.tensor import Tensor

__all__ = ["frexp", "gradient", "histogram", "histogramdd", "nonzero_static", "pdist"]


class Frexp(NamedTuple):
    """What `frexp` returns."""

    mantissa: Any
    exponent: Any


@rounds_once
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """Mantissa, in [0.5, 1) by magnitude or 0, and exponent (int32) with input = mantissa · 2^exponent. The gradient is the mantissa's.

    >>> gl.frexp(gl.tensor([8.0, 0.75]))
    Frexp(mantissa=tensor([0.5000, 0.7500]), exponent=tensor([4, 0], dtype=gradlab.int32))
    """
    only_tensors("frexp", input)
    if out is not None:
        return into("frexp", out, frexp(input))
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("frexp", input.dtype))
    values = values_of(input.detach())
    exponent = np.frexp(values.astype(np.float32) if values.dtype in HALF else values)[1]
    found = moved(wrap(np.asarray(exponent, np.int32)), input.device)
    half = found.div(2, rounding_mode="trunc")  # in two steps, since one power of two may lie outside of the type
    return Frexp(input.ldexp(-half).ldexp(half - found).to(input.dtype), found)


class Histogram(NamedTuple):
    """What `histogram` returns."""

    hist: Any
    bin_edges: Any


def _ends(values: Any, range: Any) -> tuple[float, float]:
    """Where equal bins begin and end: as given, or at the smallest and largest value; 0 and 1 where there is none."""
    low, high = (float(values.min()), float(values.max())) if range is None and values.size else tuple(range or (0.0, 1.0))
    return (low, high) if low != high else (low - 0.5, high + 0.5)


def histogram(
    input: Tensor, bins: Any = 100, *, range: Any = None, weight: Any = None, density: bool = False, out: Any = None
) -> Any:  # fmt: skip
    """How many elements lie in each bin, the last of which has its upper edge, too, and the edges.

    bins: a number of equal bins between the ends in `range` (default: the smallest and largest element), or a vector of edges that do not
    decrease. weight: what each element counts. density: the counts divided by their sum and the widths. No gradients.

    >>> gl.histogram(gl.tensor([1.0, 2.0, 1.0]), bins=2)
    Histogram(hist=tensor([2., 1.]), bin_edges=tensor([1.0000, 1.5000, 2.0000]))
    """
    only_tensors("histogram", input)
    only_real("histogram", input, bins, weight)
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("histogram", input.dtype))
    if out is not None:
        return into("histogram", out, histogram(input, bins, range=range, weight=weight, density=density))
    values = values_of(input.detach()).reshape(-1)
    if isinstance(bins, Differentiable):
        edges: Any = bins.detach()  # type: ignore[attr-defined]
    else:
        low, high = _ends(values, range)
        edges = linspace(low, high, whole(bins) + 1, dtype=input.dtype, device=input.device)
    weights = None if weight is None else values_of(weight.detach()).reshape(-1)
    counts, _ = np.histogram(values, values_of(edges), weights=weights, density=density)
    return Histogram(tensor(counts.astype(values.dtype), device=input.device), edges)


class HistogramDD(NamedTuple):
    """What `histogramdd` returns."""

    hist: Any
    bin_edges: Any


def histogramdd(input: Tensor, bins: Any, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    """How many points, the rows of (…, D), lie in each box of a grid, a tensor of D dimensions, and the grid's edges in each dimension.

    bins: a number of equal bins, one for all dimensions or D, or D vectors of edges. range: where equal bins begin and end, 2 D numbers
    (default: the points' smallest and largest). weight, density: as of `histogram`. No gradients.

    >>> gl.histogramdd(gl.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), bins=[2, 2]).hist
    tensor([[0., 1.],
            [1., 1.]])
    """
    only_tensors("histogramdd", input)
    if input._array.dtype not in FLOATING:
        raise RuntimeError(needs_floating("histogramdd", input.dtype))
    shape = input._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"histogramdd: points are the rows of at least a matrix, not of shape {shape}")
    points = values_of(input.detach()).reshape(-1, shape[-1])
    each = list(bins) if isinstance(bins, (tuple, list)) else [bins] * shape[-1]
    if len(each) != shape[-1] or (range is not None and len(range) != 2 * shape[-1]):
        raise RuntimeError(f"histogramdd: bins (and two ends of the range) for each of {shape[-1]} dimensions, got {len(each)} and {range}")
    edges: list[Any] = []
    for d, given in enumerate(each):
        if isinstance(given, Differentiable):
            edges.append(given.detach())  # type: ignore[attr-defined]
        else:
            low, high = _ends(points[:, d], None if range is None else range[2 * d : 2 * d + 2])
            edges.append(linspace(low, high, whole(given) + 1, dtype=input.dtype, device=input.device))
    weights = None if weight is None else values_of(weight.detach()).reshape(-1)
    counts = _boxes(points, [values_of(e) for e in edges], weights)
    if density:
        counts = counts / counts.sum()
        for d, e in enumerate(edges):
            counts = counts / np.diff(np.asarray(values_of(e), np.float64)).reshape([-1 if i == d else 1 for i in np.arange(shape[-1])])
    return HistogramDD(tensor(counts.astype(points.dtype), device=input.device), tuple(edges))


def _boxes(points: Any, edges: list[Any], weights: Any) -> Any:
    """How many points (n, D), or what weight, each box holds; the last one along a dimension has its upper edge, too."""
    counts = np.zeros([len(e) - 1 for e in edges])
    inside, places = np.ones(len(points), bool), []
    for d, e in enumerate(edges):
        values = points[:, d]
        inside &= (values >= e[0]) & (values <= e[-1])
        places.append(np.where(values == e[-1], len(e) - 2, np.searchsorted(e, values, "right") - 1))
    if counts.size:
        np.add.at(counts, tuple([p[inside] for p in places]), 1.0 if weights is None else weights[inside])
    return counts


def _along(input: Any, dim: int, spacing: Any, edge_order: int) -> Any:
    """Second-order differences inside, of first or second order at the edges (Fornberg)."""
    size = input._array.shape[dim]
    if size < edge_order + 1:
        raise RuntimeError(f"gradient: at least {edge_order + 1} elements along dimension {dim}, not {size}")

    def part(start: int, length: int) -> Any:
        return input.narrow(dim, start, length)

    shape = [-1 if d == dim else 1 for d in np.arange(len(input._array.shape)).tolist()]
    if isinstance(spacing, Differentiable):
        steps: Any = spacing.diff().to(input.dtype)  # type: ignore[attr-defined]
    else:
        steps = input.new_full((size - 1,), spacing)
    before, after = steps[:-1].reshape(shape), steps[1:].reshape(shape)
    left, middle, right = part(0, size - 2), part(1, size - 2), part(2, size - 2)
    if isinstance(spacing, Differentiable):
        inner = (before**2 * right + (after**2 - before**2) * middle - after**2 * left) / (before * after * (before + after))
    else:  # the element in the middle has no weight: what is not a number there does no harm
        inner = (right - left) / (2 * spacing)
    if edge_order == 1:
        first, last = (part(1, 1) - part(0, 1)) / steps[0], (part(size - 1, 1) - part(size - 2, 1)) / steps[-1]
    else:
        a, b = steps[0], steps[1]
        first = (-(2 * a + b) / (a * (a + b))) * part(0, 1) + ((a + b) / (a * b)) * part(1, 1) - (a / (b * (a + b))) * part(2, 1)
        a, b = steps[-1], steps[-2]
        last = ((2 * a + b) / (a * (a + b))) * part(size - 1, 1) - ((a + b) / (a * b)) * part(size - 2, 1)
        last = last + (a / (b * (a + b))) * part(size - 3, 1)
    return cat([first, inner, last], dim)


@rounds_once
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The slope of sampled values along each of `dim` (default: all), as a tuple: differences of second order, at the edges of
    `edge_order` 1 or 2.

    spacing: the distance of neighbours, one number or one for each dimension, or for each a vector of coordinates.

    >>> gl.gradient(gl.tensor([1.0, 4.0, 9.0]))
    (tensor([3., 4., 5.]),)
    """
    only_tensors("gradient", input)
    rank = len(input._array.shape)
    every = np.arange(rank).tolist()
    spacing = 1 if spacing is None else spacing
    dims = every if dim is None else [normalize_dim(d, rank) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"gradient: dim {dim} names a dimension twice")
    spacings = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(spacings) != len(dims) or edge_order not in (1, 2):
        raise RuntimeError(
            f"gradient: a spacing for each of {len(dims)} dimensions and an edge_order of 1 or 2, got {len(spacings)} and {edge_order}"
        )
    x = input if input._array.dtype in INEXACT else input.to(get_default_dtype())
    return tuple(_along(x, d, s, edge_order) for d, s in zip(dims, spacings, strict=True))


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Any = None) -> Tensor:
    """`nonzero` with `size` rows: places beyond are dropped, missing ones are rows of fill_value.

    >>> gl.nonzero_static(gl.tensor([0, 3, 4]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    only_tensors("nonzero_static", input)
    if size < 0:
        raise RuntimeError(f"nonzero_static: size is not negative, got {size}")
    found: Any = input.nonzero()[:size]
    missing = size - found._array.shape[0]
    found = cat([found, found.new_full((missing, found._array.shape[1]), fill_value)]) if missing else found
    return found if out is None else into("nonzero_static", out, found)


@rounds_once
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """The p-norm distances of all pairs of rows of (n, m), i < j, row by row: a vector of n (n - 1) / 2.

    >>> gl.pdist(gl.tensor([[0.0], [3.0], [4.0]]))
    tensor([3., 4., 1.])
    """
    only_tensors("pdist", input)
    if len(input._array.shape) != 2:
        raise RuntimeError(f"pdist: a matrix, not shape {input._array.shape}")
    if not p >= 0:
        raise RuntimeError(f"pdist: p is 0 or more, got {p}")
    rows, columns = (tensor(i, device=input.device) for i in np.triu_indices(input._array.shape[0], 1))
    return norm(input[rows] - input[columns], p, 1)


functions_take_axis(__name__)
named_functions(__name__)
