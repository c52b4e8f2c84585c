"""How a row is run on Tensors and recorded: `bind(op)` builds the row's call once, in the shape that fits the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.autograd import fast_elementwise, fast_rows, formulas, general, one_row
from gradlab.autograd.base import Differentiable
from gradlab.autograd.general import apply, created, finish, refresh, wrap
from gradlab.autograd.mode import current
from gradlab.autograd.node import Node, node_class
from gradlab.op import Op
from gradlab.spec import broadcast, broadcast_bool, gradient_of, product, same, same_bool

__all__ = [
    "Differentiable", "adopt", "apply", "bind", "created", "finish", "fully_connected", "operator", "refresh", "side_by_side", "unrecorded",
    "wrap",
]  # fmt: skip

concatenate = getattr(np.concatenate, "_implementation", np.concatenate)  # without NumPy's question who else might answer
SMALL, FEW = 1 << 14, 16  # elements of each array, and arrays, that NumPy joins as fast as a kernel does


def adopt(tensor_class: type[Differentiable]) -> None:
    """Let results be of this class. Called once, by the tensor room."""
    general.Tensor = fast_elementwise.Tensor = fast_rows.Tensor = one_row.Tensor = Node.tensor_class = tensor_class


def bind(op: Op) -> Callable[..., Any]:
    """The row's recorded call; built on first use."""
    if op.call is None:
        op.call = _build(op)
    return op.call


def operator(op: Op, reflected: str = "", otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """As `bind`, for an elementwise row that is a Tensor's operator itself: with no function in between, the caller is one frame nearer.
    reflected: what the other side's class would call its operator."""
    bind(op)
    if otherwise is not None:  # a matrix product; `otherwise` takes what is not two matrices
        return fast_elementwise.matrix_product(op, op.node, otherwise, depth=1, reflected=reflected)
    if len(op.inputs) == 1:
        return fast_elementwise.unary(op, op.node, depth=1)
    return fast_elementwise.binary(op, op.node, depth=1, reflected=reflected)


def fully_connected(op: Op) -> Callable[..., Any]:
    """As `bind`, for the row of a fully connected layer."""
    bind(op)
    return fast_rows.fully_connected(op)


def unrecorded(x: Any) -> Any:
    """The NumPy array of a tensor on which nobody records, traces, batches or watches what is done: a function of several rows may then
    compute on arrays, whose reshapes cost a tenth of a tensor's. None for all others."""
    mode = current()
    if mode.special or type(getattr(x, "_array", None)) is not np.ndarray or (mode.recording and x._edge is not None):
        return None
    if x._meta is not None:
        refresh(x)
    return x._array


def side_by_side(tensors: Any, dim: Any) -> Any:
    """`cat` of a few small arrays on which nobody looks, of one type, or None: NumPy's own call takes a third of the row's time there."""
    kind, mode = type(tensors), current()
    if (kind is not list and kind is not tuple) or type(dim) is not int or mode.special or len(tensors) > FEW:
        return None
    arrays = []
    common = None
    for x in tensors:
        array = getattr(x, "_array", None)
        if type(array) is not np.ndarray or array.size > SMALL or (mode.recording and x._edge is not None):
            return None
        if x._meta is not None:
            refresh(x)
            array = x._array
        if array.dtype is not common:
            if common is not None or not array.ndim or array.dtype.kind not in "fiub":
                return None
            common = array.dtype
        if not array.flags.c_contiguous:
            return None
        arrays.append(array)
    try:
        return wrap(concatenate(arrays, dim))
    except (ValueError, IndexError, TypeError):  # said in our own words, or an empty one that is passed over
        return None


def _build(op: Op) -> Callable[..., Any]:
    node = op.node = formulas.with_back(node_class(op), op)
    simple = op.promote is not None and not op.params and not op.view and op.result is None and not op.variadic
    if simple and len(op.inputs) == 1 and op.rule in (same, same_bool):
        return fast_elementwise.unary(op, node)
    if simple and len(op.inputs) == 2 and op.rule in (broadcast, broadcast_bool, gradient_of):
        return fast_elementwise.binary(op, node)
    if op.elementwise and not op.steps and not op.params and isinstance(op.cpu, np.ufunc):  # of integers only, as bitwise_and
        return fast_elementwise.whole(op)
    if op.rule is product and op.promote is not None:
        return fast_elementwise.matrix_product(op, node, fast_rows.several_inputs(op))
    if op.view:
        return fast_rows.viewing(op, node)
    if op.dynamic and not op.foreign and not op.steps and len(op.inputs) == 1:
        return fast_rows.dynamic(op)
    if op.dynamic or op.foreign:
        return lambda *args, **params: apply(op, args, params)
    if len(op.inputs) == 1 and not op.variadic and op.result is None:
        return fast_rows.one_input(op, node)
    return fast_rows.several_inputs(op)
