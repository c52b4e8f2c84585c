"""All derivatives of several outputs: Jacobians by rows or by columns, Hessians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gradlab.autograd.record import bind
from gradlab.dtype import INEXACT
from gradlab.func.derivatives import Argnums, Differentiation, Linear, chosen
from gradlab.func.mapping import vmap
from gradlab.func.recording import gradients, still, zeros
from gradlab.func.tree import unflatten
from gradlab.named_errors import named_functions
from gradlab.ops.movement import cat
from gradlab.spec import count
from gradlab.tensor.creation import arange

_cat = bind(cat)


def basis(tensors: Sequence[Any], start: int, stop: int) -> list[Any]:
    """Rows `start` to `stop` of the unit matrix over all elements of the tensors, in parts of their shapes: (stop - start, *shape) each."""
    found, first = [], 0
    for x in tensors:
        shape, size = x._array.shape, count(x._array.shape)
        rows = arange(start - first, stop - first, device=x.device).unsqueeze(1) == arange(size, device=x.device)
        found.append(rows.to(x._array.dtype).reshape((stop - start, *shape)))
        first += size
    return found


def over_basis(function: Callable[..., list[Any]], tensors: Sequence[Any], chunk_size: int | None, keep: bool) -> list[Any]:
    """The results of a linear function for every unit vector, stacked in front. Not recorded unless `keep`."""
    total = sum(count(x._array.shape) for x in tensors)
    step = total if chunk_size is None else chunk_size
    parts = []

    def rows(start: int, stop: int) -> list[Any]:
        vectors = basis(tensors, start, stop)
        if stop - start == 1:
            return [y.unsqueeze(0) for y in function(*[v.squeeze(0) for v in vectors])]
        return vmap(function, randomness="same")(*vectors)

    for start in range(0, total, max(step, 1)):
        stop = min(start + step, total)
        if keep:
            parts.append(rows(start, stop))
        else:
            with still():
                parts.append(rows(start, stop))
    return parts[0] if len(parts) == 1 else [_cat(*column, dim=0) for column in zip(*parts, strict=True)]


def _checked(name: str, chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"{name}: chunk_size is None or positive, not {chunk_size}")


def _outputs(name: str, run: Differentiation) -> None:
    for y in run.outputs:
        if y._array.dtype not in INEXACT:
            raise RuntimeError(f"{name}: the function's outputs are floating point, not {y._array.dtype}")


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func`, row by row in reverse mode: one backward pass for all rows at once (vmap).

    For an output of shape (*o) and an argument of shape (*i) the Jacobian has shape (*o, *i). It nests like the output, and in it like the
    arguments `argnums` (a number, or a tuple, which gives tuples). chunk_size: at most so many rows at a time, to save memory; 1 takes one
    at a time without vmap. has_aux: `func` returns a pair (output, aux), and the result is (Jacobian, aux). Suits functions with
    fewer outputs than inputs; `jacfwd` the others.

    >>> import gradlab as gl
    >>> gl.func.jacrev(lambda x: x**2)(gl.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    _checked("jacrev", chunk_size)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        run = Differentiation("jacrev", func, chosen("jacrev", argnums, len(args)), args, kwargs, has_aux)
        _outputs("jacrev", run)
        depth, inputs = run.recording.depth, run.inputs

        def pull(*vectors: Any) -> list[Any]:
            found = gradients(run.outputs, inputs, vectors, True, run.keep, depth)
            return [zeros(x) if g is None else g for x, g in zip(inputs, found, strict=True)]

        columns = over_basis(pull, run.outputs, chunk_size, run.keep) if _any(run.outputs) else [zeros(x).unsqueeze(0)[:0] for x in inputs]
        found, start = [], 0
        for y in run.outputs:
            shape, size = y._array.shape, count(y._array.shape)
            rows = [c.narrow(0, start, size).reshape((*shape, *x._array.shape)) for c, x in zip(columns, inputs, strict=True)]
            parts = run.by_argument(rows)
            found.append(parts[0] if isinstance(argnums, int) else tuple(parts))
            start += size
        jacobian = unflatten(run.structure, found)
        return (jacobian, run.rest()) if has_aux else jacobian

    return wrapped


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, chunk_size: int | None = None, randomness: str = "error"
) -> Callable[..., Any]:
    """The function that gives the Jacobian of `func`, column by column in forward mode; arguments and result are those of `jacrev`.

    `func` runs once; all columns come from its linear approximation at once (vmap). randomness: kept for PyTorch's sake: since `func` runs
    once, every column sees the same numbers.
    """
    _checked("jacfwd", chunk_size)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        run = Differentiation("jacfwd", func, chosen("jacfwd", argnums, len(args)), args, kwargs, has_aux)
        _outputs("jacfwd", run)
        linear = Linear(run)

        def push(*vectors: Any) -> list[Any]:
            return linear(vectors, True, run.keep)

        some = _any(run.inputs)
        columns = over_basis(push, run.inputs, chunk_size, run.keep) if some else [zeros(y).unsqueeze(0)[:0] for y in run.outputs]
        found = []
        for y, column in zip(run.outputs, columns, strict=True):
            shape = y._array.shape
            moved = column.movedim(0, -1)
            rows, start = [], 0
            for x in run.inputs:
                size = count(x._array.shape)
                rows.append(moved.narrow(-1, start, size).reshape((*shape, *x._array.shape)))
                start += size
            parts = run.by_argument(rows)
            found.append(parts[0] if isinstance(argnums, int) else tuple(parts))
        jacobian = unflatten(run.structure, found)
        return (jacobian, run.rest()) if has_aux else jacobian

    return wrapped


def _any(tensors: Sequence[Any]) -> bool:
    """Whether there are elements at all."""
    return any(count(x._array.shape) for x in tensors)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The function that gives all second derivatives of `func`: `jacfwd(jacrev(func))`, of shape (*o, *i, *i).

    >>> import gradlab as gl
    >>> gl.func.hessian(lambda x: (x**3).sum())(gl.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


named_functions(__name__)
