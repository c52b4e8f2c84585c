"""`cond`, `switch`, `while_loop` and `scan`: control flow that depends on values and that a trace keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.graph.control.branching import name_of, staged_switch
from gradlab.graph.control.looping import WAY_OUT, staged_while
from gradlab.graph.control.nesting import compare, specs_of, tensors_of
from gradlab.graph.control.scanning import checked, staged_scan
from gradlab.graph.staging.tree import unflatten
from gradlab.named_errors import describe
from gradlab.nn.multi_output_node import parts
from gradlab.tensor.shape import stack

__all__ = ["cond", "scan", "switch", "while_loop"]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """`true_fn(*operands)` where `pred` holds, else `false_fn(*operands)`.

    Eagerly a Python `if`. In a trace both functions are traced, and the program runs the one that `pred` chooses.

    pred: a bool, or a tensor of one element. A bool chooses when the function is traced.
    operands: a tuple of tensors, nested in tuples, lists and dicts as you like. The functions may use other tensors as well.
    Both functions return the same structure of tensors, with the same shapes and dtypes. Gradients of any order.
    Raises ValueError or TypeError in a trace where the results differ, naming both.

    >>> import gradlab as gl
    >>> gl.cond(gl.tensor(-2.0) > 0, lambda x: x, lambda x: -x, (gl.tensor(3.0),))
    tensor(-3.)
    """
    operands = _tuple("cond", operands)
    for function in (true_fn, false_fn):
        _callable("cond", function)
    if not isinstance(pred, Differentiable):
        if not isinstance(pred, (bool, int)):
            raise TypeError(f"cond: pred is a bool or a tensor of one element, not {type(pred).__name__}")
        return (true_fn if pred else false_fn)(*operands)
    _one_element("cond", "pred", pred)
    if not _traced():
        return (true_fn if bool(pred) else false_fn)(*operands)
    found, structure = tensors_of(operands, "cond: operands")
    chosen = pred if pred._array.dtype.kind == "b" else pred.ne(0)  # type: ignore[attr-defined]
    names = [f"the result of false_fn ({name_of(false_fn)})", f"the result of true_fn ({name_of(true_fn)})"]
    return staged_switch("cond", chosen, [false_fn, true_fn], found, structure, names)


def switch(index: Any, branches: Sequence[Callable[..., Any]], operands: Sequence[Any] = ()) -> Any:
    """`branches[index](*operands)`. An index below zero chooses the first, one behind the end the last (as `jax.lax.switch`).

    index: an int, or an integer tensor of one element. The rest as in `cond`.

    >>> import gradlab as gl
    >>> gl.switch(gl.tensor(1), [lambda x: x, lambda x: x * x, lambda x: -x], (gl.tensor(3.0),))
    tensor(9.)
    """
    operands = _tuple("switch", operands)
    branches = list(branches)
    if not branches:
        raise ValueError("switch: branches is empty; give at least one function")
    for function in branches:
        _callable("switch", function)
    if isinstance(index, Differentiable):
        _one_element("switch", "index", index)
        if index._array.dtype.kind not in "iu":
            raise TypeError(f"switch: index is an integer, not {index._array.dtype.name}")
        if _traced():
            found, structure = tensors_of(operands, "switch: operands")
            names = [f"the result of branch {i} ({name_of(b)})" for i, b in enumerate(branches)]
            return staged_switch("switch", index, branches, found, structure, names)
        at = int(index.item())  # type: ignore[attr-defined]
    elif isinstance(index, int):
        at = index
    else:
        raise TypeError(f"switch: index is an int or a tensor of one element, not {type(index).__name__}")
    return branches[min(max(at, 0), len(branches) - 1)](*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """Run `carried = body_fn(*carried)` as long as `cond_fn(*carried)` holds; returns the last `carried`.

    Eagerly a Python `while`, which is recorded as any other code. In a trace the two functions are traced once; the program has no
    gradients (how much a backward would have to keep is not known): backward() raises RuntimeError, use `scan` with the largest number
    of steps instead. In a trace the functions cannot draw random numbers.

    carried_inputs: a tuple of tensors, nested as you like. body_fn returns a tuple of the same structure, shapes and dtypes.
    cond_fn returns a tensor of one element. Raises ValueError or TypeError where they do not.

    >>> import gradlab as gl
    >>> gl.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (gl.tensor(0), gl.tensor(1.0)))
    (tensor(3), tensor(8.))
    """
    carried: Any = _tuple("while_loop", carried_inputs)
    _callable("while_loop", cond_fn)
    _callable("while_loop", body_fn)
    found, structure = tensors_of(carried, "while_loop: carried_inputs")
    if not found:
        raise ValueError("while_loop: carried_inputs holds no tensor, so the condition could never change")
    if _traced():
        return staged_while(cond_fn, lambda *carry: _returned(body_fn(*carry)), found, structure)
    specs = specs_of(found)
    while True:
        flag = cond_fn(*carried)
        if isinstance(flag, Differentiable):
            _one_element("while_loop", "the condition", flag)
        if not flag:
            return carried
        carried = _returned(body_fn(*carried))
        after, after_structure = tensors_of(carried, "while_loop: what body_fn returns")
        compare("while_loop", "carried", (specs, structure), "the result of body_fn", (specs_of(after), after_structure), WAY_OUT)


def _returned(value: Any) -> Any:
    if isinstance(value, Differentiable):
        raise TypeError("while_loop: body_fn returns a tuple, as long as carried_inputs; for one tensor write (x,)")
    return tuple(value) if type(value) is list else value


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False, recompute: bool = False
) -> tuple[Any, Any]:
    """Run `carry, y = combine_fn(carry, x)` for each slice x of `xs` along `dim`; returns the last carry, and the ys stacked.

    Eagerly a Python loop. In a trace the body is traced once, so that tracing and compiling take the same time whatever the length.

    init: the first carry: tensors, nested as you like. combine_fn returns a carry of the same structure, shapes and dtypes.
    xs: tensors, nested as you like, of one size along `dim`. Slices lack that dimension. `y` is nested as you like, or None; it is
    stacked along `dim` too, or along dimension 0 where it has fewer dimensions.
    reverse: from the last slice to the first; the ys stand where their xs stand.
    recompute: in a trace keep only the carries for the backward, and compute the rest of each step again.
    Gradients of any order, also for tensors that combine_fn uses from outside, such as parameters. Random numbers are drawn anew in
    each step. For sequences of different lengths pad, and keep the old carry with `where(t < lengths, new, old)`.
    Raises ValueError or TypeError where the carry changes or xs do not fit, RuntimeError where there is nothing to scan over.

    >>> import gradlab as gl
    >>> gl.scan(lambda total, x: (total + x, total + x), gl.tensor(0.0), gl.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([1., 3., 6.]))
    """
    _callable("scan", combine_fn)
    start, init_structure = tensors_of(init, "scan: init")
    found, xs_structure = tensors_of(xs, "scan: xs")
    if not found:
        raise RuntimeError("scan: xs holds no tensor, so there is nothing to scan over; give arange(n) for n steps")
    shape = tuple(found[0]._array.shape)
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise TypeError(f"scan: dim is an integer, not {describe(dim)}")
    for what, flag in (("reverse", reverse), ("recompute", recompute)):
        if not isinstance(flag, (bool, int, np.bool_)):
            raise TypeError(f"scan: {what} is True or False, not {describe(flag)}")
    if not -len(shape) <= dim < len(shape):
        raise IndexError(f"scan: dim {dim} is out of range for the first tensor of xs, which has shape {shape}")
    dim %= len(shape)
    rows = []
    for i, x in enumerate(found):
        if len(x._array.shape) <= dim:
            raise IndexError(f"scan: dim {dim} is out of range for tensor {i} of xs, which has shape {tuple(x._array.shape)}")
        rows.append(x if dim == 0 else x.movedim(dim, 0))
    sizes = [x._array.shape[0] for x in rows]
    if len(set(sizes)) > 1:
        raise ValueError(f"scan: the tensors of xs have sizes {sizes} along dim {dim}; they have one size")
    length = sizes[0]
    if length == 0:
        raise RuntimeError(f"scan: xs has size 0 along dim {dim}; there is nothing to scan over")
    if _traced():
        last, outputs = staged_scan(combine_fn, start, init_structure, rows, xs_structure, length, reverse, recompute)
        return last, _moved(*tensors_of(outputs, "scan: the output that combine_fn returns"), dim)
    slices = [[s.squeeze(0) for s in parts(x, [1] * length)] for x in rows]
    specs, carry = specs_of(start), init
    ys: list[Any] = [None] * length
    structure: Any = None
    for t in range(length - 1, -1, -1) if reverse else range(length):
        result = combine_fn(carry, unflatten(xs_structure, [s[t] for s in slices]))
        _, y, now = checked(result, specs, init_structure)
        carry = result[0]
        if structure is not None:
            kinds = (specs_of(y), now)
            compare("scan", "an earlier output of combine_fn", structure, "a later one", kinds, "outputs are stacked, so they are alike")
        structure, ys[t] = (specs_of(y), now), y
    return carry, _moved([stack(list(column)) for column in zip(*ys, strict=True)], structure[1], dim)


def _moved(stacked: list[Any], structure: Any, dim: int) -> Any:
    """Outputs with the steps where they were in xs, if they have that many dimensions (as in PyTorch)."""
    return unflatten(structure, [y.movedim(0, dim) if 0 < dim < y.dim() else y for y in stacked])


def _traced() -> bool:
    mode = current()
    return mode.tracer is not None and mode.vmap is None


def _tuple(name: str, operands: Any) -> tuple[Any, ...]:
    if not isinstance(operands, (tuple, list)):
        raise TypeError(f"{name}: operands are a tuple of tensors, not {type(operands).__name__}; for one tensor write (x,)")
    return tuple(operands)


def _callable(name: str, function: Any) -> None:
    if not callable(function):
        raise TypeError(f"{name}: expected a function, not {type(function).__name__}")


def _one_element(name: str, what: str, tensor: Any) -> None:
    if tensor.numel() != 1:
        raise ValueError(f"{name}: {what} has shape {tuple(tensor.shape)}, but it is one value; use where() to choose element by element")
